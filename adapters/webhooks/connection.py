"""A connection to one of several addresses that were checked, all of whose waits end at one deadline.

The timeouts of an HTTP client hold for each read alone: a receiver that sends a byte a second would never meet one.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Any

import httpcore2

from adapters.webhooks.deadline import Deadline
from adapters.webhooks.resolving import Place


class DeadlineStream(httpcore2.NetworkStream):
    """Bytes to and from a socket. The timeouts that the caller gives are not looked at: the deadline holds."""

    def __init__(self, connected: socket.socket, deadline: Deadline) -> None:
        self._socket = connected
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What has come, at most `max_bytes`; nothing at the end. Raises TimeoutError and other OSErrors."""
        del timeout
        self._socket.settimeout(self._deadline.left())
        return self._socket.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it. Raises TimeoutError; WriteError where the receiver does not listen, but may have answered."""
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
        """Close the socket; what it still holds is dropped."""
        self._socket.close()

    def get_extra_info(self, info: str) -> Any:
        """Nothing: the protocol above needs none of it for a single request."""
        del info


def connected(places: Sequence[Place], deadline: Deadline, *, tls: ssl.SSLContext | None, host: str) -> DeadlineStream:
    """A connection to the first of `places` that takes one; with `tls` its certificate must be for `host`.

    Each place gets its part of the time that is left, so that one that swallows packets leaves some to the next. TLS is
    done with one place only. Raises the last place's OSError, TimeoutError, ssl.SSLError.
    """
    plain = _first_connected(places, deadline)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.settimeout(deadline.left())  # OpenSSL's handshake as a whole ends by it, not each of its reads
        return DeadlineStream(tls.wrap_socket(plain, server_hostname=host) if tls else plain, deadline)
    except BaseException:  # whatever it was goes on its way; only the open socket must not stay behind
        plain.close()
        raise


def _first_connected(places: Sequence[Place], deadline: Deadline) -> socket.socket:
    for untried in range(len(places), 0, -1):
        place = places[len(places) - untried]
        try:
            return _connected(place, deadline.left(share=untried))
        except OSError:
            if untried == 1:
                raise
    raise OSError("there is no address to connect to")


def _connected(place: Place, timeout_seconds: float) -> socket.socket:
    made = socket.socket(place.family, socket.SOCK_STREAM)
    try:
        made.settimeout(timeout_seconds)
        made.connect(place.sockaddr)
    except BaseException:
        made.close()
        raise
    return made
