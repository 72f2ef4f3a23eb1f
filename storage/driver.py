"""SQLite's driver: the versions that may be used, and its errors as Reverie's own.

Invariant: no file is opened by a SQLite version that can corrupt it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pysqlite3

from reverie.errors import Permanent, ReverieError, StoreUnavailable, StoreUnusable

# https://sqlite.org/wal.html#walresetbug: 3.7.0 to 3.51.2 can corrupt a WAL database with several writers.
OLDEST_SAFE_SQLITE: Final = (3, 51, 3)
# Where `PRAGMA application_id` is in the header: https://sqlite.org/fileformat2.html#the_database_header
IDENTITY: Final = slice(68, 72)
_NO_SPACE = re.compile(r"disk is full|disk I/O error|unable to open database file|readonly database")
_LOCKED = re.compile(r"locked")
_CORRUPT = re.compile(r"malformed|not a database|file is encrypted|unsupported file format")


def check_sqlite_version(version: tuple[int, ...] = tuple(pysqlite3.sqlite_version_info)) -> None:
    """Raise `StoreUnusable` when this version of SQLite can corrupt a database that several processes write."""
    if version < OLDEST_SAFE_SQLITE:
        found, needed = ".".join(map(str, version)), ".".join(map(str, OLDEST_SAFE_SQLITE))
        raise StoreUnusable(
            f"SQLite {found} can corrupt a database that several processes write; {needed} or newer is needed: "
            "pip install 'pysqlite3>=0.6.1'"
        )


def inode_of(path: Path) -> int | None:
    """Return the inode of a file, or None if there is none. Raises `StoreUnavailable` for a folder without rights."""
    try:
        return path.stat().st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise cannot_read(path, error) from error


def cannot_read(path: Path | str, error: OSError) -> StoreUnavailable:
    """Return the error for a file that may not be looked at."""
    return StoreUnavailable(
        f"{path} cannot be read ({error.strerror}): check the permissions of its folder, and which user runs this"
    )


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Raise errors of SQLite's driver as Reverie's own, naming the file and what to do."""
    try:
        yield
    except pysqlite3.ProgrammingError:  # a value that a statement lacks, say, is a bug
        raise
    except pysqlite3.Error as error:
        raise translated(path, error) from error
    except UnicodeDecodeError as error:
        # SQLite quotes a damaged schema in its message, which the driver cannot decode then.
        raise _damaged(path, "what it contains is no text") from error


def translated(path: Path, error: BaseException) -> ReverieError:
    """Return Reverie's error for one of SQLite's driver."""
    text = str(error)
    if _CORRUPT.search(text):
        return _damaged(path, text)
    if _LOCKED.search(text):
        return StoreUnavailable(f"{path} cannot be written now ({text}): others write to it without a pause, try again")
    if _NO_SPACE.search(text):
        return StoreUnavailable(f"{path} cannot be written now ({text}): check free space and permissions of its disk")
    if isinstance(error, pysqlite3.OperationalError):
        return StoreUnavailable(f"{path}: {text}")
    if isinstance(error, pysqlite3.IntegrityError):  # its text names tables and columns
        return Permanent("a database refused a row that contradicts others, so nothing was stored: this is a defect")
    return Permanent(f"{path}: {text}")


def _damaged(path: Path, text: str) -> StoreUnusable:
    return StoreUnusable(f"{path} is damaged ({text}): stop Reverie, move the file aside, and restore a backup of it")


def is_locked(error: BaseException) -> bool:
    """Return whether an error of a store says that another writer held the lock for too long."""
    cause = getattr(error.__cause__, "orig", error.__cause__)
    return isinstance(cause, pysqlite3.Error) and cause.sqlite_errorcode & 0xFF == pysqlite3.SQLITE_BUSY
