"""A statement: one thing that a user said plainly, with the words it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["fact", "preference", "procedure", "event", "task", "instruction"]
Tier = Literal["workspace", "account"]
Lifetime = Literal["long_term", "short_term"]

# The category of facts about the user; the job adds the user's name.
PROFILE: Final = "profile"


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing that a user said about themselves or asked to be remembered.

    `quote` has the user's own words. A newer statement with the same `subject` supersedes an older one. Only facts have
    `key` and `value`. `takes_back` names an instruction that is no longer wanted. Times are microseconds in UTC.
    """

    content: str
    kind: Kind
    quote: str
    subject: str | None
    confidence: float
    importance: float
    lifetime: Lifetime = "short_term"
    tier: Tier = "workspace"
    key: str | None = None
    value: str | None = None
    tags: tuple[str, ...] = ()
    expires_at: int | None = None
    takes_back: str | None = None

    @property
    def category(self) -> str | None:
        """Return the category of a fact; None for anything else."""
        return PROFILE if self.key is not None else None
