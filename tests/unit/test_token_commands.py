"""`reverie tokens` and `reverie audit` on a data folder on which no server runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.trust.token_texts import is_well_formed
from support.command_line import CommandLine
from worker.supervision.local_token import local_token


@pytest.fixture
def reverie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REVERIE_EMBEDDING_PROVIDER", "none")
    return CommandLine(monkeypatch, capsys, "--data", str(tmp_path / "data"))


def test_a_created_token_is_printed_once_and_alone(reverie: CommandLine) -> None:
    """Given a new token, then standard output has it alone, and no later command prints it again."""
    made = reverie("tokens", "create", "--workspace", "acme", "--agent", "ana", "--agent", "bob", "--expires", "90d",
                   "--scope", "write,read", "--name", "phone")  # fmt: skip
    assert made.code == 0, made.err
    token = made.out.strip()
    assert is_well_formed(token)
    assert "agent ana, bob in workspace acme (tenant acme): read, write, until" in made.err
    (listed,) = reverie("tokens", "list", "--json").json
    assert (listed["name"], listed["agents"], listed["scopes"]) == ("phone", ["ana", "bob"], ["read", "write"])
    assert listed["created_by"] == "operator"
    for command in (("tokens", "list"), ("tokens", "list", "--json"), ("audit",), ("audit", "--json")):
        assert token[:20] not in reverie(*command).out


def test_a_token_names_its_workspace_or_says_that_it_is_for_all(reverie: CommandLine) -> None:
    """Given no workspace, then nothing is made; one before the command counts; all must be said."""
    refused = reverie("tokens", "create")
    assert (refused.code, refused.out) == (2, "")
    assert "--workspace NAME or --all-workspaces" in refused.err
    assert reverie("--workspace", "acme", "--agent", "ana", "tokens", "create").code == 0
    assert reverie("tokens", "create", "--all-workspaces", "--scope", "read", "--name", "backup").code == 0
    listed = {one["name"]: one for one in reverie("tokens", "list", "--json").json}
    assert listed["acme/ana"]["workspace"] == "acme"
    assert listed["acme/ana"]["agents"] == ["ana"]
    assert "workspace" not in listed["backup"]


def test_rotating_and_revoking_end_a_token(reverie: CommandLine) -> None:
    """Given a token, when it is rotated and revoked by its name, then none of it is valid, and a second time fails."""
    first = reverie("tokens", "create", "--workspace", "acme").out
    second = reverie("tokens", "rotate", "acme", "--grace", "1h")
    assert is_well_formed(second.out.strip())
    assert second.out != first
    assert "2 tokens revoked" in reverie("tokens", "revoke", "acme", "--yes").out
    assert reverie("tokens", "list", "--json").json == []
    assert len(reverie("tokens", "list", "--all", "--json").json) == 2
    assert reverie("tokens", "revoke", "acme", "--yes").code != 0


def test_a_token_that_is_rotated_without_a_grace_ends_at_once(reverie: CommandLine) -> None:
    """Given a token, when it is rotated without an option, then the new one alone is valid."""
    reverie("tokens", "create", "--workspace", "acme")
    rotated = reverie("tokens", "rotate", "acme")
    assert rotated.code == 0, rotated.err
    assert is_well_formed(rotated.out.strip())
    assert len(reverie("tokens", "list", "--json").json) == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--scope", "admin"), "admin is not a scope"),
        (("--expires", "soon"), "expires"),
        (("--workspace", "../x"), "workspace"),
        (("--agent", ""), "agent"),
    ],
)
def test_what_no_token_can_be_for_is_refused(reverie: CommandLine, options: tuple[str, ...], says: str) -> None:
    """Given an unknown scope, duration, workspace or agent, then no token is made, and the line says why."""
    workspace = () if "--workspace" in options else ("--workspace", "acme")
    ended = reverie("tokens", "create", *workspace, *options)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err


def test_the_audit_log_tells_what_was_done_by_time_actor_and_action(reverie: CommandLine) -> None:
    """Given token changes, then the log lists them, filtered on request."""
    reverie("tokens", "create", "--workspace", "acme")
    reverie("tokens", "revoke", "acme", "--yes")
    listed = reverie("audit", "--json").json
    assert [(one["action"], one["actor"]) for one in listed] == [
        ("revoke-token", "operator"),
        ("create-token", "operator"),
    ]
    assert listed[1]["workspace"] == "acme"
    assert len(reverie("audit", "--since", "1h", "--actor", "operator", "--json").json) == 2
    assert len(reverie("audit", "--action", "create-token", "--json").json) == 1
    assert reverie("audit", "--actor", "nobody", "--json").json == []
    assert "since is 'then'" in reverie("audit", "--since", "then").err


def test_the_local_token_is_shown_where_a_server_has_made_one(reverie: CommandLine, tmp_path: Path) -> None:
    """Given a data folder without and with a local token, then the command says how to get one, or prints it."""
    reverie("tokens", "create", "--workspace", "acme")
    missing = reverie("tokens", "show-local")
    assert missing.code != 0
    assert "reverie up" in missing.err
    token = local_token(tmp_path / "data")
    assert reverie("tokens", "show-local").out.strip() == token
    assert reverie("tokens", "show-local", "--json").json == {"token": token}
