"""Connections to a PostgreSQL database, and transactions that are limited to one store.

Invariants: a transaction that writes holds the row of its store in `stores` from its start, so writers of one store
wait for each other as on SQLite and never fail half-way; a reader sees one snapshot and waits for nobody; outside of
such a transaction row-level security refuses to show any.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from weakref import finalize

import psycopg
from psycopg import errors as pg
from psycopg.adapt import Loader
from sqlalchemy import Connection, Engine, create_engine, event, exc, make_url
from sqlalchemy.pool import QueuePool

from reverie.errors import Permanent, ReverieError, StoreUnavailable, StoreUnusable
from storage.engines import OPTION, READ_ONLY
from storage.postgres.dialect import STORE_OPTION, PostgresDialect
from storage.postgres.index_tables import PostgresIndexTables
from storage.recall.index_tables import INDEX_TABLES

SCHEMA: Final = "reverie"
# How long a writer waits for another one of the same store, as on SQLite.
LOCK_WAIT_SECONDS: Final = 30.0
# Connections of one process: as many as its threads use at once.
MAX_CONNECTIONS: Final = 10
_POOL_WAIT_SECONDS: Final = 30
_CONNECT_SECONDS: Final = 10
_OPTIONS: Final = {OPTION: PostgresDialect(), INDEX_TABLES: PostgresIndexTables()}
_NO_SPACE: Final = (pg.DiskFull, pg.OutOfMemory)
_BUSY: Final = (pg.LockNotAvailable, pg.DeadlockDetected, pg.SerializationFailure)
_DAMAGED: Final = (pg.DataCorrupted, pg.IndexCorrupted)
_NO_SCHEMA: Final = (pg.UndefinedTable, pg.UndefinedFunction, pg.UndefinedColumn)


class _NumberLoader(Loader):
    """Loads `numeric`, the type of sums, as a whole number where it is one, as SQLite does."""

    def load(self, data: Any) -> int | float:
        text = bytes(data)
        return int(text) if text.lstrip(b"-").isdigit() else float(text)


class PostgresServer:
    """The connections of this process to one database. Open it after a fork, never before."""

    def __init__(self, url: str) -> None:
        """`url` is a SQLAlchemy address, such as `postgresql+psycopg://user:password@host/database`."""
        self.url = make_url(url).set(drivername="postgresql+psycopg")
        self.name = self.url.render_as_string(hide_password=True)
        self.engine = _engine(self.url)
        opened: list[psycopg.Connection[Any]] = []
        event.listen(self.engine, "connect", partial(_note_opened, opened))
        # Also for who forgets to close it: the server has a limited number of connections.
        self._close_opened = finalize(self, _close_all, opened)
        self._close_opened.atexit = False  # a forked process must not end what it shares with its parent

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction on the tables of no store."""
        with translate_errors(self.name), self.engine.connect() as connection:
            limited = connection.execution_options(**_OPTIONS)
            with limited.begin():
                yield limited

    def close(self) -> None:
        """Close all connections, also those that a reader holds who stopped early."""
        self.engine.dispose()
        self._close_opened()


