"""/v1/memories: what is known, remembered by hand, searched, read, changed and forgotten."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from memory.memories.agent_memories import AgentMemories, StoredMemory, wait_until_searchable
from memory.memories.filters import MemoryQuery, memory_filter
from memory.memories.memories import (
    forget,
    list_memories,
    memory_stats,
    read_memory,
    remember,
    to_memory,
    update_memory,
)
from reverie.checks import check_wait
from reverie.errors import Rejected
from reverie.memories.checks import check_changes, check_memory, check_memory_id
from reverie.memories.types import FoundMemories, Memory, MemoryChanges, MemoryList, MemoryStats, Remembered
from reverie.types import Deleted
from server.answers import answer
from server.caller import Caller, decoded, page_of, query_of
from server.memories.bodies import MemoryBody, MemorySearchBody
from server.memories.search import search_memories
from server.openapi import operation
from server.services import Services
from storage.memories.records import MemoryFilter

_FILTERS = ("tier", "lifetime", "kind", "source", "tag", "session", "channel", "owner_user_id", "text", "superseded")
_PAGE = {"limit": "integer", "offset": "integer"}


def holdings(services: Services, caller: Caller) -> AgentMemories:
    """Where the caller's memories lie."""
    return AgentMemories(services.runtime.stores, caller.workspace, caller.agent)


def notify_pipeline(services: Services, kept: StoredMemory) -> StoredMemory:
    """Have the pipeline index what was written; where that cannot be said, the sweep finds it."""
    services.runtime.notify_stage("chunk", kept.store.name)
    return kept


def routes(services: Services) -> APIRouter:
    """The routes of memories."""
    router = APIRouter(tags=["memories"])
    _add_remembering(router, services)
    _add_reading(router, services)
    _add_changing(router, services)
    return router


def _add_remembering(router: APIRouter, services: Services) -> None:
    @router.post("/v1/memories", openapi_extra=operation(Remembered, body=MemoryBody))
    async def post_memory(request: Request) -> Response:
        """Store a memory, once however often it is sent under its id; with `wait` until it can be recalled."""
        query_of(request)
        caller = services.caller(request)
        body = await services.body(request, MemoryBody)
        waits = check_wait(body.wait, body.timeout_seconds) == "searchable"

        def work() -> Remembered:
            draft, now = check_memory(body, now=services.runtime.now()), services.runtime.now()
            kept = notify_pipeline(services, remember(holdings(services, caller), draft, now=now, trace=caller.trace))
            if waits:
                _wait(services, kept, body.timeout_seconds)
            return Remembered(id=kept.record.id)

        return answer(await (services.threads.wait(work) if waits else services.threads.run(work)))


def _add_reading(router: APIRouter, services: Services) -> None:
    @router.post("/v1/memories/search", openapi_extra=operation(FoundMemories, body=MemorySearchBody))
    async def post_search(request: Request) -> Response:
        """The memories, facts and notes that fit a query, best first, without scores."""
        query_of(request)
        caller = services.caller(request)
        body = await services.body(request, MemorySearchBody)
        here = holdings(services, caller)
        return answer(await services.threads.run(lambda: search_memories(services, caller, here, body)))

    @router.get("/v1/memories/stats", openapi_extra=operation(MemoryStats))
    async def get_stats(request: Request) -> Response:
        """How many memories there are, and of what."""
        query_of(request)
        here = holdings(services, services.caller(request))
        return answer(await services.threads.run(lambda: memory_stats(here)))

    query = {**_PAGE, **dict.fromkeys(_FILTERS, "string")}

    @router.get("/v1/memories", openapi_extra=operation(MemoryList, query=query))
    async def get_memories(request: Request) -> Response:
        """Memories, the newest first: those to which every parameter given applies; `tag` may be given often."""
        caller = services.caller(request)
        limit, offset = page_of(request, limit=50, others=_FILTERS)
        wanted, here = _wanted(request), holdings(services, caller)

        def work() -> MemoryList:
            return MemoryList(memories=list_memories(here, wanted, limit=limit, offset=offset))

        return answer(await services.threads.run(work))

    @router.get("/v1/memories/{memory}", openapi_extra=operation(Memory))
    async def get_memory(request: Request, memory: str) -> Response:
        """One memory, superseded or not."""
        query_of(request)
        here, memory_id = holdings(services, services.caller(request)), _id_from(memory)
        return answer(await services.threads.run(lambda: read_memory(here, memory_id)))


def _add_changing(router: APIRouter, services: Services) -> None:
    @router.patch("/v1/memories/{memory}", openapi_extra=operation(Memory, body=MemoryChanges))
    async def patch_memory(request: Request, memory: str) -> Response:
        """Change what the body names; what it says is indexed anew."""
        query_of(request)
        here, memory_id = holdings(services, services.caller(request)), _id_from(memory)
        body = await services.body(request, MemoryChanges)

        def work() -> Memory:
            now = services.runtime.now()
            kept = update_memory(here, memory_id, check_changes(body, now=now), now=now)
            return to_memory(notify_pipeline(services, kept).record)

        return answer(await services.threads.run(work))

    @router.delete("/v1/memories/{memory}", openapi_extra=operation(Deleted))
    async def delete_memory(request: Request, memory: str) -> Response:
        """Delete a memory for good, with its vectors and what it had replaced."""
        query_of(request)
        here, memory_id = holdings(services, services.caller(request)), _id_from(memory)
        return answer(await services.threads.run(lambda: Deleted(deleted=forget(here, memory_id))))


def _wait(services: Services, kept: StoredMemory, timeout_seconds: float) -> None:
    with_vectors = services.runtime.embedder_of(kept.store) is not None
    wait_until_searchable(kept, with_vectors=with_vectors, timeout_seconds=timeout_seconds)


def _wanted(request: Request) -> MemoryFilter:
    given = {name: request.query_params.get(name) for name in _FILTERS if name not in ("tag", "superseded")}
    superseded = request.query_params.get("superseded", "false")
    if superseded not in ("true", "false"):
        raise Rejected("superseded must be true or false", field="superseded")
    tags = request.query_params.getlist("tag")
    return memory_filter(MemoryQuery(**given, tags=tags, superseded=superseded == "true"))


def _id_from(encoded: str) -> str:
    return check_memory_id(decoded(encoded.encode(), "id"))
