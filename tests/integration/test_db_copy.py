"""Stores copied to a real PostgreSQL server and back: all rows, while they are written, killed, refused, and used."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest

from memory.lifecycle.curation import undo_entry
from retrieval.query import RecallRequest
from reverie.contract import ACCOUNT_STORE
from reverie.errors import Conflict, Permanent, Rejected, StoreUnavailable
from reverie.recall.types import RecallResponse
from storage.curation import EntryDraft
from storage.opened import open_stores
from storage.postgres.copied_rows import copied_tables, read_rows, used_numbers
from storage.postgres.copying import CopyReport, Progress, copy_all, open_target
from storage.postgres.engine import SCHEMA
from storage.stores import Store, Stores
from storage.transaction import Transaction
from storage.trust.audit import AuditEntry
from storage.verify import verify
from support.command_line import CommandLine
from support.forks import Program, start_module
from support.pipeline import WORKSPACE, Pipeline
from support.postgres import TestServer
from support.recalling import recall
from support.remembered import MORNING, keep, settle

pytestmark = pytest.mark.sqlite("copies its files to a server of its own")

OTHER = "other"


@pytest.fixture
def url(server: TestServer, empty: str) -> str:
    return server.url(empty)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path / "data")
    _fill(made)
    yield made
    made.close()


def test_all_rows_are_copied_there_and_back(pipe: Pipeline, url: str, tmp_path: Path) -> None:
    before = _everything(pipe.stores)
    there = _copy(pipe.stores, url)
    assert (there.is_complete, there.wrong, sorted(there.rows)) == (True, {}, [ACCOUNT_STORE, OTHER, WORKSPACE])
    database = open_stores(tmp_path / "data", url)
    assert _everything(database) == before
    back = _copy(database, str(tmp_path / "back"))
    assert (back.is_complete, sorted(back.rows)) == (True, [ACCOUNT_STORE, OTHER, WORKSPACE])
    returned = Stores(tmp_path / "back")
    assert _everything(returned) == before
    assert _triggers(returned.workspace(WORKSPACE)) == _triggers(pipe.store)
    assert not (tmp_path / "back" / "copying").exists()
    returned.close()
    database.close()


def test_a_copy_gives_the_same_hits_and_undoes_what_was_done_on_the_original(
    pipe: Pipeline, url: str, tmp_path: Path
) -> None:
    with pipe.store.writing() as tx, _entry(tx) as entry:
        rows = tx.for_agent("ana").memories
        rows.delete(rows.get("m1").row_id)
    _copy(pipe.stores, url)
    database = open_stores(tmp_path / "data", url)
    copied = database.workspace(WORKSPACE)
    for query in ("when does the boat leave?", "ferry ticket", "船", "who is the captain?"):
        request = RecallRequest(query=query, agent="ana")
        assert _hits(recall(copied, pipe.embedder, request)) == _hits(recall(pipe.store, pipe.embedder, request))
    undo_entry(copied, agent="ana", entry=entry, now=MORNING)
    undo_entry(pipe.store, agent="ana", entry=entry, now=MORNING)
    with copied.reading() as tx:
        assert tx.for_agent("ana").memories.get("m1").content == "The ferry costs five euros"
    assert _everything(database)[WORKSPACE]["memories"] == _everything(pipe.stores)[WORKSPACE]["memories"]
    assert verify(copied).wrong == []
    database.close()


def test_numbers_of_deleted_rows_are_not_used_again(pipe: Pipeline, url: str, tmp_path: Path) -> None:
    with pipe.store.reading() as tx:
        highest = tx.connection.exec_driver_sql("SELECT max(row_id) FROM files").scalar_one()
    pipe.forget_file(_file_id(pipe.store))
    _copy(pipe.stores, url)
    database = open_stores(tmp_path / "data", url)
    _copy(database, str(tmp_path / "back"))
    returned = Stores(tmp_path / "back")
    for stores in (database, returned):
        with stores.workspace(WORKSPACE).reading() as tx:
            assert used_numbers(tx.connection, WORKSPACE)["files"] == highest
    returned.close()
    database.close()


def test_a_store_that_was_copied_and_not_written_since_is_not_copied_again(pipe: Pipeline, url: str) -> None:
    _copy(pipe.stores, url)
    keep(pipe, "m3", "The pier is closed on Sundays")
    again = _copy(pipe.stores, url)
    assert (sorted(again.rows), sorted(again.kept)) == ([WORKSPACE], [ACCOUNT_STORE, OTHER])
    assert pipe.stores.delete_workspace(OTHER)
    last = _copy(pipe.stores, url)
    assert (last.rows, last.removed, last.is_complete) == ({}, [OTHER], True)


def test_what_is_written_during_the_copy_is_copied_in_the_next_round(pipe: Pipeline, url: str, tmp_path: Path) -> None:
    written: list[str] = []

    def write_once(store: str, done: int, total: int) -> None:
        if store == WORKSPACE and not written:
            written.append(store)
            keep(pipe, "m3", "The pier is closed on Sundays")

    assert _copy(pipe.stores, url, write_once).is_complete
    database = open_stores(tmp_path / "data", url)
    assert _everything(database) == _everything(pipe.stores)
    database.close()


def test_a_copy_of_what_is_written_without_end_is_not_called_complete(pipe: Pipeline, url: str) -> None:
    def write_always(store: str, done: int, total: int) -> None:
        if store == WORKSPACE and done == total:
            keep(pipe, f"m{time.monotonic_ns()}", "The pier is closed on Sundays")

    report = _copy(pipe.stores, url, write_always)
    assert (report.is_complete, report.written) == (False, [WORKSPACE])
    assert _copy(pipe.stores, url).is_complete


def test_a_copy_that_was_killed_is_begun_anew(
    pipe: Pipeline, server: TestServer, database: str, tmp_path: Path
) -> None:
    before = _everything(pipe.stores)
    with server.admin(database) as outside, outside.transaction():
        outside.execute(f"LOCK TABLE {SCHEMA}.curation_log")  # the copy of a store gets as far as this table
        process = _start(tmp_path / "data", server.url(database))
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
        while not outside.execute(waiting, [f"{SCHEMA}.curation_log"]).fetchone():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    again = _start(tmp_path / "data", server.url(database))
    out, err = again.communicate()
    assert again.returncode == 0, err
    assert json.loads(out)["complete"] is True
    copied = open_stores(tmp_path / "data", server.url(database))
    assert _everything(copied) == before
    copied.close()


def test_a_connection_that_is_cut_is_an_error_from_which_the_next_copy_goes_on(
    pipe: Pipeline, server: TestServer, database: str, tmp_path: Path
) -> None:

    def cut(store: str, done: int, total: int) -> None:
        if store == WORKSPACE:
            with server.admin() as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [database]
                )

    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        _copy(pipe.stores, server.url(database), cut)
    assert _copy(pipe.stores, server.url(database)).is_complete


def test_an_account_is_copied_again_with_its_audit_log(pipe: Pipeline, url: str, tmp_path: Path) -> None:
    for action in ("first", "second"):
        pipe.stores.audit().record(AuditEntry(at=MORNING, actor="operator", action=action, target=WORKSPACE))
        assert ACCOUNT_STORE in _copy(pipe.stores, url).rows
    database = open_stores(tmp_path / "data", url)
    assert _everything(database) == _everything(pipe.stores)
    database.close()


def test_an_interrupt_says_how_to_go_on(pipe: Pipeline, server: TestServer, database: str, tmp_path: Path) -> None:
    with server.admin(database) as outside, outside.transaction():
        outside.execute(f"LOCK TABLE {SCHEMA}.curation_log")
        process = _start(tmp_path / "data", server.url(database))
        waiting = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = %s::regclass"
        while not outside.execute(waiting, [f"{SCHEMA}.curation_log"]).fetchone():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert process.returncode == 130, err
    assert "the same command goes on" in err


def test_a_database_with_anything_else_is_refused(
    pipe: Pipeline, server: TestServer, database: str, tmp_path: Path
) -> None:
    used = open_stores(tmp_path / "elsewhere", server.url(database))
    used.workspace("theirs")
    with pytest.raises(Conflict, match=r"stores that are no copies of this installation \(theirs\)"):
        _copy(pipe.stores, server.url(database))
    assert used.names() == ["theirs"]
    used.close()


def test_a_copy_that_was_used_is_not_overwritten(pipe: Pipeline, url: str, tmp_path: Path) -> None:
    _copy(pipe.stores, url)
    database = open_stores(tmp_path / "data", url)
    with database.workspace(WORKSPACE).writing() as tx:
        tx.for_agent("ana").sessions.ensure("new", now=MORNING)
    with pytest.raises(Conflict, match="was written after it was copied"):
        _copy(pipe.stores, url)
    back = str(tmp_path / "back")
    _copy(database, back)
    database.close()
    returned = Stores(tmp_path / "back")
    with returned.workspace(WORKSPACE).writing() as tx:
        tx.for_agent("ana").sessions.ensure("newer", now=MORNING)
    returned.close()
    database = open_stores(tmp_path / "data", url)
    with pytest.raises(Conflict, match="was written after it was copied"):
        _copy(database, back)
    database.close()


def test_places_that_cannot_be_meant_are_refused(pipe: Pipeline, url: str, tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="in SQLite files already"):
        _copy(pipe.stores, str(tmp_path / "back"))
    with pytest.raises(Rejected, match="names the folder"):
        _copy(pipe.stores, "sqlite")
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        _copy(pipe.stores, "postgresql://u:secret@127.0.0.1:1/d")
    database = open_stores(tmp_path / "data", url)
    with pytest.raises(Rejected, match="in a PostgreSQL database already"):
        _copy(database, url)
    with pytest.raises(Conflict, match="is not empty"):
        _copy(database, str(tmp_path))
    with pytest.raises(Rejected, match="in the present data folder"):
        _copy(database, str(tmp_path / "data" / "back"))
    database.close()


def test_a_row_that_postgresql_cannot_store_is_named(pipe: Pipeline, url: str) -> None:
    with pipe.store.writing() as tx:
        tx.connection.exec_driver_sql("UPDATE messages SET content = 'a' || char(0) || 'b' WHERE row_id = 2")
    with pytest.raises(Permanent, match="messages row_id 2: content has a NUL character"):
        _copy(pipe.stores, url)


def test_the_command_says_what_to_do_next(
    pipe: Pipeline, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reverie = CommandLine(monkeypatch, capsys, "--data", str(tmp_path / "data"))
    there = reverie("db", "copy", "--to", url)
    assert (there.code, "Complete. Set REVERIE_DATABASE" in there.out) == (0, True), there
    key = (tmp_path / "data" / "installation.key").read_text()
    monkeypatch.setenv("REVERIE_DATABASE", url)
    assert "no Reverie runs on" in (read := reverie("--agent", "ana", "memory", "list").err), read
    assert "this is read from its database" in read
    assert "its database is changed" in reverie("--agent", "ana", "memory", "add", "The pier is closed").err
    back = reverie("db", "copy", "--to", str(tmp_path / "back"))
    assert (back.code, "Complete. Remove REVERIE_DATABASE" in back.out) == (0, True), back
    assert (tmp_path / "back" / "installation.key").read_text() == key


def _fill(pipe: Pipeline) -> None:
    pipe.say("the boat leaves at noon", "a cat sleeps on the pier", {"role": "assistant", "content": "Noted: é 船"})
    pipe.hand_in("notes.txt", "The harbour opens at six.\n\nThe ferry needs a ticket.")
    keep(pipe, "m0", "The ferry costs four euros")
    keep(pipe, "m1", "The ferry costs five euros")
    keep(pipe, "m2", "The captain is called Ada")
    keep(pipe, "a1", "The user speaks Dutch", tier="account")
    settle(pipe)
    with pipe.store.writing() as tx:
        run = tx.connection.exec_driver_sql
        run("UPDATE memories SET superseded_by = 2, superseded_at = 7 WHERE row_id = 1")  # one with a higher number
        tx.index.remove_vectors(list(run("SELECT id FROM chunks WHERE memory_row = 1").scalars()))
        run("DELETE FROM chunks WHERE memory_row = 1")
        run("INSERT INTO job_leases (job, token, lease_until) VALUES ('decay', 12, 34)")
        run("INSERT INTO claims (stage, item_id, token, error) VALUES ('embed', 99, 5, 'tab\t, line\n, \\ and \\N')")
        run(
            "INSERT INTO dead_letters (agent_id, stage, item_id, payload, error_type, error, attempts, created_at)"
            " VALUES ('ana', 'ingest', 'x', x'00ff5c4e', 'E', '', 1, 1)"
        )
    pipe.stores.workspace(OTHER)


def _copy(stores: Stores, to: str, progress: Progress = lambda _store, _done, _total: None) -> CopyReport:
    with closing(open_target(stores, to)) as target:
        return copy_all(stores, target, progress)


def _start(data: Path, url: str) -> Program:
    environment = {**os.environ, "REVERIE_DATA": str(data)}
    words = ("cli", "db", "copy", "--json", "--to", url)
    return start_module(*words, environment=environment, output=data.with_name("output"))


def _entry(tx: Transaction) -> AbstractContextManager[int]:
    return tx.curation.entry(EntryDraft("a test"), job="reverie.test", agent="ana", action="prune", at=MORNING)


def _hits(response: RecallResponse) -> list[tuple[str, str]]:
    return [(result.id, result.text) for result in response]


def _file_id(store: Store) -> str:
    with store.reading() as tx:
        return str(tx.connection.exec_driver_sql("SELECT id FROM files").scalar_one())


def _everything(stores: Stores) -> dict[str, dict[str, list[Any]]]:
    """Return all rows of all stores, and what their indexes have."""
    found: dict[str, dict[str, list[Any]]] = {}
    for name in stores.all_names():
        with stores.workspace(name).reading() as tx:
            rows = {table.name: list(read_rows(tx.connection, table)) for table in copied_tables(name)}
            for generation in tx.index.generations():
                ids = tx.index.text_ids if generation.kind == "text" else tx.index.vector_ids
                rows[f"index {generation.id}"] = sorted(ids(generation))
            found[name] = rows
    return found


def _triggers(store: Store) -> list[tuple[Any, ...]]:
    with store.reading() as tx:
        rows = tx.connection.exec_driver_sql("SELECT type, name, sql FROM sqlite_master ORDER BY type, name")
        return [tuple(row) for row in rows]
