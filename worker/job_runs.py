"""Runs of periodic jobs: at most one per period, with the outcome kept in `job_runs`."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Final, Literal

from beat_schedule import PERIODIC_JOBS
from reverie.errors import Unavailable
from worker.app import current_runtime, task
from worker.runtime import Runtime
from worker.settings import Settings

# Periods are a little shorter than the interval: two ticks of one beat, the first of them a little late, must not fall
# into the same period, or a sweep would be skipped.
_PERIOD_SHARE: Final = 0.8

# What a job does by the clock that cannot be taken back.
Settles = Literal["removing", "firing"]
# How long the clock must be steady after a jump; None is the setting. A clock that is ahead for a moment must not fire
# all reminders of a year, and one that was set right must not delay them for long.
_SETTLE_SECONDS: Final[dict[Settles, float | None]] = {"removing": None, "firing": 60.0}
# Workspaces that the record of one run names.
MOST_NAMED: Final = 20


@dataclass(frozen=True)
class PeriodicTask:
    """A periodic job as it was registered, by the name of its task."""

    name: str
    function: Callable[..., dict[str, Any]]
    enabled: Callable[[Settings], bool]
    settles: Settles | None = None

    @cached_property
    def options(self) -> frozenset[str]:
        """Return the options that the function takes: `dry_run`, `manual`, and `scope` or `workspace` to limit it."""
        return frozenset(list(inspect.signature(self.function).parameters)[1:])

    def run(self, runtime: Runtime, *, manual: bool, **options: Any) -> dict[str, Any]:
        """Run the job, if it is enabled and its period has not been claimed, and return its counts."""
        if not self.enabled(runtime.settings):
            return {"disabled": 1}
        if self.settles is not None and not options.get("dry_run"):
            wait_seconds = runtime.clock_watch.seconds_to_wait(_SETTLE_SECONDS[self.settles])
            if wait_seconds and manual:
                raise Unavailable(_jumped(runtime, self.name, wait_seconds))
            if wait_seconds:
                return {"waits_for_clock_seconds": math.ceil(wait_seconds)}
        if "manual" in self.options:
            options["manual"] = manual
        return run_job(
            runtime,
            self.name,
            every_seconds=_periods[self.name](runtime.settings).total_seconds(),
            work=lambda: self.function(runtime, **options),
            manual=manual,
            recorded=not any(options.get(name) for name in ("dry_run", "scope", "workspace")),
        )


def _jumped(runtime: Runtime, name: str, wait_seconds: float) -> str:
    hours = runtime.clock_watch.look().jumped_by / 3_600_000_000
    return (
        f"the machine's clock has just jumped {hours:.1f} hours ahead: {name} does not go by it for another"
        f" {wait_seconds / 60:.0f} minutes. Set the clock right, or wait if it is right now (`clock_settle_minutes`)"
    )


_periods: Final = {job.task: job.period for job in PERIODIC_JOBS}

# By the name of the task. A module of `tasks/` registers its jobs when it is imported.
registered_jobs: Final[dict[str, PeriodicTask]] = {}


def periodic_task(
    name: str, *, enabled: Callable[[Settings], bool] = lambda _: True, settles: Settles | None = None
) -> Callable[[Callable[..., dict[str, Any]]], Any]:
    """Register a job of the table in `beat_schedule` as a task: a function that takes the runtime and returns counts.

    The task takes `manual` and the options of the function. Where `enabled` is false it returns `{"disabled": 1}`.
    A job that `settles` does not work while the machine's clock has just jumped: if it removes something by its age, or
    fires something that is due.
    """

    def register(function: Callable[..., dict[str, Any]]) -> Any:
        job = registered_jobs[name] = PeriodicTask(name, function, enabled, settles)

        @task(name)
        @wraps(function)
        def run(*, manual: bool = False, **options: Any) -> dict[str, Any]:
            return bounded(job.run(current_runtime(), manual=manual, **options))

        return run

    return register


def run_job(
    runtime: Runtime,
    job: str,
    *,
    every_seconds: float,
    work: Callable[[], dict[str, Any]],
    manual: bool = False,
    recorded: bool = True,
) -> dict[str, Any]:
    """Run a periodic job unless its period has been claimed by another beat or by a delayed duplicate of this task.

    A manual run ignores the period. Return the job's counts, or `{"skipped": 1}`. Counts or error are kept in
    `job_runs` if they are `recorded`: a dry run, or one for a part of the data, claims no period and so does not delay
    the next real run.
    """
    if not recorded:
        return work()
    jobs = runtime.stores.jobs()
    now = runtime.now()
    within = int(_PERIOD_SHARE * every_seconds * 1_000_000)
    period = now if manual else now // within
    if not jobs.claim(job, period=period, now=now, within=None if manual else within):
        return {"skipped": 1}
    started = time.monotonic()
    try:
        counts = work()
    except (SystemExit, KeyboardInterrupt):
        # A worker that kills its child at the time limit lets it end first. It knows the reason; this process does not.
        jobs.stop(job, period=period, now=runtime.now())
        raise
    except BaseException as error:  # the boundary of the job: record and raise
        jobs.finish(job, period=period, now=runtime.now(), error=f"{type(error).__name__}: {error}")
        raise
    counts["seconds"] = round(time.monotonic() - started, 3)
    jobs.finish(job, period=period, now=runtime.now(), counts=bounded(counts))
    return counts


def bounded(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return counts with at most twenty entries of what is counted by workspace, those with errors first.

    Otherwise the runs of a job, each with a line for 10,000 workspaces, would fill the account's database and the log.
    """

    def trouble_last(entry: tuple[str, Any]) -> bool:
        return not (isinstance(entry[1], str) or (isinstance(entry[1], dict) and entry[1].keys() & {"error", "wrong"}))

    result: dict[str, Any] = {}
    for name, value in counts.items():
        if isinstance(value, dict) and len(value) > MOST_NAMED:
            result[name] = dict(sorted(value.items(), key=trouble_last)[:MOST_NAMED])
            result[f"{name}_not_named"] = len(value) - MOST_NAMED
        else:
            result[name] = value
    return result
