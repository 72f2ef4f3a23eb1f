"""/v1/sessions and /v1/workspace: conversations listed, read, exported and forgotten."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fastapi import APIRouter, Request, Response

from memory.sessions.forgetting import forget_session, forget_workspace
from memory.sessions.sessions import export_session, list_sessions, newest_messages, read_messages, read_session
from reverie.errors import NotFound, Rejected
from reverie.types import Deleted, MessageList, Session, SessionExport, SessionList
from server.answers import answer
from server.caller import TRACE_HEADER, WORKSPACE_HEADER, Caller, page_of, query_of, session_from, workspace_of
from server.openapi import operation
from server.services import Services
from storage.stores import Store

_STATUSES = ("active", "idle", "archived")
_PAGE = {"limit": "integer", "offset": "integer"}

_T = TypeVar("_T")


def routes(services: Services) -> APIRouter:
    """The routes of sessions."""
    router = APIRouter(tags=["sessions"])
    _add_reading(router, services)
    _add_messages(router, services)
    _add_forgetting(router, services)
    return router


def _add_reading(router: APIRouter, services: Services) -> None:
    @router.get("/v1/sessions", openapi_extra=operation(SessionList, query={**_PAGE, "status": "string"}))
    async def get_sessions(request: Request) -> Response:
        """Sessions, the most recently active first; archived ones only with `status=archived`."""
        caller = services.caller(request)
        limit, offset = page_of(request, limit=50, others=("status",))
        status = request.query_params.get("status")
        if status is not None and status not in _STATUSES:
            raise Rejected(f"status {status[:80]!r} is none of {', '.join(_STATUSES)}", field="status")

        def work() -> SessionList:
            store = services.store_to_read(caller.workspace)
            if store is None:
                return SessionList(sessions=[])
            found = list_sessions(store, agent=caller.agent, limit=limit, offset=offset, status=status)
            return SessionList(sessions=found)

        return answer(await services.threads.run(work))

    @router.get("/v1/sessions/{session}", openapi_extra=operation(Session))
    async def get_session(request: Request, session: str) -> Response:
        """One session."""
        query_of(request)
        return await _of_session(
            services, request, session, lambda store, who, name: read_session(store, agent=who.agent, session=name)
        )

    @router.get("/v1/sessions/{session}/export", openapi_extra=operation(SessionExport))
    async def get_export(request: Request, session: str) -> Response:
        """A session with all its messages."""
        query_of(request)
        return await _of_session(
            services, request, session, lambda store, who, name: export_session(store, agent=who.agent, session=name)
        )


def _add_messages(router: APIRouter, services: Services) -> None:
    @router.get("/v1/sessions/{session}/messages", openapi_extra=operation(MessageList, query=_PAGE))
    async def get_messages(request: Request, session: str) -> Response:
        """Messages of a session in the order in which they were said."""
        limit, offset = page_of(request, limit=100)

        def read(store: Store, who: Caller, name: str) -> MessageList:
            found = read_messages(store, agent=who.agent, session=name, limit=limit, offset=offset)
            return MessageList(messages=found)

        return await _of_session(services, request, session, read)

    @router.get("/v1/sessions/{session}/working", openapi_extra=operation(MessageList))
    async def get_working(request: Request, session: str) -> Response:
        """The newest messages of a session, oldest first, mostly without touching the database."""
        query_of(request)

        def read(store: Store, who: Caller, name: str) -> MessageList:
            working = services.runtime.working
            return MessageList(messages=newest_messages(store, working, agent=who.agent, session=name))

        return await _of_session(services, request, session, read)


def _add_forgetting(router: APIRouter, services: Services) -> None:
    @router.delete("/v1/sessions/{session}", openapi_extra=operation(Deleted))
    async def delete_session(request: Request, session: str) -> Response:
        """Forget a session with all that came from it, also what is still on its way."""
        query_of(request)
        caller, name = services.caller(request), session_from(session)
        return answer(await services.threads.run(lambda: _forget(services, caller, name)))

    @router.delete("/v1/workspace", openapi_extra=operation(Deleted, headers=(WORKSPACE_HEADER, TRACE_HEADER)))
    async def delete_workspace(request: Request) -> Response:
        """Delete a whole workspace, of all agents, for good. The header must name it: no default is deleted."""
        query_of(request)
        workspace = workspace_of(request, default=None)
        here = services.runtime

        def work() -> Deleted:
            here.indexes.forget_workspace(workspace)
            gone = forget_workspace(here.stores, here.inbox, here.working, here.recall_log, workspace=workspace)
            return Deleted(deleted=gone)

        return answer(await services.threads.run(work))


def _forget(services: Services, caller: Caller, session: str) -> Deleted:
    here = services.runtime
    try:
        # Where something is still on its way into a workspace that does not exist yet, it has to be kept out.
        coming = here.inbox.stats(caller.workspace).size > 0
        store = here.stores.workspace(caller.workspace, create=coming)
    except NotFound:
        return Deleted(deleted=False)
    account = here.stores.account_store()
    gone = forget_session(store, account, here.inbox, here.working, agent=caller.agent, session=session)
    return Deleted(deleted=gone)


async def _of_session(
    services: Services, request: Request, encoded: str, read: Callable[[Store, Caller, str], _T]
) -> Response:
    """Answer with what `read` finds of a session. Raises `NotFound`."""
    caller, name = services.caller(request), session_from(encoded)
    return answer(await services.threads.run(lambda: read(services.store_of_session(caller, name), caller, name)))
