"""The signing secret of an installation without a configured one: created once and kept in the data folder.

However many processes create it at once and whenever they die, there is only one secret: the complete file, already on
the disk, gets its name by a link, which fails if the name exists.
"""

from __future__ import annotations

import contextlib
import os
import secrets as random
from pathlib import Path
from typing import Final

from adapters.webhooks.signing import SETTING, decode_secret, new_secret
from reverie.errors import Rejected, StoreUnavailable, StoreUnusable

SECRET_FILE: Final = "webhook.secret"  # noqa: S105  # the name of a file
_MAX_BYTES: Final = 1024


def installation_secret(data_dir: Path) -> str:
    """Return the secret in `webhook.secret` of the data folder; the first call creates it, readable by its owner only.

    Raises StoreUnavailable for errors of the disk, StoreUnusable if the file contains something else.
    """
    path = data_dir / SECRET_FILE
    try:
        found = _read(path)
        if found is None:
            _create(path)
            found = _read(path)
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be read or created ({error.strerror or error}): check the free space and permissions of its"
            f" disk, or set {SETTING}"
        ) from error
    return _checked(found or "", path)


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None


def _checked(secret: str, path: Path) -> str:
    try:
        decode_secret(secret, source=str(path))
    except Rejected as error:
        raise StoreUnusable(f"{error}; or remove the file, and give the new secret to every receiver") from None
    return secret


def _create(path: Path) -> None:
    """Create the complete file, unless another process was first. Raises OSError."""
    for folder in (
        *reversed(path.parent.parents),
        path.parent,
    ):  # mkdir(parents=True) would make the parents readable by all
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
    draft = path.with_name(f"{path.name}.{random.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(f"{new_secret()}\n".encode())
            file.flush()
            os.fsync(file.fileno())
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
