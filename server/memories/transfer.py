"""/v1/export and /v1/import: all memories of an agent as one document, and their import."""

from __future__ import annotations

from msgspec.structs import replace

from memory.memories.transfer import export_memories, import_memories
from reverie.memories import calls
from reverie.memories.types import MemoryExport, MemoryImport
from server.caller import Caller
from server.endpoints import Endpoints
from server.memories.memories import memories_of
from server.services import Services

endpoints = Endpoints("memories")


@endpoints.serves(calls.ExportMemories)
def _export_memories(services: Services, caller: Caller, call: calls.ExportMemories) -> MemoryExport:
    return export_memories(memories_of(services, caller, call))


@endpoints.serves(calls.ImportMemories)
def _import_memories(services: Services, caller: Caller, call: calls.ImportMemories) -> MemoryImport:
    memories = call.memories
    if (user := caller.user or call.user) is not None:  # nobody else's, whatever the document says
        memories = [replace(memory, owner_user_id=user, visibility="private") for memory in memories]
    document = MemoryExport(memories=memories, schema_version=call.schema_version)
    imported, written = import_memories(memories_of(services, caller, call), document, now=services.runtime.now())
    for store in written:
        services.runtime.notify_stage("chunk", store.name)
    return imported
