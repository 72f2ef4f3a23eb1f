"""Calls about memories, facts and notes, and their transfer as text."""

from __future__ import annotations

from msgspec.structs import asdict, replace

from memory.conversion import convert
from memory.lifecycle.curation import review
from memory.memories.agent_memories import StoredMemory, wait_until_searchable
from memory.memories.facts import fact_history, forget_fact, list_facts, read_fact, set_fact
from memory.memories.memories import (
    approve_memory,
    confirm_memory,
    export_memories,
    forget,
    import_memories,
    list_memories,
    memory_stats,
    owned,
    pending_memories,
    read_memories,
    read_memory,
    remember,
    update_memory,
)
from memory.memories.notes import delete_note, list_notes, read_note, store_note, to_note, update_note
from retrieval.query import RecallRequest
from reverie.fields import micros_until
from reverie.memories import calls, types
from reverie.memories.calls import check_changes, check_memory
from reverie.types import Deleted
from reverie.upkeep import GetReview, Review
from server.caller import Caller, lacking
from server.endpoints import Endpoints
from server.services import Services

endpoints = Endpoints("memories")


def notify_pipeline(services: Services, stored: StoredMemory) -> StoredMemory:
    """Notify the pipeline to index a stored memory; if the broker is down, the sweep finds it."""
    services.runtime.notify_stage("chunk", stored.store.name)
    return stored


@endpoints.serves(calls.Remember, waits=lambda call: call.wait == "searchable")
def _remember(services: Services, caller: Caller, call: calls.Remember) -> types.Remembered:
    runtime = services.runtime
    draft, now = check_memory(call, now=runtime.now()), runtime.now()
    if caller.user is not None and draft.owner_user_id not in (None, caller.user):
        raise lacking("user")
    if caller.user is not None and draft.visibility == "shared":
        draft = replace(draft, visibility="requested")  # one user alone may not share
    if draft.user is None and draft.owner_user_id is not None:  # the caller must be able to read the memory
        draft = replace(draft, user=draft.owner_user_id)
    memories = services.memories(caller, draft)
    stored = remember(memories, owned(draft, memories.viewer), now=now, trace=caller.trace)
    notify_pipeline(services, stored)
    if call.wait == "searchable":
        with_vectors = runtime.embedder_for(stored.store) is not None
        wait_until_searchable(stored, with_vectors=with_vectors, timeout_seconds=call.timeout_seconds)
    return types.Remembered(id=stored.record.id)


@endpoints.serves(calls.SearchMemories)
def _search_memories(services: Services, caller: Caller, call: calls.SearchMemories) -> types.FoundMemories:
    arguments = {**asdict(call), "user": caller.user or call.user}
    request = RecallRequest(agent=caller.agent, kinds=("memory",), **arguments)
    response = services.recall(caller, request)
    ids = [result.id for result in response.results]
    memories = read_memories(services.memories(caller, call), ids, superseded=call.as_of is not None)
    relevances = {result.id: result.relevance for result in response.results}
    duplicates = {result.id: result.duplicates for result in response.results if result.duplicates}
    return types.FoundMemories(
        results=memories,
        relevances=relevances,
        duplicates=duplicates,
        changed_since={one.id: one.changed_since for one in response.results if one.changed_since is not None},
        degraded=response.degraded,
    )


@endpoints.serves(calls.GetMemoryStats)
def _memory_stats(services: Services, caller: Caller, call: calls.GetMemoryStats) -> types.MemoryStats:
    return memory_stats(services.memories(caller, call))


@endpoints.serves(calls.ListMemories)
def _list_memories(services: Services, caller: Caller, call: calls.ListMemories) -> types.MemoryList:
    memories = services.memories(caller, call)
    return types.MemoryList(memories=list_memories(memories, call, now=services.runtime.now()))


@endpoints.serves(calls.ListPendingMemories)
def _list_pending(services: Services, caller: Caller, call: calls.ListPendingMemories) -> types.MemoryList:
    memories = services.agent_memories(caller)
    return types.MemoryList(memories=pending_memories(memories, limit=call.limit, offset=call.offset))


@endpoints.serves(calls.ApproveMemory)
def _approve(services: Services, caller: Caller, call: calls.ApproveMemory) -> types.Memory:
    record = approve_memory(services.agent_memories(caller), call.id, content=call.content, now=services.runtime.now())
    return convert(record, types.Memory)


@endpoints.serves(GetReview)
def _review(services: Services, caller: Caller, call: GetReview) -> Review:
    return review(services.agent_memories(caller), now=services.runtime.now(), limit=call.limit)


@endpoints.serves(calls.ConfirmMemory)
def _confirm(services: Services, caller: Caller, call: calls.ConfirmMemory) -> types.Memory:
    record = confirm_memory(services.memories(caller, call), call.id, now=services.runtime.now())
    return convert(record, types.Memory)


