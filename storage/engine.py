"""Opens SQLite files: the version check, all pragmas, and transactions.

Invariants: no file is opened by a SQLite version that can corrupt it; every writer begins with BEGIN IMMEDIATE, so
writers wait for each other before they start and never fail half-way; a reader runs in a read-only transaction and
waits for nobody.
"""

from __future__ import annotations

import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pysqlite3
import sqlite_vec
from sqlalchemy import Connection, Engine, create_engine, event, exc
from sqlalchemy.pool import QueuePool

from reverie.errors import StoreUnavailable
from storage import unused_bytes
from storage.driver import check_sqlite_version, translate_errors, translated
from storage.engines import READ_ONLY
from storage.held_locks import holding_lock
from storage.rows import text_from_bytes

MAX_CONNECTIONS: Final = 5
# How long a writer waits for the write lock. The longest maintenance step holds it for well under 1 s.
BUSY_TIMEOUT_MILLISECONDS: Final = 30_000
# How long emptying the log waits for readers. Writers wait meanwhile.
_CHECKPOINT_WAIT_MILLISECONDS: Final = 200
# Pause between attempts to get the lock: about as long as a short transaction. Longer ones leave the lock unused,
# shorter ones waste CPU time.
_RETRY_SECONDS: Final = (0.0005, 0.003)
# While other writers commit, nobody holds the lock for long: a waiter then waits up to this many times as long.
_CONTENDED_TIMES: Final = 4
# 16 MiB of page cache for each connection: the inner pages of the indexes of about 100,000 chunks.
CACHE_KIBIBYTES: Final = 16 * 1024
# The limit of all page caches of a process together; beyond it they reuse pages instead of growing. The caches of
# hundreds of open stores would otherwise take gigabytes.
HEAP_BYTES: Final = 384 * 1024 * 1024

_PRAGMAS: Final = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # after a power loss, NORMAL can lose commits that were acknowledged
    "PRAGMA foreign_keys = ON",
    "PRAGMA secure_delete = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA mmap_size = 0",
    f"PRAGMA cache_size = -{CACHE_KIBIBYTES}",
    f"PRAGMA soft_heap_limit = {HEAP_BYTES}",
    "PRAGMA temp_store = MEMORY",
)
# How often the version of a file is advanced while it is written: a copy that is older by more than this is noticed.
_VERSION_SECONDS: Final = 300.0
_LOCK_WAIT: Final = "reverie_lock_wait_seconds"


