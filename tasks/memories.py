"""Extraction of memories from messages of users."""

from __future__ import annotations

from typing import Any

from memory.jobs import ALL_DATA, JobScope, RunOptions
from memory.memories import extraction
from reverie import contract
from worker.composition import build_extractor
from worker.job_runs import periodic_task
from worker.runtime import Runtime


@periodic_task(
    contract.EXTRACT_MEMORIES,
    enabled=lambda settings: settings.extraction_enabled,
)
def extract_memories(runtime: Runtime, *, dry_run: bool = False, scope: JobScope = ALL_DATA) -> dict[str, Any]:
    """Extract memories from sessions without recent messages; notify the chunk stage of workspaces with new ones."""
    return extraction.extract_memories(
        runtime.stores,
        build_extractor(runtime),
        now=runtime.now(),
        idle_stores=runtime.idle_stores,
        options=RunOptions(dry_run, scope),
    )
