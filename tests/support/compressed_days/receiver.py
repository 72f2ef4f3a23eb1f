"""Receives the webhooks of schedules on loopback: verifies each signature, and answers according to the path of its
URL.

The answer is determined by the id of the message: a repeated delivery is answered in the same way.
"""

from __future__ import annotations

import threading
import zlib
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self

import msgspec
from standardwebhooks import Webhook, WebhookVerificationError

from reverie.clock import to_micros

# Longer than any sender waits.
_HANG_SECONDS: Final = 30.0
_MOST_SLOW_SECONDS: Final = 0.8
# Of the messages of a faltering path, one in this many gets an error the first time.
_FALTERS: Final = 6


@dataclass(frozen=True, slots=True)
class Delivery:
    """One delivery with a valid signature: its content, and the status of the answer; 0 for none."""

    id: str
    data: dict[str, Any]
    status: int

    @property
    def due_at(self) -> int:
        """The time of the run, in microseconds."""
        return to_micros(datetime.fromisoformat(self.data["due_at"]))


@dataclass
class Receiver:
    """Answers by path: `ok`, `slow`, `falters` (503 at first), `hangs` (no answer at first), `never` (400 each time),
    `fails-N` (400 for the first N messages of a schedule). Use it in a `with` statement."""

    secret: str
    deliveries: list[Delivery] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._times: Counter[str] = Counter()
        self._ids: dict[str, list[str]] = {}
        self._over = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                receiver._take(self)

            def log_message(self, *_: object) -> None:
                """Do nothing: a test prints its own lines."""

        class Server(ThreadingHTTPServer):
            request_queue_size = 64

            def handle_error(self, *_: object) -> None:
                """Do nothing: clients are killed here while they wait for an answer."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def url(self, path: str) -> str:
        """Return the URL for a schedule that is to be answered in this way."""
        return f"http://127.0.0.1:{self._server.server_port}/{path}"

    def taken(self) -> list[Delivery]:
        """Return all deliveries up to now."""
        with self._lock:
            return list(self.deliveries)

    def _take(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers["Content-Length"])
        body = request.rfile.read(length)
        if len(body) < length:  # the sender was killed while it sent this
            return
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            payload = Webhook(self.secret).verify(body, headers)
        except WebhookVerificationError as error:
            self.refused.append(str(error))
            request.send_error(401)
            return
        message, data = headers["webhook-id"], payload["data"]
        with self._lock:
            self._times[message] += 1
            time = self._times[message]
            ids = self._ids.setdefault(data["schedule_id"], [])
            if message not in ids:
                ids.append(message)
            status = _status(request.path.lstrip("/"), ids.index(message), message, time)
            self.deliveries.append(Delivery(message, data, status))
        if request.path == "/slow":
            self._over.wait(_MOST_SLOW_SECONDS * _chance(message, 100) / 100)
        self._answer(request, status, f"delivery {time} of {message}")

    def _answer(self, request: BaseHTTPRequestHandler, status: int, text: str) -> None:
        if status == 0:
            self._over.wait(_HANG_SECONDS)
            return
        content = msgspec.json.encode({"status": "success", "summary": text} if status == 200 else {"error": text})
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        request.wfile.write(content)


def _status(path: str, place: int, message: str, time: int) -> int:
    """Return the answer to a schedule's `place`th message, delivered for the `time`th time."""
    if path in ("falters", "hangs"):
        first = time == 1 and _chance(message, _FALTERS) == 0
        return (503 if path == "falters" else 0) if first else 200
    if path == "never" or (path.startswith("fails-") and place < int(path.removeprefix("fails-"))):
        return 400
    return 200


def _chance(message: str, of: int) -> int:
    """Return a number below `of` that is always the same for a message."""
    return zlib.crc32(message.encode()) % of
