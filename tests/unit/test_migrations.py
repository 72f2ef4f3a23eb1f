"""The schema of a file: the same however it came about, and nothing half done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import text

from reverie.errors import StoreUnavailable
from storage import migrate
from storage.engine import Database
from storage.migrate import LINES, newest_version, schema_version
from storage.migrate import migrate as bring_up_to_date
from storage.migrations.recorders import record_added_columns
from storage.recall import index
from storage.stores import Stores

pytestmark = pytest.mark.sqlite("migrations of its files")

SCRIPTS = Path(migrate.__file__).parent / "migrations"
KINDS: tuple[Literal["workspace", "account"], ...] = ("workspace", "account")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty database file."""
    database = Database(tmp_path / "some.db")
    yield database
    database.close()


def schema(database: Database) -> list[tuple[str, ...]]:
    with database.reading() as connection:
        rows = connection.execute(text("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"))
        return sorted(tuple(row) for row in rows)


@pytest.mark.parametrize("kind", KINDS)
def test_the_newest_version_by_file_name_is_the_head_that_alembic_knows(
    kind: Literal["workspace", "account"],
) -> None:
    """Given the migrations of a kind, then names and alembic agree on one newest, so neither is skipped."""
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS / kind))
    assert ScriptDirectory.from_config(config).get_heads() == [newest_version(kind)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_fresh_and_an_upgraded_file_have_the_same_schema(
    tmp_path: Path, kind: Literal["workspace", "account"]
) -> None:
    """Given one file made at once and one migrated version by version, then nothing tells them apart."""
    from alembic import command

    fresh, upgraded = Database(tmp_path / "fresh.db"), Database(tmp_path / "upgraded.db")
    bring_up_to_date(fresh, kind)
    for line, table in LINES[kind].items():
        config = Config()
        config.set_main_option("script_location", str(SCRIPTS / line))
        config.attributes["version_table"] = table
        for path in sorted((SCRIPTS / line / "versions").glob("[0-9]*_*.py")):
            with upgraded.engine.connect() as connection:
                config.attributes["connection"] = connection
                command.upgrade(config, path.name.split("_")[0])
                connection.commit()
    assert schema(fresh) == schema(upgraded)
    assert schema_version(fresh) == schema_version(upgraded) == newest_version(kind)
    fresh.close()
    upgraded.close()


@pytest.mark.parametrize("kind", KINDS)
def test_migrating_twice_does_nothing_the_second_time(
    database: Database, kind: Literal["workspace", "account"]
) -> None:
    """Given a file that is up to date, when it is migrated again, then nothing is applied."""
    assert bring_up_to_date(database, kind)
    before = schema(database)
    assert bring_up_to_date(database, kind) == []
    assert schema(database) == before


def test_a_migration_that_fails_leaves_no_table_behind(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a migration that breaks in its last step, when it is run again, then the file comes out whole."""

    def break_off(*_: object) -> None:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(index, "create_missing_indexes", break_off)
    with pytest.raises(StoreUnavailable):
        bring_up_to_date(database, "workspace")
    assert schema_version(database) is None
    assert {row[1] for row in schema(database)} <= {"alembic_version", "sqlite_autoindex_alembic_version_1"}

    monkeypatch.undo()
    assert bring_up_to_date(database, "workspace")[-1] == newest_version("workspace")


def test_a_store_has_its_full_text_index_in_the_same_moment_as_its_tables(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a process killed right after the migration, when the next opens the file, then words can be found."""
    bring_up_to_date(database, "workspace")
    with database.reading() as connection:
        assert index.SearchIndex(connection).active("text") is not None


def test_a_new_workspace_gives_free_pages_back_step_by_step(tmp_path: Path) -> None:
    """Given a new file, then vacuum is incremental: it can only be chosen before the first table."""
    stores = Stores(tmp_path)
    with stores.workspace("ws").database.autocommit() as raw:
        assert raw.execute("PRAGMA auto_vacuum").fetchone()[0] == 2
    stores.close()


def test_a_file_that_another_process_holds_is_a_passing_failure(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a new file under another's write lock, when it is migrated, then the error is ours: try again later."""
    monkeypatch.setattr("storage.engine.BUSY_TIMEOUT_MILLISECONDS", 50)
    other = Database(database.path)
    with other.atomic(), pytest.raises(StoreUnavailable):
        bring_up_to_date(database, "account")
    other.close()


def test_an_undo_restores_a_column_that_a_migration_added(database: Database) -> None:
    """Given a column added to memories, when what follows from a migration is done, then the log records the column."""
    bring_up_to_date(database, "workspace")
    before = recorders(database)
    with database.engine.begin() as connection:
        record_added_columns(connection)
    unchanged = recorders(database)
    with database.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE memories ADD COLUMN mood TEXT")
        record_added_columns(connection)
    changed = {name for name, sql in recorders(database).items() if "'mood', " in sql}

    assert unchanged == before
    assert changed == {"memories_insert_recorded", "memories_update_recorded", "memories_delete_recorded"}


def recorders(database: Database) -> dict[str, str]:
    return {name: sql for kind, name, _, sql in schema(database) if kind == "trigger" and name.endswith("_recorded")}
