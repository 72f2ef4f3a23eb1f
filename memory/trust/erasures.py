"""Request erasures, and read how far they are."""

from __future__ import annotations

from pathlib import Path

from memory.trust.erasing import STEPS
from memory.trust.erasure_rows import Scope, planned
from memory.trust.tombstones import hash_key, target_hash
from reverie.clock import from_micros, new_id
from reverie.decoding import convert
from reverie.errors import NotFound
from reverie.trust.erasure_types import Erasure, ErasureReceipt
from storage.stores import Stores
from storage.trust.erasures import ErasureRecord


def request_erasure(stores: Stores, data: Path, scope: Scope, *, requested_by: str, now: int) -> Erasure:
    """Store an erasure, which the job then carries out; an equal one that has not finished is returned instead."""
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
    """Return what an erasure would remove, without storing it."""
    return Erasure(
        id="",
        kind=scope.kind,
        state="planned",
        step="",
        steps=list(STEPS),
        target=scope.target or None,
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


def to_erasure(record: ErasureRecord) -> Erasure:
    """Return a stored erasure as the client sees it."""
    return Erasure(
        id=record.id,
        kind=record.kind,
        state="running" if record.finished_at is None else "done",
        step=record.step,
        steps=list(STEPS),
        target=record.target,
        target_hash=record.target_hash,
        agent=record.agent,
        workspace=record.workspace,
        requested_by=record.requested_by,
        requested_at=from_micros(record.requested_at),
        finished_at=from_micros(record.finished_at) if record.finished_at is not None else None,
        counts=record.counts,
        error=record.error,
        receipt=convert(record.receipt, ErasureReceipt, name="receipt") if record.receipt else None,
    )
