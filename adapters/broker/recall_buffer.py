"""The recall buffer: recalls of this process that are not yet in the broker's log.

Adding a recall takes microseconds and cannot fail: it is encoded and kept in memory, and a thread appends it to the
log. While the broker is unavailable the buffer keeps recalls up to its limit; beyond it the oldest are dropped and
counted.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog

from adapters.broker.recall_log import QUERY_CHARACTERS, RecallLog, RecallNote
from reverie.clock import new_id, now_micros
from reverie.errors import Unavailable

# About 20,000 recalls of five results each: minutes without a broker on a busy server.
BUFFER_BYTES: Final = 8 * 1024 * 1024
# How long recalls are collected: each flush costs a commit of the worker.
FLUSH_SECONDS: Final = 0.5
# Flush at this number without waiting any longer, and at most so many at once: a script of about a millisecond.
FLUSH_RECALLS: Final = 200
_RETRY_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 2.0
_REPORT_SECONDS: Final = 60.0

log = structlog.get_logger(__name__)


class RecallBuffer:
    """Recalls of this process that are not yet in the log. Safe to share between threads."""

    def __init__(
        self,
        recall_log: RecallLog,
        *,
        on_flushed: Callable[[str], None],
        bound_bytes: int = BUFFER_BYTES,
        flush_seconds: float = FLUSH_SECONDS,
    ) -> None:
        """`on_flushed` is called in the buffer's thread with each workspace whose log has grown."""
        self._log = recall_log
        self._on_flushed = on_flushed
        self._bound_bytes = bound_bytes
        self._flush_seconds = flush_seconds
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._notes: deque[tuple[str, bytes]] = deque()
        self._bytes = 0
        self._dropped = 0
        self._reported = 0
        self._report_at = 0.0
        self._thread: threading.Thread | None = None
        self._some = threading.Event()
        self._enough = threading.Event()
        self._closing = threading.Event()

    @property
    def dropped(self) -> int:
        """Return how many recalls were dropped since the process started, here and by the limit of the log."""
        return self._dropped

    @property
    def waiting(self) -> int:
        """Return how many recalls are in memory."""
        return len(self._notes)

    def note(
        self,
        workspace: str,
        agent: str,
        query: str,
        hits: Sequence[tuple[int, float]],
        *,
        recall: str | None = None,
        at: int | None = None,
        user: str | None = None,
    ) -> None:
        """Add the results of an agent's recall for a user: chunk ids and scores, best first.

        `recall` and `at` (microseconds) are given for a recall that has results in another store too.
        """
        note = RecallNote(
            agent=agent,
            recall=recall or new_id(),
            query=query[:QUERY_CHARACTERS],
            at=now_micros() if at is None else at,
            hits=list(hits),
            user=user,
        )
        encoded = msgspec.json.encode(note)
        with self._lock:
            if self._closing.is_set():
                self._dropped += 1
                return
            self._notes.append((workspace, encoded))
            self._bytes += len(encoded)
            self._shrink()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="recall-log", daemon=True)
                self._thread.start()
            enough = len(self._notes) >= FLUSH_RECALLS
        self._some.set()
        if enough:
            self._enough.set()

    def flush(self) -> None:
        """Append all recalls to the log, after those that another thread is appending.

        Raises `Unavailable`; recalls that could not be appended stay.
        """
        with self._flushing:
            waiting = self._take()
            try:
                # In random order, so that a workspace whose log cannot be written does not always block the same ones.
                for workspace in random.sample(list(waiting), len(waiting)):
                    self._append(workspace, waiting[workspace])
                    self._on_flushed(workspace)
            finally:
                self._put_back(waiting)

    def close(self, timeout_seconds: float = _CLOSE_SECONDS) -> None:
        """Flush what is possible within this time; the rest is lost, and its number is logged."""
        with self._lock:
            self._closing.set()
            thread = self._thread
        if thread is not None:
            self._some.set()
            self._enough.set()
            thread.join(timeout_seconds)
        with self._lock:
            self._dropped += len(self._notes)
            self._notes.clear()
            self._bytes = 0
        self._report(time.monotonic(), at_once=True)

    def _run(self) -> None:
        failing = False
        while not self._closing.is_set():
            self._some.wait()
            self._enough.wait(self._flush_seconds)
            self._enough.clear()
            failing = not self._try_to_flush(failing)
            if failing:
                self._closing.wait(_RETRY_SECONDS)
            self._report(time.monotonic())
        self._try_to_flush(failing)

    def _try_to_flush(self, failing: bool) -> bool:
        """Flush and return whether it succeeded; log the first failure and the recovery."""
        try:
            self.flush()
        except Unavailable as error:
            if not failing:
                log.warning("recalls_wait", error=str(error))
            return False
        except Exception:  # the boundary of the thread's loop: a bug in one flush must not end all later ones
            log.exception("recalls_not_handed_over")
            return False
        if failing:
            log.info("recalls_handed_over")
        return True

    def _append(self, workspace: str, notes: list[bytes]) -> None:
        """Append notes, and remove from the list those that the log has."""
        while notes:
            dropped = self._log.append(workspace, notes[:FLUSH_RECALLS])
            del notes[:FLUSH_RECALLS]
            with self._lock:
                self._dropped += dropped

    def _take(self) -> dict[str, list[bytes]]:
        taken: dict[str, list[bytes]] = {}
        with self._lock:
            self._some.clear()
            for workspace, note in self._notes:
                taken.setdefault(workspace, []).append(note)
            self._notes.clear()
            self._bytes = 0
        return taken

    def _put_back(self, left: dict[str, list[bytes]]) -> None:
        notes = [(workspace, note) for workspace, notes in left.items() for note in notes]
        if notes:
            with self._lock:
                self._notes.extendleft(reversed(notes))
                self._bytes += sum(len(note) for _, note in notes)
                self._shrink()
                self._some.set()

    def _shrink(self) -> None:
        while self._bytes > self._bound_bytes:
            self._bytes -= len(self._notes.popleft()[1])
            self._dropped += 1

    def _report(self, now: float, *, at_once: bool = False) -> None:
        """Log how many recalls were dropped, at most once a minute."""
        if self._dropped > self._reported and (at_once or now >= self._report_at):
            log.warning("recalls_dropped", recalls=self._dropped - self._reported)
            self._reported, self._report_at = self._dropped, now + _REPORT_SECONDS
