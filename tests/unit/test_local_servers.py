"""The token of the local user: made once, private, and found by clients of the same user alone."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
import pytest

from memory.trust.token_texts import is_well_formed, new_token
from reverie import Reverie
from reverie.config import LocalServer, entry_path, local_server
from reverie.errors import Rejected, Unavailable
from worker.access import operator_token
from worker.settings import Settings
from worker.supervision.local_token import NAME, announced_to_clients, local_token, read_local_token

URL = "http://127.0.0.1:7437"
TOKEN = new_token()


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_a_data_folder_has_one_token_that_only_its_owner_reads(tmp_path: Path) -> None:
    """Given a data folder, then its token is made once, kept, and private."""
    data = tmp_path / "data"
    assert read_local_token(data) is None
    token = local_token(data)
    assert is_well_formed(token)
    assert local_token(data) == read_local_token(data) == token
    assert stat.S_IMODE((data / NAME).stat().st_mode) == 0o600
    assert [path.name for path in data.iterdir()] == [NAME]


@pytest.mark.parametrize(
    ("mode", "content"),
    [(0o644, TOKEN), (0o660, TOKEN), (0o600, "secret"), (0o600, "")],
    ids=["read by all", "written by the group", "too short", "empty"],  # the token differs in each process
)
def test_a_token_file_that_is_not_private_or_holds_none_is_refused(tmp_path: Path, mode: int, content: str) -> None:
    """Given a token file that others can read, or of another content, then it is refused, naming the file."""
    path = tmp_path / NAME
    path.write_text(content)
    path.chmod(mode)
    with pytest.raises(Rejected, match=str(path)):
        local_token(tmp_path)


def test_a_token_file_is_not_read_through_a_link(tmp_path: Path) -> None:
    """Given a link in the place of the token file, then it is not followed."""
    local_token(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / NAME).symlink_to(tmp_path / "a" / NAME)
    with pytest.raises(Rejected):
        local_token(tmp_path / "b")


def test_a_client_finds_a_server_while_it_runs_and_not_after() -> None:
    """Given a server that announces itself, then its token is found at its URL alone, and only while it runs."""
    with announced_to_clients(("127.0.0.1", 7437), URL, TOKEN) as done:
        assert done
        expected = LocalServer(URL, TOKEN, os.getpid())
        assert local_server(URL) == local_server("http://localhost:7437") == local_server(URL + "/") == expected
        for other in (
            "http://127.0.0.1:7438",
            "http://[::1]:7437",
            "https://127.0.0.1:7437",
            "http://example.com:7437",
        ):
            assert local_server(other) is None, other
    assert local_server(URL) is None


def test_an_entry_left_by_a_server_that_was_killed_gives_nothing() -> None:
    """Given an entry that no process holds, then its token is not sent to whoever has the port now."""
    path = entry_path("127.0.0.1", 7437)
    path.parent.mkdir(parents=True, mode=0o700)
    path.write_bytes(msgspec.json.encode(LocalServer(URL, TOKEN)))
    path.chmod(0o600)
    assert local_server(URL) is None


def test_an_entry_that_others_can_write_gives_nothing() -> None:
    """Given an entry or a folder that others can write, then it is not trusted, however it came about."""
    with announced_to_clients(("127.0.0.1", 7437), URL, TOKEN):
        path = entry_path("127.0.0.1", 7437)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        path.chmod(0o620)
        assert local_server(URL) is None
        path.chmod(0o600)
        path.parent.chmod(0o770)
        assert local_server(URL) is None
        path.parent.chmod(0o700)
        assert local_server(URL) is not None


def test_a_state_folder_that_cannot_be_written_is_no_reason_not_to_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a file in the place of the state folder, then the server runs without announcing itself."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with announced_to_clients(("127.0.0.1", 7437), URL, TOKEN) as done:
        assert not done
        assert local_server(URL) is None


@pytest.mark.parametrize(
    ("settings", "token", "says"),
    [
        ({"host": "0.0.0.0"}, "", "reverie tokens create"),
        ({"host": "0.0.0.0", "open": True}, "", "leave out --open"),
        ({"host": "0.0.0.0", "open": True}, "x" * 40, "leave out --open"),
        ({"host": "127.0.0.1", "open": True}, "x" * 40, "REVERIE_TOKEN is set"),
        ({"host": "127.0.0.1"}, "short", "openssl rand -hex 32"),
        ({"host": "0.0.0.0"}, "x" * 31, "openssl rand -hex 32"),
    ],
)
def test_a_server_that_would_let_strangers_in_does_not_start(
    tmp_path: Path, settings: dict[str, object], token: str, says: str
) -> None:
    """Given an address without tokens, a short token, or an open server that others reach, then it is refused."""
    with pytest.raises(Rejected, match=says):
        operator_token(Settings(data=tmp_path, **settings), {"REVERIE_TOKEN": token})  # type: ignore[arg-type]


def test_a_long_token_and_loopback_addresses_are_served(tmp_path: Path) -> None:
    """Given a long token, or a loopback address, then the server may start."""
    assert operator_token(Settings(data=tmp_path, host="0.0.0.0"), {"REVERIE_TOKEN": "x" * 32}) == "x" * 32
    assert operator_token(Settings(data=tmp_path), {}) is None
    assert operator_token(Settings(data=tmp_path, open=True), {}) is None


def test_a_client_without_arguments_finds_the_only_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given no server, one at another port, two others, and then one at the default port, then each case is clear."""
    monkeypatch.delenv("REVERIE_URL", raising=False)
    assert Reverie().connection.config.url == URL
    with announced_to_clients(("127.0.0.1", 8001), "http://127.0.0.1:8001", TOKEN):
        assert Reverie().connection.config.url == "http://127.0.0.1:8001"
        with announced_to_clients(("127.0.0.1", 8002), "http://127.0.0.1:8002", TOKEN):
            with pytest.raises(Rejected, match=r"REVERIE_URL: http://127\.0\.0\.1:8001, http://127\.0\.0\.1:8002"):
                Reverie()
            with announced_to_clients(("127.0.0.1", 7437), URL, TOKEN):
                assert Reverie().connection.config.url == URL
    assert Reverie().connection.config.url == URL


def test_a_server_that_does_not_answer_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given no server, then the error quotes its cause and is not chained to those of the network libraries."""
    with pytest.raises(Unavailable, match="is it running") as raised:
        Reverie(url="http://127.0.0.1:9", timeout_seconds=1).recall("anything")
    error: BaseException | None = raised.value
    while error is not None:
        assert error.__cause__ is None
        assert error.__suppress_context__ or error.__context__ is None
        error = None if error.__suppress_context__ else error.__context__
