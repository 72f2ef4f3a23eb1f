"""The end of sessions in which nothing has been said for long."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.sessions.lifecycle import close_idle_sessions as close_silent
from reverie import contract
from worker.app import runtime, task
from worker.endings import ending_of
from worker.job_runs import run_job

_EVERY_SECONDS = 60.0


@task(contract.CLOSE_IDLE_SESSIONS)
def close_idle_sessions(*, by_hand: bool = False, dry_run: bool = False) -> Mapping[str, Any]:
    """End the sessions that fell silent: a last extraction, conversation memories cleared, a commit (M13)."""
    here = runtime()
    return run_job(
        here,
        contract.CLOSE_IDLE_SESSIONS,
        every_seconds=_EVERY_SECONDS,
        work=lambda: close_silent(
            here.stores,
            ending_of(here),
            now=here.now(),
            idle_hours=here.settings.session_idle_hours,
            idle_stores=here.idle_stores,
            dry_run=dry_run,
        ),
        by_hand=by_hand,
        dry_run=dry_run,
    )
