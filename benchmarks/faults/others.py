"""Somebody else on the same installation: stores and recalls all the time, and notes how long each had to wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Literal, Self

from benchmarks.faults.accepted import Accepted
from benchmarks.harness.stack import Stack
from reverie import Reverie
from reverie.errors import ReverieError, WaitTimeout

OTHERS: Final = "others"
_PAUSE_SECONDS: Final = 0.2
_AGAIN_SECONDS: Final = 0.05
_CALL_SECONDS: Final = 120.0


class Others:
    """Two threads in a workspace of their own; use it in a `with` statement.

    One sends a message and waits until it is searchable, one recalls over HTTP. A call that fails is repeated at once,
    and its wait counts until it succeeds, as an agent would see it.
    """

    def __init__(self, stack: Stack, accepted: Accepted) -> None:
        self._stack = stack
        self._accepted = accepted
        self._halt = threading.Event()
        self._waits: dict[str, list[tuple[float, float]]] = {"store": [], "recall": []}
        self._pending: dict[str, float] = {}
        self.refused = 0
        self._client = Reverie("lif", broker=stack.broker_url, url=stack.url, workspace=OTHERS, timeout_seconds=30)
        self._threads = [
            threading.Thread(target=self._repeat, args=("store", self._store), name="others-store"),
            threading.Thread(target=self._repeat, args=("recall", self._recall), name="others-recall"),
        ]

    def __enter__(self) -> Self:
        """Store and recall once, so that the workspace is there, and start."""
        self._store(0)
        self._recall(0)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop and wait for the calls that are under way."""
        self._halt.set()
        for thread in self._threads:
            thread.join()
        self._client.close()

    def longest_wait(self, call: Literal["store", "recall"], since: float = 0.0) -> float:
        """Return the longest wait in seconds for a call that ended after `since` (monotonic) or has not ended yet."""
        ended = [seconds for at, seconds in list(self._waits[call]) if at >= since]
        began = self._pending.get(call)
        return max([*ended, *([] if began is None else [time.monotonic() - began])], default=0.0)

    def calls(self) -> int:
        """Return how many calls have succeeded."""
        return sum(len(waits) for waits in self._waits.values())

    def _repeat(self, name: str, call: Callable[[int], None]) -> None:
        number = 1
        while not self._halt.wait(_PAUSE_SECONDS):
            self._pending[name] = began = time.monotonic()
            while not self._halt.is_set():
                try:
                    call(number)
                except WaitTimeout:
                    break  # accepted, and as late as that: the recovery shows when it becomes searchable
                except ReverieError:
                    self.refused += 1
                    self._halt.wait(_AGAIN_SECONDS)
                else:
                    break
            ended = time.monotonic()
            self._waits[name].append((ended, ended - began))
            del self._pending[name]
            number += 1

    def _store(self, number: int) -> None:
        self._accepted.send(
            [f"lif put lantern {number} on the quay"],
            workspace=OTHERS,
            wait="searchable",
            timeout_seconds=_CALL_SECONDS,
        )

    def _recall(self, _number: int) -> None:
        self._client.recall("lantern on the quay", limit=3)
