"""Notifications as the calls of Reverie return them: what became of a schedule's runs, for whoever is to know."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

NotificationKind = Literal["run", "alert", "disabled"]


class Notification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing to tell: a `run` that ended, an `alert` after three failures in a row, a schedule that was `disabled`.

    It stays on the list until it is acknowledged; `delivered_at` is when the notifier's webhook took it.
    """

    id: str
    agent: str
    user: str
    kind: NotificationKind
    schedule_id: str
    title: str
    body: str
    created_at: datetime
    run_id: str | None = None
    schedule_name: str | None = None
    run_status: str | None = None
    channel: str | None = None
    session: str | None = None
    delivered_at: datetime | None = None
    acknowledged_at: datetime | None = None


class NotificationPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of notifications, the oldest first, and how many there are in all."""

    notifications: list[Notification]
    total: int


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The ids of notifications that have been seen."""

    ids: list[str]


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """How many of them had not been acknowledged before."""

    acknowledged: int
