"""`python -m server`: the HTTP server as a process. Settings come from `reverie.toml` and the environment."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading

import structlog
import uvicorn

from reverie.errors import NotFound, Rejected, ReverieError, Unavailable
from server.app import create_app
from server.gate import is_loopback
from worker.logs import configure_logging
from worker.runtime import Runtime
from worker.settings import Settings, load_settings
from worker.supervision.processes import end_with_supervisor

# The supervisor gives a process 10 s to end; calls that wait for workers are cut off before that.
_GRACEFUL_SECONDS = 5
_BACKLOG = 512

log = structlog.get_logger("server")


def main() -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code."""
    try:
        settings = load_settings()
        token = os.environ.get("REVERIE_TOKEN") or None
        _refuse_open_house(settings.host, token)
        listening = _listen(settings.host, settings.port)
    except ReverieError as error:
        print(f"reverie: {error}", file=sys.stderr)  # noqa: T201 - one line for the person at the terminal
        return 2 if isinstance(error, Rejected) else 1
    end_with_supervisor(os.environ)
    configure_logging(settings, process=os.environ.get("REVERIE_PROCESS", "server"))
    # A question is one short text: a second thread gains nothing, and while the embed worker is busy each of the two
    # waits for the other. Measured on two cores during ingest: recall p95 37 ms with one thread, 669 ms with two.
    runtime = Runtime(settings.model_copy(update={"embedding_threads": 1}))
    runtime.make_all()
    threading.Thread(target=_warm, args=(runtime,), name="warm-embedder", daemon=True).start()
    _serve(settings, runtime, token, listening)
    runtime.close()
    return 0


def _serve(settings: Settings, runtime: Runtime, token: str | None, listening: socket.socket) -> None:
    config = uvicorn.Config(
        create_app(runtime, token=token),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=_GRACEFUL_SECONDS,
    )
    server = uvicorn.Server(config)
    # Uvicorn's own handler stands only while it runs, and afterwards raises the signal that stopped it once more, which
    # would end us with its number instead of 0. What comes before it runs must not be lost either.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    log.info("serving", host=settings.host, port=settings.port)
    server.run(sockets=[listening])
    log.info("stopped")


def _warm(runtime: Runtime) -> None:
    """Load the model and the largest indexes before the first recall asks for them.

    A failure is no reason not to serve: words answer without the model, and an index is made when it is asked for.
    """
    runtime.task_sender.prepare()  # imports Celery now, rather than during the first recall
    try:
        if runtime.embedder is not None:
            runtime.embedder.embed_query("warm up")
            log.info("embedder_ready", model=runtime.embedder.model, dtype=runtime.embedder.dtype)
    except ReverieError as error:
        log.warning("embedder_unavailable", error=str(error))
    try:
        # What agents ask for first is their own workspace's; the others are made when they are asked for.
        store = runtime.stores.workspace(runtime.settings.workspace, create=False)
        log.info("indexes_ready", agents=runtime.indexes.warm(store), bytes=runtime.indexes.nbytes)
    except NotFound:
        pass
    except ReverieError as error:
        log.warning("indexes_not_made", error=str(error))


def _refuse_open_house(host: str, token: str | None) -> None:
    if token is None and not is_loopback(host):
        raise Rejected(
            f"host {host} can be reached by others, and there are no tokens of agents yet: "
            "set REVERIE_TOKEN to one token for all, or listen on 127.0.0.1",
            field="host",
        )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        # asyncio does this only for sockets that it makes itself; without it each answer waits 40 ms for the
        # caller's delayed acknowledgement. Accepted connections take it over.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {host}:{port} ({error.strerror}): is another Reverie running? Set REVERIE_PORT"
        ) from error


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # A thread that still waits for workers must not hold up the end of the process.
    os._exit(code)
