"""Find tasks of stages that were sent and lost, by comparing their flags with the queues of the broker.

A flag (`wake:TASK:W`, see `reverie.pipeline.inbox`) keeps a second task of a stage and workspace from being sent until
the first begins. A task that was lost, with its worker or by a deleted queue, leaves its flag behind. Only the queue
shows whether such a task still waits.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple, cast

import redis

from adapters.broker.inbox import WorkerInbox
from reverie.checks import is_workspace_name
from reverie.contract import ACCOUNT_STORE, SENT_AT_HEADER, TASK_QUEUES, TRACE_HEADER
from reverie.pipeline.broker import call_broker

# How many tasks of a queue are read in one call; each has some 700 bytes.
_PAGE: Final = 1_000


class QueuedTasks:
    """The tasks in the queues; each queue is read once, when it is first asked for. Make one for each sweep.

    Every method raises `Unavailable` without a broker.
    """

    def __init__(self, inbox: WorkerInbox, broker: redis.Redis, *, prefix: str) -> None:
        self._inbox, self._broker, self._prefix = inbox, broker, prefix
        self._looks: dict[str, tuple[int, frozenset[tuple[str, str]]]] = {}

    def must_be_sent(self, task: str, workspace: str) -> bool:
        """Set the notification flag if no task lies in its queue; return whether the caller must send and confirm it.

        A task that a worker has taken but not begun counts as lost: usually it begins within milliseconds.
        """
        looked_at, queued = self._read_queue(TASK_QUEUES[task])
        return (task, workspace) not in queued and self._inbox.reclaim_notification(task, workspace, before=looked_at)

    def workspaces(self, tasks: Iterable[str]) -> set[str]:
        """Return the workspaces that have one of these tasks in its queue."""
        wanted = frozenset(tasks)
        queues = {TASK_QUEUES[task] for task in wanted}
        return {name for queue in queues for task, name in self._read_queue(queue)[1] if task in wanted}

    def _read_queue(self, queue: str) -> tuple[int, frozenset[tuple[str, str]]]:
        if queue not in self._looks:
            # Read the time first: if a flag is set after it, the queue as read may not have the flag's task yet.
            self._looks[queue] = self._inbox.now_micros(), frozenset(self._queued(queue))
        return self._looks[queue]

    def _queued(self, queue: str) -> list[tuple[str, str]]:
        found, first = [], 0
        while page := self._page(queue, first, first + _PAGE - 1):
            found += [named for message in page if (named := task_in(message)) is not None]
            # Tasks are put in at the front: while the list grows, some are read twice and none is left out.
            first += len(page)
        return found

    def _page(self, queue: str, first: int, last: int) -> list[bytes]:
        return call_broker(lambda: cast("list[bytes]", self._broker.lrange(self._prefix + queue, first, last)))


def next_in_queue(broker: redis.Redis, *, prefix: str, task: str, limit: int) -> list[str]:
    """Return the workspaces of the next tasks in a queue, the next one first. Raises `Unavailable`."""
    key = prefix + TASK_QUEUES[task]
    messages = call_broker(lambda: cast("list[bytes]", broker.lrange(key, -limit, -1)))
    found = [named[1] for message in reversed(messages) if (named := task_in(message)) and named[0] == task]
    return list(dict.fromkeys(found))


class TaskHeaders(NamedTuple):
    """The id of a task, its trace id, and the time at which it was sent; the last two are empty if it has none."""

    id: str
    trace: str
    sent_at: str


_HEADERS: Final = ("id", TRACE_HEADER, SENT_AT_HEADER)


def take_tasks(
    broker: redis.Redis, *, prefix: str, task: str, looked_at: int, wanted: Callable[[str], bool]
) -> Iterator[tuple[str, TaskHeaders]]:
    """Take tasks of this name out of the next messages of a queue, each when it is asked for.

    Yields the `wanted` workspaces among them with the headers of their tasks, and leaves the rest to Celery. A worker
    that is killed meanwhile has lost one task; its flag is left, and the sweeps find it. Raises `Unavailable`.
    """
    key = prefix + TASK_QUEUES[task]
    messages = call_broker(lambda: cast("list[bytes]", broker.lrange(key, -looked_at, -1)))
    for message in reversed(messages):
        name, workspace = task_in(message) or ("", "")
        if name != task or not (workspace == ACCOUNT_STORE or is_workspace_name(workspace)) or not wanted(workspace):
            continue
        headers = json.loads(message)["headers"]
        is_for_now = headers.get("eta") is None and headers.get("expires") is None
        if is_for_now and call_broker(partial(broker.lrem, key, -1, message.decode())):
            yield workspace, TaskHeaders(*(str(headers.get(name) or "") for name in _HEADERS))


def task_in(message: bytes) -> tuple[str, str] | None:
    """Return the name and the workspace of a task as it lies in a queue; None for anything else."""
    try:
        decoded = json.loads(message)
        name = decoded["headers"]["task"]
        workspace = json.loads(base64.b64decode(decoded["body"]))[1]["workspace"]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError):  # any program may write into a queue
        return None
    return (name, workspace) if isinstance(name, str) and isinstance(workspace, str) else None
