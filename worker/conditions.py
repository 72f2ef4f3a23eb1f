"""What is wrong with a running Reverie: one list, for `reverie status`, `reverie doctor` and the page alike.

It is made from the status, and returned as a part of it. The alerts of `monitoring/alerts.yml` watch the same
conditions by the metrics, and name the same sections of docs/operations.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from beat_schedule import PERIODIC_JOBS
from memory.pipeline.faults import death_text, recent_deaths
from reverie import contract
from reverie.contract import job_name
from reverie.counts import counted
from reverie.pipeline.status import Finding, JobStatus, PipelineStatus, by_harm
from worker.settings import Settings

_NEARLY_FULL: Final = 0.8
# Schedules and reminders are looked at every few seconds.
_LATE_SECONDS: Final = 60.0
# A job that has not run for so many of its periods has stopped running.
_MISSED_PERIODS: Final = 3
# A running host reports every few seconds, except while it removes erased texts from its files.
_SILENT_SECONDS: Final = 600.0
_SHOWN: Final = 5


def find_conditions(status: PipelineStatus, settings: Settings) -> list[Finding]:
    """Return the findings about each part of what runs, the most harmful first."""
    found = [
        *_broker(status),
        *_databases(status),
        *_hosts(status),
        *_removals(status),
        *_jobs(status, settings),
        *_lateness(status, settings),
        *_models(status, settings),
    ]
    if status.broker == "up":
        found += [*_workers(status), *_inboxes(status)]
    return by_harm(found)


def _broker(status: PipelineStatus) -> Iterator[Finding]:
    """Yield whether the broker answers, and what could make it lose messages."""
    if status.broker == "down":
        yield Finding("Broker", "problem", "does not answer", status.broker_error)
        return
    yield Finding("Broker", "ok", "answers")
    yield from (
        Finding("Broker", "warning", text, "see docs/operations.md#an-external-broker")
        for text in status.broker_warnings
    )


def _workers(status: PipelineStatus) -> Iterator[Finding]:
    """Yield whether each queue has a worker, beat runs, and accepted messages are processed."""
    yield from (Finding("Faults", "problem", fault) for fault in status.faults)
    died = [death_text(worker, status.at) for worker in status.workers if recent_deaths(worker, status.at)]
    advice = "its log says why, or the kernel's if memory was short"
    yield from (Finding("Workers", "warning", text, advice) for text in died if text not in status.faults)
    if not status.faults:
        served = {queue for worker in status.workers for queue in worker.queues} >= set(status.queues)
        found = "all queues served" if served else "the others are starting"
        yield Finding("Workers", "ok", f"{counted(len(status.workers), 'process')} alive, {found}")


def _databases(status: PipelineStatus) -> Iterator[Finding]:
    """Yield the databases that cannot be read, and how many items are set aside in the others."""
    for name, text in [*status.errors.items()][:_SHOWN]:
        yield Finding("Databases", "problem", f"{name}: {text}")
    if status.dead_letters:
        found = f"{counted(status.dead_letters, 'item')} set aside"
        yield Finding("Dead letters", "warning", found, "`reverie dead-letters list --all-agents` says why")
    for store in (status.account, *status.workspaces):
        if store.advice:
            yield Finding("Languages", "warning", f"{store.name}: {store.advice}")


def _hosts(status: PipelineStatus) -> Iterator[Finding]:
    """Yield whether the hosts that share a database are there: erasures wait for each."""
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
        yield Finding("Hosts", "ok", f"the database is used by {counted(len(status.hosts), 'host')}")


def _removals(status: PipelineStatus) -> Iterator[Finding]:
    """Yield the erasures and forgets that fail: somebody's words are still there."""
    run = status.jobs.get(contract.CONTINUE_ERASURES)
    counts = run.counts if run is not None else {}
    late = {**counts.get("late_erasures", {}), **counts.get("late_forgets", {})}
    for name, error in [*late.items()][:_SHOWN]:
        yield Finding("Erasures", "problem", f"the {name} has not ended: {error}", "it is tried again until it ends")


def _inboxes(status: PipelineStatus) -> Iterator[Finding]:
    """Yield how much waits to be stored; items that wait for too long are among the faults."""
    oldest = max((box.oldest_age_seconds for box in status.inboxes), default=0.0)
    found = f"{counted(status.inbox.items, 'item')} waiting"
    found += f", the oldest for {oldest:.0f} s" if status.inbox.items else ""
    full = [box for box in status.inboxes if box.full >= _NEARLY_FULL]
    advice = "do workers for `ingest` run, and can they write?"
    for box in full:
        yield Finding("Inbox", "problem", f"the inbox of {box.workspace} is {box.full:.0%} full", advice)
    if status.inbox.full >= _NEARLY_FULL:
        yield Finding("Inbox", "problem", f"{found}: the inboxes are {status.inbox.full:.0%} full", advice)
    elif not full:
        yield Finding("Inbox", "ok", found)


