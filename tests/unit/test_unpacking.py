"""What a backup has packed is written below its folder, and nowhere else."""

from __future__ import annotations

import io
import stat
import tarfile
from pathlib import Path

import pytest

from adapters.backups.repository import unpack


def archive_of(member: tarfile.TarInfo, content: bytes = b"") -> io.BytesIO:
    """Return an archive of one member."""
    member.size = len(content)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(member, io.BytesIO(content))
    archive.seek(0)
    return archive


def test_files_and_their_folders_are_their_owners_alone(tmp_path: Path) -> None:
    """Given a file that everybody may read, then it is written with its time, for its owner."""
    member = tarfile.TarInfo("refs/heads/main")
    member.mode, member.mtime = 0o777, 1_700_000_000

    with tarfile.open(fileobj=archive_of(member, b"abc")) as tar:
        unpack(tar, tmp_path)

    written = tmp_path / "refs" / "heads" / "main"
    assert written.read_bytes() == b"abc"
    assert (stat.S_IMODE(written.stat().st_mode), written.stat().st_mtime) == (0o600, 1_700_000_000)
    assert stat.S_IMODE(written.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../outside", tarfile.REGTYPE),
        ("/outside", tarfile.REGTYPE),
        ("inside/../../outside", tarfile.REGTYPE),
        ("link", tarfile.SYMTYPE),
        ("link", tarfile.LNKTYPE),
        ("pipe", tarfile.FIFOTYPE),
        ("device", tarfile.CHRTYPE),
    ],
    ids=["up", "absolute", "up from within", "symbolic link", "hard link", "pipe", "device"],
)
def test_an_archive_writes_nothing_outside_its_folder(tmp_path: Path, name: str, kind: bytes) -> None:
    """Given an archive with a path out of its folder, a link or a device, then it is refused, and nothing is made."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd"
    folder = tmp_path / "data" / "git"
    folder.mkdir(parents=True)

    with tarfile.open(fileobj=archive_of(member)) as tar, pytest.raises(tarfile.TarError, match="is no file or folder"):
        unpack(tar, folder)

    assert [path.name for path in tmp_path.rglob("*")] == ["data", "git"]
