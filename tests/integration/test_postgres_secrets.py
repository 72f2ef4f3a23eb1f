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
from adapters.webhooks.signing import secrets_in
from memory.lifecycle.erasing import continue_erasures
from memory.lifecycle.erasure_rows import Scope
from memory.lifecycle.erasures import read_erasure, request_erasure
from memory.lifecycle.forgetting import forget_workspace
from memory.lifecycle.host_folder import share_keys
from memory.lifecycle.restore import apply_tombstones
from memory.tombstones import hash_key
from memory.trust.webhook_secrets import SharedRotations, agent_secrets, all_rotations, share_rotations
from reverie.errors import NotFound, StoreUnusable
from storage.opened import hosts_of, open_stores
from storage.postgres.copying import open_target
from storage.stores import Stores
from support.agents import until
from support.byte_search import places_of
from support.command_line import CommandLine
from support.postgres import MakeHost, TestServer
from worker.host_upkeep import HostUpkeep
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
    return agent_secrets(host.stores, WORKSPACE).secrets(agent, now)


def rotate(host: Runtime, agent: str = HERON) -> list[str]:
    return agent_secrets(host.stores, WORKSPACE).rotate(agent, NOW)


def erase(host: Runtime, agent: str) -> None:
    scope = Scope("agent", "", agent, None)
    made = request_erasure(host.stores, host.settings.data, scope, requested_by="tester", now=host.now())
    continue_erasures(host.erasure_services)
    assert read_erasure(host.stores, made.id).state == "done"


def records_in(database_url: str) -> list[str]:
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        return [content for (content,) in connection.execute("SELECT content FROM reverie.webhook_rotations")]


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


