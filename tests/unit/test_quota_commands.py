"""`reverie quotas` on a data folder on which no server runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.trust import bytes_of
from reverie.errors import Rejected
from support.command_line import CommandLine


@pytest.fixture
def reverie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REVERIE_EMBEDDING_PROVIDER", "none")
    return CommandLine(monkeypatch, capsys, "--data", str(tmp_path / "data"))


def test_a_quota_is_set_shown_and_removed(reverie: CommandLine) -> None:
    """Given a quota of a workspace, then lists have it with its use, until it is inherited again."""
    made = reverie("quotas", "set", "workspace", "acme", "--messages", "100", "--bytes", "2GB")
    assert made.code == 0, made.err
    assert "1.9 GiB" in made.out
    listed = reverie("quotas", "list", "--workspace", "acme", "--json").json
    shown = {one["resource"]: (one["used"], one.get("limit"), one.get("set_for")) for one in listed["quotas"]}
    assert shown["messages"] == (0, 100, "workspace")
    assert shown["bytes"] == (0, 2_000_000_000, "workspace")
    assert shown["memories"] == (0, None, None)
    left = reverie("quotas", "set", "workspace", "acme", "--inherit", "messages,bytes", "--json").json["quotas"]
    assert all("limit" not in one for one in left)
    refused = reverie("quotas", "set", "workspace", "acme", "--workspaces", "3")
    assert refused.code == 2
    assert "workspaces is a quota of tenants" in refused.err


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("12", 12), ("500MB", 500_000_000), ("1.5GiB", 3 * 2**29), ("2k", 2_000), ("3 TB", 3 * 10**12)],
)
def test_sizes_have_units(text: str, number: int) -> None:
    """Given a size as people write it, then it is this many bytes."""
    assert bytes_of(text) == number


@pytest.mark.parametrize("text", ["", "-1", "big", "1GBs", "1e9"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    """Given no size, then the error shows how to write one."""
    with pytest.raises(Rejected, match="500MB"):
        bytes_of(text)
