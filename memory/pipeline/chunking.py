"""Split messages, files and memories into chunks of at most 640 characters, 96 of them shared with the one before.

The text of a message is its content and the arguments of its tool calls, normalised. A speaker's name is put in front:
"Yes, last Tuesday!" is also found by who said it.
"""

from __future__ import annotations

import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, repeat
from typing import Any, Final, Literal

from blake3 import blake3

from memory.cutting import CHUNK_CHARACTERS, normalise, split
from memory.questions import questions_in
from memory.stage import (
    StageReport,
    bury,
    bury_damaged,
    claim_batch,
    crash_error,
    live_latencies,
    popped_from,
    put_off_withdrawn,
    released_on_failure,
    run_batches,
    stage_writing,
    within_transaction_time,
)
from reverie.errors import Permanent
from reverie.parts import in_parts
from storage.pipeline.chunks import TABLE_OF, SourceKind
from storage.pipeline.files import NOBODY, STEP_CHUNKS
from storage.pipeline.records import NewChunk, SourceText
from storage.pipeline.work import Claim
from storage.recall.words import hashes_of
from storage.rows import DamagedRow, from_json_of
from storage.stores import Store
from storage.transaction import Transaction

BATCH_SOURCES: Final = 256
# How much text one batch reads into memory.
_BATCH_BYTES: Final = 4 * 1024 * 1024
# A batch is stored after this time, so that other workspaces get their turn: 1 MiB of text takes 0.01 to 0.3 s to cut.
_CUT_SECONDS: Final = 0.5
# How many chunks are stored at once: some 10 ms in SQLite, 30 ms in PostgreSQL. A file of 8 MiB has 15,000.
_CHUNKS_AT_ONCE: Final = 64
# Seconds of the processor, not of the clock, so that a busy machine sets nothing aside. The slowest file known, 8 MiB
# of Chinese without punctuation, takes 2 s.
_SOURCE_CPU_SECONDS: Final = 8.0

_SourceStage = Literal["chunk", "chunk-files", "chunk-memories"]
_KINDS: Final[dict[_SourceStage, SourceKind]] = {
    "chunk": "message",
    "chunk-files": "file",
    "chunk-memories": "memory",
}


# One to three words that do not begin with a small letter (a to z here, others are checked where it is used), then a
# colon and a blank.
_LABEL = re.compile(r"\A((?:[^\W\d_a-z][\w.'-]{0,30})(?: [^\W\d_a-z][\w.'-]{0,30}){0,2}): \S")


# Sources with some of their chunks, and whether these are the last ones of the source.
_Part = list[tuple[SourceText, list[NewChunk], bool]]


class TextNotCut(Permanent):
    """The text takes too long to cut. It stays stored; replaying its dead letter tries again."""


class _NextBatch(Exception):
    """The time of a batch is up; the source that is being split is left to the next batch."""


def chunk_messages(
    store: Store,
    *,
    now: Callable[[], int],
    on_batch: Callable[[list[int]], None],
    on_files: Callable[[list[int]], None] = lambda _: None,
) -> StageReport:
    """Chunk all new messages, files and memories.

    After each commit `on_batch` is called with the rows of messages (an empty list after a batch of something else),
    and `on_files` with the rows of files.
    """

    def on_file_batch(rows: list[int]) -> None:
        on_batch([])
        on_files(rows)

    def batch(report: StageReport) -> bool | None:
        # One of each in turn: memories do not wait until a million imported messages are cut.
        outcomes = (
            _chunk_batch(store, "chunk", now, on_batch, report),
            _chunk_batch(store, "chunk-memories", now, lambda _: on_batch([]), report),
            _chunk_batch(store, "chunk-files", now, on_file_batch, report),
        )
        return any(outcomes) if any(outcome is not None for outcome in outcomes) else None

    return run_batches(batch)


def _chunk_batch(
    store: Store,
    stage: _SourceStage,
    now: Callable[[], int],
    on_batch: Callable[[list[int]], None],
    report: StageReport,
) -> bool | None:
    """Chunk one batch of a kind of source; return whether more may be due, None if nothing was due."""
    claim = claim_batch(store, stage, now=now(), limit=BATCH_SOURCES)
    if claim is None:
        return None
    with released_on_failure(store, claim, now):
        rows = _chunk_claimed(store, claim, stage, now, on_batch, report)
    # More may be due: sources without a turn were given back, and memories and files may have changed meanwhile.
    return not (stage == "chunk" and claim.is_all and rows is not None and len(rows) == len(claim.items))


