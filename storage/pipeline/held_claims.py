"""Tokens that a living process notes: claims that it has given up but cannot release, and the leases of its jobs.

A lease that ends is counted as the death of its worker. A worker whose last write failed, because the disk is full for
example, is not dead: it notes the tokens of its claims here. A job notes its lease, so that nobody waits for the end of
the lease if the process dies. Every process can ask whether a living process has noted a token. A note is a lock on one
byte of a file, at the position of the token: it needs no space on the disk, and the kernel removes it when the process
ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
from pathlib import Path
from typing import Final

# `struct flock` of Linux and macOS differ, and locks that belong to an open file exist on Linux only. Elsewhere only
# the own process knows its notes.
_SET_LOCK: Final[int | None] = getattr(fcntl, "F_OFD_SETLK", None)
_GET_LOCK: Final[int | None] = getattr(fcntl, "F_OFD_GETLK", None)
_FLOCK: Final = struct.Struct("@hhqqi4x")


class HeldClaims:
    """The noted claims on one database. Thread-safe. Open it after a fork, never before."""

    def __init__(self, path: Path) -> None:
        """`path` is the file to lock, which is created with the first note."""
        self._path = path
        self._tokens: set[int] = set()
        self._descriptor: int | None = None
        self._guard = threading.Lock()

    def note(self, token: int) -> None:
        """Note that this process has given up the claim of a token, or will settle it by itself."""
        with self._guard:
            self._tokens.add(token)
            # Without a lock file, the lease ends like that of a dead worker; three such ends in a row are unlikely.
            with contextlib.suppress(OSError):
                if self._descriptor is None:
                    self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                self._lock(self._descriptor, fcntl.F_WRLCK, token)

    def forget(self, token: int) -> None:
        """Remove a note of this process, once its claim was settled in the store."""
        with self._guard:
            if token not in self._tokens:
                return
            self._tokens.discard(token)
            if self._descriptor is None:
                return
            with contextlib.suppress(OSError):
                self._lock(self._descriptor, fcntl.F_UNLCK, token)
            if not self._tokens:
                os.close(self._descriptor)
                self._descriptor = None

    def own(self) -> frozenset[int]:
        """Return the tokens that this process has noted."""
        with self._guard:
            return frozenset(self._tokens)

    def is_noted(self, token: int) -> bool:
        """Return whether a living process has noted a token."""
        with self._guard:
            if token in self._tokens:
                return True
        if _GET_LOCK is None:
            return False
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # no file: nobody has noted anything
            return False
        try:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, token, 1, 0)
            return bool(_FLOCK.unpack(fcntl.fcntl(descriptor, _GET_LOCK, asked))[0] != fcntl.F_UNLCK)
        except OSError:
            return False
        finally:
            os.close(descriptor)

    def has_died(self, token: int) -> bool:
        """Return whether no living process has noted a token; False where processes cannot see each other's notes."""
        return _GET_LOCK is not None and not self.is_noted(token)

    def close(self) -> None:
        """Remove all notes of this process."""
        for token in self.own():
            self.forget(token)

    @staticmethod
    def _lock(descriptor: int, kind: int, token: int) -> None:
        if _SET_LOCK is not None:
            fcntl.fcntl(descriptor, _SET_LOCK, _FLOCK.pack(kind, os.SEEK_SET, token, 1, 0))
