"""Failures of an endpoint without a complete answer, for `support.endpoint`."""

from __future__ import annotations

import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.endpoint import Answer, send

# A trickle lasts longer than every timeout in the tests, and ends when the client disconnects.
_PIECES = 200
_PAUSE_SECONDS = 0.05


def trickle(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
    """Send one byte at a time: each wait is short, but all of them together are long."""
    pause = threading.Event()
    handler.send_response(200)
    handler.send_header("Content-Length", str(_PIECES))
    handler.end_headers()
    for _ in range(_PIECES):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        pause.wait(_PAUSE_SECONDS)


def trickled_head(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
    """Send the head one byte at a time, with no end of it."""
    pause = threading.Event()
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
    for _ in range(_PIECES):
        handler.wfile.write(b"a")
        handler.wfile.flush()
        pause.wait(_PAUSE_SECONDS)


def early_hints(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
    """Say again and again that the answer is yet to come."""
    pause = threading.Event()
    for _ in range(_PIECES):
        handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        handler.wfile.flush()
        pause.wait(_PAUSE_SECONDS)


def reset(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
    """Reset the connection instead of answering."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.close_connection = True
    handler.connection.close()
    raise ConnectionResetError


def half_a_body(handler: BaseHTTPRequestHandler, question: dict[str, Any]) -> None:
    """Send fewer bytes than Content-Length announces."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True


def redirect_to(url: str) -> Answer:
    """Return an answer that redirects to another URL."""
    return send(b"", 302, Location=url)
