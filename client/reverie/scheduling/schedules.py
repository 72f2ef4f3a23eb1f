"""The calls for schedules: what is to be done at a time, or again and again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from reverie.clock import new_id
from reverie.http import HttpTransport, path_segment
from reverie.memories.checks import only_given
from reverie.scheduling.checks import (
    check_policy,
    check_schedule_id,
)
from reverie.scheduling.forms import changes_from, schedule_from
from reverie.scheduling.runs import ScheduleRunCalls
from reverie.scheduling.schedule_types import (
    LlmExecutor,
    NextRuns,
    NotificationPolicy,
    Schedule,
    ScheduleCount,
    SchedulePage,
    ScheduleStatus,
)
from reverie.scheduling.wall_time import utc_of
from reverie.types import Deleted

ExecutorKind = Literal["webhook", "task", "llm"]
CadenceKind = Literal["cron", "once", "interval"]
# One status, or several of which any will do.
Statuses = ScheduleStatus | Iterable[ScheduleStatus]


class ScheduleCalls(ScheduleRunCalls):
    """Schedules, for a client that has a transport; with the calls for their runs."""

    agent: str
    _http: HttpTransport

    def add_schedule(
        self,
        goal: str,
        *,
        cron: str | None = None,
        at: datetime | str | None = None,
        every: int | None = None,
        tz: str = "UTC",
        webhook: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        user: str | None = None,
        name: str | None = None,
        notify: NotificationPolicy = "always",
        channel: str | None = None,
        session: str | None = None,
        timeout_seconds: int = 600,
        recall_limit: int = 8,
        id: str | None = None,
    ) -> Schedule:
        """Have something done by `cron` (five fields, on the clocks of `tz`), once `at` a time, or `every` so many
        seconds; exactly one of them.

        The goal goes with what is recalled for it (at most `recall_limit` texts, those of `session` first) to a
        `webhook`, or to a Celery `task` on a `queue` of your own workers, which report by `complete_run`; without
        either to the configured language model. A run may take `timeout_seconds` in all. `notify` says which ends of
        runs are told, in `channel`. The schedule is `user`'s, the agent's own where nobody is named; a user has at
        most 50. Sent again under its id it is there once.

        Raises `Rejected` naming the argument at fault, `Conflict` for an `id` that stands for another one.
        """
        what = {
            "id": new_id() if id is None else id,
            "goal": goal,
            "user": user,
            "name": name,
            "notification_policy": check_policy(notify),
            "channel": channel,
            "session": session,
            "timeout_seconds": timeout_seconds,
            "recall_limit": recall_limit,
        }
        schedule_from(
            what, agent=self.agent, cron=cron, at=at, every=every, tz=tz, webhook=webhook, task=task, queue=queue
        )
        # As it was given: so the server names what is at fault by the same names.
        when = {"cron": cron, "at": at, "every": every, "tz": tz}
        body = what | when | {"webhook": webhook, "task": task, "queue": queue}
        return self._http.call("POST", "/v1/schedules", Schedule, body=body)

    def schedule(self, id: str) -> Schedule:
        """One schedule. Raises `NotFound`."""
        return self._http.call("GET", _path(id), Schedule)

    def schedules(
        self,
        limit: int = 50,
        offset: int = 0,
        *,
        user: str | None = None,
        status: Statuses | None = None,
        name: str | None = None,
        text: str | None = None,
        executor: ExecutorKind | None = None,
        cadence: CadenceKind | None = None,
        channel: str | None = None,
        session: str | None = None,
        due_before: datetime | str | None = None,
        due_after: datetime | str | None = None,
    ) -> SchedulePage:
        """A page of schedules, the newest first, and in `total` how many there are: those to which everything given
        applies. `text` is looked for in names and goals; the next run lies at or after `due_after`, before
        `due_before`."""
        wanted = _filters(
            user=user,
            status=status,
            name=name,
            text=text,
            executor=executor,
            cadence=cadence,
            channel=channel,
            session=session,
            due_before=due_before,
            due_after=due_after,
        )
        query = {"limit": limit, "offset": offset, **wanted}
        return self._http.call("GET", "/v1/schedules", SchedulePage, query=query)

    def count_schedules(
        self,
        *,
        user: str | None = None,
        status: Statuses | None = None,
        name: str | None = None,
        text: str | None = None,
        executor: ExecutorKind | None = None,
        cadence: CadenceKind | None = None,
        channel: str | None = None,
        session: str | None = None,
        due_before: datetime | str | None = None,
        due_after: datetime | str | None = None,
    ) -> int:
        """How many schedules there are to which everything given applies, as in `schedules`."""
        wanted = _filters(
            user=user,
            status=status,
            name=name,
            text=text,
            executor=executor,
            cadence=cadence,
            channel=channel,
            session=session,
            due_before=due_before,
            due_after=due_after,
        )
        return self._http.call("GET", "/v1/schedules/count", ScheduleCount, query=wanted).count

    def update_schedule(
        self,
        id: str,
        *,
        goal: str | UnsetType = UNSET,
        cron: str | None = None,
        at: datetime | str | None = None,
        every: int | None = None,
        tz: str | None = None,
        webhook: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        llm: bool = False,
        name: str | UnsetType | None = UNSET,
        notify: NotificationPolicy | UnsetType = UNSET,
        channel: str | UnsetType | None = UNSET,
        session: str | UnsetType | None = UNSET,
        timeout_seconds: int | UnsetType = UNSET,
        recall_limit: int | UnsetType = UNSET,
    ) -> Schedule:
        """Change what is given, and leave the rest; None takes a name, a channel or a session off.

        A new cadence (`tz` goes with it) begins now and makes one active again that had ended. `llm=True` gives the
        goal to the language model instead of a webhook or a task. Raises `Rejected` and `NotFound`.
        """
        what: dict[str, Any] = {
            "goal": goal,
            "name": name,
            "notification_policy": notify if isinstance(notify, UnsetType) else check_policy(notify),
            "channel": channel,
            "session": session,
            "timeout_seconds": timeout_seconds,
            "recall_limit": recall_limit,
        }
        given = only_given(what)
        changes_from(given, cron=cron, at=at, every=every, tz=tz, webhook=webhook, task=task, queue=queue, llm=llm)
        when = {"cron": cron, "at": at, "every": every, "tz": tz}
        body = given | when | {"webhook": webhook, "task": task, "queue": queue}
        if llm:
            body["executor"] = LlmExecutor()
        return self._http.call("PATCH", _path(id), Schedule, body=body)

    def pause_schedule(self, id: str) -> Schedule:
        """Have it fire no more until it is resumed; a run under way goes on. Raises `NotFound`, and `Conflict` for one
        that does not fire anyway."""
        return self._http.call("POST", _path(id, "/pause"), Schedule)

    def resume_schedule(self, id: str) -> Schedule:
        """Have one fire again that was paused, disabled or had failed; what it missed meanwhile is not made up for.

        Raises `NotFound`, `Rejected` for one too many, and `Conflict` for a one-shot that has succeeded.
        """
        return self._http.call("POST", _path(id, "/resume"), Schedule)

    def delete_schedule(self, id: str) -> bool:
        """Remove a schedule with its runs for good; False when there was none."""
        return self._http.call("DELETE", _path(id), Deleted).deleted

    def next_runs(self, id: str, count: int = 5) -> NextRuns:
        """When it fires next, at most `count` times (1 to 100); nothing for one that does not. Raises `NotFound`."""
        return self._http.call("GET", _path(id, "/next"), NextRuns, query={"count": count})


def _path(schedule_id: str, rest: str = "") -> str:
    return f"/v1/schedules/{path_segment(check_schedule_id(schedule_id))}{rest}"


def _filters(
    *,
    status: Statuses | None,
    due_before: datetime | str | None,
    due_after: datetime | str | None,
    **equal: str | None,
) -> Mapping[str, str | list[str] | None]:
    return {
        **equal,
        "status": [status] if isinstance(status, str) else None if status is None else list(status) or None,
        "due_before": _moment("due_before", due_before),
        "due_after": _moment("due_after", due_after),
    }


def _moment(field: str, moment: datetime | str | None) -> str | None:
    """A moment as it stands in a query. Raises `Rejected` for one without a zone."""
    return utc_of(moment, field).isoformat() if isinstance(moment, datetime) else moment
