"""The Celery app of the workers, and everything around a task: trace ids, logs, heartbeats, ending with the parent."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import chain, islice
from typing import Any, Final

import structlog
from billiard.exceptions import TimeLimitExceeded, WorkerLostError
from billiard.process import current_process
from celery import Celery, current_task, signals
from celery.apps import worker as celery_worker
from celery.loaders.app import AppLoader
from celery.utils.nodenames import node_format

from adapters.broker.queued_tasks import TaskHeaders, take_tasks
from adapters.embedders.guarded import GuardedEmbedder
from memory.stage import STAGE_BUDGET_SECONDS
from reverie import contract
from reverie.checks import is_workspace_name
from reverie.errors import ReverieError, Unavailable
from reverie.pipeline.broker import celery_settings, celery_url
from reverie.pipeline.status import TaskDeath
from storage.opened import open_stores
from worker.consumption import Consumption
from worker.host_upkeep import start_host_upkeep
from worker.logs import LOG_FILE, configure_logging, logs_json, write_line
from worker.pipeline import warn_of_broker
from worker.reports import HEARTBEAT_SECONDS, TaskReporter, count_task, observe_wait, send_heartbeat, trace_task
from worker.runtime import Runtime
from worker.settings import Settings, load_settings
from worker.supervision.alive_signs import PoolSigns, give_alive_signs
from worker.supervision.processes import die_with_parent, lower_priority_now

# Hard limit of a task; a stage returns after seconds. Must stay below the broker's visibility timeout.
TASK_TIME_LIMIT_SECONDS: Final = 300
# A worker goes from one workspace to the next, and reopens a workspace in 3 ms. An open connection takes some 2.5 MB
# with its schema: with a server's limit of 300, worker processes took 1 GB after a thousand workspaces.
_KEPT_CONNECTIONS: Final = 20
# A backup copies every database that was written since, always as a whole.
_TIME_LIMITS_SECONDS: Final = {contract.BACK_UP: 540}
# Long-lived connections of sqlite-vec are reported to leak memory, so pool children are replaced after this many tasks.
TASKS_PER_CHILD: Final = 20_000
# Threads may finish hundreds of tasks a second: report them together. The next heartbeat reports the remainder.
_THREADS_REPORT_SECONDS: Final = 0.25
# A store usually opens in milliseconds. A store that migrates much data would block the only child of the pool.
STORE_PATIENCE_SECONDS: Final = 5.0
# A connection is given up when the broker has not answered for this long. kombu's default of 25 s, counted twice, makes
# a worker wait for nearly a minute for a host that is gone.
_BROKER_CHECK_SECONDS: Final = 10
# How often each worker asks for the messages of dead workers, which have waited ten minutes by then. Every 10 s, this
# was a tenth of the calls to the broker of an idle Reverie.
_RESTORE_SECONDS: Final = 60
# Embedding takes longest, so the short steps of other workers, and recalls, have priority.
_EMBED_NICENESS: Final = 10
_REQUEST: Final = "worker.consumer:PoolRequest"
# Before the next tasks, one takes so many of workspaces that its process knows, if they are among so many that wait: a
# message of theirs does not wait for hundreds of workspaces that have begun before it. To look takes some 10 ms.
_KNOWN_AT_ONCE: Final = 8
_LOOKED_AT: Final = 1_000
# The arguments of tasks that appear in log lines. Any program may send a task with arguments of other names.
_LOGGED_ARGUMENTS: Final = ("workspace", "run", "manual", "dry_run")
# Maximum number of trace ids in a log line; the line also has their total count.
_MAX_LOGGED_TRACES: Final = 50

log = structlog.get_logger(__name__)

_TASK_MODULES: Final = (
    "tasks.pipeline",
    "tasks.memories",
    "tasks.recall",
    "tasks.items",
    "tasks.sessions",
    "tasks.upkeep",
    "tasks.scheduling",
    "tasks.trust",
)


class InstalledLoader(AppLoader):  # type: ignore[misc]  # celery has no types
    """Imports installed modules only.

    Celery's own loader puts the current folder first on the path, and an agent's developer may start Reverie in a
    folder with a tasks.py or storage.py of their own.
    """

    def import_from_cwd(self, module: str, imp: object = None, package: str | None = None) -> Any:
        """Import a module without adding the current folder to the path."""
        del imp
        return importlib.import_module(module, package)


def create_app(settings: Settings) -> Celery:
    """Return the Celery app, with the settings that make workers safe to kill."""
    app = Celery(
        "reverie",
        broker=celery_url(settings.broker_url),
        include=list(_TASK_MODULES),
        loader=InstalledLoader,
        events="worker.consumer:Events",
    )
    app.conf.update(celery_settings(settings.broker_prefix))
    app.conf.broker_transport_options["health_check_interval"] = _BROKER_CHECK_SECONDS
    app.conf.broker_transport_options["unacked_restore_interval"] = _RESTORE_SECONDS
    app.conf.update(
        # A task is acknowledged after its end; if its worker dies, it is delivered again. This is safe because every
        # task may run twice, and bounded because rows count crashes.
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_acks_on_failure_or_timeout=False,
        task_acks_on_timeout=False,
        task_time_limit=TASK_TIME_LIMIT_SECONDS,
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=settings.broker_remote_control,
        worker_max_tasks_per_child=TASKS_PER_CHILD,
        # The default of 4 s kills children while many processes start at once on a slow machine.
        worker_proc_alive_timeout=30.0,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_max_retries=None,
        # A broker whose disk or memory is full refuses each write. Without this a worker exits at the first refusal
        # and kills its children during their tasks.
        broker_channel_error_retry=True,
        beat_scheduler="worker.beat:CatchUpScheduler",
        worker_consumer="worker.consumer:QueueConsumer",
    )
    return app


settings = load_settings()
app = create_app(settings)
_runtime: Runtime | None = None
_pool_signs: PoolSigns | None = None
# The last tasks of this worker whose processes died. More than two say no more about what kills them.
_deaths: deque[TaskDeath] = deque(maxlen=2)


def prepare_threads() -> None:
    """Make the resources that the threads of this process share before they start, or each would make its own."""
    _reporter.every_seconds = _THREADS_REPORT_SECONDS
    runtime = current_runtime()
    runtime.make_all()
    runtime.schedules.prepare()
    runtime.schedules.waits_for_due = True
    start_host_upkeep(settings)


def current_runtime() -> Runtime:
    """Return the runtime of this process; a forked child makes its own."""
    global _runtime
    if _runtime is None or _runtime.pid != os.getpid():
        _runtime = Runtime(settings)
        _runtime.store_patience_seconds = STORE_PATIENCE_SECONDS
        _runtime.kept_connections = _KEPT_CONNECTIONS
        _runtime.current_task = lambda: str(current_task.name) if current_task else ""
    return _runtime


@contextmanager
def use_runtime(other: Runtime) -> Iterator[None]:
    """Make the tasks of this process use another runtime, for instance one with a fake clock."""
    global _runtime
    before, _runtime = _runtime, other
    try:
        yield
    finally:
        _runtime = before


_reporter = TaskReporter(current_runtime)


def task(name: str, *, takes_next: bool = False) -> Callable[[Callable[..., Mapping[str, Any]]], Any]:
    """Register a task under its name in the contract. It takes keyword arguments and returns counts, which are logged.

    With `takes_next`, it takes the place of others in its queue as well, for a quarter of a second, if those of many
    workspaces wait: Celery takes some 8 ms of all processes for each task, half of what a new workspace costs.

    Errors end here: each is logged once, with ids, never with content. Celery retries nothing: the rows say what to
    retry and when.
    """

    known = set[str]()

    def register(function: Callable[..., Mapping[str, Any]]) -> Any:
        def run(self: Any, **arguments: Any) -> None:
            own = (_headers_of(self.request), arguments)
            others = ((headers, {"workspace": workspace}) for workspace, headers in _next_of_many(name, known))
            for headers, named in chain((own,), others if takes_next else ()):
                done = _run(name, function, headers, named)
                known.update(named.values() if done and takes_next else ())
                _reporter.end_task(done=done)

        run.__name__ = function.__name__
        run.__doc__ = function.__doc__
        run.__module__ = function.__module__
        limit_seconds = _TIME_LIMITS_SECONDS.get(name)
        # The queue of the task is in `task_routes`.
        registered = app.task(name=name, bind=True, time_limit=limit_seconds, Request=_REQUEST)(run)
        registered.body = function  # for `reverie run`, which needs the counts and the errors
        return registered

    return register


def run_within(name: str, function: Callable[..., Mapping[str, Any]], *, trace: str, workspace: str) -> bool:
    """Do what the task `name` would do within the present task, which spares Celery's work; return whether it was done.

    It has its own log line, metrics and span, and its errors end here as well.
    """
    headers = TaskHeaders(str(current_task.request.id) if current_task else "", trace, "")
    return _run(name, function, headers, {"workspace": workspace})


def _run(
    name: str, function: Callable[..., Mapping[str, Any]], headers: TaskHeaders, arguments: Mapping[str, Any]
) -> bool:
    """Call the function of a task with everything around it; return whether it raised nothing."""
    runtime = current_runtime()
    if headers.sent_at:
        observe_wait(runtime, name, headers.sent_at)
    outcome, started = "failed", time.monotonic()
    counts: Mapping[str, Any] = {}
    logged: dict[str, Any] = {name: arguments[name] for name in _LOGGED_ARGUMENTS if name in arguments}
    with structlog.contextvars.bound_contextvars(trace_id=headers.trace, task=name, task_id=headers.id):
        try:
            counts = function(**arguments)
        except ReverieError as error:
            # No traceback: the message of our own errors says what failed and what to do.
            log.error("task_failed", error_type=type(error).__name__, error=str(error), **logged)  # noqa: TRY400
        except Exception:  # the boundary of the task: a bug must not end the worker
            outcome = "crashed"
            log.exception("task_crashed", **logged)
        else:
            outcome = "done"
            _log_end(counts, started, logged)
        finally:
            seconds, done = time.monotonic() - started, outcome == "done"
            count_task(runtime, name, outcome, seconds)
            trace_task(runtime, name, counts=counts, trace=headers.trace, failed=not done, seconds=seconds)
    return done


def _next_of_many(name: str, known: Set[str]) -> Iterator[tuple[str, TaskHeaders]]:
    """Yield tasks that are taken out of a queue, one by one while many wait there, of some known workspaces first."""
    runtime, ends = current_runtime(), time.monotonic() + STAGE_BUDGET_SECONDS
    take = partial(take_tasks, runtime.broker, prefix=runtime.settings.broker_prefix, task=name)
    with contextlib.suppress(Unavailable):
        if time.monotonic() >= ends or not runtime.inbox.has_many_tasks(name):
            return
        yield from islice(take(looked_at=_LOOKED_AT, wanted=known.__contains__), _KNOWN_AT_ONCE)
        while time.monotonic() < ends and runtime.inbox.has_many_tasks(name):
            found = next(take(looked_at=1, wanted=is_workspace_name), None)
            if found is None:
                return
            yield found


def _headers_of(request: Any) -> TaskHeaders:
    """Return the headers of a task, with an empty trace id if it was sent without one."""
    trace = (request.headers or {}).get(contract.TRACE_HEADER) or getattr(request, contract.TRACE_HEADER, None)
    return TaskHeaders(request.id, str(trace or ""), str(getattr(request, contract.SENT_AT_HEADER, None) or ""))


def _log_end(counts: Mapping[str, Any], started: float, arguments: Mapping[str, Any]) -> None:
    fields = dict(counts)
    traces = sorted(fields.pop("traces", ()))
    if traces:
        fields["trace_ids"] = traces[:_MAX_LOGGED_TRACES]
        fields["traces"] = len(traces)
    worked = any(value for key, value in fields.items() if key not in ("looked_at", "seconds", "skipped"))
    write = log.info if worked else log.debug
    write("task_done", milliseconds=round((time.monotonic() - started) * 1_000, 1), **{**arguments, **fields})


@signals.celeryd_init.connect  # type: ignore[untyped-decorator]
def _begin_worker(sender: str, instance: Any, options: Mapping[str, Any], **_: Any) -> None:
    """Name a worker that `celery -A worker.app` started after its node, and keep Celery's prints out of JSON logs."""
    os.environ.setdefault("REVERIE_PROCESS", sender)
    if options.get("logfile"):
        os.environ.setdefault(LOG_FILE, node_format(str(options["logfile"]), sender))
    _configure_logging()
    if logs_json(settings):
        instance.quiet = True
        celery_worker.safe_say = write_line


