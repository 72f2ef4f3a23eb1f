"""The vectors of items, computed outside any transaction: at the put if the embedder answers, otherwise later.

The embedded texts of an item are those at the paths of its index, in pieces that a model reads whole.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from adapters.embedders.base import Embedder, to_blob
from memory.cutting import normalise, split
from memory.stage import (
    STAGE_BUDGET_SECONDS,
    StageReport,
    bury,
    bury_damaged,
    claim_batch,
    crash_error,
    put_off_withdrawn,
    released_on_failure,
    run_batches,
    stage_writing,
)
from reverie.errors import Permanent, Transient
from storage.items import WaitingItem
from storage.pipeline.work import Claim
from storage.stores import Store

# The path of the whole value.
WHOLE: Final = "$"
# At most so many pieces of 640 characters of an item are embedded; search by meaning does not find the text after them.
MAX_PIECES: Final = 32
# A path with wildcards leads to at most so many values.
_MAX_NODES: Final = 1_000
# An index in brackets, several names in braces, or a name.
_STEP: Final = re.compile(r"\[([^\[\]]*)\]|\{([^{}]*)\}|([^.\[\]{}]+)")
_CUT_CHARACTERS: Final = 640 * MAX_PIECES


def pieces_to_embed(value: Mapping[str, Any], paths: Sequence[str]) -> list[str]:
    """Return the texts at the paths of a value in pieces, each once and at most `MAX_PIECES`."""
    found: dict[str, None] = {}
    for path in paths:
        for text in texts_at(value, path):
            prepared = normalise(text[:_CUT_CHARACTERS])
            found.update(dict.fromkeys(piece for piece in split(prepared) if piece))
    return list(islice(found, MAX_PIECES))


def texts_at(value: Any, path: str) -> list[str]:
    """Return the texts that a path leads to: `title`, `author.name`, `notes[0]`, `notes[*].text`, `{title,text}`, `*`.

    A number or a truth value is its text, an object or a list its fields, one a line. A missing value has no text.
    """
    nodes: list[Any] = [value]
    if path != WHOLE:
        for index, names, name in _STEP.findall(path):
            nodes = list(islice((found for node in nodes for found in _follow(node, index, names, name)), _MAX_NODES))
    return [text for node in nodes if (text := _text_of(node))]


def _follow(node: Any, index: str, names: str, name: str) -> Iterator[Any]:
    if names:
        for one in names.split(","):
            reached = node
            for part in one.strip().split("."):
                reached = reached.get(part) if isinstance(reached, Mapping) else None
            yield reached
    elif name == "*":
        yield from node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
    elif name:
        if isinstance(node, Mapping) and name in node:
            yield node[name]
    elif isinstance(node, list):
        yield from node if index == "*" else _at(node, index)


def _at(node: list[Any], index: str) -> list[Any]:
    try:
        return [node[int(index)]]
    except (ValueError, IndexError):
        return []


def _text_of(node: Any) -> str:
    """Return the text of a value: that of its only field, or each field as its name and its text, one a line.

    A sentence is closer to a query than the same sentence among braces and quotation marks.
    """
    fields = list(_fields("", node))
    if len(fields) == 1:
        return fields[0][1]
    return "\n".join(f"{name}: {text}" if name else text for name, text in fields)


def _fields(name: str, node: Any) -> Iterator[tuple[str, str]]:
    """Yield the fields of a value with their names; the elements of a list have the name of the list."""
    if isinstance(node, Mapping):
        for key, inner in node.items():
            yield from _fields(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(node, list):
        for inner in node:
            yield from _fields(name, inner)
    elif text := _plain(node):
        yield name, text


def _plain(node: Any) -> str:
    return "" if node is None else str(node)


# Pieces embedded within a put, about a second on two cores; the rest waits for the workers.
_AT_ONCE: Final = 48
# Items embedded between two transactions.
_BATCH: Final = 20


def vectors_at_once(
    embedder: Embedder | None, indexed: Sequence[tuple[Mapping[str, Any], Sequence[str]]]
) -> list[list[bytes] | None]:
    """Return the vectors of values at the paths of their index, None for those that have to wait.

    A value has no vectors if it has no text at its paths, or if the embedder refuses its text.
    """
    found: list[list[bytes] | None] = []
    room = _AT_ONCE
    for value, paths in indexed:
        pieces = pieces_to_embed(value, paths) if room > 0 else []
        room -= max(1, len(pieces))
        found.append(None if room < 0 and found else _vectors(embedder, pieces))
        if found[-1] is None:
            room = 0  # the embedder is away: it is not asked again
    return found


def embed_waiting(
    store: Store,
    embedder: Embedder,
    *,
    now: Callable[[], int],
    budget_seconds: float = STAGE_BUDGET_SECONDS,
) -> dict[str, int]:
    """Embed items that wait, and those embedded by another model, in batches; return counts.

    When the time is up, `more` is 1; after a failure `failed`. The rest waits for the next call. Items that were
    deleted or are being erased are left out; this is checked before each item, since the embedder may be remote.
    """
    deadline = time.monotonic() + budget_seconds
    with store.reading() as tx:
        is_stale = tx.waiting_items.any_of_other_models(embedder.model)
    if is_stale:
        with store.writing() as tx:
            tx.waiting_items.wait_again(embedder.model)

    def batch(report: StageReport) -> bool | None:
        claim = claim_batch(store, "items", now=now(), limit=_BATCH)
        if claim is None:
            return None
        with released_on_failure(store, claim, now):
            return _embed_claimed(store, claim, embedder, now, deadline, report)

    report = run_batches(batch, budget_seconds=budget_seconds)
    counts = {"items": report.done, "buried": report.buried, "more": int(report.more), "failed": report.retried}
    return {name: count for name, count in counts.items() if count or name == "items"}


def _embed_claimed(
    store: Store, claim: Claim, embedder: Embedder, now: Callable[[], int], deadline: float, report: StageReport
) -> bool:
    """Embed claimed items while there is time; return whether to continue with the next batch."""
    error = crash_error(claim)
    with store.reading() as tx:
        items = tx.waiting_items.rows(claim.items)
        unread = set(claim.items) - {item.row_id for item in items}
        damaged = [item for item in sorted(unread) if not tx.work.is_done("items", item)]
    report.buried += bury_damaged(store, claim, damaged, now())
    found: list[tuple[WaitingItem, list[bytes]]] = []
    is_away = False
    for item in () if error else items:
        if found and time.monotonic() >= deadline:
            break
        if put_off_withdrawn(store, claim, "items", [item.row_id], now=now()):
            continue
        vectors = _vectors(embedder, pieces_to_embed(item.value, item.index_fields))
        if vectors is None:
            is_away = True
            break
        found.append((item, vectors))
    with stage_writing(store) as tx:
        if error:
            report.buried += len(bury(tx, claim, {item.row_id: error for item in items}, now=now()))
        for item, vectors in found:
            report.done += tx.waiting_items.put_vectors(item, vectors, model=embedder.model)
        tx.work.finish(claim, claim.items)  # what is left waits as before
    report.retried = int(is_away)
    return not is_away


def _vectors(embedder: Embedder | None, pieces: Sequence[str]) -> list[bytes] | None:
    """Return the vectors of pieces; an empty list if the embedder refuses them, None if it is away."""
    if embedder is None:
        return None
    try:
        embedder.load()
        return [] if not pieces else [to_blob(vector) for vector in embedder.embed(pieces)]
    except Permanent:
        return []
    except Transient:
        return None
