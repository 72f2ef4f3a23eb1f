"""Memories by hand: remembered, read, changed and forgotten by an agent or a person, in both of its stores (M1 to M7).

What a memory says is indexed by the pipeline afterwards; callers of these functions notify it. An explicit call may
change what a person wrote; jobs may not.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from memory.memories.agent_memories import AgentMemories, StoredMemory
from memory.memories.concept_tags import concept_tags
from reverie.clock import from_micros, to_micros
from reverie.contract import DEFAULT_CHANNEL
from reverie.errors import Conflict, Rejected
from reverie.memories.checks import check_account_kind, check_place
from reverie.memories.types import Memory, MemoryChanges, MemoryDraft, MemoryStats
from storage.memories.counts import MemoryCounts, count_memories
from storage.memories.records import MemoryFilter, MemoryRecord, NewMemory
from storage.transaction import AgentRepositories


def remember(memories: AgentMemories, draft: MemoryDraft, *, now: int, trace: str = "") -> StoredMemory:
    """Store a checked draft; one whose id is there already changes nothing, so that it may be sent again.

    A session that does not exist yet is made. With a `subject`, older ones of the same subject, tier and owner are
    superseded. Raises `Conflict` for an id that stands for something else, and `Rejected`.
    """
    assert draft.id is not None
    known = memories.find(draft.id)
    if known is not None:
        return StoredMemory(known.store, _the_same(known.record, draft))
    store = memories.store_for_tier(draft.tier)
    with store.writing() as tx:
        rows = tx.for_agent(memories.agent)
        stored = rows.memories.find(draft.id)
        if stored is not None:
            return StoredMemory(store, _the_same(stored, draft))
        channel = _channel(rows, draft, now)
        added = rows.memories.add(_new(draft, channel, now, trace), now=now)
        _supersede_subject(rows, added, now)
        return StoredMemory(store, added)


def read_memory(memories: AgentMemories, memory_id: str) -> Memory:
    """One memory, superseded or not. Raises `NotFound`."""
    return to_memory(memories.get(memory_id).record)


def read_memories(memories: AgentMemories, memory_ids: list[str]) -> list[Memory]:
    """Those of these memories that stand, in this order."""
    found: dict[str, MemoryRecord] = {}
    for store in memories.existing_stores():
        with store.reading() as tx:
            found = tx.for_agent(memories.agent).memories.with_ids(memory_ids) | found  # the workspace's speak first
    return [to_memory(found[name]) for name in memory_ids if name in found and found[name].active]


def list_memories(memories: AgentMemories, wanted: MemoryFilter, *, limit: int, offset: int) -> list[Memory]:
    """Memories of both stores, the newest first over both."""
    return [to_memory(record) for record in page_of_records(memories, wanted, limit=limit, offset=offset)]


def page_of_records(memories: AgentMemories, wanted: MemoryFilter, *, limit: int, offset: int) -> list[MemoryRecord]:
    """A page over both stores. One alone is asked for its page; of two, the first `offset + limit` of each are read."""
    holding = []
    for store in memories.existing_stores():
        with store.reading() as tx:
            if tx.for_agent(memories.agent).memories.count(wanted):
                holding.append(store)
    alone = len(holding) < 2
    found: list[MemoryRecord] = []
    for store in holding:
        with store.reading() as tx:
            found += tx.for_agent(memories.agent).memories.page(
                wanted, limit=limit if alone else offset + limit, offset=offset if alone else 0
            )
    found.sort(key=lambda record: -record.created_at)
    return found if alone else found[offset : offset + limit]


def update_memory(memories: AgentMemories, memory_id: str, changes: MemoryChanges, *, now: int) -> StoredMemory:
    """Change a memory in one transaction. Changed content is indexed anew, and its concept tags are derived anew.

    Raises `NotFound`, `Conflict` for one that was superseded, and `Rejected` for what its tier, its kind or its
    being a fact does not allow: between the account and a workspace lies another database.
    """
    with memories.changing(memory_id) as (store, rows, record):
        if not record.active:
            raise Conflict(f"memory {memory_id} was replaced by {record.superseded_by}: change that one", field="id")
        _check_allowed(record, changes)
        after = _after(record, changes)
        columns: dict[str, Any] = {"lifetime": check_place(after), "pinned": after.pinned}
        if changes.tier is not UNSET or changes.channel is not UNSET:
            columns |= {"tier": after.tier, "channel": _channel(rows, after, now)}
        columns |= _plain_columns(changes)
        # Chunks of a conversation's memory lie in its session: with the tier, their place changes.
        moved = (after.tier == "conversation") != (record.tier == "conversation")
        if after.content != record.content:
            columns["concept_tags"] = concept_tags(after.content)
        rows.memories.change(record.row_id, now=now, **columns)
        if after.content != record.content or moved:
            rows.memories.rewrite(record.row_id, after.content, now=now)
        return StoredMemory(store, rows.memories.get(memory_id))


def forget(memories: AgentMemories, memory_id: str) -> bool:
    """Delete a memory for good, with its chunks, its vectors, what it had replaced, and all that curation logged of
    these; False when there was none, nor one that a job has removed."""
    stored = memories.find(memory_id)
    if stored is None:
        return memories.forget_removed(memory_id)
    with stored.store.writing() as tx:
        rows = tx.for_agent(memories.agent)
        record = rows.memories.find(memory_id)
        if record is None:
            return False
        delete_for_good(rows, [record])
    return True


def delete_for_good(rows: AgentRepositories, records: list[MemoryRecord]) -> None:
    """Delete memories, what they had replaced, and every entry of the curation log that could bring them back."""
    row_ids = [record.row_id for record in records]
    rows.curation.forget_memories(rows.agent, rows.memories.ids_with_superseded(row_ids))
    rows.memories.delete(row_ids)


def memory_stats(memories: AgentMemories) -> MemoryStats:
    """How many memories there are in both stores, and of what."""
    total = MemoryCounts()
    for store in memories.existing_stores():
        with store.reading() as tx:
            total.add(count_memories(tx.connection, memories.agent))
    return MemoryStats(
        memories=total.memories,
        by_tier=dict(sorted(total.by["tier"].items())),
        by_lifetime=dict(sorted(total.by["lifetime"].items())),
        by_kind=dict(sorted(total.by["kind"].items())),
        by_source=dict(sorted(total.by["source"].items())),
        facts=total.facts,
        notes=total.notes,
        superseded=total.superseded,
        promoted=total.promoted,
        oldest=None if total.oldest is None else from_micros(total.oldest),
        newest=None if total.newest is None else from_micros(total.newest),
    )


def to_memory(record: MemoryRecord) -> Memory:
    """A stored memory as the client sees it."""
    return Memory(
        id=record.id,
        agent=record.agent,
        tier=record.tier,
        lifetime=record.lifetime,
        kind=record.kind,
        source=record.source,
        content=record.content,
        importance=record.importance,
        access_count=record.access_count,
        created_at=from_micros(record.created_at),
        updated_at=from_micros(record.updated_at),
        accessed_at=from_micros(record.accessed_at),
        expires_at=None if record.expires_at is None else from_micros(record.expires_at),
        owner_user_id=record.owner_user_id,
        tags=list(record.tags),
        concept_tags=list(record.concept_tags),
        session=record.session,
        source_message=record.source_message,
        channel=record.channel,
        note_id=record.note_id,
        category=record.category,
        key=record.key,
        value=record.value,
        subject=record.subject,
        confidence=record.confidence,
        pinned=record.pinned,
        metadata=dict(record.metadata),
        superseded_by=record.superseded_by,
    )


def _the_same(record: MemoryRecord, draft: MemoryDraft) -> MemoryRecord:
    if record.content != draft.content:
        raise Conflict(f"there is another memory with the id {record.id}: update that, or choose an id", field="id")
    return record


def _new(draft: MemoryDraft, channel: str | None, now: int, trace: str) -> NewMemory:
    assert draft.id is not None
    assert draft.lifetime is not None
    return NewMemory(
        id=draft.id,
        content=draft.content,
        created_at=now,
        tier=draft.tier,
        lifetime=draft.lifetime,
        kind=draft.kind,
        source=draft.source,
        importance=draft.importance,
        expires_at=None if draft.expires_at is None else to_micros(draft.expires_at),
        owner_user_id=draft.owner_user_id,
        tags=tuple(draft.tags),
        concept_tags=concept_tags(draft.content),
        metadata=draft.metadata,
        session=draft.session,
        source_message=draft.source_message,
        channel=channel,
        subject=draft.subject,
        confidence=draft.confidence,
        pinned=draft.pinned,
        trace=trace,
    )


def _channel(rows: AgentRepositories, draft: MemoryDraft, now: int) -> str | None:
    """The channel of a memory: its own, or for the channel tier that of its session, which is made where it is new.

    A session without a channel lies in the default one. Raises `Conflict` where the conversation is over.
    """
    if draft.session is None:
        return draft.channel
    session = rows.sessions.find(draft.session) or rows.sessions.ensure(draft.session, now=now, channel=draft.channel)
    if draft.tier == "conversation":
        if session.status == "archived":
            raise Conflict(
                f"session {session.id!r} is archived: choose a wider tier than conversation", field="session"
            )
        # It is cleared with the session's next end: so the session has to be going on.
        rows.sessions.touch(session.row_id, now=now, last_sequence=session.last_sequence)
    if draft.tier != "channel":
        return draft.channel
    return draft.channel or session.channel or DEFAULT_CHANNEL


def _supersede_subject(rows: AgentRepositories, newest: MemoryRecord, now: int) -> None:
    """Have a memory take the place of what was known of its subject before."""
    if newest.subject is None:
        return
    wanted = MemoryFilter(subject=newest.subject, tiers=(newest.tier,), facts=False, notes=False)
    for older in list(rows.memories.iterate(wanted)):
        if older.row_id != newest.row_id and older.owner_user_id == newest.owner_user_id:
            rows.memories.supersede(older.row_id, by=newest.row_id, now=now)


def _check_allowed(record: MemoryRecord, changes: MemoryChanges) -> None:
    given = [name for name in ("content", "kind", "tier") if getattr(changes, name) is not UNSET]
    if record.category is not None and given:
        raise Rejected(
            f"memory {record.id} is the fact {record.category}/{record.key}: set its value there", field=given[0]
        )
    if record.note_id is not None and given not in ([], ["content"]):
        raise Rejected(f"memory {record.id} is a note, which has one kind and one tier", field=given[-1])
    tier = changes.tier if changes.tier is not UNSET else record.tier
    if (tier == "account") != (record.tier == "account"):
        raise Rejected(
            f"memory {record.id} lies in the {record.tier} tier, another database than {tier}: "
            f"remember it anew with tier {tier}, then forget this one",
            field="tier",
        )
    if tier == "account" and changes.kind is not UNSET:
        check_account_kind(changes.kind)


def _after(record: MemoryRecord, changes: MemoryChanges) -> MemoryDraft:
    """The memory as it will be, as far as its place and its lifetime go."""
    tier = changes.tier if changes.tier is not UNSET else record.tier
    pinned = changes.pinned if changes.pinned is not UNSET else record.pinned
    if changes.lifetime is not UNSET:
        lifetime = changes.lifetime
    elif (tier == "conversation") != (record.tier == "conversation") or (pinned and not record.pinned):
        lifetime = None  # the tier, or the pin, decides
    else:
        lifetime = record.lifetime
    return MemoryDraft(
        content=changes.content if changes.content is not UNSET else record.content,
        tier=tier,
        lifetime=lifetime,
        kind=changes.kind if changes.kind is not UNSET else record.kind,
        source=record.source,
        session=record.session,
        channel=changes.channel if changes.channel is not UNSET else record.channel,
        pinned=pinned,
    )


def _plain_columns(changes: MemoryChanges) -> dict[str, Any]:
    """What is set as it is given."""
    columns: dict[str, Any] = {
        name: value
        for name in ("kind", "importance", "tags", "metadata")
        if (value := getattr(changes, name)) is not UNSET
    }
    if changes.expires_at is not UNSET:
        columns["expires_at"] = None if changes.expires_at is None else to_micros(changes.expires_at)
    return columns
