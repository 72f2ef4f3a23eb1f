"""Notices jumps of the machine's clock, so that nothing is removed or fired because of a wrong time.

The clock is compared with one that nobody sets: the time since the machine started. The state is kept in a file of the
data folder, so that all processes know it. A clock that has jumped is believed once it has been steady for a while, or
is back where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from reverie.clock import CLOCK_TOLERANCE_MICROS
from storage.private_files import read_json, write_private

# How often the last seen time is noted: after a restart of the machine, it shows whether the clock is behind.
_NOTED_EVERY_MICROS: Final = 600_000_000
# A smaller drift is not worth noting.
_DRIFT_MICROS: Final = 1_000_000


class ClockState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the clock since the machine started. All numbers are microseconds.

    `offset` is the clock minus the time since the start, `trusted` the offset that counts as right. `jumped_at` is the
    time since the start at which the two began to differ, None while they agree. `seen_at` is the last time seen.
    """

    boot: str
    offset: int
    trusted: int
    jumped_at: int | None
    seen_at: int

    @property
    def jumped_by(self) -> int:
        """Return how far the clock is ahead of the trusted time; negative if it is behind."""
        return 0 if self.jumped_at is None else self.offset - self.trusted


def steady_micros() -> int:
    """Return the microseconds since the machine started, including sleep; nobody can set this clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000


def next_state(state: ClockState | None, *, now: int, steady: int, boot: str, settle: int) -> ClockState:
    """Return the state after another look at both clocks; `settle` is how long a jump has to last."""
    offset = now - steady
    if state is None:
        return ClockState(boot=boot, offset=offset, trusted=offset, jumped_at=None, seen_at=now)
    if state.boot != boot:  # after a restart, only a clock that runs backwards can be noticed
        behind = now < state.seen_at - CLOCK_TOLERANCE_MICROS
        trusted = offset + (state.seen_at - now if behind else 0)
        return ClockState(boot=boot, offset=offset, trusted=trusted, jumped_at=steady if behind else None, seen_at=now)
    if abs(offset - state.trusted) <= CLOCK_TOLERANCE_MICROS:
        is_known = state.jumped_at is None and abs(offset - state.offset) < _DRIFT_MICROS
        if is_known and 0 <= now - state.seen_at < _NOTED_EVERY_MICROS:
            return state
        return ClockState(boot=boot, offset=offset, trusted=offset, jumped_at=None, seen_at=now)
    if state.jumped_at is None or abs(offset - state.offset) > CLOCK_TOLERANCE_MICROS:
        return ClockState(boot=boot, offset=offset, trusted=state.trusted, jumped_at=steady, seen_at=now)
    if steady - state.jumped_at >= settle:
        return ClockState(boot=boot, offset=offset, trusted=offset, jumped_at=None, seen_at=now)
    return state


# How long a jump of the clock has to last to be believed: an hour is enough for a person or NTP to set it right.
SETTLE_SECONDS: Final = 3_600.0
_SETTLE_MICROS: Final = 3_600_000_000
FILE_NAME: Final = "clock.json"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

log = structlog.get_logger(__name__)


class ClockWatch:
    """The clock of one data folder. Two processes that look at the same time find the same state."""

    def __init__(self, folder: Path, *, now: Callable[[], int], steady: Callable[[], int]) -> None:
        """`now` and `steady` return microseconds."""
        self._path = folder / FILE_NAME
        self._now = now
        self._steady = steady
        self._boot = _boot_id()
        self._state: ClockState | None = None

    def look(self) -> ClockState:
        """Look at the clock, note any change, and return the state."""
        state = read_json(self._path, ClockState) or self._state
        found = next_state(state, now=self._now(), steady=self._steady(), boot=self._boot, settle=_SETTLE_MICROS)
        self._state = found
        if found is not state:
            with suppress(OSError):  # a full disk: this process has noted it anyway
                write_private(self._path, msgspec.json.encode(found))
            if state is not None and found.jumped_at not in (None, state.jumped_at):
                log.warning("clock_jumped", by_seconds=round(found.jumped_by / 1_000_000))
        return found

    def seconds_to_wait(self, settle_seconds: float = SETTLE_SECONDS) -> float:
        """Return for how many seconds not to act on the clock: 0 unless it has just jumped ahead.

        With a clock that is behind, things look younger, so nothing is removed or fired too early. `settle_seconds` is
        how long after a jump to wait, if that is shorter than until the jump is believed.
        """
        state = self.look()
        if state.jumped_at is None or state.jumped_by < 0:
            return 0.0
        return max(0, state.jumped_at + int(settle_seconds * 1_000_000) - self._steady()) / 1_000_000


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:  # not Linux: the time since the start shows a restart
        return ""
