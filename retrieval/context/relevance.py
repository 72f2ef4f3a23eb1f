"""What was recalled for a context, and its ranking by one number: the recall's score times the decay of its tier.

This ranking is chosen on request only: what is old or was seldom recalled sinks, however well it fits. A tier decides
how fast something fades and where it is placed in the document. It is not a weight as well: that would discount the
wider tiers twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from reverie.contract import ACCOUNT_STORE
from reverie.memories.types import Provenance
from reverie.recall.types import RecallResult
from storage.memories.decay import decay, hours_between
from storage.memories.records import Tier
from storage.recall.records import ChunkAttributes


@dataclass(frozen=True, slots=True)
class Candidate:
    """A recalled message, file or memory with what its rank in a context depends on.

    `fit` is the relevance that it would have whoever had said it. `store` is the store of its chunk, `last_at` the time
    of its last access or else of its creation (microseconds), `memory_kind` the kind of a memory: a fact, a preference
    and so on. `keyed` is true for the value of a category and key. `past` is what is told of its past, or of what
    contradicts it. `provenance` is that of a memory.
    """

    result: RecallResult
    chunk_id: int
    score: float
    tier: Tier
    importance: float
    access_count: int
    last_at: int
    relevance: float = 0.0
    fit: float = 0.0
    store: str = ""
    memory_kind: str | None = None
    keyed: bool = False
    past: str = ""
    provenance: Provenance | None = None

    @property
    def number(self) -> int:
        """Its chunk id, negated in the account's store: unique over both stores."""
        return -self.chunk_id if self.store == ACCOUNT_STORE else self.chunk_id

    @property
    def origin(self) -> tuple[str, str]:
        """The kind and id that it shares with copies of it: those of a memory's source message, or its own."""
        source = self.result.source_message
        return (self.result.kind, self.result.id) if source is None else ("message", source)


def with_provenances(
    candidates: Iterable[Candidate], own: Mapping[str, Provenance], of_account: Mapping[str, Provenance]
) -> list[Candidate]:
    """Return candidates, the memories with where they come from: by their ids, in the workspace and in the account."""
    return [
        replace(one, provenance=(of_account if one.store == ACCOUNT_STORE else own).get(one.result.id))
        if one.result.kind == "memory"
        else one
        for one in candidates
    ]


def tier_of(chunk: ChunkAttributes, *, session: str, channel: str | None) -> Tier:
    """Return a memory's tier; for messages and files the narrowest scope that contains both chunk and session."""
    if chunk.tier is not None:
        return chunk.tier
    if chunk.session == session:
        return "conversation"
    if channel is not None and chunk.channel == channel:
        return "channel"
    return "workspace"


def relevance_of(candidate: Candidate, *, now: int, rates: Mapping[Tier, float]) -> float:
    """Return the recall's score, decayed once. `now` is in microseconds, `rates` are per hour."""
    factor = decay(
        candidate.tier,
        importance=candidate.importance,
        access_count=candidate.access_count,
        hours=hours_between(candidate.last_at, now),
        rates=rates,
    )
    return max(0.0, candidate.score) * factor


def ranked(candidates: Iterable[Candidate], *, now: int, rates: Mapping[Tier, float]) -> list[Candidate]:
    """Return candidates with their relevance, best first; ties go to the better match, the newer, the higher id."""
    rated = [replace(candidate, relevance=relevance_of(candidate, now=now, rates=rates)) for candidate in candidates]
    return sorted(rated, key=lambda c: (-c.relevance, -c.score, -c.last_at, -c.number))
