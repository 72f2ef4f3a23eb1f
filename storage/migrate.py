"""Bring a database file to the newest schema, each migration in a transaction of its own.

Two processes that open a new file at once take turns by a lock file; the second finds the work done.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final, Literal

from filelock import FileLock
from sqlalchemy import Connection, text

from reverie.errors import StoreUnusable
from storage.engine import Database, translated

Kind = Literal["workspace", "account"]

_SCRIPTS: Final = Path(__file__).parent / "migrations"


def schema_version(database: Database) -> str | None:
    """The newest migration that the file has, or None for a file without any."""
    with database.reading() as connection:
        return _version(connection)


def newest_version(kind: Kind) -> str:
    """The newest migration that this code knows."""
    return _history(kind)[-1]


def migrate(database: Database, kind: Kind) -> list[str]:
    """Apply what is missing and return the versions applied.

    Raises `StoreUnusable` when the file is newer than this code, and `StoreUnavailable` when it cannot be written now.
    Running it again does nothing.
    """
    history = _history(kind)
    version = schema_version(database)
    if version == history[-1]:
        return []
    refuse_newer(database.path, kind, version)
    with FileLock(f"{database.path}.migrate.lock", mode=0o600):
        if schema_version(database) == version:
            _run(database, kind)
            return list(history[history.index(version) + 1 :] if version else history)
    return migrate(database, kind)  # another process was here first


def refuse_newer(path: Path, kind: Kind, version: str | None) -> None:
    """Raise `StoreUnusable` when a file has a migration that this code does not know."""
    history = _history(kind)
    if version is not None and version not in history:
        raise StoreUnusable(
            f"{path} has schema {version}, newer than {history[-1]}, the newest of this version: upgrade Reverie"
        )


def _run(database: Database, kind: Kind) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS / kind))
    with translated(database.path), database.engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
        connection.commit()


@cache
def _history(kind: Kind) -> tuple[str, ...]:
    """Versions, oldest first. They are read from the file names: alembic is slow to import where nothing is to do."""
    return tuple(sorted(path.name.split("_")[0] for path in (_SCRIPTS / kind / "versions").glob("[0-9]*_*.py")))


def _version(connection: Connection) -> str | None:
    exists = connection.execute(text("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'")).scalar()
    if not exists:
        return None
    version = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return str(version) if version else None
