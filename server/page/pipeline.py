"""The pipeline, live by server-sent events, with the curves of the last day; dead letters; schedules and their runs."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from itertools import groupby, pairwise
from typing import Any, Final

import anyio
import psutil
from msgspec import DecodeError, json
from starlette.responses import Response, StreamingResponse

from memory.lifecycle.importing import bring_back_schedule, delete_schedule_with_records
from reverie.clock import new_id, to_micros
from reverie.counts import counted
from reverie.errors import NotFound, Rejected, ReverieError
from reverie.pipeline.calls import DropDeadLetter, GetDeadLetter, GetStatus, ListDeadLetters, ReplayDeadLetter
from reverie.pipeline.status import PipelineStatus
from reverie.scheduling import calls
from reverie.scheduling.types import Cadence, Cron, Interval, LlmExecutor, ScheduleRun, ScheduleRunList
from reverie.trust.exports import ExportedRun, ExportedSchedule
from server.authorisation import seen_store
from server.caller import Caller
from server.page.deletions import deleted_page, deleted_records, restoring
from server.page.rendering import PAGE_HEADERS, UNITS, weekday, zone_of
from server.page.site import PAGE_SIZE, Form, Pages, Visit
from server.services import Services
from storage.pipeline.samples import MINUTE_MICROS, SAMPLES_KEPT, PipelineSample

# The size of a curve's viewBox, which the page scales.
WIDTH: Final = 480
HEIGHT: Final = 72
# Room for the width of the line.
_MARGIN: Final = 2
# A curve is drawn over this many minutes, so that a day has no more points than a screen.
_STEP_MINUTES: Final = 5


@dataclass(frozen=True, slots=True)
class Curve:
    """A curve: `points` of SVG polylines, one for each stretch without a gap, and its highest and latest values."""

    title: str
    lines: list[str]
    highest: float
    latest: float | None
    unit: str


def curves(samples: Sequence[PipelineSample], *, minute: int) -> list[Curve]:
    """Return the curves of the day that ends with a minute."""
    lags = {one.minute: one.lag_p99_seconds for one in samples if one.lag_p99_seconds is not None}
    waiting = {one.minute: float(one.waiting) for one in samples}
    return [
        _curve("Messages", _rates(samples), minute, "/s"),
        _curve("Lag, p99", lags, minute, "s"),
        _curve("Waiting in the inbox", waiting, minute, ""),
    ]


def _rates(samples: Sequence[PipelineSample]) -> dict[int, float]:
    """Return the items per second of each minute, except one in which the broker began to count anew."""
    return {
        later.minute: (later.accepted - earlier.accepted) / (60 * (later.minute - earlier.minute))
        for earlier, later in pairwise(samples)
        if later.accepted >= earlier.accepted
    }


def _curve(title: str, values: dict[int, float], minute: int, unit: str) -> Curve:
    first = minute - SAMPLES_KEPT
    buckets: dict[int, float] = {}
    for at, value in values.items():
        if first < at <= minute:
            bucket = (at - first) // _STEP_MINUTES
            buckets[bucket] = max(buckets.get(bucket, 0.0), value)  # a peak of a minute must be seen
    highest = max(buckets.values(), default=0.0)
    lines: list[list[str]] = []
    before = None
    for bucket in sorted(buckets):
        if before is None or bucket - before > 1:
            lines.append([])
        lines[-1].append(_point(bucket, buckets[bucket], highest))
        before = bucket
    return Curve(title, [" ".join(line) for line in lines], highest, values.get(max(values, default=0)), unit)


def _point(bucket: int, value: float, highest: float) -> str:
    x = bucket * _STEP_MINUTES / SAMPLES_KEPT * WIDTH
    y = HEIGHT - _MARGIN - (value / highest if highest else 0.0) * (HEIGHT - 2 * _MARGIN)
    return f"{x:.1f},{y:.1f}"


# How often the page is told of changes.
_TICK_SECONDS: Final = 2.0
# How soon an open page notices that the server is stopping, so that it does not delay the end.
_LOOK_SECONDS: Final = 0.2
# The stream ends after this, and the browser connects again with its cookie: so a revoked token is noticed within a
# minute even if nothing happens.
_STREAM_SECONDS: Final = 50.0
_RETRY_MILLISECONDS: Final = 2_000
_STREAM_HEADERS: Final = {**PAGE_HEADERS, "Cache-Control": "no-store", "X-Accel-Buffering": "no"}

pages = Pages()


@dataclass(frozen=True, slots=True)
class _Figures:
    """The content of the page: the status, and this process's figures of its machine and of the last day."""

    status: PipelineStatus
    rate: float | None
    disk_free_bytes: int
    disk_size_bytes: int
    memory_bytes: int
    curves: list[Curve]


