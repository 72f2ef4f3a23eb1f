"""Connections to a PostgreSQL database, and transactions that are limited to one store.

Invariants: a transaction that writes holds the row of its store in `stores` from its start, so writers of one store
wait for each other as on SQLite and never fail half-way; a reader sees one snapshot and waits for nobody; outside of
such a transaction row-level security refuses to show any.

Threads take connections in turn, so that two threads cannot wait for each other. A recall holds a snapshot of its
workspace and one of the account. If each of ten threads had one of ten connections and waited for a second, all would
wait until they give up. So a thread waits for its first connection only.

The plans that PostgreSQL keeps for a connection are renewed. A plan is made from the sizes that the tables have at that
moment, and kept until statistics are collected, which may be minutes later. A plan that was made for empty tables reads
all rows of a store for each row that it looks for. To plan each statement anew costs more than carrying it out: with
renewed plans the server used a third of the processor time.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from weakref import finalize

import psycopg
from psycopg.adapt import Loader
from sqlalchemy import URL, Connection, Engine, create_engine, event, exc, make_url
from sqlalchemy.pool import QueuePool

from reverie.errors import Rejected, StoreUnavailable
from storage.engines import OPTION, READ_ONLY
from storage.held_locks import holding_lock
from storage.index.search_index import SEARCH_INDEX
from storage.postgres.dialect import STORE_OPTION, PostgresDialect
from storage.postgres.errors import end_of_primary, translate_errors
from storage.postgres.migrations import newest_version
from storage.postgres.search_index import PostgresSearchIndex

# Requests and jobs of a process that use the database at once, unless the settings say otherwise.
TURNS: Final = 10
# Connections that one turn may use: one for each of two stores, and one for a lookup while both are in use.
CONNECTIONS_OF_A_TURN: Final = 3
_WAIT_SECONDS: Final = 30.0


class Turns:
    """At most so many threads have a turn at once. Thread-safe."""

    def __init__(self, turns: int = TURNS) -> None:
        self._free = threading.BoundedSemaphore(turns)
        self._local = threading.local()

    @contextmanager
    def turn(self, name: str) -> Iterator[None]:
        """Wait for a turn, unless the thread has one. Raises `StoreUnavailable` after half a minute.

        If another thread ends the work, such as a streamed answer, the turn of the thread that began it is given back.
        """
        open_turns: list[None] = self._local.__dict__.setdefault("open_turns", [])
        is_first = not open_turns
        if is_first and not self._free.acquire(timeout=_WAIT_SECONDS):
            raise StoreUnavailable(f"{name}: all connections of this process are in use, try again")
        open_turns.append(None)
        try:
            yield
        finally:
            open_turns.pop()
            if is_first:
                self._free.release()


# Tables grow little in this time, and planning a hundred statements anew takes a hundredth of it.
RENEW_SECONDS: Final = 5.0


def renew_plans(engine: Engine, *, monotonic: Callable[[], float] = time.monotonic) -> None:
    """Let each connection of `engine` forget its plans when it is taken for use and they may be older than 5 s.

    Plans of triggers and of references between tables are dropped as well.
    """

    def on_checkout(raw: psycopg.Connection[Any], record: Any, _fairy: object) -> None:
        now = monotonic()
        if now - record.info.setdefault("planned_at", now) < RENEW_SECONDS:
            return
        record.info["planned_at"] = now
        try:
            raw.autocommit = True  # else this statement would begin a transaction for the next user
            raw.execute("DISCARD PLANS")
            raw.autocommit = False
        except psycopg.OperationalError as error:
            raise exc.DisconnectionError from error

    event.listen(engine, "checkout", on_checkout)


SCHEMA: Final = "reverie"
# How long a writer waits for another one of the same store, as on SQLite.
LOCK_WAIT_SECONDS: Final = 30.0
MAX_CONNECTIONS: Final = TURNS * CONNECTIONS_OF_A_TURN
_POOL_WAIT_SECONDS: Final = 30
# A process that is stopped within a transaction blocks a store for less time than other writers wait for it.
IDLE_WRITER_SECONDS: Final = 20
# A reader blocks nobody, and an export may be read slowly; but vacuum cannot remove the rows that a reader sees.
IDLE_READER_SECONDS: Final = 3_600
_CONNECT_SECONDS: Final = 10
_OPTIONS: Final = {OPTION: PostgresDialect(), SEARCH_INDEX: PostgresSearchIndex}
# The parameters of a connection, unless the address has others. Client and server notice within half a minute that the
# other's host is gone. By default this takes two hours, during which the transaction of a disconnected host keeps its
# store locked.
_CONNECT: Final = {
    "application_name": "reverie",
    "connect_timeout": str(_CONNECT_SECONDS),
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
_SESSION: Final = (
    f"-c search_path={SCHEMA},public -c client_min_messages=warning -c jit=off"
    " -c tcp_keepalives_idle=15 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3 -c tcp_user_timeout=30000"
    f" -c idle_in_transaction_session_timeout={IDLE_READER_SECONDS}s"
)
_BEGIN_READING: Final = (
    "SELECT set_config('transaction_read_only', 'on', true), set_config('reverie.store', %(store)s, true)"
)


class _NumberLoader(Loader):
    """Loads `numeric`, the type of sums, as a whole number where it is one, as SQLite does."""

    def load(self, data: Any) -> int | float:
        text = bytes(data)
        return int(text) if text.lstrip(b"-").isdigit() else float(text)


class _StreamingCursor(psycopg.ServerCursor[Any]):
    """A cursor of the server, which ends with its transaction.

    SQLAlchemy closes none whose connection was lost, and psycopg warns of each that was not closed.
    """

    def __del__(self, *_: object) -> None:
        """Do nothing."""


class _OpenedConnections:
    """The connections of one engine that have not been closed, whichever thread opened them."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # the garbage collector may call `close` while a thread is in `note`
        self._connections: list[psycopg.Connection[Any]] = []

    def note(self, raw: psycopg.Connection[Any], _record: object) -> None:
        """Remember a connection, and drop the connections that were closed since."""
        with self._lock:
            self._connections = [*(one for one in self._connections if not one.closed), raw]

    def close(self) -> None:
        """Close all connections that are remembered."""
        with self._lock:
            for raw in self._connections:
                raw.close()


