"""Commands that run processes: `up`, and `worker`, `beat` and `serve`, which it keeps running."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.application import application, invocation
from cli.output import say
from reverie import contract
from reverie.errors import Rejected, ReverieError, Unavailable
from worker.data_folder import registered
from worker.settings import PREFIX, Settings
from worker.supervision.processes import end_with_supervisor, give_way
from worker.supervision.server_file import local_url

if TYPE_CHECKING:
    from worker.supervision.supervisor import ProcessEvent, ProcessSpec

_PIPELINE_QUEUES = (contract.QUEUE_INGEST, contract.QUEUE_INDEX)
# -P: the current folder may contain an agent's own tasks.py or storage.py, which must not shadow our packages.
_PYTHON = (sys.executable, "-P", "-m")
# Embedding takes longest: the short steps of other workers, and recalls, have priority.
_EMBED_NICENESS = 10
# Jobs have the lowest priority and a worker of their own: otherwise a few jobs that wait for a language model would
# take every process from incoming messages.
_MAINTENANCE_NICENESS = 15
# Runs of schedules mostly wait for webhooks and models, so they use threads.
_SCHEDULES_AT_ONCE = 16
# Long enough for a broker that is just starting, short enough for a person who waits for the error.
_BROKER_PATIENCE_SECONDS = 5.0


@application.command()
def up(
    context: typer.Context,
    port: Annotated[int | None, typer.Option(help="The port of the HTTP server.", show_default="7437")] = None,
    show_logs: Annotated[bool, typer.Option("--logs", help="Print the logs instead of writing them to files.")] = False,
) -> None:
    """Run everything until Ctrl-C: broker, workers, beat and HTTP server."""
    command = invocation(context)
    command.flags["port"] = port
    command.starts_stack = True
    settings = command.settings
    from worker.logs import configure_logging
    from worker.supervision.embedded_broker import wait_until_ready
    from worker.supervision.supervisor import Supervisor

    _make_folder(settings.data)
    _refuse_second(settings)
    _refuse_taken_port(settings)
    if settings.broker:
        wait_until_ready(settings.broker, _BROKER_PATIENCE_SECONDS)
    configure_logging(settings, process="up")
    if not show_logs:
        _log_to_file(settings.data / "logs" / "up.log")
    _open_stores(command.runtime.stores)
    printer = _EventPrinter(settings)
    specs = process_specs(settings, show_logs=show_logs)
    with registered(settings.data):
        code = Supervisor(specs, settings.data, on_event=printer.show).run()
    raise typer.Exit(code)


@application.command()
def worker(
    context: typer.Context,
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
) -> None:
    """Run a worker that takes tasks from queues, on any host that reaches the broker and the data folder."""
    requested = [name.strip() for name in queues.split(",") if name.strip()]
    unknown = sorted(set(requested) - set(contract.QUEUES))
    if unknown or not requested:
        raise Rejected(f"no such queue: {', '.join(unknown) or '(none)'}; there are {', '.join(contract.QUEUES)}")
    settings = invocation(context).settings
    pass_on(settings)
    end_with_supervisor(os.environ)
    # Unique on a host, so that `reverie status` tells workers of the same queues apart.
    os.environ.setdefault(PREFIX + "PROCESS", f"{'-'.join(requested)}-{os.getpid()}")
    if requested == [contract.QUEUE_EMBED]:
        give_way(_EMBED_NICENESS)
    elif requested == [contract.QUEUE_MAINTENANCE]:
        give_way(_MAINTENANCE_NICENESS)
    from worker.app import app, prepare_threads

    threads = requested == [contract.QUEUE_SCHEDULES]
    if threads:
        prepare_threads()
    app.worker_main(
        [
            "worker",
            f"--queues={','.join(requested)}",
            f"--pool={'threads' if threads else 'prefork'}",
            f"--concurrency={concurrency or (_SCHEDULES_AT_ONCE if threads else 1)}",
            f"--hostname={os.environ[PREFIX + 'PROCESS']}@%h",
            "--without-gossip",
            "--without-mingle",
            f"--loglevel={settings.log_level}",
        ]
    )


@application.command()
def beat(context: typer.Context) -> None:
    """Run the scheduler that sends periodic jobs. Running two does no harm."""
    pass_on(invocation(context).settings)
    end_with_supervisor(os.environ)
    os.environ.setdefault(PREFIX + "PROCESS", "beat")
    from worker.app import app

    app.Beat(quiet=True, loglevel="INFO").run()


@application.command()
def serve(
    context: typer.Context,
    host: Annotated[str | None, typer.Option(help="The address to listen on.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="The port to listen on.", show_default="7437")] = None,
) -> None:
    """Run the HTTP server."""
    command = invocation(context)
    command.flags.update(host=host, port=port)
    pass_on(command.settings)
    os.environ.setdefault(PREFIX + "PROCESS", "server")
    # The server has its own composition root and process: nothing of it is imported here.
    os.execv(sys.executable, [*_PYTHON, "server"])  # noqa: S606 - our own module


def process_specs(settings: Settings, *, show_logs: bool = False) -> list[ProcessSpec]:
    """Return the processes that `up` keeps running, in the order in which they start."""
    from worker.supervision.embedded_broker import broker_processes
    from worker.supervision.supervisor import ProcessSpec

    command = [*_PYTHON, "cli"]
    environment = {**_environment(settings), "PYTHONUNBUFFERED": "1"}

    def spec(name: str, *arguments: str, grace: float = 10.0) -> ProcessSpec:
        return ProcessSpec(
            name=name,
            argv=[*command, *arguments],
            env={**environment, PREFIX + "PROCESS": name},
            order=1,
            stop_grace_seconds=grace,
            log_path=None if show_logs else settings.data / "logs" / f"{name}.log",
            # A warm shutdown would wait for a broker that stops at the same moment.
            parent_death_signal=signal.SIGKILL,
        )

    specs = [] if settings.broker else broker_processes(settings.data)
    queues = (*_PIPELINE_QUEUES, contract.QUEUE_EMBED) if settings.embedding_provider == "none" else _PIPELINE_QUEUES
    pipeline = f"--queues={','.join(queues)}"
    specs.append(spec("pipeline", "worker", pipeline, f"--concurrency={settings.worker_concurrency}"))
    if settings.embedding_provider != "none":
        specs.append(spec("embed", "worker", f"--queues={contract.QUEUE_EMBED}", "--concurrency=1"))
    specs.append(spec("maintenance", "worker", f"--queues={contract.QUEUE_MAINTENANCE}", "--concurrency=1"))
    schedules = f"--queues={contract.QUEUE_SCHEDULES}"
    for number in range(1, settings.schedule_workers + 1):
        specs.append(spec("schedules" if number == 1 else f"schedules-{number}", "worker", schedules))
    specs.append(spec("beat", "beat"))
    # Last, and waited for: when it answers, all other processes have been started.
    return [
        *specs,
        replace(spec("server", "serve"), order=2, ready=lambda: _serves(settings), ready_timeout_seconds=90.0),
    ]


def _serves(settings: Settings) -> bool:
    try:
        with urllib.request.urlopen(f"{local_url(settings.host, settings.port)}/healthz", timeout=1.0) as answer:  # noqa: S310 - our own
            return bool(answer.status == 200)
    except OSError:  # refused, timed out, or not healthy yet
        return False


class _EventPrinter:
    """Prints what happens to the processes of `up`: starts, readiness, crashes and stops."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def show(self, event: ProcessEvent) -> None:
        """Print one event."""
        if event.kind == "process_died":
            reason = event.signal or f"exit code {event.exit_code}"
            say(f"  {event.name} died ({reason}); restarting it in {event.restart_in_seconds or 0:.1f} s")
        elif event.kind == "process_keeps_crashing":
            say(f"  {event.name} keeps crashing; see its log {event.log_path}")
            for line in event.last_lines:
                say(f"    {line}")
        elif event.kind == "process_started":
            say(f"  {event.name:<12} pid {event.pid}")
        elif event.kind == "process_ready" and event.name == "server":
            settings = self._settings
            url = local_url(settings.host, settings.port)
            say(f"Reverie is up: {url} (data in {settings.data.resolve()}). Ctrl-C stops everything.")
        elif event.kind in ("process_killed", "process_stopping"):
            say(f"  {event.name} {event.kind.removeprefix('process_')}")


