"""Pruning without a look at what memories say (B8): what has expired, what has faded, what is beyond `max_entries`."""

from __future__ import annotations

from dataclasses import replace

from memory.jobs import JobRun
from memory.upkeep.consolidation import agents, count_or_carry_out, read_memories
from memory.upkeep.consolidation_plan import Plan
from memory.upkeep.relevance import CurationPolicy


def prune_decayed(run: JobRun, policy: CurationPolicy) -> None:
    """Prune the memories of every agent of a store. The counts say what was done, or with `dry_run` would be."""
    policy = replace(policy, memories_per_scope=None)  # a scope's cap is consolidation's, which merges first
    for agent in agents(run):
        memories = read_memories(run, agent, policy)
        plan = Plan(looked_at=len(memories.rows))
        plan.expired = memories.expire()
        plan.pruned = memories.prune()
        plan.capped = memories.cap()
        count_or_carry_out(run, agent, policy, plan)