class Database:
    """One SQLite file and its connections, at most five in this process. Open it after a fork, never before."""

    def __init__(
        self,
        path: Path,
        on_write: Callable[[bool], None] = lambda _: None,
        on_long_write: Callable[[float], None] = lambda _: None,
        on_version: Callable[[int, int], None] | None = None,
    ) -> None:
        """`on_write` is called before each transaction that writes, `on_long_write` after one that held the lock long.

        `on_write` gets `keeps_schedules` (see `Store.writing`), and `on_long_write` the seconds.
        `on_version` gets the identity of the file and a version that has been committed; without it the version stays
        as it is.
        """
        check_sqlite_version()
        self.path = path
        self._on_write = on_write
        self._on_long_write = on_long_write
        self._on_version = on_version
        self._is_version_noted = False
        self._version_until = -math.inf
        self.engine = _engine(path)
        self._inode = _inode(path)
        # The identity, which distinguishes the file from a later one in its place (`identity_of`); 0 until known.
        self.identity = 0

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """Take a connection from the pool. Errors of SQLite and SQLAlchemy are raised as Reverie's own."""
        try:
            with translate_errors(self.path), self.engine.connect() as connection:
                yield connection
        except exc.DBAPIError as error:
            raise translated(self.path, error.orig or error) from error
        except exc.TimeoutError as error:
            text = f"{self.path}: all {MAX_CONNECTIONS} connections of this process are in use"
            raise StoreUnavailable(text) from error

    @contextmanager
    def atomic(self, *, lock_wait_seconds: float | None = None, keeps_schedules: bool = False) -> Iterator[Connection]:
        """Open a transaction that holds the write lock from its start and commits whole or not at all.

        `keeps_schedules` as for `Store.writing`.

        Raises `StoreUnavailable` when the lock is not free within `lock_wait_seconds` (the busy timeout by default).
        """
        self._on_write(keeps_schedules)
        with self._connected() as connection:
            writer = connection.execution_options(**{_LOCK_WAIT: lock_wait_seconds})
            with holding_lock(self._on_long_write) as lock_taken, writer.begin():
                lock_taken()
                raw: Any = connection.connection.driver_connection
                self._check_in_place(raw)
                changes = raw.total_changes
                yield writer
                if self._on_version is not None:
                    self._advance_version(raw, has_changes=raw.total_changes != changes)

    def _advance_version(self, raw: Any, *, has_changes: bool) -> None:
        """Note the committed version, and advance it with the first write after opening and every few minutes.

        Only versions that earlier transactions committed are noted: even after a kill, the file is not behind its note.
        """
        assert self._on_version is not None
        advances = has_changes and time.monotonic() >= self._version_until
        if self._is_version_noted and not advances:
            return
        (version,) = raw.execute("PRAGMA user_version").fetchone()
        self._on_version(raw.execute("PRAGMA application_id").fetchone()[0], version)
        self._is_version_noted = not advances
        if advances:
            raw.execute(f"PRAGMA user_version = {version + 1}")
            self._version_until = time.monotonic() + _VERSION_SECONDS

    def _check_in_place(self, raw: Any) -> None:
        """Raise `StoreUnavailable` in a write transaction on a file that was deleted or replaced meanwhile.

        A deletion holds the write lock, so rows that are committed after this check are not deleted. A new connection
        would open the next file, which the file system may have given the inode of the deleted one.
        """
        inode, identity = _inode(self.path), raw.execute("PRAGMA application_id").fetchone()[0]
        self._inode, self.identity = self._inode or inode, self.identity or identity
        if (inode, identity) != (self._inode, self.identity):
            raise StoreUnavailable(f"{self.path} was deleted a moment ago, nothing was written: try again")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read-only transaction, which sees a snapshot of the file for as long as it is open."""
        with self._connected() as connection:
            reader = connection.execution_options(**{READ_ONLY: True})
            with reader.begin():
                yield reader

    @contextmanager
    def autocommit(self) -> Iterator[Any]:
        """Yield the raw connection outside any transaction, for checkpoint and vacuum, which change no row."""
        self._on_write(True)
        with self._connected() as connection:
            _set_read_only(connection, False)
            yield connection.connection.driver_connection

    def free_pages(self, limit: int) -> int:
        """Give up to about `limit` unused pages back to the file system; return how many, 0 if there was none."""
        with self.autocommit() as raw:
            before = int(raw.execute("PRAGMA freelist_count").fetchone()[0])
            if not before:
                return 0
            raw.execute(f"PRAGMA incremental_vacuum({int(limit)})").fetchall()
            return before - int(raw.execute("PRAGMA freelist_count").fetchone()[0])

    def overwrite_unused(self) -> None:
        """Overwrite the bytes of the file that no row uses, by a process of its own: see `unused_bytes`.

        Raises `StoreUnavailable` if the file is in use all the time.
        """
        self._on_write(False)
        program = [sys.executable, "-P", unused_bytes.__file__, str(self.path)]
        done = subprocess.run(program, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            reason = done.stderr.strip().rpartition("\n")[2]
            raise StoreUnavailable(f"unused bytes of {self.path} could not be overwritten ({reason}): try again later")

    def refresh_statistics(self) -> None:
        """Refresh the planner's statistics of tables that have changed much."""
        with self.autocommit() as raw:
            raw.execute("PRAGMA optimize")

    def truncate_log(self) -> tuple[bool, int, int]:
        """Copy the log into the file and empty it, unless a reader or writer uses it for long.

        Return whether it was busy, the pages of the log, and the copied pages. Otherwise the process that closes the
        store last does it, which changes the times of the file.
        """
        with self.autocommit() as raw:
            raw.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_WAIT_MILLISECONDS}")
            try:
                busy, log_pages, moved = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:  # the connection returns to the pool, where the usual timeout applies
                raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MILLISECONDS}")
        return bool(busy), int(log_pages), int(moved)

    def problems(self, connection: Connection, *, quick: bool) -> list[str]:
        """Return the damage of the file's pages and references; `quick` skips reading every page."""
        found = []
        if not quick:
            # SQLite checks full text by the format that this connection read last. If another connection's deletion has
            # changed the format since, an emptied page looks damaged. Any read of the table refreshes it.
            tables = "SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE % USING fts5(%'"
            for table in connection.exec_driver_sql(tables).scalars().all():
                connection.exec_driver_sql(f"SELECT rowid FROM {table} WHERE rowid = 0").all()
            lines = connection.exec_driver_sql("PRAGMA integrity_check(20)").scalars().all()
            found += [f"integrity: {line}" for line in lines if line != "ok"]
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
        return found + [f"a row of {row[0]} refers to a missing row of {row[2]}" for row in broken[:20]]

    @property
    def connections(self) -> int:
        """How many connections this process has to the file."""
        pool = self.engine.pool
        assert isinstance(pool, QueuePool)
        return pool.size() + pool.overflow()  # without the lock that counting those in use takes

    def close(self) -> None:
        """Close the idle connections; closing the last one checkpoints the WAL into the file."""
        self.engine.dispose()


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None