@pages.get("/pipeline", has_place=False)
async def _pipeline(visit: Visit) -> Response:
    return visit.page("pipeline.html", figures=await _figures(visit))


@pages.get("/pipeline/events", has_place=False)
async def _events(visit: Visit) -> Response:
    first = await _event(visit)  # before the stream, so that a missing scope gets an ordinary error response
    return StreamingResponse(_stream(visit, first), media_type="text/event-stream", headers=_STREAM_HEADERS)


async def _stream(visit: Visit, event: str) -> AsyncIterator[str]:
    """Yield the page's figures every few seconds, until the server stops, the token is not valid, or time is up."""
    yield f"retry: {_RETRY_MILLISECONDS}\n\n"
    yield event
    with anyio.move_on_after(_STREAM_SECONDS):
        while await _wait(visit, _TICK_SECONDS):
            try:
                await visit.check_login()
                yield await _event(visit)
            except ReverieError:  # the browser connects again, and is answered with the error
                return


async def _wait(visit: Visit, seconds: float) -> bool:
    """Wait; return False if the server begins to stop meanwhile."""
    for _ in range(round(seconds / _LOOK_SECONDS)):
        if visit.services.stopping.is_set():
            return False
        await anyio.sleep(_LOOK_SECONDS)
    return True


async def _event(visit: Visit) -> str:
    text = visit.text("parts/pipeline_figures.html", figures=await _figures(visit))
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"event: figures\n{lines}\n"


async def _figures(visit: Visit) -> _Figures:
    """Return the figures. Raises `Forbidden` for a token without the scope."""
    status = await visit.send(GetStatus())
    return await visit.services.threads.run(lambda: _read_figures(visit, status))


