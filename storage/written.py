"""Which workspaces were written lately, known to every process of a data folder without looking at each file.

Every process that begins to write a workspace appends the hash of its name to one small file, and every process reads
what was appended since it last looked. So the cost of a sweep follows the workspaces that changed: looking at the files
of 10,000 takes a tenth of a second, which several sweeps would spend every few seconds.

Invariant: `since` leaves out only workspaces that were not written. What the file cannot tell (the first call, a file
that was begun anew, writes by other programs) is found by looking at all files, now or within ten minutes.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Protocol

WRITTEN_FILE: Final = "written"
_RECORD_BYTES: Final = 8
# A file with 131,072 notes is begun anew, after which every process looks at all workspaces once.
_MAX_FILE_BYTES: Final = 1024 * 1024
# Read by a process that begins: thousands of notes, of more than the last minutes.
_TAIL_BYTES: Final = 64 * 1024
# A process notes a workspace once in this time, however often it writes it.
_NOTE_SECONDS: Final = 30.0
# A note is made before a write. This covers the time until the next one, the wait for the lock, and the transaction.
_WATCH_SECONDS: Final = 180.0
# How often all files are looked at, for what was written by other means.
LOOK_SECONDS: Final = 600.0


class Written(Protocol):
    """Tells which workspaces were written."""

    def note(self, name: str) -> None:
        """Note that a workspace is about to be written."""
        ...

    def since(self, moment: float | None) -> tuple[set[str] | None, float]:
        """Return the workspaces that may have been written since a moment, or None for all of them, and a new moment.

        A moment is what the previous call returned, None at first.
        """
        ...


class WrittenStores:
    """Notes and tells which workspaces were written. Thread-safe; one for each process."""

    def __init__(
        self,
        data_dir: Path,
        names: Callable[[], Sequence[str]],
        stamp: Callable[[str], Any],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`names` lists the workspaces, `stamp` returns what changes with every write of one (see `Stores.stamp`)."""
        self._path = data_dir / "run" / WRITTEN_FILE
        self._names, self._stamp, self._monotonic = names, stamp, monotonic
        self._lock = threading.Lock()
        self._noted: dict[str, float] = {}
        # When each workspace was last found to have been noted, the latest last.
        self._written: OrderedDict[str, float] = OrderedDict()
        self._by_hash: dict[bytes, str] = {}
        self._stamps: dict[str, Any] = {}
        self._inode: int | None = None
        self._read_to = 0
        self._looked_at: float | None = None

    def note(self, name: str) -> None:
        """Note that a workspace is about to be written. Costs nothing when that was noted a moment ago."""
        now = self._monotonic()
        if now - self._noted.get(name, -_NOTE_SECONDS) < _NOTE_SECONDS:
            return
        # A full disk, or no data folder yet: looking at all files finds what was written.
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                if os.fstat(file).st_size >= _MAX_FILE_BYTES:
                    self._path.unlink(missing_ok=True)
                    self._noted.clear()
                os.write(file, hash_of(name))
                self._noted[name] = now
            finally:
                os.close(file)

    def since(self, moment: float | None) -> tuple[set[str] | None, float]:
        """Return the workspaces that may have been written since a moment, or None for all of them, and a new moment.

        A moment is what the previous call returned, None at first.
        """
        with self._lock:
            now = self._monotonic()
            self._read(now)
            if moment is None:
                return None, now
            found = set()
            for name, at in reversed(self._written.items()):
                if at < moment - _WATCH_SECONDS:
                    break
                found.add(name)
            return found, now

    def _read(self, now: float) -> None:
        """Read what was appended; look at all files when that does not tell everything."""
        try:
            with self._path.open("rb") as file:
                state = os.fstat(file.fileno())
                known = self._inode == state.st_ino and state.st_size >= self._read_to
                self._inode = state.st_ino
                if known and state.st_size > self._read_to:
                    file.seek(self._read_to)
                    content = file.read()
                    self._note_all(content[: len(content) // _RECORD_BYTES * _RECORD_BYTES], now)
                    self._read_to += len(content) // _RECORD_BYTES * _RECORD_BYTES
                elif not known:
                    # The newest notes may be of writes that go on.
                    self._read_to = state.st_size // _RECORD_BYTES * _RECORD_BYTES
                    file.seek(max(0, self._read_to - _TAIL_BYTES))
                    self._note_all(file.read(min(self._read_to, _TAIL_BYTES)), now)
        except OSError:
            known, self._inode, self._read_to = self._inode is None and self._looked_at is not None, None, 0
        if not known or self._looked_at is None or now - self._looked_at >= LOOK_SECONDS:
            self._look(now)

    def _note_all(self, content: bytes, now: float) -> None:
        hashes = {content[at : at + _RECORD_BYTES] for at in range(0, len(content), _RECORD_BYTES)}
        if not hashes <= self._by_hash.keys():
            self._by_hash = {hash_of(name): name for name in self._names()}
        for name in filter(None, map(self._by_hash.get, hashes)):  # others were deleted since
            self._add(name, now)

    def _look(self, now: float) -> None:
        is_first, self._looked_at = self._looked_at is None, now
        lately_ns = time.time_ns() - int(LOOK_SECONDS * 1_000_000_000)
        stamps = {}
        for name in self._names():
            try:
                stamps[name] = self._stamp(name)
            except Exception:  # noqa: BLE001 - whoever uses this workspace gets the error
                stamps[name] = None
            stamp = stamps[name]
            # Whoever asks for the first time is told all names: only what was just written need be told again.
            if stamp is None or (stamp.written_ns > lately_ns if is_first else stamp != self._stamps.get(name)):
                self._add(name, now)
        for name in self._written.keys() - stamps.keys():
            del self._written[name]
        self._stamps = stamps

    def _add(self, name: str, now: float) -> None:
        self._written[name] = now
        self._written.move_to_end(name)


def hash_of(name: str) -> bytes:
    """Return what stands for the name of a workspace in files about many of them."""
    return blake2b(name.encode(), digest_size=_RECORD_BYTES).digest()
