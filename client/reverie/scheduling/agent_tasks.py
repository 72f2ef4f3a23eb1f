"""Sends tasks to the agents' own Celery workers. The id of a task is that of its run."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from reverie.checks import check_workspace
from reverie.contract import agent_queue
from reverie.errors import Unavailable
from reverie.pipeline.celery_settings import celery_settings, celery_url
from reverie.scheduling.checks import check_executor
from reverie.scheduling.schedule_types import TaskExecutor

# The prefix of the task headers that carry everything but the three arguments.
HEADER_PREFIX: Final = "reverie_"


class AgentTasks:
    """Sends tasks to the broker of the agents' workers. Thread-safe."""

    def __init__(self, broker_url: str, *, prefix: str) -> None:
        self._broker_url = broker_url
        self._prefix = prefix
        self._app: Any = None
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
        backlog. Raises `Unavailable`, and `Rejected` for a task or queue that no executor may name.
        """
        from kombu.exceptions import OperationalError

        check_executor(executor)
        queue = agent_queue(check_workspace(workspace), executor.queue)
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
            raise Unavailable(
                f"the agents' broker did not accept the task ({error}): check agent_broker_url"
            ) from error

    def close(self) -> None:
        """Close the connections; the next task opens them again."""
        with self._lock:
            if self._app is not None:
                self._app.close()
                self._app = None

    def _celery(self) -> Any:
        with self._lock:
            if self._app is None:
                self._app = agent_app("reverie-agent-tasks", self._broker_url, prefix=self._prefix)
            return self._app


def agent_app(name: str, broker_url: str, *, prefix: str) -> Any:
    """Return a Celery app with Reverie's broker settings. It does not become the current app of the process."""
    from celery import Celery

    app = Celery(name, broker=celery_url(broker_url), set_as_current=False)
    shared = celery_settings(prefix)
    # The queues are the agents' own: none of their tasks may end up in a queue of Reverie.
    for setting in ("task_routes", "task_default_queue"):
        del shared[setting]
    app.conf.update(shared)
    return app
