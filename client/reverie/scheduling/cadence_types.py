"""When a schedule is due, as the calls of Reverie take and return it: one of three cadences, told apart by `type`."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import msgspec


class Cron(msgspec.Struct, frozen=True, tag_field="type", tag="cron", forbid_unknown_fields=True):
    """The five fields of cron (minute, hour, day of month, month, day of week), on the clock of the zone `tz`."""

    expression: str
    tz: str = "UTC"


class Once(msgspec.Struct, frozen=True, tag_field="type", tag="once", forbid_unknown_fields=True):
    """One moment, with its offset from UTC. `tz` is the zone in which it is shown."""

    at: datetime
    tz: str = "UTC"


class Interval(msgspec.Struct, frozen=True, tag_field="type", tag="interval", forbid_unknown_fields=True):
    """Every so many seconds of elapsed time, whatever the clocks do. `tz` is the zone in which it is shown.

    With an `anchor` it fires at that moment and at whole multiples of `seconds` after it, so that its phase is kept
    however late a run was. Without one it fires `seconds` after the moment that is asked from.
    """

    seconds: int
    tz: str = "UTC"
    anchor: datetime | None = None


Cadence: TypeAlias = Cron | Once | Interval
