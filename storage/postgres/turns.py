"""Turns of the threads that want connections of one process, so that none waits for what another one needs to go on.

A recall holds a snapshot of its workspace and one of the account. If each of ten threads had one of ten connections and
waited for a second, all would wait until they give up. So a thread waits for its first connection only.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from reverie.errors import StoreUnavailable

# Requests and jobs of a process that use the database at once, unless the settings say otherwise.
TURNS: Final = 10
# Connections of one of them: of two stores, and one for what is looked up meanwhile.
CONNECTIONS_OF_A_TURN: Final = 3
_WAIT_SECONDS: Final = 30.0


class Turns:
    """At most so many threads have a turn at once. Thread-safe."""

    def __init__(self, turns: int = TURNS) -> None:
        self._free = threading.BoundedSemaphore(turns)
        self._local = threading.local()

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Wait for a turn, unless the thread has one. Raises `StoreUnavailable` after half a minute.

        What another thread ends, such as a streamed answer, gives back the turn of the thread that began it.
        """
        open_turns: list[None] = self._local.__dict__.setdefault("open_turns", [])
        is_first = not open_turns
        if is_first and not self._free.acquire(timeout=_WAIT_SECONDS):
            raise StoreUnavailable(f"{name}: all connections of this process are in use, try again")
        open_turns.append(None)
        try:
            yield
        finally:
            open_turns.pop()
            if is_first:
                self._free.release()
