"""Run the HTTP server as a process: `python -m server`. Settings come from `reverie.toml` and the environment."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack
from types import FrameType
from typing import Final, NoReturn

import structlog
import uvicorn

from reverie import __version__
from reverie.errors import NotFound, Rejected, ReverieError
from server.app import create_app
from server.authentication import Access
from server.connections import HEADER_SECONDS, MAX_CONNECTIONS, MAX_OF_ADDRESS, ConnectionLimits, Connections, guarded
from storage.private_files import write_private_by_default
from worker.access import is_loopback, operator_token
from worker.host_upkeep import SERVER_WAITS_SECONDS, start_host_upkeep
from worker.logs import configure_logging
from worker.running import prepare_for_models
from worker.runtime import Runtime
from worker.settings import Settings, load_settings
from worker.supervision.alive_signs import LOOP_SECONDS, give_alive_signs
from worker.supervision.local_token import announced_to_clients, local_token
from worker.supervision.processes import end_with_supervisor, raise_file_limit
from worker.supervision.server_file import ServerFile, announced, listen, local_url

# The supervisor allows a process 10 s to stop; calls that wait for workers are cancelled before that.
_GRACEFUL_SECONDS = 5
_BACKLOG = 512
# The header `Date` is renewed at each turn of the server's loop.
_TURN_SECONDS = 1.0
# Importing torch stops all other threads for up to a second. Messages sent as soon as the server answers go first.
_WARM_AFTER_SECONDS = 1.0
# A store is usually open after some milliseconds; callers of one that migrates much data are told to try again, and do
# not hold the threads that others need.
_STORE_PATIENCE_SECONDS = 5.0

# The names in the audit log: of the user who runs the server, and of whoever has the token in REVERIE_TOKEN.
LOCAL_USER: Final = "local"
OPERATOR: Final = "operator"

log = structlog.get_logger("server")


def main() -> int:
    """Serve until SIGTERM or SIGINT. Return the exit code."""
    write_private_by_default()
    raise_file_limit()
    try:
        settings = load_settings()
        token = operator_token(settings, os.environ)
        access = _access(settings, token)
        listening = _listen(settings.host, settings.port)
    except ReverieError as error:
        print(f"reverie: {error}", file=sys.stderr)  # noqa: T201 - one line for the person at the terminal
        return 2 if isinstance(error, Rejected) else 1
    prepare_for_models()
    end_with_supervisor(os.environ)
    configure_logging(settings, process=os.environ.get("REVERIE_PROCESS", "server"))
    # A query is one short text: a second thread gains nothing, and while the embed worker is busy the two threads wait
    # for each other. Measured on two cores during ingest: recall p95 37 ms with one thread, 669 ms with two.
    runtime = Runtime(settings)
    runtime.embedding_threads = 1
    runtime.store_patience_seconds = _STORE_PATIENCE_SECONDS
    runtime.make_all()
    start_host_upkeep(settings, first_after_seconds=SERVER_WAITS_SECONDS)
    _serve(settings, runtime, access, listening)
    runtime.close()
    return 0


class _Server(uvicorn.Server):
    """A server that notes each turn of its event loop, and tells its streams when it stops, so that they end."""

    def __init__(self, config: uvicorn.Config, stopping: threading.Event) -> None:
        super().__init__(config)
        self._stopping = stopping
        self._turned_at = math.inf
        self._signalled = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        """Turn every second, and after a signal at once. Uvicorn itself turns ten times a second to notice signals."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._signalled.wait(), _TURN_SECONDS)

    async def on_tick(self, counter: int) -> bool:
        """Note a turn of the event loop."""
        self._turned_at = time.monotonic()
        return await super().on_tick(counter)

    def works(self) -> bool:
        """Return whether the event loop turns, or has not begun to."""
        return time.monotonic() - self._turned_at < LOOP_SECONDS

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to stop, after a signal."""
        self._stopping.set()
        super().handle_exit(sig, frame)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._signalled.set)


def _serve(settings: Settings, runtime: Runtime, access: Access, listening: socket.socket) -> None:
    app = create_app(runtime, access=access)
    limits = ConnectionLimits(MAX_CONNECTIONS, MAX_OF_ADDRESS, HEADER_SECONDS)
    config = uvicorn.Config(
        app,
        http=guarded(Connections(limits)),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="off",
        timeout_graceful_shutdown=_GRACEFUL_SECONDS,
    )
    server = _Server(config, app.state.stopping)
    give_alive_signs(os.environ, server.works)
    # Uvicorn installs its own handlers only while it runs, and afterwards raises again the signal that stopped it,
    # which would end this process with the signal's number instead of 0. A signal that arrives before it runs must not
    # be lost either.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, server.handle_exit)
    url = local_url(settings.host, settings.port)
    warm = threading.Timer(_WARM_AFTER_SECONDS, _warm, (runtime,))
    warm.daemon = True
    warm.start()
    with ExitStack() as running:
        running.enter_context(announced(settings.data, ServerFile(url, __version__, settings.workspace)))
        if LOCAL_USER in access.tokens:
            # An operator's server for other machines is not announced: its clients have tokens of their own.
            if OPERATOR not in access.tokens or is_loopback(settings.host):
                _announce_to_clients(running, listening, access.tokens[LOCAL_USER])
        else:
            log.warning("open_to_everyone", host=settings.host, advice="start without --open to ask for tokens")
        log.info("serving", host=settings.host, port=settings.port)
        server.run(sockets=[listening])
    app.state.ledger.close()
    log.info("stopped")


def _access(settings: Settings, token: str | None) -> Access:
    """Return how the server is protected besides by stored tokens; make the token of the local user if needed."""
    if settings.open:
        return Access(open=True)
    operators = {} if token is None else {OPERATOR: token}
    on_loopback = is_loopback(settings.host)
    return Access({**operators, LOCAL_USER: local_token(settings.data)}, local_names_only=on_loopback and not token)


def _announce_to_clients(running: ExitStack, listening: socket.socket, token: str) -> None:
    """Let clients of this user on this machine find the token while the server runs."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    if not is_loopback(host):
        return
    if not running.enter_context(announced_to_clients((host, port), local_url(host, port), token)):
        log.warning("not_announced", advice="clients of this user need the token: `reverie tokens show-local`")


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


def _listen(host: str, port: int) -> socket.socket:
    listening = listen(host, port, advice="Set REVERIE_PORT", backlog=_BACKLOG)
    # asyncio sets this only on sockets that it creates itself; without it each response waits 40 ms for the caller's
    # delayed acknowledgement. Accepted connections inherit it.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def run() -> NoReturn:
    """Serve, and end this process."""
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # A thread that still waits for workers must not delay the exit of the process.
    os._exit(code)


if __name__ == "__main__":
    run()