def _refuse_second(settings: Settings) -> None:
    """Raise the error for a second `up` on the same data folder, before its port is checked."""
    from worker.supervision.data_lock import supervisor_pid
    from worker.supervision.run_file import already_running

    pid = supervisor_pid(settings.data)
    if pid is not None:
        raise already_running(settings.data, pid)


def _make_folder(data: Path) -> None:
    """Create the data folder. Raises `Unavailable` when it cannot be written."""
    from worker.supervision.processes import private_folder

    try:
        private_folder(data / "logs")
        with tempfile.TemporaryFile(dir=data / "logs"):
            pass
    except OSError as error:
        raise Unavailable(
            f"the data folder {data} cannot be written ({error.strerror}): choose another with --data"
        ) from error


def _refuse_taken_port(settings: Settings) -> None:
    """Raise `Unavailable` before anything starts when the port is taken by another server."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        socket.create_server((settings.host, settings.port), family=family).close()
    except OSError as error:
        # The text of create_server repeats the address; the error of an unknown host name has no errno of the system.
        reason = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise Unavailable(
            f"cannot listen on {settings.host}:{settings.port} ({reason}): is another Reverie running?"
            " use another port with `reverie up --port N`"
        ) from error


def _open_stores(stores: object) -> None:
    """Migrate every workspace to the newest schema; one that cannot be used is reported and skipped."""
    from storage.stores import Stores

    assert isinstance(stores, Stores)
    stores.account()
    for name in stores.names():
        try:
            stores.workspace(name)
        except ReverieError as error:
            say(f"  workspace {name} cannot be used: {error}")
    stores.close()


def _environment(settings: Settings) -> dict[str, str]:
    """Return the settings as environment variables for child processes.

    Defaults are included: a flag set to a default must win over the environment and `reverie.toml`.
    """
    values = {PREFIX + name.upper(): str(value) for name, value in settings.model_dump(exclude_none=True).items()}
    values[PREFIX + "DATA"] = str(settings.data.resolve())
    return values


def pass_on(settings: Settings) -> None:
    """Write the settings to the environment, where `worker.app` and child processes read them."""
    os.environ.update(_environment(settings))


def _log_to_file(path: Path) -> None:
    import logging

    handler = logging.getLogger().handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    path.touch(mode=0o600)
    handler.setStream(path.open("a", encoding="utf-8"))
