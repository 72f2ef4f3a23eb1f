"""Memories as a caller reads them: with where they come from, and with what jobs have changed since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from memory.conversion import convert
from reverie.clock import from_micros
from reverie.memories.types import JobChange, Memory
from storage.memories.records import MemoryRecord
from storage.transaction import AgentRepositories
from storage.upkeep.curation import CurationFilter

# More changes are not shown: `reverie curation` lists them all.
_MAX_CHANGES: Final = 20


def to_memories(rows: AgentRepositories, records: Sequence[MemoryRecord]) -> list[Memory]:
    """Return stored memories as the client sees them, with their provenance."""
    found = rows.provenances.of([record.id for record in records])
    return [convert(record, Memory, provenance=found.get(record.id)) for record in records]


def to_whole_memory(rows: AgentRepositories, record: MemoryRecord) -> Memory:
    """Return a stored memory with its provenance and the changes that jobs made to it, newest first."""
    (memory,) = to_memories(rows, [record])
    if memory.provenance is None:
        return memory
    entries = rows.curation.page(CurationFilter(memory=record.id, undone=False), limit=_MAX_CHANGES)
    changes = [JobChange(job=_short(entry.job), action=entry.action, at=from_micros(entry.at)) for entry in entries]
    return replace(memory, provenance=replace(memory.provenance, changes=changes))


def _short(job: str) -> str:
    """Return the name of a job as people give it: "dream-sweep" for "reverie.dream_sweep"."""
    return job.removeprefix("reverie.").replace("_", "-")
