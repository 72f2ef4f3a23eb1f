"""Overwrites the unused bytes in the pages of a database file: `python -P storage/unused_bytes.py FILE`.

When SQLite splits a full page, it copies rows to another page, and leaves their old bytes in the middle of the first
one. `secure_delete` overwrites a row when it is deleted, but not these copies, so a deleted text can stay in the file:
of 300 deleted rows that had grown before, eleven did. Here zeros are written between the cell pointers and the cells of
each b-tree page, which SQLite never reads. The layout of pages is in https://www.sqlite.org/fileformat2.html, sections
1.6 and 1.8.

Nothing else writes the file meanwhile: this process holds SQLite's write lock, and works only while the write-ahead log
is empty, so that no page has a newer version there. Each commit makes other connections drop the pages that they have
cached with the old bytes. A kill at any moment leaves a sound file. It is a process of its own because a process that
closes a file loses all of its locks on that file, those of SQLite included.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import pysqlite3

# 8 MiB, some 10 ms: other writers wait for as long.
_PAGES_AT_ONCE: Final = 2_048
# How often, and after which pause, a moment is looked for at which the log is empty and nobody writes.
_TRIES: Final = 400
_PAUSE_SECONDS: Final = 0.025
# How long a checkpoint waits for readers, during which nobody can write, and how long a transaction waits for writers.
_CHECKPOINT_WAIT_MILLISECONDS: Final = 200
_LOCK_WAIT_MILLISECONDS: Final = 30_000
# Bytes of a page header, by the type of the page: inner and leaf pages of indexes and tables.
_HEADER_BYTES: Final = {2: 12, 5: 12, 10: 8, 13: 8}
# Types of pages in the pointer map: the root of a b-tree, and its other pages.
_ROOT, _OF_TREE = 1, 5
# SQLite never uses the page with this byte, which it locks.
_PENDING_BYTE: Final = 0x40000000


def overwrite_unused_bytes(path: Path) -> int:
    """Overwrite the unused bytes in the pages of a database file; return how many pages had any that were not zero.

    A file without a pointer map (`auto_vacuum`), which Reverie makes none of, stays as it is. Raises pysqlite3's
    `OperationalError` if the log stays in use.
    """
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC)  # not closed before the connection, which would lose its locks
    with closing(pysqlite3.connect(path, isolation_level=None)) as connection:
        if not connection.execute("PRAGMA auto_vacuum").fetchone()[0]:
            return 0
        page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
        changed, first, count = 0, 2, sys.maxsize
        while first < count:
            with _nobody_else_writing(connection, path):
                count = os.fstat(file).st_size // page_bytes + 1
                found = _overwrite(file, page_bytes, range(first, min(first + _PAGES_AT_ONCE, count)))
                if found:
                    os.fsync(file)
                    version = connection.execute("PRAGMA user_version").fetchone()[0]
                    connection.execute(f"PRAGMA user_version = {version}")
            changed += found
            first += _PAGES_AT_ONCE
    os.close(file)
    return changed


@contextmanager
def _nobody_else_writing(connection: Any, path: Path) -> Iterator[None]:
    """Hold the write lock of a database whose log is empty, and commit at the end."""
    log = Path(f"{os.path.realpath(path)}-wal")
    for _ in range(_TRIES):
        connection.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_WAIT_MILLISECONDS}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        connection.execute(f"PRAGMA busy_timeout = {_LOCK_WAIT_MILLISECONDS}")
        connection.execute("BEGIN IMMEDIATE")
        if log.stat().st_size == 0:
            break
        connection.execute("ROLLBACK")  # somebody wrote in between, or reads the log
        time.sleep(_PAUSE_SECONDS)
    else:
        raise pysqlite3.OperationalError(f"the log of {path} is in use")
    try:
        yield
    finally:
        connection.execute("COMMIT")


def _overwrite(file: int, page_bytes: int, numbers: range) -> int:
    """Write zeros to the unused bytes of these pages, numbered from 1; return how many pages changed."""
    usable = page_bytes - os.pread(file, 1, 20)[0]
    pages = os.pread(file, len(numbers) * page_bytes, (numbers.start - 1) * page_bytes)
    changed = 0
    for place, number in enumerate(numbers):
        if _kind(file, page_bytes, usable, number) not in (_ROOT, _OF_TREE):
            continue
        start = place * page_bytes
        header = pages[start : start + 8]
        if header[0] not in _HEADER_BYTES:
            continue
        begin = _HEADER_BYTES[header[0]] + 2 * int.from_bytes(header[3:5])
        end = int.from_bytes(header[5:7]) or 65_536
        if begin < end <= usable and pages.count(0, start + begin, start + end) < end - begin:
            os.pwrite(file, bytes(end - begin), (number - 1) * page_bytes + begin)
            changed += 1
    return changed


def _kind(file: int, page_bytes: int, usable: int, number: int) -> int:
    """Return the type of a page by the pointer map; 0 for a page of the map, and the one that SQLite never uses."""
    entries, unused = usable // 5, _PENDING_BYTE // page_bytes + 1
    of_map = (number - 2) // (entries + 1) * (entries + 1) + 2
    of_map += of_map == unused
    if number <= of_map or number == unused:
        return 0
    return os.pread(file, 1, (of_map - 1) * page_bytes + 5 * (number - of_map - 1))[0]


if __name__ == "__main__":
    print(overwrite_unused_bytes(Path(sys.argv[1])))  # noqa: T201 - read by the process that has started this one
