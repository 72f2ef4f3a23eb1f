"""Runs of periodic jobs, in the account's database: one row for each job and period, whoever asked for it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import text

from storage.engine import Database

# Enough to see a day of the 15-second sweeps' failures, small enough to read at once.
KEEP_RUNS_A_JOB: Final = 200
# A run that has not finished after this time was killed; the same period may be claimed again.
ABANDONED_AFTER_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a periodic job."""

    job: str
    period: int
    started_at: int
    finished_at: int | None
    counts: dict[str, Any]
    error: str | None


class JobRuns:
    """Who ran what when. Each method is a transaction of its own."""

    def __init__(self, account: Database) -> None:
        self._account = account

    def claim(self, job: str, *, period: int, now: int) -> bool:
        """Whether the caller may run this job for this period: one may, however many ask."""
        with self._account.atomic() as connection:
            claimed = connection.execute(
                text(
                    "INSERT INTO job_runs (job, period, started_at) VALUES (:job, :period, :now)"
                    " ON CONFLICT (job, period) DO UPDATE SET started_at = :now"
                    " WHERE finished_at IS NULL AND started_at < :abandoned"
                ),
                {"job": job, "period": period, "now": now, "abandoned": now - ABANDONED_AFTER_SECONDS * 1_000_000},
            )
            return claimed.rowcount > 0

    def finish(
        self, job: str, *, period: int, now: int, counts: dict[str, Any] | None = None, error: str | None = None
    ) -> None:
        """Note how a run ended, and forget runs long past."""
        with self._account.atomic() as connection:
            connection.execute(
                text(
                    "UPDATE job_runs SET finished_at = :now, counts = :counts, error = :error"
                    " WHERE job = :job AND period = :period"
                ),
                {"now": now, "counts": json.dumps(counts or {}), "error": error, "job": job, "period": period},
            )
            connection.execute(
                text(
                    "DELETE FROM job_runs WHERE job = :job AND id <= (SELECT id FROM job_runs"
                    " WHERE job = :job ORDER BY id DESC LIMIT 1 OFFSET :keep)"
                ),
                {"job": job, "keep": KEEP_RUNS_A_JOB},
            )

    def last_runs(self) -> dict[str, JobRun]:
        """The newest run of each job."""
        with self._account.reading() as connection:
            rows = connection.execute(
                text(
                    "SELECT job, period, started_at, finished_at, counts, error FROM job_runs AS r"
                    " WHERE started_at = (SELECT max(started_at) FROM job_runs WHERE job = r.job) ORDER BY job"
                )
            )
            found = [tuple(row) for row in rows]
            return {row[0]: JobRun(*[*row[:4], json.loads(row[4]), row[5]]) for row in found}
