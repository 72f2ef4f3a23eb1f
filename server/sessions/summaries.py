"""/v1/sessions/{session}/summary and /compact: what a session's summary says, and condensing its oldest turns now."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from memory.sessions.summary_jobs import compact_session, read_summary
from reverie.types import Compacted, SessionSummary
from server.answers import answer
from server.bodies import RestoreBody
from server.caller import Caller, query_of, session_from
from server.openapi import operation
from server.services import Services
from worker.composition import build_condenser, summary_rules


def routes(services: Services) -> APIRouter:
    """The routes of summaries."""
    router = APIRouter(tags=["sessions"])

    @router.get("/v1/sessions/{session}/summary", openapi_extra=operation(SessionSummary))
    async def get_summary(request: Request, session: str) -> Response:
        """The rolling summary of a session, and how many of its messages it covers."""
        query_of(request)
        caller, name = services.caller(request), session_from(session)
        return answer(await services.threads.run(lambda: _summary(services, caller, name)))

    @router.post("/v1/sessions/{session}/compact", openapi_extra=operation(Compacted, body=RestoreBody))
    async def post_compact(request: Request, session: str) -> Response:
        """Condense the oldest turns of a session now, until it takes at most so many tokens."""
        query_of(request)
        caller, name = services.caller(request), session_from(session)
        body = await services.body(request, RestoreBody)
        return answer(await services.threads.run(lambda: _compact(services, caller, name, body)))

    return router


def _summary(services: Services, caller: Caller, session: str) -> SessionSummary:
    store = services.store_of_session(caller, session)
    return read_summary(store, services.runtime.tokens, agent=caller.agent, session=session)


def _compact(services: Services, caller: Caller, session: str, body: RestoreBody) -> Compacted:
    here = services.runtime
    return compact_session(
        services.store_of_session(caller, session),
        build_condenser(here),
        summary_rules(here.settings),
        agent=caller.agent,
        session=session,
        token_budget=body.token_budget,
        now=here.now(),
    )
