"""The account database: runs of periodic jobs."""

from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the table of job runs: its unique key makes a second beat process harmless."""
    op.execute(
        """
        CREATE TABLE job_runs (
            id INTEGER PRIMARY KEY,
            job TEXT NOT NULL,
            period INTEGER NOT NULL,
            started_at INTEGER NOT NULL,
            finished_at INTEGER,
            counts TEXT NOT NULL DEFAULT '{}',
            error TEXT,
            UNIQUE (job, period)
        )
        """
    )
    op.execute("CREATE INDEX job_runs_by_time ON job_runs (job, started_at)")
