"""Signs by which the supervisor tells a process that works from one that hangs: a file that it touches again and again.

They do not pass through the broker, so a broker that hangs makes no process look as if it did. A process that is busy
gives them all the same, as a thread of its own does; one that is stopped, or whose interpreter is blocked, gives none.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ALIVE_FILE: Final = "REVERIE_ALIVE_FILE"
SIGN_SECONDS: Final = 2.0


def give_alive_signs(environ: Mapping[str, str]) -> None:
    """Touch the file that the supervisor has named for this process every two seconds; do nothing if it named none."""
    path = environ.get(ALIVE_FILE)
    if path:
        threading.Thread(target=_touch_for_ever, args=(Path(path),), name="alive", daemon=True).start()


def _touch_for_ever(path: Path) -> None:
    while True:
        # A full disk or a folder that was removed: no sign, and without a first one a process is not watched.
        with contextlib.suppress(OSError):
            path.touch(mode=0o600)
        time.sleep(SIGN_SECONDS)


class AliveWatch:
    """The supervisor's view of the signs of one process: when, on the monotonic clock, it saw a new one."""

    def __init__(self, path: Path, patience_seconds: float) -> None:
        self._path = path
        self._patience_seconds = patience_seconds
        self._sign: int | None = None
        self._seen = self._looked = 0.0

    def restart(self) -> None:
        """Forget the signs of an earlier process."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
        self._sign = None

    def hangs(self, now: float) -> bool:
        """Return whether there was a sign once and none for too long. `now` is in seconds of the monotonic clock.

        That clock stands still while the machine sleeps, and the time counts from when this was called last, so that a
        supervisor that was stopped itself finds nobody hanging at once.
        """
        try:
            sign = self._path.stat().st_mtime_ns
        except OSError:
            return False
        if sign != self._sign:
            self._sign, self._seen, self._looked = sign, now, now
            return False
        # Of a pause in which nobody looked, only the usual time between two looks counts.
        skipped = max(0.0, now - self._looked - 2 * SIGN_SECONDS)
        self._seen += skipped
        self._looked = now
        return now - self._seen > self._patience_seconds
