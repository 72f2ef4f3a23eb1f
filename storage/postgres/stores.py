"""The stores of a PostgreSQL database: workspaces and the account, each a number in every row of shared tables.

Each host has folders for files of workspaces, marked with their store.

A workspace that was deleted on another host leaves its folder here, which a later workspace of its name must not get.
So a process looks at the mark when it first uses a store, and each host removes folders of deleted stores. Folders
without a mark are left alone: nobody has used them with this database, and they may hold files of SQLite.

Notes of claims that every host sees are locks in the database server.

A lock on a number needs neither space on a disk nor a row, so it can be taken when nothing can be written, and the
server releases it when its process ends. Notes in a file are seen on their own host only.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import psycopg
from filelock import FileLock, Timeout
from sqlalchemy import Connection, PoolProxiedConnection

from reverie.checks import check_workspace
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, Rejected, ReverieError, StoreUnavailable
from storage.engines import StoreDatabase
from storage.index.search_index import create_missing_indexes
from storage.pipeline.held_claims import HeldClaims
from storage.pipeline.work import Stage
from storage.postgres.columns import shared_tables, tables
from storage.postgres.dialect import STORE_OPTION
from storage.postgres.engine import SCHEMA, TURNS, PostgresDatabase, PostgresServer, has_ended
from storage.postgres.errors import translate_errors
from storage.postgres.hosts import Hosts
from storage.postgres.migrations import newest_version
from storage.postgres.schema import prepare
from storage.postgres.translation import FILE, KEPT
from storage.private_files import write_private
from storage.store import Store, new_serial
from storage.stores import FileStamp, Stores

MARK: Final = "store.id"
_LOCK: Final = "workspaces.lock"
# Renaming folders takes milliseconds.
_LOCK_SECONDS: Final = 30.0


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, for the user alone. Raises `StoreUnavailable`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be created ({error}): check free space and permissions") from error


def claim_folder(data_dir: Path, folder: Path, store: str, set_aside: Callable[[Path], Path]) -> Path | None:
    """Make or mark a store's folder on this host; return where the folder of an earlier store was moved, if any.

    `store` identifies the store: its database and its key. Files that another database has left in the folder stay: a
    data folder that is pointed to another database should keep its files. Raises `StoreUnavailable`.
    """
    if _mark_of(folder) == store:
        return None
    with _locked(data_dir):
        mark = _mark_of(folder)
        if mark == store:
            return None
        is_of_another = mark is not None and mark.split()[0] == store.split()[0]
        moved = set_aside(folder) if is_of_another else None
        make_folder(folder)
        try:
            write_private(folder / MARK, store.encode())
        except OSError as error:
            raise StoreUnavailable(f"{folder / MARK} cannot be written ({error}): check the disk") from error
        return moved


def move_foreign_folders(
    data_dir: Path, installation: str, present: Callable[[], Mapping[str, str]], set_aside: Callable[[Path], Path]
) -> dict[str, Path]:
    """Move the folders of stores that a database does not have any more; return their new paths by name.

    `present` returns the keys of the stores that the database has, by name. Raises `StoreUnavailable`.
    """
    with _locked(data_dir):
        # Read before the stores: a store is in the database before it has a folder.
        marks = {folder: mark for folder in _folders(data_dir) if (mark := _mark_of(folder)) is not None}
        own = {folder: key for folder, mark in marks.items() for base, key in [mark.split()] if base == installation}
        keys = present() if own else {}
        return {folder.name: set_aside(folder) for folder, key in own.items() if keys.get(folder.name) != key}


def _folders(data_dir: Path) -> list[Path]:
    try:
        return [path for path in (data_dir / "workspaces").iterdir() if path.is_dir() and not path.is_symlink()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreUnavailable(f"{data_dir / 'workspaces'} cannot be read ({error}): check its permissions") from error


def _mark_of(folder: Path) -> str | None:
    """Return the mark of a folder; None without one, or with one that a full disk left incomplete."""
    try:
        mark = (folder / MARK).read_text(encoding="utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailable(f"{folder / MARK} cannot be read ({error}): check its permissions") from error
    return mark if len(mark.split()) == 2 else None


@contextmanager
def _locked(data_dir: Path) -> Iterator[None]:
    lock = FileLock(data_dir / _LOCK, timeout=_LOCK_SECONDS, mode=0o600)
    make_folder(data_dir)
    try:
        lock.acquire()
    except Timeout as error:
        raise StoreUnavailable(f"{data_dir / _LOCK} is held by another process: try again") from error
    except OSError as error:
        raise StoreUnavailable(
            f"{data_dir / _LOCK} cannot be used ({error}): check free space and permissions"
        ) from error
    try:
        yield
    finally:
        lock.release()


_HOLD: Final = "SELECT pg_try_advisory_lock(%s)"
_RELEASE: Final = "SELECT pg_advisory_unlock(%s)"
_IS_HELD: Final = """
    SELECT EXISTS (
        SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND classid = (%(token)s >> 32)::oid AND objid = (%(token)s & 4294967295)::oid
    )
