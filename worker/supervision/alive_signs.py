"""Signs of life, by which one process sees whether another works or hangs, and how long a sign has been missing.

A supervised process touches a file for its supervisor, and a child of a worker's pool counts in memory that it shares
with its worker. Neither passes through the broker, so a hanging broker does not make processes look as if they hung. A
process that is stopped, or whose interpreter is blocked, gives no signs.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import struct
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import psutil
import structlog

ALIVE_FILE: Final = "REVERIE_ALIVE_FILE"
SIGN_SECONDS: Final = 2.0
# A process whose event loop has not turned for this long gives no sign. Beat sleeps for up to 5 s between two turns.
LOOP_SECONDS: Final = 10.0
# A child that gives no sign and uses no processor time for this long was stopped. A busy child gives signs from a
# thread, and a child that waits for a processor is not asleep.
_CHILD_SILENT_SECONDS: Final = 30.0
# For each child, its process id and its count.
_SLOT: Final = struct.Struct("qq")

log = structlog.get_logger(__name__)


def give_alive_signs(environ: Mapping[str, str], works: Callable[[], bool] = lambda: True) -> None:
    """Every two seconds, if `works` returns true, touch the file that the supervisor named for this process, if any.

    `works` is called in a thread of its own, in every process.
    """
    path = environ.get(ALIVE_FILE)
    arguments = (None if path is None else Path(path), works)
    threading.Thread(target=_give_for_ever, args=arguments, name="alive", daemon=True).start()


def _give_for_ever(path: Path | None, works: Callable[[], bool]) -> None:
    while True:
        if works() and path is not None:
            # A full disk or a removed folder: no sign is given. Without a first sign, a process is not watched.
            with contextlib.suppress(OSError):
                path.touch(mode=0o600)
        time.sleep(SIGN_SECONDS)


class Silence:
    """The time for which a sign has not changed, for an observer that looks every two seconds."""

    def __init__(self) -> None:
        self._sign: object = None
        self._seen = self._looked = 0.0

    def seconds(self, sign: object, now: float) -> float:
        """Return for how many seconds the sign has been the same. `now` is in seconds of the monotonic clock.

        The monotonic clock stands still while the machine sleeps. If this process itself was stopped between two calls,
        only the usual interval between calls counts, so a supervisor that was stopped does not kill its processes.
        """
        if sign != self._sign:
            self._sign, self._seen, self._looked = sign, now, now
        self._seen += max(0.0, now - self._looked - 2 * SIGN_SECONDS)
        self._looked = now
        return now - self._seen


class AliveWatch:
    """The supervisor's view of the signs of one process."""

    def __init__(self, path: Path, patience_seconds: float) -> None:
        self._path = path
        self._patience_seconds = patience_seconds
        self._silence = Silence()

    def restart(self) -> None:
        """Forget the signs of an earlier process."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._silence = Silence()

    def hangs(self, now: float) -> bool:
        """Return whether the process has given a sign once, but none for too long. `now` is as in `Silence.seconds`."""
        try:
            sign = self._path.stat().st_mtime_ns
        except OSError:
            return False
        return self._silence.seconds(sign, now) > self._patience_seconds


class PoolSigns:
    """Signs of life of a pool's children, in memory shared with their worker. Create this before the children start."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        # By process: its count at the last look, and how long it has been silent.
        self._seen: dict[int, tuple[int, Silence]] = {}

    def give(self, index: int) -> None:
        """Count for ever, in a thread of this child; `index` is its place in the pool."""
        if (index + 1) * _SLOT.size <= len(self._memory):
            arguments = (index * _SLOT.size, os.getpid())
            threading.Thread(target=self._count_for_ever, args=arguments, name="alive", daemon=True).start()

    def _count_for_ever(self, offset: int, pid: int) -> None:
        count = 0
        while True:
            count += 1
            _SLOT.pack_into(self._memory, offset, pid, count)
            time.sleep(SIGN_SECONDS)

    def kill_stopped(self, now: float) -> None:
        """Kill the children that were stopped: the pool replaces them, and their tasks are delivered again.

        Call it every two seconds. A child that computes without giving a sign, in code that holds the interpreter's
        lock, is left to the time limit of its task.
        """
        seen = {}
        for pid, count in _SLOT.iter_unpack(self._memory[:]):
            if not pid:
                continue
            before, silence = self._seen.get(pid, (None, Silence()))
            with contextlib.suppress(psutil.Error):  # it has ended
                # The system is asked only about a child that does not count: that takes ten reads of files.
                sign = count if count != before else _activity(pid, now)
                silent_seconds = silence.seconds(sign, now)
                if silent_seconds > _CHILD_SILENT_SECONDS:
                    log.error("pool_child_stopped", child=pid, silent_seconds=round(silent_seconds))
                    os.kill(pid, signal.SIGKILL)
                seen[pid] = count, silence
        self._seen = seen


def _activity(pid: int, now: float) -> tuple[int, float]:
    """Return a value that changes while a child uses a processor, or waits for one. Raises `psutil.Error`."""
    child = psutil.Process(pid)
    if child.ppid() != os.getpid():
        raise psutil.NoSuchProcess(pid)
    # Whole seconds: threads that wait for the interpreter use a little processor time.
    used_seconds = int(sum(child.cpu_times()[:2]))
    return used_seconds, now if child.status() == psutil.STATUS_RUNNING else 0.0
