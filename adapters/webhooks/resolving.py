"""Resolve a host name once and within a deadline, which the system's resolver does not support."""

from __future__ import annotations

import queue
import socket
import threading
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final, TypeAlias

from adapters.webhooks.addresses import Address
from adapters.webhooks.deadline import Deadline
from adapters.webhooks.urls import WebhookUrl

# A lookup that hangs blocks its thread until the system times out (about 30 s); at most this many at a time.
MAX_LOOKUPS: Final = 32

_Found: TypeAlias = list[tuple[Any, Any, int, str, tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class ResolvedAddress:
    """One address to connect to; `sockaddr` is passed to the socket, so that no name is looked up again."""

    address: Address
    family: socket.AddressFamily
    sockaddr: tuple[Any, ...]


class Resolver:
    """Resolves names in its own threads. Safe to share between threads."""

    def __init__(self) -> None:
        self._slots = threading.BoundedSemaphore(MAX_LOOKUPS)

    def resolve(self, url: WebhookUrl, deadline: Deadline) -> list[ResolvedAddress]:
        """Return all addresses of the URL's host, without duplicates, in the resolver's order.

        Raises TimeoutError, and socket.gaierror or another OSError if there is none.
        """
        if url.address is not None:
            family = socket.AF_INET if url.address.version == 4 else socket.AF_INET6
            return [ResolvedAddress(url.address, family, (url.host, url.port))]
        found = {
            sockaddr[0]: ResolvedAddress(ip_address(sockaddr[0]), family, sockaddr)
            for family, _, _, _, sockaddr in self._look_up(url.host, url.port, deadline)
            if family in (socket.AF_INET, socket.AF_INET6)
        }
        if not found:
            raise OSError("the name has no address")
        return list(found.values())

    def _look_up(self, host: str, port: int, deadline: Deadline) -> _Found:
        outcome: queue.SimpleQueue[_Found | OSError] = queue.SimpleQueue()

        def look_up() -> None:
            try:
                outcome.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP))
            except (OSError, UnicodeError) as error:  # UnicodeError: a name that the system cannot encode
                outcome.put(error if isinstance(error, OSError) else OSError(str(error)))
            finally:
                self._slots.release()

        if not self._slots.acquire(timeout=deadline.left()):
            raise TimeoutError("too many lookups are hanging")
        try:
            threading.Thread(target=look_up, name="webhook-lookup", daemon=True).start()
        except RuntimeError as error:  # the system has no thread left
            self._slots.release()
            raise OSError(str(error)) from error
        try:
            answer = outcome.get(timeout=deadline.left())
        except queue.Empty:
            raise TimeoutError("the lookup hangs") from None
        if isinstance(answer, OSError):
            raise answer
        return answer
