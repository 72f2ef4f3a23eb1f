"""Prunes memories without comparing their texts: expired ones, decayed ones, and those beyond `max_entries`."""

from __future__ import annotations

from dataclasses import replace

from memory.jobs import JobRun
from memory.upkeep.consolidation import agents, count_or_carry_out, read_memories
from memory.upkeep.consolidation_plan import Plan
from memory.upkeep.relevance import CurationPolicy


def prune_decayed(run: JobRun, policy: CurationPolicy) -> None:
    """Prune the memories of every agent of a store, or only count them if the run is a dry run."""
    policy = replace(policy, memories_per_scope=None)  # consolidation enforces that limit, after it has merged
    for agent in agents(run):
        planner = read_memories(run, agent, policy)
        plan = Plan(looked_at=len(planner.rows))
        plan.expired = planner.expire()
        plan.pruned = planner.prune()
        plan.capped = planner.cap()
        count_or_carry_out(run, agent, policy, plan)
