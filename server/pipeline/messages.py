"""POST /v1/messages and POST /v1/files: what agents hand over, on its way into the inbox."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from reverie.checks import check_wait
from reverie.contract import WaitFor
from reverie.pipeline.items import build_file, build_session
from reverie.pipeline.submission import Submission, enqueue, prepare_messages, single
from reverie.types import Receipt
from server.answers import answer
from server.bodies import FileBody, MessagesBody
from server.caller import Caller, query_of
from server.openapi import operation
from server.services import Services

_STATUSES = {"202": "In the inbox", "200": "Stored, or searchable, as asked for by `wait`"}
_WHERE = ("session", "user", "provider", "chat_id", "channel", "strict")


def routes(services: Services) -> APIRouter:
    """The routes by which things come in."""
    router = APIRouter(tags=["ingest"])

    @router.post("/v1/messages", openapi_extra=operation(Receipt, body=MessagesBody, statuses=_STATUSES))
    async def post_messages(request: Request) -> Response:
        """Hand over messages of a session. Those at fault are in `rejected`, the others are accepted."""
        query_of(request)
        caller = services.caller(request)
        body = await services.body(request, MessagesBody)
        wait = check_wait(body.wait, body.timeout_seconds)

        def work() -> Receipt:
            where = build_session({name: getattr(body, name) for name in _WHERE})
            submission = prepare_messages(body.messages, agent=caller.agent, where=where, trace=caller.trace)
            return _deliver(services, caller, submission, wait, body.timeout_seconds)

        return await _receipt(services, work, wait)

    @router.post("/v1/files", openapi_extra=operation(Receipt, body=FileBody, statuses=_STATUSES))
    async def post_file(request: Request) -> Response:
        """Hand over the text of a document; one that has not changed is not indexed again."""
        query_of(request)
        caller = services.caller(request)
        body = await services.body(request, FileBody)
        wait = check_wait(body.wait, body.timeout_seconds)

        def work() -> Receipt:
            payload = build_file(
                agent=caller.agent,
                source_uri=body.source_uri,
                content=body.content,
                trace=caller.trace,
                session=body.session,
                metadata=body.metadata,
                tags=body.tags,
                item_id=body.id,
            )
            return _deliver(services, caller, single(payload), wait, body.timeout_seconds)

        return await _receipt(services, work, wait)

    return router


async def _receipt(services: Services, work: Callable[[], Receipt], wait: WaitFor) -> Response:
    if wait == "queued":
        return answer(await services.threads.run(work), status=202)
    return answer(await services.threads.wait(work))


def _deliver(
    services: Services, caller: Caller, submission: Submission, wait: WaitFor, timeout_seconds: float
) -> Receipt:
    if not submission.payloads:
        return submission.receipt(wait)
    return enqueue(services.producer(caller.workspace), submission, wait=wait, timeout_seconds=timeout_seconds)
