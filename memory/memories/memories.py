"""Memories that an agent or a person manages by explicit calls: remember, read, change and forget, in both stores.

The pipeline indexes the content afterwards; the caller of these functions notifies it. An explicit call may change what
a user wrote; jobs may not.

Of the memories of one subject or fact, the one that was said last is current. A message may arrive late, or a
conversation be imported long after it took place. Its memory must not replace one that was said later: it becomes
history, between the earlier and the later memories.

An import adds what is missing: an existing id, note or fact stays as it is. So an import is idempotent, and one that
was interrupted continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from memory.conversion import convert, set_fields
from memory.doubts import remarks
from memory.memories.agent_memories import AgentMemories, StoredMemory
from memory.memories.concept_tags import concept_tags
from memory.memories.patterns.instruction_sentences import subject_of
from memory.paging import newest_page
from reverie.clock import from_micros, to_micros
from reverie.contract import DEFAULT_CHANNEL, job_name
from reverie.errors import Conflict, NotFound, Rejected
from reverie.memories.calls import ListMemories, check_account_kind, check_place
from reverie.memories.types import (
    JobChange,
    Memory,
    MemoryChanges,
    MemoryDraft,
    MemoryExport,
    MemoryStats,
)
from storage.curation import CurationFilter, EntryDraft
from storage.memories.instructions import READ_CHARACTERS
from storage.memories.memories import Memories, MemoryCounts, count_memories
from storage.memories.records import EXTRACTION_SOURCE, MemoryFilter, MemoryRecord, NewMemory, Visibility, is_standing
from storage.memories.trust import TrustPolicy
from storage.stores import Store
from storage.transaction import AgentRepositories
from storage.viewer import Viewer

# More changes are not shown: `reverie curation` lists them all.
_MAX_CHANGES: Final = 20


def to_memories(
    rows: AgentRepositories, records: Sequence[MemoryRecord], *, now: int, trust: TrustPolicy
) -> list[Memory]:
    """Return stored memories as the client sees them, with their provenance and what is to be reviewed about them."""
    found = rows.provenances.of([record.id for record in records])
    why = remarks(rows, records, found, now=now, trust=trust)
    return [
        convert(record, Memory, provenance=found.get(record.id), review=why.get(record.id, "")) for record in records
    ]


def to_whole_memory(rows: AgentRepositories, record: MemoryRecord, *, now: int, trust: TrustPolicy) -> Memory:
    """Return a stored memory with its provenance and the changes that jobs made to it, newest first."""
    (memory,) = to_memories(rows, [record], now=now, trust=trust)
    if memory.provenance is None:
        return memory
    entries = rows.curation.page(CurationFilter(memory=record.id, undone=False), limit=_MAX_CHANGES)
    changes = [JobChange(job=job_name(entry.job), action=entry.action, at=from_micros(entry.at)) for entry in entries]
    return replace(memory, provenance=replace(memory.provenance, changes=changes))


def add_superseding(stored: Memories, memory: NewMemory, older_rows: Sequence[int], *, now: int) -> MemoryRecord:
    """Store a memory that supersedes the memories of these rows, within the caller's transaction."""
    # Only one row may be the current fact of a category and key: the older ones first supersede themselves.
    for row_id in older_rows:
        stored.supersede(row_id, by=row_id, now=now)
    added = stored.add(memory, now=now)
    for row_id in older_rows:
        stored.supersede(row_id, by=added.row_id, now=now)
    return added


