"""Turns a store that the newest code has written into one of an older version, by undoing what its migrations made."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from storage import migrate
from storage.engine import Database
from storage.migrate import LINES

_SCRIPTS = Path(migrate.__file__).parent / "migrations"
# Made by the code that builds indexes, not by migrations.
_BUILT = ("chunks_fts_", "chunks_index_", "sqlite_")
_Schema = dict[tuple[str, str], str]


def made_older(database: Database, version: str) -> None:
    """Give a workspace's file the schema that this version of the migrations makes, keeping the rows that fit it."""
    with TemporaryDirectory() as folder:
        reference = Database(Path(folder) / "older.db")
        upgraded(reference, version)
        with reference.reading() as older, database.atomic() as connection:
            wanted = _schema(older)
            for kind in ("view", "trigger", "index", "table"):
                _drop_unwanted(connection, kind, wanted)
            for name in [name for kind, name in wanted if kind == "table"]:
                _drop_columns(connection, name, _columns(older, name))
            _rewrite_tables(connection, wanted)
            for kind in ("index", "view", "trigger"):
                for (of_kind, name), sql in wanted.items():
                    if of_kind == kind and (kind, name) not in _schema(connection):
                        connection.exec_driver_sql(sql)
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = ?", (version,))
            assert _schema(connection) == wanted
        reference.close()


def upgraded(database: Database, version: str) -> None:
    """Apply the migrations of a workspace up to this version."""
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS / "workspace"))
    config.attributes["version_table"] = LINES["workspace"]["workspace"]
    with database.engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, version)
        connection.commit()


def _schema(connection: Connection) -> _Schema:
    rows = connection.exec_driver_sql("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {(kind, name): sql for kind, name, sql in rows if not name.startswith(_BUILT)}


def _drop_unwanted(connection: Connection, kind: str, wanted: _Schema) -> None:
    """Drop what the older version lacks; also all triggers, and indexes of other columns, to be made again."""
    for (of_kind, name), sql in _schema(connection).items():
        as_wanted = kind == "table" or (kind == "index" and wanted.get((kind, name)) == sql)
        if of_kind == kind and not ((kind, name) in wanted and as_wanted):
            connection.exec_driver_sql(f"DROP {kind.upper()} {name}")


def _columns(connection: Connection, table: str) -> list[str]:
    # Generated columns too; the newest first, as they may be made from others.
    return list(connection.exec_driver_sql(f"SELECT name FROM pragma_table_xinfo('{table}')").scalars())[::-1]


def _drop_columns(connection: Connection, table: str, wanted: list[str]) -> None:
    for column in _columns(connection, table):
        if column not in wanted:
            connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")
    assert _columns(connection, table) == wanted


def _rewrite_tables(connection: Connection, wanted: _Schema) -> None:
    """Give the tables their former checks, which cannot be altered, in the way of migration 0006."""
    version = int(connection.exec_driver_sql("PRAGMA schema_version").scalar_one())
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    for (kind, name), sql in wanted.items():
        if kind == "table":
            connection.exec_driver_sql(
                "UPDATE sqlite_master SET sql = ? WHERE type = 'table' AND name = ?", (sql, name)
            )
    connection.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema = RESET")
