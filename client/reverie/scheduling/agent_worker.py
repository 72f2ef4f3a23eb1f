"""Both ends of the tasks that an agent's own Celery workers execute: Reverie sends them, `AgentWorker` takes them.

    # my_agent.py
    from reverie import AgentWorker

    worker = AgentWorker(agent="ana", queue="ana")

    @worker.task("my_agent.summarise")
    def summarise(goal, run):
        return f"did: {goal}"

    app = worker.app      # celery -A my_agent worker

The return value of the function is the output of the run; an exception is the error of a failed run. The id of a task
is that of its run.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import urlsplit

import msgspec
import redis
from msgspec.structs import asdict

from reverie import contract
from reverie.checks import check_agent, check_workspace
from reverie.config import resolve_broker, resolve_worker_key, resolve_workspace
from reverie.contract import agent_queue
from reverie.errors import AgentQueueFull, Conflict, NotFound, Rejected, Transient, Unavailable
from reverie.pipeline.broker import call_broker, celery_class, celery_settings, celery_url, connect
from reverie.scheduling.run_signing import SignedRun, check_run, check_worker_key
from reverie.scheduling.types import RunReport, TaskExecutor, check_executor, check_queue

if TYPE_CHECKING:
    from reverie.client import Reverie

# The prefix of the task headers that carry everything but the three arguments.
HEADER_PREFIX: Final = "reverie_"
# The bytes in a queue are estimated from this many tasks at each end: tasks of one queue have similar sizes.
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
                " What waits is kept. Are its workers running? Start some, or pause its schedules"
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


# The longest pause between attempts to report while the server is unavailable; the first is 1 s, then they double.
_MAX_WAIT_SECONDS: Final = 60.0
# Added to the maximum time of the function: enough to report even if the server restarts meanwhile.
_REPORT_SECONDS: Final = 120
_ERROR_CHARACTERS: Final = 2_000
# The ids of runs that a process remembers; the server knows all others.
_MAX_SEEN: Final = 1_000

# The arguments of a task that executes a run.
_ARGUMENTS: Final = ("schedule_id", "run_id", "goal")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Run:
    """The run that a task executes. After a crash, a run may be executed again under the same id.

    It belongs to `user`, else to the users of `session`, else to no user: recall with the same `user` or `session`.
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
        from celery.signals import task_unknown

        task_unknown.connect(self._fail_unknown)

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

    def _fail_unknown(self, *, sender: Any, message: Any, name: str, **_: Any) -> None:
        """Let the run of a task that is not registered fail at once: Celery drops the message, and nobody reports.

        In a thread, since the worker goes on meanwhile.
        """
        if sender.app is not self.app:
            return
        known = ", ".join(sorted(one for one in self.app.tasks if not one.startswith("celery.")))
        failed = RunReport(status="failed", error=f"the worker has no task {name!r}; it has {known or 'none'}")

        def report() -> None:
            with contextlib.suppress(Refused):
                signed = _signed_run(message, name, *(message.payload[1].get(one) for one in _ARGUMENTS))
                self._execute(lambda _goal, _run: failed, *signed)

        threading.Thread(target=report, daemon=True).start()

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
            self._key = check_worker_key(_persist(reverie.runs.worker_key, self._longest_seconds).key)
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
        except BaseException:  # the result was not reported, so the run may be sent again
            with self._seen_lock:
                self._seen.pop(run_id, None)
            raise


class Refused(Exception):
    """A task that is not executed: it was not sent by Reverie for this agent, or has been executed."""


def _check_open(reverie: Reverie, signed: SignedRun) -> None:
    """Raise `Refused` unless the server knows a run, of this schedule, that has not ended."""
    try:
        found = _persist(
            lambda: reverie.runs.get(signed.run_id, user=signed.user, session=signed.session),
            signed.timeout_seconds,
        )
    except NotFound:
        raise Refused("there is no such run") from None
    if found.schedule_id != signed.schedule_id:
        raise Refused(f"it is a run of schedule {found.schedule_id}")
    if found.status not in ("pending", "running"):
        raise Refused(f"it has ended: {found.status.replace('_', ' ')}")


def _persist(call: Callable[[], _T], seconds: float) -> _T:
    """Make a call and return its result; while the server is unavailable, repeat it for at most `seconds`."""
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
        reverie.runs.complete(run.id, user=run.user, **asdict(report))
    except (Conflict, NotFound):
        raise
    except Rejected as error:
        if error.field not in report.__struct_fields__:
            raise
        reverie.runs.complete(run.id, user=run.user, status="failed", error=f"its return value was rejected: {error}")


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
