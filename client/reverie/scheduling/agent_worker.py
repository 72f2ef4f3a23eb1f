"""Executes schedules in an agent's own process: a Celery app whose tasks report their results.

    # my_agent.py
    from reverie import AgentWorker

    worker = AgentWorker(agent="ana", queue="ana")

    @worker.task("my_agent.summarise")
    def summarise(goal, run):
        return f"did: {goal}"

    app = worker.app      # celery -A my_agent worker

The return value of the function is the output of the run; an exception is the error of a failed run.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import asdict

from reverie import contract
from reverie.checks import check_agent
from reverie.config import resolve_broker, resolve_workspace
from reverie.errors import Conflict, NotFound, Rejected, Transient
from reverie.scheduling.agent_tasks import HEADER_PREFIX, agent_app
from reverie.scheduling.checks import check_executor, check_queue
from reverie.scheduling.schedule_types import RunReport, TaskExecutor

if TYPE_CHECKING:
    from reverie.client import Reverie

# The longest pause between attempts to report while the server is unavailable; the first is 1 s, then they double.
_MAX_WAIT_SECONDS: Final = 60.0
# Added to the maximum time of the function: enough to report even if the server restarts meanwhile.
_REPORT_SECONDS: Final = 120
_ERROR_CHARACTERS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Run:
    """The run that a task executes. After a crash, a run may be executed again under the same id."""

    id: str
    schedule_id: str
    goal: str
    agent: str
    workspace: str
    due_at: datetime | None
    timeout_seconds: int


class AgentWorker:
    """Executes schedules in the agent's own Celery workers, and reports the result of each run.

    It serves the queue `queue` of one workspace, by default that of REVERIE_WORKSPACE. `broker` is the URL that Reverie
    sends tasks to, by default REVERIE_BROKER (`reverie broker-url` prints it). `url` and `token` are those of Reverie's
    server, which receives the reports. `longest_seconds` is the maximum time of a function, the same for all workers of
    a queue: after that a task counts as lost, and another worker gets it. `app` is an ordinary Celery app: configure it
    as you like. Raises `Rejected`.
    """

    def __init__(
        self,
        *,
        agent: str,
        queue: str,
        workspace: str | None = None,
        broker: str | None = None,
        prefix: str | None = None,
        url: str | None = None,
        token: str | None = None,
        longest_seconds: int = 300,
    ) -> None:
        if longest_seconds < 1:
            raise Rejected(f"longest_seconds is {longest_seconds}; it must be at least 1", field="longest_seconds")
        self.agent = check_agent(agent)
        self.workspace = resolve_workspace(workspace)
        self.queue = check_queue(queue)
        celery_queue = contract.agent_queue(self.workspace, queue)
        self._url = url
        self._token = token
        broker, prefix = resolve_broker(broker, prefix)
        self.app: Any = agent_app(f"{agent}-agent", broker, prefix=prefix)
        self.app.conf.broker_transport_options.update(
            # Not the default keys: Reverie's workers use them and would redeliver a task after their own ten minutes.
            {f"{name}_key": f"{name}:{celery_queue}" for name in ("unacked", "unacked_index", "unacked_mutex")},
            visibility_timeout=longest_seconds + _REPORT_SECONDS,
        )
        self.app.conf.update(
            visibility_timeout=longest_seconds + _REPORT_SECONDS,
            task_default_queue=celery_queue,
            # The task of a worker that dies is delivered again: Reverie accepts the first report of a run.
            task_acks_late=True,
            task_reject_on_worker_lost=True,
            worker_prefetch_multiplier=1,
        )

    def task(self, name: str) -> Callable[[Callable[..., Any]], Any]:
        """Register a function under a task name. It is called with the goal and the `Run`.

        It returns a text, a `RunReport` or None. Raises `Rejected` for a name that is reserved for Reverie.
        """
        check_executor(TaskExecutor(task=name, queue=self.queue))

        def register(function: Callable[..., Any]) -> Any:
            def execute(task: Any, *, schedule_id: str, run_id: str, goal: str) -> None:
                run = _run_of(task.request, schedule_id, run_id, goal, self.agent)
                self._report(run, _report_of(function, run))

            # Celery displays these. __name__ is not copied: that of a lambda is not a valid name.
            execute.__qualname__ = getattr(function, "__qualname__", name)
            execute.__doc__ = function.__doc__
            return self.app.task(name=name, bind=True, shared=False)(execute)  # not with other apps of the process

        return register

    def _report(self, run: Run, report: RunReport) -> None:
        """Report until the server accepts it or the run's time is over."""
        from reverie.client import Reverie

        deadline = time.monotonic() + run.timeout_seconds
        wait = 1.0
        with Reverie(agent=run.agent, workspace=run.workspace, url=self._url, token=self._token) as reverie:
            while True:
                try:
                    _send(reverie, run, report)
                    return
                except (Conflict, NotFound):
                    return  # cancelled, too late or deleted: the report is obsolete
                except Transient:
                    if time.monotonic() + wait > deadline:
                        raise
                time.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries, not for security
                wait = min(2 * wait, _MAX_WAIT_SECONDS)


def _send(reverie: Reverie, run: Run, report: RunReport) -> None:
    """Send a report; if the server rejects it, report the run as failed."""
    try:
        reverie.complete_run(run.id, **asdict(report))
    except (Conflict, NotFound):
        raise
    except Rejected as error:
        if error.field not in report.__struct_fields__:
            raise
        reverie.complete_run(run.id, status="failed", error=f"its return value was rejected: {error}")


def _report_of(function: Callable[..., Any], run: Run) -> RunReport:
    try:
        result = function(run.goal, run)
    except Exception as error:  # noqa: BLE001 - the boundary of the task: any error of the function fails the run
        error_text = f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS]
        return RunReport(status="failed", error=error_text.replace("\x00", "").encode("utf-8", "replace").decode())
    if isinstance(result, RunReport):
        return result
    return RunReport(output="" if result is None else str(result))


def _run_of(request: Any, schedule_id: str, run_id: str, goal: str, agent: str) -> Run:
    def header(name: str) -> Any:
        key = f"{HEADER_PREFIX}{name}"
        return (request.headers or {}).get(key, getattr(request, key, None))

    due_at = header("due_at")
    return Run(
        id=run_id,
        schedule_id=schedule_id,
        goal=goal,
        agent=header("agent") or agent,
        workspace=header("workspace") or contract.DEFAULT_WORKSPACE,
        due_at=datetime.fromisoformat(due_at) if due_at else None,
        timeout_seconds=int(header("timeout_seconds") or 600),
    )
