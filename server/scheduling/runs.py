"""/v1/schedules/{id}/run, /runs and /v1/runs: list, start, report and cancel the runs of a schedule."""

from __future__ import annotations

from typing import Any

from memory.conversion import convert
from memory.scheduling import runs
from memory.scheduling.due_runs import ToSend
from reverie.calls import OfUser
from reverie.errors import NotFound
from reverie.scheduling import calls
from reverie.scheduling.run_signing import WorkerKey
from reverie.scheduling.schedule_types import RunReport, ScheduleRun, ScheduleRunList
from server.caller import Caller
from server.endpoints import Endpoints
from server.scheduling.schedules import store_of_schedule
from server.services import Services
from server.user_stores import seen_store
from storage.scheduling.records import OPEN_STATUSES
from storage.stores import Store

endpoints = Endpoints("schedules")


@endpoints.serves(calls.ListScheduleRuns)
def _list_runs(services: Services, caller: Caller, call: calls.ListScheduleRuns) -> ScheduleRunList:
    store = store_of_schedule(services, caller, call, call.id)
    return ScheduleRunList(
        runs=runs.run_history(store, call.id, agent=caller.agent, limit=call.limit, offset=call.offset)
    )


@endpoints.serves(calls.RunScheduleNow)
def _run_now(services: Services, caller: Caller, call: calls.RunScheduleNow) -> ScheduleRun:
    runtime, store = services.runtime, store_of_schedule(services, caller, call, call.id)
    run = runs.run_now(store, call.id, agent=caller.agent, now=runtime.now(), trace=caller.trace, run_id=call.run_id)
    if run.status in OPEN_STATUSES:
        runtime.schedules.send(caller.workspace, [ToSend(run.id, caller.trace)])
    return run


@endpoints.serves(calls.GetWorkerKey)
def _get_worker_key(services: Services, caller: Caller, call: calls.GetWorkerKey) -> WorkerKey:
    del call
    return WorkerKey(key=services.runtime.schedules.worker_key(caller.workspace, caller.agent))


@endpoints.serves(calls.GetRun)
def _get_run(services: Services, caller: Caller, call: calls.GetRun) -> ScheduleRun:
    return runs.read_run(_store_of_run(services, caller, call, call.run_id), call.run_id, agent=caller.agent)


@endpoints.serves(calls.CompleteRun)
def _complete_run(services: Services, caller: Caller, call: calls.CompleteRun) -> ScheduleRun:
    runtime, store = services.runtime, _store_of_run(services, caller, call, call.run_id)
    return runs.complete_run(
        store,
        call.run_id,
        convert(call, RunReport),
        agent=caller.agent,
        rules=runtime.settings.schedule_rules,
        now=runtime.now(),
    )


@endpoints.serves(calls.CancelRun)
def _cancel_run(services: Services, caller: Caller, call: calls.CancelRun) -> ScheduleRun:
    runtime, store = services.runtime, _store_of_run(services, caller, call, call.run_id)
    rules = runtime.settings.schedule_rules
    return runs.cancel_run(store, call.run_id, agent=caller.agent, rules=rules, now=runtime.now())


def _store_of_run(services: Services, caller: Caller, call: OfUser[Any], run_id: str) -> Store:
    store = seen_store(services, caller, call)
    if store is None:
        raise NotFound(f"agent {caller.agent} has no run {run_id!r}", field="run")
    return store
