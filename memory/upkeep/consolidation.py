"""Plans the consolidation of an agent's memories from what was read, before anything is changed.

Pure, so that a dry run reports what a real run does. The order: remove expired memories, promote those that are
recalled often, prune decayed ones, merge duplicates, promote merged memories that now have enough recalls, enforce the
limits; each step sees the results of those before it. Merging only raises a relevance and only lengthens a lifetime. So
if half of a plan was carried out, a new plan ends with the same result.

The job that prunes takes only the steps for which no texts are compared. `max_entries` applies to all stores of an
agent together: the workspaces of one tenant, and its part of the account.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from memory.idle_stores import IdleStores, run_where_changed
from memory.jobs import PLANNED_SHOWN, JobRun, RunOptions, run_on_stores
from memory.upkeep.duplicates import Merge, find_duplicates, mergeable_scopes, scope_key, subjects_differ
from memory.upkeep.relevance import CurationPolicy, hours_until_pruned, is_promotable, is_prunable, relevance
from reverie.clock import HOUR_MICROS
from reverie.contract import ACCOUNT_STORE
from reverie.counts import counted
from reverie.errors import ReverieError
from storage.memories.records import LIFETIMES, TIERS, MemoryRecord
from storage.memories.sweeps import CurationBatch, MemoryOutline, MemorySweeps
from storage.stores import Store, Stores
from storage.transaction import Transaction

EXPIRE: Final = "expire"
PROMOTE: Final = "promote"
PRUNE: Final = "prune"
MERGE: Final = "merge"
CAP: Final = "cap"
# The name of the count of memories that are not promoted because too few users have recalled them.
LITTLE_KNOWN: Final = "left_out_little_known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclusions:
    """Changes that a person has undone and that jobs must not repeat: memories by action, and pairs of merged ids."""

    memories: Mapping[str, Collection[str]]
    pairs: Collection[frozenset[str]] = ()

    def excludes(self, memory: MemoryOutline, action: str) -> bool:
        """Return whether this action was undone for a memory."""
        return memory.id in self.memories.get(action, ())


@dataclass(slots=True)
class Plan:
    """The memories that each step changes. Memories in `promoted_later` reach the threshold only by a merge.

    Those in `held_back` are not promoted: several users see them, and too few have recalled them. `entries_kept` is how
    many memories this store may keep if `max_entries` applies to several stores together, else None.
    """

    looked_at: int = 0
    held_back: list[MemoryOutline] = field(default_factory=list)
    expired: list[MemoryOutline] = field(default_factory=list)
    promoted: list[MemoryOutline] = field(default_factory=list)
    pruned: list[MemoryOutline] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)
    promoted_later: list[MemoryOutline] = field(default_factory=list)
    capped: list[MemoryOutline] = field(default_factory=list)
    entries_kept: int | None = None

    @property
    def counts(self) -> dict[str, int]:
        """The number of memories of each step."""
        return {
            "looked_at": self.looked_at,
            "expired": len(self.expired),
            LITTLE_KNOWN: len(self.held_back),
            "promoted": len(self.promoted) + len(self.promoted_later),
            "pruned": len(self.pruned),
            "merged": len(self.merges),
            "capped": len(self.capped),
        }

    @property
    def changes(self) -> list[tuple[str, int]]:
        """The action and the memory's row of each change, in the order of the steps; for a merge the duplicate."""
        steps = (
            (EXPIRE, [memory.row_id for memory in self.expired]),
            (PROMOTE, [memory.row_id for memory in (*self.promoted, *self.promoted_later)]),
            (PRUNE, [memory.row_id for memory in self.pruned]),
            (MERGE, [merge.duplicate for merge in self.merges]),
            (CAP, [memory.row_id for memory in self.capped]),
        )
        return [(action, row) for action, rows in steps for row in rows]


