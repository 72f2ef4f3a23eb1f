"""Finds memories that wait, or that are doubtful: by a later change that they depend on, or by a long silence.

The review lists such memories, and every list and file that shows them has the remark. It is computed when memories
are read and never stored, so it disappears with its cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from reverie.clock import DAY_MICROS, from_micros
from reverie.inert import inert_line
from reverie.memories.types import LaterChange, Provenance, changed_text
from storage.memories.records import UNCONFIRMED_DAYS, MemoryRecord
from storage.memories.trust import TrustPolicy, orders_without_right
from storage.recall.chunk_sources import Replacement
from storage.recall.days import passed_day
from storage.recall.dependence import Change, changes_of, newest_change
from storage.transaction import AgentRepositories

# Enough for one review. If there are more memories, only those stored last are read.
_MAX_READ = 2_000


def later_changes(rows: AgentRepositories, memories: Sequence[MemoryRecord]) -> dict[str, LaterChange]:
    """Return the change that makes each of these memories doubtful, by their ids; none for the others."""
    # One query for each owner, because only that has an index: a page of a long list must not read all of it.
    owners = dict.fromkeys(memory.owner_user_id or "" for memory in memories)
    return _doubted(memories, {owner: changes_of(rows.past_memories.replacements(owner)) for owner in owners})


def depending_on_changes(rows: AgentRepositories) -> list[MemoryRecord]:
    """Return the current memories that depend on a later change."""
    changes = defaultdict(list)
    for one in changes_of(rows.past_memories.newest_replacements()):
        changes[one[0].owner].append(one)
    newest = max((one.at for several in changes.values() for one, _ in several), default=None)
    if newest is None:
        return []
    memories = rows.memories.states_before(newest, owners=list(changes), limit=_MAX_READ)
    doubted = _doubted(memories, changes)
    return [memory for memory in memories if memory.id in doubted]


def past_their_day(rows: AgentRepositories, *, now: int) -> list[MemoryRecord]:
    """Return the current memories of plans whose day has passed and that nobody has confirmed since, newest first."""
    memories = rows.memories.unconfirmed(orders_only=False, limit=_MAX_READ)
    return [one for one in memories if passed_day(one.content, one.created_at, now=now) is not None]


def remarks(
    rows: AgentRepositories,
    memories: Sequence[MemoryRecord],
    provenances: Mapping[str, Provenance],
    *,
    now: int,
    trust: TrustPolicy,
) -> dict[str, str]:
    """Return why current ones of these memories are told to nobody yet, or may not hold, in a few words, by their ids.

    Memories that simply hold, and those that were replaced, have no remark.
    """
    current = [memory for memory in memories if memory.active]
    changes = later_changes(rows, current)
    others = rows.memories.contradicting([memory.id for memory in current])

    def remark(memory: MemoryRecord) -> str:
        if memory.visibility == "requested":
            return "waits for approval" if memory.waits else "waits for approval to be shared"
        if why := held_back(memory, provenances.get(memory.id), trust):
            return why
        if memory.id in others:
            return f"memory {others[memory.id]} says something else"
        return _doubt(memory, changes.get(memory.id), now=now)

    return {memory.id: why for memory in current if (why := remark(memory))}


def held_back(memory: MemoryRecord, provenance: Provenance | None, trust: TrustPolicy) -> str:
    """Return why the trust of its source keeps a memory out of contexts; empty if they may have it."""
    if provenance is None:
        return ""
    if not trust.tells(provenance.trust):
        return f"not told: the word of {provenance.trust}"
    needs_confirmation = orders_without_right(memory) or not trust.tells(provenance.trust, confirmed=False)
    if memory.confirmed_at is None and needs_confirmation:
        return f"not told before it is confirmed: the word of {provenance.trust}"
    return ""


def _doubt(memory: MemoryRecord, change: LaterChange | None, *, now: int) -> str:
    """Return why a memory may no longer hold, in a few words; empty if there is no reason."""
    if change is not None:
        return changed_text(change, clean=inert_line)
    if memory.expires_at is not None and memory.expires_at <= now:
        return "its time is over"
    day = passed_day(memory.content, memory.created_at, now=now) if memory.confirmed_at is None else None
    if day is not None:
        return changed_text(LaterChange(id="", text="", at=day))
    said_at, days = memory.confirmed_at or memory.created_at, UNCONFIRMED_DAYS.get(memory.kind)
    if days is not None and said_at < now - days * DAY_MICROS:
        return f"not said again since {from_micros(said_at):%B %Y}"
    return ""


def _doubted(
    memories: Iterable[MemoryRecord], changes: dict[str, list[tuple[Replacement, Change]]]
) -> dict[str, LaterChange]:
    found = {}
    for memory in memories:
        if memory.kind == "instruction":  # it ends when it is taken back: "answer in German when I ask about tax"
            continue
        said_at = max(memory.created_at, memory.confirmed_at or 0)
        of_owner: Collection[tuple[Replacement, Change]] = changes.get(memory.owner_user_id or "", ())
        others = [one for one in of_owner if one[0].id != memory.id]
        if (newest := newest_change(memory.content, said_at, others)) is not None:
            found[memory.id] = newest
    return found
