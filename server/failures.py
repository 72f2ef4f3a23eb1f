"""Counts wrong tokens by the address that sent them, and says when an address has sent too many."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

# A person who mistypes, or a client with an old token that starts a few times, stays below it.
FAILURES_ALLOWED: Final = 10
WINDOW_SECONDS: Final = 60.0
# Addresses that are remembered, about 200 bytes each; the least recent is forgotten first.
_ADDRESSES: Final = 4_096
# What one subscriber has: counting single addresses of it would count nothing.
_IPV6_PREFIX: Final = 64


class Failures:
    """The wrong tokens of the last minute, by address. For one thread: the event loop's."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()
        self.total = 0
        self.limited = 0

    def note(self, origin: str) -> int:
        """Count a wrong token of an address; return 0, or after too many the seconds until it may try again."""
        self.total += 1
        now, key = self._monotonic(), network_of(origin)
        started, count = self._windows.pop(key, (now, 0))
        if now - started >= WINDOW_SECONDS:
            started, count = now, 0
        self._windows[key] = (started, count + 1)
        if len(self._windows) > _ADDRESSES:
            self._windows.popitem(last=False)
        if count < FAILURES_ALLOWED:
            return 0
        self.limited += 1
        return max(1, math.ceil(started + WINDOW_SECONDS - now))

    def __len__(self) -> int:
        """Return how many addresses are remembered."""
        return len(self._windows)


def network_of(origin: str) -> str:
    """Return what failures are counted by: an IPv4 address, or the network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(origin)
    except ValueError:
        return origin
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
    return origin
