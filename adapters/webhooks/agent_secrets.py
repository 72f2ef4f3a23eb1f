"""The secrets with which the webhooks of each agent are signed: derived, so that no file or database contains them.

A secret follows from the key of the installation, the workspace, the agent, and how often it was rotated. Only this
count is stored, in a file of the workspace.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from adapters.webhooks.signing import PREFIX
from reverie.errors import NotFound, StoreUnavailable, StoreUnusable

ROTATIONS_FILE: Final = "webhook-secrets.json"
# After a rotation the secret before it still signs, too, so that receivers can be changed one after the other.
OVERLAP: Final = timedelta(days=7)


class _Rotation(msgspec.Struct, frozen=True):
    count: int
    at: datetime


class AgentSecrets:
    """The secrets of the agents of one workspace, whose folder need not exist unless a secret is rotated."""

    def __init__(self, key: bytes, folder: Path) -> None:
        self._key = key
        self._folder = folder

    def secrets(self, agent: str, now: datetime) -> list[str]:
        """Return the secrets that sign now, the newest first: one, or two for a week after a rotation.

        Raises StoreUnavailable and StoreUnusable.
        """
        rotations = self._read()
        rotation = rotations.get(agent, rotations.get(self._nameless(agent)))
        if rotation is None:
            return [self._secret(agent, 0)]
        newest = [self._secret(agent, rotation.count)]
        return newest if now >= rotation.at + OVERLAP else [*newest, self._secret(agent, rotation.count - 1)]

    def rotate(self, agent: str, now: datetime) -> list[str]:
        """Make a new secret and return those that sign from now on: it, and for a week the one that it replaces.

        Raises NotFound if there is no such workspace, StoreUnavailable and StoreUnusable.
        """
        if not self._folder.is_dir():
            raise NotFound(f"there is no workspace {self._folder.name!r}", field="workspace")
        try:
            with self._locked():
                rotations = self._read()
                stored = rotations.pop(self._nameless(agent), None)
                stored = rotations.get(agent, stored)
                rotations[agent] = _Rotation(1 if stored is None else stored.count + 1, now.astimezone(UTC))
                self._write(rotations)
        except OSError as error:
            raise StoreUnavailable(
                f"{self._path} cannot be written ({error.strerror or error}): check the free space and permissions of"
                " its disk"
            ) from error
        return self.secrets(agent, now)

    def rotated(self) -> dict[str, datetime]:
        """Return the names in the file, each with the time of its last rotation. Raises StoreUnusable."""
        return {name: rotation.at for name, rotation in self._read().items()}

    def forget_name(self, agent: str) -> bool:
        """Name an agent that was erased by a keyed hash; return whether it was named.

        The number of its rotations stays: a later agent of this name must not get a secret that was replaced. Raises
        StoreUnavailable and StoreUnusable.
        """
        try:
            with self._locked():
                rotations = self._read()
                if agent not in rotations:
                    return False
                rotations[self._nameless(agent)] = rotations.pop(agent)
                self._write(rotations)
        except OSError as error:
            raise StoreUnavailable(f"{self._path} cannot be written ({error.strerror or error})") from error
        return True

    def _nameless(self, agent: str) -> str:
        identity = msgspec.json.encode(["reverie.erased-agent.v1", self._folder.name, agent])
        return hmac.new(self._key, identity, hashlib.sha256).hexdigest()

    @property
    def _path(self) -> Path:
        return self._folder / ROTATIONS_FILE

    def _secret(self, agent: str, rotation: int) -> str:
        identity = msgspec.json.encode(["reverie.webhook-secret.v1", self._folder.name, agent, rotation])
        return derived_secret(self._key, identity)

    def _read(self) -> dict[str, _Rotation]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, _Rotation])
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreUnavailable(f"{self._path} cannot be read ({error.strerror or error})") from error
        except (ValueError, RecursionError) as error:
            raise StoreUnusable(
                f"{self._path} is damaged ({error}): restore it, or remove it, which brings back the first secrets"
            ) from error

    def _write(self, rotations: dict[str, _Rotation]) -> None:
        draft = self._path.with_suffix(".new")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(rotations))
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


def derived_secret(key: bytes, identity: bytes) -> str:
    """Return a secret by Standard Webhooks, of 256 bits."""
    return PREFIX + base64.b64encode(hmac.new(key, identity, hashlib.sha256).digest()).decode("ascii")
