"""What goes wrong with a PostgreSQL server while Reverie runs: nothing is lost, doubled or given up."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx2
import psycopg
import pytest
import redis

from adapters.broker.monitor import Monitor
from memory.pipeline.broker_status import read_broker
from memory.stage import MAX_CRASHES
from memory.status import StatusReader
from storage.pipeline.work import Claim
from storage.postgres.engine import CONNECTIONS_OF_A_TURN, MAX_CONNECTIONS, TURNS, PostgresDatabase
from storage.postgres.stores import PostgresStores
from storage.stores import Stores
from support.agents import until
from support.failing_server import STAGES, assert_all_stored, pipeline_on, run_while, try_stage
from support.http import running_server
from support.pipeline import PREFIX, WORKSPACE, Pipeline
from support.postgres import USER, TestServer, running_postgres
from worker.host_upkeep import open_own_stores
from worker.runtime import Runtime
from worker.settings import Settings

AGENT = {"X-Reverie-Agent": "ana"}


@pytest.fixture
def pipe(server: TestServer, database: str, tmp_path: Path) -> Iterator[Pipeline]:
    with pipeline_on(server.url(database), tmp_path) as made:
        yield made


def test_a_restart_between_two_requests_is_noticed_by_none(pipe: Pipeline, server: TestServer) -> None:
    pipe.say("zanzibar one")
    pipe.settle()
    for mode in ("fast", "immediate"):
        server.restart(mode)
        assert pipe.found("zanzibar") == ["zanzibar one"]
        with pipe.store.writing() as tx:
            tx.for_agent("ana").channels.ensure(mode, now=1)


def test_restarts_while_stages_and_recalls_run_lose_and_double_nothing(
    server: TestServer, database: str, tmp_path: Path, valkey_url: str, broker_prefix: str
) -> None:
    """Given a stream of messages and recalls, when the server is restarted in both ways, then each is stored once."""
    broker = redis.Redis.from_url(valkey_url)
    with pipeline_on(server.url(database), tmp_path, broker=broker, prefix=broker_prefix) as pipe:
        pipe.say("zanzibar first")
        pipe.settle()
        sent, errors, recalled = run_while(pipe, lambda: [server.restart(mode) for mode in ("fast", "immediate")])
        assert errors == []
        assert recalled > 0
        assert_all_stored(pipe, 1 + sent)


def _status_errors(pipe: Pipeline) -> dict[str, str]:
    """Return what `reverie status` says is wrong."""
    monitor = Monitor(pipe.broker, prefix=PREFIX)
    return StatusReader(pipe.stores, partial(read_broker, pipe.inbox, monitor), None).read(now=pipe.now()).errors


def test_a_standby_is_read_and_what_is_to_be_written_waits_until_it_is_promoted(tmp_path: Path) -> None:
    """Given a database that failed over to a standby, when it is promoted later, then nothing was given up."""
    with running_postgres() as primary:
        name = primary.database()
        with pipeline_on(primary.url(name), tmp_path / "before") as pipe:
            pipe.say("zanzibar one")
            pipe.settle()
        standby = primary.standby(primary.folder.parent / "standby")
        primary.stop()
        try:
            with pipeline_on(standby.url(name), tmp_path / "after") as pipe:
                pipe.say("zanzibar two")
                assert pipe.found("zanzibar") == ["zanzibar one"]
                assert "can only be read" in _status_errors(pipe)["database"]
                for _ in range(2 * MAX_CRASHES):
                    assert "can only be read" in try_stage(pipe, "ingest")
                    pipe.make_due()
                with standby.admin() as connection:
                    assert connection.execute("SELECT pg_promote()").fetchone() == (True,)
                assert_all_stored(pipe, 2)
                assert _status_errors(pipe) == {}
        finally:
            standby.stop()


def test_a_server_that_becomes_read_only_is_left_for_the_primary(pipe: Pipeline, server: TestServer) -> None:
    """Given connections to what was the primary, when it refuses to write, then the next write has a new connection."""
    before = _backends(server)
    pipe.say("zanzibar one")
    server.set(default_transaction_read_only="on")
    until(lambda: _is_read_only(server), "the server does not become read-only")
    try:
        assert "can only be read (cannot execute UPDATE in a read-only transaction)" in try_stage(pipe, "ingest")
        until(lambda: not before & _backends(server), "a connection to the former primary stays open")
    finally:
        server.set(default_transaction_read_only="off")
        until(lambda: not _is_read_only(server), "the server stays read-only")
    assert_all_stored(pipe, 1)


def _is_read_only(server: TestServer) -> bool:
    with server.admin() as connection:
        return connection.execute("SHOW default_transaction_read_only").fetchone() == ("on",)


def _open_connections(stores: Stores) -> int:
    """Return how many connections these stores have open; the server takes a moment to end one that was closed."""
    assert isinstance(stores, PostgresStores)
    return sum(not connection.closed for connection in stores._server._opened._connections)


def _backends(server: TestServer) -> set[int]:
    with server.admin() as connection:
        rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE usename = %s", [USER])
        return {pid for (pid,) in rows}


def test_requests_are_answered_503_while_the_server_is_down_and_then_as_before(
    server: TestServer, database: str, make_runtime: Callable[..., Runtime]
) -> None:
    runtime = make_runtime(database=server.url(database))
    note = {"content": "The ferry leaves at noon"}
    with running_server(runtime) as url, httpx2.Client(base_url=url, headers=AGENT, timeout=60) as client:
        client.post("/v1/memories", json=note).raise_for_status()
        server.stop()
        try:
            for answer in (
                client.post("/v1/recall", json={"query": "ferry"}),
                client.post("/v1/memories", json=note),
                client.get("/v1/memories"),
            ):
                assert (answer.status_code, "Retry-After" in answer.headers) == (503, True), answer.text
                assert "cannot be reached" in answer.text
            status = client.get("/v1/status")
            assert "cannot be reached" in status.text
        finally:
            server.start()
        client.post("/v1/recall", json={"query": "ferry"}).raise_for_status()
        assert len(client.get("/v1/memories").json()["memories"]) == 1


@pytest.mark.parametrize("limit", ["CONNECTION LIMIT", "max_connections"])
def test_a_server_without_a_free_connection_is_tried_again(
    server: TestServer, database: str, tmp_path: Path, valkey_url: str, broker_prefix: str, limit: str
) -> None:
    """Given other programs that hold all connections, when they give them free, then what waited is stored."""
    with ExitStack() as others, pipeline_on(server.url(database), tmp_path) as pipe:
        pipe.say("zanzibar one")
        pipe.stores.close()
        until(lambda: not _backends(server), "a closed connection stays open at the server")
        if limit == "CONNECTION LIMIT":
            with server.admin() as connection:
                connection.execute(f"ALTER ROLE {USER} CONNECTION LIMIT 2")
        held = 0
        with suppress(psycopg.OperationalError):
            while True:
                others.enter_context(psycopg.connect(server.url(database).replace("+psycopg", "")))
                held += 1
        assert held >= 2
        for _ in range(2 * MAX_CRASHES):
            assert "has no connection left" in try_stage(pipe, "ingest")
            pipe.make_due()
        others.close()
        until(lambda: not _backends(server), "a closed connection stays open at the server")
        assert_all_stored(pipe, 1)
        with server.admin() as connection:
            connection.execute(f"ALTER ROLE {USER} CONNECTION LIMIT -1")


def test_the_number_of_connections_of_a_process_can_be_set(server: TestServer, tmp_path: Path) -> None:
    """Given `database_connections`, when more threads read two stores each, then all do, by three times as many."""
    name = server.database()
    settings = Settings(data=tmp_path, database=server.url(name), database_connections=2)
    counted: list[int] = []
    with closing(open_own_stores(settings)) as stores:
        store = stores.workspace("a")

        def read(_: int) -> None:
            with store.reading(), stores.account_store().reading():
                counted.append(_open_connections(stores))

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(read, range(40)))
        assert len(counted) == 40
        assert max(counted) <= 2 * CONNECTIONS_OF_A_TURN
        assert _open_connections(stores) <= 2, "what a peak needed is closed"
        until(lambda: len(_backends(server)) <= 2, "what a peak needed stays open at the server")
    server.drop(name)


def test_readers_of_two_stores_wait_for_no_connection_of_each_other(pipe: Pipeline, server: TestServer) -> None:
    """Given more threads than turns, each with snapshots of two stores, then all read, by a bounded number."""
    pipe.stores.account()
    begun = threading.Barrier(TURNS)
    counted: list[int] = []

    def read(number: int) -> None:
        with pipe.store.reading():
            if number < TURNS:
                begun.wait()
            with pipe.stores.account_store().reading():
                counted.append(_open_connections(pipe.stores))

    with ThreadPoolExecutor(3 * TURNS) as threads:
        first = [threads.submit(read, number) for number in range(TURNS)]
        for done in [*first, *(threads.submit(read, number) for number in range(TURNS, 3 * TURNS))]:
            done.result()
    assert max(counted) <= MAX_CONNECTIONS
    assert _open_connections(pipe.stores) <= TURNS, "what a peak needed is closed"
    until(lambda: len(_backends(server)) <= TURNS, "what a peak needed stays open at the server")


def test_writers_of_a_locked_store_leave_connections_to_all_others(pipe: Pipeline, server: TestServer) -> None:
    """Given more writers of a locked store than turns, then others are served meanwhile, and they once it is free."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s AND wait_event_type = 'Lock'"

    def write(number: int) -> None:
        with pipe.store.writing() as tx:
            tx.for_agent("ana").channels.ensure(f"c{number}", now=1)

    with ThreadPoolExecutor(2 * TURNS) as threads, _locked(server, pipe) as outside:
        writers = [threads.submit(write, number) for number in range(2 * TURNS)]
        while outside.execute(waiting, [USER]).fetchone() != (1,):
            pass
        with pipe.stores.workspace("free").writing() as tx:
            tx.for_agent("lif").channels.ensure("c", now=1)
        assert not any(writer.done() for writer in writers)
        outside.execute("COMMIT")
        for writer in writers:
            writer.result()
    assert pipe.count("channels", "1 = 1") == 2 * TURNS


