"""/v1/memories: store, search, read, change and delete memories."""

from __future__ import annotations

from msgspec.structs import asdict, replace

from memory.memories.agent_memories import AgentMemories, StoredMemory, wait_until_searchable
from memory.memories.memories import (
    approve_memory,
    forget,
    list_memories,
    memory_stats,
    owned,
    pending_memories,
    read_memories,
    read_memory,
    remember,
    to_memory,
    update_memory,
)
from retrieval.request import RecallRequest
from reverie.memories import calls
from reverie.memories.checks import check_changes, check_memory
from reverie.memories.types import FoundMemories, Memory, MemoryList, MemoryStats, Remembered
from reverie.types import Deleted
from server.caller import Caller, lacking
from server.endpoints import Endpoints
from server.services import Services

endpoints = Endpoints("memories")


def memories_of(services: Services, caller: Caller, call: object) -> AgentMemories:
    """Return the caller's memories, in the workspace and in the account, as the user of a call sees them."""
    return AgentMemories(services.runtime.stores, caller.workspace, caller.agent, services.viewer(caller, call))


def agent_memories(services: Services, caller: Caller) -> AgentMemories:
    """Return all memories of the caller's agent, of whatever user: for its operator."""
    return AgentMemories(services.runtime.stores, caller.workspace, caller.agent)


def notify_pipeline(services: Services, stored: StoredMemory) -> StoredMemory:
    """Notify the pipeline to index a stored memory; if the broker is down, the sweep finds it."""
    services.runtime.notify_stage("chunk", stored.store.name)
    return stored


@endpoints.serves(calls.Remember, waits=lambda call: call.wait == "searchable")
def _remember(services: Services, caller: Caller, call: calls.Remember) -> Remembered:
    runtime = services.runtime
    draft, now = check_memory(call, now=runtime.now()), runtime.now()
    if caller.user is not None and draft.owner_user_id not in (None, caller.user):
        raise lacking("user")
    if caller.user is not None and draft.visibility == "shared":
        draft = replace(draft, visibility="requested")  # what all users see is not for one of them to say
    if draft.user is None and draft.owner_user_id is not None:  # whoever stores for a user may read what is stored
        draft = replace(draft, user=draft.owner_user_id)
    memories = memories_of(services, caller, draft)
    stored = remember(memories, owned(draft, memories.viewer), now=now, trace=caller.trace)
    notify_pipeline(services, stored)
    if call.wait == "searchable":
        with_vectors = runtime.embedder_for(stored.store) is not None
        wait_until_searchable(stored, with_vectors=with_vectors, timeout_seconds=call.timeout_seconds)
    return Remembered(id=stored.record.id)


@endpoints.serves(calls.SearchMemories)
def _search_memories(services: Services, caller: Caller, call: calls.SearchMemories) -> FoundMemories:
    arguments = {**asdict(call), "user": caller.user or call.user}
    request = RecallRequest(agent=caller.agent, kinds=("memory",), **arguments)
    response = services.recall(caller, request)
    ids = [result.id for result in response.results]
    memories = read_memories(memories_of(services, caller, call), ids, superseded=call.as_of is not None)
    relevances = {result.id: result.relevance for result in response.results}
    duplicates = {result.id: result.duplicates for result in response.results if result.duplicates}
    return FoundMemories(results=memories, relevances=relevances, duplicates=duplicates, degraded=response.degraded)


@endpoints.serves(calls.GetMemoryStats)
def _memory_stats(services: Services, caller: Caller, call: calls.GetMemoryStats) -> MemoryStats:
    return memory_stats(memories_of(services, caller, call))


@endpoints.serves(calls.ListMemories)
def _list_memories(services: Services, caller: Caller, call: calls.ListMemories) -> MemoryList:
    memories = memories_of(services, caller, call)
    return MemoryList(memories=list_memories(memories, call, now=services.runtime.now()))


@endpoints.serves(calls.ListPendingMemories)
def _list_pending(services: Services, caller: Caller, call: calls.ListPendingMemories) -> MemoryList:
    memories = agent_memories(services, caller)
    return MemoryList(memories=pending_memories(memories, limit=call.limit, offset=call.offset))


@endpoints.serves(calls.ApproveMemory)
def _approve(services: Services, caller: Caller, call: calls.ApproveMemory) -> Memory:
    record = approve_memory(agent_memories(services, caller), call.id, content=call.content, now=services.runtime.now())
    return to_memory(record)


@endpoints.serves(calls.GetMemory)
def _get_memory(services: Services, caller: Caller, call: calls.GetMemory) -> Memory:
    return read_memory(memories_of(services, caller, call), call.id)


@endpoints.serves(calls.UpdateMemory)
def _update_memory(services: Services, caller: Caller, call: calls.UpdateMemory) -> Memory:
    now = services.runtime.now()
    changes = check_changes(call, now=now)
    if caller.user is not None and changes.visibility == "shared":
        changes = replace(changes, visibility="requested")
    memories = memories_of(services, caller, call)
    stored = update_memory(memories, call.id, changes, now=now, needs_approval=caller.user is not None)
    return to_memory(notify_pipeline(services, stored).record)


@endpoints.serves(calls.Forget)
def _forget(services: Services, caller: Caller, call: calls.Forget) -> Deleted:
    return Deleted(deleted=forget(memories_of(services, caller, call), call.id))
