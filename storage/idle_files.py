"""Keeps in files which workspaces have nothing to do for a job, so that a new process need not open all of them.

A file is a cache. It is ignored if it was written with other settings, by another version or by a clock that was ahead,
or if it cannot be read.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from storage.private_files import write_private
from storage.stores import FileStamp
from storage.written import hash_of

# The shortest time between two writes of a file; writing 10,000 workspaces takes 15 ms.
KEEP_SECONDS: Final = 300.0


class _Writes(NamedTuple):
    """When this process wrote a job's file first and last, in seconds."""

    first: float
    last: float


class IdleMark(NamedTuple):
    """A state of a workspace's file in which a job has nothing to do, and until when (microseconds) that holds.

    `content` stands for the rows that matter to jobs (see `ContentMark`); empty if only the file's state counts.
    """

    stamp: FileStamp
    until: float
    content: str = ""


class _Kept(msgspec.Struct, array_like=True):
    fingerprint: str
    at: int
    # By the hash of the workspace's name: the stamp's four numbers, the mark's expiry or None, and the mark's content.
    marks: dict[str, tuple[int, int, int, int, float | None, str]]


class IdleFiles:
    """The files of all jobs, in one folder. `fingerprint` stands for the version and the settings."""

    def __init__(self, folder: Path, fingerprint: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._fingerprint = fingerprint
        self._monotonic = monotonic
        self._writes: dict[str, _Writes] = {}

    def read(self, job: str, names: Sequence[str], *, now: int) -> dict[str, IdleMark]:
        """Return the marks of a job by the names of these workspaces; none when they cannot be trusted."""
        try:
            kept = msgspec.msgpack.decode(self._path(job).read_bytes(), type=_Kept)
        except (OSError, ValueError, RecursionError):
            return {}
        if kept.fingerprint != self._fingerprint or kept.at > now:
            return {}
        found = {}
        for name in names:
            mark = kept.marks.get(hash_of(name).hex())
            if mark is not None:
                until = float("inf") if mark[4] is None else mark[4]
                found[name] = IdleMark(FileStamp(*mark[:4]), until, mark[5])
        return found

    def keep(self, job: str, marks: Mapping[str, IdleMark], *, now: int) -> bool:
        """Write the marks of a job; return False if the last write was so recent that this one has to wait.

        The first write is at once: the next run of a daily job comes in a day. The pauses between later writes double
        up to five minutes. A full disk is no error.
        """
        moment = self._monotonic()
        writes = self._writes.get(job)
        if writes is not None and moment - writes.last < min(KEEP_SECONDS, writes.last - writes.first + 1):
            return False
        self._writes[job] = _Writes(moment if writes is None else writes.first, moment)
        kept = {
            hash_of(name).hex(): (*mark.stamp, None if mark.until == float("inf") else mark.until, mark.content)
            for name, mark in marks.items()
        }
        path = self._path(job)
        with contextlib.suppress(OSError):
            for folder in (path.parent.parent, path.parent):  # not the data folder itself: it may have been removed
                folder.mkdir(mode=0o700, exist_ok=True)
            write_private(path, msgspec.msgpack.encode(_Kept(self._fingerprint, now, kept)))
        return True

    def _path(self, job: str) -> Path:
        return self._folder / f"{job}.idle"
