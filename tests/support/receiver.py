"""Webhook receivers on loopback: one that verifies signatures, and one that writes anything to the socket."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks import Webhook

# A drip lasts far longer than every timeout in the tests, and ends if the client waits without one.
_PIECES = 1_500


@dataclass(frozen=True)
class Received:
    """One message with a valid signature."""

    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class Receiver:
    """Verifies every POST with the public library; `received` has the valid messages, `requests` counts all."""

    url: str
    port: int
    status: int
    headers: dict[str, str]
    content: bytes
    received: list[Received]
    requests: int = 0


@contextmanager
def receiving(
    secret: str, *, status: int = 200, content: bytes = b"{}", tls: ssl.SSLContext | None = None, **headers: str
) -> Iterator[Receiver]:
    """Run a receiver within the block; underscores in the names of headers stand for hyphens."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            receiver.requests += 1
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got = {name.lower(): value for name, value in self.headers.items()}
            receiver.received.append(Received(self.path, got, Webhook(secret).verify(body, got)))
            self.send_response(receiver.status)
            for name, value in receiver.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(receiver.content)))
            self.end_headers()
            self.wfile.write(receiver.content)

        def do_GET(self) -> None:
            receiver.requests += 1
            self.send_error(405)

        def log_message(self, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 64

        def handle_error(self, *args: object) -> None:
            """Print nothing: tests close connections early."""

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    port = server.server_port
    url = f"{'https' if tls else 'http'}://127.0.0.1:{port}/hook"
    receiver = Receiver(url, port, status, {n.replace("_", "-"): v for n, v in headers.items()}, content, [])
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# Called with the connection, after the request has been read, and an event that is set at the end of the test.
Talk = Callable[[socket.socket, threading.Event], None]


@contextmanager
def talking(talk: Talk, *, read_first: bool = True) -> Iterator[str]:
    """Run a server that reads a request and then calls `talk`; yields its URL."""
    over = threading.Event()
    talks: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                if read_first:
                    _read_request(connection)
                talk(connection, over)
            except OSError:
                pass  # the client has disconnected, as it should

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            if over.is_set():
                connection.close()
                return
            talks.append(threading.Thread(target=serve, args=(connection,)))
            talks[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/hook"
        finally:
            over.set()
            socket.create_connection(listener.getsockname()).close()
            for thread in (accepting, *talks):
                thread.join()


def say(content: bytes) -> Talk:
    """Return a talk that sends these bytes and ends."""
    return lambda connection, over: connection.sendall(content)


def drip(beginning: bytes, piece: bytes) -> Talk:
    """Return a talk that sends the beginning, then a piece every 20 ms for 30 s, or until the client disconnects."""

    def talk(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(beginning)
        for _ in range(_PIECES):
            if over.wait(0.02):
                return
            connection.sendall(piece)

    return talk


def never(connection: socket.socket, over: threading.Event) -> None:
    """Send nothing until the test is over."""
    over.wait(30)


def _read_request(connection: socket.socket) -> None:
    """Read a whole request. Raises ConnectionError for a client that gives up before it has sent all of it."""

    def read() -> bytes:
        if not (part := connection.recv(65536)):
            raise ConnectionError("the client has disconnected")
        return part

    got = b""
    while b"\r\n\r\n" not in got:
        got += read()
    head, _, body = got.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        body += read()
    json.loads(body)
