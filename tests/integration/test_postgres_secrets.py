"""Hosts on one database sign alike: one key, rotations that count everywhere, and nothing of erased agents in them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from adapters.kept_secrets import KEY_FILE, installation_key
from memory.lifecycle.erasing import continue_erasures
from memory.lifecycle.erasure_rows import Scope
from memory.lifecycle.erasures import read_erasure, request_erasure
from memory.lifecycle.forgetting import forget_workspace
from memory.lifecycle.host_folder import share_keys
from memory.lifecycle.restore import apply_tombstones
from memory.tombstones import hash_key
from memory.trust.webhook_secrets import AgentSecrets
from reverie.errors import NotFound, StoreUnavailable
from storage.opened import open_stores
from storage.postgres.copying import open_target
from storage.stores import Stores
from support.agents import until
from support.byte_search import places_of
from support.command_line import CommandLine
from support.postgres import MakeHost, TestServer
from worker.runtime import Runtime

NOW = datetime(2027, 3, 1, 8, tzinfo=UTC)
HERON = "heron-canary-7c31e0"
WORKSPACE = "default"


@pytest.fixture
def a(make_host: MakeHost) -> Runtime:
    """One host; the workspace exists."""
    host = make_host("a")
    host.store(WORKSPACE)
    return host


@pytest.fixture
def b(make_host: MakeHost, a: Runtime) -> Runtime:
    """The host that joins second."""
    assert a.stores
    return make_host("b")


def secrets(host: Runtime, agent: str = HERON, *, now: datetime = NOW) -> list[str]:
    return AgentSecrets(host.stores, WORKSPACE).secrets(agent, now)


def rotate(host: Runtime, agent: str = HERON) -> list[str]:
    return AgentSecrets(host.stores, WORKSPACE).rotate(agent, NOW)


def erase(host: Runtime, agent: str) -> None:
    scope = Scope("agent", "", agent, None)
    made = request_erasure(host.stores, host.settings.data, scope, requested_by="tester", now=host.now())
    continue_erasures(host.erasure_services)
    assert read_erasure(host.stores, made.id).state == "done"


def records_in(server: TestServer, database: str) -> list[tuple[str, int]]:
    """Return the hashes of all stores, and how often each secret was rotated."""
    with server.admin(database) as connection:
        rows = connection.execute("SELECT agent_hash, count FROM reverie.webhook_rotations")
        return [(str(row[0]), int(row[1])) for row in rows]


def waits_for_lock(connection: psycopg.Connection) -> bool:
    return connection.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is not None


def test_all_hosts_sign_alike(a: Runtime, b: Runtime) -> None:
    """Given two hosts that were given nothing but the database, then each signs what the other one's keys verify."""
    body, at = b"{}", datetime.now(UTC)
    one, other = (host.schedules.webhook_signer(WORKSPACE, HERON).headers("m1", body, at) for host in (a, b))
    assert one == other
    assert a.schedules.worker_key(WORKSPACE, HERON) == b.schedules.worker_key(WORKSPACE, HERON)
    assert a.schedules.secrets == b.schedules.secrets
    assert not list(b.settings.data.glob("*.earlier")), "it had no key of its own"


def test_the_first_use_of_a_host_is_with_the_key_of_all(a: Runtime, tmp_path: Path) -> None:
    """Given a process that has opened nothing yet, when it derives a key, then it is that of the other hosts."""
    fresh = Runtime(a.settings.model_copy(update={"data": tmp_path / "fresh"}))
    try:
        assert fresh.schedules.worker_key(WORKSPACE, HERON) == a.schedules.worker_key(WORKSPACE, HERON)
    finally:
        fresh.close()


def test_a_host_with_a_key_of_its_own_takes_that_of_all_and_keeps_its_own_beside_it(
    a: Runtime, make_host: MakeHost, tmp_path: Path
) -> None:
    """Given a data folder that has made a key before, when it joins, then it signs as all do, and nothing is lost."""
    own = installation_key(tmp_path / "late")
    text = (tmp_path / "late" / KEY_FILE).read_text()
    late = make_host("late")
    assert secrets(late) == secrets(a)
    assert installation_key(late.settings.data) == installation_key(a.settings.data) != own
    earlier = tmp_path / "late" / f"{KEY_FILE}.earlier"
    assert earlier.read_text() == text
    assert earlier.stat().st_mode & 0o077 == (tmp_path / "late" / KEY_FILE).stat().st_mode & 0o077 == 0


def test_processes_of_several_hosts_that_start_at_once_agree_on_one_key(database_url: str, tmp_path: Path) -> None:
    """Given two processes of each of four hosts, two of which have keys, when all start at once, then all share one."""
    names = ["a", "b", "c", "d"]
    own = {name: installation_key(tmp_path / name) for name in names[:2]}
    all_are_there = threading.Barrier(2 * len(names))

    def start(name: str) -> bytes:
        all_are_there.wait(60)
        with closing(open_stores(tmp_path / name, database_url)) as stores:
            share_keys(stores)
            return installation_key(stores.data_dir)

    with ThreadPoolExecutor(2 * len(names)) as threads:
        (key,) = set(threads.map(start, names * 2))
    assert {installation_key(tmp_path / name) for name in names} == {key}
    kept = {name for name in names if (tmp_path / name / f"{KEY_FILE}.earlier").exists()}
    assert kept == {name for name, earlier in own.items() if earlier != key}


def test_a_rotation_on_one_host_holds_on_all_at_once(a: Runtime, b: Runtime) -> None:
    """Given a rotation, then the other host signs with the new secret and the one before, also without any files."""
    (first,) = secrets(b)
    second, also = rotate(a)
    assert also == first
    assert secrets(b) == [second, first]
    assert rotate(b) == secrets(a)
    assert secrets(a, now=NOW + timedelta(days=7)) == secrets(b)[:1]
    assert not list(a.settings.data.glob("workspaces/*/webhook-secrets.json"))


