"""Dream sweeps: promote memories that are recalled often."""

from __future__ import annotations

from typing import Any

from memory.jobs import ALL_DATA, JobScope, RunOptions
from memory.upkeep import dream_sweep as dreams
from reverie import contract
from worker.job_runs import periodic_task
from worker.runtime import Runtime


@periodic_task(
    contract.DREAM_SWEEP,
    enabled=lambda settings: settings.dream_enabled,
    settles="removing",
)
def dream_sweep(
    runtime: Runtime, *, dry_run: bool = False, scope: JobScope = ALL_DATA, manual: bool = False
) -> dict[str, Any]:
    """Promote what was recalled often enough, and commit the memory files of the agents concerned."""
    return dreams.dream_sweep(
        runtime.stores,
        runtime.notebooks,
        rules=runtime.settings.dream_rules,
        now=runtime.now(),
        options=RunOptions(dry_run, scope),
        idle_stores=None if manual else runtime.idle_stores,
        on_new_memories=lambda name: runtime.notify_stage("chunk", name),
    )
