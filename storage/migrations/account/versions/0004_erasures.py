"""Erasures: jobs that forget with a receipt."""

from alembic import op

revision = "0004"
down_revision = "0003"

_STATEMENTS = (
    # `target` names what is erased while the job works; at the end only its keyed hash stays.
    """
    CREATE TABLE erasures (
        id TEXT PRIMARY KEY,
        kind TEXT NOT NULL CHECK (kind IN ('message', 'memory', 'session', 'user', 'agent', 'workspace')),
        target TEXT,
        target_hash TEXT NOT NULL,
        agent_id TEXT,
        workspace TEXT,
        requested_by TEXT NOT NULL,
        requested_at INTEGER NOT NULL,
        cutoff INTEGER,
        step TEXT NOT NULL,
        position TEXT NOT NULL DEFAULT '',
        rounds INTEGER NOT NULL DEFAULT 0,
        counts TEXT NOT NULL DEFAULT '{}',
        error TEXT NOT NULL DEFAULT '',
        receipt TEXT,
        finished_at INTEGER
    )
    """,
    "CREATE INDEX erasures_open ON erasures (requested_at) WHERE finished_at IS NULL",
    # Keyed hashes of parts of what was removed, for the search afterwards: little-endian integers of 64 bits.
    """
    CREATE TABLE erasure_fragments (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        erasure_id TEXT NOT NULL REFERENCES erasures (id) ON DELETE CASCADE,
        kind TEXT NOT NULL,
        hashes BLOB NOT NULL
    )
    """,
    "CREATE INDEX erasure_fragments_by_erasure ON erasure_fragments (erasure_id, kind)",
)


def upgrade() -> None:
    """Create the tables."""
    for statement in _STATEMENTS:
        op.execute(statement)
