"""Which request has undone an entry: the same request is not refused because it was carried out."""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Add the column."""
    op.execute("ALTER TABLE curation_log ADD COLUMN undone_by TEXT")
