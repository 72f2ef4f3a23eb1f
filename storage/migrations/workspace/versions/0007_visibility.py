"""Whose content is: users of messages and files, sessions of several users, what is shared, and the tenant."""

from alembic import op

from storage.migrations.recorders import recorder

revision = "0007"
down_revision = "0006"

# Who may find a chunk: NULL is everybody, `u:` a user, `s:` the users of a session (its row), `t:` a tenant.
_OF_MEMORY = """
    SELECT CASE WHEN k.tenant IS NULL THEN
        CASE WHEN k.visibility = 'shared' THEN NULL WHEN k.owner_user_id IS NOT NULL THEN 'u:' || k.owner_user_id
            ELSE (SELECT s.audience FROM sessions AS s WHERE s.row_id = k.session_row) END
        ELSE 't:' || k.tenant || '|' || CASE WHEN k.visibility = 'shared' OR k.owner_user_id IS NULL THEN ''
            ELSE 'u:' || k.owner_user_id END END
    FROM memories AS k WHERE k.row_id = c.memory_row
"""
_OF_FILE = """
    SELECT CASE WHEN f.visibility = 'shared' THEN NULL WHEN f.user_id IS NOT NULL THEN 'u:' || f.user_id
        ELSE (SELECT s.audience FROM sessions AS s WHERE s.row_id = f.session_row) END
    FROM files AS f WHERE f.row_id = c.file_row
"""
_SHARED_MESSAGE = """
    SELECT 1 FROM message_chunks AS l CROSS JOIN messages AS m ON m.row_id = l.message_row
    WHERE l.chunk_id = c.id AND m.visibility = 'shared'
"""
_AUDIENCE = "(SELECT a.audience FROM chunk_audiences AS a WHERE a.chunk_id = forward_index.chunk_id)"
_AUDIENCES = f"UPDATE forward_index SET audience = {_AUDIENCE}"

