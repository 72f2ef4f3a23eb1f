"""The calls for the runs of schedules: their history, one asked for by hand, and the report of how one ended."""

from __future__ import annotations

from typing import Literal

from reverie.clock import new_id
from reverie.http import HttpTransport, path_segment
from reverie.memories.checks import draft_of
from reverie.scheduling.checks import check_report, check_run_id, check_schedule_id
from reverie.scheduling.schedule_types import RunReport, RunRequest, ScheduleRun, ScheduleRunList


class ScheduleRunCalls:
    """Runs of schedules, for a client that has a transport."""

    _http: HttpTransport

    def run_schedule_now(self, id: str) -> ScheduleRun:
        """Start a run by hand, and return it as it begins; when the schedule fires next stays.

        Raises `NotFound`, and `Conflict` while a run of it is under way.
        """
        path = f"/v1/schedules/{path_segment(check_schedule_id(id))}/run"
        # With an id of its own: what is sent twice over a broken connection is one run.
        return self._http.call("POST", path, ScheduleRun, body=RunRequest(id=new_id()))

    def schedule_runs(self, id: str, limit: int = 20, offset: int = 0) -> list[ScheduleRun]:
        """The runs of a schedule that are kept, the newest first. Raises `NotFound`."""
        path = f"/v1/schedules/{path_segment(check_schedule_id(id))}/runs"
        return self._http.call("GET", path, ScheduleRunList, query={"limit": limit, "offset": offset}).runs

    def schedule_run(self, run_id: str) -> ScheduleRun:
        """One run. Raises `NotFound`."""
        return self._http.call("GET", _run_path(run_id), ScheduleRun)

    def complete_run(
        self,
        run_id: str,
        output: str = "",
        *,
        status: Literal["success", "failed"] = "success",
        summary: str | None = None,
        error: str = "",
        turn_count: int = 0,
        cost: float = 0.0,
        notify: bool | None = None,
    ) -> ScheduleRun:
        """Report how a run ended that your own workers executed; reported again, it stays as it was first.

        Without a `summary`, the output's first 500 characters are it. `notify` decides whether anybody is told, under
        the policy `conditional`. Raises `Rejected`, `NotFound`, and `Conflict` for a run that is not theirs or has
        ended otherwise.
        """
        given = {
            "status": status,
            "output": output,
            "summary": summary,
            "error": error,
            "turn_count": turn_count,
            "cost": cost,
            "notify": notify,
        }
        report = check_report(draft_of(RunReport, given))
        return self._http.call("POST", _run_path(run_id, "/complete"), ScheduleRun, body=report)

    def cancel_run(self, run_id: str) -> ScheduleRun:
        """End a run that is under way; what its executor still says is not kept.

        Raises `NotFound`, and `Conflict` for one that has ended otherwise.
        """
        return self._http.call("POST", _run_path(run_id, "/cancel"), ScheduleRun)


def _run_path(run_id: str, rest: str = "") -> str:
    return f"/v1/runs/{path_segment(check_run_id(run_id))}{rest}"
