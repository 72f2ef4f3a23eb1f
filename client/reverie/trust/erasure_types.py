"""The types of erasures and their receipts."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from reverie.types import ListResult

ErasureKind = Literal["message", "memory", "session", "user", "agent", "workspace"]
# The version of the receipt's format.
RECEIPT_VERSION = 1


class Searched(msgspec.Struct, frozen=True, kw_only=True):
    """The search that followed a removal.

    `parts` is the number of parts of removed texts that were looked for in each of the `forms`; `explained` of them are
    also in what others stored, so they are no leftovers; `too_short` texts had too few characters to be looked for.
    """

    files: int
    bytes: int
    forms: list[str]
    parts: int
    explained: int = 0
    too_short: int = 0


class Remaining(msgspec.Struct, frozen=True, kw_only=True):
    """What an erasure cannot reach, and who is responsible for it."""

    what: str
    responsible: str


class ErasureReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What an erasure removed, without content: the numbers of each place, what a search found, and what remains.

    `target_hash` is the keyed hash of what was erased. `leftovers` is empty unless parts of removed texts were found in
    files afterwards: the number of parts by file. `hosts` are the other hosts that have removed it from their files,
    which `searched` counts, too; in `leftovers` a file of theirs has the name of its host before it.
    """

    version: int = RECEIPT_VERSION
    erasure: str
    kind: ErasureKind
    target_hash: str
    requested_by: str
    requested_at: datetime
    finished_at: datetime
    removed: dict[str, dict[str, int]]
    searched: Searched
    leftovers: dict[str, int]
    remains: list[Remaining]
    hosts: list[str] = []


class Erasure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An erasure: a job that removes all of something and proves it with a receipt.

    `counts` are the numbers of removed rows and items by place: a workspace, `@account`, or the name of a step; of a
    dry run, those that would be removed. `step` of `steps` is in progress, and `error` is why it waits. `target`, the
    id of what is erased, is kept until it is removed; afterwards only its keyed hash is known.
    """

    id: str
    kind: ErasureKind
    state: Literal["planned", "running", "done"]
    step: str
    steps: list[str]
    target: str | None = None
    target_hash: str = ""
    agent: str | None = None
    workspace: str | None = None
    requested_by: str = ""
    requested_at: datetime
    finished_at: datetime | None = None
    counts: dict[str, dict[str, int]] = {}
    error: str = ""
    receipt: ErasureReceipt | None = None


class ErasureList(ListResult[Erasure], frozen=True, kw_only=True):
    """A page of erasures, the newest first."""

    erasures: list[Erasure]
