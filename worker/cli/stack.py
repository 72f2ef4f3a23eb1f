"""Commands that are processes: `up` and the four it keeps alive."""

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

from reverie import contract
from reverie.errors import Rejected, ReverieError, Unavailable
from worker.cli.application import application, invocation
from worker.cli.output import say
from worker.data_folder import registered
from worker.settings import PREFIX, Settings
from worker.supervision.processes import end_with_supervisor, give_way

if TYPE_CHECKING:
    from worker.supervision.supervisor import ProcessEvent, ProcessSpec

_PIPELINE_QUEUES = (contract.QUEUE_INGEST, contract.QUEUE_INDEX)
# -P: the folder in which an agent's developer types `reverie up` may hold a tasks.py or storage.py of their own,
# and must not come before our packages of these names.
_PYTHON = (sys.executable, "-P", "-m")
# Embedding is the long-distance runner: the short steps of the others, and recalls, go before it.
_EMBED_NICENESS = 10
# What the jobs do can wait for everything else, and has a worker to itself: a few jobs that wait for a language model
# would else take every process from the messages that come in.
_MAINTENANCE_NICENESS = 15
# Runs of schedules wait for others, most of the time: threads, of which many wait at once.
_SCHEDULES_AT_ONCE = 16
# One that is starting beside us has a moment; of one that is not there a person wants to hear soon.
_BROKER_PATIENCE_SECONDS = 5.0