@dataclass(slots=True)
class Planner:
    """The current memories of an agent, by row, as the planned steps leave them. `now` is in microseconds.

    `little_known` returns the rows of memories that several users see and too few have recalled: they are held back.
    Each step returns the memories that it changes, as they were before.
    """

    rows: dict[int, MemoryOutline]
    now: int
    policy: CurationPolicy
    exclusions: Exclusions
    little_known: Callable[[Sequence[MemoryOutline]], Collection[int]]
    held_back: dict[int, MemoryOutline] = field(default_factory=dict)

    def expire(self) -> list[MemoryOutline]:
        """Remove expired memories."""
        return self._remove(m for m in self._open_to(EXPIRE) if has_expired(m, now=self.now))

    def prune(self) -> list[MemoryOutline]:
        """Remove decayed memories."""
        return self._remove(m for m in self._open_to(PRUNE) if is_prunable(m, now=self.now, policy=self.policy))

    def promote(self) -> list[MemoryOutline]:
        """Make often recalled memories long-term."""
        promotable = [m for m in self._open_to(PROMOTE) if is_promotable(m, now=self.now, policy=self.policy)]
        little_known = self.little_known(promotable)
        self.held_back |= {m.row_id: m for m in promotable if m.row_id in little_known}
        promoted = [m for m in promotable if m.row_id not in little_known]
        for memory in promoted:
            self.rows[memory.row_id] = replace(memory, lifetime="long_term")
        return promoted

    def cap(self) -> list[MemoryOutline]:
        """Remove the least relevant memories beyond the limits: first of each tier, then of all tiers together.

        In the account, an agent has these limits for each tenant.
        """
        capped: list[MemoryOutline] = []
        tenants: dict[str | None, list[MemoryOutline]] = {}
        for memory in self.rows.values():
            tenants.setdefault(memory.tenant, []).append(memory)
        for memories in tenants.values():
            for tier in TIERS:
                scope = [memory for memory in memories if memory.tier == tier]
                capped += self._remove_least_relevant(scope, self.policy.memories_per_scope)
            left = [memory for memory in memories if memory.row_id in self.rows]
            capped += self._remove_least_relevant(left, self.policy.max_entries)
        return capped

    def cappable(self, memories: Iterable[MemoryOutline]) -> list[MemoryOutline]:
        """Return the given memories that a limit may remove, the least relevant first."""
        removable = (m for m in memories if not m.protected and not self.exclusions.excludes(m, CAP))
        return sorted(removable, key=self.rank)

    def rank(self, memory: MemoryOutline) -> tuple[float, int, int]:
        """Return the order in which limits remove memories: by relevance, then by age."""
        return relevance(memory, now=self.now, rates=self.policy.rates), memory.created_at, memory.row_id

    def apply(self, plan: Plan) -> None:
        """Treat the changes of an earlier plan as made, for a dry run."""
        for action, row in plan.changes:
            memory = self.rows.pop(row, None)
            if memory is not None and action == PROMOTE:
                self.rows[row] = replace(memory, lifetime="long_term")

    def merge(self, merges: Sequence[Merge]) -> None:
        """Replace duplicates by their survivors."""
        for merge in merges:
            survivor, duplicate = self.rows[merge.survivor], self.rows.pop(merge.duplicate)
            self.rows[merge.survivor] = replace(survivor, **merged_fields(survivor, duplicate))

    def _open_to(self, action: str) -> list[MemoryOutline]:
        return [memory for memory in self.rows.values() if not self.exclusions.excludes(memory, action)]

    def _remove(self, memories: Iterable[MemoryOutline]) -> list[MemoryOutline]:
        removed = list(memories)
        for memory in removed:
            del self.rows[memory.row_id]
        return removed

    def _remove_least_relevant(self, memories: list[MemoryOutline], limit: int | None) -> list[MemoryOutline]:
        excess = 0 if limit is None else len(memories) - limit
        return self._remove(self.cappable(memories)[:excess]) if excess > 0 else []


def has_expired(memory: MemoryOutline, *, now: int) -> bool:
    """Return whether the expiry of a memory has passed."""
    return memory.expires_at is not None and memory.expires_at <= now


def merged_fields(survivor: MemoryOutline | MemoryRecord, duplicate: MemoryOutline | MemoryRecord) -> dict[str, Any]:
    """Return the fields of a memory that change when it replaces a duplicate."""
    expires_at = None  # never
    if survivor.expires_at is not None and duplicate.expires_at is not None:
        expires_at = max(survivor.expires_at, duplicate.expires_at)
    return {
        "importance": max(survivor.importance, duplicate.importance),
        "access_count": survivor.access_count + duplicate.access_count,
        "accessed_at": max(survivor.accessed_at, duplicate.accessed_at),
        "expires_at": expires_at,
        "lifetime": min(survivor.lifetime, duplicate.lifetime, key=LIFETIMES.index),  # the longest comes first
        "subject": survivor.subject or duplicate.subject,
    }


# A batch holds the write lock for about a tenth of a second.
BATCH: Final = 200
# The same limit as that of a message.
_MAX_TAGS: Final = 16

Item = TypeVar("Item")
# Returns why a memory in its current state should be changed; empty if it should not be any more.
Reason = Callable[[MemoryOutline], str]


def carry_out(run: JobRun, agent: str, policy: CurationPolicy, plan: Plan) -> None:
    """Carry out the steps of a plan, and count them. Stop when the time is up: the next run continues."""
    steps = _Steps(run, agent, policy)
    steps.remove("expired", EXPIRE, plan.expired, steps.reason_to_expire)
    steps.promote(plan.promoted)
    steps.remove("pruned", PRUNE, plan.pruned, steps.reason_to_prune)
    steps.merge(plan.merges)
    steps.promote(plan.promoted_later)
    steps.cap(plan.capped, plan.entries_kept)


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
        """Make the memories long-term that are still recalled often enough."""
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

    def cap(self, memories: Sequence[MemoryOutline], entries_kept: int | None) -> None:
        """Remove memories while there are too many, except those that have become more relevant or protected."""
        for batch in self._batches(memories):
            with self._run.writing() as tx:
                sweeps = self._sweeps(tx)
                planned = {memory.row_id: memory for memory in batch}
                current = self._current(sweeps, batch)
                removable = [memory for memory in current if self._is_removable(memory, planned[memory.row_id])]
                removals = list(self._excess(sweeps, removable, entries_kept))
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

    def _excess(
        self, sweeps: MemorySweeps, memories: Sequence[MemoryOutline], entries_kept: int | None
    ) -> Iterator[tuple[int, str]]:
        """Yield memories, each with a reason, until the limits are met."""
        max_per_tier, max_total = self._policy.memories_per_scope, self._policy.max_entries
        excess = {tier: sweeps.count(tier) - max_per_tier if max_per_tier is not None else 0 for tier in TIERS}
        kept = max_total if entries_kept is None else entries_kept
        total_excess = sweeps.count() - kept if kept is not None else 0
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