def _engine(path: Path) -> Engine:
    """Return an engine for one file, which shares its dialect with those of all others."""
    pool = QueuePool(
        partial(pysqlite3.connect, str(path), check_same_thread=False, cached_statements=256),
        pool_size=MAX_CONNECTIONS,
        max_overflow=0,
        timeout=BUSY_TIMEOUT_MILLISECONDS / 1_000,
        dialect=_shared.dialect,
    )
    engine = Engine(
        pool,
        _shared.dialect,
        _shared.url,
        hide_parameters=True,  # errors are logged, message contents must not be
    )
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    return engine


# Never connected: SQLite's dialect learns all that it needs from the driver's module.
_shared: Final = create_engine("sqlite://", module=pysqlite3)


def _on_connect(raw: Any, _record: object) -> None:
    raw.text_factory = text_from_bytes
    raw.isolation_level = None  # transactions are begun below, not by the driver
    raw.enable_load_extension(True)
    sqlite_vec.load(raw)
    raw.enable_load_extension(False)
    raw.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MILLISECONDS}")
    if not raw.execute("PRAGMA page_count").fetchone()[0]:
        # Only without tables: later it has no effect, and takes the write lock, for which readers would wait.
        raw.execute("PRAGMA auto_vacuum = INCREMENTAL")
    for pragma in _PRAGMAS:
        raw.execute(pragma)


def _on_begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    raw: Any = connection.connection.driver_connection
    _set_read_only(connection, bool(options.get(READ_ONLY)))
    if options.get(READ_ONLY):
        raw.execute("BEGIN")
    else:
        _take_write_lock(raw, options.get(_LOCK_WAIT))


def _set_read_only(connection: Connection, wanted: bool) -> None:
    """Let a connection only read, or write, too. After each change SQLite plans all its statements anew."""
    if connection.info.get(READ_ONLY, False) != wanted:
        raw: Any = connection.connection.driver_connection
        raw.execute(f"PRAGMA query_only = {wanted:d}")
        connection.info[READ_ONLY] = wanted


def is_read_only(connection: Connection) -> bool:
    """Return whether a connection is in a read-only transaction, which always sees the same rows."""
    return bool(connection.get_execution_options().get(READ_ONLY))


def _take_write_lock(raw: Any, wait_seconds: float | None) -> None:
    """Run BEGIN IMMEDIATE, retrying after short random pauses.

    SQLite's own busy handler pauses for up to 100 ms once it has waited a while, and meanwhile the writer that has
    just committed takes the lock again: of 16 writers some waited 4 s for a lock that was free most of the time.

    The time limit is meant for a lock that one holder keeps. While other writers commit, the wait goes on up to four
    times as long: on a machine without idle processors four writers found the lock taken for up to 0.8 s.
    """
    wait = BUSY_TIMEOUT_MILLISECONDS / 1_000 if wait_seconds is None else wait_seconds
    deadline = time.monotonic() + wait
    latest = deadline if wait_seconds is None else deadline + (_CONTENDED_TIMES - 1) * wait
    version: int | None = None
    raw.set_busy_timeout(0)
    try:
        while True:
            try:
                raw.execute("BEGIN IMMEDIATE")
                return
            except pysqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != pysqlite3.SQLITE_BUSY:
                    raise
                # This number changes whenever another connection commits.
                before, version = version, int(raw.execute("PRAGMA data_version").fetchone()[0])
                now = time.monotonic()
                if before not in (None, version):
                    deadline = min(now + wait, latest)
                if now > deadline:
                    raise
            time.sleep(random.uniform(*_RETRY_SECONDS))  # noqa: S311 - spreads the waiters, not for security
    finally:
        raw.set_busy_timeout(BUSY_TIMEOUT_MILLISECONDS / 1_000)
