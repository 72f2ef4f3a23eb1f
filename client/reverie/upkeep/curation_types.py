"""The entries of the curation log that calls return: what background jobs changed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from reverie.types import ListResult


class CurationChange(msgspec.Struct, frozen=True, kw_only=True):
    """A row before and after the change: `before` is null for an added row, `after` for a deleted one."""

    table: str
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None


class CurationEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change by a job, to memories or to a session's summary, and its reason. It can be undone.

    An `id` such as "account-7" is that of a change in the account tier, which all workspaces share. `changes` are
    present only when a single entry is read.
    """

    id: str
    at: datetime
    job: str
    action: str
    why: str
    memories: list[str] = []
    session: str | None = None
    undone_at: datetime | None = None
    changes: list[CurationChange] = []


class CurationList(ListResult[CurationEntry], frozen=True, kw_only=True):
    """A page of entries, newest first."""

    entries: list[CurationEntry]


class Undone(ListResult[str], frozen=True, kw_only=True):
    """The response to `undo_all`: ids of undone entries, and the reason for each that could not be undone."""

    undone: list[str]
    failed: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it
