-- oldest program: 0100
-- A context may be asked for before a conversation begins. SQLite drops a NOT NULL only with the table.
CREATE TABLE new_contexts (
    id TEXT NOT NULL PRIMARY KEY,
    agent_id TEXT NOT NULL,
    session_row INTEGER REFERENCES sessions (row_id) ON DELETE CASCADE,
    user_id TEXT,
    at INTEGER NOT NULL,
    query TEXT NOT NULL,
    token_budget INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    degraded TEXT NOT NULL,
    items TEXT NOT NULL CHECK (json_valid(items))
);
INSERT INTO new_contexts SELECT * FROM contexts;
DROP TABLE contexts;
ALTER TABLE new_contexts RENAME TO contexts;
CREATE INDEX contexts_by_time ON contexts (agent_id, at);
CREATE INDEX contexts_by_session ON contexts (session_row);
