"""Calls that must return within a time, whatever they wait for: a name, a connection, the head of a response.

The timeouts of an HTTP client apply to each wait by itself, and the system's resolver has none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

# A call that hangs keeps its thread; at most this many at a time.
MAX_CALLS: Final = 32

T = TypeVar("T")


class BoundedCalls:
    """Makes calls in threads of its own, which end with the process. Safe to share between threads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._slots = threading.BoundedSemaphore(MAX_CALLS)

    def call(self, function: Callable[[], T], *, timeout_seconds: float) -> T:
        """Call the function and return its result, or raise what it raises. Raises TimeoutError when the time is up.

        The function goes on then, and its outcome is dropped.
        """
        deadline = time.monotonic() + timeout_seconds
        outcome: Future[T] = Future()

        def run() -> None:
            try:
                outcome.set_result(function())
            except BaseException as error:  # noqa: BLE001  # raised again in the thread that waits
                outcome.set_exception(error)
            finally:
                self._slots.release()

        if not self._slots.acquire(timeout=timeout_seconds):
            raise TimeoutError("too many calls are hanging")
        try:
            threading.Thread(target=run, name=self._name, daemon=True).start()
        except RuntimeError as error:  # the system has no thread left
            self._slots.release()
            raise TimeoutError(str(error)) from error
        return outcome.result(timeout=max(deadline - time.monotonic(), 0.0))
