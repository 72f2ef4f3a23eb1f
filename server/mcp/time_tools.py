"""The tools for what is to happen later: schedules and reminders."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, Literal

from reverie.counts import counted, plural
from reverie.errors import NotFound, Rejected
from reverie.inert import inert_line
from reverie.scheduling.cadence_types import Cron, Interval
from reverie.scheduling.calls import AddSchedule, DeleteSchedule, ListSchedules, PauseSchedule, ResumeSchedule
from reverie.scheduling.reminder_calls import CancelReminder, ListReminders, Remind
from reverie.scheduling.reminder_types import Reminder, ReminderStatus
from reverie.scheduling.schedule_types import Schedule
from server.mcp import arguments as takes
from server.mcp.binding import Bound, Current
from server.mcp.texts import line, listed, moment

# An MCP client has no session: reminders need one, and those of one user must not be in that of another.
_SESSION: Final = "mcp"
_RECIPIENT: Final = "user"
_PAGE: Final = 50
_OPEN: Final[tuple[ReminderStatus, ...]] = ("due", "claimed", "waiting")


class TimeTools:
    """The tools, for whom `current` says."""

    def __init__(self, current: Current) -> None:
        self._current = current

    async def schedule(
        self,
        action: takes.ScheduleAction,
        goal: takes.Goal = None,
        cron: takes.Cron = None,
        at: takes.At = None,
        timezone: takes.Zone = None,
        id: takes.ScheduleId = None,
    ) -> str:
        """Add, list, pause, resume or delete schedules."""
        bound = self._current()
        if action == "list":
            page = await bound.send(ListSchedules(limit=_PAGE))
            items = [_schedule(one) for one in page.schedules]
            return _page("schedule", page.total, items)
        if action == "add":
            if goal is None:
                raise Rejected("action add needs goal: what is to be done", field="goal")
            added = await bound.send(AddSchedule(goal=goal, cron=cron, at=at, tz=timezone))
            return f"Added:\n{_schedule(added)}"
        return await _change(bound, action, _required(action, id))

    async def reminders(
        self,
        action: takes.ReminderAction,
        message: takes.ReminderText = None,
        at: takes.At = None,
        in_minutes: takes.InMinutes = None,
        id: takes.ReminderId = None,
    ) -> str:
        """List, add or delete reminders."""
        bound = self._current()
        if action == "list":
            # Those that were delivered already are not for the model to tell.
            pages = [await bound.send(ListReminders(status=status, limit=_PAGE)) for status in _OPEN]
            items = [_reminder(one) for page in pages for one in page.reminders]
            return _page("reminder", sum(page.total for page in pages), items)
        if action == "add":
            return f"Added:\n{_reminder(await _remind(bound, message, at, in_minutes))}"
        deleted = await bound.send(CancelReminder(reminder_id=_required(action, id)))
        if not deleted.deleted:
            raise NotFound(f"there is no reminder {id}: action list returns the ids", field="id")
        return f"Reminder {id} is deleted."


async def _change(bound: Bound, action: Literal["pause", "resume", "delete"], id: str) -> str:
    if action == "delete":
        deleted = await bound.send(DeleteSchedule(id=id))
        if not deleted.deleted:
            raise NotFound(f"there is no schedule {id}: action list returns the ids", field="id")
        return f"Schedule {id} and its runs are deleted."
    changed = await bound.send(PauseSchedule(id=id) if action == "pause" else ResumeSchedule(id=id))
    return f"{'Paused' if action == 'pause' else 'Resumed'}:\n{_schedule(changed)}"


async def _remind(bound: Bound, message: str | None, at: str | None, in_minutes: float | None) -> Reminder:
    if message is None:
        raise Rejected("action add needs message: what to remind the user of", field="message")
    if (at is None) == (in_minutes is None):
        raise Rejected("action add needs either at or in_minutes", field="at")
    session = _SESSION if bound.user is None else f"{_SESSION}:{bound.user}"
    return await bound.send(
        Remind(
            session=session,
            recipient=bound.user or _RECIPIENT,
            message=message,
            due_at=at,
            in_=None if in_minutes is None else in_minutes * 60,
        )
    )


def _required(action: str, id: str | None) -> str:
    if id is None:
        raise Rejected(f"action {action} needs id: action list returns the ids", field="id")
    return id


def _schedule(one: Schedule) -> str:
    cadence = one.cadence
    if isinstance(cadence, Cron):
        rhythm = f"cron {cadence.expression} {cadence.tz}"
    else:
        rhythm = f"every {cadence.seconds} s" if isinstance(cadence, Interval) else f"once {moment(cadence.at)}"
    label = (
        inert_line(rhythm),
        one.status,
        f"next {moment(one.next_run_at)}" if one.next_run_at else None,
        f"last run {one.last_run_status} {moment(one.last_run_at)}" if one.last_run_at else None,
        f"id {one.id}",
    )
    return line(label, one.goal)


def _reminder(one: Reminder) -> str:
    return line((f"due {moment(one.due_at)}", one.status, f"for {one.recipient}", f"id {one.id}"), one.message)


def _page(noun: str, total: int, items: list[str]) -> str:
    """Return a list with the time, which a model does not know and needs to name others."""
    now = f"It is {moment(datetime.now(UTC))} UTC."
    return listed(f"{counted(total, noun)}. {now}", items) if items else f"There are no {plural(noun)}. {now}"
