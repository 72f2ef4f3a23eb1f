"""Finds doubtful memories: by a later change that they depend on, the end of their time, or a long silence.

The review lists such memories, and the files of the notebook mark them. The doubt is computed when memories are read
and never stored, so it disappears with its cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from reverie.clock import DAY_MICROS, from_micros
from reverie.inert import inert_line
from reverie.memories.types import LaterChange, changed_text
from storage.memories.records import UNCONFIRMED_DAYS, MemoryRecord
from storage.recall.chunk_sources import Replacement
from storage.recall.dependence import Change, changes_of, newest_change
from storage.recall.plans import passed_day
from storage.transaction import AgentRepositories

# Enough for one review. If there are more memories, only those stored last are read.
_MAX_READ = 2_000


def later_changes(rows: AgentRepositories, memories: Iterable[MemoryRecord]) -> dict[str, LaterChange]:
    """Return the change that makes each of these memories doubtful, by their ids; none for the others."""
    return _doubted(memories, _changes_by_owner(rows))


def depending_on_changes(rows: AgentRepositories) -> list[tuple[MemoryRecord, LaterChange]]:
    """Return the current memories that depend on a later change, each with that change."""
    changes = _changes_by_owner(rows)
    newest = max((one.at for several in changes.values() for one, _ in several), default=None)
    if newest is None:
        return []
    memories = rows.memories.states_before(newest, owners=list(changes), limit=_MAX_READ)
    doubted = _doubted(memories, changes)
    return [(memory, doubted[memory.id]) for memory in memories if memory.id in doubted]


def past_their_day(rows: AgentRepositories, *, now: int) -> list[MemoryRecord]:
    """Return the current memories of plans whose day has passed and that nobody has confirmed since, newest first."""
    memories = rows.memories.unconfirmed(orders_only=False, limit=_MAX_READ)
    return [one for one in memories if passed_day(one.content, one.created_at, now=now) is not None]


def doubt(memory: MemoryRecord, change: LaterChange | None, *, now: int) -> str:
    """Return why a memory may no longer hold, in a few words; empty if there is no reason."""
    if change is not None:
        return changed_text(change, clean=inert_line)
    if memory.expires_at is not None and memory.expires_at <= now:
        return "its time is over"
    if (day := passed_day(memory.content, memory.created_at, now=now)) is not None:
        return changed_text(LaterChange(id="", text="", at=day))
    said_at, days = memory.confirmed_at or memory.created_at, UNCONFIRMED_DAYS.get(memory.kind)
    if days is not None and said_at < now - days * DAY_MICROS:
        return f"not said again since {from_micros(said_at):%B %Y}"
    return ""


def _changes_by_owner(rows: AgentRepositories) -> dict[str, list[tuple[Replacement, Change]]]:
    found = defaultdict(list)
    for one in changes_of(rows.past_memories.newest_replacements()):
        found[one[0].owner].append(one)
    return found


def _doubted(
    memories: Iterable[MemoryRecord], changes: dict[str, list[tuple[Replacement, Change]]]
) -> dict[str, LaterChange]:
    found = {}
    for memory in memories:
        said_at = max(memory.created_at, memory.confirmed_at or 0)
        of_owner: Collection[tuple[Replacement, Change]] = changes.get(memory.owner_user_id or "", ())
        others = [one for one in of_owner if one[0].id != memory.id]
        if (newest := newest_change(memory.content, said_at, others)) is not None:
            found[memory.id] = newest
    return found
