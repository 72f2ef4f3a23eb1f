"""Which call or job made a memory: what its provenance says, whatever the `source` that a caller gave."""

from alembic import op

revision = "0010"
down_revision = "0009"

_STATEMENTS = (
    "ALTER TABLE memories ADD COLUMN made_by TEXT",
    # Of what calls and imports stored before, nothing says which of them it was.
    "UPDATE memories SET made_by = 'extract-memories' WHERE source = 'extraction' AND source_message IS NOT NULL"
    " AND metadata ->> 'found_by' IS NOT NULL",
    "UPDATE memories SET made_by = 'dream-sweep' WHERE source = 'dream' AND substr(id, 1, 6) = 'dream-'",
)


def upgrade() -> None:
    """Add the column, and fill it for what jobs have made."""
    for statement in _STATEMENTS:
        op.execute(statement)
