"""The embedding endpoint refuses, answers nonsense, slowly, without end, or never."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal

from adapters.embedders.base import HashEmbedder
from benchmarks.faults.scenario import Limits, Scenario, Scene
from benchmarks.faults.setting import Setting

Mood = Literal[
    "well",
    "refuses",
    "other_dimension",
    "not_a_number",
    "says_nothing",
    "drips",
    "never_ends",
    "leaves_out_one",
    "answers_a_page",
    "asks_for_a_pause",
]
_OTHER_DIMENSION: Final = 8
# An answer that never ends comes in pieces of this size.
_PIECE: Final = b" " * 65_536
_DRIP_SECONDS: Final = 0.5
# Reverie would respect a longer pause, too, up to ten minutes: that is left to the unit tests of the circuit breaker.
_RETRY_AFTER_SECONDS: Final = "20"


class MoodyEndpoint(ThreadingHTTPServer):
    """Answers POST /embeddings according to its `mood`, and counts the requests. Use it by `moody_endpoint`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.mood: Mood = "well"
        self.requests = 0
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        """The base URL for the settings."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def answer(self, texts: list[str]) -> tuple[int, dict[str, Any]]:
        """Return the status and the JSON for these texts."""
        self.requests += 1
        if self.mood == "refuses":
            return 400, {"error": "no"}
        if self.mood == "asks_for_a_pause":
            return 429, {"error": "later"}
        rows = [[float(number) for number in vector] for vector in HashEmbedder().embed(texts)]
        if self.mood == "leaves_out_one":
            rows = rows[1:]
        if self.mood == "other_dimension":
            rows = [row[:_OTHER_DIMENSION] for row in rows]
        if self.mood == "not_a_number":
            rows = [[float("nan"), *row[1:]] for row in rows]
        return 200, {"data": [{"index": number, "embedding": row} for number, row in enumerate(rows)]}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        endpoint = self.server
        assert isinstance(endpoint, MoodyEndpoint)
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, found = endpoint.answer(request["input"])
        mood = endpoint.mood
        body = b"<html>Welcome</html>" if mood == "answers_a_page" else json.dumps(found).encode()
        if mood == "says_nothing":
            self._wait_while(mood)
        self.send_response(status)
        if mood == "asks_for_a_pause":
            self.send_header("Retry-After", _RETRY_AFTER_SECONDS)
        if mood == "never_ends":
            self.end_headers()
            self._write_while(mood, _PIECE, 0.001)
            return
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if mood == "drips":
            self._write_while(mood, b" ", _DRIP_SECONDS)
        with contextlib.suppress(OSError):  # whoever asked has gone
            self.wfile.write(body)

    def _wait_while(self, mood: Mood) -> None:
        assert isinstance(self.server, MoodyEndpoint)
        while self.server.mood == mood and not self.server.closing.wait(0.1):
            pass

    def _write_while(self, mood: Mood, piece: bytes, pause_seconds: float) -> None:
        """Write again and again, until the mood has changed or nobody reads."""
        assert isinstance(self.server, MoodyEndpoint)
        self.close_connection = True
        with contextlib.suppress(OSError):
            while self.server.mood == mood and not self.server.closing.wait(pause_seconds):
                self.wfile.write(piece)
                self.wfile.flush()

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
        endpoint.closing.set()
        endpoint.shutdown()
        endpoint.server_close()
        thread.join()


_USELESS: Final[tuple[Mood, ...]] = ("refuses", "other_dimension", "not_a_number", "leaves_out_one", "answers_a_page")
_ENDLESS: Final[tuple[Mood, ...]] = ("says_nothing", "drips", "never_ends", "asks_for_a_pause")
_SECONDS: Final = 30.0
_TINY_SECONDS: Final = 4.0
_PAUSE_SECONDS: Final = 0.1


def _bad_endpoint(moods: tuple[Mood, ...], scene: Scene) -> None:
    """The embedding endpoint misbehaves, in one way after another, each for a while."""
    endpoint = scene.setting.endpoint
    assert isinstance(endpoint, MoodyEndpoint)
    number = 0
    asked = endpoint.requests
    for mood in moods:
        endpoint.mood = mood
        ends = time.monotonic() + (_TINY_SECONDS if scene.quick else _SECONDS)
        while time.monotonic() < ends:
            scene.accepted.send([f"message {number} while the endpoint {mood}"])
            number += 1
            scene.tell(f"{number} messages sent, the endpoint {mood}")
            time.sleep(_PAUSE_SECONDS)
    scene.figures["requests"] = endpoint.requests - asked
    endpoint.mood = "well"


# Callers that wait for vectors are told at once that there are none; the circuit breaker tries again within a minute.
_LIMITS: Final = Limits(others_stored_seconds=5.0, recovery_seconds=120.0)
SCENARIOS: Final = (
    Scenario(
        "refusing_endpoint",
        "the embedding endpoint refuses everything, or answers with useless vectors",
        partial(_bad_endpoint, _USELESS),
        _LIMITS,
        setting=moody_endpoint,
    ),
    Scenario(
        "endless_endpoint",
        "the embedding endpoint does not answer, answers without end, or asks for a pause",
        partial(_bad_endpoint, _ENDLESS),
        # A caller may wait for a request that is given up after 15 s, and for one that tests whether the endpoint
        # answers again. A recall waits 2 s before it goes on by words; most are told at once that there is no vector.
        Limits(others_stored_seconds=35.0, others_recalled_seconds=2.5, recovery_seconds=120.0),
        setting=moody_endpoint,
    ),
)
