"""The passphrase of encrypted backups: from a key file, or from the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from reverie.errors import Rejected
from worker.settings import Settings

_MAX_KEY_FILE_BYTES: Final = 64 * 1024


def backup_secret(settings: Settings) -> bytes | None:
    """Return the passphrase of the backups that Reverie makes by itself, None for none. Raises `Rejected`."""
    if settings.backup_key_file is not None:
        return secret_in(settings.backup_key_file)
    return settings.backup_passphrase.encode() if settings.backup_passphrase else None


def secret_in(path: Path) -> bytes:
    """Return the content of a key file. Raises `Rejected` if it cannot be read, is empty, or too large."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_KEY_FILE_BYTES + 1).strip()
    except OSError as error:
        raise Rejected(f"the key file {path} cannot be read: {error.strerror}", field="key_file") from error
    if not 0 < len(content) <= _MAX_KEY_FILE_BYTES:
        raise Rejected(f"the key file {path} must have 1 to {_MAX_KEY_FILE_BYTES:,} bytes", field="key_file")
    return content
