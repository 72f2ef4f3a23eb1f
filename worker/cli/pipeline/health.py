"""`reverie health`: what a container asks each of its processes; exit code 0 is healthy."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request
from typing import Annotated

import typer

from reverie import contract
from reverie.errors import Rejected, Unavailable
from worker.cli.application import application, invocation
from worker.cli.output import say

# A worker with work in its queues that has finished no task for this long hangs: the longest task is cut off at 300 s.
_STUCK_SECONDS = 330.0

health = typer.Typer(help="Ask one process whether it is well (exit code 0).", no_args_is_help=True)
application.add_typer(health, name="health")


@health.command("broker")
def broker(context: typer.Context) -> None:
    """The broker answers."""
    invocation(context).runtime.inbox.now_micros()
    say("ok")


@health.command("server")
def server(context: typer.Context) -> None:
    """The HTTP server answers and reaches the broker."""
    url = f"{invocation(context).server_url}/healthz"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own address
            answer.read()
    except (urllib.error.URLError, OSError) as error:
        raise Unavailable(f"{url} does not answer well ({error})") from error
    say("ok")


@health.command("beat")
def beat(context: typer.Context) -> None:
    """The clock of this host ticks."""
    _alive(context, "beat")


@health.command("worker")
def worker(
    context: typer.Context,
    queues: Annotated[str, typer.Option(help="The queues that the worker of this host takes.")],
) -> None:
    """A worker of this host takes these queues, and finishes tasks while there are any.

    Judged by progress and not by a ping: a worker busy with a long batch cannot answer one.
    """
    wanted = {name.strip() for name in queues.split(",") if name.strip()}
    unknown = wanted - set(contract.QUEUES)
    if unknown or not wanted:
        raise Rejected(
            f"no such queue: {', '.join(sorted(unknown)) or '(none)'}; there are {', '.join(contract.QUEUES)}",
            field="queues",
        )
    monitor = invocation(context).runtime.monitor
    mine = [w for w in monitor.workers() if w.host == socket.gethostname() and wanted <= set(w.queues)]
    if not mine:
        raise Unavailable(f"no worker of this host takes {', '.join(sorted(wanted))}")
    depths = monitor.queue_depths()
    last = max(max(w.progress_at, w.started_at) for w in mine)
    if any(depths[queue] for queue in wanted) and time.time() - last > _STUCK_SECONDS:
        raise Unavailable(f"tasks wait, but none has ended for {time.time() - last:.0f} s")
    say("ok")


def _alive(context: typer.Context, kind: str) -> None:
    workers = invocation(context).runtime.monitor.workers()
    if not any(w.host == socket.gethostname() and w.name.startswith(kind + "@") for w in workers):
        raise Unavailable(f"no {kind} of this host has been heard of in the last 30 s")
    say("ok")
