"""/v1/jobs: list the periodic jobs, and run one now, in this process."""

from __future__ import annotations

from msgspec.structs import replace

from memory.trust.principals import Principal
from reverie.upkeep import calls
from reverie.upkeep.job_types import JobList, JobReport
from server.caller import Caller, lacking
from server.endpoints import Endpoints
from server.services import Services
from worker.manual_jobs import list_jobs, run_job_now

endpoints = Endpoints("jobs")


@endpoints.serves(calls.ListJobs, subject="server")
def _list_jobs(services: Services, _: Caller, __: calls.ListJobs) -> JobList:
    return JobList(jobs=list_jobs(services.runtime))


@endpoints.serves(calls.RunJob, subject="server", waits=lambda _: True, limits_itself=True)
def _run_job(services: Services, caller: Caller, call: calls.RunJob) -> JobReport:
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
