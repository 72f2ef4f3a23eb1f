"""Finds the supervisor of a data folder by the lock that it holds. Imports little, since every command calls it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def supervisor_pid(data_dir: Path) -> int | None:
    """Return the pid of the supervisor that runs on `data_dir` now, or None; 0 if it has not written its pid yet."""
    try:
        descriptor = os.open(lock_path(data_dir), os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        # A shared lock, so that two callers do not mistake each other for a supervisor.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return written_pid(descriptor)
    else:
        return None
    finally:
        os.close(descriptor)


def lock_path(data_dir: Path) -> Path:
    """Return the path of the file that a supervisor locks."""
    return data_dir / "run" / "up.lock"


def written_pid(descriptor: int) -> int:
    """Return the pid in an open lock file, 0 if there is none."""
    text = os.pread(descriptor, 32, 0)
    return int(text) if text.isdigit() else 0
