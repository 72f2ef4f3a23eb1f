"""What the pipeline did in the last day, one row for each minute: for the curves of the pipeline page."""

from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the table. `accepted` counts items since ever; lags are NULL while no message becomes searchable."""
    op.execute(
        """
        CREATE TABLE pipeline_samples (
            minute INTEGER PRIMARY KEY,
            accepted INTEGER NOT NULL,
            waiting INTEGER NOT NULL,
            lag_p50_seconds REAL,
            lag_p99_seconds REAL
        )
        """
    )