@signals.setup_logging.connect  # type: ignore[untyped-decorator]
def _configure_logging(**_: Any) -> None:
    configure_logging(settings, process=os.environ.get("REVERIE_PROCESS", "worker"))


@signals.worker_process_init.connect  # type: ignore[untyped-decorator]
def _start_child(**_: Any) -> None:
    """Make a pool child end with its parent: an orphan would go on taking tasks unseen."""
    die_with_parent(os.getppid(), signal=signal.SIGKILL)
    if _pool_signs is not None:
        _pool_signs.give(current_process().index)
    configure_logging(settings, process=os.environ.get("REVERIE_PROCESS", "worker"))
    start_host_upkeep(settings)
    if contract.QUEUE_EMBED in app.amqp.queues.consume_from:
        # Make the embedder now, so that the first task shares it, and load its model in a thread, so that the first
        # message does not wait for it: Celery kills a child that is not ready after 4 s.
        runtime = current_runtime()
        runtime.make_all()
        threading.Thread(target=_load_embedder, args=(runtime.embedder,), name="warm-up", daemon=True).start()


def _load_embedder(embedder: GuardedEmbedder | None) -> None:
    """Load the model, then lower the priority. Loading keeps its priority, because the first messages wait for it."""
    try:
        if embedder is not None:
            embedder.load()
    except ReverieError as error:
        log.warning("embedder_not_ready", error=str(error))
    if set(app.amqp.queues.consume_from) == {contract.QUEUE_EMBED}:
        lower_priority_now(_EMBED_NICENESS)