def _chunk_claimed(
    store: Store,
    claim: Claim,
    stage: _SourceStage,
    now: Callable[[], int],
    on_batch: Callable[[list[int]], None],
    report: StageReport,
) -> list[int] | None:
    """Chunk claimed sources; return the rows that were chunked, None if all became dead letters at once."""
    kind = _KINDS[stage]
    with store.reading() as tx:
        sources = tx.chunks.sources(kind, claim.items, max_bytes=_BATCH_BYTES)
        read = {source.row_id for source in sources}
        damaged = [row for row in tx.chunks.source_rows(kind, claim.items, max_bytes=_BATCH_BYTES) if row not in read]
    report.buried += bury_damaged(store, claim, damaged, now())
    sources = _without_forgotten(store, claim, kind, sources, now())
    error = crash_error(claim)
    if error is not None:
        with stage_writing(store) as tx:
            report.buried += len(bury(tx, claim, {source.row_id: error for source in sources}, now=now()))
        return None
    pieces, uncut = _cut_within(sources, _CUT_SECONDS)
    cut_sources = [source for source in sources if source.row_id in pieces]
    if kind == "file":
        for source in cut_sources:
            _remove_outdated(store, claim, source.row_id, pieces[source.row_id])
    parts = _parts([(source, pieces[source.row_id]) for source in cut_sources])
    _store_chunks(store, claim, kind, deque(parts), uncut, now(), on_batch)
    report.buried += len(uncut)
    report.done += len(cut_sources)
    report.traces |= {source.trace for source in cut_sources}
    if kind != "memory":
        report.latencies += live_latencies(cut_sources, now())
    return [source.row_id for source in cut_sources]


def _without_forgotten(
    store: Store, claim: Claim, kind: SourceKind, sources: list[SourceText], now: int
) -> list[SourceText]:
    """Return the sources that were not forgotten. Removes some rows of a forgotten large file in passing."""
    set_aside = [source for source in sources if source.agent == NOBODY]
    if set_aside:
        with stage_writing(store) as tx:
            tx.forgotten_files.remove_step(set_aside[0].row_id)
    rows = [source.row_id for source in sources if source.agent != NOBODY]
    withdrawn = put_off_withdrawn(store, claim, TABLE_OF[kind], rows, now=now)
    return [source for source in sources if source.agent != NOBODY and source.row_id not in withdrawn]


def _cut_within(sources: list[SourceText], seconds: float) -> tuple[dict[int, list[NewChunk]], dict[int, Permanent]]:
    """Cut as many sources as possible within `seconds`, at least one; return the chunks by the rows of the sources.

    Also returns the errors, by their rows, of the sources that take too long even alone, or are damaged.
    """
    deadline = time.monotonic() + seconds
    pieces: dict[int, list[NewChunk]] = {}
    uncut: dict[int, Permanent] = {}
    for source in sources:
        began = time.thread_time()

        def check(began: float = began) -> None:
            if pieces and time.monotonic() > deadline:
                raise _NextBatch
            if time.thread_time() - began > _SOURCE_CPU_SECONDS:
                raise TextNotCut(f"the text takes more than {_SOURCE_CPU_SECONDS:.0f} s of the processor to cut")

        try:
            pieces[source.row_id] = cut(source, check)
        except _NextBatch:
            break
        except (TextNotCut, DamagedRow) as error:
            uncut[source.row_id] = error
        if time.monotonic() > deadline:
            break
    return pieces, uncut


def _store_chunks(
    store: Store,
    claim: Claim,
    kind: SourceKind,
    parts: deque[_Part],
    uncut: Mapping[int, Permanent],
    now: int,
    on_batch: Callable[[list[int]], None],
) -> None:
    """Store chunks, mark their sources as chunked, and end the claim, in as many transactions as it takes.

    Each stores some of the chunks, so that nobody waits long for the write lock. Chunks that were stored before a kill
    are not stored again.
    """
    while True:
        with stage_writing(store) as tx:
            held = tx.work.still_claimed(claim)
            rows: list[int] = []
            for part in within_transaction_time(popped_from(parts)):
                rows += _add_chunks(tx, held, kind, part, now)
            if not parts:
                bury(tx, claim, uncut, now=now)
                tx.work.finish(claim, claim.items)  # sources that there was no time for can be claimed again
        on_batch(rows)
        if not parts:
            return