"""


class HeldTokens:
    """The tokens that this process holds in the database, by one connection outside of the pool, while there are any.

    Thread-safe.
    """

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._guard = threading.Lock()
        self._wanted: set[int] = set()
        self._connection: PoolProxiedConnection | None = None

    def hold(self, token: int) -> None:
        """Hold a token until `release` or the end of the process. After `StoreUnavailable` it is held later."""
        with self._guard, translate_errors(self._server.name):
            is_new = token not in self._wanted
            self._wanted.add(token)
            connected = self._is_connected()
            raw = self._raw()
            if is_new and connected:
                raw.execute(_HOLD, [token])

    def release(self, token: int) -> None:
        """Release a token. Raises `StoreUnavailable` when the connection is lost, which also releases it."""
        with self._guard, translate_errors(self._server.name):
            self._wanted.discard(token)
            if self._is_connected():
                self._raw().execute(_RELEASE, [token])
            self._disconnect_if_idle()

    def is_held(self, token: int) -> bool:
        """Return whether a process on any host holds a token. Raises `StoreUnavailable` when the server is away."""
        with self._guard, translate_errors(self._server.name):
            row = self._raw().execute(_IS_HELD, {"token": token}).fetchone()
            self._disconnect_if_idle()
            return bool(row and row[0])

    def _is_connected(self) -> bool:
        return self._connection is not None and not has_ended(self._driver_of(self._connection))

    def _raw(self) -> psycopg.Connection[Any]:
        """Return the connection. After a restart of the server, a new connection takes all tokens again."""
        if self._connection is None or not self._is_connected():
            self._connection = None
            connection = self._server.engine.raw_connection()
            connection.detach()
            raw = self._driver_of(connection)
            raw.autocommit = True
            self._connection = connection
            for token in self._wanted:
                raw.execute(_HOLD, [token])
        return self._driver_of(self._connection)

    def _disconnect_if_idle(self) -> None:
        if self._connection is not None and not self._wanted:
            self._connection.close()
            self._connection = None

    @staticmethod
    def _driver_of(connection: PoolProxiedConnection) -> psycopg.Connection[Any]:
        raw = connection.dbapi_connection
        assert isinstance(raw, psycopg.Connection)
        return raw


class PostgresHeldClaims(HeldClaims):
    """Notes of claims that the processes of all hosts see; this process sees its own even without the database."""

    def __init__(self, path: Path, tokens: HeldTokens) -> None:
        super().__init__(path)
        self._held = tokens

    def note(self, token: int) -> None:
        """Note that this process has given up the claim of a token, or will settle it by itself."""
        super().note(token)
        # Without a connection nobody can take over the claim either; the next call takes the lock.
        with contextlib.suppress(ReverieError):
            self._held.hold(token)

    def forget(self, token: int) -> None:
        """Remove a note of this process, once its claim was settled in the store."""
        is_own = token in self.own()
        super().forget(token)
        if is_own:
            with contextlib.suppress(ReverieError):  # then the server has released it
                self._held.release(token)

    def is_noted(self, token: int) -> bool:
        """Return whether a living process has noted a token. Raises `StoreUnavailable` when the server is away."""
        return super().is_noted(token) or self._held.is_held(token)


# The longest time between the beginning of a write, when its time is noted, and its commit.
_WATCH_SECONDS: Final = 180.0
_WRITTEN: Final = """
    SELECT name FROM stores WHERE name <> %(account)s AND written_at >= to_timestamp(%(since)s)
