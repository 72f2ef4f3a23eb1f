"""Runs of periodic jobs: at most one per period, with the outcome kept in `job_runs`, and on request at any time.

`POST /v1/jobs/{job}/run` and `reverie run` run a job in the process that gets the request.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Final, Literal

from beat_schedule import PERIODIC_JOBS, PeriodicJob
from memory.jobs import JobScope
from memory.status import job_status
from reverie.contract import job_name
from reverie.errors import NotFound, Rejected, Unavailable
from reverie.upkeep import Job, JobLimit, JobReport, PlannedChange, RunJob
from storage.upkeep.jobs import JobRun
from worker.app import app, current_runtime, task
from worker.clock_watch import SETTLE_SECONDS
from worker.runtime import Runtime
from worker.settings import Settings

# Periods are a little shorter than the interval. Otherwise two ticks, the first of them a little late, could fall into
# the same period, and a sweep would be skipped.
_PERIOD_SHARE: Final = 0.8

# Effects of a job that depend on the clock and cannot be undone.
Settles = Literal["removing", "firing"]
# How long the clock must be steady after a jump. A clock that is ahead for a moment must not fire all reminders of a
# year, and one that was set right must not delay them for long.
_SETTLE_SECONDS: Final[dict[Settles, float]] = {"removing": SETTLE_SECONDS, "firing": 60.0}
# The record of a run names at most so many workspaces.
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
        f" {wait_seconds / 60:.0f} minutes. Set the clock right, or wait if it is right now"
    )


_periods: Final = {job.task: job.period for job in PERIODIC_JOBS}

# By the name of the task. A module of `tasks/` registers its jobs when it is imported.
registered_jobs: Final[dict[str, PeriodicTask]] = {}


def periodic_task(
    name: str, *, enabled: Callable[[Settings], bool] = lambda _: True, settles: Settles | None = None
) -> Callable[[Callable[..., dict[str, Any]]], Any]:
    """Register a job of the table in `beat_schedule` as a task: a function that takes the runtime and returns counts.

    The task takes `manual` and the options of the function. Where `enabled` is false it returns `{"disabled": 1}`. A
    job that removes things by their age, or fires due things, waits after a jump of the clock: `settles` says which.
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
        # A worker that kills its child at the time limit lets it end first. Only the worker knows the reason.
        jobs.stop(job, period=period, now=runtime.now())
        raise
    except BaseException as error:  # the boundary of the job: record and raise
        jobs.finish(job, period=period, now=runtime.now(), error=f"{type(error).__name__}: {error}")
        raise
    counts["seconds"] = round(time.monotonic() - started, 3)
    jobs.finish(job, period=period, now=runtime.now(), counts=bounded(counts))
    return counts


def bounded(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return counts with at most twenty entries by workspace, entries with errors first.

    Otherwise the runs of a job, each with a line for 10,000 workspaces, would fill the account's database and the log.
    """

    def is_harmless(entry: tuple[str, Any]) -> bool:
        return not (isinstance(entry[1], str) or (isinstance(entry[1], dict) and entry[1].keys() & {"error", "wrong"}))

    result: dict[str, Any] = {}
    for name, value in counts.items():
        if isinstance(value, dict) and len(value) > MOST_NAMED:
            result[name] = dict(sorted(value.items(), key=is_harmless)[:MOST_NAMED])
            result[f"{name}_not_named"] = len(value) - MOST_NAMED
        else:
            result[name] = value
    return result


def list_jobs(runtime: Runtime) -> list[Job]:
    """Return all periodic jobs with their last runs, in the order of the table in `beat_schedule`."""
    last_runs = runtime.stores.jobs().last_runs(now=runtime.now())
    return [_job(runtime, periodic, last_runs.get(periodic.task)) for periodic in PERIODIC_JOBS]


def run_job_now(runtime: Runtime, call: RunJob) -> JobReport:
    """Run a job, whether it is due or not, and return its counts.

    Raises `Rejected` for a dry run or a limit that the job does not have, and `NotFound` for an unknown workspace.
    """
    periodic = next(periodic for periodic in PERIODIC_JOBS if job_name(periodic.task) == call.job)
    job = _registered(periodic.task)
    options = _options(call, job)
    if call.workspace is not None and call.workspace not in runtime.stores.all_names():
        raise NotFound(f"there is no workspace {call.workspace!r}", field="workspace")
    counts = job.run(runtime, manual=True, **options)
    planned = [PlannedChange(**change) for change in counts.pop("planned", ())]
    return JobReport(job=call.job, dry_run=call.dry_run, counts=counts, planned=planned)


def _job(runtime: Runtime, periodic: PeriodicJob, last: JobRun | None) -> Job:
    options = _registered(periodic.task).options
    return Job(
        name=job_name(periodic.task),
        description=periodic.description,
        every_seconds=periodic.every(runtime.settings).total_seconds(),
        dry_run="dry_run" in options,
        limits=_limits(options),
        last_run=None if last is None else job_status(last),
    )


def _limits(options: frozenset[str]) -> list[JobLimit]:
    if "scope" in options:
        return ["workspace", "agent"]
    return ["workspace"] if "workspace" in options else []


def _options(call: RunJob, job: PeriodicTask) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if call.dry_run:
        if "dry_run" not in job.options:
            raise Rejected(f"{call.job} has no dry run; those that have one: {_jobs_with('dry_run')}", field="dry_run")
        options["dry_run"] = True
    if call.agent is not None and "scope" not in job.options:
        raise Rejected(
            f"{call.job} cannot be limited to an agent; those that can: {_jobs_with('scope')}", field="agent"
        )
    if call.agent is not None or (call.workspace is not None and "scope" in job.options):
        options["scope"] = JobScope(call.workspace, call.agent)
    elif call.workspace is not None:
        if "workspace" not in job.options:
            raise Rejected(f"{call.job} works on all workspaces: it cannot be limited to one", field="workspace")
        options["workspace"] = call.workspace
    return options


def _jobs_with(option: str) -> str:
    names = (periodic.task for periodic in PERIODIC_JOBS if option in _registered(periodic.task).options)
    return ", ".join(sorted(map(job_name, names)))


def _registered(task: str) -> PeriodicTask:
    if task not in registered_jobs:
        app.loader.import_default_modules()  # imported by name: the modules of tasks are above this one
    return registered_jobs[task]
