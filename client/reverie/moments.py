"""Moments that a call looks back to: a time with a zone, or a date, which means the end of that day in UTC."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from reverie.clock import rfc3339, to_micros
from reverie.errors import Rejected
from reverie.fields import checked

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_HINT: Final = "write it as in 2023-05-03T09:30:00Z, or 2023-05-03 for the end of that day"
_MICROSECOND: Final = timedelta(microseconds=1)


def micros_of(moment: str | date) -> int:
    """Return a moment in microseconds; a date is the last microsecond of that day. Raises `ValueError`."""
    if isinstance(moment, str):
        text = moment.strip()
        moment = date.fromisoformat(text) if _DATE.fullmatch(text) else datetime.fromisoformat(text)
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, 23, 59, 59, 999_999, tzinfo=UTC)
    if moment.tzinfo is None:
        raise ValueError("no time zone")
    return to_micros(moment)


def micros_until(moment: str | date | None, *, now: int) -> int | None:
    """Return a checked moment in microseconds, `now` for one in the future; None for None."""
    return None if moment is None else min(now, micros_of(moment))


def _check_moment(field: str, moment: Any) -> str:
    shown = repr(moment[:80]) if isinstance(moment, str) else str(moment)
    try:
        return rfc3339(micros_of(moment))
    except ValueError as error:
        what = "has no time zone" if str(error) == "no time zone" else "is not a time"
        raise Rejected(f"{field} {shown} {what}: {_HINT}", field=field) from None
    except OverflowError:
        raise Rejected(f"{field} {shown} is out of range: {_HINT}", field=field) from None


if TYPE_CHECKING:
    Moment: TypeAlias = str | datetime | date
else:
    Moment = str

AsOf = Annotated[
    Moment,
    checked(
        _check_moment,
        "What held at this time, such as 2023-05-03T09:30:00Z, or at the end of a day, such as 2023-05-03.",
    ),
]
