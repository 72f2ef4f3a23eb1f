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

import contextlib
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec.structs import asdict

from reverie import contract
from reverie.checks import check_agent
from reverie.config import resolve_broker, resolve_worker_key, resolve_workspace
from reverie.errors import Conflict, NotFound, Rejected, Transient
from reverie.scheduling.agent_tasks import HEADER_PREFIX, agent_app
from reverie.scheduling.checks import check_executor, check_queue
from reverie.scheduling.run_signing import SignedRun, check_run, check_worker_key
from reverie.scheduling.schedule_types import RunReport, TaskExecutor

if TYPE_CHECKING:
    from reverie.client import Reverie

# The longest pause between attempts to report while the server is unavailable; the first is 1 s, then they double.
_MAX_WAIT_SECONDS: Final = 60.0
# Added to the maximum time of the function: enough to report even if the server restarts meanwhile.
_REPORT_SECONDS: Final = 120
_ERROR_CHARACTERS: Final = 2_000
# The ids of runs that a process remembers; the server knows all others.
_MAX_SEEN: Final = 1_000

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Run:
    """The run that a task executes. After a crash, a run may be executed again under the same id.

    It belongs to `user`, else to the users of `session`, else to nobody: recall as that user for it.
    """

    id: str
    schedule_id: str
    goal: str
    agent: str
    workspace: str
    due_at: datetime | None
    timeout_seconds: int
    user: str | None = None
    session: str | None = None


