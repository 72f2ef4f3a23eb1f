"""Check schedules and reminders, in the client and again in the server, and build schedules from calls.

Rules that depend on the server's settings (the shortest interval, allowed webhook addresses) are checked there only.
A cadence is given as `cron`, `at` or `every` with `tz`, an executor as a `webhook`, or a `task` and its `queue`; a call
may give either as a struct instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from reverie import contract
from reverie.checks import check_label
from reverie.clock import new_id
from reverie.errors import Rejected
from reverie.fields import check_fields
from reverie.scheduling import types

if TYPE_CHECKING:
    from reverie.scheduling.calls import AddSchedule, UpdateSchedule

MAX_URL_CHARACTERS: Final = 2_048

_TAKEN_ID: Final = "count"
_TASK_NAME = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)
# No colon and no full stop: the name is a part of the broker's key and of the queue, `agent.<workspace>.<name>`.
_QUEUE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


def check_executor(executor: types.Executor) -> types.Executor:
    """Return an executor. Raises `Rejected`, also for tasks and queues of Reverie itself."""
    if isinstance(executor, types.WebhookExecutor):
        check_label("url", executor.url, required=True, limit=MAX_URL_CHARACTERS)
    elif isinstance(executor, types.TaskExecutor):
        check_label("task", executor.task, required=True)
        if not _TASK_NAME.fullmatch(executor.task):
            raise Rejected(f"task {executor.task[:80]!r} is not the name of a Celery task", field="task")
        if executor.task.startswith(("reverie.", "celery.")):
            raise Rejected(f"task {executor.task[:80]!r} is not your workers' own: name one of yours", field="task")
        check_queue(executor.queue)
    return executor


def check_queue(name: object) -> str:
    """Return the name of a queue of an agent's workers. Raises `Rejected`, also for names of Reverie's own queues."""
    if not isinstance(name, str) or not _QUEUE_NAME.fullmatch(name):
        raise Rejected(
            f"queue {str(name)[:80]!r} is not a name: use 1 to 63 of A-Z, a-z, 0-9, - and _, first a letter or digit",
            field="queue",
        )
    if name in contract.QUEUES or name == "celery":
        raise Rejected(f"queue {name!r} is reserved for Reverie: choose another", field="queue")
    return name


def check_run_id(field: str, run_id: object) -> str:
    """Return the id of a run, which must be printable ASCII because webhooks send it in a header. Raises `Rejected`."""
    checked: str = check_label(field, run_id, required=True)
    if not checked.isascii() or " " in checked:
        raise Rejected(f"{field} must be printable ASCII without blanks", field=field)
    return checked


def check_schedule(draft: types.ScheduleDraft) -> types.ScheduleDraft:
    """Return a schedule as it will be stored, with an id. Raises `Rejected`."""
    draft = check_fields(draft)
    check_executor(draft.executor)
    if draft.id == _TAKEN_ID:
        raise Rejected(
            f"id {_TAKEN_ID!r} is reserved by the path /v1/schedules/{_TAKEN_ID}: choose another", field="id"
        )
    return replace(draft, id=draft.id or new_id())


def check_schedule_changes(changes: types.ScheduleChanges) -> types.ScheduleChanges:
    """Return the checked changes of a schedule. Raises `Rejected`, also if there is nothing to change."""
    if all(getattr(changes, name) is UNSET for name in changes.__struct_fields__):
        raise Rejected(f"nothing to change: give some of {', '.join(changes.__struct_fields__)}")
    if not isinstance(changes.executor, UnsetType):
        check_executor(changes.executor)
    return check_fields(changes)


_COMMON_FIELDS: Final = ("goal", "name", "channel", "session", "timeout_seconds", "recall_limit")
_CADENCE: Final = ("cron", "at", "every", "tz")
_EXECUTOR: Final = ("webhook", "task", "queue")
# If a call gives a struct: the path in it of the field that checks name by the short argument.
_CADENCE_PATHS: Final = {
    "cron": "cadence.expression",
    "at": "cadence.at",
    "every": "cadence.seconds",
    "anchor": "cadence.anchor",
    "tz": "cadence.tz",
}
_EXECUTOR_PATHS: Final = {"url": "executor.url", "task": "executor.task", "queue": "executor.queue"}


def schedule_draft(call: AddSchedule) -> types.ScheduleDraft:
    """Return the schedule of a call. Raises `Rejected`."""
    from reverie.scheduling.cadence import parse_cadence  # and with it all of cron

    with fields_of(call):
        draft = types.ScheduleDraft(
            **{name: getattr(call, name) for name in (*_COMMON_FIELDS, "id", "user")},
            notification_policy=call.notify,
            cadence=_cadence(call) or parse_cadence(),
            executor=_executor(call) or types.LlmExecutor(),
        )
        return check_schedule(draft)


def schedule_changes(call: UpdateSchedule) -> types.ScheduleChanges:
    """Return the changes of a call. Raises `Rejected`."""
    with fields_of(call):
        changes = types.ScheduleChanges(
            **{name: getattr(call, name) for name in _COMMON_FIELDS},
            notification_policy=call.notify,
            cadence=_cadence(call) or UNSET,
            executor=_executor(call) or UNSET,
        )
        return check_schedule_changes(changes)


@contextmanager
def fields_of(call: AddSchedule | UpdateSchedule) -> Iterator[None]:
    """Name fields in errors as the call does: `cron`, or `cadence.expression` if it gave a struct."""
    names = {"url": "webhook"}
    names |= _CADENCE_PATHS if call.cadence is not None else {}
    names |= _EXECUTOR_PATHS if call.executor is not None else {}
    try:
        yield
    except Rejected as error:
        error.field = names.get(error.field, error.field)
        raise


def _cadence(call: AddSchedule | UpdateSchedule) -> types.Cadence | None:
    from reverie.scheduling.cadence import parse_cadence

    given = _given(call, _CADENCE)
    if call.cadence is not None:
        if given:
            raise Rejected(f"give cadence or {', '.join(given)}, not both", field="cadence")
        return call.cadence
    if set(given) == {"tz"}:
        raise Rejected("tz alone changes nothing: give cron, at or every with it", field="tz")
    return parse_cadence(**{"tz": "UTC", **given}) if given else None


def _executor(call: AddSchedule | UpdateSchedule) -> types.Executor | None:
    given = _given(call, _EXECUTOR)
    llm = getattr(call, "llm", False)
    if llm and (given or call.executor is not None):
        raise Rejected("give only one of webhook, task with queue, and llm", field="llm")
    if call.executor is not None:
        if given:
            raise Rejected(f"give executor or {', '.join(given)}, not both", field="executor")
        return call.executor
    return _executor_from(**given) if given else types.LlmExecutor() if llm else None


def _given(call: AddSchedule | UpdateSchedule, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(call, name)) is not None}


def _executor_from(*, webhook: str | None = None, task: str | None = None, queue: str | None = None) -> types.Executor:
    """Return the executor of a webhook, or of a task of the agent's own workers. Raises `Rejected`."""
    if webhook is not None and (task is not None or queue is not None):
        raise Rejected("give a webhook, or a task with its queue, not both", field="webhook")
    if webhook is not None:
        check_label("webhook", webhook, required=True, limit=MAX_URL_CHARACTERS)
        return types.WebhookExecutor(url=webhook)
    if task is None:
        raise Rejected("queue needs the task to send to it", field="task")
    if queue is None:
        raise Rejected("task needs the queue that your workers listen to", field="queue")
    return check_executor(types.TaskExecutor(task=task, queue=queue))
