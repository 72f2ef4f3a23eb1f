"""Tests of the data folder: found from wherever the user stands, and said when it cannot be told which."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.application import Invocation
from cli.target import Target
from reverie.errors import Conflict
from support.command_line import CommandLine
from worker.data_folder import find_data_folder, registered, running_stacks
from worker.settings import load_settings
from worker.supervision.run_file import hold_data_dir
from worker.supervision.server_file import ServerFile, announced

NO_BROKER = "redis://127.0.0.1:1/0"


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of this test's own for what is the user's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))


def test_the_nearest_data_folder_upwards_is_found(tmp_path: Path) -> None:
    """Given a folder three levels below one with a data folder, then that is found from there."""
    data = tmp_path / "project" / ".reverie"
    deep = tmp_path / "project" / "a" / "b"
    data.mkdir(parents=True)
    deep.mkdir(parents=True)
    assert find_data_folder(deep) == data
    assert find_data_folder(tmp_path) is None


def test_a_running_stack_is_found_from_any_folder(tmp_path: Path) -> None:
    """Given a stack that runs elsewhere, then its folder is found; afterwards it is not."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with hold_data_dir(data), registered(data):
        assert find_data_folder(elsewhere) == data
    assert find_data_folder(elsewhere) is None


def test_what_a_killed_stack_left_does_not_count(tmp_path: Path) -> None:
    """Given an entry whose supervisor has died, then nothing runs."""
    data = tmp_path / "data"
    with registered(data):
        assert running_stacks() == []
        assert find_data_folder(tmp_path) is None


def test_an_entry_that_cannot_be_read_does_not_count(tmp_path: Path) -> None:
    """Given nonsense in the state folder, then it is passed over."""
    folder = tmp_path / "state" / "reverie" / "running"
    folder.mkdir(parents=True)
    (folder / "x.json").write_bytes(b"\x00nonsense")
    assert running_stacks() == []


def test_of_two_running_stacks_one_must_be_named(tmp_path: Path) -> None:
    """Given two stacks and none nearby, then the error names both and says what to do."""
    one, other = tmp_path / "one", tmp_path / "other"
    with (
        hold_data_dir(one),
        registered(one),
        hold_data_dir(other),
        registered(other),
        pytest.raises(Conflict, match="name one with --data") as caught,
    ):
        find_data_folder(tmp_path)
    assert str(one) in str(caught.value)
    assert str(other) in str(caught.value)


def test_of_two_running_stacks_the_address_in_the_environment_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given two stacks and none nearby, when REVERIE_URL is set, then that server is asked, wherever it runs."""
    one, other = tmp_path / "one", tmp_path / "other"
    monkeypatch.chdir(tmp_path)
    url = "http://127.0.0.1:7439"
    with (
        hold_data_dir(one),
        registered(one),
        hold_data_dir(other),
        registered(other),
        announced(other, ServerFile(url, "0.1.0", "default")),
    ):
        monkeypatch.setenv("REVERIE_URL", url)
        assert (Target({}).url, Target({}).data, Target({}).is_remote) == (url, other, False)
        monkeypatch.setenv("REVERIE_URL", "https://memory.example")
        assert (Target({}).url, Target({}).data, Target({}).is_remote) == ("https://memory.example", None, True)


def test_the_user_s_own_folder_is_found_from_any_folder(tmp_path: Path) -> None:
    """Given data where the platform keeps a user's, then it is found, after a folder nearby and a running stack."""
    own, elsewhere, running = tmp_path / "share" / "reverie", tmp_path / "elsewhere", tmp_path / "running"
    elsewhere.mkdir()
    assert find_data_folder(elsewhere) is None
    own.mkdir(parents=True)
    assert find_data_folder(elsewhere) == own
    with hold_data_dir(running), registered(running):
        assert find_data_folder(elsewhere) == running
    (elsewhere / ".reverie").mkdir()
    assert find_data_folder(elsewhere) == elsewhere / ".reverie"


def test_a_stack_that_is_started_without_a_name_keeps_its_data_in_the_user_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load_settings().data == tmp_path / "share" / "reverie"
    assert Invocation({}, starts_stack=True).settings.data == tmp_path / "share" / "reverie"
    (tmp_path / ".reverie").mkdir()
    assert Invocation({}, starts_stack=True).settings.data == tmp_path / ".reverie"


def test_a_command_finds_the_memories_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Given a memory in the data folder of a running stack, when listed from another folder, then it is there."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    here = CommandLine(monkeypatch, capsys, "--agent", "ana", "--data", str(data), "--broker", NO_BROKER)
    assert here("memory", "add", "Kate takes oat milk").code == 0
    reverie = CommandLine(monkeypatch, capsys, "--agent", "ana", "--broker", NO_BROKER)
    alone = reverie("memory", "list", "--json")
    assert (alone.code, alone.out) == (1, "")
    assert "there is no data folder" in alone.err
    monkeypatch.setattr(Target, "is_starting", False)  # this stack has no server to wait for
    with hold_data_dir(data), registered(data):
        listed = reverie("memory", "list", "--json")
    assert [memory["content"] for memory in listed.json] == ["Kate takes oat milk"]
    assert not (elsewhere / ".reverie").exists()
