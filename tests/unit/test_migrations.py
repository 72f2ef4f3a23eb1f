"""The schema of a file: the same however it came about, and nothing half done."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from reverie.errors import StoreUnavailable, StoreUnusable
from storage import migrations, opening
from storage.engine import Database
from storage.index.search_index import SearchIndex
from storage.migrations import LINES, Kind, newest_version, read_versions, scripts
from storage.migrations.triggers import make_recorders
from storage.opening import migrate
from storage.stores import Stores

pytestmark = pytest.mark.sqlite("migrations of its files")

KINDS: tuple[Kind, ...] = ("workspace", "account")
RELEASED = newest_version("workspace")
# The two versions after those that there are.
NEXT, AFTER_NEXT = (f"{int(RELEASED) + steps:04}" for steps in (1, 2))
# A later version adds a column and an index, and then fails or is killed.
MOODS = (
    "-- How it felt.\nALTER TABLE memories ADD COLUMN felt TEXT;\nCREATE INDEX memories_by_felt ON memories (felt);\n"
)
KILLED = """
import os, signal, sys
from pathlib import Path
from storage import migrations, opening
from storage.engine import Database
migrations._FOLDER = Path(sys.argv[1])
opening.make_triggers = lambda _: os.kill(os.getpid(), signal.SIGKILL)
opening.migrate(Database(Path(sys.argv[2])), "workspace")
"""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty database file."""
    database = Database(tmp_path / "some.db")
    yield database
    database.close()


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the migrations of a later version: the test writes them."""
    folder = tmp_path / "migrations"
    for line in KINDS:
        (folder / line).mkdir(parents=True)
        for path in scripts(line).values():
            (folder / line / path.name).write_text(path.read_text())
    monkeypatch.setattr(migrations, "_FOLDER", folder)
    scripts.cache_clear()
    yield folder
    monkeypatch.undo()
    scripts.cache_clear()


def release(folder: Path, script: str, version: str = NEXT) -> None:
    (folder / "workspace" / f"{version}_later.sql").write_text(script)
    scripts.cache_clear()


def released(kind: Kind) -> list[str]:
    """Return the versions that a new file goes through."""
    return [version for line in LINES[kind] for version in scripts(line)]


def schema(database: Database) -> list[tuple[str, ...]]:
    with database.reading() as connection:
        rows = connection.execute(text("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_master"))
        return sorted(tuple(row) for row in rows)


def versions(database: Database) -> dict[str, str]:
    with database.reading() as connection:
        return read_versions(connection.exec_driver_sql)


def recording(database: Database) -> dict[str, str]:
    """Return the triggers of a connection that records changes, by name."""
    with database.atomic() as connection:
        make_recorders(connection)
        rows = connection.exec_driver_sql("SELECT name, sql FROM sqlite_temp_schema WHERE type = 'trigger'")
        return dict([tuple(row) for row in rows])


@pytest.mark.parametrize("kind", KINDS)
def test_a_fresh_and_an_upgraded_file_have_the_same_schema(tmp_path: Path, later: Path, kind: Kind) -> None:
    """Given one file made at once and one of the version before with a row, then only the row tells them apart."""
    upgraded = Database(tmp_path / "upgraded.db")
    assert migrate(upgraded, kind) == released(kind)
    with upgraded.engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO channels (id, agent_id, created_at) VALUES ('c', 'a', 1)")
    release(later, MOODS)
    release(later, "UPDATE memories SET felt = 'a; b';\nDROP INDEX memories_by_felt;\n", AFTER_NEXT)
    fresh = Database(tmp_path / "fresh.db")
    migrate(fresh, kind)

    assert migrate(upgraded, kind) == [NEXT, AFTER_NEXT]
    assert schema(fresh) == schema(upgraded)
    assert versions(fresh) == versions(upgraded) == {line: newest_version(line) for line in LINES[kind]}
    with upgraded.reading() as connection:
        assert connection.exec_driver_sql("SELECT id FROM channels").scalars().all() == ["c"]
    fresh.close()
    upgraded.close()


@pytest.mark.parametrize("kind", KINDS)
def test_migrating_twice_does_nothing_the_second_time(database: Database, kind: Kind) -> None:
    """Given a file that is up to date, when it is migrated again, then nothing is applied."""
    assert migrate(database, kind)
    before = schema(database)
    assert migrate(database, kind) == []
    assert schema(database) == before


def test_an_older_program_goes_on_if_a_migration_says_so(
    database: Database, later: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a migration that the program before it can live with, when that program opens the file, then it may use it;
    after one that it cannot live with, it is refused.
    """
    own = Path(migrations.__file__).parent
    release(later, f"-- oldest program: {RELEASED}\n{MOODS}")
    migrate(database, "workspace")

    def as_older_program() -> None:
        monkeypatch.setattr(migrations, "_FOLDER", own)
        scripts.cache_clear()

    as_older_program()
    assert migrate(database, "workspace") == []
    assert versions(database) == {"workspace": NEXT}

    monkeypatch.setattr(migrations, "_FOLDER", later)
    release(later, "DROP INDEX memories_by_felt;\n", AFTER_NEXT)
    assert migrate(database, "workspace") == [AFTER_NEXT]
    as_older_program()
    with pytest.raises(StoreUnusable, match=f"has schema {AFTER_NEXT}, newer than {RELEASED}"):
        migrate(database, "workspace")


