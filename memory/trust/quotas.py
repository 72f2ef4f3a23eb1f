"""Quotas: how much a workspace may hold, and how many workspaces a tenant may have.

Stored rows count for their workspace, whoever wrote them: tokens are rotated and revoked, but their rows stay. So each
store's database counts its rows itself, and items in the inbox count, too. A quota refuses a call before anything is
accepted. Accepted items are stored, even if that exceeds the quota.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from reverie.calls import Resource
from reverie.errors import QUOTA_RETRY_SECONDS, NotFound, QuotaExceeded, ReverieError
from reverie.trust.calls import Holder, Quota, QuotaUse
from storage.stores import FileStamp, Stores
from storage.trust.quotas import RESOURCES, QuotaRecord, nothing_stored, stored_amounts
from storage.viewer import LOCAL_TENANT

if TYPE_CHECKING:
    from adapters.broker.inbox import WorkerInbox

# The resources of messages. Producers with access to the broker send nothing else, and the broker refuses it when full.
_OF_MESSAGES: Final[tuple[Resource, ...]] = ("messages", "bytes")
_NOUNS: Final[Mapping[Quota, str]] = {
    "messages": "messages and files",
    "bytes": "bytes of texts",
    "memories": "memories",
    "schedules": "schedules and reminders",
    "workspaces": "workspaces",
}


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit, and its origin: set for the workspace, for its tenant, or (None) by the settings."""

    amount: int
    set_for: Holder | None = None


@dataclass(slots=True)
class _Seen:
    """The result of a sweep for a workspace: the state of its file, and whether it was full."""

    stamp: FileStamp | None
    full: bool


