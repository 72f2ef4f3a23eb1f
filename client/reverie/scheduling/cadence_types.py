"""The three cadences, which say when a schedule fires; `type` distinguishes them."""

from __future__ import annotations

from datetime import datetime
from typing import TypeAlias

import msgspec


class Cron(msgspec.Struct, frozen=True, tag_field="type", tag="cron", forbid_unknown_fields=True):
    """A cron expression of five fields (minute, hour, day of month, month, day of week) in the time zone `tz`."""

    expression: str
    tz: str = "UTC"


class Once(msgspec.Struct, frozen=True, tag_field="type", tag="once", forbid_unknown_fields=True):
    """One time, with its offset from UTC. `tz` is the time zone in which it is displayed."""

    at: datetime
    tz: str = "UTC"


class Interval(msgspec.Struct, frozen=True, tag_field="type", tag="interval", forbid_unknown_fields=True):
    """Every `seconds` of elapsed time, regardless of clock changes. `tz` is the time zone in which it is displayed.

    With an `anchor` it fires at that time and at whole multiples of `seconds` after it, so that a late run does not
    shift its phase. Without one it fires `seconds` after the time it is computed from.
    """

    seconds: int
    tz: str = "UTC"
    anchor: datetime | None = None


Cadence: TypeAlias = Cron | Once | Interval