@contextmanager
def _locked(server: TestServer, pipe: Pipeline) -> Iterator[psycopg.Connection]:
    """Hold a store, as a writer on another host can, until the yielded connection commits."""
    assert isinstance(pipe.store.database, PostgresDatabase)
    database = pipe.store.database.server.url.database
    assert database is not None
    with psycopg.connect(server.admin_url(database)) as outside:
        outside.execute("UPDATE reverie.stores SET writes = writes WHERE name = %s", [WORKSPACE])
        yield outside


def test_a_full_disk_of_the_server_keeps_the_work(tmp_path: Path) -> None:
    """Given a server whose disk is full, when stages try again and again, then nothing is given up, and all goes on."""
    with _small_disk() as (folder, grow), running_postgres() as server:
        os.chown(folder, *_owner(server.folder))
        with server.admin() as connection:
            connection.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
        name = server.database()
        with server.admin() as connection:
            connection.execute(f"ALTER DATABASE {name} SET TABLESPACE small")
        with pipeline_on(server.url(name), tmp_path) as pipe:
            pipe.say("zanzibar one")
            pipe.settle()
            with server.admin(name) as connection, suppress(psycopg.errors.DiskFull):
                connection.execute("CREATE TABLE filler (content text)")
                connection.execute("ALTER TABLE filler ALTER content SET STORAGE PLAIN")
                while True:
                    connection.execute("INSERT INTO filler SELECT repeat('x', 7000) FROM generate_series(1, 50)")
            for number in range(3):
                pipe.say(*(f"zanzibar {number} {line} {'harbour ' * 500}" for line in range(20)))
            failed = [error for _ in range(2 * MAX_CRASHES) for error in _all_stages(pipe)]
            assert failed
            assert all("check the free space of the database server's disk" in error for error in failed)
            assert pipe.found("zanzibar one") == ["zanzibar one"]
            grow()
            assert_all_stored(pipe, 61)


