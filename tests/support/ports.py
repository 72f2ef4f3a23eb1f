"""Ports on which a test starts a server."""

from __future__ import annotations

import random
import socket
from typing import Final

# Below the ports that the system gives to outgoing connections: none takes one before its server listens.
_PORTS: Final = range(20_000, 32_000)
_given: Final[set[int]] = set()
_chance: Final = random.SystemRandom()


def free_port() -> int:
    """Return a port of loopback on which nothing listens, another one at each call."""
    while True:
        port = _chance.choice(_PORTS)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