def _read_figures(visit: Visit, status: PipelineStatus) -> _Figures:
    runtime, now = visit.services.runtime, to_micros(status.at)
    try:
        samples = runtime.stores.pipeline_samples().last_day(now=now)
    except ReverieError:  # the status says what is wrong with the database
        samples = []
    disk = shutil.disk_usage(runtime.settings.data)
    return _Figures(
        status=status,
        rate=_rate(samples, status, now),
        disk_free_bytes=disk.free,
        disk_size_bytes=disk.total,
        memory_bytes=psutil.Process().memory_info().rss,
        curves=curves(samples, minute=now // MINUTE_MICROS),
    )


def _rate(samples: list[PipelineSample], status: PipelineStatus, now: int) -> float | None:
    """Return the items a second since a minute or two ago; None if that is not known."""
    earlier = [one for one in samples if one.minute < now // MINUTE_MICROS]
    if status.broker == "down" or not earlier or earlier[-1].accepted > status.inbox.accepted:
        return None
    seconds = now / 1_000_000 - 60 * earlier[-1].minute
    return (status.inbox.accepted - earlier[-1].accepted) / seconds


# How long the page waits for the result of a replay: a person who watches would not wait longer.
_REPLAY_SECONDS: Final = 3.0
_LETTER_NOTICES: Final = {
    "succeeded": "Replayed: the work is done.",
    "failed": "Replayed, but it failed again: the dead letter has the new error.",
    "queued": "Replayed: it is on its way. The dead letter stays until the work is done.",
    "dropped": "Dropped.",
}


@pages.get("/dead-letters")
async def _dead_letters(visit: Visit) -> Response:
    call = ListDeadLetters(limit=PAGE_SIZE + 1, offset=visit.number("offset"))
    letters = (await visit.send(call)).dead_letters
    return visit.page(
        "dead_letters.html",
        letters=letters[:PAGE_SIZE],
        **visit.beside("/dead-letters", is_last=len(letters) <= PAGE_SIZE),
        notice=_LETTER_NOTICES.get(visit.query("done"), ""),
    )


@pages.get("/dead-letter")
async def _dead_letter(visit: Visit) -> Response:
    letter = await visit.send(GetDeadLetter(visit.number("id")))
    payload = letter.payload or ""
    with suppress(DecodeError):  # it is perhaps what failed
        payload = json.format(payload.encode(), indent=2).decode()
    return visit.page("dead_letter.html", letter=letter, payload=payload)


@pages.post("/dead-letter/replay")
async def _replay(visit: Visit) -> Response:
    letter = await visit.send(ReplayDeadLetter(visit.number("id"), timeout_seconds=_REPLAY_SECONDS))
    return visit.see_other("/dead-letters", done=letter.replay)


@pages.post("/dead-letter/drop")
async def _drop(visit: Visit) -> Response:
    await visit.send(DropDeadLetter(visit.number("id")))
    return visit.see_other("/dead-letters", done="dropped")


_RUNS: Final = 20
_NEXT: Final = 5
_SCHEDULE_NOTICES: Final = {
    "paused": "Paused, until it is resumed.",
    "resumed": "Resumed. Missed runs are skipped.",
    "started": "A run has started.",
    "restored": "Restored, with its runs.",
    "added": "Added.",
    "changed": "Changed.",
}
# How often a schedule fires, by the value of the field.
_CADENCES: Final = {"cron": "At times of day", "every": "Every so many seconds", "at": "Once"}


@pages.get("/schedules")
async def _schedules(visit: Visit) -> Response:
    offset = visit.number("offset")
    page = await visit.send(calls.ListSchedules(limit=PAGE_SIZE, offset=offset, all_users=visit.sees_all_users))
    waiting = calls.ListReminders(limit=PAGE_SIZE, status="waiting", all_users=visit.sees_all_users)
    reminders = await visit.send(waiting)
    return visit.page(
        "schedules.html",
        schedules=[(schedule, cadence_text(schedule.cadence, visit.zone)) for schedule in page.schedules],
        can_change=visit.allows(calls.AddSchedule),
        total=page.total,
        reminders=() if offset else reminders.reminders,
        more_reminders=reminders.total - len(reminders.reminders),
        titles=await visit.titles(reminder.session for reminder in reminders.reminders),
        **visit.beside("/schedules", is_last=offset + len(page.schedules) >= page.total),
        notice=_SCHEDULE_NOTICES.get(visit.query("done"), ""),
    )


@pages.get("/schedule")
async def _schedule(visit: Visit) -> Response:
    id, everybody = visit.query("id"), visit.sees_all_users
    schedule = await visit.send(calls.GetSchedule(id, all_users=everybody))
    return visit.page(
        "schedule.html",
        schedule=schedule,
        cadence=cadence_text(schedule.cadence, visit.zone),
        next_zone=zone_of(schedule.cadence.tz) if isinstance(schedule.cadence, Cron) else visit.zone,
        next_times=(await visit.send(calls.GetNextRuns(id=id, count=_NEXT, all_users=everybody))).at,
        runs=_alike(await visit.send(calls.ListScheduleRuns(id=id, limit=_RUNS, all_users=everybody))),
        can_change=visit.allows(calls.AddSchedule),
        lacks_model=isinstance(schedule.executor, LlmExecutor) and visit.services.runtime.language_model is None,
        notice=_SCHEDULE_NOTICES.get(visit.query("done"), ""),
    )


def _alike(found: ScheduleRunList) -> list[tuple[ScheduleRun, int]]:
    """Return runs, the newest first, each with how many of its kind follow: a failure that repeats is shown once."""
    alike = groupby(found.runs, key=lambda run: (run.status, run.error) if run.error else run.id)
    return [(ones[0], len(ones)) for ones in (list(runs) for _, runs in alike)]


@pages.get("/schedule/new")
async def _new_schedule(visit: Visit) -> Response:
    view: dict[str, Any] = {"entered": ("cron", "", visit.zone), "cadences": _CADENCES}
    lacks_model = visit.services.runtime.language_model is None
    return visit.page("schedule_edit.html", schedule=None, id=new_id(), lacks_model=lacks_model, **view)


@pages.post("/schedule/new")
async def _add(visit: Visit) -> Response:
    form = visit.form
    added = await visit.send(
        calls.AddSchedule(
            form.text("goal"),
            id=form.word("id"),
            name=form.word("name"),
            webhook=form.word("webhook"),
            user=form.word("user"),
            **_cadence(form),
        )
    )
    return visit.see_other("/schedule", id=added.id, done="added")


@pages.get("/schedule/edit")
async def _edit_schedule(visit: Visit) -> Response:
    schedule = await visit.send(calls.GetSchedule(visit.query("id"), all_users=visit.sees_all_users))
    entered = _entered(schedule.cadence, visit)
    return visit.page("schedule_edit.html", schedule=schedule, id=schedule.id, cadences=_CADENCES, entered=entered)


@pages.post("/schedule/edit")
async def _change(visit: Visit) -> Response:
    form, everybody = visit.form, visit.sees_all_users
    before = await visit.send(calls.GetSchedule(visit.query("id"), all_users=everybody))
    kind, value, zone = _entered(before.cadence, visit)
    # Sending an unchanged cadence would restart it.
    is_same = (form.text("kind"), form.text("when"), form.text("tz")) == (kind, value, str(zone))
    cadence = {} if is_same else _cadence(form)
    await visit.send(
        calls.UpdateSchedule(before.id, goal=form.text("goal"), name=form.word("name"), all_users=everybody, **cadence)
    )
    return visit.see_other("/schedule", id=before.id, done="changed")


def _entered(cadence: Cadence, visit: Visit) -> tuple[str, str, tzinfo | str]:
    """Return a cadence as it is entered: its kind, its value, and its zone."""
    if isinstance(cadence, Cron):
        return "cron", cadence.expression, cadence.tz
    if isinstance(cadence, Interval):
        return "every", str(cadence.seconds), visit.zone
    return "at", f"{cadence.at.astimezone(visit.zone):%Y-%m-%dT%H:%M}", visit.zone


def _cadence(form: Form) -> dict[str, Any]:
    """Return the arguments of a call for what was entered. Raises `Rejected`."""
    kind, value = form.text("kind"), form.text("when").strip()
    if kind == "every":
        seconds = form.number("when")
        return {"every": int(seconds) if seconds.is_integer() else seconds}
    zone = form.word("tz")
    if kind == "at":
        try:
            return {"at": datetime.fromisoformat(value).replace(tzinfo=zone_of(zone or "UTC"))}
        except ValueError:
            raise Rejected(f"{value[:40]!r} is not a time: write it as in 2026-12-24T18:00", field="when") from None
    return {"cron": value, "tz": zone}


@pages.post("/schedule/pause")
async def _pause(visit: Visit) -> Response:
    await visit.send(calls.PauseSchedule(visit.query("id"), all_users=visit.sees_all_users))
    return visit.see_other("/schedule", id=visit.query("id"), done="paused")


@pages.post("/schedule/resume")
async def _resume(visit: Visit) -> Response:
    await visit.send(calls.ResumeSchedule(visit.query("id"), all_users=visit.sees_all_users))
    return visit.see_other("/schedule", id=visit.query("id"), done="resumed")


@pages.post("/schedule/run")
async def _run(visit: Visit) -> Response:
    call = calls.RunScheduleNow(id=visit.query("id"), run_id=visit.form.word("run"), all_users=visit.sees_all_users)
    await visit.send(call)
    return visit.see_other("/schedule", id=visit.query("id"), done="started")


@pages.post("/schedule/delete")
async def _delete(visit: Visit) -> Response:
    id, everybody = visit.query("id"), visit.sees_all_users
    schedule = await visit.send(calls.GetSchedule(id, all_users=everybody))
    records = await visit.carry_out(calls.DeleteSchedule(id=id, all_users=everybody), _delete_with_records)
    return deleted_page(visit, "schedule", schedule.name or schedule.goal, records)


def _delete_with_records(
    services: Services, caller: Caller, call: calls.DeleteSchedule
) -> list[ExportedSchedule | ExportedRun]:
    store = seen_store(services, caller, call)
    if store is None:
        raise NotFound(f"agent {caller.agent} has no schedule {call.id!r}", field="id")
    return delete_schedule_with_records(store, call.id, agent=caller.agent, workspace=caller.workspace)


@pages.post("/schedule/restore")
async def _restore(visit: Visit) -> Response:
    at, records = deleted_records(visit, ExportedSchedule | ExportedRun)
    first = records[0]
    assert isinstance(first, ExportedSchedule)

    def restore(services: Services, caller: Caller, _: calls.AddSchedule) -> None:
        runtime = services.runtime
        with restoring(services, caller, records):
            rules = runtime.settings.schedule_rules
            bring_back_schedule(runtime.stores, records, rules=rules, deleted_at=at, now=runtime.now())
        runtime.schedules.notify_goals(caller.workspace)

    await visit.carry_out(calls.AddSchedule(first.goal, id=first.id, cron="@daily"), restore)
    return visit.see_other("/schedule", id=first.id, done="restored")


def cadence_text(cadence: Cadence, zone: tzinfo = UTC) -> str:
    """Return when a schedule fires, in words where there are any."""
    if isinstance(cadence, Cron):
        return f"{_cron_text(cadence.expression)} ({cadence.tz})"
    if isinstance(cadence, Interval):
        unit, name = next((unit, name) for unit, name in UNITS if cadence.seconds % unit == 0)
        return f"every {name if cadence.seconds == unit else counted(cadence.seconds // unit, name)}"
    return f"once, {weekday(cadence.at, zone)}"


def _cron_text(expression: str) -> str:
    from cron_descriptor import Exception as NoDescription
    from cron_descriptor import Options, get_description

    options = Options()
    options.use_24hour_time_format = True
    options.locale_code = "en_US"
    try:
        return f"{get_description(expression, options)}, cron {expression}"
    except NoDescription:  # some forms that croniter knows
        return f"cron {expression}"
