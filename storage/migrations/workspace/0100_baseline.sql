-- The tables of a workspace. `storage/migrations/triggers.py` makes the triggers that count and record their rows,
-- `storage/recall/index.py` the search indexes.

-- `audience` says who may find what is in it: the users of a group, or its only user; NULL is everybody.
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
    is_group INTEGER NOT NULL DEFAULT 0,
    audience TEXT GENERATED ALWAYS AS (CASE WHEN is_group THEN 's:' || row_id
        WHEN user_id IS NOT NULL THEN 'u:' || user_id END) VIRTUAL,
    UNIQUE (agent_id, id)
);
CREATE INDEX sessions_by_update ON sessions (agent_id, updated_at);
-- Active sessions by their last message, to find those that have been idle for long.
CREATE INDEX sessions_active ON sessions (updated_at) WHERE status = 'active';
-- A chat of a provider belongs to one session of an agent.
CREATE UNIQUE INDEX sessions_by_chat ON sessions (agent_id, provider, chat_id)
WHERE provider IS NOT NULL AND chat_id IS NOT NULL;
CREATE TRIGGER sessions_audience_changed AFTER UPDATE OF user_id, is_group ON sessions
WHEN old.user_id IS NOT new.user_id OR old.is_group IS NOT new.is_group
BEGIN
    UPDATE forward_index SET audience = (SELECT a.audience FROM chunk_audiences AS a
        WHERE a.chunk_id = forward_index.chunk_id) WHERE agent_id = new.agent_id AND chunk_id IN (SELECT id
        FROM chunks WHERE session_row = new.row_id UNION ALL SELECT c.id FROM memories AS k
        CROSS JOIN chunks AS c ON c.memory_row = k.row_id WHERE k.session_row = new.row_id
        AND k.owner_user_id IS NULL);
END;
-- What runs of a schedule recalled is content of that user, so it does not follow the session into a group.
CREATE TRIGGER schedules_adopted_by_new AFTER INSERT ON sessions
WHEN new.user_id IS NOT NULL
BEGIN
    UPDATE schedules SET user_id = new.user_id WHERE agent_id = new.agent_id AND session_id = new.id
        AND user_id IS NULL;
END;
CREATE TRIGGER schedules_adopted AFTER UPDATE OF user_id ON sessions
WHEN old.user_id IS NULL AND new.user_id IS NOT NULL
BEGIN
    UPDATE schedules SET user_id = new.user_id WHERE agent_id = new.agent_id AND session_id = new.id
        AND user_id IS NULL;
END;
-- What belongs to the users of a session goes with it: without the session it would be everybody's.
CREATE TRIGGER sessions_scheduling_forgotten AFTER DELETE ON sessions
WHEN old.user_id IS NOT NULL
BEGIN
    DELETE FROM schedules WHERE agent_id = old.agent_id AND session_id = old.id AND user_id IS NULL;
    DELETE FROM notifications WHERE agent_id = old.agent_id AND session_id = old.id AND user_id IS NULL;
    DELETE FROM reminders WHERE agent_id = old.agent_id AND session_id = old.id AND user_id IS NULL;
END;

-- `original` is the form that a caller keeps a message in.
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
    user_id TEXT,
    visibility TEXT CHECK (visibility IN ('private', 'shared')),
    original TEXT,
    UNIQUE (session_row, id),
    UNIQUE (session_row, sequence)
);
CREATE INDEX messages_in_order ON messages (session_row, created_at, id);
CREATE INDEX messages_to_chunk ON messages (row_id) WHERE chunked_at IS NULL;
CREATE TRIGGER messages_end_claims AFTER DELETE ON messages
BEGIN
    DELETE FROM claims WHERE stage = 'chunk' AND item_id = old.row_id;
END;
-- Messages that no summary covers yet: few rows of few sessions, once conversations are over.
CREATE INDEX messages_unsummarised ON messages (session_row) WHERE consolidated_at IS NULL;
-- What was said just now is found among what waits, however much was imported before it.
CREATE INDEX messages_live_to_chunk ON messages (row_id)
WHERE chunked_at IS NULL AND accepted_at < created_at + 3600000000;
CREATE INDEX messages_by_id ON messages (agent_id, id);

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
    user_id TEXT,
    visibility TEXT CHECK (visibility IN ('private', 'shared')),
    UNIQUE (agent_id, id)
);
CREATE INDEX files_by_session ON files (session_row) WHERE session_row IS NOT NULL;
CREATE INDEX files_to_chunk ON files (row_id) WHERE chunked_at IS NULL;
CREATE TRIGGER files_end_claims AFTER DELETE ON files
BEGIN
    DELETE FROM claims WHERE stage = 'chunk-files' AND item_id = old.row_id;
