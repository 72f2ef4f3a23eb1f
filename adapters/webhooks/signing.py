"""Signatures by the Standard Webhooks specification, with one secret, or with several while secrets are rotated.

Keys are never shown: errors name a secret by its number in the list.

The secrets with which the webhooks of each agent are signed: derived, so that they are stored nowhere.

A secret follows from the key of the installation, the workspace, the agent, and how often it was rotated. Only this
count is stored, for each workspace: in a file, or in the database that several hosts share. It is stored under a keyed
hash of the agent's name. So an erasure of the agent has no name to remove here, and a later agent of that name does not
get a secret that was replaced.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import hmac
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

import msgspec
from standardwebhooks import Webhook

from adapters.kept_secrets import create_once
from reverie.errors import NotFound, Rejected, StoreUnavailable, StoreUnusable

# After a rotation the secret before it still signs, too, so that receivers can be changed one after the other.
OVERLAP: Final = timedelta(days=7)


class Rotation(msgspec.Struct, frozen=True):
    """How often a secret was rotated, and when last."""

    count: int
    at: datetime


class Rotations(Protocol):
    """The last rotation of each agent of one workspace whose secret was ever rotated, by a keyed hash of its name."""

    def read(self) -> dict[str, Rotation]:
        """Return all of them. Raises `StoreUnavailable` and `StoreUnusable`."""
        ...

    def change(self, change: Callable[[dict[str, Rotation]], bool]) -> bool:
        """Call `change`, one caller at a time, and store the rotations if it returns true; return its result.

        Raises `NotFound` if there is no such workspace.
        """
        ...


class AgentSecrets:
    """The secrets of the agents of one workspace."""

    def __init__(self, key: bytes, workspace: str, rotations: Rotations) -> None:
        self._key = key
        self._workspace = workspace
        self._rotations = rotations

    def secrets(self, agent: str, now: datetime) -> list[str]:
        """Return the secrets that sign now, the newest first: one, or two for a week after a rotation.

        Raises StoreUnavailable and StoreUnusable.
        """
        rotation = self._rotations.read().get(self._hash(agent))
        if rotation is None:
            return [self._secret(agent, 0)]
        newest = [self._secret(agent, rotation.count)]
        return newest if now >= rotation.at + OVERLAP else [*newest, self._secret(agent, rotation.count - 1)]

    def rotate(self, agent: str, now: datetime) -> list[str]:
        """Make a new secret and return the secrets that sign from now on: the new one and, for a week, the old one.

        Raises NotFound if there is no such workspace, StoreUnavailable and StoreUnusable.
        """
        name = self._hash(agent)

        def rotated(rotations: dict[str, Rotation]) -> bool:
            stored = rotations.get(name)
            rotations[name] = Rotation(1 if stored is None else stored.count + 1, now.astimezone(UTC))
            return True

        self._rotations.change(rotated)
        return self.secrets(agent, now)

    def take_over(self, others: Mapping[str, Rotation]) -> bool:
        """Add the rotations that another place with the same key has had; return whether they changed anything."""

        def taken(rotations: dict[str, Rotation]) -> bool:
            newer = {
                name: other
                for name, other in others.items()
                if name not in rotations or rotations[name].count < other.count
            }
            rotations |= newer
            return bool(newer)

        return bool(others) and self._rotations.change(taken)

    def _hash(self, agent: str) -> str:
        identity = msgspec.json.encode(["reverie.webhook-agent.v1", self._workspace, agent])
        return hmac.new(self._key, identity, hashlib.sha256).hexdigest()

    def _secret(self, agent: str, rotation: int) -> str:
        identity = msgspec.json.encode(["reverie.webhook-secret.v1", self._workspace, agent, rotation])
        return derived_secret(self._key, identity)


def derived_secret(key: bytes, identity: bytes) -> str:
    """Return a secret by Standard Webhooks, of 256 bits."""
    return PREFIX + base64.b64encode(hmac.new(key, identity, hashlib.sha256).digest()).decode("ascii")


def encode_rotations(rotations: Mapping[str, Rotation]) -> bytes:
    """Return rotations as JSON."""
    return msgspec.json.encode(rotations)


def decode_rotations(content: bytes) -> dict[str, Rotation]:
    """Return rotations from JSON. Raises ValueError if it is anything else."""
    try:
        return msgspec.json.decode(content, type=dict[str, Rotation])
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


ROTATIONS_FILE: Final = "webhook-secrets.json"


class RotationFile:
    """The rotations of one workspace, whose folder need not exist unless a secret is rotated."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

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
        create_once(self._path, encode_rotations(rotations), replace=True)

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


SETTING: Final = "webhook_secret"
PREFIX: Final = "whsec_"
# From the specification: 192 to 512 bits.
MIN_KEY_BYTES: Final = 24
MAX_KEY_BYTES: Final = 64
_HOW_TO_CREATE: Final = f"make one with `echo {PREFIX}$(openssl rand -base64 32)`"


class Signer:
    """Signs with all of its secrets, so that a receiver with any of them can verify."""

    def __init__(self, secrets: Sequence[str]) -> None:
        """Raises Rejected for an empty list and for an invalid secret."""
        if not secrets:
            raise Rejected(f"{SETTING} is empty: give at least one secret", field=SETTING)
        self._keys = tuple(
            Webhook(decode_secret(secret, source=f"secret {number} of {SETTING}"))
            for number, secret in enumerate(secrets, 1)
        )

    def __repr__(self) -> str:
        return f"Signer({len(self._keys)} secrets)"

    def headers(self, message_id: str, body: bytes, now: datetime) -> dict[str, str]:
        """Return the three headers that authenticate `body` (UTF-8) and its time. Raises ValueError."""
        check_message(message_id, now)
        at = now.astimezone(UTC)  # the library ignores the time zone
        text = body.decode()
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(math.floor(at.timestamp())),
            "webhook-signature": " ".join(key.sign(msg_id=message_id, timestamp=at, data=text) for key in self._keys),
        }


def check_message(message_id: str, now: datetime) -> None:
    """Raise ValueError for an id or time that cannot be signed."""
    if not message_id or not message_id.isascii() or not message_id.isprintable() or " " in message_id:
        raise ValueError(f"message_id {message_id!r:.80} must be printable ASCII without blanks: it goes into a header")
    if now.tzinfo is None:
        raise ValueError("now must have a time zone: the signature covers the second at which a message is sent")


def decode_secret(secret: str, *, source: str) -> bytes:
    """Return the key of a secret. Raises Rejected, without showing it, if it does not follow the specification."""
    if not secret.startswith(PREFIX):
        raise Rejected(f"{source} does not begin with {PREFIX}: {_HOW_TO_CREATE}", field=SETTING)
    encoded = secret.removeprefix(PREFIX).rstrip("=")
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        # Not chained: the library's error may quote the secret.
        raise Rejected(f"{source} is not base64 after {PREFIX}: {_HOW_TO_CREATE}", field=SETTING) from None
    if not MIN_KEY_BYTES <= len(key) <= MAX_KEY_BYTES:
        raise Rejected(
            f"{source} has {len(key)} bytes; it must have {MIN_KEY_BYTES} to {MAX_KEY_BYTES}: {_HOW_TO_CREATE}",
            field=SETTING,
        )
    return key
