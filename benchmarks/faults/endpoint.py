"""An embedding endpoint that can be told to refuse everything, or to answer with vectors of another dimension."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal

from adapters.embedders.hashing import HashEmbedder
from benchmarks.faults.setting import Setting

Mood = Literal["well", "refuses", "other_dimension", "not_a_number"]
_OTHER_DIMENSION: Final = 8


class MoodyEndpoint(ThreadingHTTPServer):
    """Answers POST /embeddings as its mood is; counts the requests. Use it by `moody_endpoint`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mood: Mood = "well"
        self.requests = 0

    @property
    def url(self) -> str:
        """The base URL for the settings."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def answer(self, texts: list[str]) -> tuple[int, dict[str, Any]]:
        """Return the status and the JSON for these texts."""
        self.requests += 1
        if self.mood == "refuses":
            return 400, {"error": "no"}
        rows = [[float(number) for number in vector] for vector in HashEmbedder().embed(texts)]
        if self.mood == "other_dimension":
            rows = [row[:_OTHER_DIMENSION] for row in rows]
        if self.mood == "not_a_number":
            rows = [[float("nan"), *row[1:]] for row in rows]
        return 200, {"data": [{"index": number, "embedding": row} for number, row in enumerate(rows)]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        assert isinstance(self.server, MoodyEndpoint)
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, found = self.server.answer(request["input"])
        body = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@contextmanager
def moody_endpoint() -> Iterator[Setting]:
    """Run on an embedding endpoint of this process, whose mood can be changed."""
    endpoint = MoodyEndpoint()
    thread = threading.Thread(target=endpoint.serve_forever, name="endpoint", daemon=True)
    thread.start()
    env = {
        "REVERIE_EMBEDDING_PROVIDER": "openai",
        "REVERIE_EMBEDDING_MODEL": "moody",
        "REVERIE_EMBEDDING_BASE_URL": endpoint.url,
    }
    try:
        yield Setting(env=env, endpoint=endpoint)
    finally:
        endpoint.shutdown()
        endpoint.server_close()
        thread.join()
