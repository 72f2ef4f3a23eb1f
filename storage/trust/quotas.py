"""The quotas that were set for workspaces and tenants, in the account's database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from reverie.calls import Resource
from reverie.trust.calls import Holder, Quota
from storage.catalogue import TABLES
from storage.engines import Connection, StoreDatabase
from storage.migrations.triggers import AMOUNTS
from storage.repository import AccountRepository
from storage.rows import execute
from storage.viewer import LOCAL_TENANT


@dataclass(frozen=True, slots=True)
class QuotaRecord:
    """A quota of a workspace or a tenant; an amount of 0 is no limit."""

    holder: Holder
    name: str
    resource: Quota
    amount: int


class Quotas(AccountRepository):
    """The quotas that were set. Each method is a transaction of its own; `changed` is called after a change."""

    def __init__(self, account: StoreDatabase, changed: Callable[[], None]) -> None:
        super().__init__(account)
        self._changed = changed

    def all(self) -> list[QuotaRecord]:
        """Return all quotas."""
        sql = "SELECT holder, name, resource, amount FROM quotas ORDER BY holder, name, resource"
        return self._records(QuotaRecord, sql)

    def set(self, holder: Holder, name: str, amounts: Mapping[Quota, int | None]) -> None:
        """Set quotas of a workspace or a tenant; None removes one."""
        with self._account.atomic() as connection:
            for resource, amount in amounts.items():
                named = {"holder": holder, "name": name, "resource": resource}
                execute(connection, _REMOVE, **named)
                if amount is not None:
                    execute(connection, _INSERT, **named, amount=amount)
        self._changed()


_REMOVE = "DELETE FROM quotas WHERE holder = :holder AND name = :name AND resource = :resource"
_INSERT = "INSERT INTO quotas (holder, name, resource, amount) VALUES (:holder, :name, :resource, :amount)"


RESOURCES: Final[tuple[Resource, ...]] = ("messages", "bytes", "memories", "schedules")
_SELECT: Final = f"SELECT {', '.join(RESOURCES)} FROM stored_amounts WHERE tenant = :tenant"
# The tables whose rows count in an amount other than bytes.
COUNTED_TABLES: Final = frozenset(
    name for name, table in TABLES.items() if table.counted is not None and table.counted.amount
)


def _counted_rows() -> Iterator[str]:
    """Yield queries for the correct numbers, with one row for each row of a table that counts."""
    for name, table in TABLES.items():
        if table.counted is not None:
            number = table.counted.condition.format(row=name)
            amounts = (f"{number if one == table.counted.amount else 0} AS {one}" for one in AMOUNTS)
            size = " + ".join(f"coalesce(octet_length({column}), 0)" for column in table.counted.columns)
            tenant = table.counted.tenant.format(row=name)
            yield f"SELECT {tenant} AS tenant, {', '.join(amounts)}, {size} AS bytes FROM {name}"


_ROWS: Final = " UNION ALL ".join(_counted_rows())
_COLUMNS: Final = "tenant, messages, memories, schedules, bytes"
_WRONG_COUNTS: Final = f"""
    WITH counted AS (SELECT {_COLUMNS} FROM stored_amounts WHERE messages OR memories OR schedules OR bytes),
        actual AS (SELECT tenant, sum(messages) AS messages, sum(memories) AS memories, sum(schedules) AS schedules,
            sum(bytes) AS bytes FROM ({_ROWS}) GROUP BY tenant)
    SELECT count(*) FROM (SELECT * FROM (SELECT {_COLUMNS} FROM counted EXCEPT SELECT {_COLUMNS} FROM actual)
        UNION SELECT * FROM (SELECT {_COLUMNS} FROM actual EXCEPT SELECT {_COLUMNS} FROM counted))
"""


def nothing_stored() -> Mapping[Resource, int]:
    """Return the numbers of a store that does not exist."""
    return dict.fromkeys(RESOURCES, 0)


def stored_amounts(connection: Connection, tenant: str = "") -> Mapping[Resource, int]:
    """Return how much a store holds; in the account's store, how much of a tenant (empty for the local tenant)."""
    row = execute(connection, _SELECT, tenant=tenant).one_or_none()
    return nothing_stored() if row is None else dict(zip(RESOURCES, row, strict=True))


def wrong_amounts(connection: Connection) -> int:
    """Return how many of the counts of a store differ from its rows."""
    return int(execute(connection, _WRONG_COUNTS).scalar_one())


def stored_ids(connection: Connection, table: str, agent: str, ids: Collection[str]) -> set[str]:
    """Return which of these ids an agent has in one of `COUNTED_TABLES`."""
    sql = f"SELECT id FROM {table} WHERE agent_id = :agent AND id IN (SELECT value FROM json_each(:ids))"
    return set(execute(connection, sql, agent=agent, ids=ids).scalars())


class Tenants(AccountRepository):
    """The tenants of workspaces. Each method is a transaction of its own; `changed` is called after a change."""

    def __init__(self, account: StoreDatabase, changed: Callable[[], None]) -> None:
        super().__init__(account)
        self._changed = changed

    def of(self, workspace: str) -> str:
        """Return the tenant that a workspace belongs to."""
        return self.set_for(workspace) or LOCAL_TENANT

    def set_for(self, workspace: str) -> str | None:
        """Return the tenant that was set for a workspace, or None if none was."""
        tenant: str | None = self._value("SELECT tenant FROM tenants WHERE workspace = :workspace", workspace=workspace)
        return tenant

    def all(self) -> dict[str, str]:
        """Return the tenants by workspace; a workspace that is missing belongs to the local one."""
        with self._account.reading() as connection:
            rows = execute(connection, "SELECT workspace, tenant FROM tenants")
            return {str(workspace): str(tenant) for workspace, tenant in rows}

    def set(self, workspace: str, tenant: str) -> None:
        """Make a workspace belong to a tenant."""
        self._execute(
            "INSERT INTO tenants (workspace, tenant) VALUES (:workspace, :tenant)"
            " ON CONFLICT (workspace) DO UPDATE SET tenant = :tenant",
            workspace=workspace,
            tenant=tenant,
        )
        self._changed()

    def workspaces(self, tenant: str) -> list[str]:
        """Return the workspaces for which this tenant was set, by name. All others belong to `LOCAL_TENANT`."""
        with self._account.reading() as connection:
            sql = "SELECT workspace FROM tenants WHERE tenant = :tenant ORDER BY workspace"
            return list(execute(connection, sql, tenant=tenant).scalars())