class PostgresServer:
    """The connections of this process to one database. Open it after a fork, never before."""

    def __init__(self, url: str, *, turns: int = TURNS) -> None:
        """`url` is a SQLAlchemy address, such as `postgresql+psycopg://user:password@host/database`.

        `turns` is how many threads use the database at once, each with up to `CONNECTIONS_OF_A_TURN` connections.
        Raises `Rejected` for an address that cannot be read.
        """
        self.url = _parsed_address(url)
        shown = self.url.difference_update_query(["password", "sslpassword"])
        self.name = shown.render_as_string(hide_password=True)
        self.engine = _engine(self.url, turns)
        self._turns = Turns(turns)
        self._opened = _OpenedConnections()
        event.listen(self.engine, "connect", self._opened.note)
        # For callers who forget to close this object, or use it again: the server's connections are limited. Not at the
        # end of the process: a forked process must not end the connections of its parent.
        finalize(self, self._opened.close).atexit = False

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """Take a connection once it is this thread's turn. Raises errors of the database as Reverie's own."""
        with translate_errors(self.name), self._turns.turn(self.name), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction on the tables of no store."""
        with self.connect() as connection:
            limited = connection.execution_options(**_OPTIONS)
            with limited.begin():
                yield limited

    def close(self) -> None:
        """Close all connections, even those of readers that stopped early."""
        self.engine.dispose()
        self._opened.close()


class PostgresDatabase:
    """One store in a PostgreSQL database."""

    def __init__(
        self,
        server: PostgresServer,
        store: int,
        path: Path,
        *,
        when_deleted: Callable[[], None] = lambda: None,
        on_long_write: Callable[[float], None] = lambda _: None,
    ) -> None:
        """`store` is its number, `path` the folder of this host's files of the store.

        `when_deleted` is called when a writer finds that the store was deleted, `on_long_write` after a transaction
        that held it for long, with the seconds.
        """
        self.server, self.store, self.path, self._when_deleted = server, store, path, when_deleted
        self._on_long_write = on_long_write
        # Writers of this process wait for each other without a connection: a store that is locked for long must not
        # take all connections.
        self._writing = threading.Lock()

    @contextmanager
    def atomic(self, *, lock_wait_seconds: float | None = None, keeps_schedules: bool = False) -> Iterator[Connection]:
        """Open a transaction that holds the store from its start and commits whole or not at all.

        `keeps_schedules` makes no difference: looking at a store costs little here.

        Raises `StoreUnavailable` when another one holds it for longer than `lock_wait_seconds` (default 30), or the
        store was deleted.
        """
        wait = LOCK_WAIT_SECONDS if lock_wait_seconds is None else lock_wait_seconds
        with self._next_writer(wait) as left_seconds, self.server.connect() as connection:
            writer = connection.execution_options(**{**_OPTIONS, STORE_OPTION: self.store})
            with holding_lock(self._on_long_write) as lock_taken, writer.begin():
                values = {"store": self.store, "wait": max(1, int(left_seconds * 1_000)), "version": newest_version()}
                sql = (
                    f"SELECT begin_writing(%(store)s, %(wait)s, %(version)s),"
                    f" set_config('idle_in_transaction_session_timeout', '{IDLE_WRITER_SECONDS}s', true)"
                )
                if not writer.exec_driver_sql(sql, values).scalar():
                    self._when_deleted()
                    raise StoreUnavailable(
                        f"{self.path.parent.name} was deleted a moment ago, nothing was written: try again"
                    )
                lock_taken()
                yield writer

    @contextmanager
    def _next_writer(self, wait_seconds: float) -> Iterator[float]:
        """Wait for the other writers of this process; yield the seconds left to wait for writers of other processes."""
        begun = time.monotonic()
        if not self._writing.acquire(timeout=wait_seconds):
            raise StoreUnavailable(
                f"{self.server.name} cannot be written now (this process has waited {wait_seconds:g} s):"
                " others write to it without a pause, try again"
            )
        try:
            yield max(0.0, wait_seconds - (time.monotonic() - begun))
        finally:
            self._writing.release()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a read-only transaction, which sees a snapshot of the database for as long as it is open."""
        with self.server.connect() as connection:
            reader = connection.execution_options(
                **{**_OPTIONS, STORE_OPTION: self.store, READ_ONLY: True},
                isolation_level="REPEATABLE READ",
            )
            with reader.begin():
                # Not by the connection's option: its pool would ask for READ WRITE afterwards, which a standby refuses
                # even if nothing is written.
                reader.exec_driver_sql(_BEGIN_READING, {"store": str(self.store)})
                yield reader

    def free_pages(self, limit: int) -> int:
        """Return 0: autovacuum frees the space of deleted rows."""
        return 0

    def overwrite_unused(self) -> None:
        """Do nothing: the files belong to the server."""

    def refresh_statistics(self) -> None:
        """Do nothing: autovacuum does it."""

    def truncate_log(self) -> tuple[bool, int, int]:
        """Return that there was nothing to do: the log belongs to the server."""
        return False, 0, 0

    def problems(self, connection: Connection, *, quick: bool) -> list[str]:
        """Return no problems: PostgreSQL checks references when rows are written, and pages by their checksums."""
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


