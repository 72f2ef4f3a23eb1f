"""/v1/schedules: what is to be done at a time or again and again, made, found, changed, paused and resumed."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from memory.scheduling import schedules as timetable
from memory.scheduling.filters import ScheduleQuery
from reverie.errors import NotFound
from reverie.scheduling.checks import check_schedule_id
from reverie.scheduling.schedule_types import NextRuns, Schedule, ScheduleCount, SchedulePage
from reverie.types import Deleted
from server.answers import answer
from server.caller import Caller, decoded, number_of, page_of, query_of
from server.openapi import operation
from server.scheduling.bodies import ScheduleBody, ScheduleChangesBody, changes_of, draft_from, fields_of
from server.services import Services
from storage.scheduling.records import ScheduleFilter
from storage.stores import Store

_FILTERS = (
    "user", "status", "name", "text", "executor", "cadence", "channel", "session", "due_before", "due_after",
)  # fmt: skip
_PAGE = {"limit": "integer", "offset": "integer"}
_NEXT_RUNS = 5


def routes(services: Services) -> APIRouter:
    """The routes of schedules."""
    router = APIRouter(tags=["schedules"])
    _add_finding(router, services)
    _add_reading(router, services)
    _add_making(router, services)
    _add_changing(router, services)
    _add_pausing(router, services)
    return router


def schedule_from(encoded: str) -> str:
    """The id of a schedule in a path, which is percent-encoded."""
    return check_schedule_id(decoded(encoded.encode(), "id"))


def store_of_schedule(services: Services, caller: Caller, schedule_id: str) -> Store:
    """The store in which a schedule would lie. Raises `NotFound` for the schedule where there is none."""
    store = services.store_to_read(caller.workspace)
    if store is None:
        raise NotFound(f"agent {caller.agent} has no schedule {schedule_id!r}", field="id")
    return store


def _add_finding(router: APIRouter, services: Services) -> None:
    filters = dict.fromkeys(_FILTERS, "string")

    @router.get("/v1/schedules", openapi_extra=operation(SchedulePage, query={**_PAGE, **filters}))
    async def get_schedules(request: Request) -> Response:
        """Schedules, the newest first: those to which every parameter given applies; `status` may be given often."""
        caller, wanted = services.caller(request), _wanted(request)
        limit, offset = page_of(request, limit=50, others=_FILTERS)

        def work() -> SchedulePage:
            store = services.store_to_read(caller.workspace)
            if store is None:
                return SchedulePage(schedules=[], total=0)
            return timetable.search_schedules(store, wanted, agent=caller.agent, limit=limit, offset=offset)

        return answer(await services.threads.run(work))

    @router.get("/v1/schedules/count", openapi_extra=operation(ScheduleCount, query=filters))
    async def get_count(request: Request) -> Response:
        """How many schedules there are to which every parameter given applies."""
        query_of(request, _FILTERS)
        caller, wanted = services.caller(request), _wanted(request)

        def work() -> ScheduleCount:
            store = services.store_to_read(caller.workspace)
            found = 0 if store is None else timetable.count_schedules(store, wanted, agent=caller.agent)
            return ScheduleCount(count=found)

        return answer(await services.threads.run(work))


def _add_reading(router: APIRouter, services: Services) -> None:
    here = services.runtime

    @router.get("/v1/schedules/{schedule}", openapi_extra=operation(Schedule))
    async def get_schedule(request: Request, schedule: str) -> Response:
        """One schedule."""
        query_of(request)
        caller, schedule_id = services.caller(request), schedule_from(schedule)

        def work() -> Schedule:
            store = store_of_schedule(services, caller, schedule_id)
            return timetable.read_schedule(store, schedule_id, agent=caller.agent)

        return answer(await services.threads.run(work))

    @router.get("/v1/schedules/{schedule}/next", openapi_extra=operation(NextRuns, query={"count": "integer"}))
    async def get_next(request: Request, schedule: str) -> Response:
        """When a schedule fires next, in UTC and on the clocks of its zone; nothing for one that does not fire."""
        query_of(request, ("count",))
        caller, schedule_id = services.caller(request), schedule_from(schedule)
        count = number_of(request, "count", default=_NEXT_RUNS, lowest=1, highest=timetable.MAX_NEXT_RUNS)

        def work() -> NextRuns:
            store = store_of_schedule(services, caller, schedule_id)
            return timetable.upcoming(store, schedule_id, agent=caller.agent, count=count, now=here.now())

        return answer(await services.threads.run(work))


def _add_making(router: APIRouter, services: Services) -> None:
    here = services.runtime

    @router.post("/v1/schedules", openapi_extra=operation(Schedule, body=ScheduleBody))
    async def post_schedule(request: Request) -> Response:
        """Make a schedule, once however often it is sent under its id."""
        query_of(request)
        caller = services.caller(request)
        body = await services.body(request, ScheduleBody)

        def work() -> Schedule:
            with fields_of(body):
                made = timetable.create_in_workspace(
                    here.stores,
                    caller.workspace,
                    draft_from(body, agent=caller.agent),
                    agent=caller.agent,
                    rules=here.settings.schedule_rules,
                    check_url=here.schedules.check_url,
                    now=here.now(),
                )
            here.schedules.notify_goals(caller.workspace)
            return made

        return answer(await services.threads.run(work))


def _add_changing(router: APIRouter, services: Services) -> None:
    here = services.runtime

    @router.patch("/v1/schedules/{schedule}", openapi_extra=operation(Schedule, body=ScheduleChangesBody))
    async def patch_schedule(request: Request, schedule: str) -> Response:
        """Change what the body names. A new cadence begins now, and makes one active again that had ended."""
        query_of(request)
        caller, schedule_id = services.caller(request), schedule_from(schedule)
        body = await services.body(request, ScheduleChangesBody)

        def work() -> Schedule:
            with fields_of(body):
                changed = timetable.update_schedule(
                    store_of_schedule(services, caller, schedule_id),
                    schedule_id,
                    changes_of(body),
                    agent=caller.agent,
                    rules=here.settings.schedule_rules,
                    check_url=here.schedules.check_url,
                    now=here.now(),
                )
            if isinstance(body.goal, str):
                here.schedules.notify_goals(caller.workspace)
            return changed

        return answer(await services.threads.run(work))

    @router.delete("/v1/schedules/{schedule}", openapi_extra=operation(Deleted))
    async def delete_schedule(request: Request, schedule: str) -> Response:
        """Remove a schedule with its runs for good."""
        query_of(request)
        caller, schedule_id = services.caller(request), schedule_from(schedule)

        def work() -> Deleted:
            store = services.store_to_read(caller.workspace)
            gone = store is not None and timetable.delete_schedule(store, schedule_id, agent=caller.agent)
            return Deleted(deleted=gone)

        return answer(await services.threads.run(work))


def _add_pausing(router: APIRouter, services: Services) -> None:
    here = services.runtime

    async def changed(request: Request, schedule: str, change: Callable[[Store, str, Caller], Schedule]) -> Response:
        query_of(request)
        caller, schedule_id = services.caller(request), schedule_from(schedule)

        def work() -> Schedule:
            return change(store_of_schedule(services, caller, schedule_id), schedule_id, caller)

        return answer(await services.threads.run(work))

    def pause(store: Store, schedule_id: str, caller: Caller) -> Schedule:
        return timetable.pause_schedule(store, schedule_id, agent=caller.agent, now=here.now())

    def resume(store: Store, schedule_id: str, caller: Caller) -> Schedule:
        rules = here.settings.schedule_rules
        return timetable.resume_schedule(store, schedule_id, agent=caller.agent, rules=rules, now=here.now())

    @router.post("/v1/schedules/{schedule}/pause", openapi_extra=operation(Schedule))
    async def post_pause(request: Request, schedule: str) -> Response:
        """Have a schedule fire no more until it is resumed; a run that is under way goes on."""
        return await changed(request, schedule, pause)

    @router.post("/v1/schedules/{schedule}/resume", openapi_extra=operation(Schedule))
    async def post_resume(request: Request, schedule: str) -> Response:
        """Have a schedule fire again that was paused, disabled or had failed; its failures count 0."""
        return await changed(request, schedule, resume)


def _wanted(request: Request) -> ScheduleFilter:
    given = {name: request.query_params.get(name) for name in _FILTERS if name != "status"}
    return ScheduleQuery(**given, statuses=request.query_params.getlist("status")).to_filter()
