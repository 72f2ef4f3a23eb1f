"""Times in the words that people use, and exactly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from reverie.counts import counted

_MINUTE: Final = 60
_HOUR: Final = 3_600
_DAY: Final = 86_400
_WEEK: Final = 7 * _DAY
# Beyond this a date says more than a number of days.
_LONGEST_SPAN: Final = 4 * _WEEK
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def in_words(moment: datetime, *, now: datetime) -> str:
    """Return a time as seen from now: "just now", "5 minutes ago", "in 3 days", "12 May 2025"."""
    seconds = (now - moment).total_seconds()
    distance = abs(seconds)
    if distance < _MINUTE:
        return "just now" if seconds >= 0 else "in a moment"
    if distance >= _LONGEST_SPAN:
        return date_text(moment)
    text = _span(distance)
    return f"{text} ago" if seconds > 0 else f"in {text}"


def exact(moment: datetime) -> str:
    """Return a time to the second, in UTC: "12 May 2025, 09:30:00 UTC"."""
    moment = moment.astimezone(UTC)
    return f"{date_text(moment)}, {moment:%H:%M:%S} UTC"


def date_text(moment: datetime) -> str:
    """Return a date in UTC: "12 May 2025"."""
    moment = moment.astimezone(UTC)
    return f"{moment.day} {_MONTHS[moment.month - 1]} {moment.year}"


def day_heading(moment: datetime, *, now: datetime) -> str:
    """Return the heading of a day in a list: "Today", "Yesterday", "Tuesday, 12 May 2025"."""
    day, today = moment.astimezone(UTC).date(), now.astimezone(UTC).date()
    if day == today:
        return "Today"
    if day == today - timedelta(days=1):
        return "Yesterday"
    return f"{_DAYS[day.weekday()]}, {date_text(moment)}"


def duration(seconds: float) -> str:
    """Return a length of time: "0.4 seconds", "12 seconds", "3 hours"."""
    return f"{seconds:.1f} seconds" if seconds < 10 else _span(seconds)


def _span(seconds: float) -> str:
    for unit, name in ((_WEEK, "week"), (_DAY, "day"), (_HOUR, "hour"), (_MINUTE, "minute")):
        if seconds >= unit:
            return counted(int(seconds // unit), name)
    return counted(int(seconds), "second")
