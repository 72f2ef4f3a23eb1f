"""Runs tests that know nothing of it on PostgreSQL: `pytest --postgres`.

Whatever opens the stores of a data folder gets those of a database of that folder, in a server of this process; so do
processes that are spawned from it and import this package (`join_parent`). Tests look into tables with SQLite's SQL,
which is translated as that of the repositories is. Programs that tests start are told of the database of their data
folder (`support.started_on_postgres`). Tests of what only SQLite has carry the mark `sqlite` with the reason, and are
skipped.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from threading import RLock
from typing import Any, Final

import pytest
from sqlalchemy import Connection, CursorResult, TextClause

from storage.engines import OPTION
from storage.migrations import ACCOUNT_FILE
from storage.postgres.stores import PostgresStores
from storage.stores import Stores
from support.postgres import TestServer, create_database, drop_database, running_postgres, url_of_user
from support.started_on_postgres import redirect_started

_MARK: Final = re.compile(r"\?")
# Whose SQL is meant for the engine it runs on.
_ENGINES: Final = ("storage.", "sqlalchemy.", "support.on_postgres", "support.index_content")
# A database must be as fast to make and to write as a file, and need not outlive its server.
_FAST: Final = ("fsync = off", "full_page_writes = off", "synchronous_commit = off")
_FILES: Final = ("memory.db", ACCOUNT_FILE)
# Tells processes that a test spawns the superuser's address of the server, and the database that others are copies of.
_PARENT: Final = "TESTS_ON_POSTGRES"


class FolderDatabases:
    """The databases of data folders, each created when its folder is first opened."""

    def __init__(self) -> None:
        self._running = ExitStack()
        self._server: TestServer | None = None
        self._opened: set[Path] = set()
        self._lock = RLock()

    def url(self, folder: Path) -> str:
        """Return the address of a folder's database."""
        folder = folder.resolve()
        with self._lock:
            if self._server is None and _PARENT not in os.environ:
                self._start()
            admin_url, template = os.environ[_PARENT].split()
            if folder not in self._opened:
                create_database(admin_url, _name_of(folder), template)
                self._opened.add(folder)
            return url_of_user(admin_url, _name_of(folder))

    def copy(self, source: Path, target: Path) -> None:
        """Replace the database of a folder by a copy of another one, to which there is no connection."""
        with self._lock:
            self.url(source)
            admin_url, _ = os.environ[_PARENT].split()
            drop_database(admin_url, _name_of(target.resolve()))
            create_database(admin_url, _name_of(target.resolve()), _name_of(source.resolve()))
            self._opened.add(target.resolve())

    def drop(self, inside: Path | None = None) -> None:
        """Remove the databases of the folders inside of another one, or all."""
        with self._lock:
            for folder in [folder for folder in self._opened if inside is None or folder.is_relative_to(inside)]:
                assert self._server is not None
                self._server.drop(_name_of(folder))
                self._opened.remove(folder)

    def stop(self) -> None:
        """Stop the server and remove its files."""
        os.environ.pop(_PARENT, None)
        self._running.close()

    def _start(self) -> None:
        self._server = self._running.enter_context(running_postgres())
        with self._server.admin() as connection:
            for setting in _FAST:
                connection.execute(f"ALTER SYSTEM SET {setting}")
            connection.execute("SELECT pg_reload_conf()")
        os.environ[_PARENT] = f"{self._server.admin_url()} {self._server.template}"


def _name_of(folder: Path) -> str:
    """Return the name of a folder's database, the same in each process."""
    return f"t{blake2b(os.fsencode(folder), digest_size=16).hexdigest()}"


databases: Final = FolderDatabases()


class FolderStores(PostgresStores):
    """The stores of a data folder's database, opened with the arguments of `Stores`."""

    def __init__(
        self, data_dir: Path, *, patience_seconds: float | None = None, connections: int | None = None
    ) -> None:
        super().__init__(data_dir, databases.url(data_dir))


def pytest_configure(config: pytest.Config) -> None:
    """Have all stores of this process be stores of PostgreSQL, and translate the SQL of tests."""
    patch = pytest.MonkeyPatch()
    config.add_cleanup(databases.stop)
    config.add_cleanup(patch.undo)
    _redirect(patch)


def join_parent() -> None:
    """Do the same in a process that a test has spawned."""
    if _PARENT in os.environ:
        _redirect(pytest.MonkeyPatch())


def _redirect(patch: pytest.MonkeyPatch) -> None:
    def new(kind: type[Stores], *_args: Any, **_options: Any) -> Stores:
        return object.__new__(FolderStores if kind is Stores else kind)

    patch.setattr(Stores, "__new__", new)
    redirect_started(patch, databases.url)
    patch.setattr(Connection, "execute", _translated_execute(Connection.execute))
    patch.setattr(Connection, "exec_driver_sql", _translated_driver_sql(Connection.exec_driver_sql))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests of what only SQLite has."""
    for item in items:
        mark = item.get_closest_marker("sqlite")
        if mark is not None:
            item.add_marker(pytest.mark.skip(reason=f"SQLite alone: {mark.args[0]}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Remove the databases of a test after it, and those of its module after the last one.

    Raises `AssertionError` when a store was kept in a file: such a test says nothing of PostgreSQL.
    """
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    in_files = [] if folder is None else [path for path in folder.rglob("*.db") if path.name in _FILES]
    yield
    if folder is not None:
        databases.drop(folder.resolve())
    if nextitem is None or nextitem.path != item.path:
        databases.drop()
    assert not in_files, f"{in_files[0]} is a file: name the data folder by --data or REVERIE_DATA, or mark the test"


def _translated_execute(original: Any) -> Any:
    def execute(self: Connection, statement: Any, parameters: Any = None, **options: Any) -> CursorResult[Any]:
        dialect = self.get_execution_options().get(OPTION)
        if dialect is None or not isinstance(statement, TextClause) or _is_engine(sys._getframe(1).f_globals):
            return original(self, statement, parameters, **options)  # type: ignore[no-any-return]
        if isinstance(parameters, list):
            return dialect.execute_many(self, statement.text, parameters)  # type: ignore[no-any-return]
        return dialect.execute(self, statement.text, dict(parameters or {}))  # type: ignore[no-any-return]

    return execute


def _translated_driver_sql(original: Any) -> Any:
    def exec_driver_sql(self: Connection, sql: str, parameters: Any = None, **options: Any) -> CursorResult[Any]:
        dialect = self.get_execution_options().get(OPTION)
        if dialect is None or _is_engine(sys._getframe(1).f_globals):
            return original(self, sql, parameters, **options)  # type: ignore[no-any-return]
        names = iter(range(sys.maxsize))
        named = _MARK.sub(lambda _mark: f":value_{next(names)}", sql)
        if isinstance(parameters, list):
            return dialect.execute_many(self, named, [_by_name(row) for row in parameters])  # type: ignore[no-any-return]
        return dialect.execute(self, named, _by_name(parameters or ()))  # type: ignore[no-any-return]

    return exec_driver_sql


def _by_name(parameters: Any) -> Mapping[str, Any]:
    if isinstance(parameters, Mapping):
        return parameters
    return {f"value_{place}": value for place, value in enumerate(parameters)}


def _is_engine(caller: Mapping[str, Any]) -> bool:
    """Return whether a statement comes from a module that writes it for its engine."""
    return str(caller["__name__"]).startswith(_ENGINES)
