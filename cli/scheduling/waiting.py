"""Wait until a run of a schedule has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from reverie.errors import WaitTimeout
from reverie.scheduling.schedule_types import ScheduleRun

# Seconds between two reads of a run that is waited for.
_POLL_SECONDS: Final = 0.2


def wait_until_ended(
    read: Callable[[], ScheduleRun],
    *,
    timeout_seconds: float,
    monotonic: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> ScheduleRun:
    """Return the run once it has ended. Raises what `read` raises, and `WaitTimeout`."""
    deadline = monotonic() + timeout_seconds
    while (run := read()).status in ("pending", "running"):
        remaining = deadline - monotonic()
        if remaining <= 0:
            raise WaitTimeout(
                f"run {run.id} is {run.status} after {timeout_seconds:g} s: it continues if workers are running;"
                " see `reverie status`"
            )
        pause(min(_POLL_SECONDS, remaining))
    return run
