"""The secrets of agents' webhooks, by the stores: rotations are in a file, or in the database that hosts share.

Hosts share the key of the installation, too, so that webhooks and runs are signed alike wherever they are sent from.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adapters.kept_secrets import installation_key, share_installation_key
from adapters.webhooks.signing import (
    ROTATIONS_FILE,
    AgentSecrets,
    Rotation,
    RotationFile,
    decode_rotations,
    encode_rotations,
    secrets_in,
)
from reverie.errors import NotFound, StoreUnavailable, StoreUnusable
from storage.opened import hosts_of
from storage.stores import Stores

if TYPE_CHECKING:
    from storage.postgres.hosts import Hosts  # its module needs the driver of the database


@dataclass(frozen=True)
class SharedRotations:
    """The rotations of one workspace in the database of several hosts: see `Rotations`."""

    hosts: Hosts
    workspace: str

    def read(self) -> dict[str, Rotation]:
        """Return the last rotation of each agent. Raises `StoreUnavailable` and `StoreUnusable`."""
        return self._decoded(self.hosts.rotations(self.workspace))

    def change(self, change: Callable[[dict[str, Rotation]], bool]) -> bool:
        """Let one caller of all hosts at a time change them. Raises `NotFound`, `StoreUnavailable`, `StoreUnusable`."""

        def changed(content: bytes) -> bytes | None:
            rotations = self._decoded(content)
            return encode_rotations(rotations) if change(rotations) else None

        return self.hosts.change_rotations(self.workspace, changed)

    def _decoded(self, content: bytes) -> dict[str, Rotation]:
        try:
            return decode_rotations(content)
        except ValueError as error:
            raise StoreUnusable(
                f"the rotations of webhook secrets of {self.workspace!r} are damaged in the database ({error})"
            ) from error


def agent_secrets(stores: Stores, workspace: str) -> AgentSecrets:
    """Return the secrets of the agents of a workspace. Raises `StoreUnavailable` and `StoreUnusable`."""
    key, hosts = installation_key(stores.data_dir), hosts_of(stores)
    if hosts is None:
        return secrets_in(_folder(stores.data_dir, workspace), key)
    return AgentSecrets(key, workspace, SharedRotations(hosts, workspace))


def share_signing_key(stores: Stores) -> bool:
    """Have this host derive secrets from the key of all hosts; return whether it had another one.

    The first host gives them its own. Raises `StoreUnavailable` and `StoreUnusable`.
    """
    hosts = hosts_of(stores)
    return hosts is not None and share_installation_key(stores.data_dir, hosts.share_installation_key)


def share_rotations(stores: Stores) -> int:
    """Give all hosts the rotations in this host's files; return for how many workspaces there were new ones.

    The files are from before a move to the shared database, and stay. A file that cannot be read stops no other: its
    error is raised at the end. Safe to repeat. Raises `StoreUnavailable` and `StoreUnusable`.
    """
    names, new = set(stores.names()), 0
    failed: StoreUnavailable | StoreUnusable | None = None
    for folder in [path.parent for path in (stores.data_dir / "workspaces").glob(f"*/{ROTATIONS_FILE}")]:
        if folder.name not in names:
            continue
        try:
            with suppress(NotFound):  # the workspace has been deleted meanwhile
                new += agent_secrets(stores, folder.name).take_over(RotationFile(folder).read())
        except (StoreUnavailable, StoreUnusable) as error:
            failed = failed or error
    if failed is not None:
        raise failed
    return new


def all_rotations(stores: Stores) -> dict[str, bytes]:
    """Return how often secrets were rotated, as JSON by workspace. Raises `StoreUnavailable`."""
    hosts = hosts_of(stores)
    if hosts is not None:
        return {name: hosts.rotations(name) for name in sorted(hosts.rotated_workspaces())}
    found = {name: RotationFile(_folder(stores.data_dir, name)).read() for name in stores.names()}
    return {name: encode_rotations(rotations) for name, rotations in found.items() if rotations}


def _folder(data: Path, workspace: str) -> Path:
    return data / "workspaces" / workspace
