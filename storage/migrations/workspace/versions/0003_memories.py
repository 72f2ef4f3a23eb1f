"""Memories, scratchpads, channels, the ledger of dream sweeps, and the log of what jobs change."""

from alembic import op

from storage.migrations.recorders import recorder

revision = "0003"
down_revision = "0002"

# The columns that the curation log records of each table.
_MEMORY = (
    "row_id, id, agent_id, tier, lifetime, kind, source, content, importance, access_count, created_at, updated_at,"
    " accessed_at, expires_at, owner_user_id, tags, concept_tags, metadata, session_row, source_message, channel_id,"
    " note_id, category, key, value, subject, confidence, pinned, superseded_by, superseded_at, trace_id, stored_at,"
    " chunked_at"
)
_CHUNK = (
    "id, agent_id, session_row, file_row, memory_row, text, lead, sequence_start, sequence_end, metadata, created_at,"
    " stored_at, embedded_at, indexed_at, access_count, accessed_at"
)
_WORDS = "agent_id, chunk_id, thread, sequence, created_at, role, speaker"
_EVENT = "id, agent_id, recall, chunk_id, query, score, at"
_PROMOTION = "agent_id, memory_id, promoted_at, score, phase"
_SUMMARY = "row_id, summary_text, summary_epoch, summary_upper_sequence, status, ended_at"