def test_no_rotation_of_two_hosts_at_once_is_lost(a: Runtime, b: Runtime, server: TestServer, database: str) -> None:
    """Given many rotations on both hosts at once, the first of the workspace among them, then each counts."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(rotate, [a, b] * 10))
    assert [count for _, count in records_in(server, database)] == [20]


def test_nothing_is_rotated_in_a_workspace_that_is_not_there(a: Runtime) -> None:
    """Given no workspace of that name, then a rotation says so."""
    with pytest.raises(NotFound, match="no workspace 'nowhere'"):
        AgentSecrets(a.stores, "nowhere").rotate(HERON, NOW)


def test_a_deleted_workspace_leaves_no_record(a: Runtime, b: Runtime, server: TestServer, database: str) -> None:
    """Given a workspace with rotated secrets, when it is deleted on another host, then its record is gone, too."""
    rotate(a)
    assert len(records_in(server, database)) == 1
    assert forget_workspace(b.erasure_services, WORKSPACE)
    assert records_in(server, database) == []


def test_a_workspace_that_is_deleted_while_a_secret_is_rotated_is_not_there(
    a: Runtime, server: TestServer, database: str
) -> None:
    """Given a deletion that began before the rotation, when it ends, then nothing is rotated, and then not found."""
    rotate(a)
    with ThreadPoolExecutor(1) as threads, server.admin(database) as deleting:
        with deleting.transaction():
            deleting.execute("DELETE FROM reverie.stores WHERE name = %s", [WORKSPACE])
            rotating = threads.submit(rotate, a)
            until(lambda: waits_for_lock(deleting), "the rotation does not wait for the deletion")
        with pytest.raises(StoreUnavailable, match="was deleted a moment ago"):
            rotating.result()
    with pytest.raises(NotFound, match="no workspace 'default'"):
        rotate(a)


@pytest.mark.parametrize("table", ["installation_key", "erasure_key"])
def test_a_transaction_of_a_store_sees_no_secrets_of_the_installation(a: Runtime, table: str) -> None:
    """Given a statement that forgot what it may read, then a store's transaction finds no key and no name."""
    rotate(a)
    store = a.store(WORKSPACE)
    count = f"SELECT count(*) FROM {table}"
    with store.reading() as reading:
        assert reading.connection.exec_driver_sql(count).scalar_one() == 0
    with store.writing() as writing:
        assert writing.connection.exec_driver_sql(count).scalar_one() == 0
        assert writing.connection.exec_driver_sql(f"DELETE FROM {table}").rowcount == 0
    assert len(secrets(a)) == 2, "the rotation is still there"


def test_an_erased_agent_is_named_nowhere_and_its_old_secrets_do_not_come_back(
    a: Runtime, b: Runtime, server: TestServer, database: str
) -> None:
    """Given an agent whose secret was rotated, when it is erased, then one of its name gets no replaced secret."""
    first = rotate(a)[0]
    second = rotate(b)[0]
    erase(a, HERON)
    assert [count for _, count in records_in(server, database)] == [2]
    assert HERON not in {name for name, _ in records_in(server, database)}
    assert places_of(a.settings.data, HERON) == places_of(b.settings.data, HERON) == set()
    apply_tombstones(a.stores, now=a.now())
    assert secrets(b, now=NOW + timedelta(days=8)) == [second]
    third = rotate(b)[0]
    assert len({first, second, third}) == 3


def test_secrets_move_with_the_stores_there_and_back(
    server: TestServer, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given rotated secrets in files, when the stores are copied to a database and back, then all places sign alike.

    A host whose data folder is empty signs so, too; what is rotated there comes back to the files.
    """
    data, database_url, back = tmp_path / "data", server.url(empty), tmp_path / "back"
    with closing(Stores(data)) as files:
        files.workspace(WORKSPACE)
        AgentSecrets(files, WORKSPACE).rotate(HERON, NOW)
        before = AgentSecrets(files, WORKSPACE).secrets(HERON, NOW)
    command = CommandLine(monkeypatch, capsys, "--data", str(data))
    assert command("db", "copy", "--to", database_url).code == 0
    with closing(open_stores(tmp_path / "empty", database_url)) as database:
        share_keys(database)
        assert AgentSecrets(database, WORKSPACE).secrets(HERON, NOW) == before
        newest = AgentSecrets(database, WORKSPACE).rotate(HERON, NOW)
    monkeypatch.setenv("REVERIE_DATABASE", database_url)
    ended = command("db", "copy", "--to", str(back))
    assert ended.code == 0, ended
    with closing(Stores(back)) as files:
        assert AgentSecrets(files, WORKSPACE).secrets(HERON, NOW) == newest


def test_the_key_moves_to_a_database_that_another_host_has_looked_into(
    server: TestServer, empty: str, tmp_path: Path
) -> None:
    """Given a database without stores, whose key is of who tried the address, then the copy brings the key of its own.

    Else receivers would refuse all that is sent after the move, and nobody would know what was erased before.
    """
    data, url = tmp_path / "data", server.url(empty)
    with closing(open_stores(tmp_path / "elsewhere", url)) as database:
        share_keys(database)
    with closing(Stores(data)) as files, closing(open_target(files, url)) as target:
        keys = hash_key(data).secret, installation_key(data)
        target.share_keys(erasures=keys[0], installation=keys[1])
    for folder in ("data", "elsewhere"):
        with closing(open_stores(tmp_path / folder, url)) as database:
            share_keys(database)
        assert (hash_key(tmp_path / folder).secret, installation_key(tmp_path / folder)) == keys