class AgentWorker:
    """Executes schedules in the agent's own Celery workers, and reports the result of each run.

    It serves the queue `queue` of one workspace, by default that of REVERIE_WORKSPACE. `broker` is the URL that Reverie
    sends tasks to, by default REVERIE_BROKER (`reverie broker-url` prints it). `url` and `token` are those of Reverie's
    server, which receives the reports; a token needs the scopes read and schedule. `key` verifies that a run was sent
    by Reverie for this agent: by default REVERIE_WORKER_KEY, else it is fetched from the server. `longest_seconds` is
    the maximum time of a function, the same for all workers of a queue: after that a task counts as lost, and another
    worker gets it. `app` is an ordinary Celery app: configure it as you like. Raises `Rejected`.
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
        key: str | None = None,
        longest_seconds: int = 300,
    ) -> None:
        if longest_seconds < 1:
            raise Rejected(f"longest_seconds is {longest_seconds}; it must be at least 1", field="longest_seconds")
        self._longest_seconds = longest_seconds
        self.agent = check_agent(agent)
        self.workspace = resolve_workspace(workspace)
        self.queue = check_queue(queue)
        celery_queue = contract.agent_queue(self.workspace, queue)
        self._url = url
        self._token = token
        key = resolve_worker_key(key)
        self._key = check_worker_key(key) if key else None
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._seen_lock = threading.Lock()
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
                try:
                    signed, signature = _signed_run(task.request, name, schedule_id, run_id, goal)
                    self._execute(function, signed, signature)
                except Refused as error:
                    from celery.exceptions import Reject

                    # Not reported: a run of the same id may be under way, and somebody else may have sent this one.
                    raise Reject(f"run {run_id!r:.80} is refused: {error}", requeue=False) from None

            # Celery displays these. __name__ is not copied: that of a lambda is not a valid name.
            execute.__qualname__ = getattr(function, "__qualname__", name)
            execute.__doc__ = function.__doc__
            return self.app.task(name=name, bind=True, shared=False)(execute)  # not with other apps of the process

        return register

    def _execute(self, function: Callable[..., Any], signed: SignedRun, signature: object) -> None:
        """Execute a run and report its result, if it is for this agent and open. Raises `Refused`."""
        from reverie.client import Reverie

        with Reverie(agent=self.agent, workspace=self.workspace, url=self._url, token=self._token) as reverie:
            self._check(reverie, signed, signature)
            with self._once(signed.run_id):
                _check_open(reverie, signed)
                run = _to_run(signed)
                report = _report_of(function, run)
                # An obsolete report: the run was cancelled or deleted, or its time is over.
                with contextlib.suppress(Conflict, NotFound):
                    _persist(lambda: _send(reverie, run, report), run.timeout_seconds)

    def _check(self, reverie: Reverie, signed: SignedRun, signature: object) -> None:
        """Raise `Refused` unless a run is signed for this agent. The key is fetched first, if it was not given."""
        if self._key is None:
            self._key = check_worker_key(_persist(reverie.worker_key, self._longest_seconds).key)
        try:
            check_run(
                self._key,
                signed,
                signature,
                agent=self.agent,
                workspace=self.workspace,
                now=datetime.now(UTC).timestamp(),
            )
        except Rejected as error:
            raise Refused(str(error)) from None

    @contextlib.contextmanager
    def _once(self, run_id: str) -> Iterator[None]:
        """Remember a run that is executed. Raises `Refused` if this process executes it or has executed it."""
        with self._seen_lock:
            if run_id in self._seen:
                raise Refused("this worker has had it before")
            self._seen[run_id] = None
            while len(self._seen) > _MAX_SEEN:
                self._seen.popitem(last=False)
        try:
            yield
        except BaseException:  # it was not reported, so it may come again
            with self._seen_lock:
                self._seen.pop(run_id, None)
            raise


class Refused(Exception):
    """A task that is not executed: it was not sent by Reverie for this agent, or has been executed."""


def _check_open(reverie: Reverie, signed: SignedRun) -> None:
    """Raise `Refused` unless the server knows a run, of this schedule, that has not ended."""
    try:
        found = _persist(
            lambda: reverie.schedule_run(signed.run_id, user=signed.user, session=signed.session),
            signed.timeout_seconds,
        )
    except NotFound:
        raise Refused("there is no such run") from None
    if found.schedule_id != signed.schedule_id:
        raise Refused(f"it is a run of schedule {found.schedule_id}")
    if found.status not in ("pending", "running"):
        raise Refused(f"it has ended: {found.status.replace('_', ' ')}")


def _persist(call: Callable[[], _T], seconds: float) -> _T:
    """Return what a call returns, repeated for this many seconds while the server is unavailable."""
    deadline = time.monotonic() + seconds
    wait = 1.0
    while True:
        try:
            return call()
        except Transient:
            if time.monotonic() + wait > deadline:
                raise
        time.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - spreads retries, not for security
        wait = min(2 * wait, _MAX_WAIT_SECONDS)


def _send(reverie: Reverie, run: Run, report: RunReport) -> None:
    """Send a report; if the server rejects it, report the run as failed."""
    try:
        reverie.complete_run(run.id, user=run.user, **asdict(report))
    except (Conflict, NotFound):
        raise
    except Rejected as error:
        if error.field not in report.__struct_fields__:
            raise
        reverie.complete_run(run.id, user=run.user, status="failed", error=f"its return value was rejected: {error}")


def _report_of(function: Callable[..., Any], run: Run) -> RunReport:
    try:
        result = function(run.goal, run)
    except Exception as error:  # noqa: BLE001 - the boundary of the task: any error of the function fails the run
        error_text = f"{type(error).__name__}: {error}"[:_ERROR_CHARACTERS]
        return RunReport(status="failed", error=error_text.replace("\x00", "").encode("utf-8", "replace").decode())
    if isinstance(result, RunReport):
        return result
    return RunReport(output="" if result is None else str(result))


def _signed_run(request: Any, task: str, schedule_id: str, run_id: str, goal: str) -> tuple[SignedRun, object]:
    """Return the run in a task and its signature. Raises `Refused` for a task that Reverie does not send."""

    def header(name: str) -> Any:
        key = f"{HEADER_PREFIX}{name}"
        return (request.headers or {}).get(key, getattr(request, key, None))

    if header("signature") is None:
        raise Refused("it is not signed: upgrade Reverie, if it is older than this client")
    covered = ("agent", "workspace", "due_at", "timeout_seconds", "trace", "signed_at", "user", "session")
    arguments = {"task": task, "schedule_id": schedule_id, "run_id": run_id, "goal": goal}
    fields = arguments | {name: header(name) for name in covered}
    try:
        run = msgspec.convert([fields[name] for name in SignedRun.__struct_fields__], SignedRun)
    except msgspec.ValidationError as error:
        raise Refused(f"its headers or arguments are not those of a run: {error}") from None
    return run, header("signature")


def _to_run(signed: SignedRun) -> Run:
    return Run(
        id=signed.run_id,
        schedule_id=signed.schedule_id,
        goal=signed.goal,
        agent=signed.agent,
        workspace=signed.workspace,
        due_at=datetime.fromisoformat(signed.due_at) if signed.due_at else None,
        timeout_seconds=signed.timeout_seconds,
        user=signed.user,
        session=signed.session,
    )
