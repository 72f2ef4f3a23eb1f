"""Count an agent's memories at the end of a day, and what the jobs did since the day before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from memory.upkeep.relevance import relevance
from reverie import contract
from reverie.memories.types import Tier
from storage.curation import CurationEntry
from storage.memories.records import MemoryFilter, MemoryRecord
from storage.stores import Store

ALL_DATA = MemoryFilter(active=None)


@dataclass(frozen=True, slots=True)
class Standing:
    """One memory at the end of a day."""

    id: str
    kind: str
    tier: str
    lifetime: str
    source: str
    relevance: float
    access_count: int


@dataclass(slots=True)
class Day:
    """A day of the month, from 1: messages, questions, what the jobs did, and the memories at its end.

    `done` counts entries of the curation log by action.
    """

    number: int
    messages: int = 0
    asked: int = 0
    recalled: int = 0
    done: Counter[str] = field(default_factory=Counter)
    standing: Sequence[Standing] = ()
    superseded: int = 0

    def of_lifetime(self, lifetime: str) -> int:
        """Return the number of memories of a lifetime."""
        return sum(one.lifetime == lifetime for one in self.standing)


def count_in_words(days: Sequence[Day]) -> str:
    """Return how many days there are, as the page and the plot write it."""
    return "thirty" if len(days) == 30 else str(len(days))


def standing_of(
    stores: Iterable[Store], agents: Sequence[str], *, now: int, rates: Mapping[Tier, float]
) -> tuple[list[Standing], int]:
    """Return all current memories and the number of superseded ones, of some agents in some stores."""
    standing: list[Standing] = []
    superseded = 0
    for store in stores:
        with store.reading() as tx:
            for agent in agents:
                for memory in tx.for_agent(agent).memories.iterate(ALL_DATA):
                    if memory.active:
                        standing.append(_standing(memory, now, rates))
                    else:
                        superseded += 1
    return standing, superseded


def done_since(stores: Iterable[Store], agents: Sequence[str], moment: int) -> Counter[str]:
    """Count what the jobs did since a time (microseconds), by action."""
    done: Counter[str] = Counter()
    for store in stores:
        with store.reading() as tx:
            for agent in agents:
                offset = 0
                while page := tx.for_agent(agent).curation.page(limit=500, offset=offset):
                    done.update(_name(entry) for entry in page if entry.at >= moment)
                    if page[-1].at < moment:
                        break
                    offset += len(page)
    return done


def _name(entry: CurationEntry) -> str:
    """Return the action; promotions of a dream sweep are counted separately from those of consolidation."""
    return "dream" if entry.job == contract.DREAM_SWEEP else entry.action


def _standing(memory: MemoryRecord, now: int, rates: Mapping[Tier, float]) -> Standing:
    return Standing(
        id=memory.id,
        kind=memory.kind,
        tier=memory.tier,
        lifetime=memory.lifetime,
        source=memory.source,
        relevance=relevance(memory, now=now, rates=rates),
        access_count=memory.access_count,
    )