def add_in_history(
    stored: Memories, memory: NewMemory, older_rows: Sequence[int], newer_rows: Sequence[int], *, now: int
) -> MemoryRecord:
    """Store a memory that was said after the memories `older_rows` and before `newer_rows`, all of which are current.

    It supersedes the older memories, and every memory that the newer ones have replaced and that was said before it. It
    is superseded by the first memory that was said after it. Without `newer_rows` it is current.
    """
    if not newer_rows:
        return add_superseding(stored, memory, older_rows, now=now)
    chain = stored.with_all_superseded(newer_rows)
    successor = next(one for one in chain if one.created_at > memory.created_at)
    added = stored.add(memory, now=now, superseded_by=successor.row_id)
    before = [one for one in chain if one.superseded_by == successor.id and one.created_at <= memory.created_at]
    stored.move_superseded([one.row_id for one in before], to=added.row_id)
    for row_id in older_rows:
        stored.supersede(row_id, by=added.row_id, now=now)
    return added


# Fields with rules of their own: a change of one of these has consequences for other fields or rows.
_RULED_FIELDS: Final = frozenset({"content", "tier", "lifetime", "channel", "pinned"})
# The action of an approval in the curation log.
APPROVE: Final = "approve"
_PENDING: Final = MemoryFilter(visibility="requested")
# Fields of the call that say which memory is changed and by whom. They are not changes.
_NO_CHANGES: Final = frozenset({"id", "user"})


_Draft = TypeVar("_Draft", bound=MemoryDraft)


def remember(memories: AgentMemories, draft: MemoryDraft, *, now: int, trace: str = "") -> StoredMemory:
    """Store a checked draft. Idempotent: a draft whose id is already stored with this content changes nothing.

    Creates the session if it does not exist. It is dated to its source message, if it has one, or else to `now`. With a
    `subject`, memories of the same subject, tier and owner that were said before are superseded; if one was said after
    it, it becomes history. Raises `Conflict` for an id that belongs to another memory, and `Rejected`.
    """
    assert draft.id is not None
    existing = memories.find(draft.id)
    if existing is not None:
        return StoredMemory(existing.store, _check_same(existing.record, draft))
    store, said_at = memories.store_for_tier(draft.tier), _said_at(memories, draft, now)
    with store.writing_as(memories.agent) as rows:
        stored = rows.memories.find(draft.id)
        if stored is not None:
            return StoredMemory(store, _check_same(stored, draft))
        new = convert(
            draft,
            NewMemory,
            created_at=said_at,
            subject=_subject(draft),
            concept_tags=concept_tags(draft.content),
            channel=_channel(rows, draft, now),
            trace=trace,
            tenant=memories.stored_tenant if draft.tier == "account" else None,
            made_by="remember",
        )
        added = _add_to_subject(rows.memories, new, now)
        if said_at < now:  # it must not decay from the message's day
            rows.memories.change(added.row_id, now=now, accessed_at=now)
        return StoredMemory(store, rows.memories.get(added.id))


def owned(draft: _Draft, viewer: Viewer | None) -> _Draft:
    """Return a draft with its owner: the user that the call names, else that of its session."""
    return replace(draft, owner_user_id=draft.owner_user_id or (viewer.user if viewer is not None else None))


def read_memory(memories: AgentMemories, memory_id: str) -> Memory:
    """Return one memory, current or superseded. Raises `NotFound`."""
    stored = memories.get(memory_id)
    with stored.store.reading() as tx:
        return to_whole_memory(tx.for_agent(memories.agent), stored.record, now=memories.now, trust=memories.trust)


def read_memories(memories: AgentMemories, memory_ids: list[str], *, superseded: bool = False) -> list[Memory]:
    """Return the current ones of these memories, or with `superseded` all of them, in the order of the ids."""
    found: dict[str, Memory] = {}
    for store in memories.existing_stores():
        with store.reading_as(memories.agent) as rows:
            records = rows.memories.with_ids(memory_ids).values()
            wanted = [record for record in records if superseded or record.active]
            shown = to_memories(rows, wanted, now=memories.now, trust=memories.trust)
        # On the same id in both stores, the workspace store wins: it is read first.
        found = {memory.id: memory for memory in shown} | found
    return [found[name] for name in memory_ids if name in found]


def list_memories(memories: AgentMemories, call: ListMemories, *, now: int) -> list[Memory]:
    """Return a page of the memories of both stores that match a checked call and its time, the newest first."""
    return _newest(memories, _filter(call, now), limit=call.limit, offset=call.offset)


