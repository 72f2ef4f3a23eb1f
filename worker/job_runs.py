"""One run of a periodic job: its period is claimed first, and how it ended is kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from worker.runtime import Runtime

# Periods are a little shorter than the interval: two ticks of one beat, the first of them a little late, must not fall
# into the same one, or a sweep would be left out.
_PERIOD_SHARE: Final = 0.8


def run_job(
    runtime: Runtime,
    job: str,
    *,
    every_seconds: float,
    work: Callable[[], dict[str, Any]],
    by_hand: bool = False,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Run a periodic job unless its period has been claimed: by another beat, or by a delayed twin of this task.

    Returns the job's counts, or `{"skipped": 1}`. What it did and how it ended is kept in `job_runs`; a dry run did
    nothing, so the next real one is not put off by it.
    """
    if dry_run:
        return work()
    jobs = runtime.stores.jobs()
    now = runtime.now()
    period = now if by_hand else now // int(_PERIOD_SHARE * every_seconds * 1_000_000)
    if not jobs.claim(job, period=period, now=now):
        return {"skipped": 1}
    started = time.monotonic()
    try:
        counts = work()
    except BaseException as error:  # the boundary of the job: how it ended is kept, then it goes on its way
        jobs.finish(job, period=period, now=runtime.now(), error=f"{type(error).__name__}: {error}")
        raise
    counts["seconds"] = round(time.monotonic() - started, 3)
    jobs.finish(job, period=period, now=runtime.now(), counts=counts)
    return counts
