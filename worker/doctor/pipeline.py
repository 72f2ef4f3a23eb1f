"""Checks of what runs: server, broker, workers, jobs, and the models that they use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from beat_schedule import PERIODIC_JOBS
from reverie import contract
from reverie.counts import counted
from reverie.pipeline.status import PipelineStatus
from worker.doctor.findings import Finding
from worker.settings import Settings

# An inbox is emptied every second or so, and swept every ten.
_OLD_SECONDS: Final = 40.0
_NEARLY_FULL: Final = 0.8
# Schedules and reminders are looked at every few seconds.
_LATE_SECONDS: Final = 60.0
# A job that has not run for so many of its periods is not run any more.
_MISSED_PERIODS: Final = 3
_SHOWN: Final = 5
# A host that runs is heard of every few seconds, unless it removes from its files what was erased.
_SILENT_SECONDS: Final = 600.0


def check_broker(status: PipelineStatus) -> Iterator[Finding]:
    """Check that the broker answers and keeps what it is given."""
    if status.broker == "down":
        yield Finding("Broker", "problem", f"does not answer: {status.broker_error}", "start it, or correct its URL")
        return
    yield Finding("Broker", "ok", "answers")
    yield from (
        Finding("Broker", "warning", text, "see docs/operations.md#an-external-broker")
        for text in status.broker_warnings
    )


def check_workers(status: PipelineStatus) -> Iterator[Finding]:
    """Check that each queue has a worker, and that beat runs."""
    served = {queue for worker in status.workers for queue in worker.queues}
    idle = [queue for queue in contract.QUEUES if queue not in served]
    if idle:
        advice = f"start everything with `reverie up`, or `reverie worker --queues {','.join(idle)}`"
        yield Finding("Workers", "problem", f"none takes tasks from {', '.join(idle)}", advice)
    else:
        yield Finding("Workers", "ok", f"{counted(len(status.workers), 'process')} alive, all queues served")
    if not any(worker.name.startswith("beat@") for worker in status.workers):
        yield Finding("Beat", "problem", "does not run: no periodic job is started", "`reverie up`, or `reverie beat`")


def check_hosts(status: PipelineStatus) -> Iterator[Finding]:
    """Check that the hosts that share a database are there: erasures wait for each."""
    silent = [host for host in status.hosts if host.silent_seconds > _SILENT_SECONDS]
    for host in silent:
        waiting = f", and holds up {counted(host.erasures, 'erasure')}" if host.erasures else ""
        found = f"{host.name} was not heard of for {host.silent_seconds / 3_600:,.1f} hours{waiting}"
        advice = f"start Reverie there, or if it is gone for good: `reverie db hosts --forget {host.id}`"
        yield Finding("Hosts", "warning", found, advice)
    failing = [host for host in status.hosts if host.error]
    for host in failing:
        advice = "erasures wait for it: see its logs for host_files_not_kept_true"
        yield Finding("Hosts", "problem", f"{host.name} cannot keep its files true: {host.error}", advice)
    if status.hosts and not silent and not failing:
        yield Finding("Hosts", "ok", f"{counted(len(status.hosts), 'host')} share the database")


def check_backlog(status: PipelineStatus) -> Iterator[Finding]:
    """Check that what was handed over is taken in."""
    oldest = max((box.oldest_age_seconds for box in status.inboxes), default=0.0)
    found = f"{counted(status.inbox.items, 'item')} waiting, the oldest for {oldest:.0f} s"
    if status.inbox.full >= _NEARLY_FULL or oldest > _OLD_SECONDS:
        yield Finding("Inbox", "problem", found, "see the log of the ingest worker: a full disk, or no worker")
    else:
        yield Finding("Inbox", "ok", found)
    if status.dead_letters:
        found = f"{counted(status.dead_letters, 'item')} set aside"
        yield Finding("Dead letters", "warning", found, "`reverie dead-letters list --all-agents` says why")
    for name, text in [*status.errors.items()][:_SHOWN]:
        yield Finding("Databases", "problem", f"{name}: {text}")


def check_jobs(status: PipelineStatus, settings: Settings) -> Iterator[Finding]:
    """Check the latest run of each periodic job, and that what is due is carried out."""
    failed = {name: job.error for name, job in status.jobs.items() if job.error}
    for name, error in failed.items():
        yield Finding("Jobs", "problem", f"{_short(name)} failed: {error}", f"`reverie run {_short(name)}` tries again")
    missed = [name for name in _missed(status, settings) if name not in failed]
    if missed:
        found = f"not run for {_MISSED_PERIODS} periods: {', '.join(map(_short, missed))}"
        yield Finding("Jobs", "warning", found, "does beat run, and a worker of `maintenance`?")
    if not failed and not missed:
        yield Finding("Jobs", "ok", f"{counted(len(status.jobs), 'job')} ran without error")
    late = {
        "schedules": status.time.schedules_oldest_overdue_seconds,
        "reminders": status.time.reminders_oldest_push_seconds,
    }
    for what, seconds in late.items():
        if seconds > _LATE_SECONDS:
            advice = "does beat run, and a worker of `schedules`?"
            yield Finding("Jobs", "problem", f"{what} are due for {seconds:.0f} s", advice)


def check_models(status: PipelineStatus) -> Iterator[Finding]:
    """Check the models of the workers, or of the server where none has reported one."""
    in_workers = sorted({worker.embedder for worker in status.workers if worker.embedder})
    embedder = status.embedder
    if in_workers:
        yield Finding("Embedder", "ok", "; ".join(in_workers))
    elif embedder.state == "down":
        yield Finding("Embedder", "problem", f"{embedder.model}: {embedder.error}", "until then recall goes by words")
    else:
        yield Finding("Embedder", "ok", embedder.model or "none: recall goes by words")
    others: Mapping[str, tuple[str, str, str]] = {
        "Language model": (status.language_model.state, status.language_model.model, status.language_model.error),
        "Reranker": (status.reranker.state, status.reranker.model, status.reranker.error),
    }
    for subject, (state, model, error) in others.items():
        if state == "down":
            yield Finding(subject, "problem", f"{model}: {error}", "does its endpoint answer, and take the key?")
        elif state == "up":
            yield Finding(subject, "ok", model)
    for store in (status.account, *status.workspaces):
        if store.advice:
            yield Finding("Languages", "warning", f"{store.name}: {store.advice}")


def _missed(status: PipelineStatus, settings: Settings) -> Iterator[str]:
    for job in PERIODIC_JOBS:
        run = status.jobs.get(job.task)
        if run is not None and _is_missed(status.at, run.started_at, job.period(settings)):
            yield job.task


def _is_missed(now: datetime, started_at: datetime, period: timedelta) -> bool:
    return now - started_at > max(_MISSED_PERIODS * period, timedelta(minutes=5))


def _short(task: str) -> str:
    return task.removeprefix("reverie.").replace("_", "-")
