"""The notifications about schedules and their runs that calls return."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from reverie.types import ListResult

NotificationKind = Literal["run", "alert", "disabled"]


class Notification(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A notification: a `run` ended, an `alert` after three failures in a row, or a schedule was `disabled`.

    It is listed until it is acknowledged. `delivered_at` is when the notifier accepted it. It belongs to the user of
    its schedule.
    """

    id: str
    agent: str
    kind: NotificationKind
    schedule_id: str
    title: str
    body: str
    created_at: datetime
    user: str | None = None
    run_id: str | None = None
    schedule_name: str | None = None
    run_status: str | None = None
    channel: str | None = None
    session: str | None = None
    delivered_at: datetime | None = None
    acknowledged_at: datetime | None = None


class NotificationPage(ListResult[Notification], frozen=True, kw_only=True):
    """A page of notifications, oldest first, and the total number that match."""

    notifications: list[Notification]
    total: int


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """The number of notifications that had not been acknowledged before."""

    acknowledged: int
