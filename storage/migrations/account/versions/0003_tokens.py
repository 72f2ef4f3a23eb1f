"""Tokens, the tenants of workspaces, and the audit log."""

from alembic import op

revision = "0003"
down_revision = "0002"

_STATEMENTS = (
    # Only the hash of a token is stored: who reads the file cannot use it. The random part has 256 bits, so a fast
    # hash is as safe as a slow one.
    """
    CREATE TABLE tokens (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        hash BLOB NOT NULL UNIQUE,
        workspace TEXT,
        agents TEXT,
        user_id TEXT,
        scopes TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        created_by TEXT NOT NULL,
        expires_at INTEGER,
        last_used_at INTEGER,
        revoked_at INTEGER,
        replaces TEXT
    )
    """,
    "CREATE INDEX tokens_by_name ON tokens (name)",
    "CREATE TABLE tenants (workspace TEXT PRIMARY KEY, tenant TEXT NOT NULL) WITHOUT ROWID",
    """
    CREATE TABLE audit_log (
        id INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        actor TEXT NOT NULL,
        token TEXT NOT NULL,
        action TEXT NOT NULL,
        target TEXT NOT NULL,
        workspace TEXT NOT NULL,
        agent_id TEXT NOT NULL,
        outcome TEXT NOT NULL,
        origin TEXT NOT NULL,
        trace_id TEXT NOT NULL,
        count INTEGER NOT NULL
    )
    """,
    "CREATE INDEX audit_log_by_time ON audit_log (at)",
    # Only the retention removes entries. It says up to when in its own transaction, and the triggers hold it to that.
    "CREATE TABLE audit_retention (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), ended_at INTEGER)",
    "INSERT INTO audit_retention (only_row, ended_at) VALUES (1, NULL)",
    """
    CREATE TRIGGER audit_log_is_not_updated BEFORE UPDATE ON audit_log
    BEGIN
        SELECT RAISE(ABORT, 'the audit log is append-only');
    END
    """,
    """
    CREATE TRIGGER audit_log_is_not_deleted BEFORE DELETE ON audit_log
    WHEN OLD.at >= coalesce((SELECT ended_at FROM audit_retention), OLD.at)
    BEGIN
        SELECT RAISE(ABORT, 'the audit log is append-only');
    END
    """,
)


def upgrade() -> None:
    """Create the tables, and the triggers that make the audit log append-only."""
    for statement in _STATEMENTS:
        op.execute(statement)
