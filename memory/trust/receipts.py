"""Writes the receipt of an erasure: numbers, places and times, and what remains under whose responsibility."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from memory.trust.fragments import FORMS, FragmentSet
from memory.trust.searching import Found
from reverie.clock import from_micros, rfc3339
from reverie.trust.erasure_types import ErasureReceipt, Remaining, Searched
from storage.trust.erasures import ErasureRecord
from storage.trust.hosts import HostReport

_BACKUPS: Final = (
    "backups and copies of the data folder made before {at}: the tombstone of this erasure is applied when `reverie"
    " restore` restores one, and not when files are copied back"
)
_EXPORTS: Final = "exports that were written to files outside the data folder"
_SENT: Final = "webhooks, notifications and tasks that were sent before: ask their receivers to erase"
_HOST: Final = (
    "the data folder of the host {name}, which was away for too long and was forgotten: it removes old versions of its"
    " memory files, and its logs, when Reverie starts there again"
)
_READ: Final = "what agents have read from the memory before: their own contexts, logs and conversations"


def receipt_of(
    erasure: ErasureRecord,
    found: Found,
    wanted: FragmentSet,
    explained: FragmentSet,
    *,
    remote: tuple[str, ...],
    hosts: Sequence[HostReport] = (),
    now: int,
) -> dict[str, Any]:
    """Return the receipt of an erasure as JSON values; `remote` names services that have seen content.

    `hosts` are the reports of the hosts that share the stores, without that of this one if it has done its part.
    """
    remains = [
        Remaining(what=_BACKUPS.format(at=rfc3339(now)), responsible="operator"),
        Remaining(what=_EXPORTS, responsible="whoever made them"),
        Remaining(what=_SENT, responsible="operator and the receivers"),
        Remaining(what=_READ, responsible="operator of the agents"),
        *(Remaining(what=_HOST.format(name=host.name), responsible="operator") for host in hosts if not host.done),
        *(Remaining(what=f"requests sent to {service}", responsible="operator of that service") for service in remote),
    ]
    receipt = ErasureReceipt(
        erasure=erasure.id,
        kind=erasure.kind,
        target_hash=erasure.target_hash,
        requested_by=erasure.requested_by,
        requested_at=from_micros(erasure.requested_at),
        finished_at=from_micros(now),
        removed={place: dict(sorted(counts.items())) for place, counts in sorted(erasure.counts.items())},
        searched=Searched(
            files=found.files + sum(host.files for host in hosts),
            bytes=found.bytes + sum(host.bytes for host in hosts),
            forms=list(FORMS),
            parts=len(wanted),
            explained=len(explained),
            too_short=wanted.too_short,
        ),
        leftovers=found.leftovers(explained)
        | {f"{host.name}: {path}": number for host in hosts for path, number in host.leftovers.items()},
        hosts=[host.name for host in hosts if host.done],
        remains=remains,
    )
    values: dict[str, Any] = msgspec.to_builtins(receipt)
    return values
