"""Keeps Reverie's files private to the user: modes of files and folders, and a data folder is not committed to git."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Final, TypeVar

import msgspec

_Content = TypeVar("_Content")

_UMASK: Final = 0o077
_IGNORE_FILE: Final = ".gitignore"


def write_private_by_default() -> None:
    """Make every file and folder of this process and its children accessible to the user alone.

    Without this, files that libraries and the broker create would have the modes that the user's umask allows.
    """
    os.umask(_UMASK)


def private_folder(path: Path) -> Path:
    """Create `path` and its missing parents, accessible to the owner only; return it. Raises OSError."""
    for folder in reversed((path, *path.parents)):
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
    return path


def make_data_folder(path: Path) -> None:
    """Create a data folder and its missing parents for the user alone, with a `.gitignore` that covers all of it.

    A `.gitignore` that exists stays as it is. Raises OSError.
    """
    private_folder(path)
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(path / _IGNORE_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write("*\n")


def read_json(path: Path, type: type[_Content]) -> _Content | None:
    """Return the content of a file of JSON; None if there is none, or it cannot be read or is damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=type)
    except (OSError, ValueError, RecursionError):
        return None


def write_private(path: Path, content: bytes) -> None:
    """Write a file that the user alone can read, in place of one that exists. Raises OSError.

    A device or pipe is written to as it is.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
    target = path.resolve()
    # Not named after the process: threads share its id, and so may processes in containers that share the folder.
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        draft.replace(target)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
