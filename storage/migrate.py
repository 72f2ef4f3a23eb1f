"""Migrates a database file to the newest schema, each migration in a transaction of its own.

A lock file serialises processes that open a new file at once; the second finds nothing left to do.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final, Literal

from filelock import FileLock
from sqlalchemy import Connection, text

from reverie.errors import StoreUnusable
from storage.engine import Database, translate_errors

Kind = Literal["workspace", "account"]

ACCOUNT_FILE: Final = "account.db"
_SCRIPTS: Final = Path(__file__).parent / "migrations"
# The lines of migrations that each kind of file has, and the table that holds the version of each. The account's file
# has all tables of a workspace, because it has memories too, and tables of its own.
LINES: Final[dict[Kind, dict[Kind, str]]] = {
    "workspace": {"workspace": "alembic_version"},
    "account": {"account": "alembic_version", "workspace": "memory_version"},
}


def schema_version(database: Database) -> str | None:
    """Return the newest migration that was applied to the file, or None without any."""
    with database.reading() as connection:
        return _version(connection, "alembic_version")


def newest_version(kind: Kind) -> str:
    """Return the newest migration that this code has."""
    return _history(kind)[-1]


def schema_of(path: Path) -> tuple[str, str]:
    """Return the table with the version of a store's own tables, and the newest version of them."""
    return ("memory_version" if path.name == ACCOUNT_FILE else "alembic_version"), newest_version("workspace")


def migrate(database: Database, kind: Kind) -> list[str]:
    """Apply missing migrations and return their versions. Safe to repeat.

    Raises `StoreUnusable` when the file is newer than this code, and `StoreUnavailable` when it cannot be written now.
    """
    applied: list[str] = []
    for line, table in LINES[kind].items():
        applied += _migrate_line(database, line, table)
    return applied


def _migrate_line(database: Database, line: Kind, table: str) -> list[str]:
    history = _history(line)
    version = _read_version(database, table)
    if version == history[-1]:
        return []
    check_not_newer(database.path, line, version)
    with FileLock(f"{database.path}.migrate.lock", mode=0o600):
        if _read_version(database, table) == version:
            _run(database, line, table)
            return list(history[history.index(version) + 1 :] if version else history)
    return _migrate_line(database, line, table)  # another process migrated it meanwhile


def check_not_newer(path: Path, kind: Kind, version: str | None) -> None:
    """Raise `StoreUnusable` when a file has a migration that this code does not have."""
    history = _history(kind)
    if version is not None and version not in history:
        raise StoreUnusable(
            f"{path} has schema {version}, newer than {history[-1]}, the newest of this version: upgrade Reverie"
        )


def _run(database: Database, line: Kind, table: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS / line))
    with translate_errors(database.path), database.engine.connect() as connection:
        config.attributes["connection"] = connection
        config.attributes["version_table"] = table
        command.upgrade(config, "head")
        connection.commit()


@cache
def _history(kind: Kind) -> tuple[str, ...]:
    """Return the versions, oldest first, from the file names: importing alembic is slow and seldom needed."""
    return tuple(sorted(path.name.split("_")[0] for path in (_SCRIPTS / kind / "versions").glob("[0-9]*_*.py")))


def _read_version(database: Database, table: str) -> str | None:
    with database.reading() as connection:
        return _version(connection, table)


def _version(connection: Connection, table: str) -> str | None:
    exists = connection.execute(text("SELECT 1 FROM sqlite_master WHERE name = :table"), {"table": table}).scalar()
    if not exists:
        return None
    version = connection.execute(text(f"SELECT version_num FROM {table}")).scalar()
    return str(version) if version else None
