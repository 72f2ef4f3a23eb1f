"""The tenants of workspaces, in the account's database: whose account tier a workspace sees."""

from __future__ import annotations

from collections.abc import Callable

from storage.engines import StoreDatabase
from storage.rows import execute
from storage.viewer import LOCAL_TENANT


class Tenants:
    """The tenants of workspaces. Each method is a transaction of its own; `changed` is called after a change."""

    def __init__(self, account: StoreDatabase, changed: Callable[[], None]) -> None:
        self._account = account
        self._changed = changed

    def of(self, workspace: str) -> str:
        """Return the tenant that a workspace belongs to."""
        return self.set_for(workspace) or LOCAL_TENANT

    def set_for(self, workspace: str) -> str | None:
        """Return the tenant that was set for a workspace, or None if none was."""
        with self._account.reading() as connection:
            sql = "SELECT tenant FROM tenants WHERE workspace = :workspace"
            tenant: str | None = execute(connection, sql, workspace=workspace).scalar()
            return tenant

    def all(self) -> dict[str, str]:
        """Return the tenants by workspace; a workspace that is missing belongs to the local one."""
        with self._account.reading() as connection:
            rows = execute(connection, "SELECT workspace, tenant FROM tenants")
            return {str(workspace): str(tenant) for workspace, tenant in rows}

    def set(self, workspace: str, tenant: str) -> None:
        """Make a workspace belong to a tenant."""
        with self._account.atomic() as connection:
            execute(
                connection,
                "INSERT INTO tenants (workspace, tenant) VALUES (:workspace, :tenant)"
                " ON CONFLICT (workspace) DO UPDATE SET tenant = :tenant",
                workspace=workspace,
                tenant=tenant,
            )
        self._changed()

    def workspaces(self, tenant: str) -> list[str]:
        """Return the workspaces for which this tenant was set, by name; those of `LOCAL_TENANT` are all others, too."""
        with self._account.reading() as connection:
            sql = "SELECT workspace FROM tenants WHERE tenant = :tenant ORDER BY workspace"
            return list(execute(connection, sql, tenant=tenant).scalars())