END;
-- Each user has files of their own.
CREATE UNIQUE INDEX files_by_source ON files (agent_id, source_uri, coalesce(session_row, 0), coalesce(user_id, ''));
CREATE TRIGGER files_audience_changed AFTER UPDATE OF user_id, visibility ON files
WHEN old.user_id IS NOT new.user_id OR old.visibility IS NOT new.visibility
BEGIN
    UPDATE forward_index SET audience = (SELECT a.audience FROM chunk_audiences AS a
        WHERE a.chunk_id = forward_index.chunk_id) WHERE agent_id = new.agent_id AND chunk_id IN (SELECT id
        FROM chunks WHERE file_row = new.row_id);
END;

-- `lead` is the question asked just before, if the chunk begins a message: the chunk answers it. The chunks of notes
-- and of conversation memories belong to their session.
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
    indexed_at INTEGER,
    lead TEXT NOT NULL DEFAULT '',
    access_count INTEGER NOT NULL DEFAULT 0,
    accessed_at INTEGER,
    memory_row INTEGER REFERENCES memories (row_id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX chunks_by_file ON chunks (file_row, content_hash) WHERE file_row IS NOT NULL;
CREATE INDEX chunks_by_session ON chunks (session_row);
CREATE INDEX chunks_to_embed ON chunks (id) WHERE embedded_at IS NULL;
CREATE INDEX chunks_to_index ON chunks (id) WHERE embedded_at IS NOT NULL AND indexed_at IS NULL;
CREATE TRIGGER chunks_end_claims AFTER DELETE ON chunks
BEGIN
    DELETE FROM claims WHERE stage IN ('embed', 'index') AND item_id = old.id;
END;
CREATE TRIGGER chunks_leave_forward_index AFTER DELETE ON chunks
BEGIN
    DELETE FROM forward_index WHERE agent_id = old.agent_id AND chunk_id = old.id;
    INSERT INTO forward_changes (agent_id, chunk_id, kind) VALUES (old.agent_id, old.id, 'gone');
END;
-- A text that a session repeats is one chunk; a file keeps chunks of its own.
CREATE UNIQUE INDEX chunks_by_hash ON chunks (session_row, content_hash) WHERE file_row IS NULL AND memory_row IS NULL;
CREATE UNIQUE INDEX chunks_by_memory ON chunks (memory_row, content_hash) WHERE memory_row IS NOT NULL;
CREATE INDEX chunks_live_to_embed ON chunks (id) WHERE embedded_at IS NULL AND stored_at < created_at + 3600000000;

CREATE TABLE message_chunks (
    message_row INTEGER NOT NULL REFERENCES messages (row_id) ON DELETE CASCADE,
    chunk_id INTEGER NOT NULL REFERENCES chunks (id) ON DELETE CASCADE,
    PRIMARY KEY (message_row, chunk_id)
) WITHOUT ROWID;
CREATE INDEX message_chunks_by_chunk ON message_chunks (chunk_id);
CREATE TRIGGER message_chunks_shared AFTER INSERT ON message_chunks
WHEN (SELECT visibility FROM messages WHERE row_id = new.message_row) = 'shared'
BEGIN
    UPDATE forward_index SET audience = NULL WHERE chunk_id = new.chunk_id AND agent_id = (SELECT agent_id FROM chunks
        WHERE id = new.chunk_id) AND audience IS NOT NULL;
END;

-- Who may find a chunk: NULL is everybody, `u:` a user, `s:` the users of a session (its row), `t:` a tenant.
CREATE VIEW chunk_audiences AS
SELECT c.id AS chunk_id,
    CASE
        WHEN c.memory_row IS NOT NULL THEN (
            SELECT CASE WHEN k.tenant IS NULL THEN
                CASE WHEN k.visibility = 'shared' THEN NULL
                    WHEN k.owner_user_id IS NOT NULL THEN 'u:' || k.owner_user_id
                    ELSE (SELECT s.audience FROM sessions AS s WHERE s.row_id = k.session_row) END
                ELSE 't:' || k.tenant || '|' || CASE WHEN k.visibility = 'shared' OR k.owner_user_id IS NULL THEN ''
                    ELSE 'u:' || k.owner_user_id END END
            FROM memories AS k WHERE k.row_id = c.memory_row
        )
        WHEN c.file_row IS NOT NULL THEN (
            SELECT CASE WHEN f.visibility = 'shared' THEN NULL WHEN f.user_id IS NOT NULL THEN 'u:' || f.user_id
                ELSE (SELECT s.audience FROM sessions AS s WHERE s.row_id = f.session_row) END
            FROM files AS f WHERE f.row_id = c.file_row
        )
        WHEN EXISTS (
            SELECT 1 FROM message_chunks AS l CROSS JOIN messages AS m ON m.row_id = l.message_row
            WHERE l.chunk_id = c.id AND m.visibility = 'shared'
        ) THEN NULL
        ELSE (SELECT s.audience FROM sessions AS s WHERE s.row_id = c.session_row)
    END AS audience
FROM chunks AS c;

CREATE TABLE chunk_tags (
    tag TEXT NOT NULL,
    chunk_id INTEGER NOT NULL REFERENCES chunks (id) ON DELETE CASCADE,
    PRIMARY KEY (tag, chunk_id)
) WITHOUT ROWID;
CREATE INDEX chunk_tags_by_chunk ON chunk_tags (chunk_id);

-- The indexes that exist: which table, for which model, and how far one that is being built has come. `embedder`
-- says how to create the embedder: JSON of provider, model and dimension; '' if the settings describe it.
CREATE TABLE indexes (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('text', 'vector')),
    model TEXT NOT NULL DEFAULT '',
    dim INTEGER NOT NULL DEFAULT 0,
    state TEXT NOT NULL CHECK (state IN ('active', 'building')),
    built_to INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    embedder TEXT NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX indexes_by_state ON indexes (kind, state);

-- Work on rows: who holds it (lease and fencing token), how often it failed, when it is due again. No row: never
-- tried. `token` set: held until `lease_until`. `next_attempt_at` NULL and no token: a dead letter.
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
) WITHOUT ROWID;

