"""The secrets with which the webhooks of each agent are signed: derived, so that they are stored nowhere.

A secret follows from the key of the installation, the workspace, the agent, and how often it was rotated. Only this
count is stored, for each workspace: in a file, or in the database that several hosts share.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import msgspec

from adapters.webhooks.signing import PREFIX

# After a rotation the secret before it still signs, too, so that receivers can be changed one after the other.
OVERLAP: Final = timedelta(days=7)

# What stands in the place of an erased agent's name.
_HASH: Final = re.compile("[0-9a-f]{64}")


class Rotation(msgspec.Struct, frozen=True):
    """How often a secret was rotated, and when last."""

    count: int
    at: datetime


class Rotations(Protocol):
    """The last rotation of each agent of one workspace whose secret was ever rotated, by its name."""

    def read(self) -> dict[str, Rotation]:
        """Return all of them. Raises `StoreUnavailable` and `StoreUnusable`."""
        ...

    def change(self, change: Callable[[dict[str, Rotation]], bool]) -> bool:
        """Store them as `change` leaves them if it returns true, one caller at a time; return what it returned.

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
        rotations = self._rotations.read()
        rotation = rotations.get(agent, rotations.get(self._nameless(agent)))
        if rotation is None:
            return [self._secret(agent, 0)]
        newest = [self._secret(agent, rotation.count)]
        return newest if now >= rotation.at + OVERLAP else [*newest, self._secret(agent, rotation.count - 1)]

    def rotate(self, agent: str, now: datetime) -> list[str]:
        """Make a new secret and return those that sign from now on: it, and for a week the one that it replaces.

        Raises NotFound if there is no such workspace, StoreUnavailable and StoreUnusable.
        """

        def rotated(rotations: dict[str, Rotation]) -> bool:
            stored = rotations.pop(self._nameless(agent), None)
            stored = rotations.get(agent, stored)
            rotations[agent] = Rotation(1 if stored is None else stored.count + 1, now.astimezone(UTC))
            return True

        self._rotations.change(rotated)
        return self.secrets(agent, now)

    def rotated(self) -> dict[str, datetime]:
        """Return the agents that are named, each with the time of its last rotation. Raises StoreUnusable."""
        rotations = self._rotations.read()
        return {name: rotation.at for name, rotation in rotations.items() if not _HASH.fullmatch(name)}

    def forget_name(self, agent: str) -> bool:
        """Name an agent that was erased by a keyed hash; return whether it was named.

        The number of its rotations stays: a later agent of this name must not get a secret that was replaced. Raises
        NotFound, StoreUnavailable and StoreUnusable.
        """

        def forgotten(rotations: dict[str, Rotation]) -> bool:
            if agent not in rotations:
                return False
            rotations[self._nameless(agent)] = rotations.pop(agent)
            return True

        return self._rotations.change(forgotten)

    def take_over(self, others: Mapping[str, Rotation]) -> bool:
        """Add the rotations that another place has had; return whether they changed anything.

        An agent that was erased here since stays without its name.
        """

        def taken(rotations: dict[str, Rotation]) -> bool:
            before = dict(rotations)
            for name, other in others.items():
                known = [rotations[one] for one in (name, self._nameless(name)) if one in rotations]
                if all(one.count < other.count for one in known):
                    rotations.pop(self._nameless(name), None)
                    rotations[name] = other
            return rotations != before

        return bool(others) and self._rotations.change(taken)

    def _nameless(self, agent: str) -> str:
        identity = msgspec.json.encode(["reverie.erased-agent.v1", self._workspace, agent])
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
