"""Removes erased texts from files of a host: log files, memory files of agents and their history in git."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from operator import ne
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

    def unless_named(token: bytes) -> bytes:
        try:
            return b"*" * len(token) if key.name(token.decode()) in names else token
        except UnicodeDecodeError:
            return token

    def redacted(line: bytes) -> bytes:
        clean = _BARE.sub(lambda found: unless_named(found[0]), line)
        clean = _QUOTED.sub(lambda found: b'"' + unless_named(found[1]) + found[2], clean)
        return _blank(line) if matcher.is_in(clean) else clean

    return _rewrite_logs(folder, redacted)


def blank_logs(folder: Path) -> int:
    """Overwrite all lines of a folder's log files, if nobody knows any more which were erased; return how many."""
    return _rewrite_logs(folder, _blank)


def _blank(line: bytes) -> bytes:
    return b"*" * (len(line) - 1) + b"\n"


def _rewrite_logs(folder: Path, clean: Callable[[bytes], bytes]) -> int:
    """Overwrite each line with its clean form, which has the same length; return how many were changed."""
    return sum(_rewrite_log(path, clean) for path in sorted(folder.glob("*.log*")) if path.is_file())


def _rewrite_log(path: Path, clean: Callable[[bytes], bytes]) -> int:
    changed = at = 0
    with path.open("r+b") as file:
        # A process may be writing the last line.
        while lines := [line for line in file.readlines(_BLOCK_BYTES) if line.endswith(b"\n")]:
            cleaned = [clean(line) for line in lines]
            if number := sum(map(ne, lines, cleaned)):
                file.seek(at)
                file.write(b"".join(cleaned))
                file.flush()
            changed += number
            at += sum(map(len, lines))
            file.seek(at)
    return changed


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
