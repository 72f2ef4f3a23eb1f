"""The pipeline: sessions, messages, files, chunks, vectors, their indexes, and the state of the work on them."""

from alembic import op

revision = "0001"
down_revision = None

_STATEMENTS = (
    """
    CREATE TABLE sessions (
        row_id INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        agent_id TEXT NOT NULL,
        ref_code TEXT NOT NULL UNIQUE,
        user_id TEXT,
        provider TEXT,
        chat_id TEXT,
        channel_id TEXT,
        status TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'idle', 'archived')),
        started_at INTEGER NOT NULL,
        ended_at INTEGER,
        updated_at INTEGER NOT NULL,
        metadata TEXT NOT NULL DEFAULT '{}',
        last_sequence INTEGER NOT NULL DEFAULT 0,
        summary_text TEXT,
        summary_epoch INTEGER NOT NULL DEFAULT 0,
        summary_upper_sequence INTEGER NOT NULL DEFAULT 0,
        UNIQUE (agent_id, id)
    )
    """,
    "CREATE INDEX sessions_by_chat ON sessions (agent_id, provider, chat_id) WHERE provider IS NOT NULL",
    "CREATE INDEX sessions_by_update ON sessions (agent_id, updated_at)",
    """
    CREATE TABLE messages (
        row_id INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL,
        agent_id TEXT NOT NULL,
        session_row INTEGER NOT NULL REFERENCES sessions (row_id) ON DELETE CASCADE,
        sequence INTEGER NOT NULL,
        role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'system', 'tool')),
        name TEXT,
        content TEXT NOT NULL,
        tool_call_id TEXT,
        tool_name TEXT,
        tool_calls TEXT,
        token_count INTEGER,
        importance REAL NOT NULL CHECK (importance BETWEEN 0 AND 1),
        tags TEXT NOT NULL DEFAULT '[]',
        metadata TEXT NOT NULL DEFAULT '{}',
        trace_id TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        accepted_at INTEGER NOT NULL,
        stored_at INTEGER NOT NULL,
        chunked_at INTEGER,
        consolidated_at INTEGER,
        embedding_error TEXT,
        UNIQUE (agent_id, id),
        UNIQUE (session_row, sequence)
    )
    """,
    "CREATE INDEX messages_in_order ON messages (session_row, created_at, id)",
    "CREATE INDEX messages_to_chunk ON messages (row_id) WHERE chunked_at IS NULL",
    """
    CREATE TABLE files (
        row_id INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL,
        agent_id TEXT NOT NULL,
        session_row INTEGER REFERENCES sessions (row_id) ON DELETE CASCADE,
        source_uri TEXT NOT NULL,
        content TEXT NOT NULL,
        content_hash BLOB NOT NULL,
        tags TEXT NOT NULL DEFAULT '[]',
        metadata TEXT NOT NULL DEFAULT '{}',
        trace_id TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        accepted_at INTEGER NOT NULL,
        stored_at INTEGER NOT NULL,
        chunked_at INTEGER,
        UNIQUE (agent_id, id)
    )
    """,
    "CREATE UNIQUE INDEX files_by_source ON files (agent_id, source_uri, coalesce(session_row, 0))",
    "CREATE INDEX files_by_session ON files (session_row) WHERE session_row IS NOT NULL",
    "CREATE INDEX files_to_chunk ON files (row_id) WHERE chunked_at IS NULL",
    """
    CREATE TABLE chunks (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        agent_id TEXT NOT NULL,
        session_row INTEGER REFERENCES sessions (row_id) ON DELETE CASCADE,
        file_row INTEGER REFERENCES files (row_id) ON DELETE CASCADE,
        text TEXT NOT NULL,
        content_hash BLOB NOT NULL,
        sequence_start INTEGER NOT NULL,
        sequence_end INTEGER NOT NULL,
        metadata TEXT NOT NULL DEFAULT '{}',
        created_at INTEGER NOT NULL,
        stored_at INTEGER NOT NULL,
        embedded_at INTEGER,
        indexed_at INTEGER
    )
    """,
    # A text that a session repeats is one chunk; a file keeps chunks of its own.
    "CREATE UNIQUE INDEX chunks_by_hash ON chunks (session_row, content_hash) WHERE file_row IS NULL",
    "CREATE UNIQUE INDEX chunks_by_file ON chunks (file_row, content_hash) WHERE file_row IS NOT NULL",
    "CREATE INDEX chunks_by_session ON chunks (session_row)",
    "CREATE INDEX chunks_to_embed ON chunks (id) WHERE embedded_at IS NULL",
    "CREATE INDEX chunks_to_index ON chunks (id) WHERE embedded_at IS NOT NULL AND indexed_at IS NULL",
    """
    CREATE TABLE message_chunks (
        message_row INTEGER NOT NULL REFERENCES messages (row_id) ON DELETE CASCADE,
        chunk_id INTEGER NOT NULL REFERENCES chunks (id) ON DELETE CASCADE,
        PRIMARY KEY (message_row, chunk_id)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX message_chunks_by_chunk ON message_chunks (chunk_id)",
    """
    CREATE TABLE chunk_tags (
        tag TEXT NOT NULL,
        chunk_id INTEGER NOT NULL REFERENCES chunks (id) ON DELETE CASCADE,
        PRIMARY KEY (tag, chunk_id)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX chunk_tags_by_chunk ON chunk_tags (chunk_id)",
    # The canonical vectors: float32, little-endian. Every index over them can be dropped and built again.
    """
    CREATE TABLE chunks_vec (
        chunk_id INTEGER PRIMARY KEY REFERENCES chunks (id) ON DELETE CASCADE,
        model TEXT NOT NULL,
        dim INTEGER NOT NULL,
        embedding BLOB NOT NULL CHECK (length(embedding) = 4 * dim)
    )
    """,
    # The indexes that exist: which table, for which model, and how far one that is being built has come.
    """
    CREATE TABLE indexes (
        id INTEGER PRIMARY KEY,
        kind TEXT NOT NULL CHECK (kind IN ('text', 'vector')),
        model TEXT NOT NULL DEFAULT '',
        dim INTEGER NOT NULL DEFAULT 0,
        state TEXT NOT NULL CHECK (state IN ('active', 'building')),
        built_to INTEGER NOT NULL DEFAULT 0,
        created_at INTEGER NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX indexes_by_state ON indexes (kind, state)",
    # Work on rows: who holds it (lease and fencing token), how often it failed, when it is due again.
    # No row: never tried. token set: held until lease_until. next_attempt_at NULL and no token: a dead letter.
    """
    CREATE TABLE claims (
        stage TEXT NOT NULL,
        item_id INTEGER NOT NULL,
        token INTEGER,
        lease_until INTEGER,
        attempts INTEGER NOT NULL DEFAULT 0,
        crashes INTEGER NOT NULL DEFAULT 0,
        next_attempt_at INTEGER,
        error TEXT,
        PRIMARY KEY (stage, item_id)
    ) WITHOUT ROWID
    """,
    "CREATE TRIGGER chunks_end_claims AFTER DELETE ON chunks BEGIN"
    " DELETE FROM claims WHERE stage IN ('embed', 'index') AND item_id = old.id; END",
    "CREATE TRIGGER messages_end_claims AFTER DELETE ON messages BEGIN"
    " DELETE FROM claims WHERE stage = 'chunk' AND item_id = old.row_id; END",
    "CREATE TRIGGER files_end_claims AFTER DELETE ON files BEGIN"
    " DELETE FROM claims WHERE stage = 'chunk-files' AND item_id = old.row_id; END",
    """
    CREATE TABLE dead_letters (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        agent_id TEXT NOT NULL,
        session_id TEXT,
        stage TEXT NOT NULL,
        item_id TEXT NOT NULL,
        payload BLOB,
        error_type TEXT NOT NULL,
        error TEXT NOT NULL,
        attempts INTEGER NOT NULL,
        trace_id TEXT NOT NULL DEFAULT '',
        created_at INTEGER NOT NULL,
        UNIQUE (agent_id, stage, item_id)
    )
    """,
    # What was forgotten stays forgotten: an item accepted before this time is not stored if it arrives late.
    """
    CREATE TABLE forgotten_sessions (
        agent_id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        forgotten_at INTEGER NOT NULL,
        PRIMARY KEY (agent_id, session_id)
    ) WITHOUT ROWID
    """,
)


def upgrade() -> None:
    """Create all tables; `storage.recall.index` creates the search indexes."""
    for statement in _STATEMENTS:
        op.execute(statement)
