"""The steps of a session's life: start, idle, archive; and a session by its reference code."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from memory.conversion import convert
from memory.sessions.lifecycle import SessionDetails, archive_session, idle_session, session_by_ref, start_session
from reverie.errors import NotFound
from reverie.types import Session
from server.answers import answer
from server.bodies import ArchiveBody, StartBody
from server.caller import decoded, query_of, session_from
from server.openapi import operation
from server.services import Services
from worker.composition import session_end_hooks


def routes(services: Services) -> APIRouter:
    """The routes of a session's life. After those of sessions: their paths are the more special ones."""
    router = APIRouter(tags=["sessions"])
    _add_start(router, services)
    _add_end(router, services)
    _add_reference(router, services)
    return router


def _add_start(router: APIRouter, services: Services) -> None:
    @router.post("/v1/sessions/{session}/start", openapi_extra=operation(Session, body=StartBody))
    async def post_start(request: Request, session: str) -> Response:
        """Make a session before its first message, or open an idle one again."""
        query_of(request)
        caller, name = services.caller(request), session_from(session)
        body = await services.body(request, StartBody)
        details = convert(body, SessionDetails)
        here = services.runtime

        def work() -> Session:
            store = here.store(caller.workspace)
            return start_session(store, details, agent=caller.agent, session=name, now=here.now())

        return answer(await services.threads.run(work))


def _add_end(router: APIRouter, services: Services) -> None:
    here = services.runtime

    @router.post("/v1/sessions/{session}/idle", openapi_extra=operation(Session))
    async def post_idle(request: Request, session: str) -> Response:
        """End an active session: memories are extracted a last time, those of the conversation alone are cleared."""
        query_of(request)
        caller, name = services.caller(request), session_from(session)

        def work() -> Session:
            store = services.store_of_session(caller, name)
            return idle_session(store, session_end_hooks(here), agent=caller.agent, session=name, now=here.now())

        return answer(await services.threads.wait(work))

    @router.post("/v1/sessions/{session}/archive", openapi_extra=operation(Session, body=ArchiveBody))
    async def post_archive(request: Request, session: str) -> Response:
        """Put an idle session aside; with `force` an active one, which ends with that."""
        query_of(request)
        caller, name = services.caller(request), session_from(session)
        force = (await services.body(request, ArchiveBody)).force

        def work() -> Session:
            store, ending = services.store_of_session(caller, name), session_end_hooks(here)
            return archive_session(store, ending, agent=caller.agent, session=name, now=here.now(), force=force)

        return answer(await services.threads.wait(work))


def _add_reference(router: APIRouter, services: Services) -> None:
    @router.get("/v1/sessions/by-ref/{code}", openapi_extra=operation(Session))
    async def get_by_reference(request: Request, code: str) -> Response:
        """The session with this reference code."""
        query_of(request)
        caller, asked = services.caller(request), decoded(code.encode(), "ref_code")

        def work() -> Session:
            store = services.store_to_read(caller.workspace)
            if store is None:
                raise NotFound(f"agent {caller.agent} has no session with reference code {asked!r}", field="ref_code")
            return session_by_ref(store, agent=caller.agent, ref_code=asked)

        return answer(await services.threads.run(work))
