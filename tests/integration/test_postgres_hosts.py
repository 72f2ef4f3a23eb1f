"""Two hosts on one database: what is deleted and erased on one leaves the files of the other, also if it was away."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from memory.lifecycle import host_folder
from memory.lifecycle.erasing import continue_erasures
from memory.lifecycle.erasure_rows import Scope
from memory.lifecycle.erasures import read_erasure, request_erasure
from memory.lifecycle.forgetting import forget_workspace
from memory.lifecycle.host_folder import HostFolder
from memory.tombstones import SharedTombstones, hash_key, note_forgotten, read_tombstones
from memory.upkeep.notebook import publish
from reverie.clock import new_id
from reverie.trust.calls import Erasure
from storage.memories.records import NewMemory
from storage.stores import Stores
from support.agents import until
from support.byte_search import places_of
from support.forks import Program, run_module, start_module
from support.postgres import MakeHost, TestServer
from support.stages import drain
from worker.host_upkeep import HostUpkeep
from worker.runtime import Runtime

SECRET = "The heron lantern of Cacilhas burns only on odd Thursdays"
PLUMS = "Lif grows plums behind the old lighthouse of Bugio"
KATE = "kate-canary-5f2d91c07a"
AT = datetime(2026, 11, 23, tzinfo=UTC)
EVERYTHING_OF_KATE = Scope("user", KATE, None, None)


@pytest.fixture
def a(make_host: MakeHost) -> Runtime:
    """The host that erases."""
    return make_host("a")


@pytest.fixture
def b(make_host: MakeHost) -> Runtime:
    """The other one."""
    return make_host("b")


def folder_of(runtime: Runtime) -> HostFolder:
    assert runtime.host_folder is not None
    return runtime.host_folder


def remember(runtime: Runtime, content: str, user: str, *, workspace: str = "default") -> str:
    """Have ana note something about a user; return the id."""
    memory_id = new_id()
    with runtime.store(workspace).writing() as tx:
        memory = NewMemory(
            id=memory_id,
            content=content,
            created_at=runtime.now(),
            kind="note",
            note_id=f"n{memory_id}",
            owner_user_id=user,
        )
        tx.for_agent("ana").memories.add(memory, now=runtime.now())
    return memory_id


def forget(runtime: Runtime, memory_id: str) -> None:
    """Delete a memory of ana's by a plain call."""
    with runtime.store("default").writing() as tx:
        rows = tx.for_agent("ana").memories
        rows.delete([rows.get(memory_id).row_id])


def commit(runtime: Runtime, *, message: str = "Checkpoint", workspace: str = "default") -> None:
    """Commit ana's memory files on a host."""
    publish(runtime.store(workspace), runtime.notebooks, "ana", message, now=runtime.now())


def versions(runtime: Runtime, workspace: str = "default") -> list[str]:
    """Return the text of all files of each version of ana's memory on a host, newest first."""
    found = runtime.notebooks.require_repositories().repository(workspace, "ana").versions()
    return ["\n".join(files.values()) for _, files in found]


def erase(runtime: Runtime, scope: Scope) -> Erasure:
    """Request an erasure on a host, and work on it there until it is done or waits."""
    made = request_erasure(runtime.stores, runtime.settings.data, scope, requested_by="tester", now=runtime.now())
    continue_erasures(runtime.erasure_services)
    return read_erasure(runtime.stores, made.id)


def go_on(runtime: Runtime, erasure: Erasure) -> Erasure:
    """Continue an erasure on a host."""
    continue_erasures(runtime.erasure_services)
    return read_erasure(runtime.stores, erasure.id)


