"""Facts: one value for each category and key of an agent; the newest stands, older ones are stored behind it (M9).

An explicit call may replace what a person said, a job may not. Facts lie in the workspace tier.
"""

from __future__ import annotations

from memory.memories.agent_memories import AgentMemories, StoredMemory
from memory.memories.concept_tags import concept_tags
from memory.memories.memories import delete_for_good
from reverie.clock import from_micros, new_id
from reverie.errors import NotFound
from reverie.memories.types import Fact, FactDraft
from storage.memories.records import USER_SOURCE, MemoryFilter, MemoryRecord, NewMemory
from storage.stores import Store
from storage.transaction import AgentRepositories


def content_of_fact(category: str, key: str, value: str) -> str:
    """What a fact says: "The home city is Lisbon (profile)".

    Of ten ways of writing sixteen facts, the default model found this one best by questions about them: mean
    reciprocal rank 0.92, `profile: home_city = Lisbon` 0.89, the value alone 0.36.
    """
    return f"The {_spoken(key)} is {value} ({_spoken(category)})"


def set_fact(
    memories: AgentMemories, category: str, key: str, draft: FactDraft, *, now: int, trace: str = ""
) -> StoredMemory:
    """Say what a fact is, in one transaction. The same value again is no new fact: it refreshes the one that stands.

    What stood before is stored as superseded by the new one. Set twice, it is set once.
    """
    store = memories.store_for_tier("workspace")
    with store.writing() as tx:
        rows = tx.for_agent(memories.agent)
        stands = rows.memories.fact(category, key)
        if stands is not None and stands.value == draft.value:
            return StoredMemory(store, _refresh(rows, stands, draft, now))
        if stands is not None:
            # By itself, for a moment: only one may stand.
            rows.memories.supersede(stands.row_id, by=stands.row_id, now=now)
        added = rows.memories.add(_new(category, key, draft, now, trace), now=now)
        if stands is not None:
            rows.memories.supersede(stands.row_id, by=added.row_id, now=now)
        return StoredMemory(store, added)


def read_fact(memories: AgentMemories, category: str, key: str) -> Fact:
    """The fact that stands. Raises `NotFound`."""
    store = memories.workspace_store()
    found = None if store is None else _standing(store, memories.agent, category, key)
    if found is None:
        raise NotFound(f"agent {memories.agent} has no fact {category}/{key}", field="key")
    return to_fact(found)


def list_facts(memories: AgentMemories, *, category: str | None, limit: int, offset: int) -> list[Fact]:
    """Facts that stand, the newest first."""
    store = memories.workspace_store()
    if store is None:
        return []
    with store.reading() as tx:
        wanted = MemoryFilter(facts=True, category=category)
        found = tx.for_agent(memories.agent).memories.page(wanted, limit=limit, offset=offset)
    return [to_fact(record) for record in found]


def fact_history(memories: AgentMemories, category: str, key: str) -> list[Fact]:
    """Every value that a fact had, the newest first. Raises `NotFound` where there was never one."""
    store = memories.workspace_store()
    found = [] if store is None else _values(store, memories.agent, category, key)
    if not found:
        raise NotFound(f"agent {memories.agent} has no fact {category}/{key}", field="key")
    return [to_fact(record) for record in sorted(found, key=lambda record: -record.row_id)]


def forget_fact(memories: AgentMemories, category: str, key: str) -> bool:
    """Delete a fact for good with every value that it had; False when there was none."""
    store = memories.workspace_store()
    if store is None:
        return False
    with store.writing() as tx:
        rows = tx.for_agent(memories.agent)
        every = list(rows.memories.iterate(_every_value(category, key)))
        delete_for_good(rows, every)
    return bool(every)


def to_fact(record: MemoryRecord) -> Fact:
    """A stored fact as the client sees it."""
    return Fact(
        category=record.category or "",
        key=record.key or "",
        value=record.value or "",
        id=record.id,
        source=record.source,
        created_at=from_micros(record.created_at),
        updated_at=from_micros(record.updated_at),
        importance=record.importance,
        confidence=record.confidence,
        tags=list(record.tags),
        superseded_at=None if record.superseded_at is None else from_micros(record.superseded_at),
    )


def _refresh(rows: AgentRepositories, fact: MemoryRecord, draft: FactDraft, now: int) -> MemoryRecord:
    """Say again what a fact is: what was said by a person stays theirs."""
    rows.memories.change(
        fact.row_id,
        now=now,
        source=USER_SOURCE if fact.user_written else draft.source,
        importance=draft.importance,
        confidence=draft.confidence,
        tags=draft.tags,
    )
    return rows.memories.get(fact.id)


def _new(category: str, key: str, draft: FactDraft, now: int, trace: str) -> NewMemory:
    content = content_of_fact(category, key, draft.value)
    return NewMemory(
        id=new_id(),
        content=content,
        created_at=now,
        lifetime="long_term",
        kind="fact",
        source=draft.source,
        importance=draft.importance,
        tags=tuple(draft.tags),
        concept_tags=concept_tags(content),
        category=category,
        key=key,
        value=draft.value,
        confidence=draft.confidence,
        trace=trace,
    )


def _standing(store: Store, agent: str, category: str, key: str) -> MemoryRecord | None:
    with store.reading() as tx:
        return tx.for_agent(agent).memories.fact(category, key)


def _values(store: Store, agent: str, category: str, key: str) -> list[MemoryRecord]:
    with store.reading() as tx:
        return list(tx.for_agent(agent).memories.iterate(_every_value(category, key)))


def _every_value(category: str, key: str) -> MemoryFilter:
    return MemoryFilter(category=category, key=key, active=None)


def _spoken(name: str) -> str:
    """A key as it would be said: `home_city` is "home city"."""
    return " ".join(name.replace("_", " ").replace(".", " ").split()) or name
