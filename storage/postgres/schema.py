"""The schema of a PostgreSQL database: the first process creates or migrates it, in one transaction."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, exc

from reverie.errors import StoreUnavailable, StoreUnusable
from storage.migrations import oldest_program
from storage.postgres.engine import SCHEMA, PostgresServer
from storage.postgres.errors import is_locked
from storage.postgres.migrations import FIRST, migrations, newest_version

OLDEST_POSTGRES: Final = 16
OLDEST_VECTOR: Final = (0, 8)
_FILE: Final = Path(__file__).with_name("schema.sql")
# The number of the advisory lock that processes hold while they create or migrate the schema.
_LOCK: Final = 0x5245_5645
# A migration waits for users of a table in attempts of this length, with pauses in which others can go on.
MIGRATION_WAIT_SECONDS: Final = 30.0
_ATTEMPT_MILLISECONDS: Final = 500
_BETWEEN_ATTEMPTS_SECONDS: Final = 0.5


def prepare(server: PostgresServer) -> None:
    """Create the schema if it is missing, and bring an older one to the newest version. Safe to repeat.

    Raises `StoreUnusable` when the server or pgvector is too old, the schema is newer, or the user of the connection
    passes row-level security by, and `StoreUnavailable` when the server cannot be reached, or others use the tables.
    """
    check_sessions(server)
    with server.writing() as connection:
        _check_server(connection)
        found = _version(connection)
    if found is None:
        found = _create_once(server)
    if found > newest_version() and _oldest_program(server) > newest_version():
        raise StoreUnusable(
            f"{server.name} has schema {found}, newer than {newest_version()}, the newest of this version: upgrade"
            " Reverie on this host"
        )
    for version, file in migrations().items():
        if version > found:
            _migrate(server, version, file)


def check_sessions(server: PostgresServer) -> None:
    """Refuse a pooler that gives each transaction a session of its own, in which prepared statements are missing.

    Raises `StoreUnusable`. Behind a pooler the server's process is not the one that the client was told of. Then one
    connection notes something in its session, and while another is within a transaction both look for it: if sessions
    are shared, the other one has this session by now, or the first one gets a third.
    """
    with server.connect() as connection:
        first = connection.connection.driver_connection
        assert first is not None
        if first.execute("SELECT pg_backend_pid()").fetchone() == (first.info.backend_pid,):
            return
        with server.connect() as other:
            second = other.connection.driver_connection
            assert second is not None
            token = uuid.uuid4().hex
            first.execute("SELECT set_config('reverie.session', %s, false)", [token])
            first.commit()
            noted = "SELECT current_setting('reverie.session', true)"
            of_second, of_first = (one.execute(noted).fetchone() for one in (second, first))
            if of_second == (token,) or of_first != (token,):
                raise StoreUnusable(
                    f"{server.name} is behind a pooler that gives each transaction another session: set"
                    " `pool_mode = session` in PgBouncer, or name the address of PostgreSQL itself"
                )


def _create_once(server: PostgresServer) -> int:
    """Create the schema, unless another process has just done it; return its version."""
    with server.writing() as connection:
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
        found = _version(connection)
        if found is None:
            _create(connection)
        return found or newest_version()


def _migrate(server: PostgresServer, version: int, file: Path) -> None:
    """Apply one migration and record it, unless another process has just done it.

    It waits for locks in short attempts: everybody who needs the table meanwhile waits behind it.
    """
    deadline = time.monotonic() + MIGRATION_WAIT_SECONDS
    while not _try_to_migrate(server, version, file, last_attempt=time.monotonic() >= deadline):
        time.sleep(_BETWEEN_ATTEMPTS_SECONDS)


def _try_to_migrate(server: PostgresServer, version: int, file: Path, *, last_attempt: bool) -> bool:
    """Return True once the schema has the migration; False if others used the tables in an attempt but the last."""
    try:
        with server.writing() as connection:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
            if (_version(connection) or 0) >= version:
                return True
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_ATTEMPT_MILLISECONDS}ms'")
            _run_file(connection, file)
            connection.exec_driver_sql(
                "UPDATE schema_version SET version = %(version)s, oldest_program = %(oldest)s",
                {"version": version, "oldest": int(oldest_program(file))},
            )
            return True
    except StoreUnavailable as error:
        if is_locked(error):
            if not last_attempt:
                return False
            raise StoreUnavailable(
                f"{server.name} cannot be brought to schema {version} while others use it: stop Reverie on all hosts,"
                " then start the new version"
            ) from error
        raise


def _run_file(connection: Connection, file: Path) -> None:
    raw = connection.connection.driver_connection
    assert raw is not None
    raw.execute("SELECT set_config('reverie.store', '0', true)")
    raw.execute(file.read_text(encoding="utf-8"))


def _check_server(connection: Connection) -> None:
    number = int(connection.exec_driver_sql("SHOW server_version_num").scalar_one())
    if number // 10_000 < OLDEST_POSTGRES:
        raise StoreUnusable(f"PostgreSQL {number // 10_000} is too old: {OLDEST_POSTGRES} or newer is needed")
    row = connection.exec_driver_sql(
        "SELECT rolname, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
    ).one()
    if row[1]:
        raise StoreUnusable(
            f"the PostgreSQL user {row[0]} passes row-level security by, so nothing would keep workspaces apart in the"
            f" database: connect as a user without SUPERUSER and BYPASSRLS, who owns the database"
        )
    _check_vector(connection)


def _version(connection: Connection) -> int | None:
    if connection.exec_driver_sql(f"SELECT to_regclass('{SCHEMA}.schema_version')").scalar() is None:
        return None
    version = connection.exec_driver_sql("SELECT version FROM schema_version").scalar()
    if not isinstance(version, int) or version < FIRST:
        raise StoreUnusable(
            f"the database has schema {version} of an unreleased version of Reverie, not {newest_version()}: copy its"
            " content with that version to SQLite files (`reverie db copy`), and from there to a new database"
        )
    return version


def _oldest_program(server: PostgresServer) -> int:
    with server.writing() as connection:
        return int(connection.exec_driver_sql("SELECT oldest_program FROM schema_version").scalar_one())


def _create(connection: Connection) -> None:
    if _vector_version(connection) is None:
        _enable_vector(connection)
        _check_vector(connection)
    connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    _run_file(connection, _FILE)
    newest = newest_version()
    values = {"version": newest, "oldest": int(oldest_program(migrations()[newest])) if newest > FIRST else FIRST}
    sql = "INSERT INTO schema_version (version, oldest_program) VALUES (%(version)s, %(oldest)s)"
    connection.exec_driver_sql(sql, values)


def _check_vector(connection: Connection) -> None:
    version = _vector_version(connection)
    if version is not None and tuple(map(int, version.split(".")[:2])) < OLDEST_VECTOR:
        raise StoreUnusable(
            f"pgvector {version} is too old: {'.'.join(map(str, OLDEST_VECTOR))} or newer is needed. Install it on the"
            " server, then run in this database: ALTER EXTENSION vector UPDATE"
        )


def _vector_version(connection: Connection) -> str | None:
    version: str | None = connection.exec_driver_sql(
        "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    ).scalar()
    return version


def _enable_vector(connection: Connection) -> None:
    available = "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"
    if connection.exec_driver_sql(available).scalar() is None:
        raise StoreUnusable("the PostgreSQL server has no pgvector: install it (https://github.com/pgvector/pgvector)")
    try:
        with connection.begin_nested():
            connection.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
    except exc.ProgrammingError as error:
        raise StoreUnusable(
            "pgvector is not enabled in this database, and this user may not do it: have a superuser run there:"
            " CREATE EXTENSION vector"
        ) from error
