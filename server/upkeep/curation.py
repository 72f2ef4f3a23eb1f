"""/v1/curation: what jobs did to the caller's memories, and taking it back."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from memory.upkeep.curation import CurationFilter
from memory.upkeep.curation_logs import list_entries, show_entry, undo_all, undo_entry
from reverie.clock import to_micros
from reverie.errors import Rejected
from reverie.upkeep.curation_types import CurationEntry, CurationList, UndoBody, Undone
from server.answers import answer
from server.caller import decoded, page_of, query_of
from server.memories.memories import holdings
from server.openapi import operation
from server.services import Services

_QUERY = {"limit": "integer", "offset": "integer", "memory": "string", "job": "string", "action": "string"}
# What an undo leaves to the pipeline: memories to be cut anew, chunks to be embedded with another model.
_STAGES = ("chunk", "embed")


def routes(services: Services) -> APIRouter:
    """The routes of the curation log."""
    router = APIRouter(tags=["curation"])
    _add_reading(router, services)
    _add_undo(router, services)
    return router


def _add_reading(router: APIRouter, services: Services) -> None:
    @router.get("/v1/curation", openapi_extra=operation(CurationList, query=_QUERY))
    async def get_curation(request: Request) -> Response:
        """What jobs did, the newest first: about a `memory`, by a `job`, of an `action`."""
        here = holdings(services, services.caller(request))
        limit, offset = page_of(request, limit=50, others=("memory", "job", "action"))
        query = request.query_params
        matching = CurationFilter(memory=query.get("memory"), job=query.get("job"), action=query.get("action"))
        found = await services.threads.run(lambda: list_entries(here, matching, limit=limit, offset=offset))
        return answer(CurationList(entries=found))

    @router.get("/v1/curation/{entry}", openapi_extra=operation(CurationEntry))
    async def get_entry(request: Request, entry: str) -> Response:
        """One entry with the rows that it changed, before and after."""
        query_of(request)
        here, asked = holdings(services, services.caller(request)), decoded(entry.encode(), "id")
        return answer(await services.threads.run(lambda: show_entry(here, asked)))


def _add_undo(router: APIRouter, services: Services) -> None:
    @router.post("/v1/curation/undo", openapi_extra=operation(Undone, body=UndoBody))
    async def post_undo_all(request: Request) -> Response:
        """Undo the entries of a job or an action, or since a moment; all of them only when `all` says so."""
        query_of(request)
        here = holdings(services, services.caller(request))
        body = await services.body(request, UndoBody)
        matching = CurationFilter(job=body.job, action=body.action, since=_since(body))

        def work() -> Undone:
            done = undo_all(here, matching, now=services.runtime.now())
            for store in here.existing_stores() if done.undone else ():
                _notify_pipeline(services, store.name)
            return done

        return answer(await services.threads.wait(work))

    @router.post("/v1/curation/{entry}/undo", openapi_extra=operation(CurationEntry))
    async def post_undo(request: Request, entry: str) -> Response:
        """Put back all that an entry changed, or nothing."""
        query_of(request)
        here, asked = holdings(services, services.caller(request)), decoded(entry.encode(), "id")

        def work() -> CurationEntry:
            store, undone = undo_entry(here, asked, now=services.runtime.now())
            _notify_pipeline(services, store.name)
            return undone

        return answer(await services.threads.run(work))


def _since(body: UndoBody) -> int:
    if not (body.job or body.action or body.since or body.all):
        raise Rejected("name a job, an action or a moment (since), or set all: nothing was undone", field="all")
    if body.since is None:
        return 0
    if body.since.tzinfo is None:
        raise Rejected("since needs a time zone, as in 2026-05-01T12:00:00Z", field="since")
    return to_micros(body.since)


def _notify_pipeline(services: Services, workspace: str) -> None:
    for stage in _STAGES:
        services.runtime.notify_stage(stage, workspace)
