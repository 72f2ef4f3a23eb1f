"""Which content of the broker the numbers in a store were given by: they say nothing of items of another one."""

from __future__ import annotations

from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Create the table. Files with rows up to `files_before` were accepted by an earlier content."""
    op.execute(
        """
        CREATE TABLE broker_content (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            files_before INTEGER NOT NULL
        )
        """
    )