-- `variant` tells apart the deliveries with one id.
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
    variant TEXT NOT NULL DEFAULT '',
    UNIQUE (agent_id, stage, item_id, variant)
);

-- What was forgotten stays forgotten: an item accepted before this time is not stored if it arrives late.
CREATE TABLE forgotten_sessions (
    agent_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    forgotten_at INTEGER NOT NULL,
    PRIMARY KEY (agent_id, session_id)
) WITHOUT ROWID;

-- The canonical vectors: float32, little-endian. Every index over them can be dropped and built again. While the
-- model is changed a chunk has two vectors: the one that is searched, and the one that will be.
CREATE TABLE chunks_vec (
    chunk_id INTEGER NOT NULL REFERENCES chunks (id) ON DELETE CASCADE,
    model TEXT NOT NULL,
    dim INTEGER NOT NULL,
    embedding BLOB NOT NULL CHECK (length(embedding) = 4 * dim),
    PRIMARY KEY (chunk_id, model)
);
CREATE TRIGGER chunks_vec_added AFTER INSERT ON chunks_vec
WHEN new.model = (SELECT model FROM indexes WHERE kind = 'vector' AND state = 'active')
BEGIN
    INSERT INTO forward_changes (agent_id, chunk_id, kind) SELECT agent_id, id, 'vector' FROM chunks
        WHERE id = new.chunk_id;
END;
CREATE TRIGGER chunks_vec_changed AFTER UPDATE ON chunks_vec
WHEN new.model = (SELECT model FROM indexes WHERE kind = 'vector' AND state = 'active')
BEGIN
    INSERT INTO forward_changes (agent_id, chunk_id, kind) SELECT agent_id, id, 'vector' FROM chunks
        WHERE id = new.chunk_id;
END;

