-- Derived from the SQLite schemas 0101 (workspaces) and 0100 (account) by `make docs`.
-- What the tables of stores need: functions of SQLite that statements use, and the stores themselves.
CREATE FUNCTION json_type(document text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS
    $$ SELECT jsonb_typeof(document::jsonb) $$;
CREATE FUNCTION bytes_text(content bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT AS $$
BEGIN
    RETURN convert_from(content, 'UTF8');
EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
    RETURN '';
END $$;
CREATE FUNCTION json_valid(document text) RETURNS bigint LANGUAGE sql IMMUTABLE STRICT AS
    $$ SELECT (document IS JSON)::int::bigint $$;
CREATE FUNCTION json_remove(document text, path text) RETURNS text LANGUAGE sql IMMUTABLE STRICT AS
    $$ SELECT (document::jsonb - substr(path, 3))::text $$;
CREATE FUNCTION round(number double precision, digits integer) RETURNS double precision LANGUAGE sql IMMUTABLE STRICT AS
    $$ SELECT round(number::numeric, digits)::double precision $$;
CREATE FUNCTION json_elements(document text, key text) RETURNS SETOF text LANGUAGE sql IMMUTABLE AS $$
    SELECT element FROM (SELECT CASE key WHEN '' THEN document::jsonb ELSE document::jsonb -> key END AS found) AS read,
        jsonb_array_elements_text(
            CASE jsonb_typeof(found) WHEN 'array' THEN found WHEN 'null' THEN '[]' ELSE jsonb_build_array(found) END
        ) AS element
    WHERE found IS NOT NULL
$$;
-- The number of the newest migration that the database has, and that of the oldest program that can use it: see
-- `migrations/`.
CREATE TABLE schema_version (version bigint NOT NULL, oldest_program bigint NOT NULL);
-- The stores: workspaces, and the account. Whoever writes one holds its row until the end of the transaction.
CREATE TABLE stores (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL UNIQUE,
    writes bigint NOT NULL DEFAULT 0,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Tells it from every other store, also from one that a dump of the database lacks: numbers come again after it.
    key uuid NOT NULL DEFAULT gen_random_uuid()
) WITH (fillfactor = 50);
CREATE INDEX stores_by_write ON stores (written_at);
-- The hosts: data folders, which hold memory files and logs of what is in the stores. `seen_at` is when one was heard
-- of, `error` why it cannot do what it should.
CREATE TABLE hosts (
    id text COLLATE "C" PRIMARY KEY,
    name text NOT NULL,
    joined_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    error text NOT NULL DEFAULT ''
);
-- What each host has done for an erasure that is in progress. `done` is false of a host that is waited for no longer.
CREATE TABLE host_erasures (
    erasure_id text COLLATE "C" NOT NULL,
    host_id text COLLATE "C" NOT NULL,
    name text NOT NULL,
    done boolean NOT NULL,
    files bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0,
    histories bigint NOT NULL DEFAULT 0,
    lines bigint NOT NULL DEFAULT 0,
    leftovers jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (erasure_id, host_id)
);
-- Hashes of what was erased and forgotten, as hosts keep them in files; a number is seen after all smaller ones.
CREATE TABLE tombstones (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    content text COLLATE "C" NOT NULL UNIQUE
);
-- The key of the hashes by which hosts recognise what was erased.
CREATE TABLE erasure_key (only_row bigint PRIMARY KEY CHECK (only_row = 1), key bytea NOT NULL);
-- The key from which all hosts derive the keys of agents' workers and the secrets of webhooks.
CREATE TABLE installation_key (only_row bigint PRIMARY KEY CHECK (only_row = 1), key bytea NOT NULL);
-- Keys: a transaction that is limited to one store sees nothing of them.
ALTER TABLE erasure_key ENABLE ROW LEVEL SECURITY;
ALTER TABLE erasure_key FORCE ROW LEVEL SECURITY;
CREATE POLICY no_store ON erasure_key USING (coalesce(current_setting('reverie.store', true), '') = '');
ALTER TABLE installation_key ENABLE ROW LEVEL SECURITY;
ALTER TABLE installation_key FORCE ROW LEVEL SECURITY;
CREATE POLICY no_store ON installation_key USING (coalesce(current_setting('reverie.store', true), '') = '');
-- A process that has run since before an upgrade of the schema writes nothing by its old rules, unless they still hold.
CREATE FUNCTION begin_writing(store bigint, wait_milliseconds bigint, known_version bigint) RETURNS boolean
    LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
DECLARE
    present_version bigint;
    oldest_version bigint;
BEGIN
    SELECT version, oldest_program INTO present_version, oldest_version FROM schema_version;
    IF known_version NOT BETWEEN oldest_version AND present_version THEN
        RAISE EXCEPTION 'its schema is %, that of the process %', present_version, known_version
            USING ERRCODE = 'RV001';
    END IF;
    PERFORM set_config('reverie.store', store::text, true), set_config('lock_timeout', wait_milliseconds || 'ms', true);
    UPDATE stores SET writes = writes + 1, written_at = clock_timestamp() WHERE id = store;
    RETURN FOUND;
END $$;
-- While stores are copied, no trigger does what is copied, too.
CREATE FUNCTION is_copying() RETURNS boolean LANGUAGE sql STABLE AS
    $$ SELECT coalesce(current_setting('reverie.copying', true), '') = 'on' $$;
-- The highest numbers of rows that were deleted: ids are never used again.
CREATE TABLE deleted_numbers (
    store_id bigint NOT NULL,
    table_name text COLLATE "C" NOT NULL,
    number bigint NOT NULL,
    PRIMARY KEY (store_id, table_name)
);
CREATE TABLE sessions (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    row_id bigint GENERATED BY DEFAULT AS IDENTITY,
    id text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    ref_code text COLLATE "C" NOT NULL,
    user_id text COLLATE "C",
    provider text COLLATE "C",
    chat_id text COLLATE "C",
    channel_id text COLLATE "C",
    status text COLLATE "C" NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'idle', 'archived')),
    started_at bigint NOT NULL,
    ended_at bigint,
    updated_at bigint NOT NULL,
    metadata text COLLATE "C" NOT NULL DEFAULT '{}',
    last_sequence bigint NOT NULL DEFAULT 0,
    summary_text text COLLATE "C",
    summary_epoch bigint NOT NULL DEFAULT 0,
    summary_upper_sequence bigint NOT NULL DEFAULT 0,
    is_group bigint NOT NULL DEFAULT 0,
    audience text COLLATE "C" GENERATED ALWAYS AS (CASE WHEN (is_group) <> 0 THEN 's:' || row_id WHEN NOT user_id IS NULL THEN 'u:' || user_id END) STORED,
    PRIMARY KEY (store_id, row_id),
    UNIQUE (store_id, ref_code),
    UNIQUE (store_id, agent_id, id)
);
CREATE TABLE messages (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    row_id bigint GENERATED BY DEFAULT AS IDENTITY,
    id text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    session_row bigint NOT NULL,
    sequence bigint NOT NULL,
    role text COLLATE "C" NOT NULL CHECK (role IN ('user', 'assistant', 'system', 'tool')),
    name text COLLATE "C",
    content text COLLATE "C" NOT NULL,
    tool_call_id text COLLATE "C",
    tool_name text COLLATE "C",
    tool_calls text COLLATE "C",
    token_count bigint,
    importance double precision NOT NULL CHECK (importance BETWEEN 0 AND 1),
    tags text COLLATE "C" NOT NULL DEFAULT '[]',
    metadata text COLLATE "C" NOT NULL DEFAULT '{}',
    trace_id text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    accepted_at bigint NOT NULL,
    stored_at bigint NOT NULL,
    chunked_at bigint,
    consolidated_at bigint,
    embedding_error text COLLATE "C",
    user_id text COLLATE "C",
    visibility text COLLATE "C" CHECK (visibility IN ('private', 'shared')),
    original text COLLATE "C",
    PRIMARY KEY (store_id, row_id),
    UNIQUE (store_id, session_row, id),
    UNIQUE (store_id, session_row, sequence)
);
CREATE TABLE files (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    row_id bigint GENERATED BY DEFAULT AS IDENTITY,
    id text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    session_row bigint,
    source_uri text COLLATE "C" NOT NULL,
    content text COLLATE "C" NOT NULL,
    content_hash bytea NOT NULL,
    tags text COLLATE "C" NOT NULL DEFAULT '[]',
    metadata text COLLATE "C" NOT NULL DEFAULT '{}',
    trace_id text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    accepted_at bigint NOT NULL,
    stored_at bigint NOT NULL,
    chunked_at bigint,
    user_id text COLLATE "C",
    visibility text COLLATE "C" CHECK (visibility IN ('private', 'shared')),
    PRIMARY KEY (store_id, row_id),
    UNIQUE (store_id, agent_id, id)
);
CREATE TABLE chunks (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    agent_id text COLLATE "C" NOT NULL,
    session_row bigint,
    file_row bigint,
    text text COLLATE "C" NOT NULL,
    content_hash bytea NOT NULL,
    sequence_start bigint NOT NULL,
    sequence_end bigint NOT NULL,
    metadata text COLLATE "C" NOT NULL DEFAULT '{}',
    created_at bigint NOT NULL,
    stored_at bigint NOT NULL,
    embedded_at bigint,
    indexed_at bigint,
    lead text COLLATE "C" NOT NULL DEFAULT '',
    access_count bigint NOT NULL DEFAULT 0,
    accessed_at bigint,
    memory_row bigint,
    PRIMARY KEY (store_id, id)
);
CREATE TABLE message_chunks (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    message_row bigint NOT NULL,
    chunk_id bigint NOT NULL,
    PRIMARY KEY (store_id, message_row, chunk_id)
);
CREATE TABLE chunk_tags (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    tag text COLLATE "C" NOT NULL,
    chunk_id bigint NOT NULL,
    PRIMARY KEY (store_id, tag, chunk_id)
);
CREATE TABLE indexes (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('text', 'vector')),
    model text COLLATE "C" NOT NULL DEFAULT '',
    dim bigint NOT NULL DEFAULT 0,
    state text COLLATE "C" NOT NULL CHECK (state IN ('active', 'building')),
    built_to bigint NOT NULL DEFAULT 0,
    created_at bigint NOT NULL,
    embedder text COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (store_id, id)
);
CREATE TABLE claims (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    stage text COLLATE "C" NOT NULL,
    item_id bigint NOT NULL,
    token bigint,
    lease_until bigint,
    attempts bigint NOT NULL DEFAULT 0,
    crashes bigint NOT NULL DEFAULT 0,
    next_attempt_at bigint,
    error text COLLATE "C",
    PRIMARY KEY (store_id, stage, item_id)
);
CREATE TABLE dead_letters (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    agent_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C",
    stage text COLLATE "C" NOT NULL,
    item_id text COLLATE "C" NOT NULL,
    payload bytea,
    error_type text COLLATE "C" NOT NULL,
    error text COLLATE "C" NOT NULL,
    attempts bigint NOT NULL,
    trace_id text COLLATE "C" NOT NULL DEFAULT '',
    created_at bigint NOT NULL,
    variant text COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (store_id, id),
    UNIQUE (store_id, agent_id, stage, item_id, variant)
);
CREATE TABLE forgotten_sessions (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    agent_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    forgotten_at bigint NOT NULL,
    PRIMARY KEY (store_id, agent_id, session_id)
);
CREATE TABLE chunks_vec (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    chunk_id bigint NOT NULL,
    model text COLLATE "C" NOT NULL,
    dim bigint NOT NULL,
    embedding bytea NOT NULL CHECK (LENGTH(embedding) = 4 * dim),
    PRIMARY KEY (store_id, chunk_id, model)
);
CREATE TABLE forward_index (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    agent_id text COLLATE "C" NOT NULL,
    chunk_id bigint NOT NULL,
    thread bigint NOT NULL,
    sequence bigint NOT NULL,
    created_at bigint NOT NULL,
    role text COLLATE "C" NOT NULL,
    speaker text COLLATE "C",
    words bytea NOT NULL,
    audience text COLLATE "C",
    PRIMARY KEY (store_id, agent_id, chunk_id)
);
CREATE TABLE forward_changes (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    seq bigint GENERATED BY DEFAULT AS IDENTITY,
    agent_id text COLLATE "C" NOT NULL,
    chunk_id bigint NOT NULL,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('added', 'vector', 'gone', 'audience')),
    PRIMARY KEY (store_id, seq)
);
CREATE TABLE recall_events (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    agent_id text COLLATE "C" NOT NULL,
    recall text COLLATE "C" NOT NULL,
    chunk_id bigint NOT NULL,
    query text COLLATE "C" NOT NULL,
    score double precision NOT NULL,
    at bigint NOT NULL,
    user_id text COLLATE "C",
    PRIMARY KEY (store_id, id),
    UNIQUE (store_id, recall, chunk_id)
);
CREATE TABLE captured_queries (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    id text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    session_row bigint,
    user_id text COLLATE "C",
    at bigint NOT NULL,
    kind text COLLATE "C" NOT NULL,
    query text COLLATE "C" NOT NULL,
    parameters text COLLATE "C" NOT NULL CHECK ((JSON_VALID(parameters)) <> 0),
    found text COLLATE "C" NOT NULL CHECK ((JSON_VALID(found)) <> 0),
    PRIMARY KEY (store_id, id)
);
CREATE TABLE memories (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    row_id bigint GENERATED BY DEFAULT AS IDENTITY,
    id text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    tier text COLLATE "C" NOT NULL CHECK (tier IN ('conversation', 'channel', 'workspace', 'account')),
    lifetime text COLLATE "C" NOT NULL CHECK (lifetime IN ('long_term', 'short_term', 'conversation')),
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('fact', 'preference', 'procedure', 'event', 'task', 'note', 'instruction')),
    source text COLLATE "C" NOT NULL,
    content text COLLATE "C" NOT NULL CHECK (content <> ''),
    importance double precision NOT NULL CHECK (importance BETWEEN 0 AND 1),
    access_count bigint NOT NULL DEFAULT 0,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    accessed_at bigint NOT NULL,
    expires_at bigint,
    owner_user_id text COLLATE "C",
    tags text COLLATE "C" NOT NULL DEFAULT '[]',
    concept_tags text COLLATE "C" NOT NULL DEFAULT '[]',
    metadata text COLLATE "C" NOT NULL DEFAULT '{}',
    session_row bigint,
    source_message text COLLATE "C",
    channel_id text COLLATE "C",
    note_id text COLLATE "C",
    category text COLLATE "C",
    key text COLLATE "C",
    value text COLLATE "C",
    subject text COLLATE "C",
    confidence double precision,
    pinned bigint NOT NULL DEFAULT 0,
    superseded_by bigint,
    superseded_at bigint,
    trace_id text COLLATE "C" NOT NULL DEFAULT '',
    stored_at bigint NOT NULL,
    chunked_at bigint,
    visibility text COLLATE "C" NOT NULL DEFAULT 'private' CHECK (visibility IN ('private', 'requested', 'shared')),
    tenant text COLLATE "C",
    made_by text COLLATE "C",
    confirmed_at bigint,
    PRIMARY KEY (store_id, row_id),
    UNIQUE (store_id, agent_id, id)
);
CREATE TABLE memory_promotions (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    agent_id text COLLATE "C" NOT NULL,
    memory_id text COLLATE "C" NOT NULL,
    promoted_at bigint NOT NULL,
    score double precision NOT NULL,
    phase text COLLATE "C" NOT NULL,
    PRIMARY KEY (store_id, agent_id, memory_id)
);
CREATE TABLE scratchpads (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    session_row bigint NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    value text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (store_id, session_row, key)
);
CREATE TABLE scratchpad_lists (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    session_row bigint,
    agent_id text COLLATE "C" NOT NULL,
    items text COLLATE "C" NOT NULL,
    updated_at bigint NOT NULL,
    PRIMARY KEY (store_id, session_row)
);
CREATE TABLE channels (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    row_id bigint GENERATED BY DEFAULT AS IDENTITY,
    agent_id text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    description text COLLATE "C" NOT NULL DEFAULT '',
    is_default bigint NOT NULL DEFAULT 0,
    created_at bigint NOT NULL,
    PRIMARY KEY (store_id, row_id),
    UNIQUE (store_id, agent_id, id)
);
CREATE TABLE job_leases (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    job text COLLATE "C",
    token bigint NOT NULL,
    lease_until bigint NOT NULL,
    PRIMARY KEY (store_id, job)
);
CREATE TABLE job_progress (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    job text COLLATE "C" NOT NULL,
    item text COLLATE "C" NOT NULL,
    position bigint NOT NULL,
    at bigint NOT NULL,
    PRIMARY KEY (store_id, job, item)
);
CREATE TABLE curation_log (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    at bigint NOT NULL,
    job text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    action text COLLATE "C" NOT NULL,
    why text COLLATE "C" NOT NULL DEFAULT '',
    session_id text COLLATE "C",
    undone_at bigint,
    undone_by text COLLATE "C",
    accepted_at bigint,
    sensitive text COLLATE "C",
    PRIMARY KEY (store_id, id)
);
CREATE TABLE curation_items (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    entry_id bigint NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    memory_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (store_id, entry_id, memory_id)
);
CREATE TABLE curation_changes (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    seq bigint GENERATED BY DEFAULT AS IDENTITY,
    entry_id bigint NOT NULL,
    table_name text COLLATE "C" NOT NULL,
    before text COLLATE "C",
    after text COLLATE "C",
    PRIMARY KEY (store_id, seq)
);
CREATE TABLE curation_recording (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    entry_id bigint,
    PRIMARY KEY (store_id, entry_id)
);
CREATE TABLE schedules (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    id text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C",
    name text COLLATE "C",
    goal text COLLATE "C" NOT NULL CHECK (goal <> ''),
    cadence text COLLATE "C" NOT NULL,
    executor text COLLATE "C" NOT NULL,
    notification_policy text COLLATE "C" NOT NULL CHECK (notification_policy IN ('always', 'on_failure', 'conditional', 'never')),
    status text COLLATE "C" NOT NULL CHECK (status IN ('active', 'paused', 'completed', 'failed', 'disabled')),
    timeout_seconds bigint NOT NULL,
    recall_limit bigint NOT NULL,
    channel_id text COLLATE "C",
    session_id text COLLATE "C",
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    next_run_at bigint,
    last_run_at bigint,
    last_run_status text COLLATE "C",
    consecutive_failures bigint NOT NULL DEFAULT 0,
    retries bigint NOT NULL DEFAULT 0,
    revision bigint NOT NULL DEFAULT 0,
    goal_vector bytea,
    goal_model text COLLATE "C",
    PRIMARY KEY (store_id, agent_id, id)
);
CREATE TABLE schedule_runs (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    id text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    schedule_id text COLLATE "C" NOT NULL,
    due_at bigint NOT NULL,
    first_due_at bigint NOT NULL,
    coalesced bigint NOT NULL DEFAULT 0,
    trigger_kind text COLLATE "C" NOT NULL CHECK (trigger_kind IN ('schedule', 'retry', 'manual')),
    attempt bigint NOT NULL DEFAULT 1,
    status text COLLATE "C" NOT NULL CHECK (status IN ('pending', 'running', 'success', 'failed', 'cancelled', 'timed_out')),
    created_at bigint NOT NULL,
    started_at bigint,
    finished_at bigint,
    summary text COLLATE "C" NOT NULL DEFAULT '',
    output text COLLATE "C" NOT NULL DEFAULT '',
    error text COLLATE "C" NOT NULL DEFAULT '',
    turn_count bigint NOT NULL DEFAULT 0,
    cost double precision NOT NULL DEFAULT 0,
    notified bigint NOT NULL DEFAULT 0,
    trace_id text COLLATE "C" NOT NULL DEFAULT '',
    sent_at bigint NOT NULL,
    not_before bigint,
    tries bigint NOT NULL DEFAULT 0,
    crashes bigint NOT NULL DEFAULT 0,
    token bigint,
    lease_until bigint,
    deadline bigint,
    PRIMARY KEY (store_id, id),
    UNIQUE (store_id, agent_id, schedule_id, due_at)
);
CREATE TABLE reminders (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    id text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    channel_id text COLLATE "C",
    recipient text COLLATE "C" NOT NULL,
    message text COLLATE "C" NOT NULL CHECK (message <> ''),
    delivery text COLLATE "C" NOT NULL CHECK (delivery IN ('auto', 'pull', 'push')),
    due_at bigint NOT NULL,
    created_at bigint NOT NULL,
    claimed_at bigint,
    claim_until bigint,
    token bigint,
    not_before bigint,
    attempts bigint NOT NULL DEFAULT 0,
    error text COLLATE "C" NOT NULL DEFAULT '',
    delivered_at bigint,
    user_id text COLLATE "C",
    paused_at bigint,
    PRIMARY KEY (store_id, agent_id, id)
);
CREATE TABLE notifications (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    id text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C",
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('run', 'alert', 'disabled')),
    schedule_id text COLLATE "C" NOT NULL,
    schedule_name text COLLATE "C",
    run_id text COLLATE "C",
    run_status text COLLATE "C",
    channel_id text COLLATE "C",
    session_id text COLLATE "C",
    title text COLLATE "C" NOT NULL,
    body text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    claim_until bigint,
    token bigint,
    not_before bigint,
    attempts bigint NOT NULL DEFAULT 0,
    error text COLLATE "C" NOT NULL DEFAULT '',
    delivered_at bigint,
    acknowledged_at bigint,
    paused_at bigint,
    PRIMARY KEY (store_id, id)
);
CREATE TABLE session_users (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    session_row bigint NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (store_id, session_row, user_id)
);
CREATE TABLE stored_amounts (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    tenant text COLLATE "C",
    messages bigint NOT NULL DEFAULT 0,
    memories bigint NOT NULL DEFAULT 0,
    schedules bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (store_id, tenant)
);
CREATE TABLE broker_content (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    seq bigint GENERATED BY DEFAULT AS IDENTITY,
    id text COLLATE "C" NOT NULL,
    files_before bigint NOT NULL,
    PRIMARY KEY (store_id, seq),
    UNIQUE (store_id, id)
);
CREATE TABLE items (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    row_id bigint GENERATED BY DEFAULT AS IDENTITY,
    agent_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C",
    namespace text COLLATE "C" NOT NULL CHECK (JSON_TYPE(namespace) = 'array'),
    key text COLLATE "C" NOT NULL CHECK (key <> ''),
    value text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    stored_at bigint NOT NULL,
    ttl_seconds double precision,
    expires_at bigint,
    index_fields text COLLATE "C",
    embedding_model text COLLATE "C",
    PRIMARY KEY (store_id, row_id)
);
CREATE TABLE item_vectors (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    row_id bigint GENERATED BY DEFAULT AS IDENTITY,
    item_row bigint NOT NULL,
    embedding bytea NOT NULL,
    PRIMARY KEY (store_id, row_id)
);
CREATE TABLE webhook_rotations (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    agent_hash text COLLATE "C",
    count bigint NOT NULL,
    rotated_at bigint NOT NULL,
    PRIMARY KEY (store_id, agent_hash)
);
CREATE TABLE contexts (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    id text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    session_row bigint,
    user_id text COLLATE "C",
    at bigint NOT NULL,
    query text COLLATE "C" NOT NULL,
    token_budget bigint NOT NULL,
    tokens bigint NOT NULL,
    degraded text COLLATE "C" NOT NULL,
    items text COLLATE "C" NOT NULL CHECK ((JSON_VALID(items)) <> 0),
    PRIMARY KEY (store_id, id)
);
ALTER TABLE messages ADD CONSTRAINT messages_session_row_fkey FOREIGN KEY (store_id, session_row) REFERENCES sessions (store_id, row_id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE files ADD CONSTRAINT files_session_row_fkey FOREIGN KEY (store_id, session_row) REFERENCES sessions (store_id, row_id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE chunks ADD CONSTRAINT chunks_session_row_fkey FOREIGN KEY (store_id, session_row) REFERENCES sessions (store_id, row_id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE chunks ADD CONSTRAINT chunks_file_row_fkey FOREIGN KEY (store_id, file_row) REFERENCES files (store_id, row_id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE chunks ADD CONSTRAINT chunks_memory_row_fkey FOREIGN KEY (store_id, memory_row) REFERENCES memories (store_id, row_id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE message_chunks ADD CONSTRAINT message_chunks_message_row_fkey FOREIGN KEY (store_id, message_row) REFERENCES messages (store_id, row_id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE message_chunks ADD CONSTRAINT message_chunks_chunk_id_fkey FOREIGN KEY (store_id, chunk_id) REFERENCES chunks (store_id, id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE chunk_tags ADD CONSTRAINT chunk_tags_chunk_id_fkey FOREIGN KEY (store_id, chunk_id) REFERENCES chunks (store_id, id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE chunks_vec ADD CONSTRAINT chunks_vec_chunk_id_fkey FOREIGN KEY (store_id, chunk_id) REFERENCES chunks (store_id, id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE recall_events ADD CONSTRAINT recall_events_chunk_id_fkey FOREIGN KEY (store_id, chunk_id) REFERENCES chunks (store_id, id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE captured_queries ADD CONSTRAINT captured_queries_session_row_fkey FOREIGN KEY (store_id, session_row) REFERENCES sessions (store_id, row_id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE memories ADD CONSTRAINT memories_session_row_fkey FOREIGN KEY (store_id, session_row) REFERENCES sessions (store_id, row_id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE memories ADD CONSTRAINT memories_superseded_by_fkey FOREIGN KEY (store_id, superseded_by) REFERENCES memories (store_id, row_id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE scratchpads ADD CONSTRAINT scratchpads_session_row_fkey FOREIGN KEY (store_id, session_row) REFERENCES sessions (store_id, row_id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE scratchpad_lists ADD CONSTRAINT scratchpad_lists_session_row_fkey FOREIGN KEY (store_id, session_row) REFERENCES sessions (store_id, row_id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE curation_items ADD CONSTRAINT curation_items_entry_id_fkey FOREIGN KEY (store_id, entry_id) REFERENCES curation_log (store_id, id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE curation_changes ADD CONSTRAINT curation_changes_entry_id_fkey FOREIGN KEY (store_id, entry_id) REFERENCES curation_log (store_id, id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE schedule_runs ADD CONSTRAINT schedule_runs_agent_id_schedule_id_fkey FOREIGN KEY (store_id, agent_id, schedule_id) REFERENCES schedules (store_id, agent_id, id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE session_users ADD CONSTRAINT session_users_session_row_fkey FOREIGN KEY (store_id, session_row) REFERENCES sessions (store_id, row_id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE item_vectors ADD CONSTRAINT item_vectors_item_row_fkey FOREIGN KEY (store_id, item_row) REFERENCES items (store_id, row_id) ON DELETE CASCADE DEFERRABLE;
ALTER TABLE contexts ADD CONSTRAINT contexts_session_row_fkey FOREIGN KEY (store_id, session_row) REFERENCES sessions (store_id, row_id) ON DELETE CASCADE DEFERRABLE;
CREATE TABLE job_runs (
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    job text COLLATE "C" NOT NULL,
    period bigint NOT NULL,
    started_at bigint NOT NULL,
    finished_at bigint,
    counts text COLLATE "C" NOT NULL DEFAULT '{}',
    error text COLLATE "C",
    PRIMARY KEY (id),
    UNIQUE (job, period)
);
CREATE TABLE language_model_usage (
    day text COLLATE "C" NOT NULL,
    model text COLLATE "C" NOT NULL,
    purpose text COLLATE "C" NOT NULL,
    calls bigint NOT NULL,
    failures bigint NOT NULL,
    input_tokens bigint NOT NULL,
    output_tokens bigint NOT NULL,
    cost double precision NOT NULL,
    messages bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (day, model, purpose)
);
CREATE TABLE tokens (
    id text COLLATE "C",
    name text COLLATE "C" NOT NULL,
    hash bytea NOT NULL,
    workspace text COLLATE "C",
    agents text COLLATE "C",
    user_id text COLLATE "C",
    scopes text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    created_by text COLLATE "C" NOT NULL,
    expires_at bigint,
    last_used_at bigint,
    revoked_at bigint,
    replaces text COLLATE "C",
    PRIMARY KEY (id),
    UNIQUE (hash)
);
CREATE TABLE tenants (
    workspace text COLLATE "C",
    tenant text COLLATE "C" NOT NULL,
    PRIMARY KEY (workspace)
);
CREATE TABLE audit_log (
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    at bigint NOT NULL,
    actor text COLLATE "C" NOT NULL,
    token text COLLATE "C" NOT NULL,
    action text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL,
    workspace text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    outcome text COLLATE "C" NOT NULL,
    origin text COLLATE "C" NOT NULL,
    trace_id text COLLATE "C" NOT NULL,
    count bigint NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE audit_retention (
    only_row bigint CHECK (only_row = 1),
    ended_at bigint,
    PRIMARY KEY (only_row)
);
CREATE TABLE erasures (
    id text COLLATE "C",
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('message', 'memory', 'selection', 'session', 'user', 'agent', 'workspace')),
    target text COLLATE "C",
    target_hash text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C",
    workspace text COLLATE "C",
    requested_by text COLLATE "C" NOT NULL,
    requested_at bigint NOT NULL,
    cutoff bigint,
    step text COLLATE "C" NOT NULL,
    position text COLLATE "C" NOT NULL DEFAULT '',
    rounds bigint NOT NULL DEFAULT 0,
    counts text COLLATE "C" NOT NULL DEFAULT '{}',
    error text COLLATE "C" NOT NULL DEFAULT '',
    receipt text COLLATE "C",
    finished_at bigint,
    attempts bigint NOT NULL DEFAULT 0,
    next_try_at bigint,
    PRIMARY KEY (id)
);
CREATE TABLE erasure_fragments (
    seq bigint GENERATED BY DEFAULT AS IDENTITY,
    erasure_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    hashes bytea NOT NULL,
    PRIMARY KEY (seq)
);
CREATE TABLE quotas (
    holder text COLLATE "C" NOT NULL CHECK (holder IN ('workspace', 'tenant')),
    name text COLLATE "C" NOT NULL,
    resource text COLLATE "C" NOT NULL CHECK (resource IN ('messages', 'bytes', 'memories', 'schedules', 'workspaces')),
    amount bigint NOT NULL CHECK (amount >= 0),
    PRIMARY KEY (holder, name, resource)
);
CREATE TABLE forgets (
    id bigint GENERATED BY DEFAULT AS IDENTITY,
    workspace text COLLATE "C" NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    session_id text COLLATE "C" NOT NULL,
    file text COLLATE "C" NOT NULL,
    forgotten_at bigint NOT NULL,
    requested_at bigint NOT NULL,
    PRIMARY KEY (id)
);
CREATE TABLE pipeline_samples (
    minute bigint,
    accepted bigint NOT NULL,
    waiting bigint NOT NULL,
    lag_p50_seconds double precision,
    lag_p99_seconds double precision,
    PRIMARY KEY (minute)
);
ALTER TABLE erasure_fragments ADD CONSTRAINT erasure_fragments_erasure_id_fkey FOREIGN KEY (erasure_id) REFERENCES erasures (id) ON DELETE CASCADE DEFERRABLE;
CREATE INDEX sessions_by_update ON sessions (store_id, agent_id, updated_at);
CREATE INDEX sessions_active ON sessions (store_id, updated_at) WHERE status = 'active';
CREATE UNIQUE INDEX sessions_by_chat ON sessions (store_id, agent_id, provider, chat_id) WHERE NOT provider IS NULL AND NOT chat_id IS NULL;
CREATE INDEX messages_in_order ON messages (store_id, session_row, created_at, id);
CREATE INDEX messages_to_chunk ON messages (store_id, row_id) WHERE chunked_at IS NULL;
CREATE INDEX messages_unsummarised ON messages (store_id, session_row) WHERE consolidated_at IS NULL;
CREATE INDEX messages_live_to_chunk ON messages (store_id, row_id) WHERE chunked_at IS NULL AND accepted_at < created_at + 3600000000;
CREATE INDEX messages_by_id ON messages (store_id, agent_id, id);
CREATE INDEX files_by_session ON files (store_id, session_row) WHERE NOT session_row IS NULL;
CREATE INDEX files_to_chunk ON files (store_id, row_id) WHERE chunked_at IS NULL;
CREATE UNIQUE INDEX files_by_source ON files (store_id, agent_id, source_uri, (COALESCE(session_row, 0)), (COALESCE(user_id, '')));
CREATE UNIQUE INDEX chunks_by_file ON chunks (store_id, file_row, content_hash) WHERE NOT file_row IS NULL;
CREATE INDEX chunks_by_session ON chunks (store_id, session_row, content_hash);
CREATE INDEX chunks_to_embed ON chunks (store_id, id) WHERE embedded_at IS NULL;
CREATE INDEX chunks_to_index ON chunks (store_id, id) WHERE NOT embedded_at IS NULL AND indexed_at IS NULL;
CREATE UNIQUE INDEX chunks_by_hash ON chunks (store_id, session_row, content_hash) WHERE file_row IS NULL AND memory_row IS NULL;
CREATE UNIQUE INDEX chunks_by_memory ON chunks (store_id, memory_row, content_hash) WHERE NOT memory_row IS NULL;
CREATE INDEX chunks_live_to_embed ON chunks (store_id, id) WHERE embedded_at IS NULL AND stored_at < created_at + 3600000000;
CREATE INDEX message_chunks_by_chunk ON message_chunks (store_id, chunk_id);
CREATE INDEX chunk_tags_by_chunk ON chunk_tags (store_id, chunk_id);
CREATE UNIQUE INDEX indexes_by_state ON indexes (store_id, kind, state);
CREATE INDEX forward_index_owned ON forward_index (store_id, agent_id, audience) WHERE NOT audience IS NULL;
CREATE INDEX forward_changes_by_agent ON forward_changes (store_id, agent_id, seq);
CREATE INDEX recall_events_by_chunk ON recall_events (store_id, chunk_id);
CREATE INDEX recall_events_by_time ON recall_events (store_id, agent_id, at);
CREATE INDEX captured_queries_by_time ON captured_queries (store_id, agent_id, at);
CREATE INDEX captured_queries_by_session ON captured_queries (store_id, session_row);
CREATE INDEX memories_by_time ON memories (store_id, agent_id, created_at);
CREATE UNIQUE INDEX memories_by_note ON memories (store_id, agent_id, note_id) WHERE NOT note_id IS NULL;
CREATE INDEX memories_by_session ON memories (store_id, session_row) WHERE NOT session_row IS NULL;
CREATE INDEX memories_by_message ON memories (store_id, agent_id, source_message) WHERE NOT source_message IS NULL;
CREATE INDEX memories_by_subject ON memories (store_id, agent_id, subject) WHERE NOT subject IS NULL;
CREATE INDEX memories_superseded ON memories (store_id, superseded_by) WHERE NOT superseded_by IS NULL;
CREATE INDEX memories_replaced ON memories (store_id, agent_id, (COALESCE(owner_user_id, '')), superseded_at) WHERE NOT superseded_by IS NULL;
CREATE INDEX memories_to_chunk ON memories (store_id, row_id) WHERE chunked_at IS NULL AND superseded_by IS NULL;
CREATE INDEX memories_of_conversations ON memories (store_id, session_row) WHERE tier = 'conversation' AND superseded_by IS NULL;
CREATE INDEX memories_in_force ON memories (store_id, agent_id, owner_user_id, created_at) WHERE superseded_by IS NULL AND (kind = 'instruction' OR (kind = 'preference' AND importance >= 0.8));
CREATE UNIQUE INDEX memories_by_fact ON memories (store_id, agent_id, category, key, (COALESCE(owner_user_id, '')), (COALESCE(tenant, ''))) WHERE NOT category IS NULL AND superseded_by IS NULL;
CREATE INDEX memories_shared ON memories (store_id, agent_id, created_at) WHERE visibility = 'shared';
CREATE INDEX memory_promotions_by_time ON memory_promotions (store_id, agent_id, promoted_at);
CREATE INDEX curation_log_by_agent ON curation_log (store_id, agent_id, id);
CREATE INDEX curation_log_by_time ON curation_log (store_id, at);
CREATE INDEX curation_log_undone ON curation_log (store_id, action) WHERE NOT undone_at IS NULL;
CREATE INDEX curation_log_by_session ON curation_log (store_id, agent_id, session_id) WHERE NOT session_id IS NULL;
CREATE INDEX curation_items_by_memory ON curation_items (store_id, agent_id, memory_id);
CREATE INDEX curation_changes_by_entry ON curation_changes (store_id, entry_id, seq);
CREATE INDEX curation_changes_by_session ON curation_changes (store_id, (JSON_EXTRACT_PATH_TEXT(CAST((COALESCE(after, before)) AS JSON), 'session_row'))) WHERE table_name = 'memories';
CREATE INDEX schedules_due ON schedules (store_id, next_run_at) WHERE status = 'active' AND NOT next_run_at IS NULL;
CREATE INDEX schedules_by_user ON schedules (store_id, agent_id, user_id, status);
CREATE INDEX schedules_by_time ON schedules (store_id, agent_id, created_at);
CREATE INDEX schedules_by_session ON schedules (store_id, agent_id, session_id) WHERE NOT session_id IS NULL;
CREATE INDEX schedules_by_change ON schedules (store_id, updated_at);
CREATE UNIQUE INDEX schedule_runs_open ON schedule_runs (store_id, agent_id, schedule_id) WHERE status IN ('pending', 'running');
CREATE INDEX schedule_runs_started ON schedule_runs (store_id, started_at) WHERE NOT started_at IS NULL;
CREATE INDEX schedule_runs_failed ON schedule_runs (store_id, finished_at) WHERE status IN ('failed', 'timed_out');
CREATE INDEX schedule_runs_by_time ON schedule_runs (store_id, created_at);
CREATE INDEX reminders_due ON reminders (store_id, agent_id, due_at) WHERE delivered_at IS NULL;
CREATE INDEX reminders_to_push ON reminders (store_id, due_at) WHERE delivered_at IS NULL AND delivery <> 'pull';
CREATE INDEX reminders_delivered ON reminders (store_id, delivered_at) WHERE NOT delivered_at IS NULL;
CREATE INDEX reminders_by_session ON reminders (store_id, agent_id, session_id);
CREATE INDEX notifications_new ON notifications (store_id, agent_id, created_at) WHERE acknowledged_at IS NULL;
CREATE INDEX notifications_by_time ON notifications (store_id, created_at);
CREATE INDEX notifications_to_push ON notifications (store_id, created_at) WHERE delivered_at IS NULL AND acknowledged_at IS NULL;
CREATE INDEX notifications_by_session ON notifications (store_id, agent_id, session_id) WHERE NOT session_id IS NULL;
CREATE INDEX session_users_by_user ON session_users (store_id, agent_id, user_id);
CREATE UNIQUE INDEX items_by_place ON items (store_id, agent_id, (COALESCE(user_id, '')), namespace, key);
CREATE INDEX items_expiring ON items (store_id, expires_at) WHERE NOT expires_at IS NULL;
CREATE INDEX items_to_embed ON items (store_id, row_id) WHERE embedding_model IS NULL AND NOT index_fields IS NULL;
CREATE INDEX item_vectors_by_item ON item_vectors (store_id, item_row);
CREATE INDEX contexts_by_time ON contexts (store_id, agent_id, at);
CREATE INDEX contexts_by_session ON contexts (store_id, session_row);
CREATE INDEX job_runs_by_time ON job_runs (job, started_at);
CREATE INDEX tokens_by_name ON tokens (name);
CREATE INDEX audit_log_by_time ON audit_log (at);
CREATE INDEX erasures_open ON erasures (requested_at) WHERE finished_at IS NULL;
CREATE INDEX erasure_fragments_by_erasure ON erasure_fragments (erasure_id, kind);
CREATE VIEW chunk_audiences WITH (security_invoker = true) AS
SELECT c.store_id AS store_id, c.id AS chunk_id, CASE WHEN NOT c.memory_row IS NULL THEN (SELECT CASE WHEN k.tenant IS NULL THEN CASE WHEN k.visibility = 'shared' THEN NULL WHEN NOT k.owner_user_id IS NULL THEN 'u:' || k.owner_user_id ELSE (SELECT s.audience FROM sessions AS s WHERE s.row_id = k.session_row AND s.store_id = c.store_id) END ELSE 't:' || k.tenant || '|' || CASE WHEN k.visibility = 'shared' OR k.owner_user_id IS NULL THEN '' ELSE 'u:' || k.owner_user_id END END FROM memories AS k WHERE k.row_id = c.memory_row AND k.store_id = c.store_id) WHEN NOT c.file_row IS NULL THEN (SELECT CASE WHEN f.visibility = 'shared' THEN NULL WHEN NOT f.user_id IS NULL THEN 'u:' || f.user_id ELSE (SELECT s.audience FROM sessions AS s WHERE s.row_id = f.session_row AND s.store_id = c.store_id) END FROM files AS f WHERE f.row_id = c.file_row AND f.store_id = c.store_id) WHEN EXISTS(SELECT 1 FROM message_chunks AS l JOIN messages AS m ON m.row_id = l.message_row WHERE ((l.chunk_id = c.id AND m.visibility = 'shared') AND l.store_id = c.store_id) AND m.store_id = c.store_id) THEN NULL ELSE (SELECT s.audience FROM sessions AS s WHERE s.row_id = c.session_row AND s.store_id = c.store_id) END AS audience FROM chunks AS c WHERE c.store_id = c.store_id;
CREATE FUNCTION sessions_audience_changed() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF old.user_id IS DISTINCT FROM new.user_id OR old.is_group IS DISTINCT FROM new.is_group THEN
        UPDATE forward_index SET audience = (SELECT a.audience FROM chunk_audiences AS a WHERE a.chunk_id = forward_index.chunk_id AND a.store_id = NEW.store_id) WHERE (agent_id = new.agent_id AND chunk_id IN (SELECT id FROM chunks WHERE session_row = new.row_id AND chunks.store_id = NEW.store_id UNION ALL SELECT c.id FROM memories AS k JOIN chunks AS c ON c.memory_row = k.row_id WHERE ((k.session_row = new.row_id AND k.owner_user_id IS NULL) AND k.store_id = NEW.store_id) AND c.store_id = NEW.store_id)) AND forward_index.store_id = NEW.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER sessions_audience_changed AFTER UPDATE OF user_id, is_group ON sessions FOR EACH ROW EXECUTE FUNCTION sessions_audience_changed();
CREATE FUNCTION schedules_adopted_by_new() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF NOT new.user_id IS NULL THEN
        UPDATE schedules SET user_id = new.user_id WHERE (agent_id = new.agent_id AND session_id = new.id AND user_id IS NULL) AND schedules.store_id = NEW.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER schedules_adopted_by_new AFTER INSERT ON sessions FOR EACH ROW EXECUTE FUNCTION schedules_adopted_by_new();
CREATE FUNCTION schedules_adopted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF old.user_id IS NULL AND NOT new.user_id IS NULL THEN
        UPDATE schedules SET user_id = new.user_id WHERE (agent_id = new.agent_id AND session_id = new.id AND user_id IS NULL) AND schedules.store_id = NEW.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER schedules_adopted AFTER UPDATE OF user_id ON sessions FOR EACH ROW EXECUTE FUNCTION schedules_adopted();
CREATE FUNCTION sessions_scheduling_forgotten() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF NOT old.user_id IS NULL THEN
        DELETE FROM schedules WHERE (agent_id = old.agent_id AND session_id = old.id AND user_id IS NULL) AND schedules.store_id = OLD.store_id;
        DELETE FROM notifications WHERE (agent_id = old.agent_id AND session_id = old.id AND user_id IS NULL) AND notifications.store_id = OLD.store_id;
        DELETE FROM reminders WHERE (agent_id = old.agent_id AND session_id = old.id AND user_id IS NULL) AND reminders.store_id = OLD.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER sessions_scheduling_forgotten AFTER DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION sessions_scheduling_forgotten();
CREATE FUNCTION messages_end_claims() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    DELETE FROM claims WHERE (stage = 'chunk' AND item_id = old.row_id) AND claims.store_id = OLD.store_id;
    RETURN NULL;
END $$;
CREATE TRIGGER messages_end_claims AFTER DELETE ON messages FOR EACH ROW EXECUTE FUNCTION messages_end_claims();
CREATE FUNCTION files_end_claims() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    DELETE FROM claims WHERE (stage = 'chunk-files' AND item_id = old.row_id) AND claims.store_id = OLD.store_id;
    RETURN NULL;
END $$;
CREATE TRIGGER files_end_claims AFTER DELETE ON files FOR EACH ROW EXECUTE FUNCTION files_end_claims();
CREATE FUNCTION files_audience_changed() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF old.user_id IS DISTINCT FROM new.user_id OR old.visibility IS DISTINCT FROM new.visibility THEN
        UPDATE forward_index SET audience = (SELECT a.audience FROM chunk_audiences AS a WHERE a.chunk_id = forward_index.chunk_id AND a.store_id = NEW.store_id) WHERE (agent_id = new.agent_id AND chunk_id IN (SELECT id FROM chunks WHERE file_row = new.row_id AND chunks.store_id = NEW.store_id)) AND forward_index.store_id = NEW.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER files_audience_changed AFTER UPDATE OF user_id, visibility ON files FOR EACH ROW EXECUTE FUNCTION files_audience_changed();
CREATE FUNCTION chunks_end_claims() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    DELETE FROM claims WHERE (stage IN ('embed', 'index') AND item_id = old.id) AND claims.store_id = OLD.store_id;
    RETURN NULL;
END $$;
CREATE TRIGGER chunks_end_claims AFTER DELETE ON chunks FOR EACH ROW EXECUTE FUNCTION chunks_end_claims();
CREATE FUNCTION chunks_leave_forward_index() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    DELETE FROM forward_index WHERE (agent_id = old.agent_id AND chunk_id = old.id) AND forward_index.store_id = OLD.store_id;
    INSERT INTO forward_changes (agent_id, chunk_id, kind) VALUES (old.agent_id, old.id, 'gone');
    RETURN NULL;
END $$;
CREATE TRIGGER chunks_leave_forward_index AFTER DELETE ON chunks FOR EACH ROW EXECUTE FUNCTION chunks_leave_forward_index();
CREATE FUNCTION message_chunks_shared() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF (SELECT visibility FROM messages WHERE row_id = new.message_row AND messages.store_id = NEW.store_id) = 'shared' THEN
        UPDATE forward_index SET audience = NULL WHERE (chunk_id = new.chunk_id AND agent_id = (SELECT agent_id FROM chunks WHERE id = new.chunk_id AND chunks.store_id = NEW.store_id) AND NOT audience IS NULL) AND forward_index.store_id = NEW.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER message_chunks_shared AFTER INSERT ON message_chunks FOR EACH ROW EXECUTE FUNCTION message_chunks_shared();
CREATE FUNCTION chunks_vec_added() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF new.model = (SELECT model FROM indexes WHERE (kind = 'vector' AND state = 'active') AND indexes.store_id = NEW.store_id) THEN
        INSERT INTO forward_changes (agent_id, chunk_id, kind) SELECT agent_id, id, 'vector' FROM chunks WHERE id = new.chunk_id AND chunks.store_id = NEW.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER chunks_vec_added AFTER INSERT ON chunks_vec FOR EACH ROW EXECUTE FUNCTION chunks_vec_added();
CREATE FUNCTION chunks_vec_changed() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF new.model = (SELECT model FROM indexes WHERE (kind = 'vector' AND state = 'active') AND indexes.store_id = NEW.store_id) THEN
        INSERT INTO forward_changes (agent_id, chunk_id, kind) SELECT agent_id, id, 'vector' FROM chunks WHERE id = new.chunk_id AND chunks.store_id = NEW.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER chunks_vec_changed AFTER UPDATE ON chunks_vec FOR EACH ROW EXECUTE FUNCTION chunks_vec_changed();
CREATE FUNCTION forward_index_added() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO forward_changes (agent_id, chunk_id, kind) VALUES (new.agent_id, new.chunk_id, 'added');
    RETURN NULL;
END $$;
CREATE TRIGGER forward_index_added AFTER INSERT ON forward_index FOR EACH ROW EXECUTE FUNCTION forward_index_added();
CREATE FUNCTION forward_index_audience_known() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF new.audience IS NULL AND NOT (SELECT audience FROM chunk_audiences WHERE chunk_id = new.chunk_id AND chunk_audiences.store_id = NEW.store_id) IS NULL THEN
        UPDATE forward_index SET audience = (SELECT a.audience FROM chunk_audiences AS a WHERE a.chunk_id = forward_index.chunk_id AND a.store_id = NEW.store_id) WHERE (agent_id = new.agent_id AND chunk_id = new.chunk_id) AND forward_index.store_id = NEW.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER forward_index_audience_known AFTER INSERT ON forward_index FOR EACH ROW EXECUTE FUNCTION forward_index_audience_known();
CREATE FUNCTION forward_index_audience_changed() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF old.audience IS DISTINCT FROM new.audience THEN
        INSERT INTO forward_changes (agent_id, chunk_id, kind) VALUES (new.agent_id, new.chunk_id, 'audience');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER forward_index_audience_changed AFTER UPDATE OF audience ON forward_index FOR EACH ROW EXECUTE FUNCTION forward_index_audience_changed();
CREATE FUNCTION memories_end_claims() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    DELETE FROM claims WHERE (stage = 'chunk-memories' AND item_id = old.row_id) AND claims.store_id = OLD.store_id;
    RETURN NULL;
END $$;
CREATE TRIGGER memories_end_claims AFTER DELETE ON memories FOR EACH ROW EXECUTE FUNCTION memories_end_claims();
CREATE FUNCTION memories_audience_changed() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF old.owner_user_id IS DISTINCT FROM new.owner_user_id OR old.visibility IS DISTINCT FROM new.visibility OR old.tenant IS DISTINCT FROM new.tenant THEN
        UPDATE forward_index SET audience = (SELECT a.audience FROM chunk_audiences AS a WHERE a.chunk_id = forward_index.chunk_id AND a.store_id = NEW.store_id) WHERE (agent_id = new.agent_id AND chunk_id IN (SELECT id FROM chunks WHERE memory_row = new.row_id AND chunks.store_id = NEW.store_id)) AND forward_index.store_id = NEW.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER memories_audience_changed AFTER UPDATE OF owner_user_id, visibility, tenant ON memories FOR EACH ROW EXECUTE FUNCTION memories_audience_changed();
CREATE FUNCTION curation_changes_name_memories() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF new.table_name = 'memories' THEN
        INSERT INTO curation_items (entry_id, agent_id, memory_id) SELECT new.entry_id, JSON_EXTRACT_PATH_TEXT(CAST((image) AS JSON), 'agent_id'), JSON_EXTRACT_PATH_TEXT(CAST((image) AS JSON), 'id') FROM (SELECT COALESCE(new.after, new.before) AS image) WHERE NOT EXISTS(SELECT 1 FROM curation_items WHERE (entry_id = new.entry_id AND memory_id = JSON_EXTRACT_PATH_TEXT(CAST((image) AS JSON), 'id')) AND curation_items.store_id = NEW.store_id);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER curation_changes_name_memories AFTER INSERT ON curation_changes FOR EACH ROW EXECUTE FUNCTION curation_changes_name_memories();
CREATE FUNCTION curation_changes_name_session() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF new.table_name = 'sessions' THEN
        UPDATE curation_log SET session_id = (SELECT id FROM sessions WHERE row_id = CAST(JSON_EXTRACT_PATH_TEXT(CAST((COALESCE(new.after, new.before)) AS JSON), 'row_id') AS BIGINT) AND sessions.store_id = NEW.store_id) WHERE (id = new.entry_id AND session_id IS NULL) AND curation_log.store_id = NEW.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER curation_changes_name_session AFTER INSERT ON curation_changes FOR EACH ROW EXECUTE FUNCTION curation_changes_name_session();
CREATE FUNCTION messages_insert_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', (1), 0, 0, (COALESCE(OCTET_LENGTH(new.content), 0) + COALESCE(OCTET_LENGTH(new.metadata), 0) + COALESCE(OCTET_LENGTH(new.tool_calls), 0) + COALESCE(OCTET_LENGTH(new.original), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET messages = stored_amounts.messages + excluded.messages, bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER messages_insert_counted AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION messages_insert_counted();
CREATE FUNCTION messages_delete_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', -(1), 0, 0, -(COALESCE(OCTET_LENGTH(old.content), 0) + COALESCE(OCTET_LENGTH(old.metadata), 0) + COALESCE(OCTET_LENGTH(old.tool_calls), 0) + COALESCE(OCTET_LENGTH(old.original), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET messages = stored_amounts.messages + excluded.messages, bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER messages_delete_counted AFTER DELETE ON messages FOR EACH ROW EXECUTE FUNCTION messages_delete_counted();
CREATE FUNCTION messages_update_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', -(1), 0, 0, -(COALESCE(OCTET_LENGTH(old.content), 0) + COALESCE(OCTET_LENGTH(old.metadata), 0) + COALESCE(OCTET_LENGTH(old.tool_calls), 0) + COALESCE(OCTET_LENGTH(old.original), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET messages = stored_amounts.messages + excluded.messages, bytes = stored_amounts.bytes + excluded.bytes;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', (1), 0, 0, (COALESCE(OCTET_LENGTH(new.content), 0) + COALESCE(OCTET_LENGTH(new.metadata), 0) + COALESCE(OCTET_LENGTH(new.tool_calls), 0) + COALESCE(OCTET_LENGTH(new.original), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET messages = stored_amounts.messages + excluded.messages, bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER messages_update_counted AFTER UPDATE OF content, metadata, tool_calls, original ON messages FOR EACH ROW EXECUTE FUNCTION messages_update_counted();
CREATE FUNCTION files_insert_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', (1), 0, 0, (COALESCE(OCTET_LENGTH(new.content), 0) + COALESCE(OCTET_LENGTH(new.metadata), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET messages = stored_amounts.messages + excluded.messages, bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER files_insert_counted AFTER INSERT ON files FOR EACH ROW EXECUTE FUNCTION files_insert_counted();
CREATE FUNCTION files_delete_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', -(1), 0, 0, -(COALESCE(OCTET_LENGTH(old.content), 0) + COALESCE(OCTET_LENGTH(old.metadata), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET messages = stored_amounts.messages + excluded.messages, bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER files_delete_counted AFTER DELETE ON files FOR EACH ROW EXECUTE FUNCTION files_delete_counted();
CREATE FUNCTION files_update_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', -(1), 0, 0, -(COALESCE(OCTET_LENGTH(old.content), 0) + COALESCE(OCTET_LENGTH(old.metadata), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET messages = stored_amounts.messages + excluded.messages, bytes = stored_amounts.bytes + excluded.bytes;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', (1), 0, 0, (COALESCE(OCTET_LENGTH(new.content), 0) + COALESCE(OCTET_LENGTH(new.metadata), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET messages = stored_amounts.messages + excluded.messages, bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER files_update_counted AFTER UPDATE OF content, metadata ON files FOR EACH ROW EXECUTE FUNCTION files_update_counted();
CREATE FUNCTION memories_insert_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES (COALESCE(new.tenant, ''), 0, (CAST(CAST((new.superseded_by IS NULL) AS INT) AS BIGINT)), 0, (COALESCE(OCTET_LENGTH(new.content), 0) + COALESCE(OCTET_LENGTH(new.value), 0) + COALESCE(OCTET_LENGTH(new.metadata), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET memories = stored_amounts.memories + excluded.memories, bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER memories_insert_counted AFTER INSERT ON memories FOR EACH ROW EXECUTE FUNCTION memories_insert_counted();
CREATE FUNCTION memories_delete_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES (COALESCE(old.tenant, ''), 0, -(CAST(CAST((old.superseded_by IS NULL) AS INT) AS BIGINT)), 0, -(COALESCE(OCTET_LENGTH(old.content), 0) + COALESCE(OCTET_LENGTH(old.value), 0) + COALESCE(OCTET_LENGTH(old.metadata), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET memories = stored_amounts.memories + excluded.memories, bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER memories_delete_counted AFTER DELETE ON memories FOR EACH ROW EXECUTE FUNCTION memories_delete_counted();
CREATE FUNCTION memories_update_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES (COALESCE(old.tenant, ''), 0, -(CAST(CAST((old.superseded_by IS NULL) AS INT) AS BIGINT)), 0, -(COALESCE(OCTET_LENGTH(old.content), 0) + COALESCE(OCTET_LENGTH(old.value), 0) + COALESCE(OCTET_LENGTH(old.metadata), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET memories = stored_amounts.memories + excluded.memories, bytes = stored_amounts.bytes + excluded.bytes;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES (COALESCE(new.tenant, ''), 0, (CAST(CAST((new.superseded_by IS NULL) AS INT) AS BIGINT)), 0, (COALESCE(OCTET_LENGTH(new.content), 0) + COALESCE(OCTET_LENGTH(new.value), 0) + COALESCE(OCTET_LENGTH(new.metadata), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET memories = stored_amounts.memories + excluded.memories, bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER memories_update_counted AFTER UPDATE OF content, value, metadata, superseded_by, tenant ON memories FOR EACH ROW EXECUTE FUNCTION memories_update_counted();
CREATE FUNCTION scratchpads_insert_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, 0, (COALESCE(OCTET_LENGTH(new.key), 0) + COALESCE(OCTET_LENGTH(new.value), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER scratchpads_insert_counted AFTER INSERT ON scratchpads FOR EACH ROW EXECUTE FUNCTION scratchpads_insert_counted();
CREATE FUNCTION scratchpads_delete_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, 0, -(COALESCE(OCTET_LENGTH(old.key), 0) + COALESCE(OCTET_LENGTH(old.value), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER scratchpads_delete_counted AFTER DELETE ON scratchpads FOR EACH ROW EXECUTE FUNCTION scratchpads_delete_counted();
CREATE FUNCTION scratchpads_update_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, 0, -(COALESCE(OCTET_LENGTH(old.key), 0) + COALESCE(OCTET_LENGTH(old.value), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET bytes = stored_amounts.bytes + excluded.bytes;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, 0, (COALESCE(OCTET_LENGTH(new.key), 0) + COALESCE(OCTET_LENGTH(new.value), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER scratchpads_update_counted AFTER UPDATE OF key, value ON scratchpads FOR EACH ROW EXECUTE FUNCTION scratchpads_update_counted();
CREATE FUNCTION scratchpad_lists_insert_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, 0, (COALESCE(OCTET_LENGTH(new.items), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER scratchpad_lists_insert_counted AFTER INSERT ON scratchpad_lists FOR EACH ROW EXECUTE FUNCTION scratchpad_lists_insert_counted();
CREATE FUNCTION scratchpad_lists_delete_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, 0, -(COALESCE(OCTET_LENGTH(old.items), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER scratchpad_lists_delete_counted AFTER DELETE ON scratchpad_lists FOR EACH ROW EXECUTE FUNCTION scratchpad_lists_delete_counted();
CREATE FUNCTION scratchpad_lists_update_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, 0, -(COALESCE(OCTET_LENGTH(old.items), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET bytes = stored_amounts.bytes + excluded.bytes;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, 0, (COALESCE(OCTET_LENGTH(new.items), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER scratchpad_lists_update_counted AFTER UPDATE OF items ON scratchpad_lists FOR EACH ROW EXECUTE FUNCTION scratchpad_lists_update_counted();
CREATE FUNCTION items_insert_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, 0, (COALESCE(OCTET_LENGTH(new.namespace), 0) + COALESCE(OCTET_LENGTH(new.key), 0) + COALESCE(OCTET_LENGTH(new.value), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER items_insert_counted AFTER INSERT ON items FOR EACH ROW EXECUTE FUNCTION items_insert_counted();
CREATE FUNCTION items_delete_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, 0, -(COALESCE(OCTET_LENGTH(old.namespace), 0) + COALESCE(OCTET_LENGTH(old.key), 0) + COALESCE(OCTET_LENGTH(old.value), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER items_delete_counted AFTER DELETE ON items FOR EACH ROW EXECUTE FUNCTION items_delete_counted();
CREATE FUNCTION items_update_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, 0, -(COALESCE(OCTET_LENGTH(old.namespace), 0) + COALESCE(OCTET_LENGTH(old.key), 0) + COALESCE(OCTET_LENGTH(old.value), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET bytes = stored_amounts.bytes + excluded.bytes;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, 0, (COALESCE(OCTET_LENGTH(new.namespace), 0) + COALESCE(OCTET_LENGTH(new.key), 0) + COALESCE(OCTET_LENGTH(new.value), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER items_update_counted AFTER UPDATE OF namespace, key, value ON items FOR EACH ROW EXECUTE FUNCTION items_update_counted();
CREATE FUNCTION schedules_insert_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, (1), (COALESCE(OCTET_LENGTH(new.goal), 0) + COALESCE(OCTET_LENGTH(new.cadence), 0) + COALESCE(OCTET_LENGTH(new.executor), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET schedules = stored_amounts.schedules + excluded.schedules, bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER schedules_insert_counted AFTER INSERT ON schedules FOR EACH ROW EXECUTE FUNCTION schedules_insert_counted();
CREATE FUNCTION schedules_delete_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, -(1), -(COALESCE(OCTET_LENGTH(old.goal), 0) + COALESCE(OCTET_LENGTH(old.cadence), 0) + COALESCE(OCTET_LENGTH(old.executor), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET schedules = stored_amounts.schedules + excluded.schedules, bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER schedules_delete_counted AFTER DELETE ON schedules FOR EACH ROW EXECUTE FUNCTION schedules_delete_counted();
CREATE FUNCTION schedules_update_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, -(1), -(COALESCE(OCTET_LENGTH(old.goal), 0) + COALESCE(OCTET_LENGTH(old.cadence), 0) + COALESCE(OCTET_LENGTH(old.executor), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET schedules = stored_amounts.schedules + excluded.schedules, bytes = stored_amounts.bytes + excluded.bytes;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, (1), (COALESCE(OCTET_LENGTH(new.goal), 0) + COALESCE(OCTET_LENGTH(new.cadence), 0) + COALESCE(OCTET_LENGTH(new.executor), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET schedules = stored_amounts.schedules + excluded.schedules, bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER schedules_update_counted AFTER UPDATE OF goal, cadence, executor ON schedules FOR EACH ROW EXECUTE FUNCTION schedules_update_counted();
CREATE FUNCTION reminders_insert_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, (CAST(CAST((new.delivered_at IS NULL) AS INT) AS BIGINT)), (COALESCE(OCTET_LENGTH(new.message), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET schedules = stored_amounts.schedules + excluded.schedules, bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER reminders_insert_counted AFTER INSERT ON reminders FOR EACH ROW EXECUTE FUNCTION reminders_insert_counted();
CREATE FUNCTION reminders_delete_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, -(CAST(CAST((old.delivered_at IS NULL) AS INT) AS BIGINT)), -(COALESCE(OCTET_LENGTH(old.message), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET schedules = stored_amounts.schedules + excluded.schedules, bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER reminders_delete_counted AFTER DELETE ON reminders FOR EACH ROW EXECUTE FUNCTION reminders_delete_counted();
CREATE FUNCTION reminders_update_counted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, -(CAST(CAST((old.delivered_at IS NULL) AS INT) AS BIGINT)), -(COALESCE(OCTET_LENGTH(old.message), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET schedules = stored_amounts.schedules + excluded.schedules, bytes = stored_amounts.bytes + excluded.bytes;
    INSERT INTO stored_amounts (tenant, messages, memories, schedules, bytes) VALUES ('', 0, 0, (CAST(CAST((new.delivered_at IS NULL) AS INT) AS BIGINT)), (COALESCE(OCTET_LENGTH(new.message), 0))) ON CONFLICT(store_id, tenant) DO UPDATE SET schedules = stored_amounts.schedules + excluded.schedules, bytes = stored_amounts.bytes + excluded.bytes;
    RETURN NULL;
END $$;
CREATE TRIGGER reminders_update_counted AFTER UPDATE OF message, delivered_at ON reminders FOR EACH ROW EXECUTE FUNCTION reminders_update_counted();
CREATE FUNCTION sessions_update_recorded() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF EXISTS(SELECT 1 FROM curation_recording WHERE curation_recording.store_id = NEW.store_id) THEN
        INSERT INTO curation_changes (entry_id, table_name, before, after) SELECT entry_id, 'sessions', JSON_OBJECT('row_id': old.row_id, 'summary_text': old.summary_text, 'summary_epoch': old.summary_epoch, 'summary_upper_sequence': old.summary_upper_sequence, 'status': old.status, 'ended_at': old.ended_at), JSON_OBJECT('row_id': new.row_id, 'summary_text': new.summary_text, 'summary_epoch': new.summary_epoch, 'summary_upper_sequence': new.summary_upper_sequence, 'status': new.status, 'ended_at': new.ended_at) FROM curation_recording WHERE curation_recording.store_id = NEW.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER sessions_update_recorded AFTER UPDATE OF summary_text, summary_epoch, summary_upper_sequence, status, ended_at ON sessions FOR EACH ROW EXECUTE FUNCTION sessions_update_recorded();
CREATE FUNCTION messages_update_recorded() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF EXISTS(SELECT 1 FROM curation_recording WHERE curation_recording.store_id = NEW.store_id) THEN
        INSERT INTO curation_changes (entry_id, table_name, before, after) SELECT entry_id, 'messages', JSON_OBJECT('row_id': old.row_id, 'consolidated_at': old.consolidated_at), JSON_OBJECT('row_id': new.row_id, 'consolidated_at': new.consolidated_at) FROM curation_recording WHERE curation_recording.store_id = NEW.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER messages_update_recorded AFTER UPDATE OF consolidated_at ON messages FOR EACH ROW EXECUTE FUNCTION messages_update_recorded();
CREATE FUNCTION memories_insert_recorded() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF EXISTS(SELECT 1 FROM curation_recording WHERE curation_recording.store_id = NEW.store_id) THEN
        INSERT INTO curation_changes (entry_id, table_name, before, after) SELECT entry_id, 'memories', NULL, JSON_OBJECT('row_id': new.row_id, 'id': new.id, 'agent_id': new.agent_id, 'tier': new.tier, 'lifetime': new.lifetime, 'kind': new.kind, 'source': new.source, 'content': new.content, 'importance': new.importance, 'access_count': new.access_count, 'created_at': new.created_at, 'updated_at': new.updated_at, 'accessed_at': new.accessed_at, 'expires_at': new.expires_at, 'owner_user_id': new.owner_user_id, 'tags': new.tags, 'concept_tags': new.concept_tags, 'metadata': new.metadata, 'session_row': new.session_row, 'source_message': new.source_message, 'channel_id': new.channel_id, 'note_id': new.note_id, 'category': new.category, 'key': new.key, 'value': new.value, 'subject': new.subject, 'confidence': new.confidence, 'pinned': new.pinned, 'superseded_by': new.superseded_by, 'superseded_at': new.superseded_at, 'trace_id': new.trace_id, 'stored_at': new.stored_at, 'chunked_at': new.chunked_at, 'visibility': new.visibility, 'tenant': new.tenant, 'made_by': new.made_by, 'confirmed_at': new.confirmed_at) FROM curation_recording WHERE curation_recording.store_id = NEW.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER memories_insert_recorded AFTER INSERT ON memories FOR EACH ROW EXECUTE FUNCTION memories_insert_recorded();
CREATE FUNCTION memories_update_recorded() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF EXISTS(SELECT 1 FROM curation_recording WHERE curation_recording.store_id = NEW.store_id) THEN
        INSERT INTO curation_changes (entry_id, table_name, before, after) SELECT entry_id, 'memories', JSON_OBJECT('row_id': old.row_id, 'id': old.id, 'agent_id': old.agent_id, 'tier': old.tier, 'lifetime': old.lifetime, 'kind': old.kind, 'source': old.source, 'content': old.content, 'importance': old.importance, 'access_count': old.access_count, 'created_at': old.created_at, 'updated_at': old.updated_at, 'accessed_at': old.accessed_at, 'expires_at': old.expires_at, 'owner_user_id': old.owner_user_id, 'tags': old.tags, 'concept_tags': old.concept_tags, 'metadata': old.metadata, 'session_row': old.session_row, 'source_message': old.source_message, 'channel_id': old.channel_id, 'note_id': old.note_id, 'category': old.category, 'key': old.key, 'value': old.value, 'subject': old.subject, 'confidence': old.confidence, 'pinned': old.pinned, 'superseded_by': old.superseded_by, 'superseded_at': old.superseded_at, 'trace_id': old.trace_id, 'stored_at': old.stored_at, 'chunked_at': old.chunked_at, 'visibility': old.visibility, 'tenant': old.tenant, 'made_by': old.made_by, 'confirmed_at': old.confirmed_at), JSON_OBJECT('row_id': new.row_id, 'id': new.id, 'agent_id': new.agent_id, 'tier': new.tier, 'lifetime': new.lifetime, 'kind': new.kind, 'source': new.source, 'content': new.content, 'importance': new.importance, 'access_count': new.access_count, 'created_at': new.created_at, 'updated_at': new.updated_at, 'accessed_at': new.accessed_at, 'expires_at': new.expires_at, 'owner_user_id': new.owner_user_id, 'tags': new.tags, 'concept_tags': new.concept_tags, 'metadata': new.metadata, 'session_row': new.session_row, 'source_message': new.source_message, 'channel_id': new.channel_id, 'note_id': new.note_id, 'category': new.category, 'key': new.key, 'value': new.value, 'subject': new.subject, 'confidence': new.confidence, 'pinned': new.pinned, 'superseded_by': new.superseded_by, 'superseded_at': new.superseded_at, 'trace_id': new.trace_id, 'stored_at': new.stored_at, 'chunked_at': new.chunked_at, 'visibility': new.visibility, 'tenant': new.tenant, 'made_by': new.made_by, 'confirmed_at': new.confirmed_at) FROM curation_recording WHERE curation_recording.store_id = NEW.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER memories_update_recorded AFTER UPDATE ON memories FOR EACH ROW EXECUTE FUNCTION memories_update_recorded();
CREATE FUNCTION memories_delete_recorded() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF EXISTS(SELECT 1 FROM curation_recording WHERE curation_recording.store_id = OLD.store_id) THEN
        INSERT INTO curation_changes (entry_id, table_name, before, after) SELECT entry_id, 'memories', JSON_OBJECT('row_id': old.row_id, 'id': old.id, 'agent_id': old.agent_id, 'tier': old.tier, 'lifetime': old.lifetime, 'kind': old.kind, 'source': old.source, 'content': old.content, 'importance': old.importance, 'access_count': old.access_count, 'created_at': old.created_at, 'updated_at': old.updated_at, 'accessed_at': old.accessed_at, 'expires_at': old.expires_at, 'owner_user_id': old.owner_user_id, 'tags': old.tags, 'concept_tags': old.concept_tags, 'metadata': old.metadata, 'session_row': old.session_row, 'source_message': old.source_message, 'channel_id': old.channel_id, 'note_id': old.note_id, 'category': old.category, 'key': old.key, 'value': old.value, 'subject': old.subject, 'confidence': old.confidence, 'pinned': old.pinned, 'superseded_by': old.superseded_by, 'superseded_at': old.superseded_at, 'trace_id': old.trace_id, 'stored_at': old.stored_at, 'chunked_at': old.chunked_at, 'visibility': old.visibility, 'tenant': old.tenant, 'made_by': old.made_by, 'confirmed_at': old.confirmed_at), NULL FROM curation_recording WHERE curation_recording.store_id = OLD.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER memories_delete_recorded AFTER DELETE ON memories FOR EACH ROW EXECUTE FUNCTION memories_delete_recorded();
CREATE FUNCTION memory_promotions_insert_recorded() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF EXISTS(SELECT 1 FROM curation_recording WHERE curation_recording.store_id = NEW.store_id) THEN
        INSERT INTO curation_changes (entry_id, table_name, before, after) SELECT entry_id, 'memory_promotions', NULL, JSON_OBJECT('agent_id': new.agent_id, 'memory_id': new.memory_id, 'promoted_at': new.promoted_at, 'score': new.score, 'phase': new.phase) FROM curation_recording WHERE curation_recording.store_id = NEW.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER memory_promotions_insert_recorded AFTER INSERT ON memory_promotions FOR EACH ROW EXECUTE FUNCTION memory_promotions_insert_recorded();
CREATE FUNCTION memory_promotions_update_recorded() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF EXISTS(SELECT 1 FROM curation_recording WHERE curation_recording.store_id = NEW.store_id) THEN
        INSERT INTO curation_changes (entry_id, table_name, before, after) SELECT entry_id, 'memory_promotions', JSON_OBJECT('agent_id': old.agent_id, 'memory_id': old.memory_id, 'promoted_at': old.promoted_at, 'score': old.score, 'phase': old.phase), JSON_OBJECT('agent_id': new.agent_id, 'memory_id': new.memory_id, 'promoted_at': new.promoted_at, 'score': new.score, 'phase': new.phase) FROM curation_recording WHERE curation_recording.store_id = NEW.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER memory_promotions_update_recorded AFTER UPDATE ON memory_promotions FOR EACH ROW EXECUTE FUNCTION memory_promotions_update_recorded();
CREATE FUNCTION memory_promotions_delete_recorded() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF EXISTS(SELECT 1 FROM curation_recording WHERE curation_recording.store_id = OLD.store_id) THEN
        INSERT INTO curation_changes (entry_id, table_name, before, after) SELECT entry_id, 'memory_promotions', JSON_OBJECT('agent_id': old.agent_id, 'memory_id': old.memory_id, 'promoted_at': old.promoted_at, 'score': old.score, 'phase': old.phase), NULL FROM curation_recording WHERE curation_recording.store_id = OLD.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER memory_promotions_delete_recorded AFTER DELETE ON memory_promotions FOR EACH ROW EXECUTE FUNCTION memory_promotions_delete_recorded();
CREATE FUNCTION chunks_delete_recorded() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF EXISTS(SELECT 1 FROM curation_recording WHERE curation_recording.store_id = OLD.store_id) THEN
        INSERT INTO curation_changes (entry_id, table_name, before, after) SELECT entry_id, 'chunks', JSON_OBJECT('id': old.id, 'agent_id': old.agent_id, 'session_row': old.session_row, 'file_row': old.file_row, 'memory_row': old.memory_row, 'text': old.text, 'lead': old.lead, 'sequence_start': old.sequence_start, 'sequence_end': old.sequence_end, 'metadata': old.metadata, 'created_at': old.created_at, 'stored_at': old.stored_at, 'embedded_at': old.embedded_at, 'indexed_at': old.indexed_at, 'access_count': old.access_count, 'accessed_at': old.accessed_at, 'content_hash': upper(encode(old.content_hash, 'hex'))), NULL FROM curation_recording WHERE curation_recording.store_id = OLD.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER chunks_delete_recorded AFTER DELETE ON chunks FOR EACH ROW EXECUTE FUNCTION chunks_delete_recorded();
CREATE FUNCTION chunk_tags_insert_recorded() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF EXISTS(SELECT 1 FROM curation_recording WHERE curation_recording.store_id = NEW.store_id) THEN
        INSERT INTO curation_changes (entry_id, table_name, before, after) SELECT entry_id, 'chunk_tags', NULL, JSON_OBJECT('tag': new.tag, 'chunk_id': new.chunk_id) FROM curation_recording WHERE curation_recording.store_id = NEW.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER chunk_tags_insert_recorded AFTER INSERT ON chunk_tags FOR EACH ROW EXECUTE FUNCTION chunk_tags_insert_recorded();
CREATE FUNCTION chunk_tags_delete_recorded() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF EXISTS(SELECT 1 FROM curation_recording WHERE curation_recording.store_id = OLD.store_id) THEN
        INSERT INTO curation_changes (entry_id, table_name, before, after) SELECT entry_id, 'chunk_tags', JSON_OBJECT('tag': old.tag, 'chunk_id': old.chunk_id), NULL FROM curation_recording WHERE curation_recording.store_id = OLD.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER chunk_tags_delete_recorded AFTER DELETE ON chunk_tags FOR EACH ROW EXECUTE FUNCTION chunk_tags_delete_recorded();
CREATE FUNCTION chunks_vec_delete_recorded() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF EXISTS(SELECT 1 FROM curation_recording WHERE curation_recording.store_id = OLD.store_id) THEN
        INSERT INTO curation_changes (entry_id, table_name, before, after) SELECT entry_id, 'chunks_vec', JSON_OBJECT('chunk_id': old.chunk_id, 'model': old.model, 'dim': old.dim, 'embedding': upper(encode(old.embedding, 'hex'))), NULL FROM curation_recording WHERE curation_recording.store_id = OLD.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER chunks_vec_delete_recorded AFTER DELETE ON chunks_vec FOR EACH ROW EXECUTE FUNCTION chunks_vec_delete_recorded();
CREATE FUNCTION forward_index_delete_recorded() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF EXISTS(SELECT 1 FROM curation_recording WHERE curation_recording.store_id = OLD.store_id) THEN
        INSERT INTO curation_changes (entry_id, table_name, before, after) SELECT entry_id, 'forward_index', JSON_OBJECT('agent_id': old.agent_id, 'chunk_id': old.chunk_id, 'thread': old.thread, 'sequence': old.sequence, 'created_at': old.created_at, 'role': old.role, 'speaker': old.speaker, 'audience': old.audience, 'words': upper(encode(old.words, 'hex'))), NULL FROM curation_recording WHERE curation_recording.store_id = OLD.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER forward_index_delete_recorded AFTER DELETE ON forward_index FOR EACH ROW EXECUTE FUNCTION forward_index_delete_recorded();
CREATE FUNCTION recall_events_delete_recorded() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    IF EXISTS(SELECT 1 FROM curation_recording WHERE curation_recording.store_id = OLD.store_id) THEN
        INSERT INTO curation_changes (entry_id, table_name, before, after) SELECT entry_id, 'recall_events', JSON_OBJECT('id': old.id, 'agent_id': old.agent_id, 'recall': old.recall, 'chunk_id': old.chunk_id, 'query': old.query, 'score': old.score, 'at': old.at, 'user_id': old.user_id), NULL FROM curation_recording WHERE curation_recording.store_id = OLD.store_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER recall_events_delete_recorded AFTER DELETE ON recall_events FOR EACH ROW EXECUTE FUNCTION recall_events_delete_recorded();
CREATE FUNCTION audit_log_is_not_updated() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only';
    RETURN NEW;
END $$;
CREATE TRIGGER audit_log_is_not_updated BEFORE UPDATE ON audit_log FOR EACH ROW EXECUTE FUNCTION audit_log_is_not_updated();
CREATE FUNCTION audit_log_is_not_deleted() RETURNS trigger LANGUAGE plpgsql SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF OLD.at >= COALESCE((SELECT ended_at FROM audit_retention), OLD.at) THEN
        RAISE EXCEPTION 'the audit log is append-only';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER audit_log_is_not_deleted BEFORE DELETE ON audit_log FOR EACH ROW EXECUTE FUNCTION audit_log_is_not_deleted();
-- What the tables of stores have besides those that SQLite has, too.

-- The highest number that a table has used in a store, of rows that are there or were deleted.
CREATE FUNCTION numbers_kept() RETURNS trigger LANGUAGE plpgsql
    SET search_path = reverie, public, pg_temp AS $$
BEGIN
    EXECUTE format(
        'INSERT INTO deleted_numbers (store_id, table_name, number) SELECT store_id, %L, max(%I) FROM gone'
        ' GROUP BY store_id ON CONFLICT (store_id, table_name)'
        ' DO UPDATE SET number = greatest(deleted_numbers.number, excluded.number)',
        TG_TABLE_NAME, TG_ARGV[0]
    );
    RETURN NULL;
END $$;
CREATE TRIGGER chunks_numbers_kept AFTER DELETE ON chunks REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION numbers_kept('id');
CREATE TRIGGER files_numbers_kept AFTER DELETE ON files REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION numbers_kept('row_id');
CREATE TRIGGER forward_changes_numbers_kept AFTER DELETE ON forward_changes REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION numbers_kept('seq');
CREATE TRIGGER curation_log_numbers_kept AFTER DELETE ON curation_log REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION numbers_kept('id');
-- Rows that were set aside are few in all stores together.
CREATE INDEX claims_set_aside ON claims (store_id, stage, item_id) WHERE token IS NULL AND next_attempt_at IS NULL;
CREATE FUNCTION highest_number(asked text) RETURNS bigint LANGUAGE plpgsql STABLE
    SET search_path = reverie, public, pg_temp AS $$
DECLARE
    store bigint := current_setting('reverie.store')::bigint;
    highest bigint;
BEGIN
    CASE asked
        WHEN 'chunks' THEN SELECT max(id) INTO highest FROM chunks WHERE store_id = store;
        WHEN 'files' THEN SELECT max(row_id) INTO highest FROM files WHERE store_id = store;
        WHEN 'forward_changes' THEN SELECT max(seq) INTO highest FROM forward_changes WHERE store_id = store;
        WHEN 'curation_log' THEN SELECT max(id) INTO highest FROM curation_log WHERE store_id = store;
    END CASE;
    RETURN greatest(
        highest, (SELECT number FROM deleted_numbers WHERE store_id = store AND table_name = asked)
    );
END $$;

-- Full text: the words of chunks, with the store and the agent as two more words. A GIN index would not be used:
-- row-level security keeps `@@` from finding rows, and a search reads the words of its store.
CREATE TABLE text_index (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    generation bigint NOT NULL,
    chunk_id bigint NOT NULL,
    words tsvector NOT NULL,
    PRIMARY KEY (store_id, generation, chunk_id)
);
CREATE FUNCTION chunk_words(store bigint, agent text, content text) RETURNS tsvector LANGUAGE sql IMMUTABLE AS $$
    SELECT to_tsvector('english', content) || array_to_tsvector(ARRAY['store ' || store, 'agent ' || agent])
$$;
CREATE FUNCTION has_words(words tsvector, query text, of_store text, of_agent text) RETURNS boolean
    LANGUAGE sql IMMUTABLE AS $$
    SELECT words @@ (websearch_to_tsquery('english', query) && quote_literal(of_store)::tsquery
        && quote_literal(of_agent)::tsquery)
$$;
-- The sum over the words of a query of how often a text has each, less for long texts, which for ts_rank is a mean.
-- Multiplied so that a word counts about as much as BM25 has a word count that one chunk in a hundred contains.
CREATE FUNCTION words_rank(words tsvector, query text) RETURNS double precision LANGUAGE sql IMMUTABLE AS $$
    SELECT 20 * length(to_tsvector('english', query))
        * ts_rank('{1, 1, 1, 1}', words, websearch_to_tsquery('english', query), 1)::double precision
$$;
CREATE FUNCTION cosine_distance_to(embedding halfvec, query text) RETURNS double precision LANGUAGE sql IMMUTABLE
    RETURN embedding <=> query::halfvec;  -- read when it is created, so it finds pgvector with any search path
CREATE FUNCTION chunks_indexed_as_text() RETURNS trigger LANGUAGE plpgsql
    SET search_path = reverie, public, pg_temp AS $$
BEGIN
    IF is_copying() THEN
        RETURN NULL;
    END IF;
    INSERT INTO text_index (store_id, generation, chunk_id, words)
    SELECT NEW.store_id, i.id, NEW.id, chunk_words(NEW.store_id, NEW.agent_id, NEW.text)
    FROM indexes AS i WHERE i.store_id = NEW.store_id AND i.kind = 'text' AND NEW.id <= i.built_to;
    RETURN NULL;
END $$;
CREATE TRIGGER chunks_indexed_as_text AFTER INSERT ON chunks FOR EACH ROW EXECUTE FUNCTION chunks_indexed_as_text();
CREATE FUNCTION chunks_leave_text_index() RETURNS trigger LANGUAGE plpgsql
    SET search_path = reverie, public, pg_temp AS $$
BEGIN
    DELETE FROM text_index WHERE store_id = OLD.store_id AND chunk_id = OLD.id
        AND generation IN (SELECT id FROM indexes WHERE store_id = OLD.store_id AND kind = 'text');
    RETURN NULL;
END $$;
CREATE TRIGGER chunks_leave_text_index AFTER DELETE ON chunks FOR EACH ROW EXECUTE FUNCTION chunks_leave_text_index();
-- In half precision, which moves a cosine by less than 0.001: the vectors as they are made are in `chunks_vec`.
CREATE TABLE vector_index (
    store_id bigint NOT NULL DEFAULT current_setting('reverie.store')::bigint,
    generation bigint NOT NULL,
    agent_id text COLLATE "C" NOT NULL,
    chunk_id bigint NOT NULL,
    embedding halfvec NOT NULL,
    PRIMARY KEY (store_id, generation, chunk_id)
);

INSERT INTO audit_retention (only_row, ended_at) VALUES (1, NULL);
ALTER TABLE text_index ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE text_index ENABLE ROW LEVEL SECURITY;
ALTER TABLE text_index FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON text_index USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE vector_index ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE vector_index ENABLE ROW LEVEL SECURITY;
ALTER TABLE vector_index FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON vector_index USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE deleted_numbers ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE deleted_numbers ENABLE ROW LEVEL SECURITY;
ALTER TABLE deleted_numbers FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON deleted_numbers USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE sessions ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE sessions FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON sessions USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE messages ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE messages ENABLE ROW LEVEL SECURITY;
ALTER TABLE messages FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON messages USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE files ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE files ENABLE ROW LEVEL SECURITY;
ALTER TABLE files FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON files USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE chunks ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE chunks ENABLE ROW LEVEL SECURITY;
ALTER TABLE chunks FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON chunks USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE message_chunks ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE message_chunks ENABLE ROW LEVEL SECURITY;
ALTER TABLE message_chunks FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON message_chunks USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE chunk_tags ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE chunk_tags ENABLE ROW LEVEL SECURITY;
ALTER TABLE chunk_tags FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON chunk_tags USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE indexes ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE indexes ENABLE ROW LEVEL SECURITY;
ALTER TABLE indexes FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON indexes USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE claims ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE claims ENABLE ROW LEVEL SECURITY;
ALTER TABLE claims FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON claims USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE dead_letters ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE dead_letters ENABLE ROW LEVEL SECURITY;
ALTER TABLE dead_letters FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON dead_letters USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE forgotten_sessions ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE forgotten_sessions ENABLE ROW LEVEL SECURITY;
ALTER TABLE forgotten_sessions FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON forgotten_sessions USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE chunks_vec ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE chunks_vec ENABLE ROW LEVEL SECURITY;
ALTER TABLE chunks_vec FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON chunks_vec USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE forward_index ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE forward_index ENABLE ROW LEVEL SECURITY;
ALTER TABLE forward_index FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON forward_index USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE forward_changes ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE forward_changes ENABLE ROW LEVEL SECURITY;
ALTER TABLE forward_changes FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON forward_changes USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE recall_events ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE recall_events ENABLE ROW LEVEL SECURITY;
ALTER TABLE recall_events FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON recall_events USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE captured_queries ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE captured_queries ENABLE ROW LEVEL SECURITY;
ALTER TABLE captured_queries FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON captured_queries USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE memories ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE memories ENABLE ROW LEVEL SECURITY;
ALTER TABLE memories FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON memories USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE memory_promotions ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE memory_promotions ENABLE ROW LEVEL SECURITY;
ALTER TABLE memory_promotions FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON memory_promotions USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE scratchpads ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE scratchpads ENABLE ROW LEVEL SECURITY;
ALTER TABLE scratchpads FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON scratchpads USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE scratchpad_lists ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE scratchpad_lists ENABLE ROW LEVEL SECURITY;
ALTER TABLE scratchpad_lists FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON scratchpad_lists USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE channels ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE channels ENABLE ROW LEVEL SECURITY;
ALTER TABLE channels FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON channels USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE job_leases ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE job_leases ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_leases FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON job_leases USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE job_progress ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE job_progress ENABLE ROW LEVEL SECURITY;
ALTER TABLE job_progress FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON job_progress USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE curation_log ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE curation_log ENABLE ROW LEVEL SECURITY;
ALTER TABLE curation_log FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON curation_log USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE curation_items ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE curation_items ENABLE ROW LEVEL SECURITY;
ALTER TABLE curation_items FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON curation_items USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE curation_changes ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE curation_changes ENABLE ROW LEVEL SECURITY;
ALTER TABLE curation_changes FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON curation_changes USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE curation_recording ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE curation_recording ENABLE ROW LEVEL SECURITY;
ALTER TABLE curation_recording FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON curation_recording USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE schedules ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE schedules ENABLE ROW LEVEL SECURITY;
ALTER TABLE schedules FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON schedules USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE schedule_runs ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE schedule_runs ENABLE ROW LEVEL SECURITY;
ALTER TABLE schedule_runs FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON schedule_runs USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE reminders ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE reminders ENABLE ROW LEVEL SECURITY;
ALTER TABLE reminders FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON reminders USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE notifications ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE notifications ENABLE ROW LEVEL SECURITY;
ALTER TABLE notifications FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON notifications USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE session_users ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE session_users ENABLE ROW LEVEL SECURITY;
ALTER TABLE session_users FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON session_users USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE stored_amounts ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE stored_amounts ENABLE ROW LEVEL SECURITY;
ALTER TABLE stored_amounts FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON stored_amounts USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE broker_content ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE broker_content ENABLE ROW LEVEL SECURITY;
ALTER TABLE broker_content FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON broker_content USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE items ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE items ENABLE ROW LEVEL SECURITY;
ALTER TABLE items FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON items USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE item_vectors ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE item_vectors ENABLE ROW LEVEL SECURITY;
ALTER TABLE item_vectors FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON item_vectors USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE webhook_rotations ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE webhook_rotations ENABLE ROW LEVEL SECURITY;
ALTER TABLE webhook_rotations FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON webhook_rotations USING (store_id = (SELECT current_setting('reverie.store')::bigint));
ALTER TABLE contexts ALTER COLUMN store_id SET STATISTICS 0;
ALTER TABLE contexts ENABLE ROW LEVEL SECURITY;
ALTER TABLE contexts FORCE ROW LEVEL SECURITY;
CREATE POLICY one_store ON contexts USING (store_id = (SELECT current_setting('reverie.store')::bigint));
