"""/v1/checkpoints, /v1/history and /v1/promotions: an agent's memory files in git, and what dreams promoted."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from memory.upkeep import notebook
from reverie.errors import NotFound, Rejected
from reverie.upkeep.notebook_types import Checkpoint, CommitList, Difference, PromotionList
from server.answers import answer
from server.bodies import CheckpointBody
from server.caller import Caller, page_of, query_of
from server.openapi import operation
from server.services import Services

_PAGE = {"limit": "integer", "offset": "integer"}


def routes(services: Services) -> APIRouter:
    """The routes of notebooks."""
    router = APIRouter(tags=["notebook"])
    _add_git(router, services)
    _add_promotions(router, services)
    return router


def _add_git(router: APIRouter, services: Services) -> None:
    @router.post("/v1/checkpoints", openapi_extra=operation(Checkpoint, body=CheckpointBody))
    async def post_checkpoint(request: Request) -> Response:
        """Commit the agent's memory files as they are now; no commit where nothing has changed since the last."""
        query_of(request)
        caller = services.caller(request)
        body = await services.body(request, CheckpointBody)
        return answer(await services.threads.run(lambda: _checkpoint(services, caller, body.message)))

    @router.get("/v1/history", openapi_extra=operation(CommitList, query={"limit": "integer"}))
    async def get_history(request: Request) -> Response:
        """The commits of the agent's memory files, the newest first."""
        caller = services.caller(request)
        limit, offset = page_of(request, limit=20)
        if offset:
            raise Rejected("a history has no offset: ask for more of it with limit", field="offset")
        notebooks = services.runtime.notebooks

        def work() -> CommitList:
            return CommitList(commits=notebook.history(notebooks, caller.workspace, caller.agent, limit=limit))

        return answer(await services.threads.run(work))

    @router.get("/v1/history/diff", openapi_extra=operation(Difference, query={"a": "string", "b": "string"}))
    async def get_diff(request: Request) -> Response:
        """How the files of commit `b`, or of the newest, differ from those of `a`, as unified text."""
        caller = services.caller(request)
        query = query_of(request, ("a", "b"))
        if "a" not in query:
            raise Rejected("a must name a commit: its id, at least 7 characters of it, or HEAD", field="a")
        notebooks = services.runtime.notebooks
        return answer(
            await services.threads.run(
                lambda: notebook.diff(notebooks, caller.workspace, caller.agent, query["a"], query.get("b"))
            )
        )


def _add_promotions(router: APIRouter, services: Services) -> None:
    @router.get("/v1/promotions", openapi_extra=operation(PromotionList, query=_PAGE))
    async def get_promotions(request: Request) -> Response:
        """What dream sweeps promoted, the newest first, with what each memory says now."""
        caller = services.caller(request)
        limit, offset = page_of(request, limit=50)

        def work() -> PromotionList:
            store = services.store_to_read(caller.workspace)
            if store is None:
                return PromotionList(promotions=[])
            found = notebook.promotions(store, agent=caller.agent, limit=limit, offset=offset)
            return PromotionList(promotions=found)

        return answer(await services.threads.run(work))


def _checkpoint(services: Services, caller: Caller, message: str | None) -> Checkpoint:
    runtime = services.runtime
    store = services.store_to_read(caller.workspace)
    if store is None:
        raise NotFound(f"nothing has been stored in workspace {caller.workspace!r} yet", field="workspace")
    return notebook.checkpoint(store, runtime.notebooks, caller.agent, message, now=runtime.now())
