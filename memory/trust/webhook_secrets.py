"""The secrets with which the webhooks of each agent are signed: derived, so that they are stored nowhere.

A secret follows from the key of the installation, the workspace, the agent, and how often it was rotated. Only this
count is stored, in the workspace, so that it goes with backups and copies. It is stored under a keyed hash of the
agent's name. So an erasure of the agent has no name to remove here, and a later agent of that name does not get a
secret that was replaced.

Hosts that share a database share the installation's key, too, so that all of them sign webhooks alike.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime, timedelta
from typing import Final

import msgspec

from adapters.kept_secrets import installation_key
from adapters.webhooks.signing import derived_secret
from reverie.clock import from_micros, to_micros
from reverie.errors import NotFound
from storage.stores import Stores

# After a rotation the secret before it still signs, too, so that receivers can be changed one after the other.
OVERLAP: Final = timedelta(days=7)


class AgentSecrets:
    """The secrets of the agents of one workspace."""

    def __init__(self, stores: Stores, workspace: str) -> None:
        """Raises `StoreUnavailable` and `StoreUnusable` when the key of the installation cannot be read."""
        self._stores = stores
        self._key = installation_key(stores.data_dir)
        self._workspace = workspace

    def secrets(self, agent: str, now: datetime) -> list[str]:
        """Return the secrets that sign now, the newest first: one, or two for a week after a rotation.

        Raises `StoreUnavailable`, `StoreUnusable` and `DamagedRow`.
        """
        try:
            with self._stores.workspace(self._workspace, create=False).reading() as tx:
                rotation = tx.webhook_rotations.of(self._hash(agent))
        except NotFound:  # nothing was stored there, and no secret rotated
            rotation = None
        if rotation is None:
            return [self._secret(agent, 0)]
        newest = [self._secret(agent, rotation.count)]
        is_over = now >= from_micros(rotation.rotated_at) + OVERLAP
        return newest if is_over else [*newest, self._secret(agent, rotation.count - 1)]

    def rotate(self, agent: str, now: datetime) -> list[str]:
        """Make a new secret and return the secrets that sign from now on: the new one and, for a week, the old one.

        Raises `NotFound` if there is no such workspace, `StoreUnavailable` and `StoreUnusable`.
        """
        with self._stores.workspace(self._workspace, create=False).writing() as tx:
            tx.webhook_rotations.add(self._hash(agent), now=to_micros(now))
        return self.secrets(agent, now)

    def _hash(self, agent: str) -> str:
        identity = msgspec.json.encode(["reverie.webhook-agent.v1", self._workspace, agent])
        return hmac.new(self._key, identity, hashlib.sha256).hexdigest()

    def _secret(self, agent: str, rotation: int) -> str:
        identity = msgspec.json.encode(["reverie.webhook-secret.v1", self._workspace, agent, rotation])
        return derived_secret(self._key, identity)
