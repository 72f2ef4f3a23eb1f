"""What statements read in a PostgreSQL database in which other stores hold most rows: none of theirs.

A whole life of a workspace is carried out by the real code, every call and every job, while the server counts what each
statement reads, triggers and functions included; and the plan of each statement is looked at.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from storage.postgres.engine import SCHEMA, PostgresServer
from storage.postgres.stores import PostgresStores
from support.crowd import add_stores, enlarge, multiply_chunks, tables_of_stores
from support.every_call import SETTINGS, Clock, EveryCall
from support.http import running_server
from support.postgres import TestServer, running_postgres
from support.statement_reads import Planned, Reads, StatementReads
from support.store_work import write
from worker.runtime import Runtime
from worker.settings import Settings

FIRST = "first"
# Rows of others in each table. The planner takes each store for a two hundredth of a table, whatever its size.
ROWS = 20_000
# Far more than the workspace has in any table, and far fewer than the others have.
MOST_ROWS = 2_000
# Rows of the same store in its larger tables, and how many a statement may read that must not read all of them. The
# largest batch has 400 messages, and looks several rows up for each.
OWN_ROWS = 5_000
# A batch of 400 chunks is looked up twice, and indexes have an entry for each of up to three versions of a row until
# vacuum has removed those from before its two updates.
MOST_OF_ITS_OWN = OWN_ROWS // 2
# Rows that statements read that look 20 messages up, with their chunks and what refers to them.
FEW_ROWS = 500
# Rows that statements read for 256 chunks in a session with 1,600 messages: less than a tenth of all pairs.
LONG_SESSION = 40_000
# What reads more rows of its own store by design: the statement, by its beginning, and the reason.
READS_AN_AGENT = {
    "SELECT row_id FROM sessions WHERE (agent_id = %(agent)s AND (channel_id": "a channel's sessions have no index",
    "SELECT c.id FROM memories AS k JOIN chunks AS c ON c.memory_row = k.row_id": "scopes are decided memory by memory",
    "SELECT t.chunk_id FROM chunk_tags AS t": "a fifth of all chunks has the tag that is asked for",
}


@dataclass(frozen=True)
class Life:
    """What was noted of the statements of a workspace's whole life, and which calls were not made.

    `scans` are the sequential scans of the tables of stores, as the server counted them.
    """

    reads: list[Reads]
    planned: list[Planned]
    missing: set[str]
    tables: frozenset[str]
    scans: dict[str, int]


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with running_postgres() as running:
        # Statistics are collected when a test says so, not when autovacuum comes around.
        running.set(fsync="off", synchronous_commit="off", full_page_writes="off", autovacuum="off")
        yield running


@contextmanager
def living(url: str, workspace: str, broker: str, folder: Path) -> Iterator[EveryCall]:
    """Serve a database, and yield what works in one of its workspaces."""
    clock = Clock()
    runtime = Runtime(
        Settings(
            **SETTINGS,
            data=folder / "data",
            broker=broker,
            broker_prefix=f"{folder.name}:",
            embedding_provider="hash",
            log_level="error",
            database=url,
        ),
        clock=clock,
    )
    with (
        closing(runtime),
        running_server(runtime) as address,
        closing(EveryCall(address, runtime, workspace, clock, folder)) as life,
    ):
        yield life


@pytest.fixture(scope="module")
def crowded(server: TestServer, valkey_url: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database with a workspace of some rows and very many copies of it, of which nothing was analysed."""
    name = server.database()
    with living(server.url(name), FIRST, valkey_url, tmp_path_factory.mktemp("first")) as life:
        life.store_everything()
    with server.admin(name) as connection:
        add_stores(connection, rows=ROWS)
        # The host of that life is gone: erasures would wait for it for ten seconds each, and not come to an end.
        connection.execute(f"DELETE FROM {SCHEMA}.hosts")
    return name


@pytest.fixture(scope="module")
def whole(server: TestServer, crowded: str, valkey_url: str, tmp_path_factory: pytest.TempPathFactory) -> Life:
    """The life of a workspace that did not exist when the tables were analysed."""
    name = server.copy(crowded)
    with server.admin(name) as connection:
        connection.execute("VACUUM ANALYZE")
        tables = frozenset(table.name for table in tables_of_stores(connection))
    # A plan for any values takes the place of those for some after ten runs.
    noted = StatementReads(most_runs=12)
    folder = tmp_path_factory.mktemp("whole")
    with noted.noting(), living(server.url(name), "small", valkey_url, folder) as life:
        life.store_everything()
        life.read_everything()
        life.run_jobs()
        life.remove_everything()
        missing = life.missing()
    return Life(noted.reads(), noted.planned(), missing, tables, _sequential_scans(server, name, tables))


def _sequential_scans(server: TestServer, database: str, tables: frozenset[str]) -> dict[str, int]:
    """Return how often tables were read in sequence since the database was made, once all sessions have reported it."""
    with server.admin() as connection:
        sessions = "SELECT 1 FROM pg_stat_activity WHERE datname = %s LIMIT 1"
        while connection.execute(sessions, [database]).fetchone():
            time.sleep(0.01)
    with server.admin(database) as connection:
        sql = "SELECT relname, seq_scan FROM pg_stat_user_tables WHERE schemaname = %s AND seq_scan > 0"
        return {name: scans for name, scans in connection.execute(sql, [SCHEMA]) if name in tables}


def test_no_statement_reads_rows_of_another_store(whole: Life) -> None:
    """Given a new workspace beside stores with far more rows, when all is done in it, then none of theirs is read."""
    assert whole.missing == set()
    assert [reads for reads in whole.reads if reads.sequential_scans and reads.table in whole.tables] == []
    assert [reads for reads in whole.reads if reads.index_rows > MOST_ROWS] == []
    assert whole.scans == {}


