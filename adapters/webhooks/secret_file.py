"""The secret that an installation signs with when none is configured: made once, then kept in the data folder.

However many processes ask at once and whenever they die, there is one secret: it gets its name when it is complete
and on the disk, by a link that fails where the name is taken.
"""

from __future__ import annotations

import contextlib
import os
import secrets as random
from pathlib import Path
from typing import Final

from adapters.webhooks.signing import SETTING, key_of, new_secret
from reverie.errors import Rejected, StoreUnavailable, StoreUnusable

SECRET_FILE: Final = "webhook.secret"  # noqa: S105  # the name of a file
_LONGEST_BYTES: Final = 1024


def installation_secret(data_dir: Path) -> str:
    """The secret in `webhook.secret` of the data folder; the first call makes it, for the owner's eyes only (0600).

    Raises StoreUnavailable when the disk refuses, StoreUnusable when the file holds something else.
    """
    path = data_dir / SECRET_FILE
    try:
        found = _read(path)
        if found is None:
            _make(path)
            found = _read(path)
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be read or made ({error.strerror or error}): check the space and the rights on its disk,"
            f" or set {SETTING}"
        ) from error
    return _checked(found or "", path)


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None


def _checked(secret: str, path: Path) -> str:
    try:
        key_of(secret, whose=str(path))
    except Rejected as error:
        raise StoreUnusable(f"{error}; or remove the file, and tell the new secret to every receiver") from None
    return secret


def _make(path: Path) -> None:
    """Give the file its name with all its content, unless another process was first. Raises OSError."""
    for folder in (*reversed(path.parent.parents), path.parent):  # mkdir(parents=True) would leave them open to all
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
    draft = path.with_name(f"{path.name}.{random.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(f"{new_secret()}\n".encode())
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another process was first: theirs holds
            path.hardlink_to(draft)
    finally:
        draft.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """A name is on the disk when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
