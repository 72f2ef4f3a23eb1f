"""Usage of the language model: calls, tokens and cost of each day."""

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the usage table: one row for each day, model and purpose, to which calls are added."""
    op.execute(
        """
        CREATE TABLE language_model_usage (
            day TEXT NOT NULL,
            model TEXT NOT NULL,
            purpose TEXT NOT NULL,
            calls INTEGER NOT NULL,
            failures INTEGER NOT NULL,
            input_tokens INTEGER NOT NULL,
            output_tokens INTEGER NOT NULL,
            cost REAL NOT NULL,
            PRIMARY KEY (day, model, purpose)
        ) WITHOUT ROWID
        """
    )
