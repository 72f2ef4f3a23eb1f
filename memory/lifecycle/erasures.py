"""Request erasures, and read how far they are."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from memory import conversion
from memory.lifecycle.erasing import STEPS
from memory.lifecycle.erasure_rows import Scope, planned
from memory.tombstones import hash_key, target_hash
from reverie.clock import from_micros, new_id
from reverie.decoding import convert
from reverie.errors import NotFound
from reverie.trust.calls import Erasure, ErasureReceipt
from storage.lifecycle.erasures import KEPT_IN_ACCOUNT, ErasureRecord, named_message
from storage.stores import Stores


def request_erasure(stores: Stores, data: Path, scope: Scope, *, requested_by: str, now: int) -> Erasure:
    """Store an erasure, which the job then carries out; an equal one that has not finished is returned instead.

    Raises `Rejected` for a workspace that no name can be of.
    """
    scope.check()
    key = hash_key(data)
    hashed = target_hash(key, scope.kind, workspace=scope.workspace, agent=scope.agent, target=scope.target)
    erasures = stores.erasures()
    for present in erasures.unfinished():
        if present.target_hash == hashed and present.cutoff is None:
            return to_erasure(present)
    erasure = ErasureRecord(
        id=new_id(),
        kind=scope.kind,
        target=scope.target or None,
        target_hash=hashed,
        agent=scope.agent,
        workspace=scope.workspace,
        requested_by=requested_by,
        requested_at=now,
        cutoff=None,
        step=STEPS[0],
        position="",
        rounds=0,
        counts={},
        error="",
        receipt=None,
        finished_at=None,
    )
    erasures.add(erasure)
    return to_erasure(erasure)


def plan_erasure(stores: Stores, scope: Scope, *, requested_by: str, now: int) -> Erasure:
    """Return what an erasure would remove, without storing it. Raises `Rejected` as `request_erasure`."""
    scope.check()
    return Erasure(
        id="",
        kind=scope.kind,
        state="planned",
        step="",
        steps=list(STEPS),
        target=_shown(scope.kind, scope.target or None),
        agent=scope.agent,
        workspace=scope.workspace,
        requested_by=requested_by,
        requested_at=from_micros(now),
        counts=planned(stores, scope),
    )


def read_erasure(stores: Stores, erasure_id: str) -> Erasure:
    """Return an erasure. Raises `NotFound`."""
    found = stores.erasures().find(erasure_id)
    if found is None:
        raise NotFound(f"there is no erasure {erasure_id!r}", field="id")
    return to_erasure(found)


def list_erasures(stores: Stores, *, limit: int, offset: int) -> list[Erasure]:
    """Return erasures, the newest first."""
    return [to_erasure(found) for found in stores.erasures().page(limit=limit, offset=offset)]


def _shown(kind: str, target: str | None) -> str | None:
    """Return the id of what is erased, without the session that a message is named with."""
    return named_message(target)[1] if kind == "message" and target else target


def to_erasure(record: ErasureRecord) -> Erasure:
    """Return a stored erasure as the client sees it."""
    return conversion.convert(
        record,
        Erasure,
        state=_state(record),
        steps=list(STEPS),
        target=_shown(record.kind, record.target),
        counts={place: counts for place, counts in record.counts.items() if place != KEPT_IN_ACCOUNT},
        receipt=convert(record.receipt, ErasureReceipt, name="receipt") if record.receipt else None,
    )


def _state(record: ErasureRecord) -> Literal["running", "waiting", "failed", "done"]:
    if record.finished_at is None:
        return "waiting" if record.error else "running"
    return "failed" if record.receipt is None else "done"
