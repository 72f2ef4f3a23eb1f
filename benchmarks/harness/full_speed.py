"""Ingest at full speed during another measurement: there is always enough in the queue."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final, Self

from benchmarks.harness.stack import WORKSPACE, Stack
from benchmarks.harness.texts import Texts, payload_of
from benchmarks.harness.watch import Watch
from reverie.contract import MessagePayload

_BATCH_MESSAGES: Final = 100
# Enough for every stage to always have work, and little enough to be finished in seconds afterwards.
BACKLOG_MESSAGES: Final = 2_000
# The stages are at full speed once this many are through.
_UNDER_WAY_MESSAGES: Final = 300
_START_SECONDS: Final = 60.0
_DRAIN_SECONDS: Final = 120.0
_NAP_SECONDS: Final = 0.02


class FullSpeed:
    """Sends messages of one agent, batch after batch, for the duration of the `with` statement."""

    def __init__(self, stack: Stack, texts: Texts, *, agent: str, backlog: int = BACKLOG_MESSAGES) -> None:
        self._stack = stack
        self._texts = texts
        self._agent = agent
        self._backlog = backlog
        self._halt = threading.Event()
        self._under_way = threading.Event()
        self._thread = threading.Thread(target=self._send, name="full-speed", daemon=True)
        self._failed: Exception | None = None
        self.searchable = 0
        self.seconds = 0.0

    def __enter__(self) -> Self:
        """Start, and return once the first messages are searchable. Raises TimeoutError: if none is in time."""
        self._thread.start()
        if not self._under_way.wait(_START_SECONDS):
            self._halt.set()
            raise TimeoutError(f"no message became searchable within {_START_SECONDS:g} s")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop sending and wait until everything is searchable."""
        self._halt.set()
        self._thread.join()
        if self._failed is not None and error is None:
            raise self._failed

    @property
    def rate(self) -> float:
        """Return the messages made searchable per second meanwhile."""
        return self.searchable / self.seconds if self.seconds else 0.0

    def _send(self) -> None:
        try:
            with self._stack.watch(WORKSPACE) as watch:
                self._send_until_halted(watch)
        except Exception as error:  # noqa: BLE001 - the boundary of the thread: `__exit__` raises it
            self._failed = error
            self._under_way.set()

    def _send_until_halted(self, watch: Watch) -> None:
        producer = self._stack.producer(WORKSPACE)
        before = watch.messages()
        sent = done = base = 0
        started = 0.0
        while not self._halt.is_set():
            done = watch.messages() - before - watch.waiting()
            if not started and done >= min(_UNDER_WAY_MESSAGES, self._backlog // 2):
                started, base = time.monotonic(), done
                self._under_way.set()
            if sent - done >= self._backlog:
                self._halt.wait(_NAP_SECONDS)
                continue
            producer.enqueue([self._payload(number) for number in range(sent, sent + _BATCH_MESSAGES)])
            sent += _BATCH_MESSAGES
        self.searchable, self.seconds = done - base, time.monotonic() - (started or time.monotonic())
        watch.wait_searchable(before + sent, _DRAIN_SECONDS)

    def _payload(self, number: int) -> MessagePayload:
        """Yield the texts over and over, each time in other sessions: a text repeated in its session makes no new
        chunk.
        """
        turns = self._texts.turns
        return payload_of(turns[number % len(turns)], agent=self._agent, label=f"#{number // len(turns)}")
