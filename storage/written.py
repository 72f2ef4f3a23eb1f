"""Tells every process of a data folder which workspaces were written lately, without a look at each file.

Every process that begins to write a workspace appends the hash of its name to one small file, and every process reads
the hashes that were appended since it last looked. So the cost of a sweep follows the workspaces that changed: looking
at the files of 10,000 workspaces takes a tenth of a second, and several sweeps would do that every few seconds. A hash
after a mark is of a write that makes nothing due, so the jobs of scheduling leave it out.

Invariant: `since` leaves out only workspaces that were not written. Looking at all files, now or within ten minutes,
finds writes that are not in the file (before the first call, after a new file was begun, or by other programs).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from reverie.clock import now_micros
from reverie.errors import ReverieError

WRITTEN_FILE: Final = "written"
_RECORD_BYTES: Final = 8
# Written together with the hash after it. A reader that gets the two in two reads takes the note for one without it.
_KEEPS_SCHEDULES: Final = b"no dates"
# A file with 131,072 records is begun anew, after which every process looks at all workspaces once.
_MAX_FILE_BYTES: Final = 1024 * 1024
# A new process reads this many bytes at the file's end: thousands of notes, more than the last minutes have.
_TAIL_BYTES: Final = 64 * 1024
# A process notes a workspace at most once in this time.
_NOTE_SECONDS: Final = 30.0
# A note is made before a write. This covers the time until the next note, the wait for the lock, and the transaction.
_WATCH_SECONDS: Final = 180.0
# How often all files are looked at, to find writes by other programs.
LOOK_SECONDS: Final = 600.0


class Written(Protocol):
    """Tells which workspaces were written."""

    def note(self, name: str, *, keeps_schedules: bool = False) -> None:
        """Note that a workspace is about to be written; `keeps_schedules` as for `Store.writing`."""
        ...

    def since(self, moment: float | None, *, of_schedules: bool = False) -> tuple[set[str] | None, float]:
        """Return the workspaces that may have been written since a moment, or None for all of them, and a new moment.

        A moment is what the previous call returned, None at first. With `of_schedules`, those whose writes
        have all kept the schedules may be left out.
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
        """`names` lists the workspaces; `stamp` returns a value that changes with every write (see `Stores.stamp`)."""
        self._path = data_dir / "run" / WRITTEN_FILE
        self._names, self._stamp, self._monotonic = names, stamp, monotonic
        self._lock = threading.Lock()
        self._noted: dict[tuple[str, bool], float] = {}
        # When a note of each workspace was last found, the latest last; and of a write of schedules.
        self._written: OrderedDict[str, float] = OrderedDict()
        self._of_schedules: OrderedDict[str, float] = OrderedDict()
        self._by_hash: dict[bytes, str] = {}
        self._stamps: dict[str, Any] = {}
        self._inode: int | None = None
        self._read_to = 0
        self._looked_at: float | None = None

    def note(self, name: str, *, keeps_schedules: bool = False) -> None:
        """Note that a workspace is about to be written. Costs nothing if the workspace was noted a moment ago."""
        now = self._monotonic()
        noted = max(self._noted.get((name, kind), -_NOTE_SECONDS) for kind in {False, keeps_schedules})
        if now - noted < _NOTE_SECONDS:
            return
        # A full disk, or no data folder yet: the look at all files finds the write.
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                if os.fstat(file).st_size >= _MAX_FILE_BYTES:
                    self._path.unlink(missing_ok=True)
                    self._noted.clear()
                os.write(file, _KEEPS_SCHEDULES * keeps_schedules + hash_of(name))
                self._noted[name, keeps_schedules] = now
            finally:
                os.close(file)

    def since(self, moment: float | None, *, of_schedules: bool = False) -> tuple[set[str] | None, float]:
        """Return the workspaces that may have been written since a moment, or None for all of them, and a new moment.

        A moment is what the previous call returned, None at first. With `of_schedules`, those whose writes
        have all kept the schedules are left out until all files are looked at.
        """
        with self._lock:
            now = self._monotonic()
            self._read(now)
            if moment is None:
                return None, now
            found = set()
            for name, at in reversed((self._of_schedules if of_schedules else self._written).items()):
                if at < moment - _WATCH_SECONDS:
                    break
                found.add(name)
            return found and found.intersection(self._names()), now

    def _read(self, now: float) -> None:
        """Read the appended notes; look at all files if the notes may be incomplete."""
        try:
            with self._path.open("rb") as file:
                state = os.fstat(file.fileno())
                # A file that was not there when the files were last looked at has all notes since.
                is_same = self._inode in (None, state.st_ino) and self._looked_at is not None
                known = is_same and state.st_size >= self._read_to
                self._inode = state.st_ino
                if known and state.st_size > self._read_to:
                    file.seek(self._read_to)
                    content = file.read()
                    self._note_all(content[: len(content) // _RECORD_BYTES * _RECORD_BYTES], now)
                    self._read_to += len(content) // _RECORD_BYTES * _RECORD_BYTES
                elif not known:
                    # The writes of the newest notes may not have ended.
                    self._read_to = state.st_size // _RECORD_BYTES * _RECORD_BYTES
                    file.seek(max(0, self._read_to - _TAIL_BYTES))
                    self._note_all(file.read(min(self._read_to, _TAIL_BYTES)), now)
        except OSError:
            known, self._inode, self._read_to = self._inode is None and self._looked_at is not None, None, 0
        if not known or self._looked_at is None or now - self._looked_at >= LOOK_SECONDS:
            self._look(now)

    def _note_all(self, content: bytes, now: float) -> None:
        records = [content[at : at + _RECORD_BYTES] for at in range(0, len(content), _RECORD_BYTES)]
        notes = {(record, before == _KEEPS_SCHEDULES) for before, record in pairwise([b"", *records])}
        if not {*records} - {_KEEPS_SCHEDULES} <= self._by_hash.keys():
            self._by_hash = {hash_of(name): name for name in self._names()}
        for record, keeps_schedules in notes:
            if name := self._by_hash.get(record):  # the other workspaces were deleted since
                self._add(name, now, keeps_schedules=keeps_schedules)

    def _look(self, now: float) -> None:
        is_first, self._looked_at = self._looked_at is None, now
        lately_ns = time.time_ns() - int(LOOK_SECONDS * 1_000_000_000)
        stamps = {}
        for name in self._names():
            try:
                stamps[name] = self._stamp(name)
            except ReverieError:  # callers who use this workspace get the error
                stamps[name] = None
            stamp = stamps[name]
            # The first call returns all names, so later calls have to return only stores that were just written.
            if stamp is None or (stamp.written_ns > lately_ns if is_first else stamp != self._stamps.get(name)):
                self._add(name, now)
        for found in (self._written, self._of_schedules):
            for name in found.keys() - stamps.keys():
                del found[name]
        self._stamps = stamps

    def _add(self, name: str, now: float, *, keeps_schedules: bool = False) -> None:
        for found in (self._written,) if keeps_schedules else (self._written, self._of_schedules):
            found[name] = now
            found.move_to_end(name)


def hash_of(name: str) -> bytes:
    """Return the hash that stands for a workspace's name in files about many workspaces."""
    return blake2b(name.encode(), digest_size=_RECORD_BYTES).digest()


# Values are returned for this long without a look at the file: changes by other processes are seen within a second.
FRESH_SECONDS: Final = 0.5
_KEPT: Final = 4_096

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


class KeptReads(Generic[_K, _V]):
    """Values by key, each with the state of the file before it was read. Safe to use from several threads.

    `stamp` returns the times and sizes of the file: see `Stores.stamp`.
    """

    def __init__(self, stamp: Callable[[], Any], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._stamp = stamp
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._generation = 0
        # By key: the value, the stamp before it was read (None if it proves nothing), and the time of the last check.
        self._kept: OrderedDict[_K, tuple[_V, Any, float]] = OrderedDict()

    def get(self, key: _K, read: Callable[[], _V]) -> _V:
        """Return a value that was right within the last `FRESH_SECONDS`; `read` reads a value that is not known."""
        found = self._kept.get(key)
        now = self._monotonic()
        if found is not None and now - found[2] < FRESH_SECONDS:
            return found[0]
        stamp, generation = self._stamp(), self._generation
        if found is None or stamp is None or stamp != found[1]:
            # A file that was written a moment ago may be written again without a new time.
            settled = stamp is not None and stamp.is_settled(now_micros())
            found = (read(), stamp if settled else None, now)
        with self._lock:
            if generation == self._generation:
                self._kept[key] = (found[0], found[1], now)
                self._kept.move_to_end(key)
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        return found[0]

    def forget(self) -> None:
        """Forget all values, because this process has changed some."""
        with self._lock:
            self._generation += 1
            self._kept.clear()
