"""The Celery app of the workers, and what happens around every task: trace, log, pulse, death of a parent."""

from __future__ import annotations

import importlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import structlog
from celery import Celery, signals
from celery.loaders.app import AppLoader

from adapters.broker.pulse import WorkerPulse
from adapters.embedders.resilience import GuardedEmbedder
from reverie import contract
from reverie.errors import ReverieError, Unavailable
from reverie.pipeline.celery_settings import celery_settings, celery_url
from worker.logs import configure_logging
from worker.runtime import Runtime
from worker.settings import Settings, load_settings
from worker.supervision.processes import die_with_parent

# No task runs longer; a stage hands its worker back after seconds. Must stay below the visibility timeout.
TASK_TIME_LIMIT_SECONDS: Final = 300
# Long-lived connections of sqlite-vec are reported to leak: children are replaced now and then.
TASKS_A_CHILD: Final = 20_000
_PULSE_SECONDS: Final = 5.0
# Hundreds of tasks may end in a second where threads do them; what is left over is told with the next pulse.
_THREADS_TELL_SECONDS: Final = 0.25
# At most this many trace ids on a log line; the count says how many there were.
_TRACES_A_LINE: Final = 50

log = structlog.get_logger(__name__)

_TASK_MODULES: Final = (
    "tasks.pipeline.ingest",
    "tasks.pipeline.chunk",
    "tasks.upkeep.consolidate",
    "tasks.scheduling.deliver",
    "tasks.upkeep.dream",
    "tasks.pipeline.embed",
    "tasks.memories.extract",
    "tasks.scheduling.goals",
    "tasks.pipeline.index",
    "tasks.recall.record_events",
    "tasks.pipeline.recovery",
    "tasks.upkeep.retention",
    "tasks.scheduling.schedules",
    "tasks.sessions.close_idle",
    "tasks.sessions.summarize",
    "tasks.upkeep.store_files",
)


class InstalledLoader(AppLoader):  # type: ignore[misc]  # celery has no types
    """Imports what is installed. Celery's own loader puts the current folder first, and an agent's developer may
    start Reverie where a tasks.py or storage.py of their own lies."""

    def import_from_cwd(self, module: str, imp: object = None, package: str | None = None) -> Any:
        """Import a module, from anywhere but the current folder."""
        del imp
        return importlib.import_module(module, package)


def create_app(settings: Settings) -> Celery:
    """The app with everything on which a worker's safety rests."""
    app = Celery("reverie", broker=celery_url(settings.broker_url), include=list(_TASK_MODULES), loader=InstalledLoader)
    app.conf.update(celery_settings(settings.broker_prefix))
    app.conf.update(
        # A task is taken off the queue when it has ended; one whose worker died is delivered again. That is safe
        # because every task may run twice, and bounded because the rows count the crashes.
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        task_acks_on_failure_or_timeout=False,
        task_acks_on_timeout=False,
        task_time_limit=TASK_TIME_LIMIT_SECONDS,
        worker_prefetch_multiplier=1,
        worker_max_tasks_per_child=TASKS_A_CHILD,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_connection_max_retries=None,
        # A broker whose disk or memory is full refuses each write. Without this a worker ends at the first refusal,
        # and its children are killed over their work.
        broker_channel_error_retry=True,
        beat_scheduler="worker.beat:CatchUpScheduler",
    )
    return app


settings = load_settings()
app = create_app(settings)
_runtime: Runtime | None = None


def prepare_threads() -> None:
    """Make what the tasks of this process share, before its threads ask for it: each would else make one."""
    _progress.every_seconds = _THREADS_TELL_SECONDS
    here = current_runtime()
    here.make_all()
    here.schedules.prepare()
    here.schedules.waits_for_due = True


def current_runtime() -> Runtime:
    """This process's resources; a forked child makes its own."""
    global _runtime
    if _runtime is None or _runtime.pid != os.getpid():
        _runtime = Runtime(settings)
    return _runtime


@contextmanager
def use_runtime(other: Runtime) -> Iterator[None]:
    """Have the tasks of this process work with resources, and a clock, that were made elsewhere."""
    global _runtime
    before, _runtime = _runtime, other
    try:
        yield
    finally:
        _runtime = before


def task(name: str) -> Callable[[Callable[..., Mapping[str, Any]]], Any]:
    """Register a task under its name in the contract. It takes keywords only and returns counts, which are logged.

    This is the boundary at which failures end: one log line with ids, never with content. Nothing is retried by
    Celery: the rows say what is to be done again, and when.
    """

    def register(function: Callable[..., Mapping[str, Any]]) -> Any:
        def run(self: Any, **arguments: Any) -> None:
            _bind_trace(self.request)
            started = time.monotonic()
            try:
                counts = function(**arguments)
            except ReverieError as error:
                # No traceback: the error is one of ours and says what failed, and what to do.
                log.error("task_failed", error_type=type(error).__name__, error=str(error), **arguments)  # noqa: TRY400
            except Exception:  # the boundary of the process's work: a bug must not take the worker down
                log.exception("task_crashed", **arguments)
            else:
                _log_end(counts, started, arguments)
            finally:
                structlog.contextvars.unbind_contextvars("trace_id", "task", "task_id")

        run.__name__ = function.__name__
        run.__doc__ = function.__doc__
        run.__module__ = function.__module__
        registered = app.task(name=name, bind=True)(run)  # its queue: `task_routes`
        registered.body = function  # for `reverie run`, which wants the counts and the errors
        return registered

    return register