def test_a_migration_that_fails_leaves_no_table_behind(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a migration that breaks in its last step, when it is run again, then the file comes out whole."""

    def break_off(*_: object) -> None:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(opening, "make_triggers", break_off)
    with pytest.raises(StoreUnavailable):
        migrate(database, "workspace")
    assert (versions(database), schema(database)) == ({}, [])

    monkeypatch.undo()
    assert migrate(database, "workspace") == released("workspace")


def test_a_migration_whose_process_is_killed_leaves_the_version_before(database: Database, later: Path) -> None:
    """Given a process killed before its migration commits, then nothing of it is there, and the next one applies it."""
    migrate(database, "workspace")
    before = schema(database)
    release(later, MOODS)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", KILLED, str(later), str(database.path)]
    assert subprocess.run(command, env=variables, check=False, timeout=60).returncode == -signal.SIGKILL
    assert (schema(database), versions(database)) == (before, {"workspace": RELEASED})
    assert migrate(database, "workspace") == [NEXT]


def test_a_store_of_an_unreleased_version_is_refused(database: Database) -> None:
    """Given a file with tables, but without the versions of this code, then the error says how to keep its content."""
    with database.engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE alembic_version (version_num TEXT)")
    before = schema(database)
    with pytest.raises(StoreUnusable, match=r"before its first release.* export what it holds with that version"):
        migrate(database, "workspace")
    assert schema(database) == before


def test_a_store_has_its_full_text_index_in_the_same_moment_as_its_tables(database: Database) -> None:
    """Given a process killed right after the migration, when the next opens the file, then words can be found."""
    migrate(database, "workspace")
    with database.reading() as connection:
        assert SearchIndex(connection).active("text") is not None


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
        migrate(database, "account")
    other.close()


def test_an_undo_restores_a_column_that_a_migration_added(database: Database, later: Path) -> None:
    """Given a connection that records, when a migration adds a column to memories, then it records the column."""
    migrate(database, "workspace")
    before = recording(database)
    assert recording(database) == before

    release(later, MOODS)
    other = Database(database.path)
    migrate(other, "workspace")
    other.close()
    after = recording(database)
    changed = {name for name, sql in after.items() if sql != before[name]}
    assert changed == {"memories_insert_recorded", "memories_update_recorded", "memories_delete_recorded"}
    assert all("'felt', " in after[name] for name in changed)


def test_triggers_of_a_transaction_that_fails_are_made_again(database: Database) -> None:
    """Given a transaction that begins to record and fails, then the connection's next one records as well."""
    migrate(database, "workspace")

    def fail() -> None:
        with database.atomic() as connection:
            make_recorders(connection)
            connection.exec_driver_sql("no SQL")

    with pytest.raises(StoreUnavailable):
        fail()
    assert "memories_delete_recorded" in recording(database)