@signals.worker_process_shutdown.connect  # type: ignore[untyped-decorator]
@signals.worker_shutdown.connect  # type: ignore[untyped-decorator]
def _close_runtime(**_: Any) -> None:
    """Close all that this process has open: the last process to close a database copies its log into the file."""
    if _runtime is not None and _runtime.pid == os.getpid():
        _runtime.close()


@signals.task_failure.connect  # type: ignore[untyped-decorator]
def _note_killed(sender: Any = None, exception: Any = None, **_: Any) -> None:
    """Record the run of a job whose process was killed. Only the pool's parent sends it: tasks raise nothing."""
    if not isinstance(exception, (TimeLimitExceeded, WorkerLostError)) or sender is None:
        return
    killed_at_limit = isinstance(exception, TimeLimitExceeded)
    limit = _TIME_LIMITS_SECONDS.get(sender.name, TASK_TIME_LIMIT_SECONDS)
    reason = f"it was killed after its time limit of {limit} s" if killed_at_limit else f"its process died: {exception}"
    log.error("task_killed", task=sender.name, error=reason)
    _deaths.append(TaskDeath(task=sender.name, at=datetime.now(UTC)))
    count_task(current_runtime(), sender.name, "killed")
    # The stores are opened only here: the parent forks, and must hold no open database then.
    stores = open_stores(settings.data, settings.database)
    try:
        if stores.exists(contract.ACCOUNT_STORE):
            stores.jobs().fail_killed(sender.name, now=current_runtime().now(), error=reason)
    except ReverieError as error:
        log.error("killed_run_not_recorded", task=sender.name, error=str(error))  # noqa: TRY400 - the text says all
    finally:
        stores.close()


