"""Flushes the embedded broker's file to disk every second, in a small process of its own.

Invariant: writes that the broker acknowledged more than about a second ago (plus the time of a flush) are on disk.

valkey-server can do this itself (`appendfsync everysec`), but then keeps its writes in its own memory for up to 2 s
while a flush is running. Measured with a disk that takes 0.8 s to flush: four of six SIGKILLs lost between 8,000 and
32,000 acknowledged writes. With `appendfsync no` each write is passed to the kernel before it is acknowledged (none
lost in the same six), and this process limits what a power cut can lose. Throughput is the same within noise (25,000
to 33,000 writes/s).

It also makes the server rewrite a file with a gap, which a full disk leaves (see `append_only`): otherwise the next
full disk would lose acknowledged commands.

It imports only the core of the standard library to stay small, since users see it as a process of its own.
"""

from __future__ import annotations

import os
import select
import socket
import sys
import time
from collections.abc import Iterator

_EVERY_SECONDS = 1.0
_ANSWER_SECONDS = 2.0
# A rewrite may fail while the disk is still full.
_REWRITE_AGAIN_SECONDS = 15.0

_MANIFEST = "appendonly.aof.manifest"

Version = tuple[int, int]  # size in bytes, time of change in ns


def flush_changed(folder: str, flushed: dict[str, Version]) -> dict[str, Version]:
    """Flush each file of `folder` that changed since `flushed`; return the versions that are on disk now.

    Ignores files that the broker removes meanwhile. Raises OSError: when the disk fails.
    """
    now_flushed: dict[str, Version] = {}
    for name, version in _files(folder):
        if flushed.get(name) != version:
            _flush(os.path.join(folder, name))  # noqa: PTH118 - pathlib doubles the size of this process
        # The version was read before the flush: a later write makes it differ, and is flushed next time.
        now_flushed[name] = version
    if now_flushed.keys() != flushed.keys():
        _flush(folder)
    return now_flushed


def gap_bytes(folder: str, socket_path: str) -> int:
    """Return how many bytes the files in use have in addition to those that the server wrote; 0 if that is not known.

    Raises OSError: when the server does not answer.
    """
    try:
        with open(os.path.join(folder, _MANIFEST)) as manifest:  # noqa: PTH118, PTH123 - as above
            lines = [line.split() for line in manifest]
        # Read before the server is asked: meanwhile its number can only grow.
        size = sum(os.stat(os.path.join(folder, words[1])).st_size for words in lines if words[-1] in "bi")  # noqa: PTH116, PTH118
    except (FileNotFoundError, IndexError):  # a rewrite is replacing the files
        return 0
    found = dict(line.split(":", 1) for line in _ask(socket_path, "INFO persistence").splitlines() if ":" in line)
    is_busy = any(found.get(name) != "0" for name in ("loading", "aof_rewrite_in_progress", "aof_rewrite_scheduled"))
    return 0 if is_busy else max(0, size - int(found.get("aof_current_size", size)))


def main(folder: str, socket_path: str | None = None) -> None:
    """Flush the broker's file until the parent dies or SIGTERM comes; with a socket, make the broker mend gaps."""
    parent_pid = os.getppid()
    flushed: dict[str, Version] = {}
    gaps, rewritten_at = 0, -_REWRITE_AGAIN_SECONDS
    alive_path = os.environ.get("REVERIE_ALIVE_FILE")
    while os.getppid() == parent_pid:
        flushed = flush_changed(folder, flushed)
        try:
            gaps = gaps + 1 if socket_path and gap_bytes(folder, socket_path) else 0
            # Two finds in a row, since a rewrite may have ended between two looks at the folder.
            if socket_path and gaps > 1 and time.monotonic() - rewritten_at >= _REWRITE_AGAIN_SECONDS:
                rewritten_at = time.monotonic()
                _ask(socket_path, "BGREWRITEAOF")
        except (OSError, ValueError):  # the broker does not answer: it has just started, or hangs
            gaps = 0
        if alive_path:
            _touch(alive_path)
        select.select([], [], [], _EVERY_SECONDS)


def _touch(path: str) -> None:
    """Give the supervisor a sign of life, as `alive_signs` does for other processes."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
    except OSError:  # a full disk, or a folder that was removed
        return


def _ask(socket_path: str, command: str) -> str:
    """Return the answer to a command. Raises OSError: when none comes in time; ValueError: when it is cut off."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        connection.connect(socket_path)
        connection.sendall(f"{command}\r\n".encode())
        with connection.makefile("rb") as answer:
            line = answer.readline()
            return answer.read(int(line[1:])).decode() if line[:1] == b"$" else line.decode()


def _files(folder: str) -> Iterator[tuple[str, Version]]:
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:  # the broker has not created it yet
        return
    for entry in entries:
        try:
            found = entry.stat()
        except FileNotFoundError:
            continue
        yield entry.name, (found.st_size, found.st_mtime_ns)


def _flush(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main(*sys.argv[1:3])
