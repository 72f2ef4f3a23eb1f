"""Puts a finished folder in the place of another in one step, so that there is a whole one at every moment."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

_AT_FDCWD: Final = -100  # fcntl.h
_RENAME_EXCHANGE: Final = 2  # linux/fs.h


def exchange(one: Path, other: Path) -> None:
    """Exchange two folders of one file system. Raises OSError.

    One step where the kernel has it (Linux); elsewhere three renames, and a power cut in between leaves the first
    folder under the name of the second with `.moving` appended.
    """
    if not _exchange_at_once(one, other):
        moving = other.with_name(f"{other.name}.moving")
        one.rename(moving)
        other.rename(one)
        moving.rename(other)
    for folder in {one.parent, other.parent}:
        sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Flush a folder: only then are the names in it on the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _exchange_at_once(one: Path, other: Path) -> bool:
    """Return whether the kernel exchanged the two; False where it cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)
