"""Waits for a model behind HTTP no longer than a limit, and does not ask it again while it hangs.

A recall would rather go on without the model than to wait for it.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from adapters.bounded_calls import BoundedCalls
from adapters.breaker import ServiceUnavailable

T = TypeVar("T")


class PromptCalls:
    """Makes calls that are given up after `wait_seconds`. Thread-safe.

    A call that takes longer goes on by itself. Until it has ended, further calls fail at once: they would wait in vain,
    and hold a thread each. `name` is used in errors.
    """

    def __init__(self, name: str, unavailable: type[ServiceUnavailable], wait_seconds: float) -> None:
        self._name = name
        self._unavailable = unavailable
        self._wait_seconds = wait_seconds
        self._calls = BoundedCalls(f"ask {name}")
        self._began: dict[object, float] = {}  # of the calls that have not ended, by a mark of each
        self._lock = threading.Lock()

    def call(self, function: Callable[[], T]) -> T:
        """Call the function and return its result. Raises what it raises, and `unavailable` if that takes too long."""
        self._refuse_while_late()
        context = contextvars.copy_context()
        own: list[TimeoutError] = []
        began = time.monotonic()  # before the wait, so that a call that was given up counts as late from then on

        def run() -> T:
            mark = object()
            with self._lock:
                self._began[mark] = began
            try:
                return context.run(function)
            except TimeoutError as error:
                own.append(error)
                raise
            finally:
                with self._lock:
                    del self._began[mark]

        try:
            return self._calls.call(run, timeout_seconds=self._wait_seconds)
        except TimeoutError as error:
            if error in own:
                raise
            raise self._unavailable(f"{self._name} did not answer within {self._wait_seconds:g} s") from error

    def _refuse_while_late(self) -> None:
        with self._lock:
            began = min(self._began.values(), default=None)
        waited = 0.0 if began is None else time.monotonic() - began
        if waited >= self._wait_seconds:
            raise self._unavailable(f"{self._name} has not answered for {waited:.0f} s")
