"""Takes what was erased out of files of a host: log files, memory files of agents and their history in git."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from adapters.workspace_git import GitRepository
from memory.fragments import FragmentSet, HashKey, Matcher
from memory.lifecycle.erasure_rows import Scope
from memory.upkeep.notebook import Notebooks, publish
from reverie.errors import NotFound
from storage.lifecycle.erasures import ErasureRecord
from storage.stores import Store, Stores

# What may be an id in a line: text between quotes or after a quote that is not closed, and any run of characters
# without blanks and separators.
_QUOTED: Final = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)("?)')
_BARE: Final = re.compile(rb"[^\s\"'=,;()\[\]{}]+")
_BLOCK_BYTES: Final = 1 << 20


def redact_logs(folder: Path, key: HashKey, erased: FragmentSet) -> int:
    """Overwrite the ids and texts of a set in all log files of a folder; return in how many lines."""
    names, matcher = {int(name) for name in erased.names}, Matcher(key, erased)
    return sum(_redact_file(path, key, names, matcher) for path in sorted(folder.glob("*.log*")) if path.is_file())


def blank_logs(folder: Path) -> int:
    """Overwrite all lines of a folder's log files, if nobody knows any more which were erased; return how many."""
    return sum(_blank_file(path) for path in sorted(folder.glob("*.log*")) if path.is_file())


def _blank_file(path: Path) -> int:
    blanked, at = 0, 0
    with path.open("r+b") as file:
        while lines := file.readlines(_BLOCK_BYTES):
            clean = b"".join(b"*" * (len(line) - 1) + b"\n" for line in lines if line.endswith(b"\n"))
            file.seek(at)
            file.write(clean)
            file.flush()
            at += len(clean)
            blanked += clean.count(b"\n")
            if not lines[-1].endswith(b"\n"):  # a process is writing it
                break
            file.seek(at)
    return blanked


def _redact_file(path: Path, key: HashKey, names: set[int], matcher: Matcher) -> int:
    redacted = 0
    with path.open("r+b") as file:
        while True:
            start = file.tell()
            lines = file.readlines(_BLOCK_BYTES)
            if not lines:
                return redacted
            if lines[-1][-1:] != b"\n":  # a process is writing it
                lines.pop()
                if not lines:
                    return redacted
            block = b"".join(lines)
            clean, number = _redacted(block, key, names, matcher)
            if number:
                file.seek(start)
                file.write(clean)
                file.flush()
                redacted += number
            file.seek(start + len(block))


def _redacted(block: bytes, key: HashKey, names: set[int], matcher: Matcher) -> tuple[bytes, int]:
    number = 0
    lines = block.splitlines(keepends=True)
    for position, line in enumerate(lines):
        clean = _BARE.sub(lambda found: _unless_named(found[0], found[0], key, names), line)
        clean = _QUOTED.sub(lambda found: b'"' + _unless_named(found[1], found[1], key, names) + found[2], clean)
        if matcher.is_in(clean):
            clean = b"*" * (len(line) - 1) + b"\n"
        if clean != line:
            lines[position] = clean
            number += 1
    return b"".join(lines), number


def _unless_named(token: bytes, shown: bytes, key: HashKey, names: set[int]) -> bytes:
    try:
        return b"*" * len(shown) if key.name(token.decode()) in names else shown
    except UnicodeDecodeError:
        return shown


_MESSAGE: Final = "Brought up to date"
# Replaces the message of a commit that quotes what was erased.
_PLAIN_MESSAGE: Final = "Checkpoint"


def rewrite_notebooks(
    stores: Stores,
    notebooks: Notebooks,
    erasure: ErasureRecord,
    quoted: Matcher,
    *,
    now: int,
    on_step: Callable[[], None],
) -> int:
    """Bring the files of all agents concerned up to date and rewrite their histories; return how many histories.

    A line of an earlier version stays only if the files still have it today: nobody can tell any more whose memory a
    pruned line came from.
    """
    if notebooks.repositories is None:
        return 0
    scope, rewritten = Scope.of(erasure), 0
    for name in scope.store_names(stores):
        with suppress(NotFound):
            store = stores.workspace(name, create=False)
            for agent in notebooks.repositories.agents(name):
                if scope.agent in (None, agent):
                    rewritten += _rewrite(store, notebooks, agent, erasure, quoted, now)
                    on_step()
    return rewritten


def _rewrite(store: Store, notebooks: Notebooks, agent: str, erasure: ErasureRecord, quoted: Matcher, now: int) -> bool:
    repository = notebooks.require_repositories().repository(store.name, agent)
    if not _is_concerned(erasure, store.name) and not _quotes(repository, quoted):
        return False
    return drop_unfounded_lines(store, notebooks, agent, now=now, quotes=quoted.is_in)


def drop_unfounded_lines(
    store: Store,
    notebooks: Notebooks,
    agent: str,
    *,
    now: int,
    quotes: Callable[[bytes], bool] = lambda _: False,
    quotes_in_message: Callable[[bytes], bool] | None = None,
) -> bool:
    """Rewrite the history of an agent's files: only lines of the present files stay, without those that `quotes` finds.

    The message of a commit is replaced if `quotes_in_message` (by default `quotes`) finds something in it. Return
    whether there was anything to rewrite. An agent without stored rows loses its files.
    """
    is_quoting = quotes if quotes_in_message is None else quotes_in_message
    repository = notebooks.require_repositories().repository(store.name, agent)
    if _is_empty(store, agent):
        return repository.remove()
    if not repository.history(1):
        return False
    publish(store, notebooks, agent, _MESSAGE, now=now)
    lines = {line for text in repository.files().values() for line in text.splitlines()}
    return repository.rewrite(
        lambda line: line in lines and not quotes(line.encode()),
        lambda message: _PLAIN_MESSAGE if is_quoting(message.encode()) else message,
    )


def _is_concerned(erasure: ErasureRecord, store_name: str) -> bool:
    """Return whether memories, or their history, were removed from a store."""
    removed = erasure.counts.get(store_name, {})
    if any(removed.get(table) for table in ("memories", "memory_promotions", "curation_log")):
        return True
    return erasure.kind not in ("message", "selection") and any(removed.values())


def _quotes(repository: GitRepository, quoted: Matcher) -> bool:
    return any(
        quoted.is_in(commit.message.encode()) or any(quoted.is_in(text.encode()) for text in texts.values())
        for commit, texts in repository.versions()
    )


def _is_empty(store: Store, agent: str) -> bool:
    with store.reading() as tx:
        return agent not in tx.kept_out.agents()