@endpoints.serves(calls.GetMemory)
def _get_memory(services: Services, caller: Caller, call: calls.GetMemory) -> types.Memory:
    return read_memory(services.memories(caller, call), call.id)


@endpoints.serves(calls.UpdateMemory)
def _update_memory(services: Services, caller: Caller, call: calls.UpdateMemory) -> types.Memory:
    now = services.runtime.now()
    changes = check_changes(call, now=now)
    if caller.user is not None and changes.visibility == "shared":
        changes = replace(changes, visibility="requested")
    memories = services.memories(caller, call)
    stored = update_memory(memories, call.id, changes, now=now, needs_approval=caller.user is not None)
    return convert(notify_pipeline(services, stored).record, types.Memory)


@endpoints.serves(calls.Forget)
def _forget(services: Services, caller: Caller, call: calls.Forget) -> Deleted:
    return Deleted(deleted=forget(services.memories(caller, call), call.id))


@endpoints.serves(calls.ListFacts, tag="facts")
def _list_facts(services: Services, caller: Caller, call: calls.ListFacts) -> types.FactList:
    memories, held_at = services.memories(caller, call), micros_until(call.as_of, now=services.runtime.now())
    facts = list_facts(memories, category=call.category, limit=call.limit, offset=call.offset, held_at=held_at)
    return types.FactList(facts=facts)


@endpoints.serves(calls.GetFact, tag="facts")
def _get_fact(services: Services, caller: Caller, call: calls.GetFact) -> types.Fact:
    held_at = micros_until(call.as_of, now=services.runtime.now())
    return read_fact(services.memories(caller, call), call.category, call.key, held_at=held_at)


@endpoints.serves(calls.GetFactHistory, tag="facts")
def _get_history(services: Services, caller: Caller, call: calls.GetFactHistory) -> types.FactList:
    return types.FactList(facts=fact_history(services.memories(caller, call), call.category, call.key))


@endpoints.serves(calls.SetFact, tag="facts")
def _set_fact(services: Services, caller: Caller, call: calls.SetFact) -> types.Fact:
    stored = set_fact(
        services.memories(caller, call),
        call,
        now=services.runtime.now(),
        trace=caller.trace,
        needs_approval=caller.user is not None,
    )
    return convert(notify_pipeline(services, stored).record, types.Fact)


@endpoints.serves(calls.ForgetFact, tag="facts")
def _forget_fact(services: Services, caller: Caller, call: calls.ForgetFact) -> Deleted:
    return Deleted(deleted=forget_fact(services.memories(caller, call), call.category, call.key))


@endpoints.serves(calls.ListNotes, tag="notes")
def _list_notes(services: Services, caller: Caller, call: calls.ListNotes) -> types.NoteList:
    memories = services.memories(caller, call)
    return types.NoteList(
        notes=list_notes(memories, user=call.user, tags=tuple(call.tags), limit=call.limit, offset=call.offset)
    )


@endpoints.serves(calls.GetNote, tag="notes")
def _get_note(services: Services, caller: Caller, call: calls.GetNote) -> types.Note:
    return read_note(services.memories(caller, call), call.note_id)


@endpoints.serves(calls.AddNote, tag="notes")
def _add_note(services: Services, caller: Caller, call: calls.AddNote) -> types.Note:
    stored = store_note(services.memories(caller, call), call, now=services.runtime.now(), trace=caller.trace)
    return to_note(notify_pipeline(services, stored).record)


@endpoints.serves(calls.UpdateNote, tag="notes")
def _update_note(services: Services, caller: Caller, call: calls.UpdateNote) -> types.Note:
    stored = update_note(
        services.memories(caller, call),
        call,
        now=services.runtime.now(),
        needs_approval=caller.user is not None,
    )
    return to_note(notify_pipeline(services, stored).record)


@endpoints.serves(calls.DeleteNote, tag="notes")
def _delete_note(services: Services, caller: Caller, call: calls.DeleteNote) -> Deleted:
    return Deleted(deleted=delete_note(services.memories(caller, call), call.note_id))


@endpoints.serves(calls.ExportMemories)
def _export_memories(services: Services, caller: Caller, call: calls.ExportMemories) -> types.MemoryExport:
    return export_memories(services.memories(caller, call))


@endpoints.serves(calls.ImportMemories)
def _import_memories(services: Services, caller: Caller, call: calls.ImportMemories) -> types.MemoryImport:
    memories: list[types.Memory] = list(call.memories)
    if (user := caller.user or call.user) is not None:  # nobody else's, whatever the document says
        memories = [replace(memory, owner_user_id=user, visibility="private") for memory in memories]
    document = types.MemoryExport(memories=memories, schema_version=call.schema_version)
    imported, written = import_memories(services.memories(caller, call), document, now=services.runtime.now())
    for store in written:
        services.runtime.notify_stage("chunk", store.name)
    return imported
