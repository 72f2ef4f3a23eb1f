"""GET /v1/recall-events: what an agent's recalls have found."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from memory.recall.events import recent_recalls
from reverie.errors import Rejected
from reverie.types import RecallEventList
from server.answers import answer
from server.caller import page_of
from server.openapi import operation
from server.services import Services

_QUERY = {"limit": "integer", "offset": "integer", "explain": "boolean"}


def routes(services: Services) -> APIRouter:
    """The route by which recalls are looked back at."""
    router = APIRouter(tags=["recall"])

    @router.get("/v1/recall-events", openapi_extra=operation(RecallEventList, query=_QUERY))
    async def get_recall_events(request: Request) -> Response:
        """What this agent's recalls found, the newest first: one event for each result, recorded soon after the answer.

        Memories that hold across workspaces show what recalls in any of them found, and are marked `account`. Scores
        are given only with `explain`.
        """
        caller = services.caller(request)
        limit, offset = page_of(request, limit=50, others=("explain",))
        explain = _explain(request)

        def work() -> RecallEventList:
            store, account = services.store_to_read(caller.workspace), services.runtime.stores.account_store()
            found = recent_recalls(
                store or account,
                agent=caller.agent,
                limit=limit,
                offset=offset,
                explain=explain,
                account=account if store is not None else None,
            )
            return RecallEventList(recall_events=found)

        return answer(await services.threads.run(work))

    return router


def _explain(request: Request) -> bool:
    given = request.query_params.get("explain", "false")
    if given not in ("true", "false"):
        raise Rejected(f"explain is {given[:80]!r}; it must be true or false", field="explain")
    return given == "true"
