"""The quotas that were set for workspaces and tenants, in the account's database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reverie.trust.quota_types import Holder, Quota
from storage.engines import StoreDatabase
from storage.rows import execute, read_rows


@dataclass(frozen=True, slots=True)
class QuotaRecord:
    """A quota of a workspace or a tenant; an amount of 0 is no limit."""

    holder: Holder
    name: str
    resource: Quota
    amount: int


class Quotas:
    """The quotas that were set. Each method is a transaction of its own; `changed` is called after a change."""

    def __init__(self, account: StoreDatabase, changed: Callable[[], None]) -> None:
        self._account = account
        self._changed = changed

    def all(self) -> list[QuotaRecord]:
        """Return all quotas."""
        with self._account.reading() as connection:
            sql = "SELECT holder, name, resource, amount FROM quotas ORDER BY holder, name, resource"
            return read_rows(execute(connection, sql), QuotaRecord)

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
