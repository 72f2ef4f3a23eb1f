"""The schema of a PostgreSQL database: created and migrated whole or not at all, whatever is killed, and dumped."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from reverie.errors import Permanent, StoreUnavailable, StoreUnusable
from storage.postgres import migrations, schema
from storage.postgres.engine import SCHEMA, PostgresServer
from storage.postgres.migrations import newest_version
from storage.postgres.schema import prepare
from storage.postgres.stores import PostgresStores
from storage.verify import verify
from support.pipeline import WORKSPACE, Pipeline
from support.postgres import TestServer

ROOT = Path(__file__).parents[2]
RELEASED = newest_version()
# The number of a lock that stops a schema half-way.
HALF_WAY = 4242


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the migrations of a later version: the test writes them."""
    folder = tmp_path / "migrations"
    shutil.copytree(Path(migrations.__file__).parent, folder)
    monkeypatch.setattr(migrations, "_FOLDER", folder)
    return folder


def _later(steps: int, name: str) -> str:
    """Return the name of a migration after those that there are."""
    return f"{RELEASED + steps:04}_{name}.sql"


def _release(folder: Path, name: str, sql: str) -> None:
    """Write a migration, as a later version has it."""
    (folder / name).write_text(sql)
    migrations._files.cache_clear()


def _open(server: TestServer, name: str) -> None:
    with closing(PostgresServer(server.url(name))) as opened:
        prepare(opened)


def _version(server: TestServer, name: str) -> int:
    with server.admin(name) as connection:
        row = connection.execute(f"SELECT version FROM {SCHEMA}.schema_version").fetchone()
        assert row is not None
        return int(row[0])