class PostgresDatabase:
    """One store in a PostgreSQL database."""

    def __init__(self, server: PostgresServer, store: int, path: Path) -> None:
        """`store` is its number, `path` where this host keeps what is not in the database."""
        self.server, self.store, self._path = server, store, path

    @property
    def path(self) -> Path:
        """Return where this host keeps what belongs to the store."""
        return self._path

    @contextmanager
    def atomic(self, *, lock_wait_seconds: float | None = None) -> Iterator[Connection]:
        """Open a transaction that holds the store from its start and commits whole or not at all.

        Raises `StoreUnavailable` when another one holds it for longer than `lock_wait_seconds` (default 30), or the
        store was deleted.
        """
        wait = LOCK_WAIT_SECONDS if lock_wait_seconds is None else lock_wait_seconds
        with translate_errors(self.server.name), self.server.engine.connect() as connection:
            writer = connection.execution_options(**{**_OPTIONS, STORE_OPTION: self.store})
            with writer.begin():
                sql = "SELECT begin_writing(%(store)s, %(wait)s)"
                if not writer.exec_driver_sql(sql, {"store": self.store, "wait": max(1, int(wait * 1_000))}).scalar():
                    raise StoreUnavailable(
                        f"{self._path.parent.name} was deleted a moment ago, nothing was written: try again"
                    )
                yield writer

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read-only transaction, which sees a snapshot of the database for as long as it is open."""
        with translate_errors(self.server.name), self.server.engine.connect() as connection:
            reader = connection.execution_options(
                **{**_OPTIONS, STORE_OPTION: self.store, READ_ONLY: True},
                isolation_level="REPEATABLE READ",
                postgresql_readonly=True,
            )
            with reader.begin():
                reader.exec_driver_sql(
                    "SELECT set_config('reverie.store', %(store)s, true)", {"store": str(self.store)}
                )
                yield reader

    def free_pages(self, limit: int) -> int:
        """Return 0: autovacuum frees the room of deleted rows."""
        return 0

    def refresh_statistics(self) -> None:
        """Do nothing: autovacuum does it."""

    def truncate_log(self) -> tuple[bool, int, int]:
        """Return that nothing was to do: the log is the server's."""
        return False, 0, 0

    def problems(self, connection: Connection, *, quick: bool) -> list[str]:
        """Return nothing: PostgreSQL checks references when rows are written, and pages by their checksums."""
        return []

    @property
    def engine(self) -> Engine:
        """Return the engine that connections are taken from."""
        return self.server.engine

    @property
    def connections(self) -> int:
        """Return 0: the connections belong to the process, not to the store."""
        return 0

    def close(self) -> None:
        """Do nothing: the connections belong to the process."""


def is_locked(error: BaseException) -> bool:
    """Return whether an error of a store says that another writer held it for too long."""
    cause = getattr(error.__cause__, "orig", error.__cause__)
    return isinstance(cause, _BUSY)


@contextmanager
def translate_errors(name: str) -> Iterator[None]:
    """Raise errors of PostgreSQL and SQLAlchemy as Reverie's own, naming the database and what to do."""
    try:
        yield
    except ReverieError:
        raise
    except exc.TimeoutError as error:
        raise StoreUnavailable(f"{name}: all {MAX_CONNECTIONS} connections of this process are in use") from error
    except (exc.DBAPIError, psycopg.Error) as error:
        raise _translate(name, error) from error


def _translate(name: str, error: Exception) -> ReverieError:
    cause = getattr(error, "orig", None) or error
    text = str(cause).split("\n")[0]
    if isinstance(cause, _DAMAGED):
        return StoreUnusable(f"{name} is damaged ({text}): stop Reverie and restore a backup of the database")
    if isinstance(cause, _BUSY):
        return StoreUnavailable(f"{name} cannot be written now ({text}): others write to it without a pause, try again")
    if isinstance(cause, _NO_SPACE):
        return StoreUnavailable(f"{name} cannot be written now ({text}): check the free space of its disk")
    if isinstance(cause, _NO_SCHEMA):
        return StoreUnusable(f"{name} does not have the tables of this version ({text}): run `reverie db migrate`")
    if isinstance(cause, psycopg.OperationalError):
        return StoreUnavailable(f"{name} cannot be reached ({text}): check that it runs and accepts connections")
    return Permanent(f"{name}: {text}")


def _engine(url: Any) -> Engine:
    engine = create_engine(
        url,
        hide_parameters=True,  # errors are logged, message contents must not be
        poolclass=QueuePool,
        pool_size=MAX_CONNECTIONS,
        max_overflow=0,
        pool_timeout=_POOL_WAIT_SECONDS,
        connect_args={
            "connect_timeout": _CONNECT_SECONDS,
            "options": f"-c search_path={SCHEMA},public -c client_min_messages=warning -c jit=off",
        },
    )
    event.listen(engine, "connect", _on_connect)
    return engine


def _note_opened(opened: list[psycopg.Connection[Any]], raw: psycopg.Connection[Any], _record: object) -> None:
    opened[:] = [*(one for one in opened if not one.closed), raw]


def _close_all(opened: list[psycopg.Connection[Any]]) -> None:
    for raw in opened:
        raw.close()


def _on_connect(raw: psycopg.Connection[Any], _record: object) -> None:
    raw.adapters.register_loader("numeric", _NumberLoader)
    raw.prepare_threshold = 2
