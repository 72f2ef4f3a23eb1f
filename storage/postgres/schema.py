"""The schema of a PostgreSQL database: created whole, in one transaction, by the process that comes first."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from sqlalchemy import Connection

from reverie.errors import StoreUnusable
from storage.migrate import newest_version
from storage.postgres.engine import SCHEMA, PostgresServer

OLDEST_POSTGRES: Final = 16
OLDEST_VECTOR: Final = (0, 8)
_FILE: Final = Path(__file__).with_name("schema.sql")
# The number of the advisory lock that processes hold while they create the schema.
_LOCK: Final = 0x5245_5645


def prepare(server: PostgresServer) -> None:
    """Create the schema if it is missing. Safe to repeat.

    Raises `StoreUnusable` when the server or pgvector is too old, the schema is of another version, or the user of the
    connection passes row-level security by, and `StoreUnavailable` when the server cannot be reached.
    """
    with server.writing() as connection:
        _check_server(connection)
        found = _version(connection)
        if found is None:
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
            found = _version(connection)
        if found is None:
            _create(connection)
        elif found != _newest():
            raise StoreUnusable(
                f"{server.name} has schema {found}, this version of Reverie has {_newest()}: use the same version"
                " on all hosts"
            )


def _newest() -> str:
    return f"{newest_version('workspace')}/{newest_version('account')}"


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


def _version(connection: Connection) -> str | None:
    if connection.exec_driver_sql(f"SELECT to_regclass('{SCHEMA}.schema_version')").scalar() is None:
        return None
    version: str | None = connection.exec_driver_sql("SELECT version FROM schema_version").scalar()
    return version


def _create(connection: Connection) -> None:
    version = connection.exec_driver_sql("SELECT extversion FROM pg_extension WHERE extname = 'vector'").scalar()
    if version is None:
        available = connection.exec_driver_sql(
            "SELECT default_version FROM pg_available_extensions WHERE name = 'vector'"
        ).scalar()
        if available is None:
            raise StoreUnusable(
                "the PostgreSQL server has no pgvector: install it (https://github.com/pgvector/pgvector)"
            )
        connection.exec_driver_sql("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        version = available
    if tuple(map(int, str(version).split(".")[:2])) < OLDEST_VECTOR:
        raise StoreUnusable(f"pgvector {version} is too old: 0.8 or newer is needed (ALTER EXTENSION vector UPDATE)")
    connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
    raw = connection.connection.driver_connection
    assert raw is not None
    raw.execute("SELECT set_config('reverie.store', '0', true)")
    raw.execute(_FILE.read_text(encoding="utf-8"))
    connection.exec_driver_sql("INSERT INTO schema_version (version) VALUES (%(version)s)", {"version": _newest()})
