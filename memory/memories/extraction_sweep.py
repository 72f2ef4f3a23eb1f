"""Extraction in every workspace: where a session is due, as far as one run's time reaches."""

from __future__ import annotations

from typing import Any, Final

from memory.idle_stores import DueJob, IdleStores, run_where_due
from memory.memories.extraction import Extractor, extract_due, has_due, has_waiting
from reverie import contract
from storage.stores import Store, Stores

# A sweep is driven several times a minute: what this one does not reach, the next one does.
BUDGET_SECONDS: Final = 120.0


def extract_memories(
    stores: Stores, extractor: Extractor, *, now: int, idle_stores: IdleStores | None = None, dry_run: bool = False
) -> dict[str, Any]:
    """Extract from every session that is due; returns the counts of each workspace and of all together.

    `idle_stores` remembers the workspaces in which nothing waits.
    """

    def due_at(store: Store) -> int | None:
        if not has_waiting(store):
            return None
        return now if has_due(store, extractor.rules, now=now) else now + 1  # soon: the next sweep looks again

    return run_where_due(
        stores,
        DueJob(contract.EXTRACT_MEMORIES, lambda run: extract_due(run, extractor), due_at),
        now=now,
        idle_stores=idle_stores,
        budget_seconds=BUDGET_SECONDS,
        dry_run=dry_run,
    )