-- What an agent's index in memory is made from, in the order in which it is read. `thread` is what has neighbours: a
-- session's row, or a file's with a minus. `words` are the 32-bit hashes of the words, little-endian.
CREATE TABLE forward_index (
    agent_id TEXT NOT NULL,
    chunk_id INTEGER NOT NULL,
    thread INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    role TEXT NOT NULL,
    speaker TEXT,
    words BLOB NOT NULL,
    audience TEXT,
    PRIMARY KEY (agent_id, chunk_id)
) WITHOUT ROWID;
CREATE TRIGGER forward_index_added AFTER INSERT ON forward_index
BEGIN
    INSERT INTO forward_changes (agent_id, chunk_id, kind) VALUES (new.agent_id, new.chunk_id, 'added');
END;
CREATE INDEX forward_index_owned ON forward_index (agent_id, audience) WHERE audience IS NOT NULL;
-- Rows that an undo restores, or that are counted again, name no audience.
CREATE TRIGGER forward_index_audience_known AFTER INSERT ON forward_index
WHEN new.audience IS NULL AND (SELECT audience FROM chunk_audiences WHERE chunk_id = new.chunk_id) IS NOT NULL
BEGIN
    UPDATE forward_index SET audience = (SELECT a.audience FROM chunk_audiences AS a
        WHERE a.chunk_id = forward_index.chunk_id) WHERE agent_id = new.agent_id AND chunk_id = new.chunk_id;
END;
-- Indexes in memory read changed rows again: as if the chunk had been replaced.
CREATE TRIGGER forward_index_audience_changed AFTER UPDATE OF audience ON forward_index
WHEN old.audience IS NOT new.audience
BEGIN
    INSERT INTO forward_changes (agent_id, chunk_id, kind) VALUES (new.agent_id, new.chunk_id, 'audience');
END;

-- Changes of chunks, so that an index in memory reads only what has changed. Upkeep removes old ones.
CREATE TABLE forward_changes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    agent_id TEXT NOT NULL,
    chunk_id INTEGER NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('added', 'vector', 'gone', 'audience'))
);
CREATE INDEX forward_changes_by_agent ON forward_changes (agent_id, seq);

-- One result of one recall: what dreaming learns from. A batch that is delivered twice is written once.
CREATE TABLE recall_events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    agent_id TEXT NOT NULL,
    recall TEXT NOT NULL,
    chunk_id INTEGER NOT NULL REFERENCES chunks (id) ON DELETE CASCADE,
    query TEXT NOT NULL,
    score REAL NOT NULL,
    at INTEGER NOT NULL,
    user_id TEXT,
    UNIQUE (recall, chunk_id)
);
CREATE INDEX recall_events_by_chunk ON recall_events (chunk_id);
CREATE INDEX recall_events_by_time ON recall_events (agent_id, at);

-- What one context told and left out: `items` are ids, since texts are looked up when they are shown. `query` is empty if
-- a message of the session was the query.
CREATE TABLE contexts (
    id TEXT NOT NULL PRIMARY KEY,
    agent_id TEXT NOT NULL,
    session_row INTEGER NOT NULL REFERENCES sessions (row_id) ON DELETE CASCADE,
    user_id TEXT,
    at INTEGER NOT NULL,
    query TEXT NOT NULL,
    token_budget INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    degraded TEXT NOT NULL,
    items TEXT NOT NULL CHECK (json_valid(items))
);
CREATE INDEX contexts_by_time ON contexts (agent_id, at);
CREATE INDEX contexts_by_session ON contexts (session_row);

-- What agents asked, whole, so that `reverie evaluate` can ask it again: only if the operator has it kept. `parameters` is
-- the call without its query; `found` are the ids of what was returned, in its order.
CREATE TABLE captured_queries (
    id TEXT NOT NULL PRIMARY KEY,
    agent_id TEXT NOT NULL,
    session_row INTEGER REFERENCES sessions (row_id) ON DELETE CASCADE,
    user_id TEXT,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    query TEXT NOT NULL,
    parameters TEXT NOT NULL CHECK (json_valid(parameters)),
    found TEXT NOT NULL CHECK (json_valid(found))
);
CREATE INDEX captured_queries_by_time ON captured_queries (agent_id, at);
CREATE INDEX captured_queries_by_session ON captured_queries (session_row);