_STATEMENTS = (
    """
    CREATE TABLE memories (
        row_id INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL,
        agent_id TEXT NOT NULL,
        tier TEXT NOT NULL CHECK (tier IN ('conversation', 'channel', 'workspace', 'account')),
        lifetime TEXT NOT NULL CHECK (lifetime IN ('long_term', 'short_term', 'conversation')),
        kind TEXT NOT NULL CHECK (kind IN ('fact', 'preference', 'procedure', 'event', 'task', 'note')),
        source TEXT NOT NULL,
        content TEXT NOT NULL CHECK (content <> ''),
        importance REAL NOT NULL CHECK (importance BETWEEN 0 AND 1),
        access_count INTEGER NOT NULL DEFAULT 0,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        accessed_at INTEGER NOT NULL,
        expires_at INTEGER,
        owner_user_id TEXT,
        tags TEXT NOT NULL DEFAULT '[]',
        concept_tags TEXT NOT NULL DEFAULT '[]',
        metadata TEXT NOT NULL DEFAULT '{}',
        session_row INTEGER REFERENCES sessions (row_id) ON DELETE CASCADE,
        source_message TEXT,
        channel_id TEXT,
        note_id TEXT,
        category TEXT,
        key TEXT,
        value TEXT,
        subject TEXT,
        confidence REAL,
        pinned INTEGER NOT NULL DEFAULT 0,
        superseded_by INTEGER REFERENCES memories (row_id) ON DELETE CASCADE,
        superseded_at INTEGER,
        trace_id TEXT NOT NULL DEFAULT '',
        stored_at INTEGER NOT NULL,
        chunked_at INTEGER,
        UNIQUE (agent_id, id)
    )
    """,
    "CREATE INDEX memories_by_time ON memories (agent_id, created_at)",
    "CREATE UNIQUE INDEX memories_by_note ON memories (agent_id, note_id) WHERE note_id IS NOT NULL",
    "CREATE UNIQUE INDEX memories_by_fact ON memories (agent_id, category, key)"
    " WHERE category IS NOT NULL AND superseded_by IS NULL",
    "CREATE INDEX memories_by_session ON memories (session_row) WHERE session_row IS NOT NULL",
    "CREATE INDEX memories_by_message ON memories (agent_id, source_message) WHERE source_message IS NOT NULL",
    "CREATE INDEX memories_by_subject ON memories (agent_id, subject) WHERE subject IS NOT NULL",
    "CREATE INDEX memories_superseded ON memories (superseded_by) WHERE superseded_by IS NOT NULL",
    "CREATE INDEX memories_to_chunk ON memories (row_id) WHERE chunked_at IS NULL AND superseded_by IS NULL",
    # Conversation memories, to be deleted when their session ends: few rows, queried after every write.
    "CREATE INDEX memories_of_conversations ON memories (session_row) WHERE tier = 'conversation'"
    " AND superseded_by IS NULL",
    "CREATE TRIGGER memories_end_claims AFTER DELETE ON memories BEGIN"
    " DELETE FROM claims WHERE stage = 'chunk-memories' AND item_id = old.row_id; END",
    # Active sessions by their last message, to find those that have been idle for long.
    "CREATE INDEX sessions_active ON sessions (updated_at) WHERE status = 'active'",
    # Messages that no summary covers yet: few rows of few sessions, once conversations are over.
    "CREATE INDEX messages_unsummarised ON messages (session_row) WHERE consolidated_at IS NULL",
    # Memories have chunks too. The chunks of notes and conversation memories belong to their session.
    "ALTER TABLE chunks ADD COLUMN memory_row INTEGER REFERENCES memories (row_id) ON DELETE CASCADE",
    "DROP INDEX chunks_by_hash",
    "CREATE UNIQUE INDEX chunks_by_hash ON chunks (session_row, content_hash)"
    " WHERE file_row IS NULL AND memory_row IS NULL",
    "CREATE UNIQUE INDEX chunks_by_memory ON chunks (memory_row, content_hash) WHERE memory_row IS NOT NULL",
    # What dream sweeps have promoted, kept permanently so that nothing is promoted twice.
    """
    CREATE TABLE memory_promotions (
        agent_id TEXT NOT NULL,
        memory_id TEXT NOT NULL,
        promoted_at INTEGER NOT NULL,
        score REAL NOT NULL,
        phase TEXT NOT NULL,
        PRIMARY KEY (agent_id, memory_id)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX memory_promotions_by_time ON memory_promotions (agent_id, promoted_at)",
    """
    CREATE TABLE scratchpads (
        session_row INTEGER NOT NULL REFERENCES sessions (row_id) ON DELETE CASCADE,
        agent_id TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        PRIMARY KEY (session_row, key)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE scratchpad_lists (
        session_row INTEGER PRIMARY KEY REFERENCES sessions (row_id) ON DELETE CASCADE,
        agent_id TEXT NOT NULL,
        items TEXT NOT NULL,
        updated_at INTEGER NOT NULL
    )
    """,
    """
    CREATE TABLE channels (
        row_id INTEGER PRIMARY KEY,
        agent_id TEXT NOT NULL,
        id TEXT NOT NULL,
        description TEXT NOT NULL DEFAULT '',
        is_default INTEGER NOT NULL DEFAULT 0,
        created_at INTEGER NOT NULL,
        UNIQUE (agent_id, id)
    )
    """,
    # The leases of jobs, and the positions that jobs have reached: not part of anybody's memory.
    "CREATE TABLE job_leases (job TEXT PRIMARY KEY, token INTEGER NOT NULL, lease_until INTEGER NOT NULL)",
    """
    CREATE TABLE job_progress (
        job TEXT NOT NULL,
        item TEXT NOT NULL,
        position INTEGER NOT NULL,
        at INTEGER NOT NULL,
        PRIMARY KEY (job, item)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE curation_log (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at INTEGER NOT NULL,
        job TEXT NOT NULL,
        agent_id TEXT NOT NULL,
        action TEXT NOT NULL,
        why TEXT NOT NULL DEFAULT '',
        session_id TEXT,
        undone_at INTEGER
    )
    """,
    "CREATE INDEX curation_log_by_agent ON curation_log (agent_id, id)",
    "CREATE INDEX curation_log_by_time ON curation_log (at)",
    "CREATE INDEX curation_log_undone ON curation_log (action) WHERE undone_at IS NOT NULL",
    "CREATE INDEX curation_log_by_session ON curation_log (agent_id, session_id) WHERE session_id IS NOT NULL",
    """
    CREATE TABLE curation_items (
        entry_id INTEGER NOT NULL REFERENCES curation_log (id) ON DELETE CASCADE,
        agent_id TEXT NOT NULL,
        memory_id TEXT NOT NULL,
        PRIMARY KEY (entry_id, memory_id)
    ) WITHOUT ROWID
    """,
    "CREATE INDEX curation_items_by_memory ON curation_items (agent_id, memory_id)",
    """
    CREATE TABLE curation_changes (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        entry_id INTEGER NOT NULL REFERENCES curation_log (id) ON DELETE CASCADE,
        table_name TEXT NOT NULL,
        before TEXT,
        after TEXT
    )
    """,
    "CREATE INDEX curation_changes_by_entry ON curation_changes (entry_id, seq)",
    # By the session that memories came from: their log entries are forgotten with it.
    "CREATE INDEX curation_changes_by_session ON curation_changes (coalesce(after, before) ->> 'session_row')"
    " WHERE table_name = 'memories'",
    "CREATE TABLE curation_recording (entry_id INTEGER PRIMARY KEY)",
    # An entry names each memory that it changes, listed or not, and the session whose row it changes.
    "CREATE TRIGGER curation_changes_name_memories AFTER INSERT ON curation_changes"
    " WHEN new.table_name = 'memories' BEGIN INSERT INTO curation_items (entry_id, agent_id, memory_id)"
    " SELECT new.entry_id, image ->> 'agent_id', image ->> 'id'"
    " FROM (SELECT coalesce(new.after, new.before) AS image) WHERE NOT EXISTS (SELECT 1 FROM curation_items"
    " WHERE entry_id = new.entry_id AND memory_id = image ->> 'id'); END",
    "CREATE TRIGGER curation_changes_name_session AFTER INSERT ON curation_changes"
    " WHEN new.table_name = 'sessions' BEGIN UPDATE curation_log SET session_id = (SELECT id FROM sessions"
    " WHERE row_id = coalesce(new.after, new.before) ->> 'row_id')"
    " WHERE id = new.entry_id AND session_id IS NULL; END",
    recorder("memories", "INSERT", _MEMORY),
    recorder("memories", "UPDATE", _MEMORY),
    recorder("memories", "DELETE", _MEMORY),
    recorder("memory_promotions", "INSERT", _PROMOTION),
    recorder("memory_promotions", "UPDATE", _PROMOTION),
    recorder("memory_promotions", "DELETE", _PROMOTION),
    recorder("chunks", "DELETE", _CHUNK, blobs="content_hash"),
    recorder("chunk_tags", "INSERT", "tag, chunk_id"),
    recorder("chunk_tags", "DELETE", "tag, chunk_id"),
    recorder("chunks_vec", "DELETE", "chunk_id, model, dim", blobs="embedding"),
    recorder("forward_index", "DELETE", _WORDS, blobs="words"),
    recorder("recall_events", "DELETE", _EVENT),
    recorder(
        "sessions", "UPDATE", _SUMMARY, of="summary_text, summary_epoch, summary_upper_sequence, status, ended_at"
    ),
    recorder("messages", "UPDATE", "row_id, consolidated_at", of="consolidated_at"),
)


def upgrade() -> None:
    """Create the tables and the triggers."""
    for statement in _STATEMENTS:
        op.execute(statement)
