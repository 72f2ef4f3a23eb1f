-- The tables that the account has besides those of a workspace, which it has because it has memories too.

-- Runs of periodic jobs: the unique key makes a second beat process harmless.
CREATE TABLE job_runs (
    id INTEGER PRIMARY KEY,
    job TEXT NOT NULL,
    period INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    finished_at INTEGER,
    counts TEXT NOT NULL DEFAULT '{}',
    error TEXT,
    UNIQUE (job, period)
);
CREATE INDEX job_runs_by_time ON job_runs (job, started_at);

-- One row for each day, model and purpose, to which calls of the language model are added.
CREATE TABLE language_model_usage (
    day TEXT NOT NULL,
    model TEXT NOT NULL,
    purpose TEXT NOT NULL,
    calls INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cost REAL NOT NULL,
    messages INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (day, model, purpose)
) WITHOUT ROWID;

-- Only the hash of a token is stored: who reads the file cannot use it. The random part has 256 bits, so a fast hash
-- is as safe as a slow one.
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
);
CREATE INDEX tokens_by_name ON tokens (name);

CREATE TABLE tenants (workspace TEXT PRIMARY KEY, tenant TEXT NOT NULL) WITHOUT ROWID;

-- Entries are only ever appended.
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
);
CREATE INDEX audit_log_by_time ON audit_log (at);
CREATE TRIGGER audit_log_is_not_updated BEFORE UPDATE ON audit_log
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
CREATE TRIGGER audit_log_is_not_deleted BEFORE DELETE ON audit_log
WHEN OLD.at >= coalesce((SELECT ended_at FROM audit_retention), OLD.at)
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;

-- Only the retention removes entries. It says up to when in its own transaction, and the triggers hold it to that.
CREATE TABLE audit_retention (only_row INTEGER PRIMARY KEY CHECK (only_row = 1), ended_at INTEGER);
INSERT INTO audit_retention (only_row, ended_at) VALUES (1, NULL);

-- Jobs that forget with a receipt. `target` names what is erased while the job works; at the end only its keyed hash
-- stays. `attempts` counts failures since the last step; `next_try_at` is NULL for one that the next run of the job
-- continues.
CREATE TABLE erasures (
    id TEXT PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('message', 'memory', 'selection', 'session', 'user', 'agent', 'workspace')),
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
    finished_at INTEGER,
    attempts INTEGER NOT NULL DEFAULT 0,
    next_try_at INTEGER
);
CREATE INDEX erasures_open ON erasures (requested_at) WHERE finished_at IS NULL;

-- Keyed hashes of parts of what was removed, for the search afterwards: little-endian integers of 64 bits.
CREATE TABLE erasure_fragments (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    erasure_id TEXT NOT NULL REFERENCES erasures (id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    hashes BLOB NOT NULL
);
CREATE INDEX erasure_fragments_by_erasure ON erasure_fragments (erasure_id, kind);

-- An amount of 0 is no limit; without a row the wider quota holds.
CREATE TABLE quotas (
    holder TEXT NOT NULL CHECK (holder IN ('workspace', 'tenant')),
    name TEXT NOT NULL,
    resource TEXT NOT NULL CHECK (resource IN ('messages', 'bytes', 'memories', 'schedules', 'workspaces')),
    amount INTEGER NOT NULL CHECK (amount >= 0),
    PRIMARY KEY (holder, name, resource)
) WITHOUT ROWID;

-- What is being forgotten in several places, so that it is finished if its process is killed between two of them.
-- `agent_id` and `session_id` are empty for a whole workspace, `file` for a session.
CREATE TABLE forgets (
    id INTEGER PRIMARY KEY,
    workspace TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    file TEXT NOT NULL,
    forgotten_at INTEGER NOT NULL,
    requested_at INTEGER NOT NULL
);

-- What the pipeline did in the last day, one row for each minute: for the curves of the pipeline page. `accepted`
-- counts items since ever; lags are NULL while no message becomes searchable.
CREATE TABLE pipeline_samples (
    minute INTEGER PRIMARY KEY,
    accepted INTEGER NOT NULL,
    waiting INTEGER NOT NULL,
    lag_p50_seconds REAL,
    lag_p99_seconds REAL
);
