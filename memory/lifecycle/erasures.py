"""Request erasures, and read how far they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

from msgspec.structs import replace

from memory import conversion
from memory.lifecycle.about import Found, Said, find_about
from memory.lifecycle.erasing import STEPS, write_tombstones
from memory.lifecycle.erasure_rows import Scope, planned
from memory.tombstones import hash_key, target_hash
from reverie.clock import from_micros, new_id
from reverie.contract import ACCOUNT_STORE
from reverie.decoding import convert
from reverie.errors import NotFound, Rejected
from reverie.trust.calls import ErasedItem, Erasure, ErasureReceipt
from storage.lifecycle.erasures import KEPT_IN_ACCOUNT, ErasureRecord, message_name, named_message
from storage.memories.records import MemoryFilter
from storage.stores import Store, Stores

# If more than this is about the subject, its sessions have to be erased one by one.
_MAX_ITEMS: Final = 2_000
_EXCERPT_CHARACTERS: Final = 200


def find_to_erase(
    stores: Stores, about: str, *, workspace: str, agent: str, user: str | None, session: str | None
) -> Found:
    """Find what an agent's messages and memories in a workspace say about something, or those of a user or session.

    The agent's memories of the account are among them. Raises `Rejected` if there are too many to look through.
    """
    every = MemoryFilter(active=None, session=session, owner=user)
    places: list[Store] = [stores.account_store()]
    with suppress(NotFound):
        places.append(stores.workspace(workspace, create=False))

    def read() -> Iterator[Said]:
        for store in reversed(places):
            with store.reading_as(agent) as rows:
                for one in rows.messages.spoken(user=user, session=session):
                    yield Said("message", one.id, one.session, one.role, one.speaker, one.content, one.created_at)
                for memory in rows.memories.iterate(every):
                    if store.name != ACCOUNT_STORE or memory.tenant == stores.stored_tenant_of(workspace):
                        origin = memory.session or str(memory.metadata.get("session", ""))
                        yield Said(
                            "memory",
                            memory.id,
                            origin,
                            "",
                            "",
                            memory.content,
                            memory.created_at,
                            memory.source_message or "",
                        )

    found = find_about(about, read)
    if len(found.items) > _MAX_ITEMS:
        raise Rejected(
            f"{len(found.items):,} messages and memories are about {about!r}: name a user or a session", field="about"
        )
    return found


def selection_of(found: Found) -> str:
    """Return the target that erases what was found; derived memories are erased with their messages anyway."""
    parts = [
        (said.kind, message_name(said.session, said.id) if said.kind == "message" else said.id)
        for said, reason in found.items
        if reason != "derived"
    ]
    return json.dumps(sorted(parts))


def with_items(plan: Erasure, found: Found) -> Erasure:
    """Return a plan with the items that would be erased and why, or with the people who may be meant."""
    items = [
        conversion.convert(said, ErasedItem, reason=reason, text=said.content[:_EXCERPT_CHARACTERS])
        for said, reason in found.items
    ]
    return replace(plan, items=items, people=found.people)


def request_erasure(stores: Stores, data: Path, scope: Scope, *, requested_by: str, now: int) -> Erasure:
    """Store an erasure, which the job then carries out; an equal one that has not finished is returned instead.

    Raises `Rejected` for an invalid name of a workspace.
    """
    scope.check()
    key = hash_key(data)
    hashed = target_hash(key, scope.kind, workspace=scope.workspace, agent=scope.agent, target=scope.target)
    erasures = stores.erasures()
    for present in erasures.unfinished():
        if present.target_hash == hashed and present.cutoff is None:
            return to_erasure(present)
    erasure = conversion.convert(
        scope,
        ErasureRecord,
        id=new_id(),
        target=scope.target or None,
        target_hash=hashed,
        requested_by=requested_by,
        requested_at=now,
        step=STEPS[0],
    )
    erasures.add(erasure)
    # Written even before the job begins: a backup that is restored in between does not have this request.
    write_tombstones(data, erasure.id, scope, at=now)
    return to_erasure(erasure)


def plan_erasure(stores: Stores, scope: Scope, *, requested_by: str, now: int) -> Erasure:
    """Return what an erasure would remove, without storing it. Raises `Rejected` as `request_erasure`."""
    scope.check()
    return conversion.convert(
        scope,
        Erasure,
        id="",
        state="planned",
        step="",
        steps=list(STEPS),
        target=_shown(scope.kind, scope.target or None),
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
    """Return the id of what is erased: a message's id without its session; None for a selection."""
    if kind == "selection":
        return None
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
