"""Secrets that an installation makes once and keeps in a file of its data folder, readable by its owner only.

However many processes make one at once and whenever they die, there is only one: the complete file, already on the
disk, gets its name by a link, which fails if the name exists.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import secrets as random
from collections.abc import Callable
from pathlib import Path
from typing import Final

from reverie.errors import StoreUnavailable, StoreUnusable

KEY_FILE: Final = "installation.key"
_KEY_BYTES: Final = 32
_MAX_BYTES: Final = 1024


def installation_key(data_dir: Path) -> bytes:
    """Return the 32-byte key from which the agents' keys are derived; the first call makes `installation.key`.

    Raises StoreUnavailable for errors of the disk, StoreUnusable if the file contains something else.
    """
    path = data_dir / KEY_FILE
    try:
        found = read_secret(path)
        if found is None:
            create_once(path, _encoded(random.token_bytes(_KEY_BYTES)))
            found = read_secret(path)
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be read or created ({error.strerror or error}): check the free space and permissions of its"
            " disk"
        ) from error
    return _decoded(found or "", path)


def share_installation_key(data_dir: Path, share: Callable[[bytes], bytes]) -> bool:
    """Have a data folder use the key that its host shares with other hosts; return whether it had a different key.

    `share` gets the folder's key, or a new one, and returns the key that all hosts use. If the folder had a different
    key, that is kept as `installation.key.earlier`. Raises as `installation_key`.
    """
    path = data_dir / KEY_FILE
    try:
        found = read_secret(path)
        own = None if found is None else _decoded(found, path)
        shared = share(own or random.token_bytes(_KEY_BYTES))
        if own == shared:
            return False
        if found is not None:
            create_once(path.with_name(f"{KEY_FILE}.earlier"), f"{found}\n".encode(), replace=True)
        create_once(path, _encoded(shared), replace=True)
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be read or written ({error.strerror or error}): check its disk"
        ) from error
    return own is not None


def read_secret(path: Path) -> str | None:
    """Return the text in a file without blanks around it, or None if there is no such file. Raises OSError."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None


def _encoded(key: bytes) -> bytes:
    return base64.b64encode(key) + b"\n"


def _decoded(text: str, path: Path) -> bytes:
    with contextlib.suppress(binascii.Error, ValueError):
        key = base64.b64decode(text, validate=True)
        if len(key) == _KEY_BYTES:
            return key
    raise StoreUnusable(
        f"{path} is not a key of {_KEY_BYTES} bytes in base64: restore the file, or remove it to make a new key, and"
        " then restart Reverie and the agents' workers"
    )


def create_once(path: Path, content: bytes, *, replace: bool = False) -> None:
    """Create a file with its whole content at once; it and missing folders are for their owner alone. Raises OSError.

    A file that another process has created before stays, unless `replace` is true.
    """
    make_folders(path.parent)
    draft = path.with_name(f"{path.name}.{random.token_hex(8)}")
    try:
        write_synced(draft, content)
        if replace:
            draft.replace(path)
        else:
            with contextlib.suppress(FileExistsError):  # another process was first: its file stays
                path.hardlink_to(draft)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def make_folders(path: Path) -> None:
    """Create a folder and its missing parents for their owner alone. Raises OSError."""
    for folder in (*reversed(path.parents), path):
        if not folder.exists():  # mkdir(parents=True) would make the parents readable by all
            folder.mkdir(mode=0o700, exist_ok=True)


def write_synced(path: Path, content: bytes) -> None:
    """Write a new file for its owner alone, and flush it to the disk. Raises OSError."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Flush a folder: only then are the names in it on the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