def _bind_trace(request: Any) -> None:
    trace = (request.headers or {}).get(contract.TRACE_HEADER) or getattr(request, contract.TRACE_HEADER, None) or ""
    structlog.contextvars.bind_contextvars(trace_id=trace, task=request.task, task_id=request.id)


def _log_end(counts: Mapping[str, Any], started: float, arguments: Mapping[str, Any]) -> None:
    fields = dict(counts)
    traces = sorted(fields.pop("traces", ()))
    if traces:
        fields["trace_ids"] = traces[:_TRACES_A_LINE]
        fields["traces"] = len(traces)
    worked = any(value for key, value in fields.items() if key not in ("looked_at", "seconds", "skipped"))
    write = log.info if worked else log.debug
    write("task_done", milliseconds=round((time.monotonic() - started) * 1_000, 1), **{**arguments, **fields})


@signals.setup_logging.connect  # type: ignore[untyped-decorator]
def _own_the_logs(**_: Any) -> None:
    configure_logging(settings, process=os.environ.get("REVERIE_PROCESS", "worker"))


@signals.worker_process_init.connect  # type: ignore[untyped-decorator]
def _in_child(**_: Any) -> None:
    """A pool child ends with its parent: an orphan would go on taking work that nobody can see."""
    die_with_parent(os.getppid(), signal=signal.SIGKILL)
    configure_logging(settings, process=os.environ.get("REVERIE_PROCESS", "worker"))
    if contract.QUEUE_EMBED in app.amqp.queues.consume_from:
        # Made here and loaded in a thread: Celery kills a child that is not ready after 4 s, the first message should
        # not wait, and it must not find a runtime, and load a model, of its own.
        here = current_runtime()
        here.make_all()
        threading.Thread(target=_warm_up, args=(here.embedder,), name="warm-up", daemon=True).start()


def _warm_up(embedder: GuardedEmbedder | None) -> None:
    try:
        if embedder is not None:
            embedder.load()
    except ReverieError as error:
        log.warning("embedder_not_ready", error=str(error))


@signals.worker_process_shutdown.connect  # type: ignore[untyped-decorator]
def _child_ends(**_: Any) -> None:
    if _runtime is not None and _runtime.pid == os.getpid():
        _runtime.close()


@signals.task_postrun.connect  # type: ignore[untyped-decorator]
def _note_progress(**_: Any) -> None:
    """What liveness is judged by: not an answer to a ping, which a busy worker cannot give, but work that ends."""
    _progress.ended()


class _Progress:
    """Tells of tasks that ended: of each, or where many end in a moment, of some together."""

    def __init__(self) -> None:
        self.every_seconds = 0.0
        self._told_at = 0.0
        self._ended = 0
        self._lock = threading.Lock()

    def ended(self) -> None:
        """Count a task, and tell unless that was done a moment ago."""
        with self._lock:
            self._ended += 1
        if time.monotonic() - self._told_at >= self.every_seconds:
            self.tell()

    def tell(self) -> None:
        """Tell of what has not been told yet."""
        with self._lock:
            tasks, self._ended = self._ended, 0
            self._told_at = time.monotonic()
        if not tasks:
            return
        here = current_runtime()
        embedder, models = _embedder_of(here), _language_models_of(here)
        try:
            here.pulse.progress(
                here.worker_name, now=time.time(), tasks=tasks, embedder=embedder, language_model=models
            )
        except Unavailable:
            log.debug("progress_not_noted")


_progress = _Progress()


def _embedder_of(here: Runtime) -> str:
    """How this process's embedder is; empty where it has not used one."""
    embedder = here.embedder_made
    if embedder is None:
        return ""
    why = f" ({embedder.last_error})" if embedder.last_error else ""
    return f"{embedder.model} {embedder.dtype} on {embedder.device}: {embedder.state}{why}"


def _language_models_of(here: Runtime) -> str:
    """How this process's language models are; empty where it has not used one."""
    states = (
        f"{model.name}: {model.state}{f' ({model.last_error})' if model.last_error else ''}"
        for model in here.language_models_made
    )
    return "; ".join(dict.fromkeys(states))


@signals.worker_ready.connect  # type: ignore[untyped-decorator]
def _start_pulse(sender: Any = None, **_: Any) -> None:
    queues = sorted(str(queue) for queue in sender.app.amqp.queues.consume_from)
    threading.Thread(target=_beat, args=(queues,), name="pulse", daemon=True).start()


def _beat(queues: list[str]) -> None:
    here = current_runtime()
    started = time.time()
    while True:
        pulse = WorkerPulse(
            name=here.worker_name,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=queues,
            started_at=started,
            seen_at=time.time(),
        )
        try:
            here.pulse.beat(pulse)
        except Unavailable:
            log.debug("pulse_not_sent")
        _progress.tell()
        time.sleep(_PULSE_SECONDS)
