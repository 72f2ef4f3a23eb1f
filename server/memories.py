"""Calls about memories, facts and notes, and their transfer as text."""

from __future__ import annotations

from typing import Any

from msgspec.structs import asdict, replace

from memory.conversion import convert
from memory.lifecycle.curation import review
from memory.lifecycle.importing import import_memories
from memory.memories.agent_memories import AgentMemories, StoredMemory, wait_until_searchable
from memory.memories.facts import fact_history, forget_fact, list_facts, read_fact, set_fact
from memory.memories.memories import (
    approve_memory,
    confirm_memory,
    export_memories,
    forget,
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
from reverie.calls import Call
from reverie.fields import micros_until
from reverie.memories import calls, types
from reverie.memories.calls import check_changes, check_memory
from reverie.upkeep import GetReview
from server.caller import Caller, lacking
from server.endpoints import Endpoints
from server.services import Services
from storage.memories.records import MemoryRecord

endpoints = Endpoints(
    "memories",
    memory_id=lambda _services, _caller, call: call.id,
    trust=lambda services, _caller, _call: services.runtime.settings.trust,
    held_at=lambda services, _caller, call: micros_until(call.as_of, now=services.runtime.now()),
    draft=lambda _services, _caller, call: call,
    changes=lambda _services, _caller, call: call,
    trace=lambda _services, caller, _call: caller.trace,
    # If one user changes a memory that all users see, the change waits for an operator.
    needs_approval=lambda _services, caller, _call: caller.user is not None,
)


def _of_operator(services: Services, caller: Caller, _: Call[Any]) -> AgentMemories:
    return services.agent_memories(caller)


def _notified(services: Services, stored: StoredMemory) -> MemoryRecord:
    """Notify the pipeline to index a stored memory, and return it; if the broker is down, the sweep finds it."""
    services.runtime.notify_stage("chunk", stored.store.name)
    return stored.record


def _note(services: Services, stored: StoredMemory) -> types.Note:
    return to_note(_notified(services, stored))


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
    _notified(services, stored)
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


endpoints.passes(calls.GetMemoryStats, memory_stats, Services.memories)
endpoints.passes(calls.ListMemories, list_memories, Services.memories)
endpoints.passes(calls.ListPendingMemories, pending_memories, _of_operator)


endpoints.passes(calls.ApproveMemory, approve_memory, _of_operator)
endpoints.passes(GetReview, review, _of_operator)
endpoints.passes(calls.ConfirmMemory, confirm_memory, Services.memories)
endpoints.passes(calls.GetMemory, read_memory, Services.memories)


@endpoints.serves(calls.UpdateMemory)
def _update_memory(services: Services, caller: Caller, call: calls.UpdateMemory) -> types.Memory:
    now = services.runtime.now()
    changes = check_changes(call, now=now)
    if caller.user is not None and changes.visibility == "shared":
        changes = replace(changes, visibility="requested")
    memories = services.memories(caller, call)
    stored = update_memory(memories, call.id, changes, now=now, needs_approval=caller.user is not None)
    return convert(_notified(services, stored), types.Memory)


endpoints.passes(calls.Forget, forget, Services.memories)
endpoints.passes(calls.ListFacts, list_facts, Services.memories, tag="facts")
endpoints.passes(calls.GetFact, read_fact, Services.memories, tag="facts")
endpoints.passes(calls.GetFactHistory, fact_history, Services.memories, tag="facts")


endpoints.passes(calls.SetFact, set_fact, Services.memories, tag="facts", then=_notified)
endpoints.passes(calls.ForgetFact, forget_fact, Services.memories, tag="facts")
endpoints.passes(calls.ListNotes, list_notes, Services.memories, tag="notes")
endpoints.passes(calls.GetNote, read_note, Services.memories, tag="notes")


endpoints.passes(calls.AddNote, store_note, Services.memories, tag="notes", then=_note)
endpoints.passes(calls.UpdateNote, update_note, Services.memories, tag="notes", then=_note)
endpoints.passes(calls.DeleteNote, delete_note, Services.memories, tag="notes")
endpoints.passes(calls.ExportMemories, export_memories, Services.memories)


@endpoints.serves(calls.ImportMemories)
def _import_memories(services: Services, caller: Caller, call: calls.ImportMemories) -> types.MemoryImport:
    memories: list[types.Memory] = list(call.memories)
    if (user := caller.user or call.user) is not None:  # nobody else's, whatever the document says
        memories = [replace(memory, owner_user_id=user, visibility="private") for memory in memories]
    document = types.MemoryExport(memories=memories, schema_version=call.schema_version)
    imported, written = import_memories(services.memories(caller, call), document, now=services.runtime.now())
    for name in sorted(written):
        services.runtime.notify_stage("chunk", name)
    return imported