def pending_memories(memories: AgentMemories, *, limit: int, offset: int) -> list[Memory]:
    """Return the memories of both stores that wait for approval, the newest first."""
    return _newest(memories, _PENDING, limit=limit, offset=offset)


def _newest(memories: AgentMemories, conditions: MemoryFilter, *, limit: int, offset: int) -> list[Memory]:
    """Return a page of the memories of both stores that meet conditions, the newest first."""
    matching = []
    for store in memories.existing_stores():
        with store.reading() as tx:
            if tx.for_agent(memories.agent).memories.any(conditions):
                matching.append(store)

    def read(store: Store, limit: int, offset: int) -> list[Memory]:
        with store.reading_as(memories.agent) as rows:
            page = rows.memories.page(conditions, limit=limit, offset=offset)
            return to_memories(rows, page, now=memories.now, trust=memories.trust)

    return newest_page(matching, read, lambda memory: memory.created_at, limit=limit, offset=offset)


def update_memory(
    memories: AgentMemories, memory_id: str, changes: MemoryChanges, *, now: int, needs_approval: bool = False
) -> StoredMemory:
    """Change a memory in one transaction. Changed content is indexed again and gets new concept tags.

    With `needs_approval`, a shared memory waits for an operator's approval again: its new text was not approved. Raises
    `NotFound`, `Conflict` for a superseded memory, and `Rejected` for a change that its tier or kind forbids, or that a
    fact or note does not allow. No memory can move to or from the account tier, which is another database.
    """
    with memories.changing(memory_id) as (store, rows, record):
        if not record.active:
            raise Conflict(f"memory {memory_id} was replaced by {record.superseded_by}: change that one", field="id")
        _check_allowed(record, changes)
        changed = _changed(record, changes)
        columns = _plain_columns(changes) | {"lifetime": check_place(changed), "pinned": changed.pinned}
        if changes.tier is not UNSET or changes.channel is not UNSET:
            columns |= {"tier": changed.tier, "channel": _channel(rows, changed, now)}
        # Chunks of a conversation-tier memory are indexed under its session: they move when it enters or leaves it.
        moved = (changed.tier == "conversation") != (record.tier == "conversation")
        rewritten = changed.content != record.content
        if rewritten:
            columns |= {"concept_tags": concept_tags(changed.content), "confirmed_at": now}
        if needs_approval and changes.visibility is UNSET:
            columns["visibility"] = visibility_after_change(record)
        rows.memories.change(record.row_id, now=now, **columns)
        if rewritten or moved:
            rows.memories.rewrite(record.row_id, changed.content, now=now)
        return StoredMemory(store, rows.memories.get(memory_id))


def visibility_after_change(record: MemoryRecord) -> Visibility:
    """Return who sees a memory after a change by a user who may not share: a shared one waits for approval again."""
    return "requested" if record.visibility == "shared" else record.visibility


def approve_memory(memories: AgentMemories, memory_id: str, *, now: int, content: str | None = None) -> MemoryRecord:
    """Show a memory to all users of its agent, as an entry of the curation log; or confirm one user's instruction.

    Raises `NotFound`, and `Conflict` for a superseded memory, or one whose content is not `content`, if that is given.
    """
    store = memories.get(memory_id).store
    with store.writing() as tx:
        rows = tx.for_agent(memories.agent)
        record = rows.memories.get(memory_id)
        if not record.active:
            raise Conflict(f"memory {memory_id} was replaced by {record.superseded_by}: approve that one", field="id")
        if content not in (None, record.content):
            raise Conflict(f"memory {memory_id} has been changed, and reads: {record.content}", field="content")
        # Memories extracted from a user's words stay that user's.
        is_own = record.source == EXTRACTION_SOURCE and record.owner_user_id is not None
        confirmed = is_own and is_standing(record.kind, record.importance)
        visibility: Visibility = "private" if confirmed else "shared"
        audience = "its owner" if confirmed else "all users"
        draft = EntryDraft(f"approved for {audience}; it belongs to {record.owner_user_id}", memories=[memory_id])
        if record.visibility != visibility:
            with tx.curation.entry(draft, job=APPROVE, agent=memories.agent, action=APPROVE, at=now):
                rows.memories.change(record.row_id, now=now, visibility=visibility)
        # An approval also confirms it: its approver has read it.
        rows.curation.accept(rows.curation.ids(CurationFilter(memory=memory_id)), at=now)
        return rows.memories.get(memory_id)


