"""/v1/notifications: what there is to tell of schedules, read from a list and taken off it."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from memory.scheduling.notifications import acknowledge, list_notifications
from reverie.checks import check_label
from reverie.errors import Rejected
from reverie.scheduling.checks import check_ids
from reverie.scheduling.notification_types import Acknowledged, Acknowledgement, NotificationPage
from server.answers import answer
from server.caller import page_of, query_of
from server.openapi import operation
from server.services import Services
from storage.scheduling.records import NotificationFilter

_QUERY = {
    "limit": "integer", "offset": "integer", "user": "string", "schedule": "string", "channel": "string",
    "everything": "boolean",
}  # fmt: skip


def routes(services: Services) -> APIRouter:
    """The routes of notifications."""
    router = APIRouter(tags=["notifications"])
    _add_reading(router, services)
    _add_acknowledging(router, services)
    return router


def _add_reading(router: APIRouter, services: Services) -> None:
    @router.get("/v1/notifications", openapi_extra=operation(NotificationPage, query=_QUERY))
    async def get_notifications(request: Request) -> Response:
        """What is to be told, the oldest first: to a `user`, of a `schedule`, on a `channel`.

        With `everything=true` also what was acknowledged.
        """
        caller = services.caller(request)
        limit, offset = page_of(request, limit=50, others=("user", "schedule", "channel", "everything"))
        asked = request.query_params
        user, schedule, channel = (check_label(name, asked.get(name)) for name in ("user", "schedule", "channel"))
        everything = asked.get("everything", "false")
        if everything not in ("true", "false"):
            raise Rejected("everything must be true or false", field="everything")

        def work() -> NotificationPage:
            store = services.store_to_read(caller.workspace)
            if store is None:
                return NotificationPage(notifications=[], total=0)
            filter = NotificationFilter(user, schedule, channel, include_acknowledged=everything == "true")
            return list_notifications(store, filter, agent=caller.agent, limit=limit, offset=offset)

        return answer(await services.threads.run(work))


def _add_acknowledging(router: APIRouter, services: Services) -> None:
    @router.post("/v1/notifications/acknowledge", openapi_extra=operation(Acknowledged, body=Acknowledgement))
    async def post_acknowledge(request: Request) -> Response:
        """Take notifications off the list; ids that are not on it are passed over."""
        query_of(request)
        caller = services.caller(request)
        ids = check_ids((await services.body(request, Acknowledgement)).ids)

        def work() -> Acknowledged:
            store = services.store_to_read(caller.workspace)
            if store is None:
                return Acknowledged(acknowledged=0)
            return acknowledge(store, ids, agent=caller.agent, now=services.runtime.now())

        return answer(await services.threads.run(work))
