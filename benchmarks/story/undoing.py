"""Undo the whole month and compare: every row that a job changed must be as it would be without the job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import text

from benchmarks.story.census import memories_of
from benchmarks.story.world import World
from memory.lifecycle.curation import undo_all
from storage.memories.records import MemoryRecord
from storage.stores import Store
from storage.verify import verify

# Changed by use and by the pipeline: changes by a job are undone, those by use stay.
_OF_OTHERS: Final = ("access_count", "accessed_at", "chunked_at")
# Columns outside memories that only jobs write.
_BY_JOBS: Final = """
    SELECT (SELECT count(*) FROM memory_promotions)
        + (SELECT count(*) FROM messages WHERE consolidated_at IS NOT NULL)
        + (SELECT count(*) FROM sessions WHERE status <> 'active' OR ended_at IS NOT NULL
            OR summary_text IS NOT NULL OR summary_epoch <> 0 OR summary_upper_sequence <> 0)
"""


@dataclass(frozen=True, slots=True)
class UndoneMonth:
    """The number of undone entries, the reasons for refusals, and the number of rows that differ."""

    undone: int
    refused: Sequence[str]
    differing: int


def undo_month(world: World, agents: Sequence[str], tell: Callable[[str], None]) -> UndoneMonth:
    """Undo every entry of every agent, newest first, and compare with a world in which no job ever ran.

    There the memories are those written by `remember`, as they were then, nothing was promoted or summarised, and every
    session is active.
    """
    undone = 0
    refused: list[str] = []
    for store in world.stores:
        for agent in agents:
            done, failed = undo_all(store, agent=agent, now=world.now)
            undone += len(done)
            refused += failed.values()
            tell(f"undid {undone:,} entries")
    world.settle()
    differing = _differing_memories(world, agents) + sum(map(_left_by_jobs, world.stores))
    return UndoneMonth(undone, refused, differing + sum(len(verify(store).wrong) for store in world.stores))


def _differing_memories(world: World, agents: Sequence[str]) -> int:
    found = {memory.id: memory for memory in memories_of(world.stores, agents)}
    expected = world.remembered
    return sum(
        memory_id not in found
        or memory_id not in expected
        or _own_fields(found[memory_id]) != _own_fields(expected[memory_id])
        for memory_id in found.keys() | expected.keys()
    )


def _own_fields(memory: MemoryRecord) -> dict[str, Any]:
    return {name: value for name, value in asdict(memory).items() if name not in _OF_OTHERS}


def _left_by_jobs(store: Store) -> int:
    with store.reading() as tx:
        return int(tx.connection.execute(text(_BY_JOBS)).scalar_one())
