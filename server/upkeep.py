"""Calls about what jobs changed, jobs themselves, and memory files."""

from __future__ import annotations

import dataclasses
from typing import Any

from msgspec.structs import replace

from memory.lifecycle.curation import CurationLogs, entries_of_run
from memory.trust.tokens import Principal
from memory.upkeep import notebook
from memory.upkeep.notebook import Notebooks
from reverie import upkeep as calls
from reverie.clock import to_micros
from reverie.errors import NotFound
from server.authorisation import existing_store
from server.caller import Caller, lacking
from server.endpoints import Endpoints
from server.services import Services
from storage.curation import CurationFilter
from worker.job_runs import list_jobs, run_job_now


def _matching(_services: Services, _caller: Caller, call: Any) -> CurationFilter:
    """Return the conditions of a list of entries or of runs."""
    names = ("memory", "job", "action", "due")
    return CurationFilter(**{name: getattr(call, name) for name in names if name in call.__struct_fields__})


endpoints = Endpoints("curation", matching=_matching)

# An undo leaves work for the pipeline: memories to chunk again, chunks to embed with another model.
_STAGES = ("chunk", "embed")


def _logs(services: Services, caller: Caller, _: object = None) -> CurationLogs:
    return CurationLogs(services.agent_memories(caller))


def _notebooks(services: Services, _caller: Caller, _call: object) -> Notebooks:
    return services.runtime.notebooks


endpoints.passes(calls.ListCuration, CurationLogs.list, _logs)
endpoints.passes(calls.ListCurationRuns, CurationLogs.runs, _logs)
endpoints.passes(calls.GetCurationRun, CurationLogs.run, _logs)
endpoints.passes(calls.AcceptChanges, CurationLogs.accept, _logs)
endpoints.passes(calls.GetCurationEntry, CurationLogs.show, _logs)


@endpoints.serves(calls.UndoAll, waits=lambda _: True)
def _undo_all(services: Services, caller: Caller, call: calls.UndoAll) -> calls.Undone:
    since = 0 if call.since is None else to_micros(call.since)
    of_run = CurationFilter() if call.run is None else entries_of_run(call.run)
    matching = dataclasses.replace(of_run, job=call.job or of_run.job, action=call.action, since=since)
    memories = services.agent_memories(caller)
    undone = CurationLogs(memories).undo_all(matching, now=services.runtime.now(), request=caller.request)
    for store in memories.existing_stores() if undone.undone else ():
        _notify_pipeline(services, store.name)
    return undone


@endpoints.serves(calls.Undo)
def _undo(services: Services, caller: Caller, call: calls.Undo) -> calls.CurationEntry:
    logs, now = _logs(services, caller), services.runtime.now()
    store, entry = logs.undo(call.entry, now=now, request=caller.request)
    _notify_pipeline(services, store.name)
    return entry


def _notify_pipeline(services: Services, workspace: str) -> None:
    for stage in _STAGES:
        services.runtime.notify_stage(stage, workspace)


@endpoints.serves(calls.ListJobs, tag="jobs", subject="server")
def _list_jobs(services: Services, _: Caller, __: calls.ListJobs) -> calls.JobList:
    return calls.JobList(jobs=list_jobs(services.runtime))


@endpoints.serves(calls.RunJob, tag="jobs", subject="server", waits=lambda _: True, limits_itself=True)
def _run_job(services: Services, caller: Caller, call: calls.RunJob) -> calls.JobReport:
    return run_job_now(services.runtime, _limited(call, caller.principal))


def _limited(call: calls.RunJob, principal: Principal) -> calls.RunJob:
    """Return a call limited to the workspace and the agent of a bound token. Raises `Forbidden` for others."""
    workspace, agent = call.workspace or principal.workspace, call.agent
    if agent is None and principal.agents is not None and len(principal.agents) == 1:
        (agent,) = principal.agents
    if principal.workspace not in (None, workspace):
        raise lacking("workspace")
    if principal.agents is not None and (agent is None or not principal.reaches_agent(agent)):
        raise lacking("agent")
    return replace(call, workspace=workspace, agent=agent)


@endpoints.serves(calls.MakeCheckpoint, tag="notebook")
def _make_checkpoint(services: Services, caller: Caller, call: calls.MakeCheckpoint) -> calls.Checkpoint:
    runtime, store = services.runtime, services.existing_store(caller.workspace)
    if store is None:
        raise NotFound(f"nothing has been stored in workspace {caller.workspace!r} yet", field="workspace")
    return notebook.checkpoint(store, runtime.notebooks, caller.agent, call.message, now=runtime.now())


endpoints.passes(calls.ListHistory, notebook.history, _notebooks, tag="notebook")
endpoints.passes(calls.GetDiff, notebook.diff, _notebooks, tag="notebook")
endpoints.passes(calls.ListPromotions, notebook.promotions, existing_store, tag="notebook")
