"""Build schedules and their changes from the arguments of calls.

A cadence is given as `cron`, `at` or `every` with `tz`, an executor as a `webhook`, or a `task` and its `queue`; a call
may give either as a struct instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

from msgspec import UNSET

from reverie.checks import check_label
from reverie.errors import Rejected
from reverie.scheduling.cadence import parse_cadence
from reverie.scheduling.cadence_types import Cadence
from reverie.scheduling.checks import MAX_URL_CHARACTERS, check_executor, check_schedule, check_schedule_changes
from reverie.scheduling.schedule_types import (
    Executor,
    LlmExecutor,
    ScheduleChanges,
    ScheduleDraft,
    TaskExecutor,
    WebhookExecutor,
)

_COMMON_FIELDS: Final = ("goal", "name", "channel", "session", "timeout_seconds", "recall_limit")
_CADENCE: Final = ("cron", "at", "every", "tz")
_EXECUTOR: Final = ("webhook", "task", "queue")
# For calls that give structs: the paths in them of what checks call by the name of a short argument.
_CADENCE_PATHS: Final = {
    "cron": "cadence.expression",
    "at": "cadence.at",
    "every": "cadence.seconds",
    "anchor": "cadence.anchor",
    "tz": "cadence.tz",
}
_EXECUTOR_PATHS: Final = {"url": "executor.url", "task": "executor.task", "queue": "executor.queue"}


class ScheduleCall(Protocol):
    """The fields that calls that add and change schedules have in common, besides the short arguments."""

    @property
    def notify(self) -> Any:
        """The notification policy."""

    @property
    def cadence(self) -> Cadence | None:
        """A cadence as a struct."""

    @property
    def executor(self) -> Executor | None:
        """An executor as a struct."""


def schedule_draft(call: ScheduleCall) -> ScheduleDraft:
    """Return the schedule of a call. Raises `Rejected`."""
    with fields_of(call):
        draft = ScheduleDraft(
            **{name: getattr(call, name) for name in (*_COMMON_FIELDS, "id", "user")},
            notification_policy=call.notify,
            cadence=_cadence(call) or parse_cadence(),
            executor=_executor(call) or LlmExecutor(),
        )
        return check_schedule(draft)


def schedule_changes(call: ScheduleCall) -> ScheduleChanges:
    """Return the changes of a call. Raises `Rejected`."""
    with fields_of(call):
        changes = ScheduleChanges(
            **{name: getattr(call, name) for name in _COMMON_FIELDS},
            notification_policy=call.notify,
            cadence=_cadence(call) or UNSET,
            executor=_executor(call) or UNSET,
        )
        return check_schedule_changes(changes)


@contextmanager
def fields_of(call: ScheduleCall) -> Iterator[None]:
    """Name fields in errors as the call does: `cron`, or `cadence.expression` if it gave a struct."""
    names = {"url": "webhook"}
    names |= _CADENCE_PATHS if call.cadence is not None else {}
    names |= _EXECUTOR_PATHS if call.executor is not None else {}
    try:
        yield
    except Rejected as error:
        error.field = names.get(error.field, error.field)
        raise


def _cadence(call: ScheduleCall) -> Cadence | None:
    given = _given(call, _CADENCE)
    if call.cadence is not None:
        if given:
            raise Rejected(f"give cadence or {', '.join(given)}, not both", field="cadence")
        return call.cadence
    if set(given) == {"tz"}:
        raise Rejected("tz alone changes nothing: give cron, at or every with it", field="tz")
    return parse_cadence(**{"tz": "UTC", **given}) if given else None


def _executor(call: ScheduleCall) -> Executor | None:
    given = _given(call, _EXECUTOR)
    llm = getattr(call, "llm", False)
    if llm and (given or call.executor is not None):
        raise Rejected("give only one of webhook, task with queue, and llm", field="llm")
    if call.executor is not None:
        if given:
            raise Rejected(f"give executor or {', '.join(given)}, not both", field="executor")
        return call.executor
    return _executor_from(**given) if given else LlmExecutor() if llm else None


def _given(call: ScheduleCall, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(call, name)) is not None}


def _executor_from(*, webhook: str | None = None, task: str | None = None, queue: str | None = None) -> Executor:
    """Return the executor of a webhook, or of a task of the agent's own workers. Raises `Rejected`."""
    if webhook is not None and (task is not None or queue is not None):
        raise Rejected("give a webhook, or a task with its queue, not both", field="webhook")
    if webhook is not None:
        check_label("webhook", webhook, required=True, limit=MAX_URL_CHARACTERS)
        return WebhookExecutor(url=webhook)
    if task is None:
        raise Rejected("queue needs the task to send to it", field="task")
    if queue is None:
        raise Rejected("task needs the queue that your workers listen to", field="queue")
    return check_executor(TaskExecutor(task=task, queue=queue))
