"""Widening scope: what is remembered in this conversation, its channel, the workspace and across workspaces.

One number selects: fused score times decay, each applied once. A tier decides at which rate something fades and where
it stands in what was selected. It is no weight beside the rate: weighing tiers as well would discount what lies far
away twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from reverie.contract import ACCOUNT_STORE
from reverie.types import RecallResult
from storage.memories.decay import decay, hours_between
from storage.memories.records import Tier
from storage.recall.records import ChunkAttributes


@dataclass(frozen=True, slots=True)
class Candidate:
    """One thing that a recall found, with the tier that it lives in: a message, a file, or a memory of any tier.

    `store` is that of its chunk; `what` says of a memory whether it is a fact, a preference and so on.
    """

    memory: RecallResult
    chunk_id: int
    score: float
    tier: Tier
    importance: float
    access_count: int
    last_at: int
    relevance: float = 0.0
    store: str = ""
    what: str | None = None

    @property
    def number(self) -> int:
        """Its chunk, told from those of the other store: negated in the account's."""
        return -self.chunk_id if self.store == ACCOUNT_STORE else self.chunk_id

    @property
    def thing(self) -> tuple[str, str]:
        """What it is about: a memory and the message that it came from are one thing."""
        source = self.memory.source_message
        return (self.memory.kind, self.memory.id) if source is None else ("message", source)


def tier_of(standing: ChunkAttributes, *, session: str, channel: str | None) -> Tier:
    """The tier of a memory; of all else the narrowest scope that holds both a chunk and the conversation at hand."""
    if standing.tier is not None:
        return standing.tier
    if standing.session == session:
        return "conversation"
    if channel is not None and standing.channel == channel:
        return "channel"
    return "workspace"


def relevance_of(candidate: Candidate, *, now: int, rates: Mapping[Tier, float]) -> float:
    """The fused score, faded once. `now` is in microseconds."""
    hours = hours_between(candidate.last_at, now)
    faded = decay(
        candidate.tier,
        importance=candidate.importance,
        access_count=candidate.access_count,
        hours=hours,
        rates=rates,
    )
    return max(0.0, candidate.score) * faded


def ranked(candidates: Iterable[Candidate], *, now: int, rates: Mapping[Tier, float]) -> list[Candidate]:
    """Candidates with their relevance, best first; ties go to the better match, the newer, the higher id."""
    rated = [replace(candidate, relevance=relevance_of(candidate, now=now, rates=rates)) for candidate in candidates]
    return sorted(rated, key=lambda c: (-c.relevance, -c.score, -c.last_at, -c.number))
