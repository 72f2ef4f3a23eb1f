"""Runs the real HTTP application with Uvicorn in a thread of this process."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp

from server.app import create_app
from server.authentication import Access
from server.connections import ConnectionLimits, Connections, guarded
from worker.runtime import Runtime


@contextmanager
def running_server(
    runtime: Runtime,
    *,
    token: str | None = None,
    access: Access | None = None,
    port: int = 0,
    wrapped: Callable[[Starlette], ASGIApp] = lambda app: app,
) -> Iterator[str]:
    """Serve a runtime on a port, by default any free one, and yield the URL. `wrapped` may change the application."""
    listening = socket.create_server(("127.0.0.1", port))
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    port = listening.getsockname()[1]
    access = access or Access(tokens={"operator": token} if token else {}, open=token is None)
    app = create_app(runtime, access=access)
    guard = Connections(ConnectionLimits(512, 384, 10.0))
    config = uvicorn.Config(
        wrapped(app),
        http=guarded(guard),
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
    )
    server = _Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="http")
    thread.start()
    try:
        _wait_until_started(server, thread)
        yield f"http://127.0.0.1:{port}"
    finally:
        app.state.stopping.set()
        server.stop()
        thread.join()
        listening.close()
        app.state.ledger.close()


class _Server(uvicorn.Server):
    """Stops at once where Uvicorn would wait twice for a tenth of a second: thousands of tests have a server."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping: Future[None] = Future()

    def stop(self) -> None:
        """End the server, from any thread."""
        self._stopping.set_result(None)

    async def main_loop(self) -> None:
        """Serve until the server is told to stop."""
        await self.on_tick(0)
        await asyncio.wrap_future(self._stopping)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close connections that are idle; where there is more, leave it to Uvicorn, and break off what outlasts it."""
        # What was accepted a moment ago is among the connections only some turns of the loop later. Closed before that,
        # asyncio's server would leave it open, and the test that runs at its collection would be blamed for it.
        for listening in self.servers:
            for accepting in listening.sockets:
                asyncio.get_running_loop().remove_reader(accepting)
        for _ in range(3):
            await asyncio.sleep(0)
        for listening in self.servers:
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0)
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown(sockets)
        # What is left after Uvicorn's patience: a client that takes no response.
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)


def _wait_until_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    deadline = time.monotonic() + 20
    while not server.started:
        assert thread.is_alive(), "the server ended before it was ready"
        assert time.monotonic() < deadline, "the server did not start"
        thread.join(0.01)
