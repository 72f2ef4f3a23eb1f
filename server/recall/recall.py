"""POST /v1/recall, the call that agents make most, and POST /v1/sessions/search."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from retrieval.request import RecallRequest
from reverie.checks import check_label, check_query, check_session, normalise_tags
from reverie.types import FoundSessions, RecallResponse
from server.answers import answer
from server.bodies import RecallBody, SessionSearchBody
from server.caller import Caller, query_of
from server.openapi import operation
from server.services import Services


def routes(services: Services) -> APIRouter:
    """Return the routes of recall and of the search for sessions."""
    router = APIRouter(tags=["recall"])

    @router.post("/v1/recall", openapi_extra=operation(RecallResponse, body=RecallBody))
    async def post_recall(request: Request) -> Response:
        """Return the agent's messages, files and memories that fit a query, best first; scores only with `explain`."""
        query_of(request)
        caller = services.caller(request)
        body = await services.body(request, RecallBody)
        return answer(await services.threads.run(lambda: _recall(services, caller, body)))

    @router.post("/v1/sessions/search", openapi_extra=operation(FoundSessions, body=SessionSearchBody))
    async def post_session_search(request: Request) -> Response:
        """Return the agent's sessions that fit a query, best first."""
        query_of(request)
        caller = services.caller(request)
        body = await services.body(request, SessionSearchBody)
        return answer(await services.threads.run(lambda: _search_sessions(services, caller, body)))

    return router


def _search_sessions(services: Services, caller: Caller, body: SessionSearchBody) -> FoundSessions:
    request = RecallRequest(
        query=check_query(body.query),
        agent=caller.agent,
        tags=tuple(normalise_tags(body.tags)),
        mode=body.mode,
        limit=body.limit,
    )
    return services.runtime.recaller.search_sessions(caller.workspace, request)


def _recall(services: Services, caller: Caller, body: RecallBody) -> RecallResponse:
    request = RecallRequest(
        query=check_query(body.query),
        agent=caller.agent,
        session=None if body.session is None else check_session(body.session),
        channel=None if body.channel is None else check_label("channel", body.channel, required=True),
        scope=body.scope,
        tags=tuple(normalise_tags(body.tags)),
        kinds=tuple(body.kinds),
        mode=body.mode,
        limit=body.limit,
        query_embedding=body.query_embedding,
        fusion=body.fusion,
        vector_weight=body.vector_weight,
        fts_weight=body.fts_weight,
        neighbours=body.neighbours,
        explain=body.explain,
    )
    return services.recall(caller, request)
