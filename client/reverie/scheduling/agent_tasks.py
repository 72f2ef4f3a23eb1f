"""Tasks to the agents' own Celery workers: the names are theirs, the ids are Reverie's."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from reverie.errors import Unavailable
from reverie.pipeline.celery_settings import celery_settings, celery_url

# In which the task's headers say more than its three arguments do.
HEADER_PREFIX: Final = "reverie_"


class AgentTasks:
    """Sends tasks to a broker that agents' workers listen to. Safe to share between threads."""

    def __init__(self, broker_url: str, *, prefix: str) -> None:
        self._broker_url = broker_url
        self._prefix = prefix
        self._app: Any = None
        self._lock = threading.Lock()

    def send(
        self,
        task: str,
        queue: str,
        *,
        schedule_id: str,
        run_id: str,
        goal: str,
        more: Mapping[str, Any],
        expires_at: datetime | None = None,
    ) -> None:
        """Send a task with these three as its keyword arguments; `more` goes along as headers `reverie_...`.

        The task's id is the run's, also when it is sent again. One that no worker has begun by `expires_at` is not
        begun any more: workers that were away for a night have no night to make up for. Raises `Unavailable`.
        """
        from kombu.exceptions import OperationalError

        try:
            self._celery().send_task(
                task,
                kwargs={"schedule_id": schedule_id, "run_id": run_id, "goal": goal},
                queue=queue,
                task_id=run_id,
                expires=expires_at,
                headers={f"{HEADER_PREFIX}{name}": value for name, value in more.items()},
                # What is said is no matter of logs and events.
                argsrepr="()",
                kwargsrepr=repr({"schedule_id": schedule_id, "run_id": run_id}),
                retry=False,
            )
        except (OperationalError, OSError) as error:
            raise Unavailable(f"the agents' broker took no task ({error}): check agent_broker_url") from error

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
    """A Celery app that speaks to the broker as Reverie does; it is not made the process's current one."""
    from celery import Celery

    app = Celery(name, broker=celery_url(broker_url), set_as_current=False)
    shared = celery_settings(prefix)
    # The queues are the agents' own: nothing of theirs may end up in one of Reverie's.
    for setting in ("task_routes", "task_default_queue"):
        del shared[setting]
    app.conf.update(shared)
    return app
