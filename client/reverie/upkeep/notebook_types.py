"""What an agent's notebook tells: the commits of its files, how they differ, and what dreams promoted."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One state of an agent's files: its id, when and why it was made, and which files it changed."""

    id: str
    at: datetime
    message: str
    changed: list[str] = []


class RefusedFile(msgspec.Struct, frozen=True, kw_only=True):
    """What was kept out of an agent's files, and why."""

    path: str
    why: str


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer to `checkpoint`. There is no commit where nothing had changed since the last one."""

    commit: Commit | None = None
    refused: list[RefusedFile] = []


class CommitList(msgspec.Struct, frozen=True, kw_only=True):
    """Commits, the newest first."""

    commits: list[Commit]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """How two commits differ, as unified text; empty where they do not."""

    text: str

    def __str__(self) -> str:
        """The text itself."""
        return self.text


class Promotion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a dream sweep promoted. `phase` is "kept" for a memory that became long-term, "made" for one that it made.

    `kind` and `content` are those of the memory now; absent where it is forgotten.
    """

    memory: str
    at: datetime
    score: float
    phase: str
    kind: str | None = None
    content: str | None = None


class PromotionList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of promotions, the newest first."""

    promotions: list[Promotion]
