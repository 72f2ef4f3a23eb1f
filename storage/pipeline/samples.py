"""Figures of the pipeline over the last day, in the account's database: one row for each minute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from storage.repository import AccountRepository
from storage.rows import execute, insert_sql, select_list, to_parameters

MINUTE_MICROS: Final = 60_000_000
SAMPLES_KEPT: Final = 24 * 60


@dataclass(frozen=True, slots=True)
class PipelineSample:
    """One minute (numbered from 1970): all items accepted so far, items in the inboxes, and the lag in seconds."""

    minute: int
    accepted: int
    waiting: int
    lag_p50_seconds: float | None
    lag_p99_seconds: float | None


_ADD: Final = insert_sql("pipeline_samples", PipelineSample) + " ON CONFLICT (minute) DO NOTHING"
_READ: Final = f"SELECT {select_list(PipelineSample)} FROM pipeline_samples WHERE minute > :after ORDER BY minute"


class PipelineSamples(AccountRepository):
    """The samples of an installation. Each method is a transaction of its own."""

    def add(self, sample: PipelineSample) -> None:
        """Store a sample, unless its minute has one; drop samples older than a day, or dated in the future."""
        with self._account.atomic() as connection:
            execute(connection, _ADD, **to_parameters(sample))
            execute(
                connection,
                "DELETE FROM pipeline_samples WHERE minute <= :oldest OR minute > :newest",
                oldest=sample.minute - SAMPLES_KEPT,
                newest=sample.minute,
            )

    def has(self, minute: int) -> bool:
        """Return whether a minute has a sample."""
        return self._value("SELECT 1 FROM pipeline_samples WHERE minute = :minute", minute=minute) is not None

    def last_day(self, *, now: int) -> list[PipelineSample]:
        """Return the samples of the day before `now` (microseconds), the oldest first."""
        return self._records(PipelineSample, _READ, after=now // MINUTE_MICROS - SAMPLES_KEPT)
