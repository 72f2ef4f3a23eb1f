"""An older dump of a database is restored: what was erased since is erased again, with what was only forgotten."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from memory.lifecycle.erasing import continue_erasures
from memory.lifecycle.erasure_rows import Scope
from memory.lifecycle.erasures import request_erasure
from reverie.client import Reverie
from storage.postgres.engine import SCHEMA
from storage.verify import verify
from support.agents import until
from support.command_line import CommandLine
from support.http import running_server
from support.postgres import TestServer, running_postgres
from support.stages import drain
from worker.runtime import Runtime

HERON = "The heron lantern of Cacilhas burns only on odd Thursdays"
FERRY = "The ferry to Trafaria leaves at nine"
PLUMS = "Lif grows plums behind the old lighthouse of Bugio"
KATE = "kate-canary-5f2d91c07a"
APPLY = ("db", "apply-tombstones", "--yes")

Make = Callable[..., Runtime]


@pytest.fixture
def restored(make_runtime: Make, server: TestServer, database: str, empty: str, tmp_path: Path) -> str:
    """The address of a database whose dump was made before a user was erased and a session was forgotten."""
    runtime = make_runtime(data=tmp_path / "a", database=server.url(database))
    with running_server(runtime) as url, Reverie("ana", url=url) as ana:
        ana.ingest("of-kate", {"role": "user", "content": HERON}, user=KATE)
        ana.ingest("ferry", {"role": "user", "content": FERRY}, user="lif")
        ana.ingest("plums", {"role": "user", "content": PLUMS}, user="lif")
        drain(runtime)
        dump = server.run("pg_dump", server.admin_url(database))
        of_kate = Scope("user", KATE, None, None)
        request_erasure(runtime.stores, runtime.settings.data, of_kate, requested_by="tester", now=runtime.now())
        assert continue_erasures(runtime.erasure_services) == {"finished": 1, "waiting": 0}
        assert ana.sessions.forget("ferry")
        assert _texts(runtime) == [PLUMS]
    runtime.close()
    server.load(empty, dump)
    return server.url(empty)


def test_what_was_erased_and_forgotten_since_the_dump_is_removed_again(
    make_runtime: Make, restored: str, command_line: Callable[..., CommandLine], tmp_path: Path
) -> None:
    _silence(restored)
    before = make_runtime(data=tmp_path / "a", database=restored)
    assert _texts(before) == [HERON, FERRY, PLUMS]
    before.close()
    command = command_line(tmp_path / "a", restored)
    done = command(*APPLY, "--json")
    assert done.code == 0, done.err
    assert done.json["removed"]["messages"] == 2
    assert command(*APPLY).out == "Nothing had come back.\n"

    after = make_runtime(data=tmp_path / "a", database=restored)
    assert _texts(after) == [PLUMS]
    assert verify(after.store("default")).wrong == []
    with running_server(after) as url, Reverie("ana", url=url) as ana:
        assert [found.text for found in ana.recall(PLUMS, user="lif")] == [PLUMS]
        for query, user in ((HERON, KATE), (FERRY, "lif")):
            assert {found.text for found in ana.recall(query, user=user)} <= {PLUMS}
        ana.ingest("ferry", {"role": "user", "content": "The ferry leaves at ten now"}, user="lif")
        drain(after)
        assert "The ferry leaves at ten now" in _texts(after)


def test_nothing_is_removed_while_reverie_runs_on_a_host(
    make_runtime: Make, restored: str, command_line: Callable[..., CommandLine], tmp_path: Path
) -> None:
    _silence(restored)
    other = make_runtime(data=tmp_path / "b", database=restored)
    assert other.host_folder is not None
    other.host_folder.join()
    refused = command_line(tmp_path / "a", restored)(*APPLY)
    assert refused.code == 1
    assert f"Reverie ran within the last minute on {other.host_folder.name} (0 s ago)" in refused.err
    assert "try again in a minute" in refused.err
    assert _texts(other) == [HERON, FERRY, PLUMS]


def test_a_folder_without_tombstones_says_so(
    make_runtime: Make, restored: str, command_line: Callable[..., CommandLine], tmp_path: Path
) -> None:
    _silence(restored)
    (tmp_path / "new").mkdir()
    found = command_line(tmp_path / "new", restored)(*APPLY)
    assert (found.code, found.out) == (0, "Nothing had come back.\n")
    assert f"{tmp_path / 'new'} has no tombstones: nothing was erased yet, or Reverie never ran" in found.err


def test_a_server_is_restored_to_a_point_in_time_before_an_erasure(
    make_runtime: Make, command_line: Callable[..., CommandLine], tmp_path: Path
) -> None:
    """Given a base backup and the archived log of a server, when it is restored to a time before a user was erased,
    then what was said until then is there, and what was erased since is erased again, as docs/scale.md says.
    """
    with running_postgres() as primary:
        archive, base = (primary.folder.parent / name for name in ("archive", "base"))
        for folder in (archive, base):
            folder.mkdir(mode=0o700)
            os.chown(folder, primary.folder.stat().st_uid, primary.folder.stat().st_gid)
        primary.set(archive_mode="on", archive_command=f"'cp %p {archive}/%f'")
        primary.restart()
        name = primary.database()
        runtime = make_runtime(data=tmp_path / "a", database=primary.url(name))
        with running_server(runtime) as url, Reverie("ana", url=url) as ana:
            ana.ingest("of-kate", {"role": "user", "content": HERON}, user=KATE)
            drain(runtime)
            primary.run("pg_basebackup", "-d", primary.admin_url(), "-D", str(base), "-X", "none", "-c", "fast")
            ana.ingest("ferry", {"role": "user", "content": FERRY}, user="lif")
            drain(runtime)
            with primary.admin() as connection:
                (moment,) = connection.execute("SELECT clock_timestamp()::text").fetchone() or ("",)
            of_kate = Scope("user", KATE, None, None)
            request_erasure(runtime.stores, runtime.settings.data, of_kate, requested_by="tester", now=runtime.now())
            assert continue_erasures(runtime.erasure_services) == {"finished": 1, "waiting": 0}
            ana.ingest("plums", {"role": "user", "content": PLUMS}, user="lif")
            drain(runtime)
            assert _texts(runtime) == [FERRY, PLUMS]
        runtime.close()
        with primary.admin() as connection:
            (last,) = connection.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchone() or ("",)
        until((archive / last).exists, "the log is not archived")
        (base / "postgresql.auto.conf").write_text(
            f"restore_command = 'cp {archive}/%f %p'\n"
            f"recovery_target_time = '{moment}'\n"
            "recovery_target_action = 'promote'\n"
        )
        (base / "recovery.signal").touch()
        (base / ".s.PGSQL.5432.lock").unlink(missing_ok=True)  # of the server that was copied
        restored = TestServer(base)
        try:
            until(lambda: _is_writable(restored), "the recovery does not end")
            before = make_runtime(data=tmp_path / "a", database=restored.url(name))
            assert _texts(before) == [HERON, FERRY]
            before.close()
            _silence(restored.url(name))
            done = command_line(tmp_path / "a", restored.url(name))(*APPLY, "--json")
            assert done.code == 0, done.err
            after = make_runtime(data=tmp_path / "a", database=restored.url(name))
            assert _texts(after) == [FERRY]
            assert verify(after.store("default")).wrong == []
            after.close()
        finally:
            restored.stop()


def _is_writable(server: TestServer) -> bool:
    """Return whether a server has ended its recovery."""
    try:
        with server.admin() as connection:
            return connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)
    except psycopg.OperationalError:  # it is starting
        return False


def test_files_are_restored_by_another_command(
    make_runtime: Make, command_line: Callable[..., CommandLine], tmp_path: Path
) -> None:
    make_runtime(data=tmp_path / "files").store("default")
    refused = command_line(tmp_path / "files", None)(*APPLY)
    assert refused.code == 2
    assert "`reverie restore` applies tombstones by itself" in refused.err


@pytest.fixture
def command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Path, str | None], CommandLine]:
    """Makes the command line of a host, by its data folder and the address of its database."""

    def make(data: Path, database: str | None) -> CommandLine:
        if database is not None:
            monkeypatch.setenv("REVERIE_DATABASE", database)
        return CommandLine(monkeypatch, capsys, "--data", str(data))

    return make


def test_a_database_that_no_host_uses_yet_is_named_in_the_status(
    server: TestServer, database: str, tmp_path: Path, command_line: Callable[[Path, str | None], CommandLine]
) -> None:
    """Given a database into which everything was copied, then the status does not speak of files before the start."""
    ended = command_line(tmp_path / "a", server.url(database))("status")
    assert "not running: this is read from its database (`reverie up` starts it)" in ended.out
    assert "Database  PostgreSQL, with 0 workspaces" in ended.out
    assert "write-ahead log" not in ended.out


def _texts(runtime: Runtime) -> list[str]:
    with runtime.store("default").reading() as tx:
        return [text for (text,) in tx.connection.exec_driver_sql("SELECT content FROM messages ORDER BY created_at")]


def _silence(url: str) -> None:
    """Let a minute pass since the hosts were heard of, as it does while a dump is restored."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        connection.execute(f"UPDATE {SCHEMA}.hosts SET seen_at = seen_at - interval '61 seconds'")