def confirm_memory(memories: AgentMemories, memory_id: str, *, now: int) -> MemoryRecord:
    """Note that a memory still holds. Raises `NotFound`."""
    with memories.changing(memory_id) as (_, rows, record):
        rows.memories.change(record.row_id, now=now, confirmed_at=now)
        return rows.memories.get(memory_id)


def forget(memories: AgentMemories, memory_id: str) -> bool:
    """Permanently delete a memory with its chunks, vectors, superseded memories and curation entries.

    Returns False if there was none, and none in the curation logs that a job had removed.
    """
    if memories.find(memory_id) is None:
        return memories.forget_removed(memory_id)
    with suppress(NotFound), memories.changing(memory_id) as (_, rows, record):
        delete_permanently(memories, rows, [record])
        return True
    return False


def delete_permanently(memories: AgentMemories, rows: AgentRepositories, records: list[MemoryRecord]) -> None:
    """Delete memories, the ones they superseded, and every entry of the curation log that could restore them.

    All of them get tombstones, so that no backup brings them back.
    """
    row_ids = [record.row_id for record in records]
    ids = rows.memories.ids_with_superseded(row_ids)
    rows.curation.forget_memories(rows.agent, ids)
    rows.memories.delete(row_ids)
    memories.note_forgotten(ids)


def memory_stats(memories: AgentMemories) -> MemoryStats:
    """Return how many memories both stores hold, in all and by tier, lifetime, kind and source."""
    total = MemoryCounts()
    for store in memories.existing_stores():
        with store.reading() as tx:
            total.add(count_memories(tx.connection, memories.agent, tx.viewer))
    return convert(
        total, MemoryStats, **{f"by_{column}": dict(sorted(counts.items())) for column, counts in total.by.items()}
    )


def _filter(call: ListMemories, now: int) -> MemoryFilter:
    return MemoryFilter(
        tiers=() if call.tier is None else (call.tier,),
        lifetimes=() if call.lifetime is None else (call.lifetime,),
        kinds=() if call.kind is None else (call.kind,),
        sources=() if call.source is None else (call.source,),
        tags=tuple(call.tags),
        session=call.session,
        channel=call.channel,
        owner=call.owner_user_id,
        text=call.text or None,
        active=None if call.superseded else True,
        unexpired_at=None if call.expired else now,
        since=None if call.since is None else to_micros(call.since),
        until=None if call.until is None else to_micros(call.until),
    )


def _check_same(record: MemoryRecord, draft: MemoryDraft) -> MemoryRecord:
    if record.content != draft.content:
        raise Conflict(f"there is another memory with the id {record.id}: update that, or choose an id", field="id")
    return record


def _channel(rows: AgentRepositories, draft: MemoryDraft, now: int) -> str | None:
    """Return the channel of a memory: its own, or for the channel tier that of its session. Creates a missing session.

    A session without a channel belongs to the default one. Raises `Conflict` for the conversation tier if it is
    archived.
    """
    if draft.session is None:
        return draft.channel
    session = rows.sessions.find(draft.session) or rows.sessions.ensure(draft.session, now=now, channel=draft.channel)
    if draft.tier == "conversation":
        if session.status == "archived":
            raise Conflict(
                f"session {session.id!r} is archived: choose a wider tier than conversation", field="session"
            )
        # The memory is cleared when the session next ends, so the session has to be active.
        rows.sessions.touch(session.row_id, now=now, last_sequence=session.last_sequence)
    if draft.tier != "channel":
        return draft.channel
    return draft.channel or session.channel or DEFAULT_CHANNEL


