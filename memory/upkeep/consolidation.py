"""Consolidates memories: expires, promotes, prunes and merges them, and enforces the limits on their number.

For each agent it reads in short transactions, plans outside of any, and writes in batches. A run that was killed is
completed by the next one; a run that finds nothing to do changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Final

from memory.jobs import PLANNED_SHOWN, JobRun
from memory.upkeep.consolidation_plan import (
    CAP,
    EXPIRE,
    LITTLE_KNOWN,
    MERGE,
    PROMOTE,
    PRUNE,
    Exclusions,
    Plan,
    Planner,
)
from memory.upkeep.consolidation_steps import carry_out
from memory.upkeep.duplicates import find_duplicates, mergeable_scopes
from memory.upkeep.known_to_several import AgentUsers, little_known
from memory.upkeep.relevance import CurationPolicy, hours_until_pruned
from storage.memories.sweeps import MemoryOutline, MemorySweeps
from storage.stores import Store
from storage.transaction import Transaction

# Comparing larger scopes takes seconds: 5 for 50,000 memories.
_LARGE_SCOPE: Final = 5_000
_HOUR_MICROS: Final = 3_600 * 1_000_000


def consolidate(run: JobRun, policy: CurationPolicy, users: AgentUsers) -> None:
    """Consolidate the memories of every agent of a store, or only count the changes if the run is a dry run."""
    for agent in agents(run):
        of_agent = policy if users.named(run.store, agent) else replace(policy, shared_min_users=0, shared_min_days=0)
        plan = plan_consolidation(run, agent, of_agent)
        count_or_carry_out(run, agent, of_agent, plan)


def plan_consolidation(run: JobRun, agent: str, policy: CurationPolicy) -> Plan:
    """Return what consolidation changes in an agent's memories at the time of the run."""
    planner = read_memories(run, agent, policy)
    plan = Plan(looked_at=len(planner.rows))
    plan.expired = planner.expire()
    plan.promoted = planner.promote()
    plan.pruned = planner.prune()
    for scope in mergeable_scopes(planner.rows.values()):
        if len(scope) > _LARGE_SCOPE:
            run.renew_lease()
        rows = [memory.row_id for memory in scope]
        with run.store.reading() as tx:
            sweeps = MemorySweeps(tx.connection, agent)
            texts, vectors = sweeps.texts(rows), sweeps.single_chunk_vectors(rows)
        merges = find_duplicates(
            scope,
            texts,
            vectors,
            similarity=policy.duplicate_similarity,
            excluded_pairs=planner.exclusions.pairs,
        )
        planner.merge(merges)
        plan.merges += merges
    plan.promoted_later = planner.promote()
    plan.held_back = list(planner.held_back.values())
    plan.capped = planner.cap()
    return plan


def read_memories(run: JobRun, agent: str, policy: CurationPolicy) -> Planner:
    """Return a planner with the current memories of an agent, and what a person has undone."""
    with run.store.reading() as tx:
        rows = {memory.row_id: memory for memory in MemorySweeps(tx.connection, agent).outlines()}
        exclusions = _exclusions(tx, agent)

    def held_back(memories: Sequence[MemoryOutline]) -> Collection[int]:
        with run.store.reading() as tx:
            sweeps = MemorySweeps(tx.connection, agent)
            return little_known(sweeps, memories, min_users=policy.shared_min_users, min_days=policy.shared_min_days)

    return Planner(rows, run.now, policy, exclusions, held_back)


def next_pruning(store: Store, policy: CurationPolicy) -> float:
    """Return when the next memory of a store expires or has decayed, in microseconds; infinity if none ever does."""
    next_at = math.inf
    with store.reading() as tx:
        for agent in tx.memories.agents():
            for memory in MemorySweeps(tx.connection, agent).outlines():
                if memory.expires_at is not None:
                    next_at = min(next_at, memory.expires_at)
                hours = hours_until_pruned(memory, policy=policy)
                next_at = min(next_at, memory.accessed_at + hours * _HOUR_MICROS + 1)
    return next_at


def agents(run: JobRun) -> Iterator[str]:
    """Yield the agents of a store that have memories and that the run is for, until the time is up."""
    with run.store.reading() as tx:
        names = tx.memories.agents()
    yield from run.until_deadline(run.chosen(names), remaining="agents_left")


def count_or_carry_out(run: JobRun, agent: str, policy: CurationPolicy, plan: Plan) -> None:
    """Carry out a plan, or only count its changes if the run is a dry run."""
    if run.dry_run:
        run.counts.update(plan.counts)
        _name_changes(run, agent, policy, plan)
        return
    run.counts["looked_at"] += plan.looked_at
    run.counts[LITTLE_KNOWN] += len(plan.held_back)
    carry_out(run, agent, policy, plan)


def _name_changes(run: JobRun, agent: str, policy: CurationPolicy, plan: Plan) -> None:
    changes = plan.changes[:PLANNED_SHOWN]
    rows = [row for _, row in changes]
    with run.store.reading() as tx:
        sweeps = MemorySweeps(tx.connection, agent)
        ids = {memory.row_id: memory.id for memory in sweeps.outlines(rows)}
        texts = sweeps.texts(rows)
    for action, row in changes:
        if row in ids:  # it may have been removed since it was read
            run.plan(agent, action, ids[row], texts[row])
    why = (
        f"several users see it: needs recalls by {policy.shared_min_users} users besides its author"
        f" (dream_shared_min_users), on {policy.shared_min_days} days (dream_shared_min_days)"
    )
    for memory in plan.held_back:
        run.plan(agent, "leave out", memory.id, why)


def _exclusions(tx: Transaction, agent: str) -> Exclusions:
    undone = {action: tx.curation.undone(action) for action in (EXPIRE, PROMOTE, PRUNE, CAP)}
    return Exclusions(
        memories={action: {memory for owner, memory in found if owner == agent} for action, found in undone.items()},
        pairs={pair for owner, pair in tx.curation.undone_together(MERGE) if owner == agent},
    )
