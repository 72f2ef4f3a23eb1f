"""Ways in which an endpoint fails that are no answer at all: for the endpoint of support.endpoint."""

from __future__ import annotations

import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.endpoint import Answer, send

# A trickle outlasts every timeout that a test sets, and ends by itself when the client has gone.
_PIECES = 200
_PAUSE_SECONDS = 0.05


def trickle(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
    """A byte now and then: no single wait is long, all of them together are."""
    pause = threading.Event()
    handler.send_response(200)
    handler.send_header("Content-Length", str(_PIECES))
    handler.end_headers()
    for _ in range(_PIECES):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        pause.wait(_PAUSE_SECONDS)


def reset(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
    """The connection is reset instead of an answer."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True
    handler.connection.close()
    raise ConnectionResetError


def half_a_body(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
    """Less is sent than was announced."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True


def redirect_to(url: str) -> Answer:
    """The answer is to be found elsewhere."""
    return send(b"", 302, Location=url)
