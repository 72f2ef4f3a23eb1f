"""Limits the connections of the HTTP server: how many there are, and how long one may take to send a request.

uvicorn waits without end for the rest of a request's headers, so a few hundred clients that send a byte a second would
occupy it. Here a connection has deadlines for its headers, for the rest of a body that the server no longer reads, and
for taking its response; `server.bodies` sets the one for the body. If there are too many connections, the one that has
waited longest without a request is closed for the new one; if all of them are in use, the new one is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from reverie.errors import CONTENT_TYPE, TooSlow, Unavailable, problem_of
from server.authentication import network_of

RETRY_AFTER_SECONDS: Final = 1
# A client that has just connected gets this long before its place may go to another one.
_GRACE_SECONDS: Final = 1.0
# A refused client gets this long to read why; beyond this number of them, a connection is just closed.
_REFUSAL_SECONDS: Final = 1.0
_MAX_REFUSALS: Final = 64
# The most connections from all addresses, and from one address (for IPv6, one /64 network):
# one address leaves a quarter to the others.
MAX_CONNECTIONS: Final = 512
MAX_OF_ADDRESS: Final = 384
# The time for the headers of a request: enough on a slow line, too little for a client that sends a byte a second.
HEADER_SECONDS: Final = 10.0
# The time for a client to take a part of a response.
RESPONSE_SECONDS: Final = 60.0
# The time for the rest of a body after an early response, such as 413 or 401.
_REST_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The most connections, in all and from one address, and the seconds for the headers of a request."""

    total: int
    per_address: int
    header_seconds: float


class Connections:
    """The open connections of a server. For one thread: the event loop's."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.refused = 0
        self.closed_slow = 0
        self.refusing = 0
        self._total = 0
        self._open: dict[str, set[GuardedProtocol]] = {}
        # Connections without a request, with the time since when; also by address, so that an address over its limit
        # loses only its own connections.
        self._waiting: OrderedDict[GuardedProtocol, float] = OrderedDict()
        self._waiting_of: dict[str, OrderedDict[GuardedProtocol, float]] = {}

    def __len__(self) -> int:
        """Return how many connections are open."""
        return self._total

    def admit(self, connection: GuardedProtocol, now: float) -> bool:
        """Take in a connection, in place of another if there are too many; return whether there was room."""
        address = connection.address
        same = self._open.get(address, set())
        has_room = len(same) < self.limits.per_address or self._close_waiting(self._waiting_of.get(address, {}), now)
        has_room = has_room and (len(self) < self.limits.total or self._close_waiting(self._waiting, now))
        if has_room:
            self._open.setdefault(address, set()).add(connection)
            self._total += 1
        else:
            self.refused += 1
        return has_room

    def remove(self, connection: GuardedProtocol) -> None:
        """Forget a connection."""
        self.set_waiting(connection, None)
        same = self._open.get(connection.address, set())
        if connection in same:
            same.remove(connection)
            self._total -= 1
        if not same:
            self._open.pop(connection.address, None)

    def set_waiting(self, connection: GuardedProtocol, since: float | None) -> None:
        """Note since when a connection has been without a request, or None that it has one."""
        for place in (self._waiting, self._waiting_of.setdefault(connection.address, OrderedDict())):
            place.pop(connection, None)
            if since is not None:
                place[connection] = since
        if not self._waiting_of[connection.address]:
            del self._waiting_of[connection.address]

    def _close_waiting(self, waiting: Mapping[GuardedProtocol, float], now: float) -> bool:
        longest = next(iter(waiting.items()), None)
        if longest is None or now - longest[1] < _GRACE_SECONDS:
            return False
        self.closed_slow += 1
        longest[0].drop()
        return True


class GuardedProtocol(H11Protocol):
    """A connection with deadlines. `guarded` makes the class for a server, with its `guard`."""

    guard: Connections
    address = ""
    _refused = False
    _phase = ""
    _deadline: asyncio.TimerHandle | None = None
    _writing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take in or refuse a new connection."""
        super().connection_made(transport)
        self.address = network_of(self.client[0]) if self.client else ""
        if self.guard.admit(self, self.loop.time()):
            self._set_deadline()
        else:
            self._refuse()

    def data_received(self, data: bytes) -> None:
        """Take what the client sent."""
        if not self._refused:
            super().data_received(data)
            self._set_deadline()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._stop_timers()
        if self._refused:
            self.guard.refusing -= 1
        else:
            self.guard.remove(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Give the client a deadline for taking its response."""
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(RESPONSE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Resume writing, since the client reads its response again, and cancel the deadline."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def drop(self) -> None:
        """Close a connection without a request, for a new one."""
        self._stop_timers()
        self.guard.remove(self)
        self.transport.abort()

    def _set_deadline(self) -> None:
        """Set the deadline for the phase that the connection is in."""
        phase = self._current_phase()
        if phase == self._phase:
            return
        self._phase = phase
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self.guard.set_waiting(self, self.loop.time() if phase in ("headers", "idle") else None)
        if phase == "headers":
            self._deadline = self.loop.call_later(self.guard.limits.header_seconds, self._too_slow)
        elif phase == "rest":
            self._deadline = self.loop.call_later(_REST_SECONDS, self.transport.abort)

    def _current_phase(self) -> str:
        """Return the phase of the connection: `headers`, `idle`, `rest` of a body; empty while it has a request.

        The idle time between two requests is limited by uvicorn.
        """
        if self.transport.is_closing():
            return "closing"
        if self.conn.their_state is h11.IDLE:
            started = self._phase == "headers" or not self.cycle or bool(self.conn.trailing_data[0])
            return "headers" if started else "idle"
        answered = self.cycle is not None and self.cycle.response_complete
        return "rest" if answered and self.conn.their_state is h11.SEND_BODY else ""

    def _too_slow(self) -> None:
        self.guard.closed_slow += 1
        seconds = self.guard.limits.header_seconds
        error = TooSlow(f"the headers of the request did not arrive within {seconds:g} s: send it again")
        if self.conn.trailing_data[0]:
            self._write_problem(error)
        self.transport.close()

    def _refuse(self) -> None:
        self._refused = True
        self.connections.discard(self)
        self.guard.refusing += 1
        error = Unavailable("too many connections: try again, and use one connection for several requests")
        self._write_problem(error, b"retry-after: %d\r\n" % RETRY_AFTER_SECONDS)
        if self.guard.refusing > _MAX_REFUSALS:
            self.transport.close()
            return
        # Closed at once, with a request unread, the connection is reset, and the response may be lost.
        with contextlib.suppress(OSError, NotImplementedError):
            self.transport.write_eof()
        self._deadline = self.loop.call_later(_REFUSAL_SECONDS, self.transport.abort)

    def _write_problem(self, error: Unavailable, header: bytes = b"") -> None:
        """Write a whole response with the status 503. h11 has no request to respond to yet."""
        body = msgspec.json.encode(problem_of(error))
        self.transport.write(
            b"HTTP/1.1 503 Service Unavailable\r\n"
            b"content-type: %b\r\ncontent-length: %d\r\n%bconnection: close\r\n\r\n%b"
            % (CONTENT_TYPE.encode(), len(body), header, body)
        )

    def _stop_timers(self) -> None:
        for timer in (self._deadline, self._writing):
            if timer is not None:
                timer.cancel()
        self._deadline = self._writing = None


def guarded(guard: Connections) -> type[GuardedProtocol]:
    """Return the protocol of a server's connections, which `guard` counts."""
    return type("GuardedConnection", (GuardedProtocol,), {"guard": guard})
