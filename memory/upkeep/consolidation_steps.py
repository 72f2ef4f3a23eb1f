"""Carry out a plan of consolidation, in batches that each look again.

Between the plan and a batch a person may have pinned a memory, an agent recalled or rewritten it, another job removed
it: a step is taken only with what is still as it was decided on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from memory.jobs import JobRun
from memory.upkeep.consolidation_plan import (
    CAP,
    EXPIRE,
    MERGE,
    PROMOTE,
    PRUNE,
    Merge,
    Plan,
    about_others,
    has_expired,
    later_end,
    longer,
    scope_of,
)
from memory.upkeep.relevance import CurationPolicy, is_promotable, is_prunable, relevance
from storage.memories.records import TIERS, MemoryRecord
from storage.memories.sweeps import CurationBatch, MemoryOutline, MemorySweeps
from storage.transaction import Transaction

# A batch holds the write lock for about a tenth of a second.
BATCH: Final = 200
# As many as a message has (M7).
_MOST_TAGS: Final = 16

Item = TypeVar("Item")
# Of a memory as it is now: why the step is taken, or nothing where it no longer is to be.
Reason = Callable[[MemoryOutline], str]


def carry_out(run: JobRun, agent: str, policy: CurationPolicy, plan: Plan) -> None:
    """Do what a plan says, step by step, and count it. Stops when the time is up: the next run goes on."""
    steps = _Steps(run, agent, policy)
    steps.remove("expired", EXPIRE, plan.expired, steps.why_expired)
    steps.promote(plan.promoted)
    steps.remove("pruned", PRUNE, plan.pruned, steps.why_pruned)
    steps.merge(plan.merges)
    steps.promote(plan.promoted_later)
    steps.cap(plan.capped)


class _Steps:
    """The steps for the memories of one agent."""

    def __init__(self, run: JobRun, agent: str, policy: CurationPolicy) -> None:
        self._run = run
        self._agent = agent
        self._policy = policy

    def remove(self, count: str, action: str, memories: Sequence[MemoryOutline], reason: Reason) -> None:
        """Remove memories for which there still is a reason."""
        for batch in self._batches(memories):
            with self._run.writing() as tx:
                sweeps = self._sweeps(tx)
                reasons = [(memory.row_id, reason(memory)) for memory in self._now(sweeps, batch)]
                kept = [(row, why) for row, why in reasons if why]
                sweeps.remove(kept, self._curation(action))
            self._run.counts[count] += len(kept)

    def promote(self, memories: Sequence[MemoryOutline]) -> None:
        """Make memories long-term that still are worth it."""
        for batch in self._batches(memories):
            with self._run.writing() as tx:
                sweeps = self._sweeps(tx)
                reasons = [(memory, self._why_promoted(memory)) for memory in self._now(sweeps, batch)]
                kept = [(memory, why) for memory, why in reasons if why]
                sweeps.promote(kept, self._curation(PROMOTE))
            self._run.counts["promoted"] += len(kept)

    def merge(self, merges: Sequence[Merge]) -> None:
        """Merge memories that still say what was compared, and still hold in the same place."""
        for batch in self._batches(merges):
            with self._run.writing() as tx:
                rows = {row for merge in batch for row in (merge.stays, merge.goes)}
                records = tx.for_agent(self._agent).memories.by_rows(sorted(rows))
                done = list(_merged(batch, records))
                self._sweeps(tx).merge(done, self._curation(MERGE))
            self._run.counts["merged"] += len(done)

    def cap(self, memories: Sequence[MemoryOutline]) -> None:
        """Remove memories that still are too many and no more relevant than they were."""
        for batch in self._batches(memories):
            with self._run.writing() as tx:
                sweeps = self._sweeps(tx)
                before = {memory.row_id: memory for memory in batch}
                now = [memory for memory in self._now(sweeps, batch) if self._as_before(memory, before[memory.row_id])]
                kept = list(self._too_many(sweeps, now))
                sweeps.remove(kept, self._curation(CAP))
            self._run.counts["capped"] += len(kept)

    def why_expired(self, memory: MemoryOutline) -> str:
        """The reason to expire a memory."""
        return "its time was over" if has_expired(memory, now=self._run.now) else ""

    def why_pruned(self, memory: MemoryOutline) -> str:
        """The reason to prune a memory."""
        if not is_prunable(memory, now=self._run.now, policy=self._policy):
            return ""
        return f"its relevance of {self._relevance(memory):.4f} is below {self._policy.prune_relevance:g}"

    def _why_promoted(self, memory: MemoryOutline) -> str:
        if not is_promotable(memory, now=self._run.now, policy=self._policy):
            return ""
        return f"recalled {memory.access_count} times, with a relevance of {self._relevance(memory):.2f}"

    def _too_many(self, sweeps: MemorySweeps, memories: Sequence[MemoryOutline]) -> Iterator[tuple[int, str]]:
        most_a_tier, most = self._policy.memories_per_scope, self._policy.max_entries
        over = {tier: sweeps.count(tier) - most_a_tier if most_a_tier is not None else 0 for tier in TIERS}
        over_all = sweeps.count() - most if most is not None else 0
        for memory in memories:
            if over[memory.tier] > 0:
                why = f"the least relevant of more than {most_a_tier:,} of the {memory.tier} tier"
            elif over_all > 0:
                why = f"the least relevant of more than {most:,} in all"
            else:
                continue
            over[memory.tier] -= 1
            over_all -= 1
            yield memory.row_id, why

    def _as_before(self, memory: MemoryOutline, before: MemoryOutline) -> bool:
        return not memory.protected and self._relevance(memory) <= self._relevance(before)

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

    def _curation(self, action: str) -> CurationBatch:
        return CurationBatch(self._run.job, action, self._run.now)

    @staticmethod
    def _now(sweeps: MemorySweeps, batch: Sequence[MemoryOutline]) -> list[MemoryOutline]:
        """The memories of a batch as they are now, in its order; what is gone or superseded is left out."""
        found = {memory.row_id: memory for memory in sweeps.outlines([memory.row_id for memory in batch])}
        return [found[memory.row_id] for memory in batch if memory.row_id in found]


def _merged(
    merges: Sequence[Merge], records: dict[int, MemoryRecord]
) -> Iterator[tuple[MemoryRecord, MemoryRecord, str]]:
    """One after the other: the memory that stays, as it becomes, the one that goes, and why."""
    for merge in merges:
        stays, goes = records.get(merge.stays), records.get(merge.goes)
        if stays is None or goes is None or not (stays.active and goes.active):
            continue
        if (stays.content, goes.content) != (merge.text_stays, merge.text_goes) or goes.user_written or goes.pinned:
            continue
        if scope_of(stays) != scope_of(goes) or about_others(stays.subject, goes.subject):
            continue
        records[merge.stays] = stays = _united(stays, goes)
        records[merge.goes] = replace(goes, superseded_by=stays.id)
        yield stays, goes, f"{stays.id} says the same"


def _united(stays: MemoryRecord, goes: MemoryRecord) -> MemoryRecord:
    taken: dict[str, Any] = {
        "importance": max(stays.importance, goes.importance),
        "access_count": stays.access_count + goes.access_count,
        "accessed_at": max(stays.accessed_at, goes.accessed_at),
        "expires_at": later_end(stays.expires_at, goes.expires_at),
        "lifetime": longer(stays.lifetime, goes.lifetime),
        "subject": stays.subject or goes.subject,
        "tags": tuple(dict.fromkeys((*stays.tags, *goes.tags)))[:_MOST_TAGS],
    }
    return replace(stays, **taken)
