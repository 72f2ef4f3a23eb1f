"""A settings file or data folder that was found, not named, is used only if nobody else could have put it there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.target import Target
from reverie.errors import Rejected
from worker.data_folder import find_data_folder
from worker.settings import load_settings

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with a settings file and a data folder of the user's own."""
    folder = tmp_path / "project"
    (folder / ".reverie").mkdir(parents=True)
    (folder / "reverie.toml").write_text('log_level = "warning"\n')
    for path in (folder, folder / ".reverie", folder / "reverie.toml"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    monkeypatch.chdir(folder)
    for name in ("REVERIE_CONFIG", "REVERIE_DATA"):
        monkeypatch.delenv(name, raising=False)
    return folder


def test_what_is_the_users_own_is_used(here: Path) -> None:
    """Given a file and a folder of the user's own, then both are used."""
    assert load_settings().log_level == "warning"
    assert find_data_folder(here) == here / ".reverie"


@pytest.mark.parametrize("place", ["reverie.toml", "."])
def test_a_settings_file_that_others_can_write_is_not_used(
    here: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a file, or its folder, that all can write to, then it is refused with the command that mends it."""
    (here / place).chmod(0o777)
    with pytest.raises(Rejected, match=rf"chmod go-w {(here / place).resolve()}") as refused:
        load_settings()
    assert refused.value.field == "config"
    with pytest.raises(Rejected, match="chmod go-w"):
        _ = Target({}).data
    monkeypatch.setenv("REVERIE_CONFIG", str(here / "reverie.toml"))
    monkeypatch.setenv("REVERIE_DATA", str(here / ".reverie"))
    assert load_settings().log_level == "warning"


def test_a_data_folder_that_others_can_write_is_not_used(here: Path) -> None:
    """Given a data folder that all can write to, then it is refused, unless it is named."""
    (here / ".reverie").chmod(0o777)
    for use in (lambda: find_data_folder(here / "deeper"), load_settings):
        with pytest.raises(Rejected, match="chmod go-w") as refused:
            use()
        assert refused.value.field == "data"
    assert load_settings(data=here / ".reverie").data == here / ".reverie"


def test_a_folder_with_the_sticky_bit_may_be_writable_by_all(here: Path) -> None:
    """Given a folder such as /tmp, then what is the user's own in it is used."""
    here.parent.chmod(0o1777)
    assert load_settings().log_level == "warning"
    assert find_data_folder(here) == here / ".reverie"


def test_what_a_link_leads_to_is_checked(here: Path) -> None:
    """Given a link to a file in a folder that all can write to, then it is refused."""
    (here / "shared").mkdir()
    (here / "reverie.toml").rename(here / "shared" / "real.toml")
    (here / "reverie.toml").symlink_to(here / "shared" / "real.toml")
    assert load_settings().log_level == "warning"
    (here / "shared").chmod(0o777)
    with pytest.raises(Rejected, match=f"chmod go-w {here}/shared"):
        load_settings()


@needs_root
@pytest.mark.parametrize("place", ["reverie.toml", "."])
def test_what_another_user_owns_is_not_used(here: Path, place: str) -> None:
    """Given a file or a folder of another user, then it is refused."""
    os.chown(here / place, 12_345, -1)
    with pytest.raises(Rejected, match="belongs to the user 12345"):
        load_settings()


@needs_root
def test_the_group_of_the_user_alone_may_write(here: Path) -> None:
    """Given files that a group can write to, then it matters whether anybody else is in that group."""
    (here / "reverie.toml").chmod(0o664)
    assert load_settings().log_level == "warning"
    os.chown(here / "reverie.toml", -1, 12_345)
    with pytest.raises(Rejected, match="chmod go-w"):
        load_settings()
