"""Summaries of sessions, and closing of idle ones."""

from __future__ import annotations

from typing import Any

from memory.idle_stores import DueJob, run_where_changed, run_where_due
from memory.jobs import ALL_DATA, JobScope, RunOptions
from memory.sessions import lifecycle, summary_jobs
from reverie import contract
from worker.composition import build_condenser, session_end_hooks, summary_rules
from worker.job_runs import periodic_task
from worker.runtime import Runtime


@periodic_task(contract.CONSOLIDATE_CONVERSATIONS, settles="removing")
def consolidate_conversations(
    runtime: Runtime, *, dry_run: bool = False, scope: JobScope = ALL_DATA, manual: bool = False
) -> dict[str, Any]:
    """Summarise every conversation that is over."""
    settings = runtime.settings
    condenser, numbers = build_condenser(runtime), summary_rules(settings)
    hours = 2 * settings.session_idle_hours
    return run_where_changed(
        runtime.stores,
        contract.CONSOLIDATE_CONVERSATIONS,
        lambda run: summary_jobs.consolidate_conversations(run, condenser, numbers, after_hours=hours),
        now=runtime.now(),
        idle_stores=None if manual else runtime.idle_stores,
        next_at=lambda store: summary_jobs.next_over(store, now=runtime.now(), after_hours=hours),
        options=RunOptions(dry_run, scope),
    )


@periodic_task(contract.SUMMARIZE_SESSIONS)
def summarize_sessions(runtime: Runtime, *, dry_run: bool = False, scope: JobScope = ALL_DATA) -> dict[str, Any]:
    """Condense the oldest turns of sessions that exceed their token budget."""
    condenser, numbers = build_condenser(runtime), summary_rules(runtime.settings)
    now = runtime.now()
    job = DueJob(
        contract.SUMMARIZE_SESSIONS,
        lambda run: summary_jobs.summarize_sessions(run, condenser, numbers),
        lambda store: now if summary_jobs.has_new(store) else None,
    )
    return run_where_due(
        runtime.stores, job, now=now, idle_stores=runtime.idle_stores, options=RunOptions(dry_run, scope)
    )


@periodic_task(contract.CLOSE_IDLE_SESSIONS, settles="removing")
def close_idle_sessions(runtime: Runtime, *, dry_run: bool = False, scope: JobScope = ALL_DATA) -> dict[str, Any]:
    """Close sessions without messages for long: extract once more, clear conversation memories, commit to git."""
    return lifecycle.close_idle_sessions(
        runtime.stores,
        session_end_hooks(runtime),
        now=runtime.now(),
        idle_hours=runtime.settings.session_idle_hours,
        idle_stores=runtime.idle_stores,
        options=RunOptions(dry_run, scope),
    )