def _said_at(memories: AgentMemories, draft: MemoryDraft, now: int) -> int:
    """Return when the source message of a memory was said, but no later than `now`; `now` without a message."""
    if draft.source_message is None:
        return now
    with memories.reading_workspace() as rows:
        found = rows.messages.with_id(draft.source_message) if rows is not None else []
    return min([now, *(one.created_at for one in found if draft.session in (None, one.session))])


def _add_to_subject(stored: Memories, new: NewMemory, now: int) -> MemoryRecord:
    """Store a memory in its place among the current ones of the same subject, tier and owner."""
    if new.subject is None:
        return stored.add(new, now=now)
    same_subject = MemoryFilter(subject=new.subject, tiers=(new.tier,), facts=False, notes=False)
    others = [one for one in stored.iterate(same_subject) if one.owner_user_id == new.owner_user_id]
    # Nothing is newer than `now`: a later time was written while the clock was wrong.
    newer = [one.row_id for one in others if new.created_at < one.created_at <= now]
    older = [one.row_id for one in others if one.row_id not in newer]
    return add_in_history(stored, new, older, newer, now=now)


def _subject(draft: MemoryDraft) -> str | None:
    """Return a memory's subject. For an instruction it is what the text is about, so that a newer one replaces it."""
    if draft.subject is None and is_standing(draft.kind, draft.importance):
        return subject_of(draft.content[:READ_CHARACTERS])
    return draft.subject


def _check_allowed(record: MemoryRecord, changes: MemoryChanges) -> None:
    restricted = [name for name in ("content", "kind", "tier") if getattr(changes, name) is not UNSET]
    if record.category is not None and restricted:
        raise Rejected(
            f"memory {record.id} is the fact {record.category}/{record.key}: set the value of the fact instead",
            field=restricted[0],
        )
    if record.note_id is not None and restricted not in ([], ["content"]):
        raise Rejected(f"memory {record.id} is a note: its kind and tier cannot be changed", field=restricted[-1])
    tier = changes.tier if changes.tier is not UNSET else record.tier
    if (tier == "account") != (record.tier == "account"):
        raise Rejected(
            f"memory {record.id} is in the {record.tier} tier, another database than {tier}: "
            f"remember it again with tier {tier}, then forget this one",
            field="tier",
        )
    if tier == "account" and changes.kind is not UNSET:
        check_account_kind(changes.kind)


def _changed(record: MemoryRecord, changes: MemoryChanges) -> MemoryDraft:
    """Return the memory with the changes applied; `lifetime` is None where the tier or the pin decides it."""
    changed = convert(record, MemoryDraft, **set_fields(changes, leave_out=_NO_CHANGES))
    if changes.lifetime is not UNSET:
        return changed
    moved = (changed.tier == "conversation") != (record.tier == "conversation")
    return replace(changed, lifetime=None) if moved or (changed.pinned and not record.pinned) else changed


def _plain_columns(changes: MemoryChanges) -> dict[str, Any]:
    """Return the changed columns that are stored as they were given."""
    columns = set_fields(changes, leave_out=_NO_CHANGES | _RULED_FIELDS)
    if changes.expires_at is not UNSET:
        columns["expires_at"] = None if changes.expires_at is None else to_micros(changes.expires_at)
    return columns


def export_memories(memories: AgentMemories) -> MemoryExport:
    """Return every current memory, fact and note, the oldest first; each store is read in one transaction."""
    found: list[Memory] = []
    for store in memories.existing_stores():
        with store.reading() as tx:
            found += (convert(record, Memory) for record in tx.for_agent(memories.agent).memories.iterate())
    return MemoryExport(memories=sorted(found, key=lambda memory: memory.created_at))
