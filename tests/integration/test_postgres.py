"""Stores in a real PostgreSQL server: the same repositories, walls between stores, writers, restarts, refusals."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from generators import postgres_schema
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, StoreUnavailable, StoreUnusable
from storage.opened import open_stores
from storage.postgres.engine import SCHEMA, PostgresServer
from storage.postgres.migrations import newest_version
from storage.postgres.schema import prepare
from storage.postgres.stores import PostgresStores
from storage.rows import execute
from storage.store import Store
from storage.verify import verify
from support.postgres import USER, TestServer, running_postgres
from support.store_work import run_stages, write

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture
def stores(server: TestServer, database: str, tmp_path: Path) -> Iterator[PostgresStores]:
    opened = PostgresStores(tmp_path, server.url(database))
    yield opened
    opened.close()


def test_the_schema_is_that_of_sqlite() -> None:
    written = (ROOT / "storage/postgres/schema.sql").read_text(encoding="utf-8")
    assert postgres_schema.schema() == written, "run `make docs`"


def test_workspaces_are_created_listed_and_deleted(stores: PostgresStores) -> None:
    assert (stores.names(), stores.exists("a")) == ([], False)
    with pytest.raises(NotFound):
        stores.workspace("a", create=False)
    _note(stores.workspace("a"), "ana", "s")
    _note(stores.workspace("b"), "ana", "s")
    stores.account()
    assert (stores.names(), stores.all_names()) == (["a", "b"], [ACCOUNT_STORE, "a", "b"])
    first = stores.file_of("a")
    assert stores.delete_workspace("a")
    assert not stores.delete_workspace("a")
    assert stores.names() == ["b"]
    assert _sessions(stores.workspace("a")) == []
    assert stores.file_of("a") != first
    assert _sessions(stores.workspace("b")) == ["s"]


def test_a_process_that_dies_while_it_creates_a_workspace_leaves_none_without_its_index(
    stores: PostgresStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a process that ends before the full-text index of a new workspace is made, then there is no workspace
    either, and the next process makes both."""

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("storage.postgres.stores.create_missing_indexes", die)
        with pytest.raises(Killed):
            stores.workspace("garden")
    assert not stores.exists("garden")
    assert verify(stores.workspace("garden")).wrong == []


def test_a_store_that_another_thread_opens_meanwhile_is_the_same(
    stores: PostgresStores, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up, meanwhile = stores._number, list[Store]()

    def look_up(name: str, *, create: bool) -> int | None:
        monkeypatch.undo()
        meanwhile.append(stores.workspace("a"))
        return looked_up(name, create=create)

    monkeypatch.setattr(stores, "_number", look_up)
    assert stores.workspace("a") is meanwhile[0]


def test_nothing_is_written_to_a_workspace_that_was_deleted(server: TestServer, stores: PostgresStores) -> None:
    store = stores.workspace("a")
    assert stores.delete_workspace("a")
    with pytest.raises(StoreUnavailable, match="a was deleted a moment ago, nothing was written"):
        _note(store, "ana", "s")
    assert _sessions(stores.workspace("a")) == []


def test_rows_of_another_store_are_seen_by_no_statement(
    server: TestServer, database: str, stores: PostgresStores
) -> None:
    _note(stores.workspace("a"), "ana", "secret")
    other = stores.workspace("b")
    with other.reading() as tx:
        raw = tx.connection.connection.driver_connection
        assert raw is not None
        assert raw.execute("SELECT count(*) FROM sessions").fetchone() == (0,)
    with other.writing() as tx:
        raw = tx.connection.connection.driver_connection
        assert raw is not None
        assert raw.execute("UPDATE sessions SET id = 'taken'").rowcount == 0
        assert raw.execute("DELETE FROM sessions").rowcount == 0
    url = server.url(database).replace("+psycopg", "")
    with psycopg.connect(url) as outside, pytest.raises(psycopg.errors.UndefinedObject, match=r"reverie\.store"):
        outside.execute(f"SELECT count(*) FROM {SCHEMA}.sessions")
    assert _sessions(stores.workspace("a")) == ["secret"]


def test_every_table_with_rows_of_stores_has_a_wall(server: TestServer, database: str) -> None:
    with server.admin(database) as connection:
        open_tables = connection.execute(
            "SELECT c.relname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid"
            f" WHERE a.attname = 'store_id' AND c.relnamespace = '{SCHEMA}'::regnamespace AND c.relkind = 'r'"
            " AND NOT (c.relrowsecurity AND c.relforcerowsecurity)"
        ).fetchall()
    assert open_tables == []


def test_writers_of_a_store_wait_for_each_other_and_readers_for_nobody(stores: PostgresStores) -> None:
    store = stores.workspace("a")
    begun = threading.Event()
    done: list[str] = []

    def second() -> None:
        begun.set()
        with store.writing() as tx:
            done.append("second")
            tx.for_agent("ana").channels.ensure("c2", now=1)

    with store.writing() as tx:
        tx.for_agent("ana").channels.ensure("c1", now=1)
        thread = threading.Thread(target=second)
        thread.start()
        begun.wait()
        with store.reading() as reader:
            assert not reader.for_agent("ana").channels.has_row("c1")
        with pytest.raises(StoreUnavailable, match="others write to it"), store.writing(lock_wait_seconds=0.05):
            pass
        with stores.workspace("b").writing() as elsewhere:
            elsewhere.for_agent("ana").channels.ensure("c1", now=1)
        done.append("first")
    thread.join()
    assert done == ["first", "second"]


def test_a_server_that_was_restarted_is_used_again(tmp_path: Path) -> None:
    with running_postgres() as own:
        stores = PostgresStores(tmp_path, own.url(own.database()))
        _note(stores.workspace("a"), "ana", "s")
        with own.admin() as connection:  # as at a restart, all connections are cut
            connection.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = %s", [USER]
            )
        assert _sessions(stores.workspace("a")) == ["s"]
        own.stop()
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            _sessions(stores.workspace("a"))
        stores.close()


