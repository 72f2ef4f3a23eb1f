"""The stores of a PostgreSQL database: workspaces and the account, each a number in every row of shared tables."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import Final

from sqlalchemy import Connection

from reverie.calls import Resource
from reverie.checks import check_workspace
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, StoreUnavailable
from storage.engines import StoreDatabase
from storage.pipeline.work import Stage
from storage.postgres.columns import shared_tables, tables
from storage.postgres.engine import SCHEMA, PostgresDatabase, PostgresServer
from storage.postgres.folders import claim_folder, make_folder, move_foreign_folders
from storage.postgres.held_claims import HeldTokens, PostgresHeldClaims
from storage.postgres.hosts import PostgresHosts
from storage.postgres.positional import PositionalConnection
from storage.postgres.schema import prepare
from storage.postgres.turns import TURNS
from storage.postgres.written import PostgresWritten
from storage.recall.index import create_missing_indexes
from storage.status import AgentCounts, StoreCounts, agents_of, counts_of
from storage.store import Store, new_serial
from storage.stores import FileStamp, Stores
from storage.trust.amounts import stored_amounts
from storage.trust.hosts import Hosts

# A workspace that another process deletes and creates again is found within this time; until then nothing is written.
_KNOWN_SECONDS: Final = 0.5
# The number of the advisory lock of whoever makes the identity of the database.
_IDENTITY_LOCK: Final = 0x5245_4944
_DELETED: Final = "DELETE FROM {table} WHERE store_id = %(store)s"


class WriteStamp(FileStamp):
    """How often a store was written, and when: an equal stamp proves that nothing was written."""

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
        """`data_dir` is where this host keeps what is not in the database; `turns` as for `PostgresServer`."""
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
        # How many stores there were, and the newest, when the folders of this host were compared with them.
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
            if known is not None and self._numbers.get(name) == number:
                store = known[0]
            else:
                path = self.database_path(name)
                self._make_folder(name, number, path.parent)
                database = PostgresDatabase(self._server, number, path, when_deleted=lambda: self._forget(name))
                store = Store(name, database, new_serial(), partial(PostgresHeldClaims, tokens=self._held))
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

    def counts(self, name: str) -> StoreCounts:
        """Return the counts of a store. Raises `NotFound` and `StoreUnavailable`."""
        with self.workspace(name, create=False).database.reading() as connection:
            return counts_of(PositionalConnection(connection))

    def agents(self, name: str, *, now: int) -> list[AgentCounts]:
        """Return the agents of a store by name; `now` is in microseconds. Raises the errors of `counts`."""
        with self.workspace(name, create=False).database.reading() as connection:
            return agents_of(PositionalConnection(connection), now)

    def amounts(self, name: str) -> Mapping[Resource, int]:
        """Return how much a workspace holds of what quotas limit. Raises the errors of `counts`."""
        with self.workspace(name, create=False).database.reading() as connection:
            return stored_amounts(connection)

    def check_usable(self, name: str) -> None:
        """Do nothing: the schema of all stores was checked when the database was opened."""

    def delete_workspace(self, name: str, when_closed: Callable[[], None] = lambda: None) -> bool:
        """Delete a workspace with all that it holds, and its folder on this host; False when it does not exist.

        Killed half-way, either its rows are there, or they are gone and `remove_deleted` removes what is left of the
        folder.
        """
        number = self._number(name, create=False)
        self._forget(name)
        if number is None:
            when_closed()
            return False
        path, deleted = self.database_path(name), None
        with PostgresDatabase(self._server, number, path).atomic() as connection:
            when_closed()
            _delete_rows(connection, number)
            if path.parent.exists():
                deleted = self._set_aside(path.parent)
        if deleted is not None:
            self._remove_set_aside(deleted)
        return True

    def file_of(self, name: str) -> str:
        """Return what tells the present store of a name from a later one in its place; empty without one."""
        number = self._number(name, create=False)
        return "" if number is None else f"store {number}"

    def is_read_only(self) -> bool:
        """Return whether the database can only be read, as on a standby."""
        with self._server.writing() as connection:
            return str(connection.exec_driver_sql("SHOW transaction_read_only").scalar()) == "on"

    def hosts(self) -> Hosts:
        """Return the hosts that share this database."""
        return PostgresHosts(self._server, lambda: self._installation)

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
        """Return what tells this database from all others; it is made when it is first asked for."""
        with self._server.writing() as connection:
            if connection.exec_driver_sql(f"SELECT to_regclass('{SCHEMA}.installation')").scalar() is not None:
                present = connection.exec_driver_sql("SELECT id FROM installation").scalar()
                if present is not None:  # also on a standby, which can make none
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
        """Make the folder of a store on this host; one of a deleted workspace of this name is removed before."""
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
        if created is None:  # another process has just created it
            return self._number(name, create=create)
        with PostgresDatabase(self._server, int(created), self.database_path(name)).atomic() as connection:
            create_missing_indexes(connection, time.time_ns() // 1_000)
        return int(created)

    def _names_by(self, order: str) -> list[str]:
        with self._server.writing() as connection:
            return list(connection.exec_driver_sql(f"SELECT name FROM stores ORDER BY {order}").scalars())


def _delete_rows(connection: Connection, number: int) -> None:
    for table in sorted(shared_tables() & tables().keys()):
        connection.exec_driver_sql(_DELETED.format(table=table), {"store": number})
    connection.exec_driver_sql("DELETE FROM stores WHERE id = %(store)s", {"store": number})