_STATEMENTS = (
    "ALTER TABLE messages ADD COLUMN user_id TEXT",
    "ALTER TABLE messages ADD COLUMN visibility TEXT CHECK (visibility IN ('private', 'shared'))",
    "ALTER TABLE files ADD COLUMN user_id TEXT",
    "ALTER TABLE files ADD COLUMN visibility TEXT CHECK (visibility IN ('private', 'shared'))",
    "ALTER TABLE memories ADD COLUMN visibility TEXT NOT NULL DEFAULT 'private'"
    " CHECK (visibility IN ('private', 'requested', 'shared'))",
    # Of a memory of the account: the tenant that it belongs to; NULL is "local".
    "ALTER TABLE memories ADD COLUMN tenant TEXT",
    "ALTER TABLE recall_events ADD COLUMN user_id TEXT",
    "ALTER TABLE sessions ADD COLUMN is_group INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE sessions ADD COLUMN audience TEXT GENERATED ALWAYS AS"
    " (CASE WHEN is_group THEN 's:' || row_id WHEN user_id IS NOT NULL THEN 'u:' || user_id END) VIRTUAL",
    # The users of sessions that have several; the only user of any other is in its row.
    """
    CREATE TABLE session_users (
        session_row INTEGER NOT NULL REFERENCES sessions (row_id) ON DELETE CASCADE,
        agent_id TEXT NOT NULL,
        user_id TEXT NOT NULL,
        PRIMARY KEY (session_row, user_id)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX session_users_by_user ON session_users (agent_id, user_id)",
    # Each user has files and facts of their own.
    "DROP INDEX files_by_source",
    "CREATE UNIQUE INDEX files_by_source ON files"
    " (agent_id, source_uri, coalesce(session_row, 0), coalesce(user_id, ''))",
    "DROP INDEX memories_by_fact",
    "CREATE UNIQUE INDEX memories_by_fact ON memories"
    " (agent_id, category, key, coalesce(owner_user_id, ''), coalesce(tenant, ''))"
    " WHERE category IS NOT NULL AND superseded_by IS NULL",
    "CREATE INDEX memories_shared ON memories (agent_id, created_at) WHERE visibility = 'shared'",
    f"""
    CREATE VIEW chunk_audiences AS
    SELECT c.id AS chunk_id, CASE WHEN c.memory_row IS NOT NULL THEN ({_OF_MEMORY})
        WHEN c.file_row IS NOT NULL THEN ({_OF_FILE}) WHEN EXISTS ({_SHARED_MESSAGE}) THEN NULL
        ELSE (SELECT s.audience FROM sessions AS s WHERE s.row_id = c.session_row) END AS audience
    FROM chunks AS c
    """,
    "ALTER TABLE forward_index ADD COLUMN audience TEXT",
    f"{_AUDIENCES} WHERE {_AUDIENCE} IS NOT NULL",
    "CREATE INDEX forward_index_owned ON forward_index (agent_id, audience) WHERE audience IS NOT NULL",
    # Rows that an undo restores, or that are counted again, name no audience.
    "CREATE TRIGGER forward_index_audience_known AFTER INSERT ON forward_index WHEN new.audience IS NULL"
    " AND (SELECT audience FROM chunk_audiences WHERE chunk_id = new.chunk_id) IS NOT NULL BEGIN"
    f" {_AUDIENCES} WHERE agent_id = new.agent_id AND chunk_id = new.chunk_id; END",
    # Indexes in memory read changed rows again: as if the chunk had been replaced.
    "CREATE TRIGGER forward_index_audience_changed AFTER UPDATE OF audience ON forward_index"
    " WHEN old.audience IS NOT new.audience BEGIN"
    " INSERT INTO forward_changes (agent_id, chunk_id, kind) VALUES (new.agent_id, new.chunk_id, 'audience'); END",
    "CREATE TRIGGER sessions_audience_changed AFTER UPDATE OF user_id, is_group ON sessions"
    " WHEN old.user_id IS NOT new.user_id OR old.is_group IS NOT new.is_group BEGIN"
    f" {_AUDIENCES} WHERE agent_id = new.agent_id AND chunk_id IN (SELECT id FROM chunks"
    " WHERE session_row = new.row_id UNION ALL SELECT c.id FROM memories AS k CROSS JOIN chunks AS c"
    " ON c.memory_row = k.row_id WHERE k.session_row = new.row_id AND k.owner_user_id IS NULL); END",
    "CREATE TRIGGER memories_audience_changed AFTER UPDATE OF owner_user_id, visibility, tenant ON memories"
    " WHEN old.owner_user_id IS NOT new.owner_user_id OR old.visibility IS NOT new.visibility"
    " OR old.tenant IS NOT new.tenant BEGIN"
    f" {_AUDIENCES} WHERE agent_id = new.agent_id"
    " AND chunk_id IN (SELECT id FROM chunks WHERE memory_row = new.row_id); END",
    "CREATE TRIGGER files_audience_changed AFTER UPDATE OF user_id, visibility ON files"
    " WHEN old.user_id IS NOT new.user_id OR old.visibility IS NOT new.visibility BEGIN"
    f" {_AUDIENCES} WHERE agent_id = new.agent_id"
    " AND chunk_id IN (SELECT id FROM chunks WHERE file_row = new.row_id); END",
    "CREATE TRIGGER message_chunks_shared AFTER INSERT ON message_chunks"
    " WHEN (SELECT visibility FROM messages WHERE row_id = new.message_row) = 'shared' BEGIN"
    " UPDATE forward_index SET audience = NULL WHERE chunk_id = new.chunk_id"
    " AND agent_id = (SELECT agent_id FROM chunks WHERE id = new.chunk_id) AND audience IS NOT NULL; END",
)
_RECORDED_DELETES = {
    "forward_index": ("agent_id, chunk_id, thread, sequence, created_at, role, speaker, audience", "words"),
    "recall_events": ("id, agent_id, recall, chunk_id, query, score, at, user_id", ""),
}
_OLD = "kind IN ('added', 'vector', 'gone')"
_NEW = "kind IN ('added', 'vector', 'gone', 'audience')"


def upgrade() -> None:
    """Add the columns, the table, the view and the triggers; what is stored keeps the user of its session."""
    _widen_kinds()
    for statement in _STATEMENTS:
        op.execute(statement)
    for table, (columns, blobs) in _RECORDED_DELETES.items():
        op.execute(f"DROP TRIGGER {table}_delete_recorded")
        op.execute(recorder(table, "DELETE", columns, blobs=blobs))


def _widen_kinds() -> None:
    """Let the check of `forward_changes.kind` pass changed audiences, as migration 0006 does for memories."""
    connection = op.get_bind()
    version = int(connection.exec_driver_sql("PRAGMA schema_version").scalar_one())
    connection.exec_driver_sql("PRAGMA writable_schema = ON")
    connection.exec_driver_sql(
        "UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE type = 'table' AND name = 'forward_changes'",
        (_OLD, _NEW),
    )
    connection.exec_driver_sql(f"PRAGMA schema_version = {version + 1}")
    connection.exec_driver_sql("PRAGMA writable_schema = RESET")
