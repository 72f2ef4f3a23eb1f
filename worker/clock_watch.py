"""Notices that the machine's clock has jumped, so that nothing is removed or fired on the word of a wrong time.

The clock is compared with one that nobody sets: the time since the machine started. What was found is kept in a file of
the data folder, so that all processes know it. A clock that has jumped is believed once it has been steady for a while,
or is back where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from storage.private_files import write_private
from worker.steady_clock import ClockState, next_state

FILE_NAME: Final = "clock.json"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

log = structlog.get_logger(__name__)


class ClockWatch:
    """The clock of one data folder. Looking twice at once, in two processes, finds the same."""

    def __init__(
        self, folder: Path, *, now: Callable[[], int], steady: Callable[[], int], settle_seconds: float
    ) -> None:
        """`now` and `steady` return microseconds; `settle_seconds` is how long a jump has to last to be believed."""
        self._path = folder / FILE_NAME
        self._now = now
        self._steady = steady
        self._settle = int(settle_seconds * 1_000_000)
        self._boot = _boot_id()
        self._state: ClockState | None = None

    def look(self) -> ClockState:
        """Look at the clock, note what has changed, and return what is known."""
        state = self._read() or self._state
        found = next_state(state, now=self._now(), steady=self._steady(), boot=self._boot, settle=self._settle)
        self._state = found
        if found is not state:
            with suppress(OSError):  # a full disk: this process knows it all the same
                write_private(self._path, msgspec.json.encode(found))
            if state is not None and found.jumped_at not in (None, state.jumped_at):
                log.warning("clock_jumped", by_seconds=round(found.jumped_by / 1_000_000))
        return found

    def seconds_to_wait(self, settle_seconds: float | None = None) -> float:
        """Return how long not to act on the word of the clock: 0 unless it has just jumped ahead.

        A clock that is behind makes things younger than they are: nothing is removed or fired too early by it.
        `settle_seconds` is how long a jump has to last for this, if less than to be believed.
        """
        state = self.look()
        if state.jumped_at is None or state.jumped_by < 0:
            return 0.0
        settle = self._settle if settle_seconds is None else int(settle_seconds * 1_000_000)
        return max(0, state.jumped_at + settle - self._steady()) / 1_000_000

    def _read(self) -> ClockState | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=ClockState)
        except (OSError, ValueError, RecursionError):
            return None


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:  # not Linux: a restart is told by the time since the start
        return ""
