"""A webhook receiver that verifies what it receives, and can keep the sender waiting for an answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook

_PATIENCE_SECONDS = 60.0


@dataclass
class GatedReceiver:
    """`taken` has the ids and bodies of messages with a valid signature; nothing is answered until `gate` is set."""

    url: str
    taken: list[tuple[str, Any]] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    _arrived: threading.Condition = field(default_factory=threading.Condition)

    def take(self, message_id: str, body: Any) -> None:
        """Record a message and wait for the gate."""
        with self._arrived:
            self.taken.append((message_id, body))
            self._arrived.notify_all()
        self.gate.wait(_PATIENCE_SECONDS)

    def wait_for(self, count: int) -> None:
        """Wait until this many messages have arrived."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: len(self.taken) >= count, _PATIENCE_SECONDS), "nothing came"


@contextmanager
def gated_receiver(secret: str) -> Iterator[GatedReceiver]:
    """Run a receiver within the block, with its gate open."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            receiver.take(headers["webhook-id"], Webhook(secret).verify(body, headers))
            self.send_response(204)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *args: object) -> None:
            """Print nothing: tests kill senders."""

    server = Server(("127.0.0.1", 0), Handler)
    receiver = GatedReceiver(f"http://127.0.0.1:{server.server_port}/hook")
    receiver.gate.set()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield receiver
    finally:
        receiver.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