@pytest.mark.parametrize("interrupted", ["by nothing", "by a restart", "by a cut connection"])
def test_a_claim_that_a_living_process_of_another_host_gave_up_counts_no_crash(
    server: TestServer, database: str, tmp_path: Path, interrupted: str
) -> None:
    """Given a worker that could not write that it gave up, when another host claims its rows, then only its death
    counts."""
    with (
        pipeline_on(server.url(database), tmp_path / "one") as one,
        pipeline_on(server.url(database), tmp_path / "two") as two,
    ):
        one.say("zanzibar one", "zanzibar two")
        one.ingest()
        claim = _claim(one)
        one.store.given_up.note(claim.token)
        if interrupted == "by a restart":
            server.restart("immediate")
            one.store.given_up.note(claim.token)  # as a run whose outcome cannot be saved does every second
        if interrupted == "by a cut connection":
            _cut(server)
            assert not one.store.given_up.is_noted(0)  # any other look connects again
        assert two.store.given_up.is_noted(claim.token)
        assert not two.store.given_up.is_noted(claim.token + 1)
        two.advance(30)
        second = _claim(two)
        assert second.crashes == 0
        one.store.given_up.forget(claim.token)
        assert not two.store.given_up.is_noted(claim.token)
        two.advance(30)
        assert _claim(two).crashes == 1, "its lease has ended, and nobody says why"


