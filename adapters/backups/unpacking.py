"""Writes what a backup has packed: a folder of plain files."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path


def unpack(tar: tarfile.TarFile, folder: Path) -> None:
    """Write the files and folders of an archive, as their owner's alone. Raises `TarError` for anything else in it.

    Python's own filter for this is not in every 3.11.
    """
    for member in tar:
        target = folder / member.name
        if not (member.isfile() or member.isdir()) or not target.resolve().is_relative_to(folder.resolve()):
            raise tarfile.TarError(f"{member.name!r} is no file or folder of it")
        (target if member.isdir() else target.parent).mkdir(mode=0o700, parents=True, exist_ok=True)
        source = tar.extractfile(member)
        if source is not None:
            with source, os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                shutil.copyfileobj(source, file)
            os.utime(target, (member.mtime, member.mtime))
