"""/v1/scratchpads: the working notes of a session, as a list and as keys with values."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from memory.sessions import scratchpads as pads
from reverie.sessions.checks import check_items, check_key, check_value
from reverie.sessions.scratchpad_types import (
    Cleared,
    ScratchpadEntries,
    ScratchpadEntry,
    ScratchpadItems,
    ScratchpadList,
    ScratchpadValue,
)
from reverie.types import Deleted
from server.answers import answer
from server.caller import decoded, query_of, session_from
from server.openapi import operation
from server.services import Services


def routes(services: Services) -> APIRouter:
    """The routes of scratchpads."""
    router = APIRouter(tags=["scratchpads"])
    _add_items(router, services)
    _add_reading_keys(router, services)
    _add_changing_keys(router, services)
    return router


def _add_items(router: APIRouter, services: Services) -> None:
    @router.get("/v1/scratchpads/{session}/items", openapi_extra=operation(ScratchpadList))
    async def get_items(request: Request, session: str) -> Response:
        """The list of a session; empty where nothing was written."""
        query_of(request)
        caller, name = services.caller(request), session_from(session)

        def work() -> ScratchpadList:
            store = services.store_to_read(caller.workspace)
            if store is None:
                return ScratchpadList(items=[])
            return pads.read_items(store, agent=caller.agent, session=name)

        return answer(await services.threads.run(work))

    @router.put("/v1/scratchpads/{session}/items", openapi_extra=operation(ScratchpadList, body=ScratchpadItems))
    async def put_items(request: Request, session: str) -> Response:
        """Put a list of at most 32 items of 240 characters in the place of what was there."""
        query_of(request)
        caller, name = services.caller(request), session_from(session)
        items = check_items((await services.body(request, ScratchpadItems)).items)
        here = services.runtime

        def work() -> ScratchpadList:
            store = here.store(caller.workspace)
            return pads.write_items(store, agent=caller.agent, session=name, items=items, now=here.now())

        return answer(await services.threads.run(work))

    @router.delete("/v1/scratchpads/{session}/items", openapi_extra=operation(Cleared))
    async def delete_items(request: Request, session: str) -> Response:
        """Remove the list."""
        query_of(request)
        caller, name = services.caller(request), session_from(session)

        def work() -> Cleared:
            store = services.store_to_read(caller.workspace)
            gone = pads.clear_items(store, agent=caller.agent, session=name) if store is not None else 0
            return Cleared(cleared=gone)

        return answer(await services.threads.run(work))


def _add_reading_keys(router: APIRouter, services: Services) -> None:
    @router.get("/v1/scratchpads/{session}/keys", openapi_extra=operation(ScratchpadEntries))
    async def get_keys(request: Request, session: str) -> Response:
        """All keys of a session with their values."""
        query_of(request)
        caller, name = services.caller(request), session_from(session)

        def work() -> ScratchpadEntries:
            store = services.store_to_read(caller.workspace)
            found = pads.list_keys(store, agent=caller.agent, session=name) if store is not None else []
            return ScratchpadEntries(entries=found)

        return answer(await services.threads.run(work))

    @router.get("/v1/scratchpads/{session}/keys/{key}", openapi_extra=operation(ScratchpadEntry))
    async def get_key(request: Request, session: str, key: str) -> Response:
        """One key."""
        query_of(request)
        caller, name, asked = services.caller(request), session_from(session), _key_from(key)

        def work() -> ScratchpadEntry:
            store = services.store_of_session(caller, name)
            return pads.read_key(store, agent=caller.agent, session=name, key=asked)

        return answer(await services.threads.run(work))


def _add_changing_keys(router: APIRouter, services: Services) -> None:
    @router.put("/v1/scratchpads/{session}/keys/{key}", openapi_extra=operation(ScratchpadEntry, body=ScratchpadValue))
    async def put_key(request: Request, session: str, key: str) -> Response:
        """Set a key to any JSON of at most 64 KiB; a session has at most 256 keys."""
        query_of(request)
        caller, name, asked = services.caller(request), session_from(session), _key_from(key)
        value = check_value((await services.body(request, ScratchpadValue)).value)
        here = services.runtime

        def work() -> ScratchpadEntry:
            store = here.store(caller.workspace)
            return pads.write_key(store, agent=caller.agent, session=name, key=asked, value=value, now=here.now())

        return answer(await services.threads.run(work))

    @router.delete("/v1/scratchpads/{session}/keys/{key}", openapi_extra=operation(Deleted))
    async def delete_key(request: Request, session: str, key: str) -> Response:
        """Remove a key."""
        query_of(request)
        asked = _key_from(key)
        gone = await services.threads.run(lambda: _delete(services, request, session, asked))
        return answer(Deleted(deleted=gone > 0))

    @router.delete("/v1/scratchpads/{session}/keys", openapi_extra=operation(Cleared))
    async def delete_keys(request: Request, session: str) -> Response:
        """Remove all keys of a session."""
        query_of(request)
        return answer(Cleared(cleared=await services.threads.run(lambda: _delete(services, request, session, None))))


def _delete(services: Services, request: Request, session: str, key: str | None) -> int:
    caller, name = services.caller(request), session_from(session)
    store = services.store_to_read(caller.workspace)
    return pads.delete_keys(store, agent=caller.agent, session=name, key=key) if store is not None else 0


def _key_from(encoded: str) -> str:
    return check_key(decoded(encoded.encode(), "key"))