@signals.worker_init.connect  # type: ignore[untyped-decorator]
def _prepare_pool(**_: Any) -> None:
    """Make the shared memory for the signs of life of this worker's pool, before it has children."""
    global _pool_signs
    _pool_signs = PoolSigns()


@signals.worker_ready.connect  # type: ignore[untyped-decorator]
def _start_heartbeat(sender: Any = None, **_: Any) -> None:
    consumption: Consumption = sender.consumption
    queues = sorted(str(queue) for queue in sender.app.amqp.queues.consume_from)
    threading.Thread(target=_send_heartbeats, args=(consumption, queues), name="heartbeat", daemon=True).start()

    def works() -> bool:
        if _pool_signs is not None:
            _pool_signs.kill_stopped(time.monotonic())
        return consumption.works()

    give_alive_signs(os.environ, works)
    # A worker that is told to end finishes its tasks first, and takes no new ones.
    signals.worker_shutting_down.connect(lambda **_: consumption.end(), weak=False)


def _send_heartbeats(consumption: Consumption, queues: list[str]) -> None:
    runtime = current_runtime()
    started_at = time.time()
    warn_of_broker(runtime)
    name, is_first, shares_name_with = runtime.worker_name, True, ""
    while True:
        other = send_heartbeat(
            runtime,
            name,
            queues=queues,
            started_at=started_at,
            stalled_seconds=consumption.stalled_seconds,
            shares_name_with=shares_name_with,
            deaths=tuple(_deaths),
        )
        if other is not None:
            consumption.broker_answered()
            # At the first heartbeat, the other worker of this name may be this worker's predecessor, which has ended.
            if other and not is_first and not shares_name_with:
                log.warning("worker_name_is_taken", name=name, other=other, advice="start one of them with another -n")
            is_first, shares_name_with = False, "" if is_first else other
        _reporter.report()
        time.sleep(HEARTBEAT_SECONDS)
