"""Runs of periodic jobs, in the account's database: one row for each job and period, scheduled or manual."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from reverie.clock import DAY_MICROS, from_micros
from storage.engines import Connection
from storage.repository import AccountRepository
from storage.rows import execute, insert_sql, select_list, to_parameters

# Enough to see a day of failures of the 15-second sweeps, and few enough to read at once.
RUNS_KEPT_PER_JOB: Final = 200
# A run that has not finished after this time was killed: its period can be claimed again.
ABANDONED_AFTER_SECONDS: Final = 600
# The error of a run that ended without a report, because its worker was killed together with its children.
NEVER_ENDED: Final = "it did not end: its process was killed, or the machine stopped"
# The error of a run whose own process was told to end, and does not know why.
STOPPED: Final = "it was stopped: its process was told to end"


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a periodic job."""

    job: str
    period: int
    started_at: int
    finished_at: int | None
    counts: dict[str, Any]
    error: str | None


class JobRuns(AccountRepository):
    """The runs of periodic jobs. Each method is a transaction of its own. Times are microseconds."""

    def claim(self, job: str, *, period: int, now: int, within: int | None = None) -> bool:
        """Claim a run of a job for a period; False when another caller has it.

        With `within`, the period does not decide (it may come twice when the clock is set back): the claim fails if the
        last scheduled run began less than `within` microseconds before or after `now`.
        """
        with self._account.atomic() as connection:
            if within is not None:
                if _is_too_soon(connection, job, now, within):
                    return False
                same_number = "DELETE FROM job_runs WHERE job = :job AND period = :period"
                execute(connection, same_number, job=job, period=period)
            execute(
                connection,
                "UPDATE job_runs SET finished_at = :now, error = :error"
                " WHERE job = :job AND period <> :period AND finished_at IS NULL AND started_at < :abandoned",
                now=now,
                error=NEVER_ENDED,
                job=job,
                period=period,
                abandoned=now - ABANDONED_AFTER_SECONDS * 1_000_000,
            )
            claimed = execute(
                connection,
                "INSERT INTO job_runs (job, period, started_at) VALUES (:job, :period, :now)"
                " ON CONFLICT (job, period) DO UPDATE SET started_at = :now"
                " WHERE finished_at IS NULL AND started_at < :abandoned",
                job=job,
                period=period,
                now=now,
                abandoned=now - ABANDONED_AFTER_SECONDS * 1_000_000,
            )
            return claimed.rowcount > 0

    def finish(
        self, job: str, *, period: int, now: int, counts: dict[str, Any] | None = None, error: str | None = None
    ) -> None:
        """Store how a run ended, and delete old runs of the job."""
        with self._account.atomic() as connection:
            execute(
                connection,
                "UPDATE job_runs SET finished_at = :now, counts = :counts, error = :error"
                " WHERE job = :job AND period = :period",
                now=now,
                counts=json.dumps(counts or {}),
                error=error,
                job=job,
                period=period,
            )
            execute(
                connection,
                "DELETE FROM job_runs WHERE job = :job AND id <= (SELECT id FROM job_runs"
                " WHERE job = :job ORDER BY id DESC LIMIT 1 OFFSET :keep)",
                job=job,
                keep=RUNS_KEPT_PER_JOB,
            )

    def stop(self, job: str, *, period: int, now: int) -> bool:
        """Store that a run was stopped; False if the process that stopped it has stored its end already."""
        stopped = self._execute(
            "UPDATE job_runs SET finished_at = :now, error = :error"
            " WHERE job = :job AND period = :period AND finished_at IS NULL",
            job=job,
            period=period,
            now=now,
            error=STOPPED,
        )
        return stopped > 0

    def fail_killed(self, job: str, *, now: int, error: str) -> bool:
        """Store why the process of the newest run of a job was killed; False when that run ended in another way.

        The process may have stored that it was stopped, without knowing why. This reason replaces that one.
        """
        failed = self._execute(
            "UPDATE job_runs SET finished_at = :now, error = :error WHERE (finished_at IS NULL OR error = :stopped)"
            " AND id = (SELECT max(id) FROM job_runs WHERE job = :job)",
            job=job,
            now=now,
            error=error,
            stopped=STOPPED,
        )
        return failed > 0

    def last_runs(self, *, now: int | None = None) -> dict[str, JobRun]:
        """Return the newest run of each job; a run that should have ended by `now` but has not gets an error."""
        sql = (
            f"SELECT {select_list(JobRun)} FROM job_runs AS r"
            " WHERE id = (SELECT max(id) FROM job_runs WHERE job = r.job) ORDER BY job"
        )
        runs = self._records(JobRun, sql)
        overdue = -1 if now is None else now - ABANDONED_AFTER_SECONDS * 1_000_000
        return {
            run.job: replace(run, error=NEVER_ENDED) if run.finished_at is None and run.started_at < overdue else run
            for run in runs
        }


