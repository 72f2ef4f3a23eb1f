"""/v1/reminders: messages to deliver once at a time, made, read, claimed and reported."""

from __future__ import annotations

from typing import cast, get_args

from fastapi import APIRouter, Request, Response

from memory.scheduling.reminders import (
    cancel_reminder,
    check_delivery,
    claim_reminders,
    list_reminders,
    read_reminder,
    remind,
    reminder_delivered,
)
from reverie.checks import check_label
from reverie.errors import NotFound, Rejected
from reverie.scheduling.checks import check_claim, check_reminder
from reverie.scheduling.reminder_types import (
    ClaimedReminders,
    Reminder,
    ReminderClaim,
    ReminderDelivered,
    ReminderDraft,
    ReminderPage,
    ReminderStatus,
)
from reverie.types import Deleted
from server.answers import answer
from server.caller import Caller, decoded, page_of, query_of
from server.openapi import operation
from server.services import Services
from storage.scheduling.records import ReminderFilter
from storage.stores import Store

_QUERY = {"limit": "integer", "offset": "integer", "status": "string", "session": "string", "recipient": "string"}


def routes(services: Services) -> APIRouter:
    """The routes of reminders."""
    router = APIRouter(tags=["reminders"])
    _add_reading(router, services)
    _add_changing(router, services)
    _add_delivering(router, services)
    return router


def _add_reading(router: APIRouter, services: Services) -> None:
    @router.get("/v1/reminders", openapi_extra=operation(ReminderPage, query=_QUERY))
    async def get_reminders(request: Request) -> Response:
        """Reminders in the order in which they are due: in a `status`, of a `session`, for a `recipient`."""
        caller = services.caller(request)
        limit, offset = page_of(request, limit=50, others=("status", "session", "recipient"))
        asked = request.query_params
        status = _status(asked.get("status"))
        session, recipient = (check_label(name, asked.get(name)) for name in ("session", "recipient"))

        def work() -> ReminderPage:
            store = services.store_to_read(caller.workspace)
            if store is None:
                return ReminderPage(reminders=[], total=0)
            filter = ReminderFilter(status, session, recipient)
            now = services.runtime.now()
            return list_reminders(store, filter, agent=caller.agent, now=now, limit=limit, offset=offset)

        return answer(await services.threads.run(work))

    @router.get("/v1/reminders/{reminder}", openapi_extra=operation(Reminder))
    async def get_reminder(request: Request, reminder: str) -> Response:
        """One reminder."""
        query_of(request)
        caller, wanted = services.caller(request), _id_from(reminder)

        def work() -> Reminder:
            now = services.runtime.now()
            return read_reminder(_store_of(services, caller, wanted), wanted, agent=caller.agent, now=now)

        return answer(await services.threads.run(work))


def _add_changing(router: APIRouter, services: Services) -> None:
    @router.post("/v1/reminders", openapi_extra=operation(Reminder, body=ReminderDraft))
    async def post_reminder(request: Request) -> Response:
        """Have a message delivered at `due_at` or in so many seconds, once however often it is sent under its id."""
        query_of(request)
        caller = services.caller(request)
        body = await services.body(request, ReminderDraft)

        def work() -> Reminder:
            now = services.runtime.now()
            draft = check_reminder(body, now=now)
            check_delivery(draft, notifier=bool(services.runtime.settings.notifier_webhook_url))
            return remind(services.runtime.store(caller.workspace), draft, agent=caller.agent, now=now)

        return answer(await services.threads.run(work))

    @router.delete("/v1/reminders/{reminder}", openapi_extra=operation(Deleted))
    async def delete_reminder(request: Request, reminder: str) -> Response:
        """Remove a reminder, delivered or not."""
        query_of(request)
        caller, wanted = services.caller(request), _id_from(reminder)

        def work() -> Deleted:
            store = services.store_to_read(caller.workspace)
            return Deleted(deleted=store is not None and cancel_reminder(store, wanted, agent=caller.agent))

        return answer(await services.threads.run(work))


def _add_delivering(router: APIRouter, services: Services) -> None:
    @router.post("/v1/reminders/claim", openapi_extra=operation(ClaimedReminders, body=ReminderClaim))
    async def post_claim(request: Request) -> Response:
        """Claim due reminders to deliver them; what is not said to be delivered within the lease is due again."""
        query_of(request)
        caller = services.caller(request)
        claim = check_claim(await services.body(request, ReminderClaim))

        def work() -> ClaimedReminders:
            store = services.store_to_read(caller.workspace)
            if store is None:
                return ClaimedReminders(claimed=[])
            return claim_reminders(
                store,
                claim,
                agent=caller.agent,
                now=services.runtime.now(),
                pushed=bool(services.runtime.settings.notifier_webhook_url),
            )

        return answer(await services.threads.run(work))

    @router.post("/v1/reminders/{reminder}/delivered", openapi_extra=operation(Reminder, body=ReminderDelivered))
    async def post_delivered(request: Request, reminder: str) -> Response:
        """Say that a claimed reminder was delivered; saying it again changes nothing."""
        query_of(request)
        caller, wanted = services.caller(request), _id_from(reminder)
        token = (await services.body(request, ReminderDelivered)).token

        def work() -> Reminder:
            now = services.runtime.now()
            store = _store_of(services, caller, wanted)
            return reminder_delivered(store, wanted, token, agent=caller.agent, now=now)

        return answer(await services.threads.run(work))


def _store_of(services: Services, caller: Caller, reminder: str) -> Store:
    store = services.store_to_read(caller.workspace)
    if store is None:
        raise NotFound(f"agent {caller.agent} has no reminder {reminder!r}", field="id")
    return store


def _id_from(encoded: str) -> str:
    return str(check_label("id", decoded(encoded.encode(), "id"), required=True))


def _status(asked: str | None) -> ReminderStatus | None:
    if asked is not None and asked not in get_args(ReminderStatus):
        raise Rejected(f"status {asked[:80]!r} is none of {', '.join(get_args(ReminderStatus))}", field="status")
    return cast("ReminderStatus | None", asked)
