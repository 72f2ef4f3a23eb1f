"""Both curation logs of an agent, its workspace's and the account tier's, as one: read, and undone (X9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import accumulate
from operator import itemgetter
from typing import Final

from memory.memories.agent_memories import AgentMemories
from memory.upkeep import curation
from reverie.contract import ACCOUNT_STORE
from reverie.upkeep.curation_types import CurationEntry, Undone
from storage.stores import Store

_JOBS_PREFIX: Final = "reverie."


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which entries: about a memory, of a job, of an action."""

    memory: str | None = None
    job: str | None = None
    action: str | None = None

    @property
    def full_job(self) -> str | None:
        """The job as the log names it: "dream-sweep" is "reverie.dream_sweep"."""
        if self.job is None or self.job.startswith(_JOBS_PREFIX):
            return self.job
        return _JOBS_PREFIX + self.job.replace("-", "_")


EVERY_ENTRY: Final = Wanted()


def list_entries(
    here: AgentMemories, wanted: Wanted = EVERY_ENTRY, *, limit: int = 50, offset: int = 0
) -> list[CurationEntry]:
    """Entries of both logs, the newest first, without the rows."""
    logs = [
        curation.list_entries(
            store, agent=here.agent, limit=limit + offset, memory=wanted.memory, job=wanted.full_job,
            action=wanted.action,
        )
        for store in here.existing_stores()
    ]  # fmt: skip
    return _newest_first(logs)[offset : offset + limit]


def show_entry(here: AgentMemories, entry: str) -> CurationEntry:
    """One entry with what it changed. Raises `NotFound`."""
    return curation.show_entry(_store_of(here, entry), agent=here.agent, entry=entry)


def undo_entry(here: AgentMemories, entry: str, *, now: int) -> tuple[Store, CurationEntry]:
    """Put back all that an entry changed, in one transaction. Raises `NotFound` and `Conflict`.

    Returns the store, too: its pipeline has work if what came back is to be cut or embedded anew.
    """
    store = _store_of(here, entry)
    return store, curation.undo_entry(store, agent=here.agent, entry=entry, now=now)


def undo_all(
    here: AgentMemories,
    wanted: Wanted = EVERY_ENTRY,
    *,
    now: int,
    since: int = 0,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Undone:
    """Undo the entries of a job or an action, written since a moment in microseconds; the newest of each log first.

    `progress` gets (done, total) of the log that is being undone.
    """
    undone: list[str] = []
    failed: dict[str, str] = {}
    for store in here.existing_stores():
        done, not_done = curation.undo_all(
            store, agent=here.agent, now=now, job=wanted.full_job, action=wanted.action, since=since, progress=progress
        )
        undone += (curation.id_of(store, number) for number in done)
        failed |= {curation.id_of(store, number): why for number, why in not_done.items()}
    return Undone(undone=undone, failed=failed)


def _newest_first(logs: Sequence[Sequence[CurationEntry]]) -> list[CurationEntry]:
    """The entries of all logs, those of each in the order of writing, whatever moment a slow job has worked for.

    Where an entry stands depends on none that was written before it: else pages would not fit together.
    """
    dated = (zip(accumulate((entry.at for entry in log), min), log, strict=True) for log in logs)
    return [entry for _, entry in merge(*dated, key=itemgetter(0), reverse=True)]


def _store_of(here: AgentMemories, entry: str) -> Store:
    for store in here.existing_stores():
        if (store.name == ACCOUNT_STORE) == curation.is_of_account(entry):
            return store
    raise curation.no_entry(entry)