def _is_too_soon(connection: Connection, job: str, now: int, within: int) -> bool:
    """Return whether the last scheduled run of a job is near `now`; the period of a manual run is its time."""
    row = execute(
        connection,
        "SELECT started_at, finished_at FROM job_runs WHERE job = :job AND period <> started_at"
        " ORDER BY id DESC LIMIT 1",
        job=job,
    ).one_or_none()
    if row is None or abs(now - row.started_at) >= within:
        return False
    was_killed = row.finished_at is None and now - row.started_at > ABANDONED_AFTER_SECONDS * 1_000_000
    return not was_killed


# A caller is waiting: usage that cannot be written now can be added later.
_LOCK_WAIT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Calls of the language model, failed ones among them, tokens, and cost in the currency of the prices.

    `messages` is how many messages of conversations it was shown to read.
    """

    model: str
    purpose: str
    calls: int
    failures: int
    input_tokens: int
    output_tokens: int
    cost: float
    messages: int = 0


_SUMMED: Final = ("calls", "failures", "input_tokens", "output_tokens", "cost", "messages")
_ADDITIONS: Final = ", ".join(f"{name} = {name} + excluded.{name}" for name in _SUMMED)
_ADD: Final = (
    insert_sql("language_model_usage", Usage, day=":day")
    + f" ON CONFLICT (day, model, purpose) DO UPDATE SET {_ADDITIONS}"
)
_SUM: Final = f"""
    SELECT model, purpose, {", ".join(f"sum({name}) AS {name}" for name in _SUMMED)}
    FROM language_model_usage WHERE day > :before AND day <= :today GROUP BY model, purpose ORDER BY model, purpose
"""


class UsageLog(AccountRepository):
    """The usage of the language model. Each method is a transaction of its own."""

    def add(self, usage: Usage, *, now: int) -> None:
        """Add to the day of `now` (microseconds). Raises `StoreUnavailable` when the file is locked for a second."""
        with self._account.atomic(lock_wait_seconds=_LOCK_WAIT_SECONDS) as connection:
            execute(connection, _ADD, **to_parameters(usage), day=_day(now))

    def last_days(self, days: int, *, now: int) -> list[Usage]:
        """Return the usage of the last `days` days, today included, summed by model and purpose."""
        return self._records(Usage, _SUM, before=_day(now - days * DAY_MICROS), today=_day(now))

    def tokens_today(self, *, now: int) -> int:
        """Return how many tokens were used on the day of `now`, for all purposes."""
        return sum(used.input_tokens + used.output_tokens for used in self.last_days(1, now=now))

    def remove_before(self, before: int) -> int:
        """Delete the usage of days before that of a time (microseconds); returns how many rows."""
        sql = "DELETE FROM language_model_usage WHERE day < :day"
        return self._execute(sql, day=_day(before))


def _day(now: int) -> str:
    return from_micros(now).date().isoformat()