def has_users(stores: Stores, store: Store, agent: str) -> bool:
    """Return whether an agent has users in a store; for the account's store, whether it has any in a workspace.

    A workspace that cannot be read counts as one with users.
    """

    def in_workspace(name: str) -> bool:
        try:
            return _names_users(stores.workspace(name, create=False), agent)
        except ReverieError:
            return True

    return _names_users(store, agent) or (store.name == ACCOUNT_STORE and any(map(in_workspace, stores.names())))


def little_known(
    sweeps: MemorySweeps, memories: Sequence[MemoryOutline], *, min_users: int, min_days: int
) -> Collection[int]:
    """Return the rows of the memories that several users see and that too few have recalled, or on too few days.

    Named users other than the author count. With 0 for both minimums, no memory is held back.
    """
    if not memories or not (min_users or min_days):
        return ()
    return sweeps.little_known([memory.row_id for memory in memories], min_users=min_users, min_days=min_days)


def _names_users(store: Store, agent: str) -> bool:
    with store.reading() as tx:
        return tx.for_agent(agent).dreams.has_users()


# Comparing the memories of larger scopes takes seconds: 7 for 50,000 memories.
_LARGE_SCOPE: Final = 5_000


def consolidate(run: JobRun, policy: CurationPolicy, stores: Stores) -> dict[str, Plan]:
    """Consolidate the memories of every agent of a store, or only count the changes if the run is a dry run.

    Returns the plan for each agent.
    """
    plans: dict[str, Plan] = {}
    for agent in agents(run):
        has_none = not has_users(stores, run.store, agent)
        of_agent = replace(policy, shared_min_users=0, shared_min_days=0) if has_none else policy
        plans[agent] = plan_consolidation(run, agent, of_agent)
        count_or_carry_out(run, agent, of_agent, plans[agent])
    return plans


def plan_consolidation(run: JobRun, agent: str, policy: CurationPolicy) -> Plan:
    """Return what consolidation changes in an agent's memories at the time of the run."""
    planner = read_memories(run.store, agent, policy, now=run.now)
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
            stop=lambda: run.time_is_up,
        )
        planner.merge(merges)
        plan.merges += merges
    plan.promoted_later = planner.promote()
    plan.held_back = list(planner.held_back.values())
    plan.capped = planner.cap()
    return plan


def read_memories(store: Store, agent: str, policy: CurationPolicy, *, now: int) -> Planner:
    """Return a planner with the current memories of an agent, and the changes that a person has undone."""
    with store.reading() as tx:
        rows = {memory.row_id: memory for memory in MemorySweeps(tx.connection, agent).outlines()}
        exclusions = _exclusions(tx, agent)

    def held_back(memories: Sequence[MemoryOutline]) -> Collection[int]:
        with store.reading() as tx:
            sweeps = MemorySweeps(tx.connection, agent)
            return little_known(sweeps, memories, min_users=policy.shared_min_users, min_days=policy.shared_min_days)

    return Planner(rows, now, policy, exclusions, held_back)


def next_pruning(store: Store, policy: CurationPolicy) -> float:
    """Return when the next memory of a store expires or has decayed, in microseconds; infinity if none ever does."""
    next_at = math.inf
    with store.reading() as tx:
        for agent in tx.memories.agents():
            for memory in MemorySweeps(tx.connection, agent).outlines():
                if memory.expires_at is not None:
                    next_at = min(next_at, memory.expires_at)
                hours = hours_until_pruned(memory, policy=policy)
                next_at = min(next_at, memory.accessed_at + hours * HOUR_MICROS + 1)
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
        f"several users see it: needs recalls by {policy.shared_min_users} users besides its author,"
        f" on {policy.shared_min_days} days"
    )
    for memory in plan.held_back:
        run.plan(agent, "leave out", memory.id, why)


def _exclusions(tx: Transaction, agent: str) -> Exclusions:
    undone = {action: tx.curation.undone(action) for action in (EXPIRE, PROMOTE, PRUNE, CAP)}
    return Exclusions(
        memories={action: {memory for owner, memory in found if owner == agent} for action, found in undone.items()},
        pairs={pair for owner, pair in tx.curation.undone_together(MERGE) if owner == agent},
    )


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