class Quotas:
    """The quotas of an installation, for one process. Safe to use from several threads.

    `defaults` are those of the settings, 0 for none. Without any limit, a call costs microseconds.
    """

    def __init__(self, stores: Stores, inbox: Callable[[], WorkerInbox], *, defaults: Mapping[Quota, int]) -> None:
        self._stores = stores
        self._inbox = inbox
        self._defaults = {name: Limit(amount) for name, amount in defaults.items() if amount}
        self._lock = threading.Lock()
        self._moment: float | None = None
        # The amounts that calls in progress are about to store, by holder and resource.
        self._held: Counter[tuple[str, Resource]] = Counter()
        self._seen: dict[str, _Seen] = {}
        self._swept_for: Sequence[QuotaRecord] = ()

    @property
    def any_set(self) -> bool:
        """Whether there are any limits at all. Raises `StoreUnavailable`."""
        return bool(self._defaults) or bool(self._stores.known_quotas())

    def limits(self, workspace: str | None, tenant: str) -> dict[Quota, Limit]:
        """Return the limits of a workspace, or those of a tenant if `workspace` is None. Raises `StoreUnavailable`."""
        records = self._stores.known_quotas()
        if not records:
            return self._defaults
        found = dict(self._defaults)
        for holder in (("tenant", tenant), ("workspace", workspace)):
            mine = [one for one in records if (one.holder, one.name) == holder]
            found |= {one.resource: Limit(one.amount, one.holder) for one in mine}
        return {name: limit for name, limit in found.items() if limit.amount}

    def of_workspace(self, workspace: str) -> dict[Quota, Limit]:
        """Return the limits of a workspace. Raises `StoreUnavailable`."""
        if not self.any_set:
            return {}
        return self.limits(workspace, self._stores.tenant_of(workspace))

    def amounts_allowed(self, workspace: str) -> dict[Resource, int]:
        """Return the amounts that a workspace may hold, by resource. Raises `StoreUnavailable`."""
        limits = self.of_workspace(workspace)
        return {name: limits[name].amount for name in RESOURCES if name in limits}

    @contextmanager
    def admitted(
        self, workspace: str, amounts: Mapping[Resource, int], *, in_account: bool = False
    ) -> Iterator[Callable[[], None]]:
        """Reserve room for a call in a workspace, or with `in_account` in its tenant's part of the account tier.

        Yields a function that releases the room before the call ends, when the stored rows count themselves. Raises
        `QuotaExceeded`, and then nothing is stored.
        """
        holder, limits = self._holder(workspace, in_account=in_account)
        wanted = {name: amount for name, amount in amounts.items() if name in limits and amount}
        if not wanted:
            yield lambda: None
            return
        with self._lock:
            if in_account:
                used = self.used_in_account(self._stores.tenant_of(workspace))
            else:
                used = self.used(workspace, waiting="messages" in wanted)
            for name, amount in wanted.items():
                already = used[name] + self._held[holder, name]
                if already + amount > limits[name].amount:
                    raise _exceeded(holder, name, already, limits[name].amount, amount)
            self._held.update({(holder, name): amount for name, amount in wanted.items()})
        held = [wanted]

        def release() -> None:
            with self._lock:
                while held:
                    self._held.subtract({(holder, name): amount for name, amount in held.pop().items()})
                self._held += Counter()  # drops entries of 0

        try:
            yield release
        finally:
            release()

    def check_new_workspace(self, workspace: str, *, on_their_way: int = 0) -> None:
        """Raise `QuotaExceeded` if the tenant of a new workspace has as many workspaces as it may have.

        `on_their_way` counts other new workspaces, for which something was accepted already.
        """
        tenant = self._stores.tenant_of(workspace)
        limit = self.limits(None, tenant).get("workspaces")
        if limit is not None:
            used = self.workspaces_of(tenant) + on_their_way
            if used >= limit.amount:
                raise _exceeded(f"tenant {tenant}", "workspaces", used, limit.amount)

    def workspaces_of(self, tenant: str) -> int:
        """Return how many workspaces of a tenant exist."""
        tenants = self._stores.known_tenants()
        return sum(tenants.get(name, LOCAL_TENANT) == tenant for name in self._stores.names())

    def used(self, workspace: str, *, waiting: bool = False) -> dict[Resource, int]:
        """Return the amounts that a workspace holds, with `waiting` including the messages in its inbox."""
        # The inbox is read first: an item that is stored meanwhile is counted twice rather than not at all.
        in_inbox = self._inbox().stats(workspace).size if waiting else 0
        try:
            with self._stores.workspace(workspace, create=False).reading() as tx:
                found = stored_amounts(tx.connection)
        except NotFound:
            found = nothing_stored()
        return {**found, "messages": found["messages"] + in_inbox}

    def used_in_account(self, tenant: str) -> Mapping[Resource, int]:
        """Return the amounts that a tenant holds in the account tier."""
        with self._stores.account_store().reading() as tx:
            return stored_amounts(tx.connection, "" if tenant == LOCAL_TENANT else tenant)

    def refresh(self, workspace: str, *, refused: bool = False) -> bool:
        """Tell producers with access to the broker whether a workspace is full; return whether it is.

        `refused` says that the broker refuses messages now. Raises `Unavailable`, `StoreUnavailable` and
        `StoreUnusable`.
        """
        allowed = self.amounts_allowed(workspace)
        limits = {name: allowed[name] for name in _OF_MESSAGES if name in allowed}
        seen = self._seen.get(workspace)
        if not limits and not refused and (seen is None or not seen.full):
            return False
        stamp = self._stores.stamp(workspace)
        full = self._full(workspace, limits)
        if full is not None:
            self._inbox().set_full(workspace, full.field, str(full))
        elif refused or seen is None or seen.full:
            self._inbox().clear_full(workspace)
        self._seen[workspace] = _Seen(stamp, full is not None)
        return full is not None

    def refresh_all(self) -> dict[str, str]:
        """Tell producers of every workspace whether it is full; return the errors by workspace.

        A workspace that was not full and was not written since is not checked again, unless quotas were changed.
        """
        records = self._stores.known_quotas()
        if not self._defaults and not records and not self._seen:
            return {}
        changed, self._swept_for = records != self._swept_for, records
        errors: dict[str, str] = {}
        written, self._moment = self._stores.written.since(self._moment)
        for name in self._stores.names():
            seen = self._seen.get(name)
            if not changed and seen is not None and not seen.full and written is not None and name not in written:
                continue
            try:
                if changed or seen is None or seen.full or seen.stamp != self._stores.stamp(name):
                    self.refresh(name)
            except ReverieError as error:
                errors[name] = str(error)
        return errors

    def _full(self, workspace: str, limits: Mapping[Resource, int]) -> QuotaExceeded | None:
        """Return why no more messages fit into a workspace, or None."""
        if not limits:
            return None
        in_inbox = self._inbox().stats(workspace).size
        found = _held_by(self._stores, workspace)
        used = {**found, "messages": found["messages"] + in_inbox}
        for name, limit in limits.items():
            if used[name] >= limit:
                return _exceeded(f"workspace {workspace}", name, used[name], limit)
        return None

    def _holder(self, workspace: str, *, in_account: bool) -> tuple[str, dict[Quota, Limit]]:
        """Return a name for errors, and the limits."""
        if not in_account:
            return f"workspace {workspace}", self.of_workspace(workspace)
        tenant = self._stores.tenant_of(workspace)
        return f"the account tier of tenant {tenant}", self.limits(None, tenant)


def _exceeded(holder: str, quota: Quota, used: int, limit: int, more: int = 1) -> QuotaExceeded:
    beyond = f", and {more:,} more do not fit" if more > 1 and used < limit else ""
    return QuotaExceeded(
        f"{holder} holds {used:,} of at most {limit:,} {_NOUNS[quota]}{beyond}: forget what is not needed any more, or"
        " ask the operator for more (`reverie quotas set`)",
        field=quota,
        retry_after_seconds=QUOTA_RETRY_SECONDS,
    )


_OF_WORKSPACE: Final[tuple[Quota, ...]] = ("messages", "bytes", "memories", "schedules")
# A tenant has workspaces and a part of the account tier.
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