"""


class PostgresWritten:
    """Knows which workspaces were written lately, by the database server's clock."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def note(self, name: str, *, keeps_schedules: bool = False) -> None:
        """Do nothing: each transaction that writes notes the workspace itself."""

    def since(self, moment: float | None, *, of_schedules: bool = False) -> tuple[set[str] | None, float]:
        """Return the workspaces that may have been written since a moment, or None for all of them, and a new moment.

        Pass the moment that the previous call returned, None at first.
        """
        with self._server.writing() as connection:
            now = float(connection.exec_driver_sql("SELECT extract(epoch FROM clock_timestamp())").scalar_one())
            if moment is None:
                return None, now
            values = {"account": ACCOUNT_STORE, "since": moment - _WATCH_SECONDS}
            return set(connection.exec_driver_sql(_WRITTEN, values).scalars()), now


# A workspace that another process deletes and creates again is found within this time; until then nothing is written.
_KNOWN_SECONDS: Final = 0.5
# The number of the advisory lock for making the identity of the database.
_IDENTITY_LOCK: Final = 0x5245_4944
_DELETED: Final = "DELETE FROM {table} WHERE store_id = %(store)s"


class WriteStamp(FileStamp):
    """The number of writes of a store, and the last time: an equal stamp proves that nothing was written."""

    __slots__ = ()

    @property
    def is_of_file(self) -> bool:
        """Return False: the size is a number of writes."""
        return False

    def is_settled(self, now: int) -> bool:
        """Return True: each write counts."""
        return True


