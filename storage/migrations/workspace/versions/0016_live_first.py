"""Find what was said just now among what waits, however much was imported before it."""

from __future__ import annotations

from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Add the indexes."""
    op.execute(
        "CREATE INDEX messages_live_to_chunk ON messages (row_id)"
        " WHERE chunked_at IS NULL AND accepted_at < created_at + 3600000000"
    )
    op.execute(
        "CREATE INDEX chunks_live_to_embed ON chunks (id)"
        " WHERE embedded_at IS NULL AND stored_at < created_at + 3600000000"
    )
