"""What workspaces and tenants hold, and their limits, for an operator to read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from memory.trust.quotas import Limit, Quotas
from reverie.errors import NotFound
from reverie.trust.quota_types import Holder, Quota, QuotaUse
from storage.stores import Stores
from storage.trust.amounts import nothing_stored

_OF_WORKSPACE: Final[tuple[Quota, ...]] = ("messages", "bytes", "memories", "schedules")
# A tenant has workspaces, and its part of the account tier.
_OF_TENANT: Final[tuple[Quota, ...]] = ("workspaces", "memories", "bytes")


def quota_uses(stores: Stores, quotas: Quotas, *, only: str | None, limit: int, offset: int) -> list[QuotaUse]:
    """Return the use and limits of a page of tenants and workspaces, tenants first; with `only`, of one workspace.

    Raises `StoreUnavailable` and `StoreUnusable`.
    """
    if only is not None:
        return uses_of(stores, quotas, "workspace", only) if offset == 0 else []
    page = islice(_holders(stores), offset, offset + limit)
    return [use for holder, name in page for use in uses_of(stores, quotas, holder, name)]


def uses_of(stores: Stores, quotas: Quotas, holder: Holder, name: str) -> list[QuotaUse]:
    """Return the use and limits of a workspace or a tenant. Raises `StoreUnavailable` and `StoreUnusable`."""
    used: Mapping[Any, int]
    if holder == "workspace":
        tenant, names = stores.tenant_of(name), _OF_WORKSPACE
        used = _held_by(stores, name)
        limits = quotas.limits(name, tenant)
    else:
        tenant, names = name, _OF_TENANT
        used = {**quotas.used_in_account(name), "workspaces": quotas.workspaces_of(name)}
        limits = quotas.limits(None, name)
    return [_use(holder, name, tenant, one, used[one], limits.get(one)) for one in names]


def _held_by(stores: Stores, workspace: str) -> Mapping[Any, int]:
    try:
        return stores.amounts(workspace)
    except NotFound:
        return nothing_stored()


def _holders(stores: Stores) -> Iterator[tuple[Holder, str]]:
    workspaces = stores.names()
    named = {one.name for one in stores.known_quotas() if one.holder == "tenant"}
    for tenant in sorted({stores.tenant_of(name) for name in workspaces} | named):
        yield "tenant", tenant
    for name in workspaces:
        yield "workspace", name


def _use(holder: Holder, name: str, tenant: str, resource: Quota, used: int, limit: Limit | None) -> QuotaUse:
    return QuotaUse(
        holder=holder,
        name=name,
        tenant=tenant,
        resource=resource,
        used=used,
        limit=None if limit is None else limit.amount,
        set_for="" if limit is None else limit.set_for or "",
    )
