"""Count an agent's memories at the end of a day, and what the jobs did since the day before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from reverie import contract
from storage.curation import CurationEntry
from storage.memories.records import MemoryFilter, MemoryRecord
from storage.stores import Store

ALL_DATA = MemoryFilter(active=None)


@dataclass(slots=True)
class Day:
    """A day of the month, from 1: messages, questions, what the jobs did, and the current memories at its end.

    `done` counts entries of the curation log by action.
    """

    number: int
    messages: int = 0
    asked: int = 0
    done: Counter[str] = field(default_factory=Counter)
    standing: Sequence[MemoryRecord] = ()
    superseded: int = 0

    def of_lifetime(self, lifetime: str) -> int:
        """Return the number of memories of a lifetime."""
        return sum(one.lifetime == lifetime for one in self.standing)


def memories_of(stores: Iterable[Store], agents: Sequence[str]) -> Iterator[MemoryRecord]:
    """Yield all memories of some agents in some stores, superseded ones too."""
    for store in stores:
        with store.reading() as tx:
            for agent in agents:
                yield from tx.for_agent(agent).memories.iterate(ALL_DATA)


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
