"""What a scenario's stack runs on: its folder, its environment, and the means to make the machine misbehave."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.harness.folders import short_folder

_BALLAST: Final = "ballast"
_CHUNK_BYTES: Final = 1024 * 1024
_FAKETIME: Final = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/local/lib/faketime/libfaketimeMT.so.1")

# libfaketime 0.9.10 breaks clock_nanosleep to a time of the monotonic clock, which time.sleep calls.
_SLEEP: Final = "import select, time\ntime.sleep = lambda seconds: select.select([], [], [], seconds) and None\n"


class NotHere(Exception):
    """The machine lacks what a scenario needs; the text says what to install or do."""


@dataclass(slots=True)
class Setting:
    """Where and how a stack runs. `folder` None: a temporary one."""

    folder: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    clock: SteppedClock | None = None
    disk: SmallDisk | None = None
    endpoint: object | None = None


@contextmanager
def plain() -> Iterator[Setting]:
    """Run on a temporary folder, with nothing special."""
    yield Setting()


@dataclass(frozen=True, slots=True)
class SmallDisk:
    """A file system of its own in memory, which can be filled and emptied while processes use it."""

    folder: Path

    def fill(self) -> None:
        """Write until nothing more fits."""
        with (self.folder / _BALLAST).open("ab", buffering=0) as file:
            size = _CHUNK_BYTES
            while size:
                try:
                    file.write(b"\0" * size)
                except OSError:
                    size //= 2

    def empty(self) -> None:
        """Remove what `fill` wrote."""
        (self.folder / _BALLAST).unlink(missing_ok=True)


@contextmanager
def small_disk(megabytes: int) -> Iterator[Setting]:
    """Run on a file system of this size (10^6 bytes). Raises `NotHere` without the right to mount one."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise NotHere("a full disk needs Linux and root, to mount a small file system")
    folder = short_folder("rvd-")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes * 1_000_000},mode=0700", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        folder.rmdir()
        raise NotHere(f"a full disk needs the right to mount a small file system: {mounted.stderr.strip()}")
    try:
        yield Setting(folder, disk=SmallDisk(folder))
    finally:
        # Lazily: a process that was killed may not have let go of its files yet.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class SteppedClock:
    """The clock of the machine as all processes of a stack see it, which can be moved while they run."""

    path: Path

    def move(self, seconds: float) -> None:
        """Show a time that lies so many seconds after the true one, within a second. The monotonic clock goes on."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text(f"{seconds:+.0f}\n", encoding="ascii")
        fresh.replace(self.path)


@contextmanager
def stepped_clock() -> Iterator[Setting]:
    """Run on a clock that can be moved, by libfaketime. Raises `NotHere` without it."""
    library = next((path for pattern in _FAKETIME for path in sorted(Path("/").glob(pattern[1:]))), None)
    if library is None:
        raise NotHere("a clock that is wrong needs libfaketime: apt-get install faketime")
    ctypes.CDLL(str(library))  # of this machine's kind, or an OSError that names it
    folder = short_folder("rvc-")
    clock = SteppedClock(folder / "clock")
    clock.move(0)
    (folder / "sitecustomize.py").write_text(_SLEEP, encoding="ascii")
    env = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock.path),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]),
        # Times of files come from the kernel, whose clock is right.
        "NO_FAKE_STAT": "1",
    }
    try:
        yield Setting(env=env, clock=clock)
    finally:
        shutil.rmtree(folder)