-- `tenant` is whose a memory of the account is; NULL is "local". `made_by` is the call or job that made it, whatever
-- the `source` that a caller gave. `confirmed_at` is when it was last said again, if it was.
CREATE TABLE memories (
    row_id INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    tier TEXT NOT NULL CHECK (tier IN ('conversation', 'channel', 'workspace', 'account')),
    lifetime TEXT NOT NULL CHECK (lifetime IN ('long_term', 'short_term', 'conversation')),
    kind TEXT NOT NULL CHECK (kind IN ('fact', 'preference', 'procedure', 'event', 'task', 'note', 'instruction')),
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
    visibility TEXT NOT NULL DEFAULT 'private' CHECK (visibility IN ('private', 'requested', 'shared')),
    tenant TEXT,
    made_by TEXT,
    confirmed_at INTEGER,
    UNIQUE (agent_id, id)
);
CREATE INDEX memories_by_time ON memories (agent_id, created_at);
CREATE UNIQUE INDEX memories_by_note ON memories (agent_id, note_id) WHERE note_id IS NOT NULL;
CREATE INDEX memories_by_session ON memories (session_row) WHERE session_row IS NOT NULL;
CREATE INDEX memories_by_message ON memories (agent_id, source_message) WHERE source_message IS NOT NULL;
CREATE INDEX memories_by_subject ON memories (agent_id, subject) WHERE subject IS NOT NULL;
CREATE INDEX memories_superseded ON memories (superseded_by) WHERE superseded_by IS NOT NULL;
-- What has changed for a user, the newest change first: recall looks there for what its results depend on.
CREATE INDEX memories_replaced ON memories (agent_id, coalesce(owner_user_id, ''), superseded_at)
WHERE superseded_by IS NOT NULL;
CREATE INDEX memories_to_chunk ON memories (row_id) WHERE chunked_at IS NULL AND superseded_by IS NULL;
-- Conversation memories, to be deleted when their session ends: few rows, queried after every write.
CREATE INDEX memories_of_conversations ON memories (session_row) WHERE tier = 'conversation' AND superseded_by IS NULL;
CREATE TRIGGER memories_end_claims AFTER DELETE ON memories
BEGIN
    DELETE FROM claims WHERE stage = 'chunk-memories' AND item_id = old.row_id;
END;
-- Standing instructions and important preferences, by owner and time.
CREATE INDEX memories_in_force ON memories (agent_id, owner_user_id, created_at)
WHERE superseded_by IS NULL AND (kind = 'instruction' OR (kind = 'preference' AND importance >= 0.8));
-- Each user has facts of their own.
CREATE UNIQUE INDEX memories_by_fact ON memories (agent_id, category, key,
    coalesce(owner_user_id, ''), coalesce(tenant, ''))
WHERE category IS NOT NULL AND superseded_by IS NULL;
CREATE INDEX memories_shared ON memories (agent_id, created_at) WHERE visibility = 'shared';
CREATE TRIGGER memories_audience_changed AFTER UPDATE OF owner_user_id, visibility, tenant ON memories
WHEN old.owner_user_id IS NOT new.owner_user_id OR old.visibility IS NOT new.visibility OR old.tenant IS NOT new.tenant
BEGIN
    UPDATE forward_index SET audience = (SELECT a.audience FROM chunk_audiences AS a
        WHERE a.chunk_id = forward_index.chunk_id) WHERE agent_id = new.agent_id AND chunk_id IN (SELECT id
        FROM chunks WHERE memory_row = new.row_id);
END;

-- What dream sweeps have promoted, kept permanently so that nothing is promoted twice.
CREATE TABLE memory_promotions (
    agent_id TEXT NOT NULL,
    memory_id TEXT NOT NULL,
    promoted_at INTEGER NOT NULL,
    score REAL NOT NULL,
    phase TEXT NOT NULL,
    PRIMARY KEY (agent_id, memory_id)
) WITHOUT ROWID;
CREATE INDEX memory_promotions_by_time ON memory_promotions (agent_id, promoted_at);

CREATE TABLE scratchpads (
    session_row INTEGER NOT NULL REFERENCES sessions (row_id) ON DELETE CASCADE,
    agent_id TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (session_row, key)
) WITHOUT ROWID;

