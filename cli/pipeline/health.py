"""`reverie health`: health checks for the processes of a container; exit code 0 means healthy."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from typing import Annotated

import typer

from cli.application import application, invocation
from cli.output import say
from reverie import contract
from reverie.errors import Rejected, Unavailable
from worker.supervision.server_file import local_url

# A worker with waiting tasks that has finished none for this long is stuck: tasks are limited to 300 s.
_STUCK_SECONDS = 330.0

health = typer.Typer(help="Check the health of a process (exit code 0 means healthy).", no_args_is_help=True)
application.add_typer(health, name="health")


@health.command("broker")
def broker(context: typer.Context) -> None:
    """Check that the broker answers."""
    invocation(context).runtime.inbox.now_micros()
    say("ok")


@health.command("server")
def server(context: typer.Context) -> None:
    """Check that the HTTP server answers and reaches the broker."""
    command = invocation(context)
    url = f"{command.target.url or local_url(command.settings.host, command.settings.port)}/healthz"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own address
            answer.read()
    except (urllib.error.URLError, OSError) as error:
        raise Unavailable(
            f"{url} is not healthy ({_reason(error)}): see `reverie status`, or start Reverie with `reverie up`"
        ) from error
    say("ok")


def _reason(error: OSError) -> object:
    return error.reason if isinstance(error, urllib.error.URLError) else error


@health.command("beat")
def beat(context: typer.Context) -> None:
    """Check that beat, the scheduler of periodic jobs, runs on this host."""
    _alive(context, "beat")


@health.command("worker")
def worker(
    context: typer.Context,
    queues: Annotated[str, typer.Option(help="The queues of the worker on this host, separated by commas.")],
) -> None:
    """Check that a worker on this host takes tasks from these queues, and makes progress.

    Progress is checked instead of a ping, because a worker busy with a long batch does not answer one.
    """
    requested = {name.strip() for name in queues.split(",") if name.strip()}
    unknown = requested - set(contract.QUEUES)
    if unknown or not requested:
        raise Rejected(
            f"no such queue: {', '.join(sorted(unknown)) or '(none)'}; there are {', '.join(contract.QUEUES)}",
            field="queues",
        )
    monitor = invocation(context).runtime.monitor
    mine = [w for w in monitor.workers() if w.host == socket.gethostname() and requested <= set(w.queues)]
    if not mine:
        raise Unavailable(f"no worker on this host takes tasks from {', '.join(sorted(requested))}")
    depths = monitor.queue_depths()
    last = max(max(w.progress_at, w.started_at) for w in mine)
    if any(depths[queue] for queue in requested) and time.time() - last > _STUCK_SECONDS:
        raise Unavailable(f"tasks are waiting, but none has finished for {time.time() - last:.0f} s")
    say("ok")


def _alive(context: typer.Context, kind: str) -> None:
    workers = invocation(context).runtime.monitor.workers()
    if not any(w.host == socket.gethostname() and w.name.startswith(kind + "@") for w in workers):
        raise Unavailable(f"no {kind} on this host has reported in the last 30 s")
    say("ok")