def test_no_rotation_of_two_hosts_at_once_is_lost(a: Runtime, b: Runtime, database_url: str) -> None:
    """Given many rotations on both hosts at once, the first of the workspace among them, then each counts."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(rotate, [a, b] * 10))
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        ((content,),) = connection.execute("SELECT content::jsonb FROM reverie.webhook_rotations").fetchall()
    assert [*content.values()] == [{"count": 20, "at": "2027-03-01T08:00:00Z"}]


def test_nothing_is_rotated_in_a_workspace_that_is_not_there(a: Runtime) -> None:
    """Given no workspace of that name, then a rotation says so."""
    with pytest.raises(NotFound, match="no workspace 'nowhere'"):
        agent_secrets(a.stores, "nowhere").rotate(HERON, NOW)


def test_a_damaged_record_is_an_error_that_names_the_workspace(a: Runtime, database_url: str) -> None:
    """Given a record that cannot be read, then nothing is signed with a secret that was replaced."""
    rotate(a)
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        connection.execute("UPDATE reverie.webhook_rotations SET content = '{'")
    with pytest.raises(StoreUnusable, match="'default' are damaged in the database"):
        secrets(a)


def test_a_deleted_workspace_leaves_no_record(a: Runtime, b: Runtime, database_url: str) -> None:
    """Given a workspace with rotated secrets, when it is deleted on another host, then its record is gone, too."""
    rotate(a)
    assert len(records_in(database_url)) == 1
    assert forget_workspace(b.stores, b.inbox, b.working_memory, b.recall_log, workspace=WORKSPACE)
    assert records_in(database_url) == []


def test_a_workspace_that_is_deleted_while_a_secret_is_rotated_is_not_there(
    a: Runtime, server: TestServer, database: str
) -> None:
    """Given a deletion that began before the rotation, when it ends, then the rotation says that nothing is there."""
    rotate(a)
    with ThreadPoolExecutor(1) as threads, server.admin(database) as deleting:
        with deleting.transaction():
            deleting.execute("DELETE FROM reverie.stores WHERE name = %s", [WORKSPACE])
            rotating = threads.submit(rotate, a)
            until(lambda: waits_for_lock(deleting), "the rotation does not wait for the deletion")
        with pytest.raises(NotFound, match="no workspace 'default'"):
            rotating.result()


@pytest.mark.parametrize("table", ["installation_key", "erasure_key", "webhook_rotations"])
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


def test_who_was_never_rotated_leaves_no_record(a: Runtime) -> None:
    """Given a change that changes nothing, then no workspace is listed as one with rotated secrets."""
    hosts = hosts_of(a.stores)
    assert hosts is not None
    assert not SharedRotations(hosts, WORKSPACE).change(lambda _: False)
    assert all_rotations(a.stores) == {}


def test_an_erased_agent_is_named_nowhere_and_its_old_secrets_do_not_come_back(
    a: Runtime, b: Runtime, database_url: str
) -> None:
    """Given an agent whose secret was rotated, when it is erased, then one of its name gets no replaced secret."""
    folder = a.settings.data / "workspaces" / WORKSPACE
    folder.mkdir(parents=True, exist_ok=True)
    secrets_in(folder, installation_key(a.settings.data)).rotate(HERON, NOW)  # a file from before a move
    (first,) = secrets(b)
    second = rotate(b)[0]
    erase(a, HERON)
    assert HERON not in "".join(records_in(database_url))
    assert places_of(a.settings.data, HERON) == places_of(b.settings.data, HERON) == set()
    assert share_rotations(a.stores) == 0
    assert secrets(b, now=NOW + timedelta(days=8)) == [second]
    third = rotate(b)[0]
    assert len({first, second, third}) == 3


def test_a_dump_from_before_an_erasure_names_nobody_and_brings_back_no_replaced_secret(
    a: Runtime, database_url: str
) -> None:
    """Given a record from before an erasure, when tombstones are applied, then it has no names, and counts on."""
    rotate(a)
    rotate(a, "plover")
    second = secrets(a)[0]
    (before,) = records_in(database_url)
    erase(a, HERON)
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        connection.execute("UPDATE reverie.webhook_rotations SET content = %s", [before.replace("2027", "2020")])
    apply_tombstones(a.stores, now=a.now())
    assert not any(name in before for name in (HERON, "plover"))
    assert secrets(a, now=NOW + timedelta(days=8)) == [second]


def test_rotations_in_files_of_a_host_count_for_all_once_it_runs(a: Runtime, b: Runtime) -> None:
    """Given a data folder with rotations from before, when a process looks after it, then all hosts have them."""
    folder = a.settings.data / "workspaces" / WORKSPACE
    folder.mkdir(parents=True, exist_ok=True)
    of_file = secrets_in(folder, installation_key(a.settings.data))
    of_file.rotate(HERON, NOW)
    of_file.rotate("plover", NOW)
    rotate(b, "plover")
    newest = rotate(b, "plover")
    settings = a.settings
    a.close()
    with closing(HostUpkeep(settings)):
        until(lambda: secrets(b) == of_file.secrets(HERON, NOW), "the rotation does not reach the other host")
    assert secrets(b, "plover") == newest, "it had been rotated again since"


def test_secrets_move_with_the_stores_there_and_back(
    server: TestServer, empty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given rotated secrets in files, when the stores are copied to a database and back, then all places sign alike.

    A host whose data folder is empty signs so, too; what is rotated there comes back to the files.
    """
    data, database_url, back = tmp_path / "data", server.url(empty), tmp_path / "back"
    with closing(Stores(data)) as files:
        files.workspace(WORKSPACE)
        agent_secrets(files, WORKSPACE).rotate(HERON, NOW)
        before = agent_secrets(files, WORKSPACE).secrets(HERON, NOW)
    command = CommandLine(monkeypatch, capsys, "--data", str(data))
    assert command("db", "copy", "--to", database_url).code == 0
    with closing(open_stores(tmp_path / "empty", database_url)) as database:
        share_keys(database)
        assert agent_secrets(database, WORKSPACE).secrets(HERON, NOW) == before
        newest = agent_secrets(database, WORKSPACE).rotate(HERON, NOW)
    monkeypatch.setenv("REVERIE_DATABASE", database_url)
    ended = command("db", "copy", "--to", str(back))
    assert ended.code == 0, ended
    with closing(Stores(back)) as files:
        assert files.workspace(WORKSPACE, create=False)
        assert agent_secrets(files, WORKSPACE).secrets(HERON, NOW) == newest


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
        target.share_key(hash_key(data).secret)
        target.share_secrets(installation_key(data), {})
        keys = hash_key(data).secret, installation_key(data)
    for folder in ("data", "elsewhere"):
        with closing(open_stores(tmp_path / folder, url)) as database:
            share_keys(database)
        assert (hash_key(tmp_path / folder).secret, installation_key(tmp_path / folder)) == keys


def test_rotations_of_a_workspace_that_is_not_copied_yet_wait_for_the_next_copy(
    server: TestServer, empty: str, tmp_path: Path
) -> None:
    """Given a workspace that was made while others were copied, then its rotations fail nothing."""
    with closing(Stores(tmp_path / "data")) as files, closing(open_target(files, server.url(empty))) as target:
        files.workspace(WORKSPACE)
        agent_secrets(files, WORKSPACE).rotate(HERON, NOW)
        target.share_secrets(installation_key(files.data_dir), all_rotations(files))
    with closing(open_stores(tmp_path / "data", server.url(empty))) as database:
        assert all_rotations(database) == {}
