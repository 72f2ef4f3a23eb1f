"""From a name to addresses, once and within a deadline: the system's resolver itself knows none."""

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

# A look-up that hangs keeps its thread until the system gives up (30 s or so); this many may hang at a time.
LOOK_UPS_AT_ONCE: Final = 32

_Found: TypeAlias = list[tuple[Any, Any, int, str, tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class Place:
    """One address to connect to: `sockaddr` is what the socket takes, so that nothing is looked up again."""

    address: Address
    family: socket.AddressFamily
    sockaddr: tuple[Any, ...]


class Resolver:
    """Looks names up in threads of its own. Safe to share between threads."""

    def __init__(self) -> None:
        self._slots = threading.BoundedSemaphore(LOOK_UPS_AT_ONCE)

    def places(self, url: WebhookUrl, deadline: Deadline) -> list[Place]:
        """Every address of the URL's host, each once, in the resolver's order.

        Raises TimeoutError, and socket.gaierror or another OSError when there is none.
        """
        if url.address is not None:
            family = socket.AF_INET if url.address.version == 4 else socket.AF_INET6
            return [Place(url.address, family, (url.host, url.port))]
        found = {
            sockaddr[0]: Place(ip_address(sockaddr[0]), family, sockaddr)
            for family, _, _, _, sockaddr in self._looked_up(url.host, url.port, deadline)
            if family in (socket.AF_INET, socket.AF_INET6)
        }
        if not found:
            raise OSError("the name has no address")
        return list(found.values())

    def _looked_up(self, host: str, port: int, deadline: Deadline) -> _Found:
        outcome: queue.SimpleQueue[_Found | OSError] = queue.SimpleQueue()

        def look_up() -> None:
            try:
                outcome.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP))
            except (OSError, UnicodeError) as error:  # UnicodeError: a name that the system's encoding cannot hold
                outcome.put(error if isinstance(error, OSError) else OSError(str(error)))
            finally:
                self._slots.release()

        if not self._slots.acquire(timeout=deadline.left()):
            raise TimeoutError("all look-ups hang")
        try:
            threading.Thread(target=look_up, name="webhook-look-up", daemon=True).start()
        except RuntimeError as error:  # the system has no thread left
            self._slots.release()
            raise OSError(str(error)) from error
        try:
            answer = outcome.get(timeout=deadline.left())
        except queue.Empty:
            raise TimeoutError("the look-up hangs") from None
        if isinstance(answer, OSError):
            raise answer
        return answer
