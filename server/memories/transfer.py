"""/v1/export and /v1/import: all memories of an agent as one document, and their import."""

from __future__ import annotations

from memory.memories.transfer import export_memories, import_memories
from reverie.memories import calls
from reverie.memories.types import MemoryExport, MemoryImport
from server.caller import Caller
from server.endpoints import Endpoints
from server.memories.memories import memories_of
from server.services import Services

endpoints = Endpoints("memories")


@endpoints.serves(calls.ExportMemories)
def _export_memories(services: Services, caller: Caller, _: calls.ExportMemories) -> MemoryExport:
    return export_memories(memories_of(services, caller))


@endpoints.serves(calls.ImportMemories)
def _import_memories(services: Services, caller: Caller, call: calls.ImportMemories) -> MemoryImport:
    document = MemoryExport(memories=call.memories, schema_version=call.schema_version)
    imported, written = import_memories(memories_of(services, caller), document, now=services.runtime.now())
    for store in written:
        services.runtime.notify_stage("chunk", store.name)
    return imported
