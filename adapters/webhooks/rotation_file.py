"""How often the webhook secrets of agents were rotated, in a file of their workspace's folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from adapters.webhooks.agent_secrets import AgentSecrets, Rotation, decode_rotations, encode_rotations
from reverie.errors import NotFound, StoreUnavailable, StoreUnusable

ROTATIONS_FILE: Final = "webhook-secrets.json"


class RotationFile:
    """The rotations of one workspace, whose folder need not exist unless a secret is rotated."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def exists(self) -> bool:
        """Return whether a secret was ever rotated."""
        return self._path.exists()

    def read(self) -> dict[str, Rotation]:
        """Return the last rotation of each agent. Raises `StoreUnavailable` and `StoreUnusable`."""
        try:
            return decode_rotations(self._path.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreUnavailable(f"{self._path} cannot be read ({error.strerror or error})") from error
        except ValueError as error:
            raise StoreUnusable(
                f"{self._path} is damaged ({error}): restore it, or remove it, which brings back the first secrets"
            ) from error

    def change(self, change: Callable[[dict[str, Rotation]], bool]) -> bool:
        """Let one caller at a time change them; see `Rotations`. Raises `StoreUnavailable` and `StoreUnusable`, too."""
        if not self._folder.is_dir():
            raise NotFound(f"there is no workspace {self._folder.name!r}", field="workspace")
        try:
            with self._locked():
                rotations = self.read()
                if not change(rotations):
                    return False
                self._write(rotations)
        except OSError as error:
            raise StoreUnavailable(
                f"{self._path} cannot be written ({error.strerror or error}): check the free space and permissions of"
                " its disk"
            ) from error
        return True

    @property
    def _path(self) -> Path:
        return self._folder / ROTATIONS_FILE

    def _write(self, rotations: dict[str, Rotation]) -> None:
        draft = self._path.with_suffix(".new")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(encode_rotations(rotations))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the folder, so that two processes do not rotate at once."""
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def secrets_in(folder: Path, key: bytes) -> AgentSecrets:
    """Return the secrets of a workspace by its folder, with the key of the installation."""
    return AgentSecrets(key, folder.name, RotationFile(folder))
