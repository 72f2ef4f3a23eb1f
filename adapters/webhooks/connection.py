"""A connection to one of several checked addresses, with one deadline for all waits together.

The timeouts of an HTTP client apply to each read only: a receiver that sends one byte per second would never time out.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import httpcore2

from adapters.webhooks.deadline import Deadline
from adapters.webhooks.resolving import ResolvedAddress


class DeadlineStream(httpcore2.NetworkStream):
    """Reads from and writes to a socket until the deadline; the timeouts of the caller are ignored."""

    def __init__(self, connected: socket.socket, deadline: Deadline) -> None:
        self._socket = connected
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Return received bytes, at most `max_bytes`; empty at the end. Raises TimeoutError and other OSErrors."""
        del timeout
        self._socket.settimeout(self._deadline.left())
        return self._socket.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send everything. Raises TimeoutError, and WriteError if the receiver stopped reading."""
        del timeout
        view = memoryview(buffer)
        try:
            while view:
                self._socket.settimeout(self._deadline.left())
                view = view[self._socket.send(view) :]
        except TimeoutError:
            raise
        except OSError as error:
            raise httpcore2.WriteError(str(error)) from error

    def close(self) -> None:
        """Close the socket; unread data is dropped."""
        self._socket.close()

    def get_extra_info(self, info: str) -> Any:
        """Return None: the protocol above needs no extra information for a single request."""
        del info


def connect(
    addresses: Sequence[ResolvedAddress], deadline: Deadline, *, tls: ssl.SSLContext | None, host: str
) -> DeadlineStream:
    """Connect to the first address that accepts; with `tls` its certificate must be for `host`.

    Each address gets its share of the remaining time, so that one that drops packets leaves time for the others. TLS is
    attempted with one address only. Raises the OSError of the last address, TimeoutError, ssl.SSLError.
    """
    connection = _connect_first(addresses, deadline)
    with ExitStack() as on_error:
        on_error.callback(connection.close)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(deadline.left())  # limits the TLS handshake as a whole, not each of its reads
        stream = DeadlineStream(tls.wrap_socket(connection, server_hostname=host) if tls else connection, deadline)
        on_error.pop_all()
    return stream


def _connect_first(addresses: Sequence[ResolvedAddress], deadline: Deadline) -> socket.socket:
    for untried in range(len(addresses), 0, -1):
        address = addresses[len(addresses) - untried]
        try:
            return _connect(address, deadline.left(share=untried))
        except OSError:
            if untried == 1:
                raise
    raise OSError("there is no address to connect to")


def _connect(address: ResolvedAddress, timeout_seconds: float) -> socket.socket:
    connection = socket.socket(address.family, socket.SOCK_STREAM)
    with ExitStack() as on_error:
        on_error.callback(connection.close)
        connection.settimeout(timeout_seconds)
        connection.connect(address.sockaddr)
        on_error.pop_all()
    return connection
