"""A recall of memories alone, answered with the memories themselves and without scores (M5)."""

from __future__ import annotations

from memory.memories.agent_memories import AgentMemories
from memory.memories.memories import read_memories
from retrieval.request import RecallRequest
from reverie.checks import check_query, normalise_tags
from reverie.memories.types import FoundMemories
from server.caller import Caller
from server.memories.bodies import MemorySearchBody
from server.services import Services


def search_memories(services: Services, caller: Caller, here: AgentMemories, body: MemorySearchBody) -> FoundMemories:
    """The memories that fit a query, best first; they count as recalled. Raises `Rejected`."""
    request = RecallRequest(
        query=check_query(body.query),
        agent=caller.agent,
        tags=tuple(normalise_tags(body.tags)),
        kinds=("memory",),
        mode=body.mode,
        limit=body.limit,
    )
    found = services.recall(caller, request)
    return FoundMemories(results=read_memories(here, [result.id for result in found.results]), degraded=found.degraded)