def _jobs(status: PipelineStatus, settings: Settings) -> Iterator[Finding]:
    """Yield the periodic jobs whose latest run failed or found something wrong, and those that have stopped running."""
    failed = {name: job.error for name, job in status.jobs.items() if job.error}
    for name, error in failed.items():
        advice = f"`reverie run {job_name(name)}` tries again"
        yield Finding("Jobs", "problem", f"{job_name(name)} failed: {error}", advice)
    in_stores = [*_failed_in_stores(status)]
    yield from in_stores
    missed = [name for name in _missed(status, settings) if name not in failed]
    if missed:
        found = f"not run for {_MISSED_PERIODS} periods: {', '.join(map(job_name, missed))}"
        yield Finding("Jobs", "warning", found, "does beat run, and a worker of `maintenance`?")
    if not failed and not missed and not in_stores:
        yield Finding("Jobs", "ok", f"{counted(len(status.jobs), 'job')} ran without error")


def _failed_in_stores(status: PipelineStatus) -> Iterator[Finding]:
    """Yield the stores in which a job failed, which may pass, and those that `verify-store` found to be wrong."""
    for name, job in status.jobs.items():
        for store, line in [*_lines(job)][:_SHOWN]:
            if "wrong" in line:
                found, advice = "; ".join(line["wrong"][:_SHOWN]), "`reverie run verify-store` checks again"
                yield Finding("Databases", "problem", f"{store} is not consistent: {found}", advice)
            else:
                advice = f"`reverie run {job_name(name)}` tries again"
                yield Finding("Jobs", "warning", f"{job_name(name)} failed in {store}: {line['error']}", advice)


def found_wrong(job: JobStatus) -> bool:
    """Return whether the latest run of a job found a store that is not consistent."""
    return any("wrong" in line for _, line in _lines(job))


def _lines(job: JobStatus) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the lines of stores in the counts of a job that are no mere numbers."""
    by_store = [lines for key, lines in job.counts.items() if isinstance(lines, dict) and not key.startswith("late_")]
    for lines in by_store:
        for store, line in lines.items():
            if isinstance(line, str):
                yield store, {"error": line}
            elif isinstance(line, dict) and line.keys() & {"error", "wrong"}:
                yield store, line


def _missed(status: PipelineStatus, settings: Settings) -> Iterator[str]:
    for job in PERIODIC_JOBS:
        run = status.jobs.get(job.task)
        limit = max(_MISSED_PERIODS * job.every(settings), timedelta(minutes=5))
        if run is not None and status.at - run.started_at > limit:
            yield job.task


def _lateness(status: PipelineStatus, settings: Settings) -> Iterator[Finding]:
    """Yield what is more than a minute late. Reminders that an agent pulls may wait, and do not count."""
    time, workers = status.time, "does beat run, and a worker of `schedules`?"
    late = [
        ("a schedule is overdue by", time.schedules_oldest_overdue_seconds, workers),
        ("a run has waited to be started for", time.runs_oldest_pending_seconds, workers),
    ]
    if settings.notifier_webhook_url:
        advice = "does the webhook of the notifier answer?"
        late.append(("a reminder has waited to be pushed for", time.reminders_oldest_push_seconds, advice))
    for found, seconds, advice in late:
        if seconds > _LATE_SECONDS:
            yield Finding("Schedules", "problem", f"{found} {seconds:.0f} s", advice)


def _models(status: PipelineStatus, settings: Settings) -> Iterator[Finding]:
    """Yield the models of the workers, or of the server if no worker has reported one.

    What workers do with a language model that fails is done by rules, or waits if the settings say so.
    """
    in_workers = sorted({worker.embedder for worker in status.workers if worker.embedder})
    embedder = status.embedder
    if in_workers:
        yield Finding("Embedder", "ok", "; ".join(in_workers))
    elif embedder.state == "down":
        yield Finding("Embedder", "problem", f"{embedder.model}: {embedder.error}", "until then recall goes by words")
    else:
        yield Finding("Embedder", "ok", embedder.model or "none: recall goes by words")
    advice = "is it the right model, and does its endpoint answer and take the key?"
    failing = {worker.language_model for worker in status.workers if " (" in worker.language_model}
    for text in sorted(failing):
        yield Finding("Language model", "warning" if settings.deterministic_fallback else "problem", text, advice)
    for subject, model in (("Language model", status.language_model), ("Reranker", status.reranker)):
        if model.state == "down":
            yield Finding(subject, "problem", f"{model.model}: {model.error}", advice)
        elif model.state == "up":
            yield Finding(subject, "ok", model.model)
