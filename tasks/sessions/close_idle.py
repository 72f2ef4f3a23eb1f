"""Closing of idle sessions."""

from __future__ import annotations

from typing import Any

from memory.jobs import ALL_DATA, JobScope
from memory.sessions import lifecycle
from reverie import contract
from worker.composition import session_end_hooks
from worker.job_runs import periodic_task
from worker.runtime import Runtime


@periodic_task(contract.CLOSE_IDLE_SESSIONS, settles="removing")
def close_idle_sessions(runtime: Runtime, *, dry_run: bool = False, scope: JobScope = ALL_DATA) -> dict[str, Any]:
    """Close sessions without messages for long: extract once more, clear conversation memories, commit to git."""
    return lifecycle.close_idle_sessions(
        runtime.stores,
        session_end_hooks(runtime),
        now=runtime.now(),
        idle_hours=runtime.settings.session_idle_hours,
        idle_stores=runtime.idle_stores,
        dry_run=dry_run,
        scope=scope,
    )
