"""Quotas of workspaces and tenants."""

from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table. An amount of 0 is no limit; without a row the wider quota holds."""
    op.execute(
        """
        CREATE TABLE quotas (
            holder TEXT NOT NULL CHECK (holder IN ('workspace', 'tenant')),
            name TEXT NOT NULL,
            resource TEXT NOT NULL
                CHECK (resource IN ('messages', 'bytes', 'memories', 'schedules', 'workspaces')),
            amount INTEGER NOT NULL CHECK (amount >= 0),
            PRIMARY KEY (holder, name, resource)
        ) WITHOUT ROWID
        """
    )
