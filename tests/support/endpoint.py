"""A real HTTP endpoint on loopback that answers as the test specifies: correctly, wrongly, slowly or not at all."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler, dict[str, Any]], None]


class Endpoint:
    """Accepts every POST; `answer` responds, `requests` and `keys` have all bodies and Authorization headers."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.over = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.requests.append(question)
                endpoint.keys.append(self.headers["Authorization"])
                try:
                    endpoint.answer(self, question)
                except ConnectionError:
                    self.close_connection = True

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        """Release callers that are kept waiting, and stop the server."""
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def never(self, handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
        """Keep the caller waiting until the test is over."""
        self.over.wait(30)


@contextmanager
def chat_endpoint(answer: Answer) -> Iterator[Endpoint]:
    """Run an endpoint within the block."""
    made = Endpoint(answer)
    try:
        yield made
    finally:
        made.close()


def send(body: bytes, status: int = 200, **headers: str) -> Answer:
    """Return an answer with these bytes; underscores in the names of headers stand for hyphens."""

    def answer(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def say(text: str | None) -> Answer:
    """Return the answer of a chat model with this text."""
    body = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
    }
    return send(json.dumps(body).encode())