CREATE TABLE scratchpad_lists (
    session_row INTEGER PRIMARY KEY REFERENCES sessions (row_id) ON DELETE CASCADE,
    agent_id TEXT NOT NULL,
    items TEXT NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE TABLE channels (
    row_id INTEGER PRIMARY KEY,
    agent_id TEXT NOT NULL,
    id TEXT NOT NULL,
    description TEXT NOT NULL DEFAULT '',
    is_default INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    UNIQUE (agent_id, id)
);

-- The leases of jobs, and the positions that jobs have reached: not part of anybody's memory.
CREATE TABLE job_leases (job TEXT PRIMARY KEY, token INTEGER NOT NULL, lease_until INTEGER NOT NULL);

CREATE TABLE job_progress (
    job TEXT NOT NULL,
    item TEXT NOT NULL,
    position INTEGER NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (job, item)
) WITHOUT ROWID;

-- What jobs changed. `undone_by` is the request that has undone an entry: the same request is not refused because it
-- was carried out. `accepted_at` is when a person has read and kept the change; `sensitive` says why one should.
CREATE TABLE curation_log (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    job TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    action TEXT NOT NULL,
    why TEXT NOT NULL DEFAULT '',
    session_id TEXT,
    undone_at INTEGER,
    undone_by TEXT,
    accepted_at INTEGER,
    sensitive TEXT
);
CREATE INDEX curation_log_by_agent ON curation_log (agent_id, id);
CREATE INDEX curation_log_by_time ON curation_log (at);
CREATE INDEX curation_log_undone ON curation_log (action) WHERE undone_at IS NOT NULL;
CREATE INDEX curation_log_by_session ON curation_log (agent_id, session_id) WHERE session_id IS NOT NULL;

CREATE TABLE curation_items (
    entry_id INTEGER NOT NULL REFERENCES curation_log (id) ON DELETE CASCADE,
    agent_id TEXT NOT NULL,
    memory_id TEXT NOT NULL,
    PRIMARY KEY (entry_id, memory_id)
) WITHOUT ROWID;
CREATE INDEX curation_items_by_memory ON curation_items (agent_id, memory_id);

CREATE TABLE curation_changes (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    entry_id INTEGER NOT NULL REFERENCES curation_log (id) ON DELETE CASCADE,
    table_name TEXT NOT NULL,
    before TEXT,
    after TEXT
);
CREATE INDEX curation_changes_by_entry ON curation_changes (entry_id, seq);
-- By the session that memories came from: their log entries are forgotten with it.
CREATE INDEX curation_changes_by_session ON curation_changes (coalesce(after, before) ->> 'session_row')
WHERE table_name = 'memories';
-- An entry names each memory that it changes, listed or not, and the session whose row it changes.
CREATE TRIGGER curation_changes_name_memories AFTER INSERT ON curation_changes
WHEN new.table_name = 'memories'
BEGIN
    INSERT INTO curation_items (entry_id, agent_id, memory_id)
        SELECT new.entry_id, image ->> 'agent_id', image ->> 'id'
        FROM (SELECT coalesce(new.after, new.before) AS image) WHERE NOT EXISTS (SELECT 1 FROM curation_items
        WHERE entry_id = new.entry_id AND memory_id = image ->> 'id');
END;
CREATE TRIGGER curation_changes_name_session AFTER INSERT ON curation_changes
WHEN new.table_name = 'sessions'
BEGIN
    UPDATE curation_log SET session_id = (SELECT id FROM sessions
        WHERE row_id = coalesce(new.after, new.before) ->> 'row_id') WHERE id = new.entry_id AND session_id IS NULL;
END;

-- The entry that is being recorded, while a job changes rows.
CREATE TABLE curation_recording (entry_id INTEGER PRIMARY KEY);

-- `revision` counts changes: a claim that was computed from an older one is not made. `retries` are those of a
-- one-shot that failed. The goal's vector is kept, so that recalling for a run needs no model.
CREATE TABLE schedules (
    id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    user_id TEXT,
    name TEXT,
    goal TEXT NOT NULL CHECK (goal <> ''),
    cadence TEXT NOT NULL,
    executor TEXT NOT NULL,
    notification_policy TEXT NOT NULL CHECK (notification_policy IN ('always', 'on_failure', 'conditional', 'never')),
    status TEXT NOT NULL CHECK (status IN ('active', 'paused', 'completed', 'failed', 'disabled')),
    timeout_seconds INTEGER NOT NULL,
    recall_limit INTEGER NOT NULL,
    channel_id TEXT,
    session_id TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    next_run_at INTEGER,
    last_run_at INTEGER,
    last_run_status TEXT,
    consecutive_failures INTEGER NOT NULL DEFAULT 0,
    retries INTEGER NOT NULL DEFAULT 0,
    revision INTEGER NOT NULL DEFAULT 0,
    goal_vector BLOB,
    goal_model TEXT,
    PRIMARY KEY (agent_id, id)
);
CREATE INDEX schedules_due ON schedules (next_run_at) WHERE status = 'active' AND next_run_at IS NOT NULL;
CREATE INDEX schedules_by_user ON schedules (agent_id, user_id, status);
CREATE INDEX schedules_by_time ON schedules (agent_id, created_at);
CREATE INDEX schedules_by_session ON schedules (agent_id, session_id) WHERE session_id IS NOT NULL;
CREATE INDEX schedules_by_change ON schedules (updated_at);

-- `sent_at` is when a task was last sent for the run; `not_before` when to try again; `tries` counts what was sent
-- to a webhook, `crashes` workers that died over it. While it runs, `token` says who may end it; `lease_until`
-- bounds the worker, `deadline` the whole run. All of these by the machine's clock.
CREATE TABLE schedule_runs (
    id TEXT NOT NULL PRIMARY KEY,
    agent_id TEXT NOT NULL,
    schedule_id TEXT NOT NULL,
    due_at INTEGER NOT NULL,
    first_due_at INTEGER NOT NULL,
    coalesced INTEGER NOT NULL DEFAULT 0,
    trigger_kind TEXT NOT NULL CHECK (trigger_kind IN ('schedule', 'retry', 'manual')),
    attempt INTEGER NOT NULL DEFAULT 1,
    status TEXT NOT NULL CHECK (status IN ('pending', 'running', 'success', 'failed', 'cancelled', 'timed_out')),
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    finished_at INTEGER,
    summary TEXT NOT NULL DEFAULT '',
    output TEXT NOT NULL DEFAULT '',
    error TEXT NOT NULL DEFAULT '',
    turn_count INTEGER NOT NULL DEFAULT 0,
    cost REAL NOT NULL DEFAULT 0,
    notified INTEGER NOT NULL DEFAULT 0,
    trace_id TEXT NOT NULL DEFAULT '',
    sent_at INTEGER NOT NULL,
    not_before INTEGER,
    tries INTEGER NOT NULL DEFAULT 0,
    crashes INTEGER NOT NULL DEFAULT 0,
    token INTEGER,
    lease_until INTEGER,
    deadline INTEGER,
    UNIQUE (agent_id, schedule_id, due_at),
    FOREIGN KEY (agent_id, schedule_id) REFERENCES schedules (agent_id, id) ON DELETE CASCADE
);
-- One open run per schedule at a time, whoever starts it.
CREATE UNIQUE INDEX schedule_runs_open ON schedule_runs (agent_id, schedule_id) WHERE status IN ('pending', 'running');
CREATE INDEX schedule_runs_started ON schedule_runs (started_at) WHERE started_at IS NOT NULL;
CREATE INDEX schedule_runs_failed ON schedule_runs (finished_at) WHERE status IN ('failed', 'timed_out');
-- The sweep over schedules asks each time whether something lies in the future, since the clock was ahead.
CREATE INDEX schedule_runs_by_time ON schedule_runs (created_at);

-- `user_id` is NULL for a reminder of the users of its session. `paused_at` is when the pause after a failed push
-- was noted: one from the future is over, since the clock was set back.
CREATE TABLE reminders (
    id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    channel_id TEXT,
    recipient TEXT NOT NULL,
    message TEXT NOT NULL CHECK (message <> ''),
    delivery TEXT NOT NULL CHECK (delivery IN ('auto', 'pull', 'push')),
    due_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    claimed_at INTEGER,
    claim_until INTEGER,
    token INTEGER,
    not_before INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT '',
    delivered_at INTEGER,
    user_id TEXT,
    paused_at INTEGER,
    PRIMARY KEY (agent_id, id)
) WITHOUT ROWID;
CREATE INDEX reminders_due ON reminders (agent_id, due_at) WHERE delivered_at IS NULL;
CREATE INDEX reminders_to_push ON reminders (due_at) WHERE delivered_at IS NULL AND delivery <> 'pull';
CREATE INDEX reminders_delivered ON reminders (delivered_at) WHERE delivered_at IS NOT NULL;
CREATE INDEX reminders_by_session ON reminders (agent_id, session_id);

CREATE TABLE notifications (
    id TEXT NOT NULL PRIMARY KEY,
    agent_id TEXT NOT NULL,
    user_id TEXT,
    kind TEXT NOT NULL CHECK (kind IN ('run', 'alert', 'disabled')),
    schedule_id TEXT NOT NULL,
    schedule_name TEXT,
    run_id TEXT,
    run_status TEXT,
    channel_id TEXT,
    session_id TEXT,
    title TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    claim_until INTEGER,
    token INTEGER,
    not_before INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    error TEXT NOT NULL DEFAULT '',
    delivered_at INTEGER,
    acknowledged_at INTEGER,
    paused_at INTEGER
);
CREATE INDEX notifications_new ON notifications (agent_id, created_at) WHERE acknowledged_at IS NULL;
CREATE INDEX notifications_by_time ON notifications (created_at);
CREATE INDEX notifications_to_push ON notifications (created_at) WHERE delivered_at IS NULL AND acknowledged_at IS NULL;
CREATE INDEX notifications_by_session ON notifications (agent_id, session_id) WHERE session_id IS NOT NULL;

-- The users of sessions that have several; the only user of any other is in its row.
CREATE TABLE session_users (
    session_row INTEGER NOT NULL REFERENCES sessions (row_id) ON DELETE CASCADE,
    agent_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    PRIMARY KEY (session_row, user_id)
) WITHOUT ROWID;
CREATE INDEX session_users_by_user ON session_users (agent_id, user_id);

-- How much is stored, counted by triggers in the transaction of each change.
CREATE TABLE stored_amounts (
    tenant TEXT PRIMARY KEY,
    messages INTEGER NOT NULL DEFAULT 0,
    memories INTEGER NOT NULL DEFAULT 0,
    schedules INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;
INSERT INTO stored_amounts (tenant) VALUES ('');

-- Which content of the broker the numbers in a store were given by: they say nothing of items of another one. Files
-- with rows up to `files_before` were accepted by an earlier content.
CREATE TABLE broker_content (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    files_before INTEGER NOT NULL
);

-- `namespace` is a JSON array: an item is below another namespace if its text begins with that one's, so that a
-- range of the index holds all items of a prefix. `index_fields` are the paths of the texts that are embedded, NULL
-- for none; `embedding_model` is whose vectors the item has, NULL until it is embedded.
CREATE TABLE items (
    row_id INTEGER PRIMARY KEY AUTOINCREMENT,
    agent_id TEXT NOT NULL,
    user_id TEXT,
    namespace TEXT NOT NULL CHECK (json_type(namespace) = 'array'),
    key TEXT NOT NULL CHECK (key <> ''),
    value TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    stored_at INTEGER NOT NULL,
    ttl_seconds REAL,
    expires_at INTEGER,
    index_fields TEXT,
    embedding_model TEXT
);
CREATE UNIQUE INDEX items_by_place ON items (agent_id, coalesce(user_id, ''), namespace, key);
CREATE INDEX items_expiring ON items (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX items_to_embed ON items (row_id) WHERE embedding_model IS NULL AND index_fields IS NOT NULL;

CREATE TABLE item_vectors (
    row_id INTEGER PRIMARY KEY,
    item_row INTEGER NOT NULL REFERENCES items (row_id) ON DELETE CASCADE,
    embedding BLOB NOT NULL
);
CREATE INDEX item_vectors_by_item ON item_vectors (item_row);

-- How often the webhook secret of an agent was rotated, and when last, by a keyed hash of the agent's name.
CREATE TABLE webhook_rotations (
    agent_hash TEXT PRIMARY KEY,
    count INTEGER NOT NULL,
    rotated_at INTEGER NOT NULL
) WITHOUT ROWID;
