"""Holds the write lock of a store at normal priority, and notes transactions that hold it for long.

Workers run at low priority: on a busy machine they get a thirtieth of a processor. A worker that holds the lock of a
store would then keep all other writers waiting, so it runs at normal priority for as long as it holds the lock. The
number of transactions that held a lock for long is a metric with an alert.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

# Users notice half a second: a call that writes a message waits as long as another transaction holds the lock.
LONG_SECONDS: Final = 0.5
SESSION_NICENESS: Final = Path("/proc/self/autogroup")
_CAP_SYS_ADMIN: Final = 21
_CAP_SYS_NICE: Final = 23
# The limit of a niceness of 0 (getrlimit(2)): the soft limit is 20 minus the lowest niceness that may be taken.
_LIMIT_OF_ZERO: Final = 20


@contextlib.contextmanager
def holding_lock(note_long: Callable[[float], None]) -> Iterator[Callable[[], None]]:
    """Take, hold and release a lock within this context; call the yielded function once the lock is taken.

    If the lock was held for long, `note_long` gets the seconds after the release.
    """
    taken_at: list[float] = []
    try:
        with _own_priority():
            yield lambda: taken_at.append(time.monotonic())
    finally:
        seconds = time.monotonic() - taken_at[0] if taken_at else 0.0
        if seconds > LONG_SECONDS:
            note_long(seconds)


@contextlib.contextmanager
def _own_priority() -> Iterator[None]:
    niceness = os.getpriority(os.PRIO_PROCESS, 0)  # the priority of this thread alone
    if niceness <= 0:
        yield
        return
    session = _session_niceness()
    _set(0, 0 if session else None)
    try:
        yield
    finally:
        _set(niceness, session)


def can_take_priority_back() -> bool:
    """Return whether this process may raise its priority again after lowering it (setpriority(2))."""
    if os.name != "posix":
        return False
    import resource

    limit = getattr(resource, "RLIMIT_NICE", None)
    if limit is not None:
        soft, _ = resource.getrlimit(limit)
        if soft == resource.RLIM_INFINITY or soft >= _LIMIT_OF_ZERO:
            return True
    return os.geteuid() == 0 if limit is None else _has_capability(_CAP_SYS_NICE)


def can_set_session_niceness() -> bool:
    """Return whether a session's niceness may be set as often as locks are taken (sched(7), autogroups)."""
    return _has_capability(_CAP_SYS_ADMIN)


def _has_capability(number: int) -> bool:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    effective = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> number & 1)


def _session_niceness() -> int | None:
    """Return the session's niceness if Linux schedules by sessions and the session has a lower priority, else None."""
    try:
        niceness = int(SESSION_NICENESS.read_text(encoding="ascii").split()[-1])
    except (OSError, ValueError, IndexError):
        return None
    return niceness if niceness > 0 else None


def _set(niceness: int, session: int | None) -> None:
    with contextlib.suppress(OSError):  # no longer permitted: the priority stays unchanged
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
        if session is not None:
            SESSION_NICENESS.write_text(f"{session}\n", encoding="ascii")
