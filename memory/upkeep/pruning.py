"""Prunes memories without comparing their texts: expired ones, decayed ones, and those beyond `max_entries`.

This limit applies to all stores of an agent together: the workspaces of one tenant, and its part of the account.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from memory.idle_stores import IdleStores, run_where_changed
from memory.jobs import JobRun, RunOptions, run_on_stores
from memory.upkeep.consolidation import Plan, agents, count_or_carry_out, next_pruning, read_memories
from memory.upkeep.relevance import CurationPolicy
from reverie.contract import ACCOUNT_STORE
from reverie.errors import ReverieError
from storage.stores import Stores


def prune_decayed(run: JobRun, policy: CurationPolicy) -> dict[str, Plan]:
    """Prune the memories of every agent of a store, or only count them if the run is a dry run.

    Returns the plan for each agent.
    """
    policy = replace(policy, memories_per_scope=None)  # consolidation enforces this limit after its merges
    plans: dict[str, Plan] = {}
    for agent in agents(run):
        planner = read_memories(run.store, agent, policy, now=run.now)
        plan = plans[agent] = Plan(looked_at=len(planner.rows))
        plan.expired = planner.expire()
        plan.pruned = planner.prune()
        plan.capped = planner.cap()
        count_or_carry_out(run, agent, policy, plan)
    return plans


def run_within_limit(
    stores: Stores,
    job: str,
    work: Callable[[JobRun], dict[str, Plan]],
    policy: CurationPolicy,
    *,
    now: int,
    idle_stores: IdleStores | None = None,
    options: RunOptions,
) -> dict[str, Any]:
    """Run a job that prunes where something has changed, then enforce `max_entries` over all stores of each agent.

    Returns the counts of both steps together.
    """
    ends_at = time.monotonic() + options.budget_seconds
    planned: dict[tuple[str, str], Plan] = {}

    def work_and_note_plans(run: JobRun) -> None:
        plans = work(run)
        if run.dry_run:
            planned.update({(run.store.name, agent): plan for agent, plan in plans.items()})

    counts = run_where_changed(
        stores,
        job,
        work_and_note_plans,
        now=now,
        idle_stores=idle_stores,
        next_at=lambda store: next_pruning(store, policy),
        options=options,
    )
    limit = policy.max_entries
    if limit is None or "not_reached" in counts:  # the next run, which has less to do, enforces it
        return counts
    policy = replace(policy, memories_per_scope=None)
    plans = _plan_limit(stores, policy, limit, planned, now=now, agent=options.scope.agent)

    def cap(run: JobRun) -> None:
        for agent, plan in plans[run.store.name].items():
            count_or_carry_out(run, agent, policy, plan)

    options = replace(options, budget_seconds=ends_at - time.monotonic())
    total: dict[str, Any] = _sum(counts, run_on_stores(stores, job, cap, now=now, options=options, only=list(plans)))
    return total


def _plan_limit(
    stores: Stores,
    policy: CurationPolicy,
    limit: int,
    planned: Mapping[tuple[str, str], Plan],
    *,
    now: int,
    agent: str | None,
) -> dict[str, dict[str, Plan]]:
    """Return, by store and agent, the memories that exceed the limit once the `planned` changes are made."""
    held: dict[tuple[str, str | None], Counter[str]] = defaultdict(Counter)
    totals: Counter[tuple[str, str]] = Counter()
    for name in stores.all_names():
        with suppress(ReverieError), stores.workspace(name, create=False).reading() as tx:  # the run has reported it
            for owner, tenant, count in tx.memories.current_counts():
                of_tenant = tenant if name == ACCOUNT_STORE else stores.stored_tenant_of(name)
                held[owner, of_tenant][name] += count
                totals[name, owner] += count
    plans: dict[str, dict[str, Plan]] = defaultdict(lambda: defaultdict(Plan))
    for (owner, tenant), counts in held.items():
        if counts.total() <= limit or agent not in (None, owner):
            continue
        entries, ranked = 0, []
        for name in counts:
            with suppress(ReverieError):
                planner = read_memories(stores.workspace(name, create=False), owner, policy, now=now)
                planner.apply(planned.get((name, owner), Plan()))
                memories = [one for one in planner.rows.values() if name != ACCOUNT_STORE or one.tenant == tenant]
                entries += len(memories)
                ranked += [(planner.rank(memory), name, memory) for memory in planner.cappable(memories)]
        for _, name, memory in sorted(ranked)[: max(0, entries - limit)]:
            plans[name][owner].capped.append(memory)
    for name, of_store in plans.items():
        for owner, plan in of_store.items():
            # A total, not a number to remove: what somebody else removes meanwhile counts.
            plan.entries_kept = totals[name, owner] - len(plan.capped)
    return plans


def _sum(first: Any, second: Any) -> Any:
    """Add the results of two runs: numbers, lists, and mappings of these; of two errors, keep the first."""
    if isinstance(first, dict):
        shared_keys = first.keys() & second.keys()
        return {**first, **second, **{key: _sum(first[key], second[key]) for key in shared_keys}}
    return first if isinstance(first, str) else first + second