def test_a_user_who_passes_the_walls_by_is_refused(server: TestServer, database: str, tmp_path: Path) -> None:
    with pytest.raises(StoreUnusable, match="postgres passes row-level security by"):
        open_stores(tmp_path, server.admin_url(database))


def test_another_version_of_the_schema_is_refused(server: TestServer, database: str, tmp_path: Path) -> None:
    with server.admin(database) as connection:
        connection.execute(f"UPDATE {SCHEMA}.schema_version SET version = 9999, oldest_program = 9999")
    with pytest.raises(StoreUnusable, match=rf"has schema 9999, newer than {newest_version()}, .*upgrade Reverie"):
        open_stores(tmp_path, server.url(database))
    with server.admin(database) as connection:
        connection.execute(f"UPDATE {SCHEMA}.schema_version SET version = 8")
    with pytest.raises(StoreUnusable, match=r"has schema 8 of an unreleased version of Reverie, not"):
        open_stores(tmp_path, server.url(database))


def test_processes_that_start_together_create_the_schema_once(server: TestServer, empty: str, tmp_path: Path) -> None:
    errors: list[Exception] = []

    def start() -> None:
        one = PostgresServer(server.url(empty))
        try:
            prepare(one)
        except Exception as error:
            errors.append(error)
        finally:
            one.close()

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    stores = PostgresStores(tmp_path, server.url(empty))
    assert stores.names() == []
    stores.close()


def test_a_dump_that_was_restored_holds_the_same_and_is_written_with_any_search_path(
    server: TestServer, empty: str, database: str, stores: PostgresStores, tmp_path: Path
) -> None:
    write(stores.workspace("a"), "the tram to Lisbon")
    run_stages(stores.workspace("a"))
    dump = server.run("pg_dump", server.admin_url(database))
    server.load(empty, dump)

    restored = PostgresStores(tmp_path / "restored", server.url(empty))
    assert _texts(restored) == ["the tram to Lisbon"]
    write(restored.workspace("a"), "the tram to Porto", agent="bob")
    run_stages(restored.workspace("a"))
    assert verify(restored.workspace("a")).wrong == []
    with server.admin(empty) as connection:
        connection.execute(f"SELECT set_config('reverie.store', id::text, false) FROM {SCHEMA}.stores WHERE name = 'a'")
        connection.execute(f"DELETE FROM {SCHEMA}.chunks WHERE agent_id = 'ana'")
        connection.execute(f"SELECT {SCHEMA}.cosine_distance_to('[1,2]', '[2,1]')")
    assert _texts(restored) == ["the tram to Porto"]
    restored.close()


def test_connections_that_were_opened_after_a_close_end_with_their_owner(
    server: TestServer, database: str, tmp_path: Path
) -> None:
    stores = PostgresStores(tmp_path, server.url(database))
    stores.close()
    assert stores.names() == []
    connections = list(stores._server._opened._connections)
    assert [connection.closed for connection in connections] == [False]
    del stores
    gc.collect()
    assert [connection.closed for connection in connections] == [True]


def test_a_folder_that_cannot_be_made_is_a_passing_failure(server: TestServer, database: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    stores = PostgresStores(tmp_path / "data", server.url(database))
    with pytest.raises(StoreUnavailable, match="cannot be created"):
        stores.workspace("a")
    stores.close()


def test_a_nul_in_a_text_or_a_collection_is_replaced(stores: PostgresStores) -> None:
    with stores.workspace("a").writing() as tx:
        sql = "SELECT :text AS text UNION ALL SELECT value FROM json_each(:texts)"
        found = execute(tx.connection, sql, text="a\0", texts=["b\0", "c"]).scalars().all()
    assert found == ["a\ufffd", "b\ufffd", "c"]


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=r"postgresql\+psycopg://u:\*\*\*@127\.0\.0\.1:1/d cannot be reached"):
        open_stores(tmp_path, "postgresql://u:secret@127.0.0.1:1/d")


def _note(store: Store, agent: str, session: str) -> None:
    with store.writing() as tx:
        tx.for_agent(agent).sessions.ensure(session, now=1_000_000)


def _texts(stores: PostgresStores) -> list[str]:
    with stores.workspace("a").reading() as tx:
        chunks = tx.connection.exec_driver_sql(
            "SELECT c.text FROM chunks AS c JOIN text_index AS t ON t.chunk_id = c.id AND t.store_id = c.store_id"
        )
        return list(chunks.scalars())


def _sessions(store: Store) -> list[str]:
    with store.reading() as tx:
        return list(
            tx.connection.exec_driver_sql(
                "SELECT id FROM sessions WHERE store_id = current_setting('reverie.store')::bigint ORDER BY id"
            ).scalars()
        )
