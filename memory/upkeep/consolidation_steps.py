"""Carries out a consolidation plan in batches, each of which checks its memories again.

Between the plan and a batch a person may have pinned a memory, an agent may have recalled or rewritten it, another job
may have removed it: a batch changes only memories to which the reason still applies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from memory.jobs import JobRun
from memory.upkeep.consolidation_plan import (
    CAP,
    EXPIRE,
    MERGE,
    PROMOTE,
    PRUNE,
    Plan,
    has_expired,
    merged_fields,
)
from memory.upkeep.duplicates import Merge, scope_key, subjects_differ
from memory.upkeep.known_to_several import little_known
from memory.upkeep.relevance import CurationPolicy, is_promotable, is_prunable, relevance
from reverie.counts import counted
from storage.memories.records import TIERS, MemoryRecord
from storage.memories.sweeps import CurationBatch, MemoryOutline, MemorySweeps
from storage.transaction import Transaction

# A batch holds the write lock for about a tenth of a second.
BATCH: Final = 200
# The maximum of a message, too.
_MAX_TAGS: Final = 16

Item = TypeVar("Item")
# Returns why a memory, as it is now, is to be changed; empty if it no longer is.
Reason = Callable[[MemoryOutline], str]


def carry_out(run: JobRun, agent: str, policy: CurationPolicy, plan: Plan) -> None:
    """Carry out the steps of a plan, and count them. Stop when the time is up: the next run continues."""
    steps = _Steps(run, agent, policy)
    steps.remove("expired", EXPIRE, plan.expired, steps.reason_to_expire)
    steps.promote(plan.promoted)
    steps.remove("pruned", PRUNE, plan.pruned, steps.reason_to_prune)
    steps.merge(plan.merges)
    steps.promote(plan.promoted_later)
    steps.cap(plan.capped)


class _Steps:
    """The steps of a plan for the memories of one agent."""

    def __init__(self, run: JobRun, agent: str, policy: CurationPolicy) -> None:
        self._run = run
        self._agent = agent
        self._policy = policy

    def remove(self, count: str, action: str, memories: Sequence[MemoryOutline], reason: Reason) -> None:
        """Remove the memories to which the reason still applies."""
        for batch in self._batches(memories):
            with self._run.writing() as tx:
                sweeps = self._sweeps(tx)
                reasons = [(memory.row_id, reason(memory)) for memory in self._current(sweeps, batch)]
                removals = [(row, why) for row, why in reasons if why]
                sweeps.remove(removals, self._curation_batch(action))
            self._run.counts[count] += len(removals)

    def promote(self, memories: Sequence[MemoryOutline]) -> None:
        """Make long-term those of the memories that are still recalled often enough."""
        for batch in self._batches(memories):
            with self._run.writing() as tx:
                sweeps = self._sweeps(tx)
                current = self._current(sweeps, batch)
                held_back = little_known(
                    sweeps,
                    current,
                    min_users=self._policy.shared_min_users,
                    min_days=self._policy.shared_min_days,
                )
                reasons = [
                    (memory, self._reason_to_promote(memory)) for memory in current if memory.row_id not in held_back
                ]
                promotions = [(memory, why) for memory, why in reasons if why]
                sweeps.promote(promotions, self._curation_batch(PROMOTE))
            self._run.counts["promoted"] += len(promotions)

    def merge(self, merges: Sequence[Merge]) -> None:
        """Merge the memories that still have the compared content and the same scope."""
        for batch in self._batches(merges):
            with self._run.writing() as tx:
                rows = {row for merge in batch for row in (merge.survivor, merge.duplicate)}
                records = tx.for_agent(self._agent).memories.by_rows(sorted(rows))
                sweeps = self._sweeps(tx)
                scopes = {one.row_id: scope_key(one) for one in sweeps.outlines(sorted(rows))}
                done = list(_merged(batch, records, scopes))
                sweeps.merge(done, self._curation_batch(MERGE))
            self._run.counts["merged"] += len(done)

    def cap(self, memories: Sequence[MemoryOutline]) -> None:
        """Remove memories while there are too many, except those that have become more relevant or protected."""
        for batch in self._batches(memories):
            with self._run.writing() as tx:
                sweeps = self._sweeps(tx)
                planned = {memory.row_id: memory for memory in batch}
                current = self._current(sweeps, batch)
                removable = [memory for memory in current if self._is_removable(memory, planned[memory.row_id])]
                removals = list(self._excess(sweeps, removable))
                sweeps.remove(removals, self._curation_batch(CAP))
            self._run.counts["capped"] += len(removals)

    def reason_to_expire(self, memory: MemoryOutline) -> str:
        """Return why a memory expires; empty if it does not."""
        return "it had expired" if has_expired(memory, now=self._run.now) else ""

    def reason_to_prune(self, memory: MemoryOutline) -> str:
        """Return why a memory is pruned; empty if it is not."""
        if not is_prunable(memory, now=self._run.now, policy=self._policy):
            return ""
        return f"its relevance of {self._relevance(memory):.4f} is below {self._policy.prune_relevance:g}"

    def _reason_to_promote(self, memory: MemoryOutline) -> str:
        if not is_promotable(memory, now=self._run.now, policy=self._policy):
            return ""
        return f"recalled {counted(memory.access_count, 'time')}, with a relevance of {self._relevance(memory):.2f}"

    def _excess(self, sweeps: MemorySweeps, memories: Sequence[MemoryOutline]) -> Iterator[tuple[int, str]]:
        """Yield memories, each with a reason, until the limits are met."""
        max_per_tier, max_total = self._policy.memories_per_scope, self._policy.max_entries
        excess = {tier: sweeps.count(tier) - max_per_tier if max_per_tier is not None else 0 for tier in TIERS}
        total_excess = sweeps.count() - max_total if max_total is not None else 0
        for memory in memories:
            if excess[memory.tier] > 0:
                why = f"the least relevant of more than {max_per_tier:,} of the {memory.tier} tier"
            elif total_excess > 0:
                why = f"the least relevant of more than {max_total:,} in all"
            else:
                continue
            excess[memory.tier] -= 1
            total_excess -= 1
            yield memory.row_id, why

    def _is_removable(self, memory: MemoryOutline, planned: MemoryOutline) -> bool:
        return not memory.protected and self._relevance(memory) <= self._relevance(planned)

    def _relevance(self, memory: MemoryOutline) -> float:
        return relevance(memory, now=self._run.now, rates=self._policy.rates)

    def _batches(self, items: Sequence[Item]) -> Iterator[Sequence[Item]]:
        for start in range(0, len(items), BATCH):
            if self._run.time_is_up:
                self._run.counts["left"] += len(items) - start
                return
            yield items[start : start + BATCH]

    def _sweeps(self, tx: Transaction) -> MemorySweeps:
        return MemorySweeps(tx.connection, self._agent)

    def _curation_batch(self, action: str) -> CurationBatch:
        return CurationBatch(self._run.job, action, self._run.now)

    @staticmethod
    def _current(sweeps: MemorySweeps, batch: Sequence[MemoryOutline]) -> list[MemoryOutline]:
        """Return the memories of a batch as they are now, in its order, without removed and superseded ones."""
        found = {memory.row_id: memory for memory in sweeps.outlines([memory.row_id for memory in batch])}
        return [found[memory.row_id] for memory in batch if memory.row_id in found]


def _merged(
    merges: Sequence[Merge], records: dict[int, MemoryRecord], scopes: Mapping[int, tuple[object, ...]]
) -> Iterator[tuple[MemoryRecord, MemoryRecord, str]]:
    """Yield each merge that still applies: the survivor as it is to be stored, the duplicate, and the reason."""
    for merge in merges:
        survivor, duplicate = records.get(merge.survivor), records.get(merge.duplicate)
        if survivor is None or duplicate is None or not (survivor.active and duplicate.active):
            continue
        if (survivor.content, duplicate.content) != (merge.survivor_text, merge.duplicate_text):
            continue
        if duplicate.user_written or duplicate.pinned or subjects_differ(survivor.subject, duplicate.subject):
            continue
        if scopes[merge.survivor] != scopes[merge.duplicate]:
            continue
        tags = tuple(dict.fromkeys((*survivor.tags, *duplicate.tags)))[:_MAX_TAGS]
        survivor = replace(survivor, **merged_fields(survivor, duplicate), tags=tags)
        records[merge.survivor] = survivor
        records[merge.duplicate] = replace(duplicate, superseded_by=survivor.id)
        yield survivor, duplicate, f"{survivor.id} says the same"
