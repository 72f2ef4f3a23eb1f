"""Receives the webhooks of schedules and of notifications, and keeps what they were sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

import msgspec

from benchmarks.isolation.actors import Actor, Cast, Found

_ANSWER: Final = b'{"status":"success","summary":"done"}'


class Webhooks:
    """A receiver on loopback. Use it in a `with` statement."""

    def __init__(self, cast: Cast) -> None:
        self._cast = cast
        self._lock = threading.Lock()
        self._bodies: list[str] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                with receiver._lock:
                    receiver._bodies.append(body)
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(_ANSWER)))
                self.end_headers()
                self.wfile.write(_ANSWER)

            def log_message(self, *_: object) -> None:
                """Do nothing: a benchmark prints its own lines."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The URL for schedules."""
        return f"http://127.0.0.1:{self._server.server_port}/run"

    @property
    def settings(self) -> dict[str, str]:
        """The environment with which Reverie sends to this receiver."""
        return {"REVERIE_WEBHOOK_ALLOW_PRIVATE": "127.0.0.1"}

    @property
    def taken(self) -> int:
        """How many webhooks were received."""
        return len(self._bodies)

    def leaks(self) -> Iterator[tuple[str, str, list[Found]]]:
        """Yield the webhooks that contain canaries of others than the user whose schedule it is."""
        for body in self._bodies:
            data = msgspec.json.decode(body).get("data", {})
            viewer = self._viewer(data)
            if viewer is None or (found := self._cast.leaks(body, viewer)):
                yield "webhook", body, found if viewer is not None else list(self._cast.canaries_in(body))

    def _viewer(self, data: dict[str, object]) -> Actor | None:
        """Return whose schedule a webhook is for; the agent's own have the agent as their user."""
        for actor in self._cast.actors:
            owner = actor.user or actor.agent
            if (data.get("workspace"), data.get("agent"), data.get("user")) == (actor.workspace, actor.agent, owner):
                return actor
        return None
