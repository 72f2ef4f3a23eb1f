"""Facts: one current value for each category and key of an agent; older values are kept as superseded.

A call may replace what a user wrote, a job may not. Facts belong to the workspace tier.
"""

from __future__ import annotations

from dataclasses import replace

from memory.conversion import convert
from memory.memories.agent_memories import AgentMemories, StoredMemory
from memory.memories.concept_tags import concept_tags
from memory.memories.memories import add_superseding, delete_permanently, to_memories, visibility_after_change
from reverie.clock import new_id, rfc3339
from reverie.errors import NotFound
from reverie.memories.calls import SetFact
from reverie.memories.types import Fact
from storage.memories.records import USER_SOURCE, MemoryFilter, MemoryRecord, NewMemory
from storage.transaction import AgentRepositories


def content_of_fact(category: str, key: str, value: str) -> str:
    """Return the sentence that states a fact: "The home city is Lisbon (profile)".

    Of ten ways to write sixteen facts, the default model found this one best when asked about them: mean reciprocal
    rank 0.92, against 0.89 for `profile: home_city = Lisbon` and 0.36 for the value alone.
    """
    return f"The {_readable(key)} is {value} ({_readable(category)})"


def set_fact(
    memories: AgentMemories, call: SetFact, *, now: int, trace: str = "", needs_approval: bool = False
) -> StoredMemory:
    """Set the value of a fact in one transaction. Idempotent: the same value again only refreshes the current fact.

    A different value supersedes the current one, which is kept. With `needs_approval`, a shared fact that is refreshed
    waits for an operator's approval again.
    """
    store = memories.store_for_tier("workspace")
    with store.writing_as(memories.agent) as rows:
        current = rows.memories.fact(call.category, call.key, owner=call.user)
        if current is not None and current.value == call.value:
            return StoredMemory(store, _refresh(rows, current, call, now, needs_approval))
        older = [current.row_id] if current is not None else []
        return StoredMemory(store, add_superseding(rows.memories, _new_fact(call, now, trace), older, now=now))


def read_fact(memories: AgentMemories, category: str, key: str, *, held_at: int | None = None) -> Fact:
    """Return the current fact, or the one that held at a time in microseconds. Raises `NotFound`."""
    with memories.reading_workspace() as rows:
        if rows is None:
            found = None
        elif held_at is None:
            found = rows.memories.seen_fact(category, key)
        else:
            held = rows.memories.page(_held(held_at, category=category, key=key), limit=2)
            found = next(iter(sorted(held, key=lambda fact: fact.owner_user_id is None)), None)
        if rows is None or found is None:
            raise _no_fact(memories, category, key, held_at)
        return _to_facts(memories, rows, [found], held_at=held_at)[0]


def list_facts(
    memories: AgentMemories, *, category: str | None, limit: int, offset: int, held_at: int | None = None
) -> list[Fact]:
    """Return current facts, or those that held at a time in microseconds, the newest first."""
    with memories.reading_workspace() as rows:
        if rows is None:
            return []
        conditions = MemoryFilter(category=category) if held_at is None else _held(held_at, category=category)
        found = rows.memories.page(replace(conditions, facts=True), limit=limit, offset=offset)
        return _to_facts(memories, rows, found, held_at=held_at)


def fact_history(memories: AgentMemories, category: str, key: str) -> list[Fact]:
    """Return every value that a fact has had, the last said first. Raises `NotFound` if it never had one."""
    with memories.reading_workspace() as rows:
        found = _all_values(rows, category, key) if rows is not None else []
    own = [record for record in found if record.owner_user_id is not None]
    found = own or found
    if not found:
        raise _no_fact(memories, category, key)
    found.sort(key=lambda fact: (fact.active, fact.valid_from, fact.row_id), reverse=True)
    return [convert(record, Fact) for record in found]


def _to_facts(
    memories: AgentMemories, rows: AgentRepositories, records: list[MemoryRecord], *, held_at: int | None
) -> list[Fact]:
    """Return facts as the client sees them, with what is to be reviewed about them now; for an earlier time without."""
    if held_at is not None:
        return [convert(record, Fact) for record in records]
    shown = to_memories(rows, records, now=memories.now, trust=memories.trust)
    return [convert(record, Fact, review=one.review) for record, one in zip(records, shown, strict=True)]


def forget_fact(memories: AgentMemories, category: str, key: str) -> bool:
    """Permanently delete a fact with every value that it has had; False if there was none."""
    with memories.writing_workspace() as workspace:
        if workspace is None:
            return False
        _, rows = workspace
        user = memories.viewer.user if memories.viewer is not None else None
        values = [value for value in _all_values(rows, category, key) if user in (None, value.owner_user_id)]
        delete_permanently(memories, rows, values)
    return bool(values)


def _refresh(
    rows: AgentRepositories, fact: MemoryRecord, call: SetFact, now: int, needs_approval: bool
) -> MemoryRecord:
    """Update a fact whose value stays the same; a fact that a user wrote keeps `user` as its source."""
    rows.memories.change(
        fact.row_id,
        now=now,
        source=USER_SOURCE if fact.user_written else call.source,
        importance=call.importance,
        confidence=call.confidence,
        tags=call.tags,
        visibility=visibility_after_change(fact) if needs_approval else fact.visibility,
    )
    return rows.memories.get(fact.id)


def _new_fact(call: SetFact, now: int, trace: str) -> NewMemory:
    content = content_of_fact(call.category, call.key, call.value)
    return convert(
        call,
        NewMemory,
        id=new_id(),
        content=content,
        created_at=now,
        owner_user_id=call.user,
        lifetime="long_term",
        kind="fact",
        made_by="set-fact",
        concept_tags=concept_tags(content),
        trace=trace,
    )


def _all_values(rows: AgentRepositories, category: str, key: str) -> list[MemoryRecord]:
    return list(rows.memories.iterate(MemoryFilter(category=category, key=key, active=None)))


def _held(at: int, *, category: str | None, key: str | None = None) -> MemoryFilter:
    return MemoryFilter(category=category, key=key, active=None, held_at=at, unexpired_at=at)


def _no_fact(memories: AgentMemories, category: str, key: str, held_at: int | None = None) -> NotFound:
    at = "" if held_at is None else f" as of {rfc3339(held_at)}"
    return NotFound(f"agent {memories.agent} has no fact {category}/{key}{at}", field="key")


def _readable(name: str) -> str:
    """Return a key as words: `home_city` is "home city"."""
    return " ".join(name.replace("_", " ").replace(".", " ").split()) or name
