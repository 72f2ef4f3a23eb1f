"""/v1/jobs: list the periodic jobs, and run one now, in this process."""

from __future__ import annotations

from reverie.upkeep import calls
from reverie.upkeep.job_types import JobList, JobReport
from server.caller import Caller
from server.endpoints import Endpoints
from server.services import Services
from worker.manual_jobs import list_jobs, run_job_now

endpoints = Endpoints("jobs")


@endpoints.serves(calls.ListJobs, subject="server")
def _list_jobs(services: Services, _: Caller, __: calls.ListJobs) -> JobList:
    return JobList(jobs=list_jobs(services.runtime))


@endpoints.serves(calls.RunJob, subject="server", waits=lambda _: True)
def _run_job(services: Services, _: Caller, call: calls.RunJob) -> JobReport:
    return run_job_now(services.runtime, call)
