"""The signing secret that earlier releases created in the data folder: where it exists, it still signs, too."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from adapters.kept_secrets import kept_secret
from adapters.webhooks.signing import SETTING, decode_secret, new_secret
from reverie.errors import Rejected, StoreUnusable

SECRET_FILE: Final = "webhook.secret"  # noqa: S105  # the name of a file


def stored_secret(data_dir: Path) -> str | None:
    """Return the secret in `webhook.secret` of the data folder, None if there is none. Raises as the one below."""
    path = data_dir / SECRET_FILE
    return installation_secret(data_dir) if path.exists() else None


def installation_secret(data_dir: Path) -> str:
    """Return the secret in `webhook.secret` of the data folder; the first call creates it, readable by its owner only.

    Raises StoreUnavailable for errors of the disk, StoreUnusable if the file contains something else.
    """
    path = data_dir / SECRET_FILE
    return _checked(kept_secret(path, new_secret, advice=f", or set {SETTING}"), path)


def _checked(secret: str, path: Path) -> str:
    try:
        decode_secret(secret, source=str(path))
    except Rejected as error:
        raise StoreUnusable(f"{error}; or remove the file, and give the new secret to every receiver") from None
    return secret
