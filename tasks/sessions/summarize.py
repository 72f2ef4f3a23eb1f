"""Summaries: of conversations that are over, and of sessions that outgrow their budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.idle_stores import DueJob, run_where_due
from memory.jobs import run_on_stores
from memory.sessions import summary_jobs
from reverie import contract
from worker.app import runtime, task
from worker.job_runs import run_job
from worker.summaries import condenser_of, summary_numbers


@task(contract.CONSOLIDATE_CONVERSATIONS)
def consolidate_conversations(*, by_hand: bool = False, dry_run: bool = False) -> Mapping[str, Any]:
    """Make a summary of every conversation that is over."""
    here = runtime()
    settings = here.settings
    condenser, numbers = condenser_of(here), summary_numbers(settings)

    def work() -> dict[str, Any]:
        return run_on_stores(
            here.stores,
            contract.CONSOLIDATE_CONVERSATIONS,
            lambda run: summary_jobs.consolidate_conversations(
                run, condenser, numbers, after_hours=settings.consolidation_after_hours
            ),
            now=here.now(),
            dry_run=dry_run,
        )

    every = settings.consolidation_interval_hours * 3_600
    return run_job(
        here, contract.CONSOLIDATE_CONVERSATIONS, every_seconds=every, work=work, by_hand=by_hand, dry_run=dry_run
    )


@task(contract.SUMMARIZE_SESSIONS)
def summarize_sessions(*, by_hand: bool = False, dry_run: bool = False) -> Mapping[str, Any]:
    """Condense the oldest turns of the sessions that outgrew their budget."""
    here = runtime()
    condenser, numbers = condenser_of(here), summary_numbers(here.settings)

    def work() -> dict[str, Any]:
        now = here.now()
        return run_where_due(
            here.stores,
            DueJob(
                contract.SUMMARIZE_SESSIONS,
                lambda run: summary_jobs.summarize_sessions(run, condenser, numbers),
                lambda store: now if summary_jobs.has_new(store) else None,
            ),
            now=now,
            idle_stores=here.idle_stores,
            dry_run=dry_run,
        )

    every = here.settings.summary_interval_minutes * 60
    return run_job(here, contract.SUMMARIZE_SESSIONS, every_seconds=every, work=work, by_hand=by_hand, dry_run=dry_run)
