"""The commits of an agent's memory files, their differences, and the promotions that calls return."""

from __future__ import annotations

from datetime import datetime

import msgspec

from reverie.types import ListResult


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit of an agent's memory files: its id, time, message and changed files."""

    id: str
    at: datetime
    message: str
    changed: list[str] = []


class RefusedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was not committed, and why."""

    path: str
    why: str


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The response to `checkpoint`. There is no commit if nothing has changed since the last one."""

    commit: Commit | None = None
    refused: list[RefusedFile] = []


class CommitList(ListResult[Commit], frozen=True, kw_only=True):
    """Commits, newest first."""

    commits: list[Commit]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The unified diff of two commits; empty if they are the same."""

    text: str

    def __str__(self) -> str:
        """Return the diff."""
        return self.text


class Promotion(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A promotion by a dream sweep. `phase` is "kept" if a memory became long-term, "made" if the sweep created it.

    `kind` and `content` are the memory's current ones; absent if it has been deleted.
    """

    memory: str
    at: datetime
    score: float
    phase: str
    kind: str | None = None
    content: str | None = None


class PromotionList(ListResult[Promotion], frozen=True, kw_only=True):
    """A page of promotions, newest first."""

    promotions: list[Promotion]
