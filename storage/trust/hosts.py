"""The hosts of an installation: data folders that hold files made from what is in a shared database.

Only stores in a database server have several hosts. Files of SQLite are on the one host that uses them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class HostRecord:
    """A host: when it joined, in microseconds, and how long nothing was heard of it, by the database's clock.

    `erasures` is how many erasures wait for it, `error` why it cannot carry them out.
    """

    id: str
    name: str
    joined_at: int
    silent_seconds: float
    erasures: int
    error: str


@dataclass(frozen=True, slots=True)
class HostReport:
    """What a host has done for an erasure: the rewritten histories and log lines, and the search of its files.

    `leftovers` are the parts found by file. `done` is false of a host that was forgotten before it did anything.
    """

    host: str
    name: str
    done: bool = True
    files: int = 0
    bytes: int = 0
    histories: int = 0
    lines: int = 0
    leftovers: Mapping[str, int] = field(default_factory=dict)


class Hosts(Protocol):
    """The hosts of one database. Each method is a transaction of its own; all raise `StoreUnavailable`."""

    def installation(self) -> str:
        """Return what tells this database from all others."""

    def share_key(self, proposed: bytes) -> bytes:
        """Return the key by which all hosts hash what was erased: the first that was proposed."""

    def share_installation_key(self, proposed: bytes) -> bytes:
        """Return the key from which all hosts derive secrets: the first that was proposed."""

    def rotations(self, workspace: str) -> bytes:
        """Return how often the webhook secrets of a workspace were rotated, as JSON."""

    def change_rotations(self, workspace: str, change: Callable[[bytes], bytes | None]) -> bool:
        """Store what `change` makes of them, unless it returns None, one caller at a time; return whether it did.

        Raises `NotFound` if there is no such workspace.
        """

    def rotated_workspaces(self) -> set[str]:
        """Return the names of the workspaces of which a webhook secret was ever rotated."""

    def add_tombstones(self, contents: Sequence[str]) -> None:
        """Give tombstones to all hosts; those that they have already are left out."""

    def tombstones(self, *, after: int) -> list[tuple[int, str]]:
        """Return the tombstones that were given to all hosts after one with this number, each with its own."""

    def join(self, host_id: str, name: str) -> bool:
        """Add a host, or note that it was heard of; return whether it was there already."""

    def see(self, host_id: str) -> bool:
        """Note that a host was heard of; return whether it is still one of the hosts."""

    def set_error(self, host_id: str, error: str) -> None:
        """Note why a host cannot do what it should, or with an empty text that it can."""

    def all(self) -> list[HostRecord]:
        """Return all hosts by name."""

    def forget(self, host_id: str) -> bool:
        """Remove a host, for which no erasure waits any more; return whether there was one."""

    def forget_unseen(self, days: float) -> list[HostRecord]:
        """Remove the hosts that were not heard of for so long, as `forget` does; return them."""

    def erasures_to_do(self, host_id: str) -> list[str]:
        """Return the ids of the erasures that wait for a host, the oldest first."""

    def report(self, erasure_id: str, report: HostReport) -> None:
        """Note what a host has done for an erasure; in the place of an earlier report of it."""

    def waited_for(self, erasure_id: str) -> list[HostRecord]:
        """Return the hosts that have not reported on an erasure."""

    def reports(self, erasure_id: str) -> Sequence[HostReport]:
        """Return the reports on an erasure by the names of the hosts."""

    def drop_reports(self, erasure_id: str) -> None:
        """Delete the reports on an erasure, which are in its receipt."""
