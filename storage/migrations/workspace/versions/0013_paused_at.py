"""When the pause after a failed push was noted: one from the future is over, since the clock was set back."""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the columns."""
    for table in ("reminders", "notifications"):
        op.execute(f"ALTER TABLE {table} ADD COLUMN paused_at INTEGER")
