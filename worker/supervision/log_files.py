"""Rotates the log files of processes that keep running: by size, once a day, and until they are too old.

A file is renamed, and a new one takes its name: `pipeline.log`, then `pipeline.log.1`, then `pipeline.log.2`. Its
process notices this with its next line (`worker.logs.RotatedLog`), so no line is lost.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

from worker.clock_watch import ClockState, next_state, steady_micros

_DAY_SECONDS: Final = 86_400
_ROTATED: Final = re.compile(r"\.log\.([1-9][0-9]*)$")
# The time of a line, in either format of the log.
_TIME: Final = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_HEAD_BYTES: Final = 4_096
# How long a clock that jumped ahead must be steady before files are removed by their age.
_SETTLE_SECONDS: Final = 3_600


@dataclass(frozen=True, slots=True)
class LogLimits:
    """For how many days rotated files are kept, how large a file may become, and how many of each process are kept.

    By default all files of a process take 60 MB at most. They have ids and no content, so a month is kept, in which an
    incident is looked into.
    """

    days: float = 30.0
    max_bytes: int = 10_000_000
    kept: int = 5


class LogFiles:
    """The log files of one folder; only one process at a time may rotate them."""

    def __init__(
        self,
        folder: Path,
        limits: LogLimits = LogLimits(),
        *,
        now: Callable[[], float] | None = None,
        steady: Callable[[], int] | None = None,
    ) -> None:
        """`now` returns seconds since 1970, `steady` microseconds of a clock that nobody sets."""
        self._folder = folder
        self._limits = limits
        self._now: Callable[[], float] = time.time if now is None else now
        # A caller that passes `now` has its own clock, which never jumps.
        self._steady = steady or (steady_micros if now is None else lambda: int(self._now() * 1e6))
        # For files without a time in their first lines: when each was first seen, in seconds since 1970.
        self._seen: dict[Path, float] = {}
        self._clock: ClockState | None = None

    def rotate(self) -> list[Path]:
        """Rotate files that are too large or older than a day, remove too old ones, and return the rotated files.

        Raises nothing: the next call tries again to rename files that cannot be renamed now.
        """
        rotated = []
        for path in sorted(self._folder.glob("*.log")):
            with suppress(OSError):
                if self._is_due(path):
                    self._shift(path)
                    rotated.append(path)
        self._remove_old()
        return rotated

    def _is_due(self, path: Path) -> bool:
        size = path.stat().st_size
        if not size:
            self._seen.pop(path, None)
            return False
        if size > self._limits.max_bytes:
            return True
        with path.open("rb") as file:
            found = _TIME.search(file.read(_HEAD_BYTES))
        since = None if found is None else datetime.fromisoformat(found[0].decode()).timestamp()
        if since is None:
            since = self._seen.setdefault(path, self._now())
        return self._now() - since > _DAY_SECONDS

    def _shift(self, path: Path) -> None:
        """Rename a file and its rotated predecessors, and put an empty file in its place."""
        older = [path.with_name(f"{path.name}.{number}") for number in range(1, self._limits.kept + 1)]
        for source, target in reversed(list(pairwise(older))):
            with suppress(FileNotFoundError):
                source.replace(target)
        if older:
            path.replace(older[0])
        else:
            path.unlink()
        self._seen.pop(path, None)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))

    def _remove_old(self) -> None:
        """Remove the files that are too many, and those that are too old, unless the clock has just jumped."""
        steady = self._steady()
        self._clock = next_state(
            self._clock, now=int(self._now() * 1e6), steady=steady, boot="", settle=_SETTLE_SECONDS * 1_000_000
        )
        too_old = self._limits.days * _DAY_SECONDS if self._clock.jumped_by <= 0 else float("inf")
        for path in self._folder.glob("*.log.*"):
            number = _ROTATED.search(path.name)
            if number is None:
                continue
            with suppress(OSError):
                age_seconds = self._now() - path.stat().st_mtime
                if int(number[1]) > self._limits.kept or age_seconds > too_old:
                    path.unlink()
