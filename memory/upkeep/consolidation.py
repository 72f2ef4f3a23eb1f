"""Consolidation of memories (B2): expire, promote, prune, merge what says the same, and keep to the caps.

Agent by agent: what there is is read in short transactions, what to do is decided outside of any, and done in batches.
A run that was killed is finished by the next one, and one that finds everything done changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from memory.jobs import JobRun
from memory.upkeep.consolidation_plan import (
    CAP,
    EXPIRE,
    MERGE,
    PROMOTE,
    PRUNE,
    Memories,
    Plan,
    Spared,
    mergeable,
    near_duplicates,
)
from memory.upkeep.consolidation_steps import carry_out
from memory.upkeep.relevance import CurationPolicy
from storage.memories.sweeps import MemorySweeps
from storage.transaction import Transaction

# Above it comparing takes seconds: 5 for 50,000 memories.
_LARGE_SCOPE: Final = 5_000


def consolidate(run: JobRun, policy: CurationPolicy) -> None:
    """Consolidate the memories of every agent of a store. The counts say what was done, or with `dry_run` would be."""
    for agent in agents(run):
        plan = plan_consolidation(run, agent, policy)
        count_or_carry_out(run, agent, policy, plan)


def plan_consolidation(run: JobRun, agent: str, policy: CurationPolicy) -> Plan:
    """What would be done to an agent's memories at the moment of the run."""
    memories = read_memories(run, agent, policy)
    plan = Plan(looked_at=len(memories.rows))
    plan.expired = memories.expire()
    plan.promoted = memories.promote()
    plan.pruned = memories.prune()
    for scope in mergeable(memories.rows.values()):
        if len(scope) > _LARGE_SCOPE:
            run.renew_lease()
        rows = [memory.row_id for memory in scope]
        with run.store.reading() as tx:
            sweeps = MemorySweeps(tx.connection, agent)
            texts, vectors = sweeps.texts(rows), sweeps.single_chunk_vectors(rows)
        merges = near_duplicates(scope, texts, vectors, similarity=policy.duplicate_similarity, spared=memories.spared)
        memories.merge(merges)
        plan.merges += merges
    plan.promoted_later = memories.promote()
    plan.capped = memories.cap()
    return plan


def read_memories(run: JobRun, agent: str, policy: CurationPolicy) -> Memories:
    """The active memories of an agent, and what a person has undone with them."""
    with run.store.reading() as tx:
        rows = {memory.row_id: memory for memory in MemorySweeps(tx.connection, agent).outlines()}
        return Memories(rows, run.now, policy, _spared(tx, agent))


def agents(run: JobRun) -> Iterator[str]:
    """The agents of a store that have memories, while there is time."""
    with run.store.reading() as tx:
        names = tx.memories.agents()
    yield from run.until_deadline(names, remaining="agents_left")


def count_or_carry_out(run: JobRun, agent: str, policy: CurationPolicy, plan: Plan) -> None:
    """Do what a plan says, or in a dry run only count it."""
    if run.dry_run:
        run.counts.update(plan.counts)
        return
    run.counts["looked_at"] += plan.looked_at
    carry_out(run, agent, policy, plan)


def _spared(tx: Transaction, agent: str) -> Spared:
    undone = {action: tx.curation.undone(action) for action in (EXPIRE, PROMOTE, PRUNE, CAP)}
    return Spared(
        memories={action: {memory for owner, memory in found if owner == agent} for action, found in undone.items()},
        pairs={pair for owner, pair in tx.curation.undone_together(MERGE) if owner == agent},
    )