def _claim(pipe: Pipeline) -> Claim:
    store = pipe.store
    with store.writing() as tx:
        claim = tx.work.claim("chunk", now=pipe.now(), lease_seconds=25, limit=10, given_up=store.given_up)
    assert claim is not None
    return claim


def _cut(server: TestServer) -> None:
    with server.admin() as connection:
        connection.execute("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = %s", [USER])


def _all_stages(pipe: Pipeline) -> list[str]:
    pipe.make_due()
    pipe.advance(400)
    return [error for error in (try_stage(pipe, stage) for stage in STAGES) if error]


@contextmanager
def _small_disk() -> Iterator[tuple[Path, Callable[[], object]]]:
    """Mount a small file system where the user of the server can reach it; yield it, and what makes it larger."""
    with tempfile.TemporaryDirectory(prefix="rvpg-disk-") as name:
        Path(name).chmod(0o755)
        disk = Path(name) / "disk"
        disk.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(disk)]
        if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
            pytest.skip("only root may mount a file system")
        try:
            yield disk, lambda: subprocess.run(["mount", "-o", "remount,size=256m", str(disk)], check=True)
        finally:
            subprocess.run(["umount", str(disk)], check=True)


def _owner(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid


def test_a_database_that_does_not_answer_holds_up_only_what_needs_it(
    server: TestServer, make_runtime: Callable[..., Runtime], tmp_path: Path
) -> None:
    """Given a database in which a call waits for a lock, then the server answers others meanwhile, and goes on after.

    The call may create a workspace, so whether it exists is looked up first.
    """
    name = server.database()
    runtime = make_runtime(data=tmp_path / "host", database=server.url(name))
    message = {"session": "s1", "messages": [{"role": "user", "content": "Kate takes oat milk"}]}
    with ExitStack() as stack:
        url = stack.enter_context(running_server(runtime))
        client = stack.enter_context(httpx2.Client(base_url=url, headers={"X-Reverie-Agent": "ana"}))
        assert client.post("/v1/messages", json=message).is_success
        threads = stack.enter_context(ThreadPoolExecutor(1))
        with server.admin(name) as admin, admin.transaction():
            admin.execute("LOCK TABLE reverie.stores IN ACCESS EXCLUSIVE MODE")
            waiting = threads.submit(client.post, "/v1/messages", json=message)
            until(lambda: _waiting_for_locks(admin), "the call does not look up the workspace")
            assert httpx2.get(f"{url}/healthz", timeout=20).is_success
            assert not waiting.done()
        assert waiting.result().is_success


def test_the_health_of_a_server_is_told_while_all_its_threads_wait_for_the_database(
    server: TestServer, make_runtime: Callable[..., Runtime], tmp_path: Path
) -> None:
    """Given more calls than threads in a database that does not answer, then the probe is answered, and all go on."""
    name = server.database()
    runtime = make_runtime(data=tmp_path / "host", database=server.url(name))
    before = _pool_threads()

    def read(number: int) -> int:
        headers = {"X-Reverie-Agent": "ana", "X-Reverie-Workspace": f"w{number % 3}"}
        return client.get("/v1/memories", headers=headers).status_code

    with ExitStack() as stack:
        url = stack.enter_context(running_server(runtime))
        client = stack.enter_context(httpx2.Client(base_url=url))
        threads = stack.enter_context(ThreadPoolExecutor(60))
        for number in range(3):
            runtime.store(f"w{number}")
        with server.admin(name) as admin, admin.transaction():
            admin.execute("LOCK TABLE reverie.stores IN ACCESS EXCLUSIVE MODE")
            waiting = [threads.submit(read, number) for number in range(60)]
            until(lambda: _pool_threads() - before >= 40, "the calls do not take all threads")
            assert httpx2.get(f"{url}/healthz", timeout=20).is_success
        assert {one.result() for one in waiting} == {200}


def _pool_threads() -> int:
    """Return how many threads the server has started: one more whenever all are at work."""
    return sum(thread.name.startswith("AnyIO worker") for thread in threading.enumerate())


def _waiting_for_locks(connection: psycopg.Connection) -> int:
    found = connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone()
    assert found is not None
    return int(found[0])
