"""Hosts on one machine: network namespaces that are connected by a bridge, and whose links can be cut.

Needs root, and `ip` of iproute2. Nothing is changed in the network of the machine itself: the bridge has a namespace of
its own, too.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

ADDRESSES: Final = "10.77.0.0/24"
_CLONE_NEWNET: Final = 0x40000000
_HUB: Final = "hub"
_BRIDGE: Final = "rvb0"
_FOLDER: Final = Path("/run/netns")
_libc: Final = ctypes.CDLL(None, use_errno=True)


class Network:
    """Hosts by their names, with addresses in 10.77.0.0/24. Use it in a `with` statement."""

    def __init__(self) -> None:
        self._prefix = f"rvb{os.getpid()}"
        self._hosts: list[str] = []

    def __enter__(self) -> Self:
        self._add_namespace(_HUB)
        self._in(_HUB, "link", "add", _BRIDGE, "type", "bridge")
        self._in(_HUB, "link", "set", _BRIDGE, "up")
        return self

    def __exit__(self, *_: object) -> None:
        """Remove all namespaces, and with them their links. Processes in them should have ended."""
        for name in (*self._hosts, _HUB):
            subprocess.run(["ip", "netns", "del", self._namespace(name)], check=False)

    def add(self, name: str) -> str:
        """Add a host; return its address."""
        self._add_namespace(name)
        self._hosts.append(name)
        here, there = f"v{len(self._hosts)}a", f"v{len(self._hosts)}b"
        self._in(_HUB, "link", "add", here, "type", "veth", "peer", "name", there, "netns", self._namespace(name))
        self._in(_HUB, "link", "set", here, "master", _BRIDGE, "up")
        address = f"10.77.0.{len(self._hosts)}"
        self._in(name, "address", "add", f"{address}/24", "dev", there)
        self._in(name, "link", "set", there, "up")
        return address

    def cut(self, name: str) -> None:
        """Cut the link of a host: what it sends is lost, and nobody is told."""
        self._in(_HUB, "link", "set", self._link(name), "down")

    def mend(self, name: str) -> None:
        """Connect a host again."""
        self._in(_HUB, "link", "set", self._link(name), "up")

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Have this thread be on a host: what it connects to and what it starts is there."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            self.enter(name)
            yield
        finally:
            _set_namespace(before)
            os.close(before)

    def enter(self, name: str) -> None:
        """Have this thread, and the threads that it starts from now on, be on a host."""
        descriptor = os.open(_FOLDER / self._namespace(name), os.O_RDONLY)
        try:
            _set_namespace(descriptor)
        finally:
            os.close(descriptor)

    def _link(self, name: str) -> str:
        return f"v{self._hosts.index(name) + 1}a"

    def _namespace(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _add_namespace(self, name: str) -> None:
        subprocess.run(["ip", "netns", "add", self._namespace(name)], check=True)
        self._in(name, "link", "set", "lo", "up")

    def _in(self, name: str, *words: str) -> None:
        subprocess.run(["ip", "-netns", self._namespace(name), *words], check=True)


def _set_namespace(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")
