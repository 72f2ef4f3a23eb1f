"""Sends tasks to the agents' own Celery workers. The id of a task is that of its run."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec
import redis

from reverie.checks import check_workspace
from reverie.contract import agent_queue
from reverie.errors import Unavailable
from reverie.pipeline.broker import call_broker, connect
from reverie.pipeline.celery_settings import celery_class, celery_settings, celery_url
from reverie.problems import AgentQueueFull
from reverie.scheduling.checks import check_executor
from reverie.scheduling.schedule_types import TaskExecutor

# The prefix of the task headers that carry everything but the three arguments.
HEADER_PREFIX: Final = "reverie_"
# The size of a queue is estimated from so many tasks at each of its ends: tasks of a queue are much alike.
_SAMPLED: Final = 10
_REDIS_SCHEMES: Final = ("redis", "rediss", "unix")


class QueueLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much may wait in one queue of the agents' workers: tasks, and bytes of them."""

    tasks: int = 1_000
    bytes: int = 16_000_000


class AgentTasks:
    """Sends tasks to the broker of the agents' workers. Thread-safe."""

    def __init__(self, broker_url: str, *, prefix: str, limits: QueueLimits | None = None) -> None:
        """The `limits` are checked on Redis and Valkey; other brokers have limits of their own."""
        self._broker_url = broker_url
        self._prefix = prefix
        self._limits = limits or QueueLimits()
        self._app: Any = None
        self._redis: redis.Redis | None = None
        self._lock = threading.Lock()

    def send(
        self,
        executor: TaskExecutor,
        *,
        workspace: str,
        schedule_id: str,
        run_id: str,
        goal: str,
        headers: Mapping[str, Any],
        expires_at: datetime | None = None,
    ) -> None:
        """Send an executor's task with three keyword arguments; the items of `headers` become headers `reverie_...`.

        It goes to the queue of that name in the workspace. The id of the task is that of the run, also when it is sent
        again. A task that no worker has started by `expires_at` is dropped, so that workers that were down have no
        backlog. Raises `AgentQueueFull`, `Unavailable`, and `Rejected` for a task or queue that no executor may name.
        """
        from kombu.exceptions import OperationalError

        check_executor(executor)
        queue = agent_queue(check_workspace(workspace), executor.queue)
        self._check_room(queue)
        try:
            self._celery().send_task(
                executor.task,
                kwargs={"schedule_id": schedule_id, "run_id": run_id, "goal": goal},
                queue=queue,
                task_id=run_id,
                expires=expires_at,
                headers={f"{HEADER_PREFIX}{name}": value for name, value in headers.items()},
                # The goal must not show up in logs and events.
                argsrepr="()",
                kwargsrepr=repr({"schedule_id": schedule_id, "run_id": run_id}),
                retry=False,
            )
        except (OperationalError, OSError) as error:
            raise _not_accepted(error) from error

    def close(self) -> None:
        """Close the connections; the next task opens them again."""
        with self._lock:
            if self._app is not None:
                self._app.close()
                self._app = None
            if self._redis is not None:
                self._redis.close()
                self._redis = None

    def _check_room(self, queue: str) -> None:
        """Raise `AgentQueueFull` if a queue may take nothing more. Several threads may exceed it by a task each."""
        if urlsplit(self._broker_url).scheme not in _REDIS_SCHEMES:
            return
        with self._lock:
            if self._redis is None:
                self._redis = connect(self._broker_url)
            pipeline = self._redis.pipeline(transaction=False)
        key = self._prefix + queue
        pipeline.llen(key)
        pipeline.lrange(key, 0, _SAMPLED - 1)
        pipeline.lrange(key, -_SAMPLED, -1)
        try:
            waiting, first, last = cast("tuple[int, list[bytes], list[bytes]]", call_broker(pipeline.execute))
        except Unavailable as error:
            raise _not_accepted(error) from error
        sizes = [len(task) for task in (*first, *last)]
        each = sum(sizes) // max(1, len(sizes))
        if waiting >= self._limits.tasks or (waiting + 1) * each > self._limits.bytes:
            raise AgentQueueFull(
                f"the queue {queue} of the agents' own workers is full: {waiting:,} tasks of about"
                f" {waiting * each:,} bytes wait in it, of at most {self._limits.tasks:,} and {self._limits.bytes:,}."
                " What waits is kept. Are its"
                " workers running? Start some, or pause its schedules. The limits are the settings agent_queue_tasks"
                " and agent_queue_mb"
            )

    def _celery(self) -> Any:
        with self._lock:
            if self._app is None:
                self._app = agent_app("reverie-agent-tasks", self._broker_url, prefix=self._prefix)
            return self._app


def _not_accepted(error: Exception) -> Unavailable:
    return Unavailable(f"the agents' broker did not accept the task ({error}): check agent_broker_url")


def agent_app(name: str, broker_url: str, *, prefix: str) -> Any:
    """Return a Celery app with Reverie's broker settings. It does not become the current app of the process."""
    app = celery_class()(name, broker=celery_url(broker_url), set_as_current=False)
    shared = celery_settings(prefix)
    # The queues are the agents' own: none of their tasks may end up in a queue of Reverie.
    for setting in ("task_routes", "task_default_queue"):
        del shared[setting]
    app.conf.update(shared)
    return app
