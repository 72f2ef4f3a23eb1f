"""Export the records of a user, a session, an agent, a workspace or everybody, page by page.

The cursor says where to go on: the store, the tenant in the account, the agent, the part, and the key in it. An export
is no snapshot: records that are stored or removed while it is read may or may not be in it.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

from reverie.clock import from_micros
from reverie.contract import ACCOUNT_STORE
from reverie.errors import NotFound, Rejected
from reverie.trust.exports import (
    PARTS,
    RECORD_TYPES,
    ExportedRecord,
    ExportHeader,
    ExportPage,
    Selection,
)
from storage.lifecycle.exported_rows import ACCOUNT_PARTS, ExportLimits
from storage.stores import Store, Stores

# A page ends after this many bytes or records; one record may be larger.
_PAGE_BYTES: Final = 1024 * 1024
_PAGE_RECORDS: Final = 1_000


@dataclass(frozen=True, slots=True)
class ExportScope:
    """The selection of an export, and the workspaces and agents that its caller may read. `agents` None means all."""

    selection: Selection
    workspaces: tuple[str, ...]
    agents: frozenset[str] | None = None


class _Place(NamedTuple):
    """One part of one agent in one store. In the account's store, it is limited to the rows of one tenant."""

    store: str
    tenant: str
    agent: str
    part: str


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ends: the place, and the key of the last record in it."""

    place: _Place
    key: list[Any]


def first_page(stores: Stores, scope: ExportScope, *, version: str, now: int, count_only: bool = False) -> ExportPage:
    """Return the header with the number of records of each part, and the first records if they are wanted."""
    counts = _counts(stores, scope)
    tenants = _shown_tenants(stores, scope, counts)
    header = ExportHeader(exported_at=from_micros(now), selection=scope.selection, tenants=tenants, reverie=version)
    by_part: Counter[str] = Counter()
    for place, count in counts.items():
        by_part[place.part] += count
    numbers = {part: by_part[part] for part in PARTS if by_part[part]}
    if count_only:
        return ExportPage(records=[], header=header, counts=numbers)
    page = next_page(stores, scope, cursor=None)
    return ExportPage(records=page.records, cursor=page.cursor, header=header, counts=numbers)


def next_page(stores: Stores, scope: ExportScope, *, cursor: str | None) -> ExportPage:
    """Return the records that follow a cursor, about a megabyte of them. Raises `Rejected` for an invalid cursor."""
    begin = None if cursor is None else _decoded(cursor)
    records: list[ExportedRecord] = []
    size = 0
    for store, place in _places(stores, scope):
        after = None
        if begin is not None:
            if _rank(place) < _rank(begin.place):
                continue
            after = begin.key if place == begin.place else None
        kind = RECORD_TYPES[PARTS.index(place.part)]
        with store.reading() as tx:
            rows = tx.for_agent(place.agent).exported
            workspace = place.store if place.store != ACCOUNT_STORE else _home_workspace(stores, scope, place.tenant)
            for record, key in rows.page(kind, _limits(scope, place), workspace=workspace, after=after):
                records.append(record)
                size += len(msgspec.json.encode(record))
                if len(records) >= _PAGE_RECORDS or size >= _PAGE_BYTES:
                    end = urlsafe_b64encode(msgspec.json.encode(_Cursor(place, key))).decode()
                    return ExportPage(records=records, cursor=end)  # type: ignore[arg-type]
    return ExportPage(records=records)  # type: ignore[arg-type]


def _places(stores: Stores, scope: ExportScope) -> Iterator[tuple[Store, _Place]]:
    """Yield the parts of all agents that a scope reaches, in the order of `_rank`."""
    for name in sorted(scope.workspaces):
        try:
            store = stores.workspace(name, create=False)
        except NotFound:  # deleted meanwhile
            continue
        for agent in _agents(store, scope):
            yield from ((store, _Place(name, "", agent, part)) for part in PARTS)
    if scope.selection.session is not None or not stores.exists(ACCOUNT_STORE):
        return
    account = stores.account_store()
    for tenant in sorted(_tenants(stores, scope)):
        for agent in _agents(account, scope):
            yield from ((account, _Place(ACCOUNT_STORE, tenant, agent, part)) for part in ACCOUNT_PARTS)


def _rank(place: _Place) -> tuple[bool, str, str, str, int]:
    return place.store == ACCOUNT_STORE, place.store, place.tenant, place.agent, PARTS.index(place.part)


def _agents(store: Store, scope: ExportScope) -> list[str]:
    with store.reading() as tx:
        present = tx.kept_out.agents()
    wanted = scope.selection.agent
    return [agent for agent in present if wanted in (None, agent) and (scope.agents is None or agent in scope.agents)]


def _tenants(stores: Stores, scope: ExportScope) -> dict[str, list[str]]:
    """Return the workspaces of a scope by tenant, both sorted by name."""
    found: dict[str, list[str]] = {}
    for workspace in sorted(scope.workspaces):
        found.setdefault(stores.tenant_of(workspace), []).append(workspace)
    return dict(sorted(found.items()))


def _counts(stores: Stores, scope: ExportScope) -> dict[_Place, int]:
    """Return how many records each place has."""
    counts: dict[_Place, int] = {}
    for store, place in _places(stores, scope):
        kind = RECORD_TYPES[PARTS.index(place.part)]
        with store.reading() as tx:
            counts[place] = tx.for_agent(place.agent).exported.count(kind, _limits(scope, place))
    return counts


def _shown_tenants(stores: Stores, scope: ExportScope, counts: Mapping[_Place, int]) -> dict[str, list[str]]:
    """Return the workspaces of an export by tenant; for a person, only workspaces that hold something of theirs.

    A person must not learn of workspaces that they were never in. Records of theirs that only the account holds are
    listed under the first workspace of its tenant.
    """
    tenants = _tenants(stores, scope)
    if scope.selection.user is None:
        return tenants
    held = {place.store for place, count in counts.items() if count}
    with_account = {place.tenant for place, count in counts.items() if count and place.store == ACCOUNT_STORE}
    shown = {}
    for tenant, workspaces in tenants.items():
        own = [name for name in workspaces if name in held] or (workspaces[:1] if tenant in with_account else [])
        if own:
            shown[tenant] = own
    return shown


def _home_workspace(stores: Stores, scope: ExportScope, tenant: str) -> str:
    """Return the workspace under which the records of a tenant's account are exported."""
    if scope.selection.user is None:
        return _tenants(stores, scope)[tenant][0]
    shown = _shown_tenants(stores, scope, _counts(stores, scope))
    return shown.get(tenant, _tenants(stores, scope)[tenant])[0]


def _limits(scope: ExportScope, place: _Place) -> ExportLimits:
    return ExportLimits(scope.selection.user, scope.selection.session, place.tenant or None)


def _decoded(cursor: str) -> _Cursor:
    try:
        found = msgspec.json.decode(urlsafe_b64decode(cursor.encode()), type=_Cursor)
        if found.place.part not in PARTS:
            raise ValueError
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise Rejected("the cursor is not one of a page of an export: begin without one", field="cursor") from None
    return found
