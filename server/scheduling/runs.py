"""/v1/schedules/{id}/runs and /v1/runs: what became of a schedule's runs, one by hand, its report and its end."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from memory.scheduling import runs
from memory.scheduling.due_runs import ToSend
from reverie.errors import NotFound
from reverie.scheduling.checks import check_report, check_run_id
from reverie.scheduling.schedule_types import RunReport, RunRequest, ScheduleRun, ScheduleRunList
from server.answers import answer
from server.caller import Caller, decoded, page_of, query_of
from server.openapi import operation
from server.scheduling.schedules import schedule_from, store_of_schedule
from server.services import Services
from storage.scheduling.records import OPEN_STATUSES
from storage.stores import Store


def routes(services: Services) -> APIRouter:
    """The routes of runs."""
    router = APIRouter(tags=["schedules"])
    _add_of_schedule(router, services)
    _add_reading(router, services)
    _add_ending(router, services)
    return router


def _add_of_schedule(router: APIRouter, services: Services) -> None:
    here = services.runtime
    page = {"limit": "integer", "offset": "integer"}

    @router.get("/v1/schedules/{schedule}/runs", openapi_extra=operation(ScheduleRunList, query=page))
    async def get_runs(request: Request, schedule: str) -> Response:
        """The runs of a schedule that are kept, the newest first."""
        caller, schedule_id = services.caller(request), schedule_from(schedule)
        limit, offset = page_of(request, limit=20)

        def work() -> ScheduleRunList:
            store = store_of_schedule(services, caller, schedule_id)
            found = runs.run_history(store, schedule_id, agent=caller.agent, limit=limit, offset=offset)
            return ScheduleRunList(runs=found)

        return answer(await services.threads.run(work))

    @router.post("/v1/schedules/{schedule}/run", openapi_extra=operation(ScheduleRun, body=RunRequest))
    async def post_run(request: Request, schedule: str) -> Response:
        """Start a run by hand; when the schedule fires next stays. With an `id`, once however often it is sent."""
        query_of(request)
        caller, schedule_id = services.caller(request), schedule_from(schedule)
        wanted = (await services.body(request, RunRequest)).id
        run_id = None if wanted is None else check_run_id(wanted, field="id")

        def work() -> ScheduleRun:
            store, now = store_of_schedule(services, caller, schedule_id), here.now()
            run = runs.run_now(store, schedule_id, agent=caller.agent, now=now, trace=caller.trace, run_id=run_id)
            if run.status in OPEN_STATUSES:
                here.schedules.send(caller.workspace, [ToSend(run.id, caller.trace)])
            return run

        return answer(await services.threads.run(work))


def _add_reading(router: APIRouter, services: Services) -> None:
    @router.get("/v1/runs/{run}", openapi_extra=operation(ScheduleRun))
    async def get_run(request: Request, run: str) -> Response:
        """One run with all of its output."""
        query_of(request)
        caller, run_id = services.caller(request), _run_from(run)

        def work() -> ScheduleRun:
            return runs.read_run(_store_of_run(services, caller, run_id), run_id, agent=caller.agent)

        return answer(await services.threads.run(work))


def _add_ending(router: APIRouter, services: Services) -> None:
    here = services.runtime

    @router.post("/v1/runs/{run}/complete", openapi_extra=operation(ScheduleRun, body=RunReport))
    async def post_complete(request: Request, run: str) -> Response:
        """Report how a run ended that the agent's own workers executed; reported again, it stays as it was first."""
        query_of(request)
        caller, run_id = services.caller(request), _run_from(run)
        report = check_report(await services.body(request, RunReport))

        def work() -> ScheduleRun:
            store, rules = _store_of_run(services, caller, run_id), here.settings.schedule_rules
            return runs.complete_run(store, run_id, report, agent=caller.agent, rules=rules, now=here.now())

        return answer(await services.threads.run(work))

    @router.post("/v1/runs/{run}/cancel", openapi_extra=operation(ScheduleRun))
    async def post_cancel(request: Request, run: str) -> Response:
        """End a run that is under way; what its executor still says is not kept."""
        query_of(request)
        caller, run_id = services.caller(request), _run_from(run)

        def work() -> ScheduleRun:
            store, rules = _store_of_run(services, caller, run_id), here.settings.schedule_rules
            return runs.cancel_run(store, run_id, agent=caller.agent, rules=rules, now=here.now())

        return answer(await services.threads.run(work))


def _store_of_run(services: Services, caller: Caller, run_id: str) -> Store:
    store = services.store_to_read(caller.workspace)
    if store is None:
        raise NotFound(f"agent {caller.agent} has no run {run_id!r}", field="run")
    return store


def _run_from(encoded: str) -> str:
    return check_run_id(decoded(encoded.encode(), "run"))