class PostgresStores(Stores):
    """All stores of one database, for one process. Open it after a fork, never before."""

    def __init__(self, data_dir: Path, url: str, *, turns: int = TURNS) -> None:
        """`data_dir` is the folder of this host's files; `turns` as for `PostgresServer`."""
        KEPT.open(data_dir / "run" / FILE)
        self._server = PostgresServer(url, turns=turns)
        with ExitStack() as on_error:
            on_error.callback(self._server.close)
            prepare(self._server)
            on_error.pop_all()
        self._held = HeldTokens(self._server)
        self._guard = threading.RLock()
        # By name: the store, and when it was last found to exist.
        self._known: dict[str, tuple[Store, float]] = {}
        self._numbers: dict[str, int] = {}
        # The number of stores, and the newest, when this host's folders were last compared with them.
        self._folders_checked: tuple[int, ...] | None = None
        super().__init__(data_dir)
        self.written = PostgresWritten(self._server)

    def workspace(self, name: str, *, create: bool = True) -> Store:
        """Return the store of a workspace, created if needed. Raises `NotFound`."""
        with self._guard:
            known = self._known.get(name)
            if known is not None and time.monotonic() - known[1] < _KNOWN_SECONDS:
                return known[0]
        if name != ACCOUNT_STORE:
            check_workspace(name)
        number = self._number(name, create=create or name == ACCOUNT_STORE)
        if number is None:
            self._forget(name)
            raise NotFound(f"there is no workspace {name!r}", field="workspace")
        with self._guard:
            known = self._known.get(name, known)  # perhaps another thread has just opened it
            if known is not None and self._numbers.get(name) == number:
                store = known[0]
            else:
                path = self.database_path(name)
                self._make_folder(name, number, path.parent)
                database = PostgresDatabase(
                    self._server,
                    number,
                    path,
                    when_deleted=lambda: self._forget(name),
                    on_long_write=self._note_long_write,
                )
                held = partial(PostgresHeldClaims, tokens=self._held)
                store = Store(name, database, new_serial(), held, being_erased=partial(self.being_erased, name))
            self._known[name], self._numbers[name] = (store, time.monotonic()), number
            return store

    def account(self) -> StoreDatabase:
        """Return the account's part of the database, which is shared by all workspaces."""
        return self.workspace(ACCOUNT_STORE).database

    def account_store(self) -> Store:
        """Return the store of the account tier, whose memories are seen from every workspace."""
        return self.workspace(ACCOUNT_STORE)

    def names(self) -> list[str]:
        """Return the names of all workspaces."""
        return [name for name in self._names_by("name") if name != ACCOUNT_STORE]

    def all_names(self) -> list[str]:
        """Return the names of all stores: the account's, once it exists, and the workspaces'."""
        names = self._names_by("name")
        return [
            *([ACCOUNT_STORE] if ACCOUNT_STORE in names else []),
            *(name for name in names if name != ACCOUNT_STORE),
        ]

    def last_written(self) -> list[str]:
        """Return the names of all workspaces, those that were written last first."""
        return [name for name in self._names_by("written_at DESC") if name != ACCOUNT_STORE]

    def exists(self, name: str) -> bool:
        """Return whether a store exists."""
        return self._number(name, create=False) is not None

    def stamp(self, name: str) -> FileStamp | None:
        """Return when a store was last written; None when it does not exist."""
        sql = "SELECT writes, (extract(epoch FROM written_at) * 1000000000)::bigint FROM stores WHERE name = %(name)s"
        with self._server.writing() as connection:
            row = connection.exec_driver_sql(sql, {"name": name}).one_or_none()
        return None if row is None else WriteStamp(int(row[0]), int(row[1]), 0, 0)

    def is_idle(self, name: str, stages: Sequence[Stage]) -> bool:
        """Return whether a store has no work left."""
        with self.workspace(name, create=False).reading() as tx:
            return tx.work.is_idle(stages)

    def _read_briefly(self, name: str) -> AbstractContextManager[Connection]:
        return self.workspace(name, create=False).database.reading()

    def check_usable(self, name: str) -> None:
        """Do nothing: the schema of all stores was checked when the database was opened."""

    def delete_workspace(self, name: str, when_closed: Callable[[], None] = lambda: None) -> bool:
        """Delete a workspace with all that it holds, and its folder on this host; False when it does not exist.

        After a kill half-way, either all rows are there, or they are gone and `remove_deleted` removes the folder.
        """
        number = self._number(name, create=False)
        self._forget(name)
        if number is None:
            when_closed()
            return False
        path, deleted = self.database_path(name), None
        with PostgresDatabase(self._server, number, path).atomic() as connection:
            when_closed()
            for table in sorted(shared_tables() & tables().keys()):
                connection.exec_driver_sql(_DELETED.format(table=table), {"store": number})
            connection.exec_driver_sql("DELETE FROM stores WHERE id = %(store)s", {"store": number})
            if path.parent.exists():
                deleted = self._set_aside(path.parent)
        if deleted is not None:
            self._remove_set_aside(deleted)
        return True

    def file_of(self, name: str) -> str:
        """Return an id that distinguishes the store of a name from later ones; empty if there is none."""
        number = self._number(name, create=False)
        return "" if number is None else f"store {number}"

    def accept(self, name: str) -> Path | None:
        """Raise `Rejected`: a database server has no files that could be lost one by one."""
        raise Rejected(f"store {name!r} is in a database: restore it with the server's own tools", field="workspace")

    def is_read_only(self) -> bool:
        """Return whether the database can only be read, as on a standby."""
        with self._server.writing() as connection:
            return str(connection.exec_driver_sql("SHOW transaction_read_only").scalar()) == "on"

    def hosts(self) -> Hosts:
        """Return the hosts that share this database."""
        return Hosts(self._server, lambda: self._installation)

    def remove_foreign_folders(self) -> list[str]:
        """Remove from this host the folders of workspaces that were deleted on another one; return their names."""
        with self._server.writing() as connection:
            present = connection.exec_driver_sql("SELECT count(*), coalesce(max(id), 0) FROM stores").one()
        if self._folders_checked == tuple(present):  # no store was created or deleted since
            return []
        moved = move_foreign_folders(self.data_dir, self._installation, self._store_keys, self._set_aside)
        for folder in moved.values():
            self._remove_set_aside(folder)
        self._folders_checked = tuple(present)
        return sorted(moved)

    def installation(self) -> str:
        """Return the id of this database, which is made at the first call."""
        with self._server.writing() as connection:
            if connection.exec_driver_sql(f"SELECT to_regclass('{SCHEMA}.installation')").scalar() is not None:
                present = connection.exec_driver_sql("SELECT id FROM installation").scalar()
                if present is not None:  # a standby, which can only read, gets this far
                    return str(present)
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_IDENTITY_LOCK})")
            connection.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS {SCHEMA}.installation (id text NOT NULL)")
            connection.exec_driver_sql(
                "INSERT INTO installation (id) SELECT gen_random_uuid() WHERE NOT EXISTS (SELECT 1 FROM installation)"
            )
            return str(connection.exec_driver_sql("SELECT id FROM installation").scalar_one())

    def close(self) -> None:
        """Close every connection of this process."""
        with self._guard:
            self._known.clear()
        self._server.close()

    def _make_folder(self, name: str, number: int, folder: Path) -> None:
        """Make the folder of a store on this host; a folder of a deleted workspace of this name is removed before."""
        if name == ACCOUNT_STORE:
            make_folder(folder)
            return
        with self._server.writing() as connection:
            key = connection.exec_driver_sql("SELECT key FROM stores WHERE id = %(id)s", {"id": number}).scalar()
        if key is None:
            raise StoreUnavailable(f"{name} was deleted a moment ago: try again")
        moved = claim_folder(self.data_dir, folder, f"{self._installation} {key}", self._set_aside)
        if moved is not None:
            self._remove_set_aside(moved)

    def _store_keys(self) -> dict[str, str]:
        with self._server.writing() as connection:
            return {str(row[0]): str(row[1]) for row in connection.exec_driver_sql("SELECT name, key FROM stores")}

    @cached_property
    def _installation(self) -> str:
        return self.installation()

    def _forget(self, name: str) -> None:
        with self._guard:
            self._known.pop(name, None)

    def _number(self, name: str, *, create: bool) -> int | None:
        with self._server.writing() as connection:
            found = connection.exec_driver_sql("SELECT id FROM stores WHERE name = %(name)s", {"name": name}).scalar()
            if found is not None or not create:
                return None if found is None else int(found)
            sql = "INSERT INTO stores (name) VALUES (%(name)s) ON CONFLICT DO NOTHING RETURNING id"
            created = connection.exec_driver_sql(sql, {"name": name}).scalar()
            if created is not None:
                # In the same transaction: a store without its full-text index would be without it until upkeep.
                values = {"store": created, "version": newest_version()}
                connection.exec_driver_sql("SELECT begin_writing(%(store)s, 1000, %(version)s)", values)
                writer = connection.execution_options(**{STORE_OPTION: int(created)})
                create_missing_indexes(writer, time.time_ns() // 1_000)
                return int(created)
        return self._number(name, create=create)  # another process has just created it

    def _names_by(self, order: str) -> list[str]:
        with self._server.writing() as connection:
            return list(connection.exec_driver_sql(f"SELECT name FROM stores ORDER BY {order}").scalars())
