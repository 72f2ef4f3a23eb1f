"""Receives the webhooks of schedules and of notifications, and keeps what they were sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Self

import msgspec

from support.isolation.actors import Actor, Cast, Found

# Of three runs, one fails: its error is stored and told, too.
_FAILURES: Final = 3


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
                answer = receiver._answer(body)
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Do nothing: a test prints its own lines."""

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
        """The environment with which Reverie sends to this receiver, also reminders and notifications."""
        return {"REVERIE_WEBHOOK_ALLOW_PRIVATE": "127.0.0.1", "REVERIE_NOTIFIER_WEBHOOK_URL": self.url}

    @property
    def taken(self) -> int:
        """How many webhooks were received."""
        return len(self._bodies)

    def leaks(self) -> Iterator[tuple[str, str, list[Found]]]:
        """Yield the webhooks that contain canaries of others than the user whose schedule it is."""
        for body in self._bodies:
            viewer = self._viewer(body)
            if viewer is None or (found := self._cast.leaks(body, viewer)):
                yield "webhook", body, found if viewer is not None else list(self._cast.canaries_in(body))

    def _viewer(self, body: str) -> Actor | None:
        """Return whose schedule or reminder a webhook is about."""
        message = msgspec.json.decode(body)
        data = message.get("data", {})
        workspace = message.get("workspace") or data.get("workspace")
        for actor in self._cast.actors:
            if (workspace, data.get("agent"), data.get("user")) == (actor.workspace, actor.agent, actor.user):
                return actor
        return None

    def _answer(self, body: str) -> bytes:
        """Return the report of a run: with a word of the user of its schedule in every text."""
        viewer = self._viewer(body)
        word = "" if viewer is None else viewer.canary("text")
        failed = len(self._bodies) % _FAILURES == 0
        report = {
            "status": "failed" if failed else "success",
            "output": f"done: {word}",
            "summary": f"in short: {word}",
            "error": f"no {word} there" if failed else "",
        }
        return msgspec.json.encode(report)