def fill(*hosts: Runtime) -> None:
    """Have two users' memories in the files and logs of each host, in two versions."""
    remember(hosts[0], PLUMS, "lif")
    remember(hosts[0], f"{SECRET}, says {KATE}", KATE)
    for host in hosts:
        commit(host, message=f"before {KATE} moved: {SECRET}")
        logs = host.settings.data / "logs"
        logs.mkdir(exist_ok=True)
        (logs / "server.log").write_text(f'{{"event": "served", "user": "{KATE}"}}\n{{"event": "stopped"}}\n')
        assert places_of(host.settings.data, SECRET), "the search of this test must be able to find something"


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Erasures wait for no host within one run of the job: tests have the hosts look in between."""
    monkeypatch.setattr(host_folder, "_WAIT_SECONDS", 0.0)


def test_an_erasure_ends_when_each_host_has_removed_it_from_its_files(a: Runtime, b: Runtime) -> None:
    """Given files on two hosts, when one erases, then it waits, visibly, until the other one has done so, too."""
    fill(a, b)
    waiting = erase(a, EVERYTHING_OF_KATE)
    assert (waiting.state, waiting.step) == ("waiting", "hosts")
    assert f"the host {folder_of(b).name} has not removed it" in waiting.error
    assert places_of(a.settings.data, SECRET, KATE) == set()
    assert places_of(b.settings.data, SECRET)

    assert folder_of(b).look()["erasures"] == 1
    done = go_on(a, waiting)
    assert done.receipt is not None, done.error
    assert (done.receipt.leftovers, done.receipt.hosts) == ({}, [folder_of(b).name])
    for host in (a, b):
        assert places_of(host.settings.data, SECRET, KATE) == set()
        assert all(PLUMS in text for text in versions(host)), "what others have said stays, with its history"
    assert folder_of(b).look() == {}


def test_whichever_host_goes_on_with_an_erasure_knows_what_to_look_for(a: Runtime, b: Runtime) -> None:
    """Given an erasure that one host began, when the other goes on with it, then it finds what the first one hashed."""
    fill(a, b)
    assert hash_key(a.settings.data).secret == hash_key(b.settings.data).secret
    waiting = erase(a, EVERYTHING_OF_KATE)
    done = go_on(b, waiting)  # which does its own part in this
    assert done.receipt is not None, done.error
    assert done.receipt.hosts == [folder_of(a).name]
    assert done.receipt.searched.parts > 0
    assert places_of(a.settings.data, SECRET, KATE) == places_of(b.settings.data, SECRET, KATE) == set()


@pytest.mark.parametrize("step", ["rewrite_notebooks", "HostFolder._leftovers"])
def test_a_host_that_is_killed_while_it_removes_something_begins_again(
    a: Runtime, b: Runtime, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Given a host that dies before it has reported, then the erasure waits, and the host's next process does it."""
    fill(a, b)
    waiting = erase(a, EVERYTHING_OF_KATE)

    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(f"memory.lifecycle.host_folder.{step}", die)
        with pytest.raises(Killed):
            folder_of(b).look()
    assert go_on(a, waiting).state == "waiting"
    folder_of(b).look()
    assert go_on(a, waiting).state == "done"
    assert places_of(b.settings.data, SECRET, KATE) == set()


def test_a_deleted_workspace_leaves_the_files_of_every_host(a: Runtime, b: Runtime) -> None:
    """Given a workspace that one host deletes, when another one looks, then its files are gone there, too."""
    for host in (a, b):
        remember(host, SECRET, KATE, workspace="trips")
        commit(host, workspace="trips")
    assert forget_workspace(a.erasure_services, "trips")
    assert places_of(b.settings.data, SECRET)
    assert folder_of(b).look() == {"folders": 1}
    assert places_of(b.settings.data, SECRET) == set()
    assert not (b.settings.data / "workspaces" / "trips").exists()


def test_a_new_workspace_of_the_name_gets_no_files_of_the_deleted_one(
    a: Runtime, b: Runtime, make_host: MakeHost
) -> None:
    """Given a workspace that was deleted and made again elsewhere, when a host first uses it, then it begins anew."""
    remember(b, SECRET, KATE, workspace="trips")
    commit(b, workspace="trips")
    (b.settings.data / "workspaces" / "trips" / "notes.txt").write_text("ana")
    forget_workspace(a.erasure_services, "trips")
    remember(a, PLUMS, "lif", workspace="trips")

    again = make_host("b")  # a process that starts on the host, before any has looked
    again.store("trips")
    assert versions(again, "trips") == []
    commit(again, workspace="trips")
    assert places_of(b.settings.data, SECRET) == set()
    assert len(versions(again, "trips")) == 1
    folder_of(again).look()
    assert len(versions(again, "trips")) == 1, "its own files stay"


