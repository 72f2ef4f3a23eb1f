"""The hosts of an installation: data folders with files that are made from the rows of a shared database.

Only stores in a database server have several hosts. Files of SQLite are on the one host that uses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class HostRecord:
    """A host: when it joined, in microseconds, and for how long it has been silent, by the database's clock.

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
    """A host's report on an erasure: the rewritten histories and log lines, and the search of its files.

    `leftovers` has the fragments found, by file. `done` is false for a host that was removed before it reported.
    """

    host: str
    name: str
    done: bool = True
    files: int = 0
    bytes: int = 0
    histories: int = 0
    lines: int = 0
    leftovers: Mapping[str, int] = field(default_factory=dict)