@contextmanager
def _stopped_half_way(server: TestServer, name: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Start a process that makes the schema, and yield it with its connection once it has made half of it."""
    with server.admin(name) as outside:
        outside.execute(
            "CREATE FUNCTION public.wait_half_way() RETURNS event_trigger LANGUAGE plpgsql AS"
            f" $$ BEGIN PERFORM pg_advisory_xact_lock({HALF_WAY}); END $$"
        )
        outside.execute(
            "CREATE EVENT TRIGGER half_way ON ddl_command_end WHEN TAG IN ('CREATE VIEW')"
            " EXECUTE FUNCTION public.wait_half_way()"
        )
        outside.execute(f"SELECT pg_advisory_lock({HALF_WAY})")
        code = (
            "import sys; from storage.postgres.engine import PostgresServer;"
            "from storage.postgres.schema import prepare; prepare(PostgresServer(sys.argv[1]))"
        )
        variables = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'client'}"}
        process = subprocess.Popen([sys.executable, "-c", code, server.url(name)], env=variables)
        try:
            waiting = f"SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = {HALF_WAY} AND NOT granted"
            while not (row := outside.execute(waiting).fetchone()):
                assert process.poll() is None
                time.sleep(0.01)
            outside.execute("DROP EVENT TRIGGER half_way")
            yield process, int(row[0])
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("killed", ["process", "connection"])
def test_a_schema_whose_creation_was_killed_is_created_anew(
    server: TestServer, empty: str, tmp_path: Path, killed: str
) -> None:
    with _stopped_half_way(server, empty) as (process, backend):
        if killed == "process":
            process.kill()
            process.wait()
        else:
            with server.admin() as connection:
                connection.execute("SELECT pg_terminate_backend(%s, 10000)", [backend])
            assert process.wait() == 1
    with closing(PostgresStores(tmp_path, server.url(empty))) as stores:
        stores.workspace("a")
        assert stores.names() == ["a"]
    assert _version(server, empty) == newest_version()


def test_missing_migrations_are_applied_in_order(
    server: TestServer, database: str, newer: Path, tmp_path: Path
) -> None:
    """Given a database of the first version, when a later one starts, then it keeps its rows and has the new tables."""
    with closing(PostgresStores(tmp_path, server.url(database))) as stores, stores.workspace("a").writing() as tx:
        tx.for_agent("ana").channels.ensure("c1", now=1)
    _release(newer, _later(1, "moods"), "ALTER TABLE channels ADD COLUMN mood text;")
    _release(newer, _later(2, "calm"), "ALTER TABLE channels ALTER COLUMN mood SET DEFAULT 'calm';")
    with closing(PostgresStores(tmp_path, server.url(database))) as stores, stores.workspace("a").writing() as tx:
        tx.for_agent("ana").channels.ensure("c2", now=1)
    assert _version(server, database) == newest_version() == RELEASED + 2
    with server.admin(database) as connection:
        rows = connection.execute(f"SELECT id, mood FROM {SCHEMA}.channels ORDER BY id").fetchall()
    assert rows == [("c1", None), ("c2", "calm")]


def test_a_migration_that_fails_leaves_the_version_before(server: TestServer, database: str, newer: Path) -> None:
    _release(newer, _later(1, "moods"), "ALTER TABLE channels ADD COLUMN mood text;")
    _release(newer, _later(2, "wrong"), "ALTER TABLE channels ADD COLUMN tone text; SELECT 1 / 0;")
    with pytest.raises(Permanent, match="division by zero"):
        _open(server, database)
    assert _version(server, database) == RELEASED + 1
    _release(newer, _later(2, "wrong"), "ALTER TABLE channels ADD COLUMN tone text;")
    _open(server, database)
    assert _version(server, database) == RELEASED + 2


def test_a_migration_whose_connection_is_cut_is_done_by_the_next_start(
    server: TestServer, database: str, newer: Path
) -> None:
    _release(
        newer,
        _later(1, "moods"),
        "ALTER TABLE channels ADD COLUMN mood text; SELECT pg_terminate_backend(pg_backend_pid());",
    )
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        _open(server, database)
    assert _version(server, database) == RELEASED
    _release(newer, _later(1, "moods"), "ALTER TABLE channels ADD COLUMN mood text;")
    _open(server, database)
    assert _version(server, database) == RELEASED + 1


def test_a_migration_does_not_wait_for_ever_for_who_uses_a_table(
    server: TestServer, database: str, newer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "MIGRATION_WAIT_SECONDS", 0.05)
    _release(newer, _later(1, "moods"), "ALTER TABLE channels ADD COLUMN mood text;")
    with server.admin(database) as other, other.transaction():
        other.execute(f"LOCK TABLE {SCHEMA}.channels IN ACCESS SHARE MODE")
        with pytest.raises(StoreUnavailable, match="stop Reverie on all hosts, then start the new version"):
            _open(server, database)
    _open(server, database)
    assert _version(server, database) == RELEASED + 1


def test_a_process_from_before_an_upgrade_goes_on_if_the_upgrade_says_so(
    server: TestServer, database: str, tmp_path: Path, newer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given two versions side by side, when the newer one adds a column, then the older one writes on, also after a
    restart; when a later version needs its own programs, then the first is refused.
    """
    with closing(PostgresStores(tmp_path, server.url(database))) as stores:
        store = stores.workspace("a")
        own = Path(migrations.__file__).parent
        column = "ALTER TABLE channels ADD COLUMN mood text NOT NULL DEFAULT 'calm';"
        _release(newer, _later(1, "moods"), f"-- oldest program: {RELEASED}\n{column}")
        _open(server, database)
        monkeypatch.setattr(migrations, "_FOLDER", own)
        assert _version(server, database) == RELEASED + 1 == newest_version() + 1
        with store.writing() as tx:
            tx.for_agent("ana").channels.ensure("c", now=1)
        _open(server, database)

        monkeypatch.setattr(migrations, "_FOLDER", newer)
        _release(newer, _later(2, "no_topics"), "ALTER TABLE channels ALTER COLUMN mood DROP DEFAULT;")
        _open(server, database)
        monkeypatch.setattr(migrations, "_FOLDER", own)
        with pytest.raises(StoreUnusable, match="was upgraded while this process ran"), store.writing():
            pass
        with pytest.raises(StoreUnusable, match=f"has schema {RELEASED + 2}, newer than {RELEASED}"):
            _open(server, database)


def test_a_process_from_before_an_upgrade_writes_nothing(server: TestServer, database: str, tmp_path: Path) -> None:
    with closing(PostgresStores(tmp_path, server.url(database))) as stores:
        store = stores.workspace("a")
        with server.admin(database) as connection:
            connection.execute(
                f"UPDATE {SCHEMA}.schema_version SET version = version + 1, oldest_program = version + 1"
            )
        with pytest.raises(StoreUnusable, match="was upgraded while this process ran"), store.writing():
            pass


def test_a_dump_is_restored_to_another_database(server: TestServer, empty: str, database: str, tmp_path: Path) -> None:
    """Given a filled database, when it is dumped and restored by PostgreSQL's tools, then all is found and goes on."""
    pipe = Pipeline(tmp_path / "data")
    pipe.stores.close()
    pipe.stores = PostgresStores(tmp_path / "data", server.url(database))
    pipe.say("zanzibar one", "zanzibar two")
    pipe.hand_in("notes.txt", "The harbour opens at six.\n\nThe ferry needs a ticket.")
    pipe.settle()
    found = pipe.found("zanzibar harbour ferry")
    pipe.stores.close()
    server.run("pg_dump", "--format=custom", f"--file={server.folder}/reverie.dump", server.admin_url(database))
    server.run("pg_restore", "--exit-on-error", f"--dbname={server.admin_url(empty)}", f"{server.folder}/reverie.dump")
    pipe.stores = PostgresStores(tmp_path / "data", server.url(empty))
    assert pipe.found("zanzibar harbour ferry") == found
    assert verify(pipe.stores.workspace(WORKSPACE)).wrong == []
    pipe.say("zanzibar three")
    pipe.settle()
    assert "zanzibar three" in pipe.contents()
    with (
        pytest.raises(psycopg.errors.UndefinedObject),
        psycopg.connect(server.url(empty).replace("+psycopg", "")) as outside,
    ):
        outside.execute(f"SELECT count(*) FROM {SCHEMA}.messages")
    pipe.close()
