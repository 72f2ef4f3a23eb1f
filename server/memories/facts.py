"""/v1/facts: one value for each category and key, and those that it had before."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from memory.memories.facts import fact_history, forget_fact, list_facts, read_fact, set_fact, to_fact
from reverie.checks import check_label
from reverie.memories.checks import check_fact, check_fact_name
from reverie.memories.types import Fact, FactDraft, FactList
from reverie.types import Deleted
from server.answers import answer
from server.caller import decoded, page_of, query_of
from server.memories.memories import holdings, notify_pipeline
from server.openapi import operation
from server.services import Services

_PAGE = {"limit": "integer", "offset": "integer"}


def routes(services: Services) -> APIRouter:
    """The routes of facts."""
    router = APIRouter(tags=["facts"])
    _add_reading(router, services)
    _add_changing(router, services)
    return router


def _add_reading(router: APIRouter, services: Services) -> None:
    @router.get("/v1/facts", openapi_extra=operation(FactList, query={**_PAGE, "category": "string"}))
    async def get_facts(request: Request) -> Response:
        """Facts that stand, the newest first."""
        here = holdings(services, services.caller(request))
        limit, offset = page_of(request, limit=50, others=("category",))
        category = check_label("category", request.query_params.get("category"))

        def work() -> FactList:
            return FactList(facts=list_facts(here, category=category, limit=limit, offset=offset))

        return answer(await services.threads.run(work))

    @router.get("/v1/facts/{category}/{key}", openapi_extra=operation(Fact))
    async def get_fact(request: Request, category: str, key: str) -> Response:
        """The fact that stands."""
        query_of(request)
        here, (of, name) = holdings(services, services.caller(request)), _name_from(category, key)
        return answer(await services.threads.run(lambda: read_fact(here, of, name)))

    @router.get("/v1/facts/{category}/{key}/history", openapi_extra=operation(FactList))
    async def get_history(request: Request, category: str, key: str) -> Response:
        """Every value that a fact had, the newest first."""
        query_of(request)
        here, (of, name) = holdings(services, services.caller(request)), _name_from(category, key)
        return answer(await services.threads.run(lambda: FactList(facts=fact_history(here, of, name))))


def _add_changing(router: APIRouter, services: Services) -> None:
    @router.put("/v1/facts/{category}/{key}", openapi_extra=operation(Fact, body=FactDraft))
    async def put_fact(request: Request, category: str, key: str) -> Response:
        """Say what a fact is; the older value is kept behind it, and the same one again changes nothing."""
        query_of(request)
        caller = services.caller(request)
        here, (of, name) = holdings(services, caller), _name_from(category, key)
        body = await services.body(request, FactDraft)

        def work() -> Fact:
            kept = set_fact(here, of, name, check_fact(body), now=services.runtime.now(), trace=caller.trace)
            return to_fact(notify_pipeline(services, kept).record)

        return answer(await services.threads.run(work))

    @router.delete("/v1/facts/{category}/{key}", openapi_extra=operation(Deleted))
    async def delete_fact(request: Request, category: str, key: str) -> Response:
        """Delete a fact for good with every value that it had."""
        query_of(request)
        here, (of, name) = holdings(services, services.caller(request)), _name_from(category, key)
        return answer(await services.threads.run(lambda: Deleted(deleted=forget_fact(here, of, name))))


def _name_from(category: str, key: str) -> tuple[str, str]:
    return check_fact_name(decoded(category.encode(), "category"), decoded(key.encode(), "key"))
