"""What the language model was used for, in the account's database: one row for each day, model and purpose.

Days are those of UTC. Rows are added to and never removed: a year has some thousand of them at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import text

from reverie.clock import from_micros
from storage.engine import Database

DAY_MICROS: Final = 24 * 3600 * 1_000_000
# Who counts has somebody waiting; what cannot be written now can be counted later.
_LOCK_WAIT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Calls of the language model, those of them that failed, tokens, and cost in the currency of the prices."""

    model: str
    purpose: str
    calls: int
    failures: int
    input_tokens: int
    output_tokens: int
    cost: float


class UsageLog:
    """Calls and what they took. Each method is a transaction of its own."""

    def __init__(self, account: Database) -> None:
        self._account = account

    def add(self, usage: Usage, *, now: int) -> None:
        """Add to the day of `now` (microseconds). Raises `StoreUnavailable` when the file is locked for a second."""
        with self._account.atomic(lock_wait_seconds=_LOCK_WAIT_SECONDS) as connection:
            connection.execute(
                text(
                    "INSERT INTO language_model_usage"
                    " (day, model, purpose, calls, failures, input_tokens, output_tokens, cost)"
                    " VALUES (:day, :model, :purpose, :calls, :failures, :input_tokens, :output_tokens, :cost)"
                    " ON CONFLICT (day, model, purpose) DO UPDATE SET"
                    " calls = calls + excluded.calls, failures = failures + excluded.failures,"
                    " input_tokens = input_tokens + excluded.input_tokens,"
                    " output_tokens = output_tokens + excluded.output_tokens, cost = cost + excluded.cost"
                ),
                {
                    "day": _day(now),
                    "model": usage.model,
                    "purpose": usage.purpose,
                    "calls": usage.calls,
                    "failures": usage.failures,
                    "input_tokens": usage.input_tokens,
                    "output_tokens": usage.output_tokens,
                    "cost": usage.cost,
                },
            )

    def of_days(self, days: int, *, now: int) -> list[Usage]:
        """What the last `days` days took, today included, summed by model and purpose."""
        with self._account.reading() as connection:
            rows = connection.execute(
                text(
                    "SELECT model, purpose, sum(calls), sum(failures), sum(input_tokens), sum(output_tokens), sum(cost)"
                    " FROM language_model_usage WHERE day > :before AND day <= :today"
                    " GROUP BY model, purpose ORDER BY model, purpose"
                ),
                {"before": _day(now - days * DAY_MICROS), "today": _day(now)},
            )
            return [Usage(*row) for row in rows]


def _day(now: int) -> str:
    return from_micros(now).date().isoformat()
