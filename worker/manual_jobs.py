"""Runs periodic jobs on request, in the process that asks: `POST /v1/jobs/{job}/run` and `reverie run`."""

from __future__ import annotations

import importlib
from typing import Any

from beat_schedule import PERIODIC_JOBS, PeriodicJob
from memory.jobs import JobScope
from memory.pipeline.status import job_status
from reverie.errors import NotFound, Rejected
from reverie.upkeep.calls import RunJob
from reverie.upkeep.job_types import Job, JobLimit, JobReport, PlannedChange
from storage.upkeep.jobs import JobRun
from worker.job_runs import PeriodicTask, registered_jobs
from worker.runtime import Runtime


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


def job_name(task: str) -> str:
    """Return the name of a job as a person writes it: `prune-decayed` for the task `reverie.prune_decayed`."""
    return task.removeprefix("reverie.").replace("_", "-")


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
        # The layer of the tasks lies above this one: it is named as a string, as in `worker.app`.
        app = importlib.import_module("worker.app").app
        app.loader.import_default_modules()
    return registered_jobs[task]
