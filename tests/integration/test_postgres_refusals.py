"""What a user sees of a PostgreSQL database that cannot be used: one sentence with what to do, and exit code 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from storage.postgres import schema
from support.command_line import CommandLine
from support.postgres import USER, TestServer, running_postgres

UNREACHABLE = "postgresql://reverie:secret@127.0.0.1:1/reverie"


@pytest.fixture(scope="module")
def server() -> Iterator[TestServer]:
    with running_postgres() as running:
        with running.admin() as connection:
            connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
            connection.execute("CREATE ROLE stranger LOGIN")
            connection.execute("CREATE ROLE bypassing LOGIN BYPASSRLS")
            connection.execute(f"CREATE DATABASE bare OWNER {USER}")
        rules = running.folder / "pg_hba.conf"
        rules.write_text("local all guarded scram-sha-256\n" + rules.read_text())
        running.set(log_min_messages="warning")  # reads the file again, too
        yield running


@pytest.fixture
def reverie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REVERIE_EMBEDDING_PROVIDER", "hash")
    return CommandLine(monkeypatch, capsys, "--data", str(tmp_path / "data"), "--broker", "redis://127.0.0.1:1/0")


def _as(user: str, password: str = "") -> Callable[[str], str]:
    return lambda url: url.replace(f"//{USER}:", f"//{user}:{password}")


# How the address differs from one that works, and what the command says.
REFUSED = {
    "wrong password": (_as("guarded", "mistaken"), "check the user and the password"),
    "no password": (_as("guarded"), "check the user and the password"),
    "unknown user": (_as("nobody"), "check the user and the password"),
    "superuser": (_as("postgres"), "connect as a user without SUPERUSER and BYPASSRLS"),
    "BYPASSRLS": (_as("bypassing"), "connect as a user without SUPERUSER and BYPASSRLS"),
    "not the owner": (_as("stranger"), "must own the database"),
    "unknown database": (lambda url: url.replace("?", "x?"), "create it (docs/scale.md), or correct its name"),
    "no pgvector": (lambda url: url.split("/t")[0] + "/bare?" + url.split("?")[1], "CREATE EXTENSION vector"),
    "unknown host": (lambda url: "postgresql://reverie@nowhere.invalid/reverie", "check the name of its host"),
    "no server": (lambda url: UNREACHABLE, "check that it runs and accepts connections"),
    "unknown option": (lambda url: f"{url}&sslmod=on", "correct REVERIE_DATABASE"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_database_that_cannot_be_used_says_what_to_do(
    reverie: CommandLine, server: TestServer, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    changed, advice = REFUSED[case]
    name = server.database() if case != "not the owner" else server.empty_database()
    monkeypatch.setenv("REVERIE_DATABASE", changed(server.url(name)))
    ended = reverie("db", "status")
    assert (ended.code, ended.out) == (1, "")
    assert advice in ended.err
    assert len(ended.err.splitlines()) == 1
    assert "Traceback" not in ended.err
    assert "mistaken" not in ended.err, "no password is shown"
    server.drop(name)


@pytest.mark.parametrize("address", ["mysql://root:mistaken@db/reverie", "/var/lib/reverie"])
def test_an_address_of_something_else_says_what_it_should_be(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("REVERIE_DATABASE", address)
    ended = reverie("db", "status")
    assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1)
    assert "postgresql://USER:PASSWORD@HOST:PORT/DATABASE; leave it out to keep all workspaces in SQLite" in ended.err
    assert "mistaken" not in ended.err, "no password is shown"


def test_an_address_that_cannot_be_read_is_invalid_input(reverie: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVERIE_DATABASE", "postgresql://reverie@db:port/reverie")
    ended = reverie("db", "status")
    assert (ended.code, "postgresql://USER:PASSWORD@HOST:PORT/DATABASE" in ended.err) == (2, True)


@pytest.mark.parametrize("too_old", ["pgvector", "PostgreSQL"])
def test_what_is_too_old_is_named_with_what_is_needed(
    reverie: CommandLine, server: TestServer, database: str, monkeypatch: pytest.MonkeyPatch, too_old: str
) -> None:
    if too_old == "pgvector":
        with server.admin(database) as connection:
            connection.execute("UPDATE pg_extension SET extversion = '0.7.4' WHERE extname = 'vector'")
        expected = "pgvector 0.7.4 is too old: 0.8 or newer is needed"
    else:
        monkeypatch.setattr(schema, "OLDEST_POSTGRES", 99)
        expected = "is too old: 99 or newer is needed"
    monkeypatch.setenv("REVERIE_DATABASE", server.url(database))
    ended = reverie("db", "status")
    assert (ended.code, expected in ended.err) == (1, True), ended.err


@pytest.mark.parametrize(
    "command",
    [("status",), ("recall", "ferry"), ("memory", "list"), ("run", "optimize-store"), ("db", "migrate")],
    ids=" ".join,
)
def test_every_command_says_that_the_server_does_not_answer(
    reverie: CommandLine, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("REVERIE_DATABASE", UNREACHABLE)
    monkeypatch.setenv("REVERIE_PORT", "7441")
    ended = reverie(*command)
    assert (ended.code, "127.0.0.1:1/reverie cannot be reached" in ended.err) == (1, True), ended
    assert "secret" not in ended.err + ended.out


def test_doctor_finds_it_on_a_host_without_a_data_folder(reverie: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVERIE_DATABASE", UNREACHABLE)
    ended = reverie("doctor", "--json")
    found = {finding["subject"]: finding for finding in ended.json}
    assert (ended.code, found["Databases"]["state"]) == (1, "problem")
    assert "check that it runs" in found["Databases"]["found"]


def test_a_copy_to_a_database_that_cannot_be_used_changes_nothing(reverie: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    ended = reverie("db", "copy", "--to", UNREACHABLE)
    assert (ended.code, "cannot be reached" in ended.err) == (1, True), ended


def test_a_new_host_needs_no_data_folder_to_look_into_the_database(
    reverie: CommandLine, server: TestServer, database: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REVERIE_DATABASE", server.url(database))
    ended = reverie("db", "status", "--json")
    assert ended.code == 0, ended
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0