def test_every_scan_is_limited_to_one_store(whole: Life) -> None:
    """Given the plans of its statements, then each scan of a table looks the store up."""
    assert len(whole.planned) > 700
    searches = [one.statement.lower() for one in whole.planned]
    assert {name for name in ("has_words", "cosine_distance_to") if any(name in sql for sql in searches)} == {
        "has_words",
        "cosine_distance_to",
    }
    assert _unlimited(whole.planned, whole.tables) == []


@pytest.mark.parametrize("kept", [False, True], ids=["made for values", "kept for any"])
def test_plans_for_tables_that_were_never_analysed_are_limited_too(
    server: TestServer, crowded: str, whole: Life, kept: bool
) -> None:
    """Given the same rows without statistics, then each scan looks the store up."""
    with closing(PostgresServer(server.url(crowded))) as opened, opened.connect() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, psycopg.Connection)
        planned = [one.planned_by(raw, kept=kept) for one in whole.planned]
    assert _unlimited(planned, whole.tables) == []


def test_what_agents_wait_for_does_not_read_all_rows_of_their_store(
    server: TestServer, crowded: str, valkey_url: str, tmp_path: Path
) -> None:
    """Given a store with thousands of rows, when messages come in and are recalled, then few of them are read."""
    name = server.copy(crowded)
    with server.admin(name) as connection:
        enlarge(connection, FIRST, rows=OWN_ROWS)
        connection.execute("VACUUM ANALYZE")
    noted = StatementReads()
    with living(server.url(name), FIRST, valkey_url, tmp_path) as life:
        life.recall("what is stored?")  # reads all rows of the agent once
        with noted.noting():
            life.do_what_agents_wait_for()
    many = [reads for reads in noted.reads() if reads.index_rows > MOST_OF_ITS_OWN]
    assert [reads for reads in many if not reads.statement.startswith(tuple(READS_AN_AGENT))] == []


@pytest.mark.parametrize("analysed", [False, True], ids=["never analysed", "analysed"])
def test_what_is_looked_up_by_rows_does_not_read_a_whole_agent(
    server: TestServer, crowded: str, tmp_path: Path, analysed: bool
) -> None:
    """Given an agent with thousands of messages, when some are read or deleted by their rows, then few are read."""
    name = server.copy(crowded)
    with server.admin(name) as connection:
        enlarge(connection, FIRST, rows=OWN_ROWS)
        if analysed:
            connection.execute("VACUUM ANALYZE")
    noted = StatementReads()
    with closing(PostgresStores(tmp_path, server.url(name))) as stores, stores.workspace(FIRST).writing() as tx:
        found = tx.connection.exec_driver_sql(
            "SELECT row_id FROM messages WHERE store_id = (SELECT id FROM stores WHERE name = %(name)s)"
            " AND agent_id = 'ana' ORDER BY row_id LIMIT 20",
            {"name": FIRST},
        )
        rows = list(found.scalars())
        with noted.noting():
            of_agent = tx.for_agent("ana")
            assert len(of_agent.messages.by_rows(rows)) == len(rows) == 20
            assert of_agent.summaries.vectors(rows, "hash-64", 64) != []
            tx.retention.remove(rows)
    assert [reads for reads in noted.reads() if reads.index_rows > FEW_ROWS] == []


def test_a_session_that_has_become_long_is_not_read_for_each_of_its_messages(
    server: TestServer, crowded: str, valkey_url: str, tmp_path: Path
) -> None:
    """Given short sessions when the tables were analysed, when one becomes long, then ingest does not read it all."""
    name = server.copy(crowded)
    with server.admin(name) as connection:
        multiply_chunks(connection, rows=100_000)
        connection.execute("VACUUM ANALYZE")
    noted = StatementReads()
    with living(server.url(name), "long", valkey_url, tmp_path) as life:
        for batch in range(4):
            lines = [f"line {line} of part {batch}" for line in range(400)]
            with noted.noting():
                life.ingest("talk", [{"role": "user", "content": line} for line in lines])
                life.settle()
    assert [reads for reads in noted.reads() if reads.index_rows > LONG_SESSION] == []


def test_what_is_read_in_sequence_or_within_a_trigger_is_noticed(server: TestServer, tmp_path: Path) -> None:
    """Given statements that are made to read all rows, then the check of this file names them and their tables."""
    noted = StatementReads()
    with closing(PostgresStores(tmp_path, server.url(server.database()))) as stores, noted.noting():
        write(stores.workspace("a"), "the tram to Lisbon")
        with stores.workspace("a").writing() as tx:
            for setting in ("enable_indexscan", "enable_indexonlyscan", "enable_bitmapscan"):
                tx.connection.exec_driver_sql(f"SET LOCAL {setting} = off")
            tx.connection.exec_driver_sql("SELECT count(*) FROM messages")
            tx.connection.exec_driver_sql("DELETE FROM sessions")
    found = {(reads.statement, reads.table) for reads in noted.reads() if reads.sequential_rows}
    assert ("SELECT count(*) FROM messages", "messages") in found
    assert ("DELETE FROM sessions", "messages") in found  # by the trigger of its references
    assert "Seq Scan on messages" in str(_unlimited(noted.planned(), frozenset({"messages"})))


def _unlimited(planned: list[Planned], tables: frozenset[str]) -> list[tuple[list[str], str]]:
    return [(scans, one.statement) for one in planned if (scans := one.unlimited(tables))]
