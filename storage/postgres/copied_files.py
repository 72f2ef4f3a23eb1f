"""Copies the other files of a data folder: keys, secrets, histories of memory files, the broker's files."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Final

from reverie.errors import StoreUnavailable

# Files of running processes and of copies, and the identities of stores: the folder may have had others before.
_LEFT_OUT: Final = frozenset(
    {
        "run",
        "logs",
        "deleted",
        "known",
        "copying",
        "copies.json",
        "copies.lock",
        ".gitignore",
        "backups.used",
        "host.json",
        "workspaces.lock",
    }
)
# Left out of every folder: databases, and the marks of folders, which name a store of the source.
_OF_ANY_FOLDER: Final = ("account.db", "memory.db", ".new-", "store.id")


def copy_files(source: Path, target: Path) -> None:
    """Copy all files of a data folder except databases to a folder whose databases were copied. Safe to repeat.

    Nobody may write the source meanwhile. Raises `StoreUnavailable` when a file cannot be copied.
    """

    def left_out(folder: str, names: Collection[str]) -> set[str]:
        at_top = Path(folder) == source
        return {
            name
            for name in names
            if (at_top and name in _LEFT_OUT) or name.startswith(_OF_ANY_FOLDER) or _is_special(Path(folder) / name)
        }

    try:
        shutil.copytree(source, target, ignore=left_out, dirs_exist_ok=True)
    except (OSError, shutil.Error) as error:
        raise StoreUnavailable(
            f"the files of {source} cannot be copied to {target} ({error}): check the disk"
        ) from error


def _is_special(path: Path) -> bool:
    """Return whether a path is a socket, a pipe or a device."""
    mode = os.lstat(path).st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))
