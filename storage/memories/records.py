"""Memories as records: frozen and typed, times as integer microseconds in UTC; and the formula of their decay."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from reverie.clock import HOUR_MICROS
from reverie.memories.types import Lifetime, MemoryKind, Tier

Visibility = Literal["private", "requested", "shared"]

# From the narrowest to the widest.
TIERS: Final[tuple[Tier, ...]] = get_args(Tier)
LIFETIMES: Final[tuple[Lifetime, ...]] = get_args(Lifetime)
# The source of user-written memories: no job changes their content.
USER_SOURCE: Final = "user"
# Every context has preferences of this importance, as it has instructions and flagged messages of its session.
MIN_STANDING_IMPORTANCE: Final = 0.8
_MANUAL_SOURCES: Final = frozenset({USER_SOURCE, "agent"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMemory:
    """A memory to store. `session` is the id of the session it came from, which must exist.

    Its owner alone sees it unless its `visibility` is "shared"; "requested" waits for an operator's approval. A memory
    of the account has the `tenant` of the workspace that it came from, if that is not the local one. A note has a
    `note_id`. A fact has `category`, `key` and `value`; its `content` is made of these three. `made_by` is the call or
    job that stores it; callers do not choose it. `confirmed_at` is when it was last said again.
    """

    id: str
    content: str
    created_at: int
    tier: Tier = "workspace"
    lifetime: Lifetime = "short_term"
    kind: MemoryKind = "event"
    source: str = "agent"
    importance: float = 0.5
    expires_at: int | None = None
    owner_user_id: str | None = None
    tags: tuple[str, ...] = ()
    concept_tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    session: str | None = None
    source_message: str | None = None
    channel: str | None = None
    note_id: str | None = None
    category: str | None = None
    key: str | None = None
    value: str | None = None
    subject: str | None = None
    confidence: float | None = None
    pinned: bool = False
    trace: str = ""
    visibility: Visibility = "private"
    tenant: str | None = None
    made_by: str | None = None
    confirmed_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord(NewMemory):
    """A stored memory. `superseded_by` is the id of the memory that replaced it.

    It held from `valid_from`, when it was said (its `created_at`), until `valid_to`, when its replacement was said.
    """

    row_id: int
    agent: str
    access_count: int
    updated_at: int
    accessed_at: int
    session_row: int | None
    superseded_at: int | None
    stored_at: int
    chunked_at: int | None
    superseded_by: str | None
    valid_from: int = 0
    valid_to: int | None = None

    @property
    def active(self) -> bool:
        """Return whether the memory is current: no other has replaced it."""
        return self.superseded_by is None

    @property
    def waits(self) -> bool:
        """Return whether it was extracted and is withheld from everybody until it is approved."""
        is_for_all = self.kind in ("instruction", "preference") or self.owner_user_id is None
        return self.visibility == "requested" and self.source == "extraction" and is_for_all

    @property
    def user_written(self) -> bool:
        """Return whether a person wrote it: no job changes its content."""
        return self.source == USER_SOURCE

    @property
    def protected(self) -> bool:
        """Return whether only a manual call may remove it (see `is_protected`)."""
        is_note_or_fact = self.note_id is not None or self.category is not None
        return is_protected(
            self.lifetime,
            self.source,
            pinned=self.pinned or is_standing(self.kind, self.importance),
            is_note_or_fact=is_note_or_fact,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DueMemory(MemoryRecord):
    """A memory that a person should look at; `contradicts` is the id of a memory that contradicts it, if any."""

    contradicts: str | None = None


# For how many days a statement counts as confirmed, by kind. Jobs and places change in a year, tastes seldom; events
# and notes stay true.
UNCONFIRMED_DAYS: Final[Mapping[MemoryKind, int]] = {
    "task": 30,
    "fact": 365,
    "procedure": 365,
    "preference": 1_095,
    "instruction": 1_095,
}
# An instruction that extraction found among other words is in force for nobody, not even its owner, until confirmed.
EXTRACTION_SOURCE: Final = "extraction"
CONFIRMED: Final = f"NOT (visibility = 'requested' AND source = '{EXTRACTION_SOURCE}')"


def is_standing(kind: str, importance: float) -> bool:
    """Return whether every context has such a memory: an instruction, or an important preference."""
    return kind == "instruction" or (kind == "preference" and importance >= MIN_STANDING_IMPORTANCE)


def is_protected(lifetime: Lifetime, source: str, *, pinned: bool, is_note_or_fact: bool) -> bool:
    """Return whether no job may remove such a memory.

    True for long-term memories that are pinned, standing or user-written, and for notes and facts of a user or agent.
    """
    if is_note_or_fact and source in _MANUAL_SOURCES:
        return True
    return lifetime == "long_term" and (pinned or source == USER_SOURCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFilter:
    """Conditions on an agent's memories, all of which must hold; None or an empty tuple sets no condition.

    `text` is a part of the content, ignoring case; a memory must have all of `tags`. `active` true takes current
    memories only, false superseded ones only, None both. `facts` and `notes` take only facts or notes if true, none if
    false. `unexpired_at` leaves out memories that expired by that time, in microseconds. `held_at` takes memories that
    held at a time: use it with `active` None. `since` and `until` (exclusive) limit the time of storing.
    """

    tiers: tuple[str, ...] = ()
    lifetimes: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    channel: str | None = None
    session: str | None = None
    owner: str | None = None
    category: str | None = None
    key: str | None = None
    subject: str | None = None
    text: str | None = None
    active: bool | None = True
    facts: bool | None = None
    notes: bool | None = None
    unexpired_at: int | None = None
    visibility: Visibility | None = None
    held_at: int | None = None
    since: int | None = None
    until: int | None = None


DecayProfile = Literal["standard", "fast"]

# The share of a memory's relevance that is left after an hour. The rate of the conversation tier affects only ranking.
RATES: Final[Mapping[DecayProfile, Mapping[Tier, float]]] = {
    "standard": {"account": 0.999, "workspace": 0.998, "channel": 0.995, "conversation": 0.99},
    "fast": {"account": 0.998, "workspace": 0.995, "channel": 0.990, "conversation": 0.99},
}


def decay(tier: Tier, *, importance: float, access_count: int, hours: float, rates: Mapping[Tier, float]) -> float:
    """Return `importance * rate ** hours * (1 + ln(1 + access_count))`, which can exceed 1.

    Negative `hours` count as 0.
    """
    remaining: float = rates[tier] ** max(0.0, hours)
    return importance * remaining * (1.0 + math.log1p(access_count))


def hours_between(earlier: int, later: int) -> float:
    """Return the hours between two times in microseconds."""
    return (later - earlier) / HOUR_MICROS
