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
    """Return the key from which those of agents are derived, 32 bytes; the first call makes `installation.key`.

    Raises StoreUnavailable for errors of the disk, StoreUnusable if the file contains something else.
    """
    path = data_dir / KEY_FILE
    return _decoded(kept_secret(path, lambda: _encoded(_new_key()), advice=""), path)


def share_installation_key(data_dir: Path, share: Callable[[bytes], bytes]) -> bool:
    """Have a data folder use the key that its host shares with others; return whether it had another one.

    `share` is given the folder's key, or a new one, and returns that of all. Another one that the folder had stays
    beside it, as `installation.key.earlier`. Raises as `installation_key`.
    """
    path = data_dir / KEY_FILE
    try:
        found = read_secret(path)
        own = None if found is None else _decoded(found, path)
        shared = share(own or _new_key())
        if own == shared:
            return False
        if found is not None:
            _create(path.with_name(f"{KEY_FILE}.earlier"), found, replace=True)
        _create(path, _encoded(shared), replace=True)
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be read or written ({error.strerror or error}): check its disk"
        ) from error
    return own is not None


def kept_secret(path: Path, make: Callable[[], str], *, advice: str) -> str:
    """Return the text in a file; the first call creates it, with what `make` returns.

    Raises StoreUnavailable for errors of the disk; `advice` says what else there is to do about them.
    """
    try:
        found = read_secret(path)
        if found is None:
            _create(path, make())
            found = read_secret(path)
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be read or created ({error.strerror or error}): check the free space and permissions of its"
            f" disk{advice}"
        ) from error
    return found or ""


def read_secret(path: Path) -> str | None:
    """Return the text in a file without blanks around it, or None if there is no such file. Raises OSError."""
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None


def _new_key() -> bytes:
    return random.token_bytes(_KEY_BYTES)


def _encoded(key: bytes) -> str:
    return base64.b64encode(key).decode("ascii")


def _decoded(text: str, path: Path) -> bytes:
    with contextlib.suppress(binascii.Error, ValueError):
        key = base64.b64decode(text, validate=True)
        if len(key) == _KEY_BYTES:
            return key
    raise StoreUnusable(
        f"{path} is not a key of {_KEY_BYTES} bytes in base64: restore the file, or remove it to make a new key, and"
        " then restart Reverie and the agents' workers"
    )


def _create(path: Path, secret: str, *, replace: bool = False) -> None:
    """Create the complete file, unless another process was first, or in place of it. Raises OSError."""
    for folder in (
        *reversed(path.parent.parents),
        path.parent,
    ):  # mkdir(parents=True) would make the parents readable by all
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
    draft = path.with_name(f"{path.name}.{random.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(f"{secret}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        if replace:
            draft.replace(path)
        else:
            with contextlib.suppress(FileExistsError):  # another process was first: use its secret
                path.hardlink_to(draft)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Flush a folder: only then is a new name in it on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
