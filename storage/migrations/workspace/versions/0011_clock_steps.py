"""Finds what was written about schedules while the clock was ahead."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Create the indexes: the sweep over schedules asks each time whether something lies in the future."""
    op.execute("CREATE INDEX schedule_runs_by_time ON schedule_runs (created_at)")
    op.execute("CREATE INDEX schedules_by_change ON schedules (updated_at)")
