"""What there is of an agent's memories at one moment of the month, and what was done to them since the day before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from memory.upkeep.relevance import relevance
from reverie import contract
from storage.memories.records import MemoryFilter, MemoryRecord, Tier
from storage.stores import Store
from storage.upkeep.curation import CurationEntry

EVERYTHING = MemoryFilter(active=None)


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
    """A day of the month, from 1: what was said and asked, what the jobs did, and what stands at its end.

    `done` counts entries of the curation log by action. `superseded` are those whose place was taken.
    """

    number: int
    messages: int = 0
    asked: int = 0
    recalled: int = 0
    done: Counter[str] = field(default_factory=Counter)
    standing: Sequence[Standing] = ()
    superseded: int = 0

    def of_lifetime(self, lifetime: str) -> int:
        """How many memories of a lifetime stand."""
        return sum(one.lifetime == lifetime for one in self.standing)


def standing_of(
    stores: Iterable[Store], agents: Sequence[str], *, now: int, rates: Mapping[Tier, float]
) -> tuple[list[Standing], int]:
    """Every memory that stands, and how many were superseded; of some agents, in some stores."""
    standing: list[Standing] = []
    superseded = 0
    for store in stores:
        with store.reading() as tx:
            for agent in agents:
                for memory in tx.for_agent(agent).memories.iterate(EVERYTHING):
                    if memory.active:
                        standing.append(_standing(memory, now, rates))
                    else:
                        superseded += 1
    return standing, superseded


def done_since(stores: Iterable[Store], agents: Sequence[str], moment: int) -> Counter[str]:
    """What the jobs did from a moment (microseconds) on, by action."""
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
    """What was done; what a dream sweep promotes is told apart from what consolidation does."""
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
