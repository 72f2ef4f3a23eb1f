"""/schedules and /schedule: what is planned, its next times, and its runs."""

from __future__ import annotations

from typing import Final

from fastapi import Response

from reverie.scheduling.cadence_types import Cadence, Cron, Interval
from reverie.scheduling.calls import (
    AddSchedule,
    DeleteSchedule,
    GetNextRuns,
    GetSchedule,
    ListScheduleRuns,
    ListSchedules,
    PauseSchedule,
    ResumeSchedule,
    RunScheduleNow,
)
from server.page.moments import duration, exact
from server.page.pages import Pages
from server.page.visits import Visit

_PAGE_SIZE: Final = 50
_RUNS: Final = 20
_NEXT: Final = 5
_NOTICES: Final = {
    "paused": "Paused, until it is resumed.",
    "resumed": "Resumed. What it missed is skipped.",
    "started": "A run has started.",
    "deleted": "Deleted, with its runs.",
}

pages = Pages()


@pages.get("/schedules")
async def _schedules(visit: Visit) -> Response:
    offset = visit.number("offset")
    page = await visit.send(ListSchedules(limit=_PAGE_SIZE, offset=offset, all_users=_sees_all(visit)))
    more = offset + len(page.schedules) < page.total
    return visit.page(
        "schedules.html",
        schedules=[(schedule, cadence_text(schedule.cadence)) for schedule in page.schedules],
        total=page.total,
        newer=visit.link("/schedules", offset=max(0, offset - _PAGE_SIZE)) if offset else "",
        older=visit.link("/schedules", offset=offset + _PAGE_SIZE) if more else "",
        notice=_NOTICES.get(visit.query("done"), ""),
    )


@pages.get("/schedule")
async def _schedule(visit: Visit) -> Response:
    id, everybody = visit.query("id"), _sees_all(visit)
    schedule = await visit.send(GetSchedule(id, all_users=everybody))
    return visit.page(
        "schedule.html",
        schedule=schedule,
        cadence=cadence_text(schedule.cadence),
        next_times=(await visit.send(GetNextRuns(id=id, count=_NEXT, all_users=everybody))).at,
        runs=(await visit.send(ListScheduleRuns(id=id, limit=_RUNS, all_users=everybody))).runs,
        can_change=visit.allows(AddSchedule),
        notice=_NOTICES.get(visit.query("done"), ""),
    )


@pages.post("/schedule/pause")
async def _pause(visit: Visit) -> Response:
    await visit.send(PauseSchedule(visit.query("id"), all_users=_sees_all(visit)))
    return visit.see_other("/schedule", id=visit.query("id"), done="paused")


@pages.post("/schedule/resume")
async def _resume(visit: Visit) -> Response:
    await visit.send(ResumeSchedule(visit.query("id"), all_users=_sees_all(visit)))
    return visit.see_other("/schedule", id=visit.query("id"), done="resumed")


@pages.post("/schedule/run")
async def _run(visit: Visit) -> Response:
    call = RunScheduleNow(id=visit.query("id"), run_id=visit.form.word("run"), all_users=_sees_all(visit))
    await visit.send(call)
    return visit.see_other("/schedule", id=visit.query("id"), done="started")


@pages.post("/schedule/delete")
async def _delete(visit: Visit) -> Response:
    await visit.send(DeleteSchedule(id=visit.query("id"), all_users=_sees_all(visit)))
    return visit.see_other("/schedules", done="deleted")


def cadence_text(cadence: Cadence) -> str:
    """Return when a schedule fires, in words where there are any."""
    if isinstance(cadence, Cron):
        return f"cron {cadence.expression} ({cadence.tz})"
    if isinstance(cadence, Interval):
        return f"every {duration(cadence.seconds)}"
    return f"once, {exact(cadence.at)}"


def _sees_all(visit: Visit) -> bool:
    """Return whether a visitor may see the schedules of all users, as operators do."""
    as_user = visit.place is not None and visit.place.user is not None
    return visit.principal.allows("operate") and visit.principal.user is None and not as_user