@application.command()
def up(
    context: typer.Context,
    port: Annotated[int | None, typer.Option(help="The port of the HTTP server.", show_default="7437")] = None,
    show_logs: Annotated[bool, typer.Option("--logs", help="Write the logs here and not into files.")] = False,
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
    picture = _Picture(settings)
    specs = process_specs(settings, show_logs=show_logs)
    with registered(settings.data, local_url(settings)):
        code = Supervisor(specs, settings.data, on_event=picture.show).run()
    raise typer.Exit(code)


@application.command()
def worker(
    context: typer.Context,
    queues: Annotated[str, typer.Option(help="Comma-separated: " + ", ".join(contract.QUEUES) + ".")] = ",".join(
        contract.QUEUES
    ),
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=64, help="Processes; of `schedules` alone threads.", show_default="1, of threads 16"),
    ] = None,
) -> None:
    """Take tasks from queues, on any host that reaches the broker and the data folder."""
    wanted = [name.strip() for name in queues.split(",") if name.strip()]
    unknown = sorted(set(wanted) - set(contract.QUEUES))
    if unknown or not wanted:
        raise Rejected(f"no such queue: {', '.join(unknown) or '(none)'}; there are {', '.join(contract.QUEUES)}")
    settings = invocation(context).settings
    pass_on(settings)
    end_with_supervisor(os.environ)
    # Unique on a host: workers of the same queues are told apart in `reverie status`.
    os.environ.setdefault(PREFIX + "PROCESS", f"{'-'.join(wanted)}-{os.getpid()}")
    if wanted == [contract.QUEUE_EMBED]:
        give_way(_EMBED_NICENESS)
    elif wanted == [contract.QUEUE_MAINTENANCE]:
        give_way(_MAINTENANCE_NICENESS)
    from worker.app import app, prepare_threads

    threads = wanted == [contract.QUEUE_SCHEDULES]
    if threads:
        prepare_threads()
    app.worker_main(
        [
            "worker",
            f"--queues={','.join(wanted)}",
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
    """Send the periodic jobs. Two of them do no harm."""
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
    """Serve HTTP: messages, recall, sessions, status, metrics."""
    command = invocation(context)
    command.flags.update(host=host, port=port)
    pass_on(command.settings)
    os.environ.setdefault(PREFIX + "PROCESS", "server")
    # Another composition root, in a process of its own: this one imports nothing of it.
    os.execv(sys.executable, [*_PYTHON, "server"])  # noqa: S606 - our own module


def process_specs(settings: Settings, *, show_logs: bool = False) -> list[ProcessSpec]:
    """Everything that `up` keeps alive, in the order in which it starts."""
    from worker.supervision.embedded_broker import broker_processes
    from worker.supervision.supervisor import ProcessSpec

    command = [*_PYTHON, "worker.cli"]
    environment = {**_environment(settings), "PYTHONUNBUFFERED": "1"}

    def spec(name: str, *arguments: str, grace: float = 10.0) -> ProcessSpec:
        return ProcessSpec(
            name=name,
            argv=[*command, *arguments],
            env={**environment, PREFIX + "PROCESS": name},
            order=1,
            stop_grace_seconds=grace,
            log_path=None if show_logs else settings.data / "logs" / f"{name}.log",
            # A warm shutdown would wait for a broker that is going down at the same moment.
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
    # Last, and waited for: when it answers, everything has been started.
    return [
        *specs,
        replace(spec("server", "serve"), order=2, ready=lambda: _serves(settings), ready_timeout_seconds=90.0),
    ]


def _serves(settings: Settings) -> bool:
    try:
        with urllib.request.urlopen(f"{local_url(settings)}/healthz", timeout=1.0) as answer:  # noqa: S310 - our own
            return bool(answer.status == 200)
    except OSError:  # refused, timed out, or not healthy yet
        return False


def local_url(settings: Settings) -> str:
    """Where this host reaches the server, also where that listens on every address."""
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104 - compared, not bound
    return f"http://{host}:{settings.port}"


class _Picture:
    """What a person sees of `up`: a line for each process, one when everything is there, and every death."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def show(self, event: ProcessEvent) -> None:
        """Print one event."""
        if event.kind == "process_died":
            how = event.signal or f"exit code {event.exit_code}"
            say(f"  {event.name} died ({how}), starting it again in {event.restart_in_seconds or 0:.1f} s")
        elif event.kind == "process_keeps_crashing":
            say(f"  {event.name} keeps crashing; its log is {event.log_path}")
            for line in event.last_lines:
                say(f"    {line}")
        elif event.kind == "process_started":
            say(f"  {event.name:<12} pid {event.pid}")
        elif event.kind == "process_ready" and event.name == "server":
            settings = self._settings
            say(f"Reverie is up: {local_url(settings)} (data in {settings.data.resolve()}). Ctrl-C stops everything.")
        elif event.kind in ("process_killed", "process_stopping"):
            say(f"  {event.name} {event.kind.removeprefix('process_')}")


def _refuse_second(settings: Settings) -> None:
    """Say so before the port is looked at, which the first one holds: the advice is another."""
    from worker.supervision.run_file import already_running, supervisor_pid

    pid = supervisor_pid(settings.data)
    if pid is not None:
        raise already_running(settings.data, pid)


def _make_folder(data: Path) -> None:
    """Make the data folder, and be sure that it can be written to."""
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
    """Say so before anything is started: another server on this port would answer in the place of ours."""
    try:
        family = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0][0]
        socket.create_server((settings.host, settings.port), family=family).close()
    except OSError as error:
        # create_server puts the address a second time into its error; a name that is not known has no such number.
        why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
        raise Unavailable(
            f"cannot listen on {settings.host}:{settings.port} ({why}): is another Reverie running?"
            " `reverie up --port N` takes another port"
        ) from error


def _open_stores(stores: object) -> None:
    """Bring every workspace to the newest schema; one that cannot be used is named and left alone."""
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
    """The settings as environment variables, for processes that read them themselves.

    Defaults too: a flag that asks for one must win over what they find in the environment and in `reverie.toml`.
    """
    values = {PREFIX + name.upper(): str(value) for name, value in settings.model_dump(exclude_none=True).items()}
    values[PREFIX + "DATA"] = str(settings.data.resolve())
    return values


def pass_on(settings: Settings) -> None:
    """Put the settings into the environment, where `worker.app` and child processes read them."""
    os.environ.update(_environment(settings))


def _log_to_file(path: Path) -> None:
    import logging

    handler = logging.getLogger().handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    path.touch(mode=0o600)
    handler.setStream(path.open("a", encoding="utf-8"))
