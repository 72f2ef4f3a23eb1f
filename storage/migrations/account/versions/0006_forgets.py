"""What is being forgotten in several places, so that it is finished if its process is killed between two of them."""

from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the table. `agent_id` and `session_id` are empty for a whole workspace, `file` for a session."""
    op.execute(
        """
        CREATE TABLE forgets (
            id INTEGER PRIMARY KEY,
            workspace TEXT NOT NULL,
            agent_id TEXT NOT NULL,
            session_id TEXT NOT NULL,
            file TEXT NOT NULL,
            forgotten_at INTEGER NOT NULL,
            requested_at INTEGER NOT NULL
        )
        """
    )
