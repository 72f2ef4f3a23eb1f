"""Commands that run processes: `up`, and `worker`, `beat` and `serve`, which it keeps running; and their broker."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from cli.application import Invocation
from cli.groups import root
from cli.output import say
from cli.target import PREFIX
from reverie import contract
from reverie.errors import Rejected, ReverieError, Unavailable
from storage.private_files import make_data_folder, write_private_by_default
from worker.data_folder import registered
from worker.supervision.server_file import local_url, refuse_taken_port

if TYPE_CHECKING:
    from worker.settings import Settings
    from worker.supervision.supervisor import ProcessEvent, ProcessSpec

# Each worker executes 16 runs at once. There are two, so that a crash of one delays nothing.
_SCHEDULE_WORKERS = 2
# Without a sign of life for so long, a process is killed and started again. Processes give one every two seconds, and
# later on a busy machine.
HANG_SECONDS = 45.0
_PIPELINE_QUEUES = (contract.QUEUE_INGEST, contract.QUEUE_INDEX)
# -P: the current folder may contain an agent's own tasks.py or storage.py, which must not shadow our packages.
_PYTHON = (sys.executable, "-P", "-m")
# Long enough for a broker that is just starting, short enough for a person who waits for the error.
_BROKER_PATIENCE_SECONDS = 5.0
# Enough to look at some thousand workspaces.
_LOOKING_SECONDS = 1.0


Open = Annotated[bool, typer.Option("--open", help="Ask for no token: everyone on this machine may do everything.")]


@root.command("up")
def up(
    command: Invocation,
    port: Annotated[int | None, typer.Option(help="The port of the HTTP server; by default 7437.")] = None,
    open_: Open = False,
    show_logs: Annotated[bool, typer.Option("--logs", help="Print the logs instead of writing them to files.")] = False,
) -> None:
    """Run everything until Ctrl-C: broker, workers, beat and HTTP server."""
    command.flags.update(port=port, open=open_ or None)
    command.starts_stack = True
    settings = command.settings
    from worker.access import operator_token

    operator_token(settings, os.environ)
    from storage.private_files import private_folder
    from storage.stores import Stores
    from worker.logs import configure_logging
    from worker.supervision.embedded_broker import wait_until_ready
    from worker.supervision.log_files import LogFiles
    from worker.supervision.supervisor import Supervisor

    make_folder(settings.data)
    _refuse_second(settings)
    refuse_taken_port(settings.host, settings.port)
    if settings.broker:
        wait_until_ready(settings.broker, _BROKER_PATIENCE_SECONDS)
    write_private_by_default()
    logs = None if show_logs else private_folder(settings.data / "logs")
    configure_logging(settings, process="up", file=logs and _new_log(logs / "up.log"))
    specs = process_specs(settings, show_logs=show_logs)
    with registered(settings.data):
        log_files = None if logs is None else LogFiles(logs)
        code = Supervisor(specs, settings.data, on_event=partial(_print_event, settings), log_files=log_files).run()
        if settings.database is None:
            Stores(settings.data).empty_logs()
    raise typer.Exit(code)


@root.command("worker")
def worker(
    command: Invocation,
    queues: Annotated[str, typer.Option(help="Comma-separated: " + ", ".join(contract.QUEUES) + ".")] = ",".join(
        contract.QUEUES
    ),
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=64,
            help="Number of processes, or of threads for schedules alone.",
            show_default="1; threads 16",
        ),
    ] = None,
    autoscale: Annotated[
        int | None,
        typer.Option(
            min=2, max=64, help="Number of processes up to which it grows while tasks wait.", show_default=False
        ),
    ] = None,
) -> None:
    """Run a worker that takes tasks from queues, on any host that reaches the broker and the data folder."""
    from worker.running import run_worker

    requested = [name.strip() for name in queues.split(",") if name.strip()]
    unknown = sorted(set(requested) - set(contract.QUEUES))
    if unknown or not requested:
        raise Rejected(f"no such queue: {', '.join(unknown) or '(none)'}; there are {', '.join(contract.QUEUES)}")
    run_worker(_with_broker(command), requested, concurrency, autoscale)


@root.command("beat")
def beat(command: Invocation) -> None:
    """Run the scheduler that sends periodic jobs. Running two does no harm."""
    from worker.running import run_beat

    run_beat(_with_broker(command))


def _with_broker(command: Invocation) -> Settings:
    """Return the settings of a process that cannot work without a broker.

    Raises `Unavailable` when none is named and no supervisor runs, which alone starts the embedded one. A named broker
    may come later: the process tries again until it answers.
    """
    settings = command.settings
    if not settings.broker and not command.target.has_supervisor:
        raise Unavailable(
            f"no broker is named, and no Reverie runs on {settings.data}, which would start one: run `reverie up`"
            " first, or name a broker with --broker or REVERIE_BROKER"
        )
    return settings


@root.command("serve")
def serve(
    command: Invocation,
    host: Annotated[str | None, typer.Option(help="The address to listen on; by default 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on; by default 7437.")] = None,
    open_: Open = False,
) -> None:
    """Run the HTTP server."""
    from worker.running import pass_on

    command.flags.update(host=host, port=port, open=open_ or None)
    pass_on(command.settings)
    os.environ.setdefault(PREFIX + "PROCESS", "server")
    # In a new interpreter: this one has imported what only the command line needs.
    os.execv(sys.executable, [*_PYTHON, "server"])  # noqa: S606 - our own module


def process_specs(settings: Settings, *, show_logs: bool = False) -> list[ProcessSpec]:
    """Return the processes that `up` keeps running, in the order in which they start."""
    from worker.running import run_beat
    from worker.supervision.embedded_broker import broker_processes

    specs = [] if settings.broker else broker_processes(settings.data)
    # Before the workers, which would compete with its start: messages are accepted as soon as it answers.
    server = replace(
        _process(settings, "server", (*_PYTHON, "server"), show_logs=show_logs),
        target=_forked(_run_server),
        stop_order=2,
        before_start=lambda: _import_for_forks(settings),
        ready=lambda: _serves(settings),
        ready_timeout_seconds=90.0,
        while_starting=lambda: _open_stores(settings.data, settings.database),
    )
    workers = [_worker(settings, *worker, show_logs=show_logs) for worker in _workers(settings)]
    beat = replace(
        _process(settings, "beat", (*_PYTHON, "cli", "beat"), show_logs=show_logs),
        target=_forked(lambda: run_beat(settings)),
    )
    return [_watched(settings, spec) for spec in (*specs, server, *workers, beat)]


def _workers(settings: Settings) -> Iterator[tuple[str, Sequence[str], int | None]]:
    """Yield the name, the queues and the concurrency of each worker."""
    embeds = settings.embedding_provider != "none"
    queues = _PIPELINE_QUEUES if embeds else (*_PIPELINE_QUEUES, contract.QUEUE_EMBED)
    yield "pipeline", queues, settings.worker_concurrency
    if embeds:
        yield "embed", (contract.QUEUE_EMBED,), 1
    yield "maintenance", (contract.QUEUE_MAINTENANCE,), 1
    yield "extraction", (contract.QUEUE_EXTRACTION,), 1
    for number in range(1, _SCHEDULE_WORKERS + 1):
        yield "schedules" if number == 1 else f"schedules-{number}", (contract.QUEUE_SCHEDULES,), None


def _worker(
    settings: Settings, name: str, queues: Sequence[str], concurrency: int | None, *, show_logs: bool
) -> ProcessSpec:
    from worker.running import run_worker

    options = [f"--queues={','.join(queues)}", *([f"--concurrency={concurrency}"] if concurrency else [])]
    spec = _process(settings, name, (*_PYTHON, "cli", "worker", *options), show_logs=show_logs)
    return replace(spec, target=_forked(lambda: run_worker(settings, queues, concurrency)))


def _process(settings: Settings, name: str, argv: Sequence[str], *, show_logs: bool) -> ProcessSpec:
    from worker.logs import LOG_FILE
    from worker.running import environment_of
    from worker.supervision.supervisor import ProcessSpec

    log_path = None if show_logs else (settings.data / "logs" / f"{name}.log").absolute()
    return ProcessSpec(
        name=name,
        argv=argv,
        env={
            **environment_of(settings),
            "PYTHONUNBUFFERED": "1",
            PREFIX + "PROCESS": name,
            **({} if log_path is None else {LOG_FILE: str(log_path)}),
        },
        order=1,
        log_path=log_path,
        # A warm shutdown would wait for a broker that stops at the same moment.
        parent_death_signal=signal.SIGKILL,
    )


def _watched(settings: Settings, spec: ProcessSpec) -> ProcessSpec:
    """Return a process with the file of its signs of life: without new signs it is killed and started again."""
    from worker.supervision.alive_signs import ALIVE_FILE

    path = (settings.data / "run" / f"{spec.name}.alive").absolute()
    env = {**spec.env, ALIVE_FILE: str(path)}
    return replace(spec, env=env, alive_path=path, hang_seconds=HANG_SECONDS)


def _forked(target: Callable[[], None]) -> Callable[[], None] | None:
    """Return the target of a forked process; None where a fork without exec is unsafe (macOS): it runs its argv."""
    return target if sys.platform == "linux" else None


def _import_for_forks(settings: Settings) -> None:
    """Import the modules that the forks need, once for all of them: the server needs nearly the same as workers."""
    from worker.running import import_for_forks

    if sys.platform == "linux":
        import_for_forks(settings, "server.__main__")


def _run_server() -> NoReturn:
    """Run the server in this process, a fork."""
    from server.__main__ import run

    run()


def _serves(settings: Settings) -> bool:
    try:
        with urllib.request.urlopen(f"{local_url(settings.host, settings.port)}/healthz", timeout=1.0) as answer:  # noqa: S310 - our own
            return bool(answer.status == 200)
    except OSError:  # refused, timed out, or not healthy yet
        return False


def _print_event(settings: Settings, event: ProcessEvent) -> None:
    """Print what happens to a process of `up`: it starts, is ready, crashes or stops."""
    if event.kind == "process_died":
        reason = event.signal or f"exit code {event.exit_code}"
        say(f"  {event.name} died ({reason}); restarting it in {event.restart_in_seconds or 0:.1f} s")
    elif event.kind == "process_hangs":
        say(f"  {event.name} gave no sign for {HANG_SECONDS:g} s; killing it")
    elif event.kind == "process_keeps_crashing":
        say(f"  {event.name} keeps crashing; see its log {event.log_path}")
        for line in event.last_lines:
            say(f"    {line}")
    elif event.kind == "process_started":
        say(f"  {event.name:<12} pid {event.pid}")
    elif event.kind == "process_ready" and event.name == "server":
        url = local_url(settings.host, settings.port)
        say(f"Reverie is up: {url} (data in {settings.data.resolve()}). Ctrl-C stops everything.")
        if settings.open:
            say("  WARNING: it is open: every user of this machine can read, change and delete all memories.")
    elif event.kind == "process_stopping":
        say(f"  {event.name} stopping")
    elif event.kind == "process_killed":
        why = f": {event.error}; unfinished tasks are done again at the next start" if event.error else ""
        say(f"  {event.name} killed{why}")


def _refuse_second(settings: Settings) -> None:
    """Raise the error for a second `up` on the same data folder, before its port is checked."""
    from worker.supervision.data_lock import supervisor_pid
    from worker.supervision.run_file import already_running

    pid = supervisor_pid(settings.data)
    if pid is not None:
        raise already_running(settings.data, pid)


def make_folder(data: Path) -> None:
    """Create the data folder. Raises `Unavailable` when it cannot be written."""
    from storage.private_files import private_folder

    try:
        make_data_folder(data)
        private_folder(data / "logs")
        with tempfile.TemporaryFile(dir=data / "logs"):
            pass
    except OSError as error:
        raise Unavailable(
            f"the data folder {data} cannot be written ({error.strerror}): choose another with --data"
        ) from error


def _open_stores(data: Path, database: str | None) -> None:
    """Migrate the account, which everything needs, and report workspaces that cannot be used.

    Workspaces are migrated when they are first used, so that a long migration delays nobody else. The most recently
    written ones are opened here, for as long as a start may take.
    """
    from storage.opened import open_stores

    stores = open_stores(data, database)
    if database is not None:
        from sqlalchemy import make_url

        say(f"  database {make_url(database).render_as_string(hide_password=True)}")
    stores.account()
    deadline = time.monotonic() + _LOOKING_SECONDS
    for name in stores.last_written():
        if time.monotonic() > deadline:
            break
        try:
            stores.check_usable(name)
        except ReverieError as error:
            say(f"  workspace {name} cannot be used: {error}")
    stores.close()


def _new_log(path: Path) -> Path:
    path.touch(mode=0o600)
    return path


@root.command("broker-url")
def broker_url(command: Invocation) -> None:
    """Print the URL of the broker: `export REVERIE_BROKER=$(reverie broker-url)`."""
    say(command.settings.broker_url)
