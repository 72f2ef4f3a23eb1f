"""/v1/dead-letters: work that cannot succeed by itself, looked at, replayed, dropped."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from memory.pipeline.dead_letters import drop, replay
from reverie.clock import from_micros
from reverie.errors import NotFound
from reverie.types import DeadLetter, DeadLetterList, Deleted
from server.answers import answer
from server.caller import Caller, letter_from, page_of, query_of
from server.openapi import operation
from server.services import Services
from storage.pipeline import records
from storage.stores import Store


def routes(services: Services) -> APIRouter:
    """The routes of dead letters."""
    router = APIRouter(tags=["dead letters"])
    _add_reading(router, services)
    _add_deciding(router, services)
    return router


def _add_reading(router: APIRouter, services: Services) -> None:
    query = {"limit": "integer", "offset": "integer"}

    @router.get("/v1/dead-letters", openapi_extra=operation(DeadLetterList, query=query))
    async def get_dead_letters(request: Request) -> Response:
        """This agent's dead letters, the newest first, without their payloads."""
        caller = services.caller(request)
        limit, offset = page_of(request, limit=50)

        def work() -> DeadLetterList:
            store = services.store_to_read(caller.workspace)
            if store is None:
                return DeadLetterList(dead_letters=[])
            with store.reading() as tx:
                found = tx.for_agent(caller.agent).dead_letters.list(limit=limit, offset=offset)
            return DeadLetterList(dead_letters=[as_dead_letter(record, with_payload=False) for record in found])

        return answer(await services.threads.run(work))

    @router.get("/v1/dead-letters/{letter}", openapi_extra=operation(DeadLetter))
    async def get_dead_letter(request: Request, letter: str) -> Response:
        """One dead letter with its payload."""
        query_of(request)
        caller, number = services.caller(request), letter_from(letter)

        def work() -> DeadLetter:
            with _store(services, caller, number).reading() as tx:
                return as_dead_letter(tx.for_agent(caller.agent).dead_letters.get(number), with_payload=True)

        return answer(await services.threads.run(work))


def _add_deciding(router: APIRouter, services: Services) -> None:
    @router.post("/v1/dead-letters/{letter}/replay", openapi_extra=operation(DeadLetter))
    async def post_replay(request: Request, letter: str) -> Response:
        """Give a dead letter a fresh start. If it fails again, it comes back with its new error."""
        query_of(request)
        caller, number = services.caller(request), letter_from(letter)
        here = services.runtime

        def work() -> DeadLetter:
            record = replay(_store(services, caller, number), here.inbox, number, agent=caller.agent)
            here.notify_stage(record.stage, caller.workspace, trace=caller.trace)
            return as_dead_letter(record, with_payload=False)

        return answer(await services.threads.run(work))

    @router.delete("/v1/dead-letters/{letter}", openapi_extra=operation(Deleted))
    async def delete_dead_letter(request: Request, letter: str) -> Response:
        """Drop a dead letter for good."""
        query_of(request)
        caller, number = services.caller(request), letter_from(letter)

        def work() -> Deleted:
            try:
                drop(_store(services, caller, number), number, agent=caller.agent)
            except NotFound:
                return Deleted(deleted=False)
            return Deleted(deleted=True)

        return answer(await services.threads.run(work))


def as_dead_letter(record: records.DeadLetter, *, with_payload: bool) -> DeadLetter:
    """A dead letter as the client sees it."""
    payload = record.payload.decode("utf-8", "replace") if with_payload and record.payload is not None else None
    return DeadLetter(
        id=record.id,
        agent=record.agent,
        stage=record.stage,
        item_id=record.item_id,
        error_type=record.error_type,
        error=record.error,
        attempts=record.attempts,
        created_at=from_micros(record.created_at),
        session=record.session,
        trace=record.trace,
        payload=payload,
    )


def _store(services: Services, caller: Caller, number: int) -> Store:
    store = services.store_to_read(caller.workspace)
    if store is None:
        raise NotFound(f"there is no dead letter {number}", field="id")
    return store
