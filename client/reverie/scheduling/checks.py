"""Check schedules and reminders, in the client and again in the server.

Rules that depend on the server's settings (the shortest interval, allowed webhook addresses) are checked there only.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from reverie import contract
from reverie.checks import check_label
from reverie.clock import new_id
from reverie.errors import Rejected
from reverie.fields import check_fields
from reverie.scheduling import types

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
