"""Run the HTTP server as a process: `python -m server`. Settings come from `reverie.toml` and the environment."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading

import structlog
import uvicorn

from reverie import __version__
from reverie.errors import NotFound, Rejected, ReverieError, Unavailable
from server.app import create_app
from server.gate import is_loopback
from storage.private_files import write_private_by_default
from worker.logs import configure_logging
from worker.runtime import Runtime
from worker.settings import Settings, load_settings
from worker.supervision.processes import end_with_supervisor
from worker.supervision.server_file import ServerFile, announced, local_url

# The supervisor allows a process 10 s to stop; calls that wait for workers are cancelled before that.
_GRACEFUL_SECONDS = 5
_BACKLOG = 512
# Importing torch stops all other threads for up to a second. Messages sent as soon as the server answers go first.
_WARM_AFTER_SECONDS = 1.0

log = structlog.get_logger("server")


def main() -> int:
    """Serve until SIGTERM or SIGINT. Return the exit code."""
    write_private_by_default()
    try:
        settings = load_settings()
        token = os.environ.get("REVERIE_TOKEN") or None
        _require_token(settings.host, token)
        listening = _listen(settings.host, settings.port)
    except ReverieError as error:
        print(f"reverie: {error}", file=sys.stderr)  # noqa: T201 - one line for the person at the terminal
        return 2 if isinstance(error, Rejected) else 1
    end_with_supervisor(os.environ)
    configure_logging(settings, process=os.environ.get("REVERIE_PROCESS", "server"))
    # A query is one short text: a second thread gains nothing, and while the embed worker is busy the two threads wait
    # for each other. Measured on two cores during ingest: recall p95 37 ms with one thread, 669 ms with two.
    runtime = Runtime(settings.model_copy(update={"embedding_threads": 1}))
    runtime.make_all()
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
    # Uvicorn installs its own handlers only while it runs, and afterwards raises again the signal that stopped it,
    # which would end this process with the signal's number instead of 0. A signal that arrives before it runs must not
    # be lost either.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    url = local_url(settings.host, settings.port)
    warm = threading.Timer(_WARM_AFTER_SECONDS, _warm, (runtime,))
    warm.daemon = True
    warm.start()
    with announced(settings.data, ServerFile(url, __version__, settings.workspace)):
        log.info("serving", host=settings.host, port=settings.port)
        server.run(sockets=[listening])
    log.info("stopped")


def _warm(runtime: Runtime) -> None:
    """Load the model and the largest indexes before the first recall needs them.

    Failures are only logged: keyword search works without the model, and an index is loaded when it is first used.
    """
    embedder = runtime.embedder
    try:
        # Recalls do not wait for the model: until it is loaded they answer by words and say so.
        with contextlib.nullcontext() if embedder is None else embedder.loading_here():
            runtime.task_sender.prepare()  # imports Celery now, rather than during the first recall
            if embedder is not None:
                embedder.embed_query("warm up")
        if embedder is not None:
            log.info("embedder_ready", model=embedder.model, dtype=embedder.dtype)
    except ReverieError as error:
        log.warning("embedder_unavailable", error=str(error))
    try:
        # Only the default workspace, which most agents use; indexes of others are loaded on first use.
        store = runtime.stores.workspace(runtime.settings.workspace, create=False)
        log.info("indexes_ready", agents=runtime.indexes.warm(store), bytes=runtime.indexes.nbytes)
    except NotFound:
        pass
    except ReverieError as error:
        log.warning("indexes_not_made", error=str(error))


def _require_token(host: str, token: str | None) -> None:
    """Raise `Rejected` for an address that other machines can reach, if there is no token."""
    if token is None and not is_loopback(host):
        raise Rejected(
            f"other machines can reach host {host}, and no token protects the server: "
            "set REVERIE_TOKEN to a token for all agents, or listen on 127.0.0.1",
            field="host",
        )


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        # asyncio sets this only on sockets that it creates itself; without it each response waits 40 ms for the
        # caller's delayed acknowledgement. Accepted connections inherit it.
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
    # A thread that still waits for workers must not delay the exit of the process.
    os._exit(code)