def _remove_outdated(store: Store, claim: Claim, row: int, pieces: list[NewChunk]) -> None:
    """Remove the chunks that only a file's earlier version has; the chunks of both versions keep their vectors."""
    with store.reading() as tx:
        outdated = tx.chunks.outdated(row, pieces)
    for first in range(0, len(outdated), STEP_CHUNKS):
        with stage_writing(store) as tx:
            if row in tx.work.still_claimed(claim):
                tx.chunks.remove(outdated[first : first + STEP_CHUNKS])


def _parts(pieces: list[tuple[SourceText, list[NewChunk]]]) -> Iterator[_Part]:
    """Return sources and their chunks, split into parts that are each stored in one transaction."""
    cut = (
        (source, chunks[first : first + _CHUNKS_AT_ONCE], first + _CHUNKS_AT_ONCE >= len(chunks))
        for source, chunks in pieces
        for first in range(0, max(1, len(chunks)), _CHUNKS_AT_ONCE)
    )
    return in_parts(((one, len(one[1])) for one in cut), size=_CHUNKS_AT_ONCE)


def _add_chunks(tx: Transaction, held: set[int], kind: SourceKind, part: _Part, now: int) -> list[int]:
    """Store chunks of the sources that are still claimed; mark and return the sources whose last chunk is stored."""
    tx.index.restore_lost()
    claimed = [(source, chunks, is_end) for source, chunks, is_end in part if source.row_id in held]
    if kind == "message":
        tx.chunks.add_message_chunks([(source, chunks) for source, chunks, _ in claimed], now=now)
    else:
        for source, chunks, _ in claimed:
            tx.chunks.add_document_chunks(kind, source, chunks, now=now)
    ended = [source.row_id for source, _, is_end in claimed if is_end]
    tx.chunks.mark_chunked(kind, ended, now=now)
    return ended


def cut(source: SourceText, check: Callable[[], None] = lambda: None) -> list[NewChunk]:
    """Return the chunks of one source; none if it has no text.

    The content hash covers the role, so that a question and its repetition by another speaker stay two chunks. `check`
    is called every few milliseconds of work on a long text, and stops it by raising.
    """
    speaker = f"{source.name}: " if source.name else ""
    body = normalise(source_text(source.content, source.tool_calls))
    if not body:
        return []
    pieces = split(body, CHUNK_CHARACTERS - min(len(speaker), CHUNK_CHARACTERS // 2), check=check)
    texts = [(speaker + piece)[:CHUNK_CHARACTERS] for piece in pieces]
    leads = chain([questions_in(normalise(source.before))], repeat(""))
    return [
        NewChunk(
            text=text,
            content_hash=blake3(f"{source.role}\x1f{text}".encode()).digest(16),
            lead=lead,
            words=hashes_of(f"{lead} {text}").tobytes(),
            speaker=source.name or _speaker_label(body),
        )
        for text, lead in zip(texts, leads, strict=False)
    ]


def _speaker_label(body: str) -> str | None:
    """Return the speaker that the text itself names, as transcripts do ("Ada Byron: I moved"), or None."""
    found = _LABEL.match(body)
    if found is None or any(word[0].islower() for word in found.group(1).split(" ")):
        return None
    return found.group(1)


def source_text(content: str, tool_calls: str | None) -> str:
    """Return the content, followed by the names and argument texts of the tool calls (JSON).

    Raises `DamagedRow` if they are no JSON.
    """
    if not tool_calls:
        return content
    calls = from_json_of(list, tool_calls)
    texts = [content, *(text for call in calls if isinstance(call, dict) for text in _call_texts(call))]
    return "\n".join(text for text in texts if text)


def _call_texts(call: dict[str, Any]) -> Iterator[str]:
    """Yield the name and the argument texts of a tool call in the format of OpenAI, Anthropic or MCP."""
    function = call.get("function") if isinstance(call.get("function"), dict) else call
    assert isinstance(function, dict)
    if isinstance(function.get("name"), str):
        yield function["name"]
    for key in ("arguments", "args", "input"):
        yield from _leaves(_parsed(function.get(key)))


def _parsed(value: object) -> object:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _leaves(value: object) -> Iterator[str]:
    """Yield the strings in nested JSON, in order; not recursive, since arguments may be nested to any depth."""
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            todo.extend(reversed(list(item.values())))
        elif isinstance(item, list):
            todo.extend(reversed(item))
