"""Reads and undoes the two curation logs of an agent, its workspace's and the account tier's, as one log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import merge
from itertools import accumulate
from operator import itemgetter
from typing import Final

from memory.memories.agent_memories import AgentMemories
from memory.upkeep import curation
from memory.upkeep.curation import EVERY_ENTRY
from reverie.contract import ACCOUNT_STORE
from reverie.upkeep.curation_types import CurationEntry, Undone
from storage.stores import Store
from storage.upkeep.curation import CurationFilter

_JOB_PREFIX: Final = "reverie."


def list_entries(
    memories: AgentMemories, matching: CurationFilter = EVERY_ENTRY, *, limit: int = 50, offset: int = 0
) -> list[CurationEntry]:
    """Return the entries of both logs, newest first, without the changed rows.

    The job may be given in its short form: "dream-sweep" is "reverie.dream_sweep".
    """
    matching = _with_task_name(matching)
    logs = [
        curation.list_entries(store, agent=memories.agent, matching=matching, limit=limit + offset)
        for store in memories.existing_stores()
    ]
    return _newest_first(logs)[offset : offset + limit]


def show_entry(memories: AgentMemories, entry: str) -> CurationEntry:
    """Return an entry with the rows that it changed. Raises `NotFound`: for an unknown entry."""
    return curation.show_entry(_find_store(memories, entry), agent=memories.agent, entry=entry)


def undo_entry(memories: AgentMemories, entry: str, *, now: int, request: str = "") -> tuple[Store, CurationEntry]:
    """Restore all rows that an entry changed, in one transaction; return its store and the entry.

    The pipeline of that store has work if restored rows have to be chunked or embedded again. Raises `NotFound`: for an
    unknown entry; `Conflict`: when it is already undone, by another `request`, or its rows have changed since.
    """
    store = _find_store(memories, entry)
    return store, curation.undo_entry(store, agent=memories.agent, entry=entry, now=now, request=request)


def undo_all(
    memories: AgentMemories,
    matching: CurationFilter = EVERY_ENTRY,
    *,
    now: int,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    request: str = "",
) -> Undone:
    """Undo entries of both logs, newest first within each. `progress` is called with (done, total) of each log.

    The job may be given in its short form. `request` is the key of the request, if it has one.
    """
    matching = _with_task_name(matching)
    undone: list[str] = []
    failed: dict[str, str] = {}
    for store in memories.existing_stores():
        done, errors = curation.undo_all(
            store, agent=memories.agent, now=now, matching=matching, progress=progress, request=request
        )
        undone += (curation.entry_id(store, number) for number in done)
        failed |= {curation.entry_id(store, number): error for number, error in errors.items()}
    return Undone(undone=undone, failed=failed)


def _newest_first(logs: Sequence[Sequence[CurationEntry]]) -> list[CurationEntry]:
    """Merge logs by time, keeping the order of writing within each, even if a slow job wrote an earlier time.

    The position of an entry does not depend on older ones, so that pages fit together.
    """
    dated = (zip(accumulate((entry.at for entry in log), min), log, strict=True) for log in logs)
    return [entry for _, entry in merge(*dated, key=itemgetter(0), reverse=True)]


def _with_task_name(matching: CurationFilter) -> CurationFilter:
    job = matching.job
    if job is None or job.startswith(_JOB_PREFIX):
        return matching
    return replace(matching, job=_JOB_PREFIX + job.replace("-", "_"))


def _find_store(memories: AgentMemories, entry: str) -> Store:
    for store in memories.existing_stores():
        if (store.name == ACCOUNT_STORE) == curation.is_account_entry(entry):
            return store
    raise curation.entry_not_found(entry)
