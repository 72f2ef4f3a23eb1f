"""Usage of the language model, in the account's database: one row for each UTC day, model and purpose.

Rows are never deleted: a year has at most about a thousand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reverie.clock import from_micros
from storage.engines import StoreDatabase
from storage.rows import execute, insert_sql, read_rows, to_parameters

DAY_MICROS: Final = 24 * 3600 * 1_000_000
# A caller is waiting; usage that cannot be written now can be added later.
_LOCK_WAIT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Calls of the language model, failed ones among them, tokens, and cost in the currency of the prices."""

    model: str
    purpose: str
    calls: int
    failures: int
    input_tokens: int
    output_tokens: int
    cost: float


_SUMMED: Final = ("calls", "failures", "input_tokens", "output_tokens", "cost")
_ADDITIONS: Final = ", ".join(f"{name} = {name} + excluded.{name}" for name in _SUMMED)
_ADD: Final = (
    insert_sql("language_model_usage", Usage, day=":day")
    + f" ON CONFLICT (day, model, purpose) DO UPDATE SET {_ADDITIONS}"
)
_SUM: Final = f"""
    SELECT model, purpose, {", ".join(f"sum({name}) AS {name}" for name in _SUMMED)}
    FROM language_model_usage WHERE day > :before AND day <= :today GROUP BY model, purpose ORDER BY model, purpose
"""


class UsageLog:
    """The usage of the language model. Each method is a transaction of its own."""

    def __init__(self, account: StoreDatabase) -> None:
        self._account = account

    def add(self, usage: Usage, *, now: int) -> None:
        """Add to the day of `now` (microseconds). Raises `StoreUnavailable` when the file is locked for a second."""
        with self._account.atomic(lock_wait_seconds=_LOCK_WAIT_SECONDS) as connection:
            execute(connection, _ADD, **to_parameters(usage), day=_day(now))

    def last_days(self, days: int, *, now: int) -> list[Usage]:
        """Return the usage of the last `days` days, today included, summed by model and purpose."""
        with self._account.reading() as connection:
            found = execute(connection, _SUM, before=_day(now - days * DAY_MICROS), today=_day(now))
            return read_rows(found, Usage)

    def remove_before(self, before: int) -> int:
        """Delete the usage of days before that of a time (microseconds); returns how many rows."""
        with self._account.atomic() as connection:
            sql = "DELETE FROM language_model_usage WHERE day < :day"
            return execute(connection, sql, day=_day(before)).rowcount


def _day(now: int) -> str:
    return from_micros(now).date().isoformat()