def test_a_host_that_was_away_for_too_long_keeps_only_what_the_database_has(
    a: Runtime, b: Runtime, make_host: MakeHost, database_url: str
) -> None:
    """Given a host that was not heard of for longer than a month, then erasures end without it, and it cleans up.

    The receipt names it. Nobody can tell it any more what to look for, so it keeps no old line and no log.
    """
    fill(a, b)
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        connection.execute(
            "UPDATE reverie.hosts SET seen_at = seen_at - interval '31 days' WHERE name = %s", [folder_of(b).name]
        )
    done = erase(a, EVERYTHING_OF_KATE)
    assert done.receipt is not None, done.error
    assert done.receipt.hosts == []
    assert any(folder_of(b).name in one.what for one in done.receipt.remains)

    back = make_host("b")
    assert folder_of(back).look() == {"tombstones": 2, "histories": 1}
    assert places_of(b.settings.data, SECRET, KATE) == set()
    assert all(PLUMS in text for text in versions(back))
    assert folder_of(back).look() == {}
    assert [one.name for one in folder_of(a).hosts.all()] == [folder_of(a).name, folder_of(b).name]


def test_a_host_that_is_killed_while_it_cleans_up_does_so_again(
    a: Runtime, b: Runtime, make_host: MakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a forgotten host that dies after it has joined again, then its next process still knows what to do."""
    fill(a, b)
    (host,) = [one for one in folder_of(a).hosts.all() if one.name == folder_of(b).name]
    assert folder_of(a).hosts.forget(host.id)
    assert erase(a, EVERYTHING_OF_KATE).state == "done"

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(HostFolder, "_make_true", die)
        with pytest.raises(Killed):
            folder_of(make_host("b")).look()
    folder_of(make_host("b")).look()
    assert places_of(b.settings.data, SECRET, KATE) == set()


def test_an_erasure_that_waits_for_a_host_ends_when_the_host_is_forgotten(a: Runtime, b: Runtime) -> None:
    """Given a host that is gone for good, when an operator has it forgotten, then the receipt says what remains."""
    fill(a, b)
    waiting = erase(a, EVERYTHING_OF_KATE)
    (host,) = folder_of(a).hosts.waited_for(waiting.id)
    assert host.id in waiting.error
    assert folder_of(a).hosts.forget(host.id)
    done = go_on(a, waiting)
    assert done.receipt is not None, done.error
    assert any(host.name in one.what and one.responsible == "operator" for one in done.receipt.remains)


def test_a_command_that_writes_no_files_makes_no_host(a: Runtime, make_host: MakeHost) -> None:
    """Given a data folder from which somebody only erases, then later erasures do not wait for it."""
    fill(a)
    elsewhere = make_host("elsewhere")
    waiting = erase(elsewhere, EVERYTHING_OF_KATE)
    assert f"the host {folder_of(a).name} has not removed it" in waiting.error
    folder_of(a).look()
    done = go_on(elsewhere, waiting)
    assert done.receipt is not None, done.error
    assert done.receipt.hosts == [folder_of(a).name]
    assert [one.name for one in folder_of(a).hosts.all()] == [folder_of(a).name]
    commit(elsewhere)
    assert len(folder_of(a).hosts.all()) == 2, "one that commits memory files has joined before"


def test_memory_files_follow_the_database_on_every_host(a: Runtime, b: Runtime) -> None:
    """Given files on two hosts, when a memory is forgotten by a plain call, then the next refresh removes it there."""
    kept, gone = remember(a, PLUMS, "lif"), remember(a, SECRET, KATE)
    for host in (a, b):
        commit(host)
    seen: dict[str, object] = {}
    assert folder_of(b).refresh(seen) == 0  # type: ignore[arg-type]
    forget(a, gone)
    assert folder_of(b).refresh(seen) == 1  # type: ignore[arg-type]
    newest = versions(b)[0]
    assert (PLUMS in newest, SECRET in newest) == (True, False), kept
    assert folder_of(b).refresh(seen) == 0  # type: ignore[arg-type]


def test_folders_that_nobody_has_used_with_the_database_are_left_alone(a: Runtime, b: Runtime) -> None:
    """Given a data folder with stores of SQLite that the database does not have, then nothing of them is removed."""
    stores = Stores(b.settings.data)
    stores.workspace("of-sqlite")
    stores.close()
    a.store("default")
    folder_of(b).look()
    assert (b.settings.data / "workspaces" / "of-sqlite" / "memory.db").exists()


def test_a_folder_that_was_used_with_another_database_keeps_what_is_not_of_this_one(
    server: TestServer, make_runtime: Callable[..., Runtime], database_url: str, tmp_path: Path
) -> None:
    """Given a host that is pointed to another database, then its folders stay, with that database's content."""
    first = make_runtime(data=tmp_path / "a", database=database_url)
    remember(first, SECRET, KATE)
    commit(first)
    (first.settings.data / "workspaces" / "default" / "notes.txt").write_text("ana")
    other = server.database()
    second = make_runtime(data=tmp_path / "a", database=server.url(other))
    remember(second, PLUMS, "lif")
    folder_of(second).look()
    assert all(SECRET not in text for text in versions(second))
    assert (second.settings.data / "workspaces" / "default" / "notes.txt").exists()
    second.close()


def test_why_a_host_cannot_do_its_part_is_seen_everywhere(a: Runtime, b: Runtime) -> None:
    """Given a damaged repository on another host, then the erasure says what is wrong there, and others are done.

    When it is repaired, the erasure ends. The process of the other host has opened nothing before.
    """
    fill(a, b)
    remember(b, PLUMS, "lif", workspace="trips")
    commit(b, workspace="trips")
    branch = b.settings.data / "workspaces" / "default" / "git" / "ana" / ".git" / "refs" / "heads" / "main"
    kept = branch.read_bytes()
    branch.write_bytes(b"f" * 40 + b"\n")
    settings = b.settings
    b.close()
    with closing(HostUpkeep(settings)):
        waiting, other = erase(a, EVERYTHING_OF_KATE), erase(a, Scope("agent", "", "ana", "trips"))
        until(lambda: "cannot be used" in go_on(a, waiting).error, "the erasure does not say what is wrong")
        assert f"the host {folder_of(a).name[:-1]}b cannot remove it" in go_on(a, waiting).error
        assert [bool(one.error) for one in folder_of(a).hosts.all()] == [False, True]
        until(lambda: go_on(a, other).state == "done", "another erasure does not end")
        branch.write_bytes(kept)
        until(lambda: go_on(a, waiting).state == "done", "the erasure does not end once it can")
        until(lambda: not any(one.error for one in folder_of(a).hosts.all()), "the error stays")
    assert places_of(settings.data, SECRET, KATE) == set()


def test_each_host_knows_what_was_forgotten_on_any(a: Runtime, b: Runtime) -> None:
    """Given tombstones of both hosts, when they look, then each has all of them once, so that no import brings back.

    Looking again, and from a process that knows nothing of the last look, adds none.
    """
    for host, session in ((a, "s1"), (b, "s2")):
        note_forgotten(host.stores.data_dir, "session", [session], workspace="default", agent="ana")
    erasure = erase(a, Scope("agent", "", "ana", "default"))
    for host in (a, b, a, b):
        folder_of(host).look()
        SharedTombstones(host.settings.data, folder_of(host).hosts).exchange()
    assert go_on(a, erasure).state == "done"
    known = [list(read_tombstones(host.settings.data)) for host in (a, b)]
    assert [len(one) for one in known] == [4, 4], "an erasure has one of its request and one of its job"
    assert set(known[0]) == set(known[1])


def test_indexes_in_the_memory_of_another_host_are_dropped(a: Runtime, b: Runtime) -> None:
    """Given a server on another host with an index of what is erased, when its host looks, then it is told."""
    fill(a, b)
    read = b.indexes
    store = drain(b)
    with store.reading() as tx:
        read.snapshot(store, tx, "ana")
    assert read.nbytes
    erase(a, EVERYTHING_OF_KATE)
    folder_of(b).look()
    until(lambda: read.nbytes == 0, "the index is still in memory")


def environment(data: Path, database_url: str, broker: str, prefix: str) -> dict[str, str]:
    """Return the environment of a process on a host."""
    settings = {"DATA": str(data), "DATABASE": database_url, "BROKER": broker, "BROKER_PREFIX": prefix}
    return {**os.environ, **{f"REVERIE_{name}": value for name, value in settings.items()}}


def test_commands_name_a_host_that_is_away_and_forget_it(
    a: Runtime, b: Runtime, database_url: str, valkey_url: str, broker_prefix: str, tmp_path: Path
) -> None:
    """Given a silent host that an erasure waits for, then status and `db hosts` say so, and it can be forgotten."""
    fill(a, b)
    waiting = erase(a, EVERYTHING_OF_KATE)
    (host,) = folder_of(a).hosts.waited_for(waiting.id)
    with psycopg.connect(database_url.replace("+psycopg", "")) as connection:
        connection.execute("UPDATE reverie.hosts SET seen_at = seen_at - interval '1 day' WHERE id = %s", [host.id])
    variables = environment(a.settings.data, database_url, valkey_url, broker_prefix)

    def reverie(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_module("cli", *arguments, environment=variables, output=tmp_path / "output")

    listed = json.loads(reverie("db", "hosts", "--json").stdout)
    assert [(one["name"], one["erasures"]) for one in listed] == [(folder_of(a).name, 0), (host.name, 1)]
    shown = reverie("status").stdout
    assert "2 hosts of this database" in shown
    assert ("Database  PostgreSQL, with " in shown, "write-ahead log" in shown) == (True, False)
    assert f"{host.name} was not heard of for 24.0 hours, and holds up 1 erasure" in shown
    assert reverie("db", "hosts", "--forget", host.id, "--yes").returncode == 0
    again = reverie("db", "hosts", "--forget", host.id, "--yes")
    assert (again.returncode, again.stderr.strip()) == (
        1,
        f"reverie: there is no host '{host.id}': `reverie db hosts` lists them",
    )
    assert go_on(a, waiting).state == "done"


@contextmanager
def running_beat(data: Path, database_url: str, broker: str, prefix: str) -> Iterator[Program]:
    """Run `reverie beat` on a data folder: the lightest of the processes that look after the files of a host."""
    variables = environment(data, database_url, broker, prefix)
    process = start_module("cli", "beat", environment=variables, output=data.with_name("output"))
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_host_that_was_down_catches_up_when_it_starts(
    a: Runtime, b: Runtime, database_url: str, valkey_url: str, broker_prefix: str
) -> None:
    """Given a host whose processes were killed, when they start again, then they do what was asked for meanwhile."""
    fill(a, b)
    remember(b, SECRET, KATE, workspace="trips")
    commit(b, workspace="trips")
    waiting = erase(a, EVERYTHING_OF_KATE)
    forget_workspace(a.erasure_services, "trips")
    assert waiting.step == "hosts"
    data = b.settings.data
    b.close()
    with running_beat(data, database_url, valkey_url, broker_prefix) as process:
        until(lambda: not places_of(data, SECRET, KATE), "the files of the host are not clean")
        until(lambda: go_on(a, waiting).state == "done", "the erasure does not end")
        process.kill()
    with running_beat(data, database_url, valkey_url, broker_prefix):
        again = erase(a, Scope("user", "lif", None, None))
        until(lambda: go_on(a, again).state == "done", "a process after a kill does not go on")
    assert places_of(data, PLUMS) == set()


def test_a_host_without_files_is_not_waited_for(a: Runtime, b: Runtime) -> None:
    """Given a host that keeps no files, as a container, when it is gone for good and a user is
    erased elsewhere, then the erasure ends without it; once it writes memory files, it is one of the hosts.
    """
    fill(a)
    folder_of(a).look()
    folder_of(b).look()
    erasure = erase(a, EVERYTHING_OF_KATE)
    assert erasure.state == "done", erasure.error
    assert [host.name for host in folder_of(a).hosts.all()] == [folder_of(a).name]

    commit(b)
    assert {host.name for host in folder_of(a).hosts.all()} == {folder_of(a).name, folder_of(b).name}
