"""Whether the machine's clock has jumped, told by comparing it with one that nobody sets."""

from __future__ import annotations

import time
from typing import Final

import msgspec

# Clocks are kept right in smaller steps.
TOLERANCE_MICROS: Final = 60_000_000
# How old the last time that was seen may become: it tells a clock that is behind after a restart of the machine.
_NOTED_EVERY_MICROS: Final = 600_000_000
# A smaller drift is not worth noting.
_DRIFT_MICROS: Final = 1_000_000


class ClockState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the clock since the machine started. All numbers are microseconds.

    `offset` is the clock's distance from the time since the start, `trusted` the one that is believed. `jumped_at` is
    the time since the start at which they parted, None while they agree. `seen_at` is what the clock showed last.
    """

    boot: str
    offset: int
    trusted: int
    jumped_at: int | None
    seen_at: int

    @property
    def jumped_by(self) -> int:
        """Return how far the clock is ahead of where it is believed to be; negative if it is behind."""
        return 0 if self.jumped_at is None else self.offset - self.trusted


def steady_micros() -> int:
    """Return the microseconds since the machine started, in which it slept or not; nobody can set this clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000


def next_state(state: ClockState | None, *, now: int, steady: int, boot: str, settle: int) -> ClockState:
    """Return what is known after another look at both clocks; `settle` is how long a jump has to last."""
    offset = now - steady
    if state is None:
        return ClockState(boot=boot, offset=offset, trusted=offset, jumped_at=None, seen_at=now)
    if state.boot != boot:  # nothing to compare with, except that time does not run backwards
        behind = now < state.seen_at - TOLERANCE_MICROS
        trusted = offset + (state.seen_at - now if behind else 0)
        return ClockState(boot=boot, offset=offset, trusted=trusted, jumped_at=steady if behind else None, seen_at=now)
    if abs(offset - state.trusted) <= TOLERANCE_MICROS:
        is_known = state.jumped_at is None and abs(offset - state.offset) < _DRIFT_MICROS
        if is_known and 0 <= now - state.seen_at < _NOTED_EVERY_MICROS:
            return state
        return ClockState(boot=boot, offset=offset, trusted=offset, jumped_at=None, seen_at=now)
    if state.jumped_at is None or abs(offset - state.offset) > TOLERANCE_MICROS:
        return ClockState(boot=boot, offset=offset, trusted=state.trusted, jumped_at=steady, seen_at=now)
    if steady - state.jumped_at >= settle:
        return ClockState(boot=boot, offset=offset, trusted=offset, jumped_at=None, seen_at=now)
    return state