def _parsed_address(text: str) -> URL:
    try:
        return make_url(text).set(drivername="postgresql+psycopg")
    except (exc.ArgumentError, ValueError) as error:
        raise Rejected(
            "the address of the database cannot be read: it is postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with"
            " special characters of the password as %XX",
            field="database",
        ) from error


def _engine(url: URL, turns: int) -> Engine:
    engine = create_engine(
        url,
        hide_parameters=True,  # errors are logged, message contents must not be
        poolclass=QueuePool,
        pool_size=turns,
        max_overflow=turns * (CONNECTIONS_OF_A_TURN - 1),
        pool_timeout=_POOL_WAIT_SECONDS,
        connect_args=_connect_arguments(url),
    )
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "checkout", _on_checkout)
    event.listen(engine, "handle_error", end_of_primary)
    renew_plans(engine)
    return engine


def _connect_arguments(url: URL) -> dict[str, str]:
    own = {name: value for name, value in _CONNECT.items() if name not in url.query}
    given = " ".join(url.normalized_query.get("options", ()))
    return {**own, "options": f"{given} {_SESSION}".strip()}


def _on_connect(raw: psycopg.Connection[Any], _record: object) -> None:
    raw.adapters.register_loader("numeric", _NumberLoader)
    raw.prepare_threshold = 2
    raw.server_cursor_factory = _StreamingCursor


def _on_checkout(raw: psycopg.Connection[Any], _record: object, _fairy: object) -> None:
    """Replace a connection that the server has ended while nobody used it, as at a restart.

    It costs no round trip: an idle connection has nothing to read until the server reports its end or changed settings.
    """
    if has_ended(raw):
        raise exc.DisconnectionError


def has_ended(raw: psycopg.Connection[Any]) -> bool:
    """Return whether an idle connection was ended or has something to read."""
    if raw.closed:
        return True
    asked = select.poll()
    asked.register(raw.fileno(), select.POLLIN)
    return bool(asked.poll(0))
