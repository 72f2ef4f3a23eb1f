"""/v1/curation: list what jobs changed in the caller's memories, and undo it."""

from __future__ import annotations

from memory.upkeep.curation_logs import list_entries, show_entry, undo_all, undo_entry
from reverie.clock import to_micros
from reverie.upkeep import calls
from reverie.upkeep.curation_types import CurationEntry, CurationList, Undone
from server.caller import Caller
from server.endpoints import Endpoints
from server.memories.memories import agent_memories
from server.services import Services
from storage.upkeep.curation import CurationFilter

endpoints = Endpoints("curation")

# An undo leaves work for the pipeline: memories to chunk again, chunks to embed with another model.
_STAGES = ("chunk", "embed")


@endpoints.serves(calls.ListCuration)
def _list_entries(services: Services, caller: Caller, call: calls.ListCuration) -> CurationList:
    matching = CurationFilter(memory=call.memory, job=call.job, action=call.action)
    memories = agent_memories(services, caller)
    return CurationList(entries=list_entries(memories, matching, limit=call.limit, offset=call.offset))


@endpoints.serves(calls.GetCurationEntry)
def _get_entry(services: Services, caller: Caller, call: calls.GetCurationEntry) -> CurationEntry:
    return show_entry(agent_memories(services, caller), call.entry)


@endpoints.serves(calls.UndoAll, waits=lambda _: True)
def _undo_all(services: Services, caller: Caller, call: calls.UndoAll) -> Undone:
    since = 0 if call.since is None else to_micros(call.since)
    matching = CurationFilter(job=call.job, action=call.action, since=since)
    memories = agent_memories(services, caller)
    undone = undo_all(memories, matching, now=services.runtime.now(), request=caller.request)
    for store in memories.existing_stores() if undone.undone else ():
        _notify_pipeline(services, store.name)
    return undone


@endpoints.serves(calls.Undo)
def _undo(services: Services, caller: Caller, call: calls.Undo) -> CurationEntry:
    memories, now = agent_memories(services, caller), services.runtime.now()
    store, entry = undo_entry(memories, call.entry, now=now, request=caller.request)
    _notify_pipeline(services, store.name)
    return entry


def _notify_pipeline(services: Services, workspace: str) -> None:
    for stage in _STAGES:
        services.runtime.notify_stage(stage, workspace)
