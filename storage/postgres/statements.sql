-- Written by `make docs`: what the repositories of storage/ run on PostgreSQL, by module and function. Statements that
-- are composed while the program runs are shown in some of their forms, with samples of names ('x') and numbers (1).
-- Where a parameter is compared with NULL, production has another form without a value. What storage/postgres/ runs
-- besides is written in PostgreSQL's SQL there.

-- storage.curation: entries
SELECT HIGHEST_NUMBER('curation_log') AS seq;
-- storage.curation: entries
INSERT INTO curation_log (id, at, job, agent_id, action, why, session_id, sensitive)
VALUES (:id, :at, :job, :agent, :action, :why, :session, :sensitive);
-- storage.curation: entries
INSERT INTO curation_items (entry_id, agent_id, memory_id)
VALUES (:entry, :agent, :memory);
-- storage.curation: entries
INSERT INTO curation_recording (entry_id)
VALUES (:id);
-- storage.curation: entries
UPDATE curation_recording
SET entry_id = :id
WHERE curation_recording.store_id = :store_id;
-- storage.curation: entries
DELETE FROM curation_log
WHERE (id BETWEEN :first AND :last AND NOT EXISTS(SELECT 1 FROM curation_changes WHERE entry_id = curation_log.id AND
    curation_changes.store_id = :store_id)) AND curation_log.store_id = :store_id;
-- storage.curation: page
SELECT id AS id, at AS at, job AS job, agent_id AS agent, action AS action, why AS why, session_id AS session, undone_at
    AS undone_at, accepted_at AS accepted_at, sensitive AS sensitive, CASE WHEN EXISTS(SELECT 1 FROM curation_changes AS
    c WHERE (c.entry_id = curation_log.id AND c.table_name = 'memories' AND c.before IS NULL) AND c.store_id =
    :store_id) THEN CASE WHEN EXISTS(SELECT 1 FROM curation_changes AS c WHERE (c.entry_id = curation_log.id AND
    c.table_name = 'memories' AND NOT c.before IS NULL AND JSON_EXTRACT_PATH_TEXT(CAST((c.before) AS JSON),
    'superseded_by') IS NULL AND NOT JSON_EXTRACT_PATH_TEXT(CAST((c.after) AS JSON), 'superseded_by') IS NULL) AND
    c.store_id = :store_id) THEN 'replaced' ELSE 'learned' END WHEN EXISTS(SELECT 1 FROM curation_changes AS c WHERE
    (c.entry_id = curation_log.id AND c.table_name = 'memories' AND NOT c.before IS NULL AND
    JSON_EXTRACT_PATH_TEXT(CAST((c.before) AS JSON), 'superseded_by') IS NULL AND NOT
    JSON_EXTRACT_PATH_TEXT(CAST((c.after) AS JSON), 'superseded_by') IS NULL) AND c.store_id = :store_id) THEN 'merged'
    WHEN EXISTS(SELECT 1 FROM curation_changes AS c WHERE (c.entry_id = curation_log.id AND c.table_name = 'memories'
    AND c.after IS NULL) AND c.store_id = :store_id) THEN 'forgotten' ELSE action END AS effect, (SELECT
    CAST(coalesce(json_agg(memory_id), '[]') AS text) FROM curation_items WHERE entry_id = curation_log.id AND
    curation_items.store_id = :store_id) AS memories
FROM curation_log
WHERE agent_id = :agent AND curation_log.store_id = :store_id
ORDER BY id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
-- storage.curation: runs
SELECT job, at, effect, COUNT(*) AS entries, SUM(open) AS open, SUM(due) AS due
FROM (SELECT job, at, CASE WHEN EXISTS(SELECT 1 FROM curation_changes AS c WHERE (c.entry_id = curation_log.id AND
    c.table_name = 'memories' AND c.before IS NULL) AND c.store_id = :store_id) THEN CASE WHEN EXISTS(SELECT 1 FROM
    curation_changes AS c WHERE (c.entry_id = curation_log.id AND c.table_name = 'memories' AND NOT c.before IS NULL AND
    JSON_EXTRACT_PATH_TEXT(CAST((c.before) AS JSON), 'superseded_by') IS NULL AND NOT
    JSON_EXTRACT_PATH_TEXT(CAST((c.after) AS JSON), 'superseded_by') IS NULL) AND c.store_id = :store_id) THEN
    'replaced' ELSE 'learned' END WHEN EXISTS(SELECT 1 FROM curation_changes AS c WHERE (c.entry_id = curation_log.id
    AND c.table_name = 'memories' AND NOT c.before IS NULL AND JSON_EXTRACT_PATH_TEXT(CAST((c.before) AS JSON),
    'superseded_by') IS NULL AND NOT JSON_EXTRACT_PATH_TEXT(CAST((c.after) AS JSON), 'superseded_by') IS NULL) AND
    c.store_id = :store_id) THEN 'merged' WHEN EXISTS(SELECT 1 FROM curation_changes AS c WHERE (c.entry_id =
    curation_log.id AND c.table_name = 'memories' AND c.after IS NULL) AND c.store_id = :store_id) THEN 'forgotten' ELSE
    action END AS effect, CASE WHEN COALESCE(undone_at, accepted_at) IS NULL THEN 1 ELSE 0 END AS open, CASE WHEN NOT
    sensitive IS NULL AND COALESCE(undone_at, accepted_at) IS NULL THEN 1 ELSE 0 END AS due FROM curation_log WHERE
    (agent_id = :agent AND (job, at) IN (SELECT job, at FROM curation_log WHERE agent_id = :agent AND
    curation_log.store_id = :store_id GROUP BY job, at ORDER BY at DESC, job LIMIT NULLIF(CAST(:limit AS BIGINT), -1)))
    AND curation_log.store_id = :store_id) AS e
GROUP BY job, at, effect
ORDER BY at DESC, job, effect NULLS FIRST;
-- storage.curation: ids
SELECT id
FROM curation_log
WHERE agent_id = :agent AND curation_log.store_id = :store_id;
SELECT id
FROM curation_log
WHERE (REPLACE(REPLACE(job, 'reverie.', ''), '_', '-') = :job AND action = :action AND at = :at AND id IN (SELECT
    entry_id FROM curation_items WHERE memory_id = :memory AND curation_items.store_id = :store_id) AND agent_id =
    :agent AND at >= :since AND NOT undone_at IS NULL AND NOT sensitive IS NULL AND COALESCE(undone_at, accepted_at) IS
    NULL) AND curation_log.store_id = :store_id;
-- storage.curation: accept
UPDATE curation_log
SET accepted_at = :at
WHERE (COALESCE(undone_at, accepted_at) IS NULL AND COALESCE(:agent, agent_id) = agent_id AND id = ANY(CAST(:ids AS
    BIGINT[]))) AND curation_log.store_id = :store_id
RETURNING id;
-- storage.curation: get
SELECT id AS id, at AS at, job AS job, agent_id AS agent, action AS action, why AS why, session_id AS session, undone_at
    AS undone_at, accepted_at AS accepted_at, sensitive AS sensitive, CASE WHEN EXISTS(SELECT 1 FROM curation_changes AS
    c WHERE (c.entry_id = curation_log.id AND c.table_name = 'memories' AND c.before IS NULL) AND c.store_id =
    :store_id) THEN CASE WHEN EXISTS(SELECT 1 FROM curation_changes AS c WHERE (c.entry_id = curation_log.id AND
    c.table_name = 'memories' AND NOT c.before IS NULL AND JSON_EXTRACT_PATH_TEXT(CAST((c.before) AS JSON),
    'superseded_by') IS NULL AND NOT JSON_EXTRACT_PATH_TEXT(CAST((c.after) AS JSON), 'superseded_by') IS NULL) AND
    c.store_id = :store_id) THEN 'replaced' ELSE 'learned' END WHEN EXISTS(SELECT 1 FROM curation_changes AS c WHERE
    (c.entry_id = curation_log.id AND c.table_name = 'memories' AND NOT c.before IS NULL AND
    JSON_EXTRACT_PATH_TEXT(CAST((c.before) AS JSON), 'superseded_by') IS NULL AND NOT
    JSON_EXTRACT_PATH_TEXT(CAST((c.after) AS JSON), 'superseded_by') IS NULL) AND c.store_id = :store_id) THEN 'merged'
    WHEN EXISTS(SELECT 1 FROM curation_changes AS c WHERE (c.entry_id = curation_log.id AND c.table_name = 'memories'
    AND c.after IS NULL) AND c.store_id = :store_id) THEN 'forgotten' ELSE action END AS effect, (SELECT
    CAST(coalesce(json_agg(memory_id), '[]') AS text) FROM curation_items WHERE entry_id = curation_log.id AND
    curation_items.store_id = :store_id) AS memories
FROM curation_log
WHERE (id = :id AND COALESCE(:agent, agent_id) = agent_id) AND curation_log.store_id = :store_id;
-- storage.curation: changes
SELECT table_name, before, after
FROM curation_changes
WHERE entry_id = :id AND curation_changes.store_id = :store_id
ORDER BY seq;
-- storage.curation: undone
SELECT i.agent_id, i.memory_id
FROM curation_log AS l
JOIN curation_items AS i ON i.entry_id = l.id
WHERE ((l.action = :action AND NOT l.undone_at IS NULL) AND l.store_id = :store_id) AND i.store_id = :store_id;
-- storage.curation: undone_together
SELECT l.agent_id, (SELECT CAST(coalesce(json_agg(memory_id), '[]') AS text) FROM curation_items WHERE entry_id = l.id
    AND curation_items.store_id = :store_id)
FROM curation_log AS l
WHERE (l.action = :action AND NOT l.undone_at IS NULL) AND l.store_id = :store_id;
-- storage.curation: mark_undone
UPDATE curation_log
SET undone_at = :at, undone_by = NULLIF(:request, '')
WHERE id = :id AND curation_log.store_id = :store_id;
-- storage.curation: was_undone_by
SELECT undone_by
FROM curation_log
WHERE id = :id AND curation_log.store_id = :store_id;
-- storage.curation: undone_by
SELECT id
FROM curation_log
WHERE (undone_by = :request AND COALESCE(:agent, agent_id) = agent_id) AND curation_log.store_id = :store_id
ORDER BY id DESC;
-- storage.curation: later_entry
SELECT MIN(l.id)
FROM curation_log AS l
JOIN curation_changes AS c ON c.entry_id = l.id
WHERE ((l.id > :entry AND l.undone_at IS NULL AND c.table_name = :table AND
    JSON_EXTRACT_PATH_TEXT(CAST((COALESCE(c.after, c.before)) AS JSON), 'x') = CAST(:x AS TEXT)) AND l.store_id =
    :store_id) AND c.store_id = :store_id;
-- storage.curation: forget_memories
DELETE FROM curation_log
WHERE id IN (SELECT entry_id FROM curation_items WHERE (agent_id = :agent AND memory_id = ANY(CAST(:ids AS TEXT[]))) AND
    curation_items.store_id = :store_id) AND curation_log.store_id = :store_id;
-- storage.curation: forget_removed
DELETE FROM curation_changes
WHERE (entry_id IN (SELECT entry_id FROM curation_items WHERE (agent_id = :agent AND memory_id = :id) AND
    curation_items.store_id = :store_id) AND entry_id IN (SELECT id FROM curation_log WHERE NOT undone_at IS NULL AND
    curation_log.store_id = :store_id)) AND curation_changes.store_id = :store_id
RETURNING entry_id;
-- storage.curation: forget_removed
DELETE FROM curation_log
WHERE (undone_at IS NULL AND id IN (SELECT entry_id FROM curation_items WHERE (agent_id = :agent AND memory_id = :id)
    AND curation_items.store_id = :store_id)) AND curation_log.store_id = :store_id;
-- storage.curation: forget_session
DELETE FROM curation_log
WHERE (agent_id = :agent AND (session_id = :session OR id IN (SELECT entry_id FROM curation_changes WHERE (table_name =
    'memories' AND JSON_EXTRACT_PATH_TEXT(CAST((COALESCE(after, before)) AS JSON), 'session_row') = CAST(:row AS TEXT))
    AND curation_changes.store_id = :store_id))) AND curation_log.store_id = :store_id;
-- storage.curation: of_origin
SELECT DISTINCT l.id, JSON_EXTRACT_PATH_TEXT(CAST((c.metadata) AS JSON), 'ref_code')
FROM (SELECT entry_id, CASE WHEN (JSON_VALID((JSON_EXTRACT_PATH_TEXT(CAST((COALESCE(after, before)) AS JSON),
    'metadata')))) <> 0 THEN (JSON_EXTRACT_PATH_TEXT(CAST((COALESCE(after, before)) AS JSON), 'metadata')) ELSE '[]' END
    AS metadata FROM curation_changes WHERE table_name = 'memories' AND curation_changes.store_id = :store_id) AS c
JOIN curation_log AS l ON l.id = c.entry_id
WHERE (JSON_EXTRACT_PATH_TEXT(CAST((c.metadata) AS JSON), 'workspace') = CAST(:workspace AS TEXT) AND l.agent_id =
    COALESCE(:agent, l.agent_id) AND COALESCE(:session, JSON_EXTRACT_PATH_TEXT(CAST((c.metadata) AS JSON), 'session'))
    IS NOT DISTINCT FROM JSON_EXTRACT_PATH_TEXT(CAST((c.metadata) AS JSON), 'session')) AND l.store_id = :store_id;
-- storage.curation: forget_entries
DELETE FROM curation_log
WHERE id = ANY(CAST(:ids AS BIGINT[])) AND curation_log.store_id = :store_id;
-- storage.curation: prune
DELETE FROM curation_log
WHERE id IN (SELECT id FROM curation_log WHERE at < :before AND curation_log.store_id = :store_id ORDER BY at LIMIT
    NULLIF(CAST(:limit AS BIGINT), -1)) AND curation_log.store_id = :store_id;
-- storage.curation: _check_not_recording
SELECT 1
FROM curation_recording
WHERE curation_recording.store_id = :store_id;
-- storage.curation: _end_recording
DELETE FROM curation_recording
WHERE curation_recording.store_id = :store_id;
-- storage.index.forward: position
SELECT HIGHEST_NUMBER('forward_changes') AS seq;
-- storage.index.forward: count
SELECT COUNT(*)
FROM forward_index
WHERE agent_id = :agent AND forward_index.store_id = :store_id;
-- storage.index.forward: any
SELECT 1
FROM forward_index
WHERE agent_id = :agent AND forward_index.store_id = :store_id LIMIT 1;
-- storage.index.forward: changes
SELECT MIN(seq)
FROM forward_changes
WHERE forward_changes.store_id = :store_id;
-- storage.index.forward: changes
SELECT chunk_id, kind
FROM forward_changes
WHERE (agent_id = :agent AND seq > :after) AND forward_changes.store_id = :store_id
ORDER BY seq LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.index.forward: rows
SELECT chunk_id AS chunk_id, thread AS thread, sequence AS sequence, created_at AS created_at, role AS role, speaker AS
    speaker, words AS words, audience AS audience
FROM forward_index
WHERE agent_id = :agent AND forward_index.store_id = :store_id
ORDER BY chunk_id;
-- storage.index.forward: rows_of
SELECT chunk_id AS chunk_id, thread AS thread, sequence AS sequence, created_at AS created_at, role AS role, speaker AS
    speaker, words AS words, audience AS audience
FROM forward_index
WHERE (agent_id = :agent AND chunk_id = ANY(CAST(:ids AS BIGINT[]))) AND forward_index.store_id = :store_id
ORDER BY chunk_id;
-- storage.index.forward: audiences_of
SELECT chunk_id, audience
FROM forward_index
WHERE (agent_id = :agent AND chunk_id = ANY(CAST(:ids AS BIGINT[]))) AND forward_index.store_id = :store_id;
-- storage.index.forward: vectors
SELECT f.chunk_id, v.embedding
FROM forward_index AS f
JOIN chunks_vec AS v ON v.chunk_id = f.chunk_id AND v.model = :model
WHERE (f.agent_id = :agent AND f.store_id = :store_id) AND v.store_id = :store_id
ORDER BY f.chunk_id;
-- storage.index.forward: vectors_of
SELECT chunk_id, embedding
FROM chunks_vec AS v
WHERE (model = :model AND chunk_id = ANY(CAST(:ids AS BIGINT[])) AND (SELECT agent_id FROM chunks WHERE id = v.chunk_id
    AND chunks.store_id = :store_id) = :agent) AND v.store_id = :store_id
ORDER BY chunk_id;
-- storage.index.forward: prune_changes
DELETE FROM forward_changes
WHERE seq IN (SELECT seq FROM forward_changes WHERE seq <= (SELECT MAX(seq) FROM forward_changes WHERE
    forward_changes.store_id = :store_id) - :kept AND forward_changes.store_id = :store_id ORDER BY seq LIMIT
    NULLIF(CAST(:step AS BIGINT), -1)) AND forward_changes.store_id = :store_id;
-- storage.index.forward: largest_agents
SELECT agent_id, COUNT(*) AS chunks
FROM forward_index
WHERE forward_index.store_id = :store_id
GROUP BY agent_id
ORDER BY chunks DESC NULLS LAST LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.index.search_index: _read
SELECT id AS id, kind AS kind, model AS model, dim AS dim, state AS state, built_to AS built_to, embedder AS embedder
FROM indexes
WHERE indexes.store_id = :store_id
ORDER BY state, id;
-- storage.index.search_index: create
INSERT INTO indexes (kind, model, dim, state, built_to, created_at, embedder)
VALUES (:kind, :model, :dim, :state, :built_to, :now, :embedder)
RETURNING id;
-- storage.index.search_index: drop
DELETE FROM indexes
WHERE id = :id AND indexes.store_id = :store_id;
-- storage.index.search_index: promote
DELETE FROM indexes
WHERE id = :id AND indexes.store_id = :store_id;
-- storage.index.search_index: promote
UPDATE indexes
SET state = 'active', built_to = :all
WHERE id = :id AND indexes.store_id = :store_id;
-- storage.index.search_index: create_missing_indexes
SELECT 1
FROM indexes
WHERE (kind = 'text' AND state = 'active') AND indexes.store_id = :store_id;
-- storage.index.search_index: forget_endpoints
UPDATE indexes
SET embedder = JSON_REMOVE(embedder, '$.base_url')
WHERE ((JSON_VALID(embedder)) <> 0 AND NOT JSON_EXTRACT_PATH_TEXT(CAST((embedder) AS JSON), 'base_url') IS NULL) AND
    indexes.store_id = :store_id;
-- storage.items: get
SELECT row_id AS row_id, namespace AS namespace, key AS key, value AS value, created_at AS created_at, updated_at AS
    updated_at, expires_at AS expires_at, ttl_seconds AS ttl_seconds, CAST(CAST((NOT index_fields IS NULL) AS INT) AS
    BIGINT) AS is_indexed, embedding_model AS embedding_model
FROM items
WHERE (agent_id = :agent AND COALESCE(user_id, '') = :user AND namespace = :namespace AND key = :key AND (expires_at IS
    NULL OR expires_at > :alive_at)) AND items.store_id = :store_id;
-- storage.items: put
INSERT INTO items (agent_id, user_id, namespace, key, value, created_at, updated_at, stored_at, ttl_seconds, expires_at,
    index_fields, embedding_model)
VALUES (:agent, NULLIF(:user, ''), :namespace, :key, :value, :now, :now, :now, :ttl_seconds, :expires_at, :index_fields,
    :embedding_model) ON CONFLICT(store_id, agent_id, COALESCE(user_id, ''), namespace, key) DO UPDATE
SET value = excluded.value, updated_at = excluded.updated_at, stored_at = excluded.stored_at, ttl_seconds =
    excluded.ttl_seconds, expires_at = excluded.expires_at, index_fields = excluded.index_fields, embedding_model =
    excluded.embedding_model
RETURNING row_id AS row_id, namespace AS namespace, key AS key, value AS value, created_at AS created_at, updated_at AS
    updated_at, expires_at AS expires_at, ttl_seconds AS ttl_seconds, CAST(CAST((NOT index_fields IS NULL) AS INT) AS
    BIGINT) AS is_indexed, embedding_model AS embedding_model;
-- storage.items: put
DELETE FROM item_vectors
WHERE item_row = :row AND item_vectors.store_id = :store_id;
-- storage.items: put
DELETE FROM claims
WHERE (stage = 'items' AND item_id = :row) AND claims.store_id = :store_id;
-- storage.items: delete
DELETE FROM items
WHERE (agent_id = :agent AND COALESCE(user_id, '') = :user AND namespace = :namespace AND key = :key) AND items.store_id
    = :store_id;
-- storage.items: newest
SELECT row_id AS row_id, namespace AS namespace, key AS key, value AS value, created_at AS created_at, updated_at AS
    updated_at, expires_at AS expires_at, ttl_seconds AS ttl_seconds, CAST(CAST((NOT index_fields IS NULL) AS INT) AS
    BIGINT) AS is_indexed, embedding_model AS embedding_model
FROM items
WHERE (agent_id = :agent AND COALESCE(user_id, '') = :user AND (namespace = :exactly OR namespace >= :from_text AND
    namespace < :to_text) AND (expires_at IS NULL OR expires_at > :alive_at)) AND items.store_id = :store_id
ORDER BY updated_at DESC, row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
-- storage.items: all_newest
SELECT row_id AS row_id, namespace AS namespace, key AS key, value AS value, created_at AS created_at, updated_at AS
    updated_at, expires_at AS expires_at, ttl_seconds AS ttl_seconds, CAST(CAST((NOT index_fields IS NULL) AS INT) AS
    BIGINT) AS is_indexed, embedding_model AS embedding_model
FROM items
WHERE (agent_id = :agent AND COALESCE(user_id, '') = :user AND (namespace = :exactly OR namespace >= :from_text AND
    namespace < :to_text) AND (expires_at IS NULL OR expires_at > :alive_at)) AND items.store_id = :store_id
ORDER BY updated_at DESC, row_id DESC;
-- storage.items: rows
SELECT row_id AS row_id, namespace AS namespace, key AS key, value AS value, created_at AS created_at, updated_at AS
    updated_at, expires_at AS expires_at, ttl_seconds AS ttl_seconds, CAST(CAST((NOT index_fields IS NULL) AS INT) AS
    BIGINT) AS is_indexed, embedding_model AS embedding_model
FROM items
WHERE (agent_id = :agent AND COALESCE(user_id, '') = :user AND row_id = ANY(CAST(:rows AS BIGINT[]))) AND items.store_id
    = :store_id;
-- storage.items: vectors
SELECT v.item_row, v.embedding
FROM items
JOIN item_vectors AS v ON v.item_row = items.row_id
WHERE ((agent_id = :agent AND COALESCE(user_id, '') = :user AND (namespace = :exactly OR namespace >= :from_text AND
    namespace < :to_text) AND (expires_at IS NULL OR expires_at > :alive_at) AND embedding_model = :model) AND
    items.store_id = :store_id) AND v.store_id = :store_id;
-- storage.items: namespaces
SELECT DISTINCT namespace
FROM items
WHERE (agent_id = :agent AND COALESCE(user_id, '') = :user AND (namespace = :exactly OR namespace >= :from_text AND
    namespace < :to_text) AND (expires_at IS NULL OR expires_at > :alive_at)) AND items.store_id = :store_id;
-- storage.items: refresh
UPDATE items
SET expires_at = :now + CAST(ttl_seconds * 1000000 AS BIGINT)
WHERE (agent_id = :agent AND COALESCE(user_id, '') = :user AND NOT ttl_seconds IS NULL AND row_id = ANY(CAST(:rows AS
    BIGINT[]))) AND items.store_id = :store_id;
-- storage.items: remove_expired
DELETE FROM items
WHERE row_id IN (SELECT row_id FROM items WHERE (agent_id = :agent AND COALESCE(user_id, '') = :user AND NOT expires_at
    IS NULL AND expires_at <= :now) AND items.store_id = :store_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AND
    items.store_id = :store_id;
-- storage.items: any_of_other_models
SELECT 1
FROM items
WHERE (NOT index_fields IS NULL AND NOT embedding_model IS NULL AND embedding_model <> :model) AND items.store_id =
    :store_id LIMIT 1;
-- storage.items: rows
SELECT row_id, value, index_fields, stored_at
FROM items
WHERE (embedding_model IS NULL AND NOT index_fields IS NULL AND row_id = ANY(CAST(:rows AS BIGINT[]))) AND
    items.store_id = :store_id
ORDER BY row_id;
-- storage.items: put_vectors
UPDATE items
SET embedding_model = :model
WHERE (row_id = :row AND stored_at = :stored_at AND embedding_model IS NULL AND NOT index_fields IS NULL) AND
    items.store_id = :store_id;
-- storage.items: wait_again
DELETE FROM item_vectors
WHERE item_row IN (SELECT row_id FROM items WHERE (NOT index_fields IS NULL AND NOT embedding_model IS NULL AND
    embedding_model <> :model) AND items.store_id = :store_id) AND item_vectors.store_id = :store_id;
-- storage.items: wait_again
UPDATE items
SET embedding_model = NULL
WHERE (NOT index_fields IS NULL AND NOT embedding_model IS NULL AND embedding_model <> :model) AND items.store_id =
    :store_id;
-- storage.leases: last_token
SELECT CASE WHEN job_leases.lease_until <= :now OR job_leases.lease_until > :now + 2 * :length THEN token ELSE -1 END
FROM job_leases
WHERE job = :job AND job_leases.store_id = :store_id;
-- storage.leases: holder
SELECT token
FROM job_leases
WHERE (job = :job AND lease_until > 0) AND job_leases.store_id = :store_id;
-- storage.leases: acquire
INSERT INTO job_leases (job, token, lease_until)
VALUES (:job, :token, :until) ON CONFLICT(store_id, job) DO UPDATE
SET token = :token, lease_until = :until
WHERE (job_leases.lease_until <= :now OR job_leases.lease_until > :now + 2 * :length) AND COALESCE(:after,
    job_leases.token) = job_leases.token;
-- storage.leases: renew
UPDATE job_leases
SET lease_until = :until
WHERE (job = :job AND token = :token) AND job_leases.store_id = :store_id;
-- storage.leases: release
UPDATE job_leases
SET lease_until = 0
WHERE (job = :job AND token = :token) AND job_leases.store_id = :store_id;
-- storage.leases: progress
SELECT position
FROM job_progress
WHERE (job = :job AND item = :item) AND job_progress.store_id = :store_id;
-- storage.leases: items
SELECT item
FROM job_progress
WHERE job = :job AND job_progress.store_id = :store_id
ORDER BY item;
-- storage.leases: drop
DELETE FROM job_progress
WHERE (job = :job AND item = :item) AND job_progress.store_id = :store_id;
-- storage.leases: set
INSERT INTO job_progress (job, item, position, at)
VALUES (:job, :item, :position, :now) ON CONFLICT(store_id, job, item) DO UPDATE
SET position = excluded.position, at = excluded.at;
-- storage.leases: deaths
SELECT item, position
FROM job_progress
WHERE (job = :job AND item >= :first AND item < :last) AND job_progress.store_id = :store_id;
-- storage.leases: read
SELECT CONCAT_WS(' ', (SELECT MAX(row_id) FROM messages WHERE messages.store_id = :store_id), (SELECT MAX(id) FROM
    recall_events WHERE recall_events.store_id = :store_id), (SELECT MAX(id) FROM curation_log WHERE
    curation_log.store_id = :store_id), (SELECT MAX(undone_at) FROM curation_log WHERE curation_log.store_id =
    :store_id), (SELECT CONCAT_WS(' ', COUNT(*), MAX(row_id), MAX(updated_at), MAX(accessed_at), SUM(access_count),
    COUNT(superseded_by), SUM(pinned)) FROM memories WHERE memories.store_id = :store_id), (SELECT CONCAT_WS(' ',
    COUNT(*), MAX(row_id), MAX(updated_at), MAX(ended_at), SUM(summary_epoch)) FROM sessions WHERE sessions.store_id =
    :store_id));
-- storage.lifecycle.erased_rows: select
SELECT id
FROM sessions
WHERE row_id = ANY(CAST(:rows AS BIGINT[])) AND sessions.store_id = :store_id;
-- storage.lifecycle.erased_rows: select
SELECT row_id
FROM sessions
WHERE (agent_id = :agent AND (is_group) <> 0 AND row_id IN (SELECT session_row FROM session_users WHERE (agent_id =
    :agent AND user_id = :id) AND session_users.store_id = :store_id) AND EXISTS(SELECT 1 FROM session_users AS u WHERE
    (u.session_row = sessions.row_id AND u.user_id <> :id) AND u.store_id = :store_id)) AND sessions.store_id =
    :store_id;
-- storage.lifecycle.erased_rows: are_about
SELECT COUNT(*)
FROM sessions
WHERE (agent_id = :agent AND row_id = ANY(CAST(:rows AS BIGINT[])) AND (FALSE)) AND sessions.store_id = :store_id;
-- storage.lifecycle.erased_rows: count
SELECT COUNT(*)
FROM sessions
WHERE (agent_id = :agent AND row_id = ANY(CAST(:sessions AS BIGINT[]))) AND sessions.store_id = :store_id;
SELECT COUNT(*)
FROM messages
WHERE (agent_id = :agent AND (session_row = ANY(CAST(:sessions AS BIGINT[])) OR row_id = ANY(CAST(:messages AS
    BIGINT[])))) AND messages.store_id = :store_id;
SELECT COUNT(*)
FROM files
WHERE (agent_id = :agent AND (session_row = ANY(CAST(:sessions AS BIGINT[])) OR row_id = ANY(CAST(:files AS BIGINT[]))))
    AND files.store_id = :store_id;
SELECT COUNT(*)
FROM memories
WHERE (agent_id = :agent AND row_id = ANY(CAST(:memories AS BIGINT[]))) AND memories.store_id = :store_id;
SELECT COUNT(*)
FROM memory_promotions
WHERE (agent_id = :agent AND memory_id IN (SELECT id FROM memories WHERE (agent_id = :agent AND row_id =
    ANY(CAST(:memories AS BIGINT[]))) AND memories.store_id = :store_id)) AND memory_promotions.store_id = :store_id;
SELECT COUNT(*)
FROM scratchpads
WHERE (agent_id = :agent AND session_row = ANY(CAST(:sessions AS BIGINT[]))) AND scratchpads.store_id = :store_id;
-- storage.lifecycle.erased_rows: count_memories
SELECT COUNT(*)
FROM memories
WHERE (agent_id = :agent AND tenant IS NOT DISTINCT FROM :tenant AND (COALESCE((SELECT id FROM sessions WHERE row_id =
    memories.session_row AND sessions.store_id = :store_id), JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN
    (JSON_VALID(memories.metadata)) <> 0 THEN memories.metadata ELSE '[]' END) AS JSON), 'session'), :session) =
    :session AND (source_message = :id OR EXISTS(SELECT 1 FROM JSON_ELEMENTS(CASE WHEN (JSON_VALID(memories.metadata))
    <> 0 THEN memories.metadata ELSE '[]' END, 'evidence') WITH ORDINALITY AS json_each(value, key) WHERE value = :id))
    AND stored_at <= :before)) AND memories.store_id = :store_id;
SELECT COUNT(*)
FROM memories
WHERE (agent_id = :agent AND tenant IS NOT DISTINCT FROM :tenant AND ((COALESCE((SELECT id FROM sessions WHERE row_id =
    memories.session_row AND sessions.store_id = :store_id), JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN
    (JSON_VALID(memories.metadata)) <> 0 THEN memories.metadata ELSE '[]' END) AS JSON), 'session'), :session) =
    :session AND (source_message = :id OR EXISTS(SELECT 1 FROM JSON_ELEMENTS(CASE WHEN (JSON_VALID(memories.metadata))
    <> 0 THEN memories.metadata ELSE '[]' END, 'evidence') WITH ORDINALITY AS json_each(value, key) WHERE value = :id))
    AND stored_at <= :before) AND JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(memories.metadata)) <> 0 THEN
    memories.metadata ELSE '[]' END) AS JSON), 'workspace') = CAST(:origin AS TEXT))) AND memories.store_id = :store_id;
-- storage.lifecycle.erased_rows: texts
SELECT *
FROM sessions
WHERE (agent_id = :agent AND row_id = ANY(CAST(:sessions AS BIGINT[]))) AND sessions.store_id = :store_id;
SELECT *
FROM messages
WHERE (agent_id = :agent AND (session_row = ANY(CAST(:sessions AS BIGINT[])) OR row_id = ANY(CAST(:messages AS
    BIGINT[])))) AND messages.store_id = :store_id;
SELECT *
FROM files
WHERE (agent_id = :agent AND (session_row = ANY(CAST(:sessions AS BIGINT[])) OR row_id = ANY(CAST(:files AS BIGINT[]))))
    AND files.store_id = :store_id;
SELECT *
FROM memories
WHERE (agent_id = :agent AND row_id = ANY(CAST(:memories AS BIGINT[]))) AND memories.store_id = :store_id;
SELECT *
FROM memory_promotions
WHERE (agent_id = :agent AND memory_id IN (SELECT id FROM memories WHERE (agent_id = :agent AND row_id =
    ANY(CAST(:memories AS BIGINT[]))) AND memories.store_id = :store_id)) AND memory_promotions.store_id = :store_id;
SELECT *
FROM scratchpads
WHERE (agent_id = :agent AND session_row = ANY(CAST(:sessions AS BIGINT[]))) AND scratchpads.store_id = :store_id;
-- storage.lifecycle.erased_rows: texts
SELECT before
FROM curation_changes
WHERE entry_id = ANY(CAST(:curation_log AS BIGINT[])) AND curation_changes.store_id = :store_id
UNION ALL SELECT after
FROM curation_changes
WHERE entry_id = ANY(CAST(:curation_log AS BIGINT[])) AND curation_changes.store_id = :store_id;
-- storage.lifecycle.erased_rows: vectors
-- composed of the rows and columns that it is given
-- storage.lifecycle.erased_rows: names
-- composed of the rows and columns that it is given
-- storage.lifecycle.erased_rows: sessions_of
SELECT id
FROM sessions
WHERE row_id = ANY(CAST(:sessions AS BIGINT[])) AND sessions.store_id = :store_id
UNION SELECT s.id
FROM messages AS m
JOIN sessions AS s ON s.row_id = m.session_row
WHERE (m.row_id = ANY(CAST(:messages AS BIGINT[])) AND m.store_id = :store_id) AND s.store_id = :store_id;
-- storage.lifecycle.erased_rows: _about
SELECT row_id
FROM sessions
WHERE (agent_id = :agent AND FALSE) AND sessions.store_id = :store_id
UNION SELECT row_id
FROM sessions
WHERE (agent_id = :agent AND FALSE) AND sessions.store_id = :store_id
ORDER BY 1;
SELECT row_id
FROM messages
WHERE (agent_id = :agent AND FALSE) AND messages.store_id = :store_id
UNION SELECT row_id
FROM messages
WHERE (agent_id = :agent AND FALSE) AND messages.store_id = :store_id
ORDER BY 1;
SELECT row_id
FROM files
WHERE (agent_id = :agent AND FALSE) AND files.store_id = :store_id
UNION SELECT row_id
FROM files
WHERE (agent_id = :agent AND FALSE) AND files.store_id = :store_id
ORDER BY 1;
SELECT row_id
FROM memories
WHERE (agent_id = :agent AND FALSE) AND memories.store_id = :store_id
UNION SELECT row_id
FROM memories
WHERE (agent_id = :agent AND FALSE) AND memories.store_id = :store_id
ORDER BY 1;
SELECT row_id
FROM items
WHERE (agent_id = :agent AND FALSE) AND items.store_id = :store_id
UNION SELECT row_id
FROM items
WHERE (agent_id = :agent AND FALSE) AND items.store_id = :store_id
ORDER BY 1;
SELECT row_id
FROM schedules
WHERE (agent_id = :agent AND FALSE) AND schedules.store_id = :store_id
UNION SELECT row_id
FROM schedules
WHERE (agent_id = :agent AND FALSE) AND schedules.store_id = :store_id
ORDER BY 1;
-- storage.lifecycle.erased_rows: _with_history
WITH RECURSIVE removed(row_id) AS (SELECT CAST(value AS BIGINT) FROM UNNEST(CAST(:rows AS TEXT[])) WITH ORDINALITY AS
    json_each(value, key) UNION SELECT m.row_id FROM removed AS r JOIN memories AS m ON m.superseded_by = r.row_id AND
    ((:is_memory) <> 0 OR m.source_message = :id) WHERE m.store_id = :store_id) SELECT row_id
FROM removed;
-- storage.lifecycle.erased_rows: _chats
SELECT provider, chat_id
FROM sessions
WHERE (agent_id = :agent AND NOT provider IS NULL AND NOT chat_id IS NULL AND (row_id = ANY(CAST(:rows AS BIGINT[])) OR
    id = :session)) AND sessions.store_id = :store_id;
-- storage.lifecycle.erased_rows: _curation
SELECT entry_id
FROM curation_changes
WHERE (table_name = 'memories' AND JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(COALESCE(after, before))) <> 0
    THEN COALESCE(after, before) ELSE '[]' END) AS JSON), 'agent_id') = CAST(:agent AS TEXT) AND
    JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(COALESCE(after, before))) <> 0 THEN COALESCE(after, before) ELSE
    '[]' END) AS JSON), 'source_message') = CAST(:id AS TEXT) AND COALESCE((SELECT id FROM sessions WHERE row_id =
    CAST(JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(COALESCE(after, before))) <> 0 THEN COALESCE(after, before)
    ELSE '[]' END) AS JSON), 'session_row') AS BIGINT) AND sessions.store_id = :store_id),
    JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID((JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN
    (JSON_VALID(COALESCE(after, before))) <> 0 THEN COALESCE(after, before) ELSE '[]' END) AS JSON), 'metadata')))) <> 0
    THEN (JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(COALESCE(after, before))) <> 0 THEN COALESCE(after, before)
    ELSE '[]' END) AS JSON), 'metadata')) ELSE '[]' END) AS JSON), 'session'), :session) = :session) AND
    curation_changes.store_id = :store_id;
SELECT entry_id
FROM curation_changes
WHERE (table_name = 'memories' AND JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(COALESCE(after, before))) <> 0
    THEN COALESCE(after, before) ELSE '[]' END) AS JSON), 'agent_id') = CAST(:agent AS TEXT) AND
    JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(COALESCE(after, before))) <> 0 THEN COALESCE(after, before) ELSE
    '[]' END) AS JSON), 'source_message') = CAST(:id AS TEXT) AND COALESCE((SELECT id FROM sessions WHERE row_id =
    CAST(JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(COALESCE(after, before))) <> 0 THEN COALESCE(after, before)
    ELSE '[]' END) AS JSON), 'session_row') AS BIGINT) AND sessions.store_id = :store_id),
    JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID((JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN
    (JSON_VALID(COALESCE(after, before))) <> 0 THEN COALESCE(after, before) ELSE '[]' END) AS JSON), 'metadata')))) <> 0
    THEN (JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(COALESCE(after, before))) <> 0 THEN COALESCE(after, before)
    ELSE '[]' END) AS JSON), 'metadata')) ELSE '[]' END) AS JSON), 'session'), :session) = :session AND
    JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID((JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN
    (JSON_VALID(COALESCE(after, before))) <> 0 THEN COALESCE(after, before) ELSE '[]' END) AS JSON), 'metadata')))) <> 0
    THEN (JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(COALESCE(after, before))) <> 0 THEN COALESCE(after, before)
    ELSE '[]' END) AS JSON), 'metadata')) ELSE '[]' END) AS JSON), 'workspace') = CAST(:origin AS TEXT)) AND
    curation_changes.store_id = :store_id;
-- storage.lifecycle.erased_rows: _curation
SELECT entry_id
FROM curation_items
WHERE (agent_id = :agent AND memory_id IN (SELECT id FROM memories WHERE row_id = ANY(CAST(:memories AS BIGINT[])) AND
    memories.store_id = :store_id)) AND curation_items.store_id = :store_id
UNION SELECT id
FROM curation_log
WHERE (agent_id = :agent AND session_id = ANY(CAST(:names AS TEXT[]))) AND curation_log.store_id = :store_id
UNION SELECT entry_id
FROM curation_changes
WHERE (table_name = 'memories' AND JSON_EXTRACT_PATH_TEXT(CAST((COALESCE(after, before)) AS JSON), 'session_row') =
    ANY(CAST(:sessions AS TEXT[]))) AND curation_changes.store_id = :store_id;
-- storage.lifecycle.erased_rows: all
SELECT id, NULL
FROM sessions
WHERE agent_id = :agent AND sessions.store_id = :store_id;
SELECT DISTINCT JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(metadata)) <> 0 THEN metadata ELSE '[]' END) AS
    JSON), 'session'), JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(metadata)) <> 0 THEN metadata ELSE '[]' END)
    AS JSON), 'workspace')
FROM memories
WHERE (agent_id = :agent AND session_row IS NULL AND NOT JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(metadata))
    <> 0 THEN metadata ELSE '[]' END) AS JSON), 'session') IS NULL) AND memories.store_id = :store_id;
SELECT m.id, NULL, s.id
FROM messages AS m
JOIN sessions AS s ON s.row_id = m.session_row
WHERE (m.agent_id = :agent AND m.store_id = :store_id) AND s.store_id = :store_id;
SELECT DISTINCT k.source_message, JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(k.metadata)) <> 0 THEN k.metadata
    ELSE '[]' END) AS JSON), 'workspace'), COALESCE(s.id, JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN
    (JSON_VALID(k.metadata)) <> 0 THEN k.metadata ELSE '[]' END) AS JSON), 'session'))
FROM memories AS k
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = k.session_row
WHERE (k.agent_id = :agent AND NOT k.source_message IS NULL) AND k.store_id = :store_id;
SELECT id, NULL
FROM files
WHERE agent_id = :agent AND files.store_id = :store_id;
SELECT id, NULL
FROM memories
WHERE agent_id = :agent AND memories.store_id = :store_id;
-- storage.lifecycle.erased_rows: origins
SELECT DISTINCT JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(metadata)) <> 0 THEN metadata ELSE '[]' END) AS
    JSON), 'workspace')
FROM memories
WHERE (agent_id = :agent AND NOT JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(metadata)) <> 0 THEN metadata ELSE
    '[]' END) AS JSON), 'workspace') IS NULL) AND memories.store_id = :store_id;
-- storage.lifecycle.erased_rows: remove_quoting
-- composed of the rows and columns that it is given
-- storage.lifecycle.erased_rows: _rows
SELECT *
FROM audit_log;
SELECT *
FROM audit_retention;
SELECT *
FROM broker_content
WHERE broker_content.store_id = :store_id;
SELECT *
FROM captured_queries
WHERE captured_queries.store_id = :store_id;
SELECT *
FROM channels
WHERE channels.store_id = :store_id;
SELECT *
FROM chunk_tags
WHERE chunk_tags.store_id = :store_id;
-- storage.lifecycle.erasures: add
INSERT INTO erasures (id, kind, target, target_hash, agent_id, workspace, requested_by, requested_at, step, cutoff,
    rounds, counts, error, receipt, finished_at, attempts, next_try_at)
VALUES (:id, :kind, :target, :target_hash, :agent, :workspace, :requested_by, :requested_at, :step, :cutoff, :rounds,
    :counts, :error, :receipt, :finished_at, :attempts, :next_try_at);
-- storage.lifecycle.erasures: find
SELECT id AS id, kind AS kind, target AS target, target_hash AS target_hash, agent_id AS agent, workspace AS workspace,
    requested_by AS requested_by, requested_at AS requested_at, step AS step, cutoff AS cutoff, rounds AS rounds, counts
    AS counts, error AS error, receipt AS receipt, finished_at AS finished_at, attempts AS attempts, next_try_at AS
    next_try_at
FROM erasures
WHERE id = :id;
-- storage.lifecycle.erasures: page
SELECT id AS id, kind AS kind, target AS target, target_hash AS target_hash, agent_id AS agent, workspace AS workspace,
    requested_by AS requested_by, requested_at AS requested_at, step AS step, cutoff AS cutoff, rounds AS rounds, counts
    AS counts, error AS error, receipt AS receipt, finished_at AS finished_at, attempts AS attempts, next_try_at AS
    next_try_at
FROM erasures
ORDER BY requested_at DESC, id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
-- storage.lifecycle.erasures: hashes_since
SELECT target_hash, COALESCE(cutoff, :all)
FROM erasures
WHERE COALESCE(cutoff, :all) >= :at;
-- storage.lifecycle.erasures: unfinished
SELECT id AS id, kind AS kind, target AS target, target_hash AS target_hash, agent_id AS agent, workspace AS workspace,
    requested_by AS requested_by, requested_at AS requested_at, step AS step, cutoff AS cutoff, rounds AS rounds, counts
    AS counts, error AS error, receipt AS receipt, finished_at AS finished_at, attempts AS attempts, next_try_at AS
    next_try_at
FROM erasures
WHERE finished_at IS NULL
ORDER BY requested_at, id;
-- storage.lifecycle.erasures: advance
UPDATE erasures
SET step = :step, rounds = COALESCE(:rounds, rounds), error = '', attempts = 0, next_try_at = NULL
WHERE id = :id;
-- storage.lifecycle.erasures: set_cutoff
UPDATE erasures
SET cutoff = COALESCE(cutoff, :cutoff)
WHERE id = :id;
-- storage.lifecycle.erasures: forget_target
UPDATE erasures
SET target = NULL
WHERE id = :id;
-- storage.lifecycle.erasures: rename_requester
UPDATE erasures
SET requested_by = :to
WHERE requested_by = :name;
-- storage.lifecycle.erasures: fail
UPDATE erasures
SET error = :error, attempts = attempts + 1, next_try_at = :at
WHERE id = :id;
-- storage.lifecycle.erasures: give_up
DELETE FROM erasure_fragments
WHERE erasure_id = :id;
-- storage.lifecycle.erasures: give_up
UPDATE erasures
SET error = :error, attempts = attempts + 1, next_try_at = NULL, finished_at = :now, target = NULL
WHERE id = :id;
-- storage.lifecycle.erasures: count
SELECT counts
FROM erasures
WHERE id = :id;
-- storage.lifecycle.erasures: count
UPDATE erasures
SET counts = :counts
WHERE id = :id;
-- storage.lifecycle.erasures: finish
DELETE FROM erasure_fragments
WHERE erasure_id = :id;
-- storage.lifecycle.erasures: finish
UPDATE erasures
SET receipt = :receipt, finished_at = :now, target = NULL, step = 'done', error = '', counts = :counts, agent_id = CASE
    WHEN kind = 'agent' THEN :name ELSE agent_id END, workspace = CASE WHEN kind = 'workspace' THEN :name ELSE workspace
    END
WHERE id = :id;
-- storage.lifecycle.erasures: remove_before
DELETE FROM erasures
WHERE finished_at < :before;
-- storage.lifecycle.erasures: add_fragments
INSERT INTO erasure_fragments (erasure_id, kind, hashes)
VALUES (:id, :kind, :hashes);
-- storage.lifecycle.erasures: fragments
SELECT kind, hashes
FROM erasure_fragments
WHERE erasure_id = :id
ORDER BY seq;
-- storage.lifecycle.erasures: begin
INSERT INTO forgets (workspace, agent_id, session_id, file, forgotten_at, requested_at)
VALUES (:workspace, :agent, :session, :incarnation, :forgotten_at, :now)
RETURNING id;
-- storage.lifecycle.erasures: end
DELETE FROM forgets
WHERE id = :id;
-- storage.lifecycle.erasures: open
SELECT id AS id, workspace AS workspace, agent_id AS agent, session_id AS session, file AS incarnation, forgotten_at AS
    forgotten_at, requested_at AS requested_at
FROM forgets
WHERE requested_at < :before OR requested_at > :future
ORDER BY id;
-- storage.lifecycle.exported_rows: count
-- composed of the rows and columns that it is given
-- storage.lifecycle.exported_rows: _read
SELECT t.id AS id, t.content AS content, t.tier AS tier, t.lifetime AS lifetime, t.kind AS kind, t.source AS source,
    t.importance AS importance, t.created_at AS created_at, t.updated_at AS updated_at, t.accessed_at AS accessed_at,
    t.access_count AS access_count, t.expires_at AS expires_at, t.owner_user_id AS owner_user_id, t.tags AS tags,
    t.concept_tags AS concept_tags, t.metadata AS metadata, s.id AS session, t.source_message AS source_message,
    t.channel_id AS channel, t.note_id AS note_id, t.category AS category, t.key AS key, t.value AS value, t.subject AS
    subject, t.confidence AS confidence, t.pinned AS pinned, t.visibility AS visibility, t.superseded_by AS
    superseded_by, t.superseded_at AS superseded_at, t.trace_id AS trace, t.made_by AS made_by, t.confirmed_at AS
    confirmed_at, t.promoted_at AS promoted_at, t.promotion_score AS promotion_score, t.promotion_phase AS
    promotion_phase
FROM memories AS t
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = t.session_row
LEFT JOIN memories AS b ON b.store_id = :store_id AND b.row_id = t.superseded_by
LEFT JOIN memory_promotions AS p ON p.store_id = :store_id AND (p.agent_id = t.agent_id AND p.memory_id = t.id)
WHERE (t.agent_id = :agent AND (:user IS NULL OR t.owner_user_id = :user OR t.owner_user_id IS NULL AND (s.user_id =
    :user AND NOT (s.is_group) <> 0)) AND (:session IS NULL OR s.id = :session) AND (:tenant IS NULL OR
    COALESCE(t.tenant, 'local') = :tenant)) AND t.store_id = :store_id
ORDER BY t.id;
SELECT t.id AS id, t.content AS content, t.tier AS tier, t.lifetime AS lifetime, t.kind AS kind, t.source AS source,
    t.importance AS importance, t.created_at AS created_at, t.updated_at AS updated_at, t.accessed_at AS accessed_at,
    t.access_count AS access_count, t.expires_at AS expires_at, t.owner_user_id AS owner_user_id, t.tags AS tags,
    t.concept_tags AS concept_tags, t.metadata AS metadata, s.id AS session, t.source_message AS source_message,
    t.channel_id AS channel, t.note_id AS note_id, t.category AS category, t.key AS key, t.value AS value, t.subject AS
    subject, t.confidence AS confidence, t.pinned AS pinned, t.visibility AS visibility, t.superseded_by AS
    superseded_by, t.superseded_at AS superseded_at, t.trace_id AS trace, t.made_by AS made_by, t.confirmed_at AS
    confirmed_at, t.promoted_at AS promoted_at, t.promotion_score AS promotion_score, t.promotion_phase AS
    promotion_phase
FROM schedules AS t
WHERE (t.agent_id = :agent AND (:user IS NULL OR t.user_id = :user OR (t.user_id IS NULL AND t.session_id IN (SELECT
    s.id FROM sessions AS s WHERE (s.agent_id = :agent AND (s.user_id = :user AND NOT (s.is_group) <> 0) AND (:session
    IS NULL OR s.id = :session)) AND s.store_id = :store_id))) AND (:session IS NULL OR t.session_id = :session)) AND
    t.store_id = :store_id
ORDER BY t.id;
SELECT t.id AS id, t.content AS content, t.tier AS tier, t.lifetime AS lifetime, t.kind AS kind, t.source AS source,
    t.importance AS importance, t.created_at AS created_at, t.updated_at AS updated_at, t.accessed_at AS accessed_at,
    t.access_count AS access_count, t.expires_at AS expires_at, t.owner_user_id AS owner_user_id, t.tags AS tags,
    t.concept_tags AS concept_tags, t.metadata AS metadata, s.id AS session, t.source_message AS source_message,
    t.channel_id AS channel, t.note_id AS note_id, t.category AS category, t.key AS key, t.value AS value, t.subject AS
    subject, t.confidence AS confidence, t.pinned AS pinned, t.visibility AS visibility, t.superseded_by AS
    superseded_by, t.superseded_at AS superseded_at, t.trace_id AS trace, t.made_by AS made_by, t.confirmed_at AS
    confirmed_at, t.promoted_at AS promoted_at, t.promotion_score AS promotion_score, t.promotion_phase AS
    promotion_phase
FROM schedules AS d
JOIN schedule_runs AS t ON t.agent_id = d.agent_id AND t.schedule_id = d.id
WHERE ((d.agent_id = :agent AND (:user IS NULL OR d.user_id = :user OR (d.user_id IS NULL AND d.session_id IN (SELECT
    s.id FROM sessions AS s WHERE (s.agent_id = :agent AND (s.user_id = :user AND NOT (s.is_group) <> 0) AND (:session
    IS NULL OR s.id = :session)) AND s.store_id = :store_id))) AND (:session IS NULL OR d.session_id = :session)) AND
    d.store_id = :store_id) AND t.store_id = :store_id
ORDER BY t.id;
SELECT t.id AS id, t.content AS content, t.tier AS tier, t.lifetime AS lifetime, t.kind AS kind, t.source AS source,
    t.importance AS importance, t.created_at AS created_at, t.updated_at AS updated_at, t.accessed_at AS accessed_at,
    t.access_count AS access_count, t.expires_at AS expires_at, t.owner_user_id AS owner_user_id, t.tags AS tags,
    t.concept_tags AS concept_tags, t.metadata AS metadata, s.id AS session, t.source_message AS source_message,
    t.channel_id AS channel, t.note_id AS note_id, t.category AS category, t.key AS key, t.value AS value, t.subject AS
    subject, t.confidence AS confidence, t.pinned AS pinned, t.visibility AS visibility, t.superseded_by AS
    superseded_by, t.superseded_at AS superseded_at, t.trace_id AS trace, t.made_by AS made_by, t.confirmed_at AS
    confirmed_at, t.promoted_at AS promoted_at, t.promotion_score AS promotion_score, t.promotion_phase AS
    promotion_phase
FROM memories AS t
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = t.session_row
LEFT JOIN memories AS b ON b.store_id = :store_id AND b.row_id = t.superseded_by
LEFT JOIN memory_promotions AS p ON p.store_id = :store_id AND (p.agent_id = t.agent_id AND p.memory_id = t.id)
WHERE (t.agent_id = :agent AND (:user IS NULL OR t.owner_user_id = :user OR t.owner_user_id IS NULL AND (s.user_id =
    :user AND NOT (s.is_group) <> 0)) AND (:session IS NULL OR s.id = :session) AND (:tenant IS NULL OR
    COALESCE(t.tenant, 'local') = :tenant)) AND t.store_id = :store_id
ORDER BY d.id NULLS FIRST, t.id;
SELECT t.id AS id, t.content AS content, t.tier AS tier, t.lifetime AS lifetime, t.kind AS kind, t.source AS source,
    t.importance AS importance, t.created_at AS created_at, t.updated_at AS updated_at, t.accessed_at AS accessed_at,
    t.access_count AS access_count, t.expires_at AS expires_at, t.owner_user_id AS owner_user_id, t.tags AS tags,
    t.concept_tags AS concept_tags, t.metadata AS metadata, s.id AS session, t.source_message AS source_message,
    t.channel_id AS channel, t.note_id AS note_id, t.category AS category, t.key AS key, t.value AS value, t.subject AS
    subject, t.confidence AS confidence, t.pinned AS pinned, t.visibility AS visibility, t.superseded_by AS
    superseded_by, t.superseded_at AS superseded_at, t.trace_id AS trace, t.made_by AS made_by, t.confirmed_at AS
    confirmed_at, t.promoted_at AS promoted_at, t.promotion_score AS promotion_score, t.promotion_phase AS
    promotion_phase
FROM schedules AS t
WHERE (t.agent_id = :agent AND (:user IS NULL OR t.user_id = :user OR (t.user_id IS NULL AND t.session_id IN (SELECT
    s.id FROM sessions AS s WHERE (s.agent_id = :agent AND (s.user_id = :user AND NOT (s.is_group) <> 0) AND (:session
    IS NULL OR s.id = :session)) AND s.store_id = :store_id))) AND (:session IS NULL OR t.session_id = :session)) AND
    t.store_id = :store_id
ORDER BY d.id NULLS FIRST, t.id;
SELECT t.id AS id, t.content AS content, t.tier AS tier, t.lifetime AS lifetime, t.kind AS kind, t.source AS source,
    t.importance AS importance, t.created_at AS created_at, t.updated_at AS updated_at, t.accessed_at AS accessed_at,
    t.access_count AS access_count, t.expires_at AS expires_at, t.owner_user_id AS owner_user_id, t.tags AS tags,
    t.concept_tags AS concept_tags, t.metadata AS metadata, s.id AS session, t.source_message AS source_message,
    t.channel_id AS channel, t.note_id AS note_id, t.category AS category, t.key AS key, t.value AS value, t.subject AS
    subject, t.confidence AS confidence, t.pinned AS pinned, t.visibility AS visibility, t.superseded_by AS
    superseded_by, t.superseded_at AS superseded_at, t.trace_id AS trace, t.made_by AS made_by, t.confirmed_at AS
    confirmed_at, t.promoted_at AS promoted_at, t.promotion_score AS promotion_score, t.promotion_phase AS
    promotion_phase
FROM schedules AS d
JOIN schedule_runs AS t ON t.agent_id = d.agent_id AND t.schedule_id = d.id
WHERE ((d.agent_id = :agent AND (:user IS NULL OR d.user_id = :user OR (d.user_id IS NULL AND d.session_id IN (SELECT
    s.id FROM sessions AS s WHERE (s.agent_id = :agent AND (s.user_id = :user AND NOT (s.is_group) <> 0) AND (:session
    IS NULL OR s.id = :session)) AND s.store_id = :store_id))) AND (:session IS NULL OR d.session_id = :session)) AND
    d.store_id = :store_id) AND t.store_id = :store_id
ORDER BY d.id, t.id;
-- storage.lifecycle.imported_rows: presence
-- composed of the rows and columns that it is given
-- storage.lifecycle.imported_rows: add_messages
SELECT sequence
FROM messages
WHERE (session_row = :row AND sequence = ANY(CAST(:sequences AS BIGINT[]))) AND messages.store_id = :store_id;
-- storage.lifecycle.imported_rows: add_messages
SELECT last_sequence
FROM sessions
WHERE row_id = :row AND sessions.store_id = :store_id;
-- storage.lifecycle.imported_rows: add_messages
UPDATE sessions
SET last_sequence = :last
WHERE row_id = :row AND sessions.store_id = :store_id;
-- storage.lifecycle.imported_rows: link_successor
UPDATE memories
SET superseded_by = (SELECT b.row_id FROM memories AS b WHERE (b.agent_id = :agent AND b.id = :by) AND b.store_id =
    :store_id)
WHERE (agent_id = :agent AND id = :id AND superseded_by = row_id AND EXISTS(SELECT 1 FROM memories AS b WHERE
    (b.agent_id = :agent AND b.id = :by) AND b.store_id = :store_id)) AND memories.store_id = :store_id;
-- storage.lifecycle.imported_rows: _presence
-- composed of the rows and columns that it is given
-- storage.lifecycle.imported_rows: _has_event
SELECT 1
FROM recall_events
WHERE (recall = :recall AND chunk_id = :chunk) AND recall_events.store_id = :store_id;
-- storage.lifecycle.imported_rows: _add_session
SELECT 1
FROM sessions
WHERE ref_code = :code AND sessions.store_id = :store_id;
-- storage.lifecycle.imported_rows: _add_session
INSERT INTO session_users (session_row, agent_id, user_id)
VALUES (:row, :agent, :user) ON CONFLICT DO NOTHING;
-- storage.lifecycle.imported_rows: _add_memory
UPDATE memories
SET superseded_by = row_id, superseded_at = :at, category = :category, key = :key
WHERE (agent_id = :agent AND id = :id) AND memories.store_id = :store_id;
-- storage.lifecycle.imported_rows: _promote
INSERT INTO memory_promotions (agent_id, memory_id, promoted_at, score, phase)
VALUES (:agent, :id, :at, :score, :phase) ON CONFLICT DO NOTHING;
-- storage.lifecycle.imported_rows: _add_run
SELECT 1
FROM schedules
WHERE (agent_id = :agent AND id = :id) AND schedules.store_id = :store_id;
-- storage.lifecycle.imported_rows: _add_event
UPDATE chunks
SET access_count = access_count + 1, accessed_at = GREATEST(COALESCE(accessed_at, 0), :at)
WHERE id = :chunk AND chunks.store_id = :store_id;
-- storage.lifecycle.imported_rows: _source
-- composed of the rows and columns that it is given
-- storage.lifecycle.imported_rows: _session_row
SELECT row_id
FROM sessions
WHERE (agent_id = :agent AND id = :id) AND sessions.store_id = :store_id;
-- storage.lifecycle.imported_rows: _insert
-- composed of the rows and columns that it is given
-- storage.lifecycle.removal: remove_everything
DELETE FROM forgets
WHERE agent_id = :agent;
DELETE FROM erasure_fragments
WHERE agent_id = :agent;
DELETE FROM erasures
WHERE agent_id = :agent;
DELETE FROM audit_retention
WHERE agent_id = :agent;
DELETE FROM audit_log
WHERE agent_id = :agent;
DELETE FROM quotas
WHERE agent_id = :agent;
-- storage.lifecycle.removal: _forget_sessions
SELECT id
FROM sessions
WHERE row_id = ANY(CAST(:rows AS BIGINT[])) AND sessions.store_id = :store_id;
-- storage.lifecycle.removal: _leave
DELETE FROM session_users
WHERE (agent_id = :agent AND user_id = :user AND session_row = ANY(CAST(:rows AS BIGINT[])) AND NOT EXISTS(SELECT 1 FROM
    messages AS m WHERE (m.session_row = session_users.session_row AND m.user_id = :user) AND m.store_id = :store_id))
    AND session_users.store_id = :store_id;
-- storage.lifecycle.removal: _leave
UPDATE sessions
SET user_id = (SELECT MIN(user_id) FROM session_users WHERE session_row = sessions.row_id AND session_users.store_id =
    :store_id)
WHERE (agent_id = :agent AND user_id = :user AND row_id = ANY(CAST(:rows AS BIGINT[])) AND NOT EXISTS(SELECT 1 FROM
    session_users WHERE (session_row = sessions.row_id AND user_id = :user) AND session_users.store_id = :store_id)) AND
    sessions.store_id = :store_id;
-- storage.lifecycle.removal: _remove_memories
SELECT id
FROM memories
WHERE row_id = ANY(CAST(:rows AS BIGINT[])) AND memories.store_id = :store_id;
-- storage.lifecycle.removal: _remove_memories
DELETE FROM memory_promotions
WHERE (agent_id = :agent AND memory_id = ANY(CAST(:names AS TEXT[]))) AND memory_promotions.store_id = :store_id;
-- storage.lifecycle.removal: _remove_messages
SELECT DISTINCT n.row_id
FROM messages AS m
JOIN messages AS n ON n.session_row = m.session_row AND n.sequence > m.sequence AND NOT n.row_id = ANY(CAST(:messages AS
    BIGINT[]))
JOIN message_chunks AS l ON l.message_row = n.row_id
JOIN chunks AS c ON c.id = l.chunk_id AND c.lead <> ''
WHERE ((((m.agent_id = :agent AND m.row_id = ANY(CAST(:messages AS BIGINT[])) AND n.sequence = (SELECT MIN(f.sequence)
    FROM messages AS f WHERE (f.session_row = m.session_row AND f.sequence > m.sequence AND NOT f.row_id =
    ANY(CAST(:messages AS BIGINT[]))) AND f.store_id = :store_id)) AND m.store_id = :store_id) AND n.store_id =
    :store_id) AND l.store_id = :store_id) AND c.store_id = :store_id;
-- storage.lifecycle.removal: _remove_messages
SELECT DISTINCT s.row_id
FROM messages AS m
JOIN sessions AS s ON s.row_id = m.session_row
WHERE ((m.agent_id = :agent AND m.row_id = ANY(CAST(:messages AS BIGINT[])) AND NOT m.consolidated_at IS NULL AND NOT
    s.summary_text IS NULL) AND m.store_id = :store_id) AND s.store_id = :store_id;
-- storage.lifecycle.removal: _remove_messages
SELECT DISTINCT l.chunk_id
FROM message_chunks AS l
WHERE (l.message_row = ANY(CAST(:rows AS BIGINT[])) AND NOT EXISTS(SELECT 1 FROM message_chunks AS o WHERE (o.chunk_id =
    l.chunk_id AND NOT o.message_row = ANY(CAST(:rows AS BIGINT[]))) AND o.store_id = :store_id)) AND l.store_id =
    :store_id;
-- storage.lifecycle.removal: _remove_messages
SELECT DISTINCT l.chunk_id
FROM message_chunks AS l
WHERE (l.message_row = ANY(CAST(:rows AS BIGINT[])) AND NOT EXISTS(SELECT 1 FROM message_chunks AS o WHERE (o.chunk_id =
    l.chunk_id AND NOT o.message_row = ANY(CAST(:rows AS BIGINT[]))) AND o.store_id = :store_id)) AND l.store_id =
    :store_id;
-- storage.lifecycle.removal: _remove_messages
UPDATE messages
SET chunked_at = NULL
WHERE (agent_id = :agent AND row_id = ANY(CAST(:rows AS BIGINT[]))) AND messages.store_id = :store_id;
-- storage.lifecycle.removal: _forget_summary
UPDATE sessions
SET summary_text = NULL, summary_epoch = summary_epoch + 1, summary_upper_sequence = 0
WHERE (row_id = :row AND agent_id = :agent) AND sessions.store_id = :store_id;
-- storage.lifecycle.removal: _forget_summary
UPDATE messages
SET consolidated_at = NULL
WHERE session_row = :row AND messages.store_id = :store_id;
-- storage.lifecycle.removal: _forget_summary
DELETE FROM curation_log
WHERE (agent_id = :agent AND session_id = (SELECT id FROM sessions WHERE row_id = :row AND sessions.store_id =
    :store_id) AND id IN (SELECT entry_id FROM curation_changes WHERE table_name = 'sessions' AND
    curation_changes.store_id = :store_id)) AND curation_log.store_id = :store_id;
-- storage.lifecycle.removal: _forget_summary
DELETE FROM job_progress
WHERE (job IN (:extract, :summarize) AND item = (SELECT ref_code FROM sessions WHERE row_id = :row AND sessions.store_id
    = :store_id)) AND job_progress.store_id = :store_id;
-- storage.lifecycle.removal: _delete
DELETE FROM messages
WHERE (agent_id = :agent AND row_id = ANY(CAST(:keys AS BIGINT[]))) AND messages.store_id = :store_id;
-- storage.lifecycle.undo: _current
-- composed of the rows and columns that it is given
-- storage.lifecycle.undo: _refuse_if_successor
SELECT row_id
FROM memories
WHERE (superseded_by = :row AND NOT row_id = ANY(CAST(:own_rows AS BIGINT[]))) AND memories.store_id = :store_id LIMIT
    1;
-- storage.lifecycle.undo: _restore
UPDATE memories
SET superseded_by = row_id
WHERE row_id = ANY(CAST(:rows AS BIGINT[])) AND memories.store_id = :store_id;
-- storage.lifecycle.undo: _restore
-- composed of the rows and columns that it is given
-- storage.lifecycle.undo: _restore_columns
-- composed of the rows and columns that it is given
-- storage.lifecycle.undo: _insert_removed
-- composed of the rows and columns that it is given
-- storage.lifecycle.undo: _refuse_orphans
SELECT 1
FROM messages AS t
WHERE (t.row_id = ANY(CAST(:keys AS BIGINT[])) AND (NOT t.session_row IS NULL AND NOT EXISTS(SELECT 1 FROM sessions AS o
    WHERE (o.row_id = t.session_row AND o.agent_id = t.agent_id) AND o.store_id = :store_id))) AND t.store_id =
    :store_id;
SELECT 1
FROM memories AS t
WHERE (t.row_id = ANY(CAST(:keys AS BIGINT[])) AND (NOT t.session_row IS NULL AND NOT EXISTS(SELECT 1 FROM sessions AS o
    WHERE (o.row_id = t.session_row AND o.agent_id = t.agent_id) AND o.store_id = :store_id) OR NOT t.superseded_by IS
    NULL AND NOT EXISTS(SELECT 1 FROM memories AS o WHERE (o.row_id = t.superseded_by AND o.agent_id = t.agent_id) AND
    o.store_id = :store_id))) AND t.store_id = :store_id;
SELECT 1
FROM chunks AS t
WHERE (t.id = ANY(CAST(:keys AS BIGINT[])) AND (NOT t.session_row IS NULL AND NOT EXISTS(SELECT 1 FROM sessions AS o
    WHERE (o.row_id = t.session_row AND o.agent_id = t.agent_id) AND o.store_id = :store_id) OR NOT t.file_row IS NULL
    AND NOT EXISTS(SELECT 1 FROM files AS o WHERE (o.row_id = t.file_row AND o.agent_id = t.agent_id) AND o.store_id =
    :store_id) OR NOT t.memory_row IS NULL AND NOT EXISTS(SELECT 1 FROM memories AS o WHERE (o.row_id = t.memory_row AND
    o.agent_id = t.agent_id) AND o.store_id = :store_id))) AND t.store_id = :store_id;
SELECT 1
FROM recall_events AS t
WHERE (t.id = ANY(CAST(:keys AS BIGINT[])) AND (NOT t.chunk_id IS NULL AND NOT EXISTS(SELECT 1 FROM chunks AS o WHERE
    (o.id = t.chunk_id AND o.agent_id = t.agent_id) AND o.store_id = :store_id))) AND t.store_id = :store_id;
-- storage.lifecycle.withdrawn: being_erased
SELECT kind, target, agent_id, workspace, cutoff
FROM erasures
WHERE finished_at IS NULL;
-- storage.lifecycle.withdrawn: among
SELECT id, agent_id
FROM chunks
WHERE (id = ANY(CAST(:keys AS BIGINT[])) AND NOT COALESCE(session_row, 0) IN (SELECT row_id FROM sessions WHERE agent_id
    = '' AND sessions.store_id = :store_id) AND NOT COALESCE(file_row, 0) IN (SELECT row_id FROM files WHERE agent_id =
    '' AND files.store_id = :store_id)) AND chunks.store_id = :store_id;
SELECT id, agent_id
FROM messages
WHERE (id = ANY(CAST(:keys AS TEXT[])) AND NOT COALESCE(session_row, 0) IN (SELECT row_id FROM sessions WHERE agent_id =
    '' AND sessions.store_id = :store_id)) AND messages.store_id = :store_id;
SELECT id, agent_id
FROM files
WHERE (id = ANY(CAST(:keys AS TEXT[])) AND agent_id <> '' AND NOT COALESCE(session_row, 0) IN (SELECT row_id FROM
    sessions WHERE agent_id = '' AND sessions.store_id = :store_id)) AND files.store_id = :store_id;
SELECT id, agent_id
FROM memories
WHERE (id = ANY(CAST(:keys AS TEXT[])) AND NOT COALESCE(session_row, 0) IN (SELECT row_id FROM sessions WHERE agent_id =
    '' AND sessions.store_id = :store_id)) AND memories.store_id = :store_id;
SELECT id, agent_id
FROM items
WHERE (id = ANY(CAST(:keys AS TEXT[])) AND TRUE) AND items.store_id = :store_id;
SELECT id, agent_id
FROM schedules
WHERE (id = ANY(CAST(:keys AS TEXT[])) AND TRUE) AND schedules.store_id = :store_id;
-- storage.lifecycle.withdrawn: _erased
-- composed of the rows and columns that it is given
-- storage.lifecycle.withdrawn: agents
SELECT agent_id
FROM (SELECT agent_id FROM channels WHERE channels.store_id = :store_id UNION SELECT agent_id FROM sessions WHERE
    sessions.store_id = :store_id UNION SELECT agent_id FROM files WHERE files.store_id = :store_id UNION SELECT
    agent_id FROM memories WHERE memories.store_id = :store_id UNION SELECT agent_id FROM items WHERE items.store_id =
    :store_id UNION SELECT agent_id FROM schedules WHERE schedules.store_id = :store_id UNION SELECT agent_id FROM
    reminders WHERE reminders.store_id = :store_id UNION SELECT agent_id FROM notifications WHERE notifications.store_id
    = :store_id UNION SELECT agent_id FROM dead_letters WHERE dead_letters.store_id = :store_id UNION SELECT agent_id
    FROM curation_log WHERE curation_log.store_id = :store_id)
ORDER BY 1;
-- storage.lifecycle.withdrawn: any
SELECT 1
FROM forgotten_sessions
WHERE forgotten_sessions.store_id = :store_id LIMIT 1;
-- storage.lifecycle.withdrawn: drop
DELETE FROM forgotten_sessions
WHERE forgotten_at <= :at AND forgotten_sessions.store_id = :store_id;
-- storage.lifecycle.withdrawn: forgotten_at
SELECT MAX(forgotten_at)
FROM forgotten_sessions
WHERE (agent_id IN (:agent, '') AND session_id = ANY(CAST(:keys AS TEXT[]))) AND forgotten_sessions.store_id =
    :store_id;
-- storage.lifecycle.withdrawn: messages_forgotten_at
SELECT session_id, MAX(forgotten_at)
FROM forgotten_sessions
WHERE (agent_id IN (:agent, '') AND session_id = ANY(CAST(:keys AS TEXT[]))) AND forgotten_sessions.store_id = :store_id
GROUP BY session_id;
-- storage.maintenance: optimize
DELETE FROM forgotten_sessions
WHERE forgotten_at < :oldest AND forgotten_sessions.store_id = :store_id;
-- storage.maintenance: indexes_to_rebuild
SELECT COUNT(DISTINCT agent_id)
FROM chunks
WHERE chunks.store_id = :store_id;
-- storage.maintenance: indexes_to_rebuild
SELECT COUNT(*)
FROM chunks
WHERE NOT indexed_at IS NULL AND chunks.store_id = :store_id;
-- storage.memories.extraction: waiting
WITH RECURSIVE agents(agent_id) AS (SELECT MIN(agent_id) FROM sessions WHERE agent_id > '' AND sessions.store_id =
    :store_id UNION ALL SELECT (SELECT MIN(s.agent_id) FROM sessions AS s WHERE s.agent_id > a.agent_id AND s.store_id =
    :store_id) FROM agents AS a WHERE NOT a.agent_id IS NULL) SELECT s.row_id AS row_id, s.id AS id, s.agent_id AS
    agent, s.ref_code AS ref_code, s.user_id AS user, s.channel_id AS channel, s.updated_at AS updated_at,
    s.last_sequence AS last_sequence, COALESCE(p.position, 0) AS position, s.is_group AS is_group
FROM agents AS a
JOIN sessions AS s ON s.agent_id = a.agent_id AND s.updated_at >= :since
LEFT JOIN job_progress AS p ON p.store_id = :store_id AND (p.job = :job AND p.item = s.ref_code)
LEFT JOIN job_progress AS r ON r.store_id = :store_id AND (r.job = :job AND r.item = 'retry ' || s.ref_code)
WHERE (s.last_sequence > COALESCE(p.position, 0) AND (COALESCE(r.position, 0) <= :now OR r.at > :now + 60000000) AND
    COALESCE(:agent, s.agent_id) = s.agent_id) AND s.store_id = :store_id
ORDER BY s.updated_at, s.row_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.memories.extraction: oldest_waiting
WITH RECURSIVE agents(agent_id) AS (SELECT MIN(agent_id) FROM sessions WHERE agent_id > '' AND sessions.store_id =
    :store_id UNION ALL SELECT (SELECT MIN(s.agent_id) FROM sessions AS s WHERE s.agent_id > a.agent_id AND s.store_id =
    :store_id) FROM agents AS a WHERE NOT a.agent_id IS NULL) SELECT MIN(s.updated_at)
FROM agents AS a
JOIN sessions AS s ON s.agent_id = a.agent_id AND s.updated_at >= :since
LEFT JOIN job_progress AS p ON p.store_id = :store_id AND (p.job = :job AND p.item = s.ref_code)
WHERE s.last_sequence > COALESCE(p.position, 0) AND s.store_id = :store_id;
-- storage.memories.extraction: waiting_session
SELECT s.row_id AS row_id, s.id AS id, s.agent_id AS agent, s.ref_code AS ref_code, s.user_id AS user, s.channel_id AS
    channel, s.updated_at AS updated_at, s.last_sequence AS last_sequence, COALESCE(p.position, 0) AS position,
    s.is_group AS is_group
FROM sessions AS s
LEFT JOIN job_progress AS p ON p.store_id = :store_id AND (p.job = :job AND p.item = s.ref_code)
WHERE (s.agent_id = :agent AND s.id = :session AND s.last_sequence > COALESCE(p.position, 0)) AND s.store_id =
    :store_id;
-- storage.memories.extraction: first_waiting_since
SELECT stored_at
FROM messages
WHERE (session_row = :row AND sequence > :position) AND messages.store_id = :store_id
ORDER BY sequence LIMIT 1;
-- storage.memories.extraction: advance
SELECT 1
FROM sessions
WHERE (row_id = :row AND ref_code = :ref_code) AND sessions.store_id = :store_id;
-- storage.memories.extraction: postpone
SELECT position - at
FROM job_progress
WHERE (job = :job AND item = :item) AND job_progress.store_id = :store_id;
-- storage.memories.extraction: read_everything_again
DELETE FROM job_progress
WHERE job = :job AND job_progress.store_id = :store_id;
-- storage.memories.extraction: _messages
SELECT id AS id, sequence AS sequence, role AS role, name AS name, content AS content, LEAST(created_at, stored_at) AS
    created_at, trace_id AS trace, row_id AS row_id, user_id AS user
FROM messages
WHERE (session_row = (SELECT row_id FROM sessions WHERE (row_id = :row AND ref_code = :ref_code) AND sessions.store_id =
    :store_id) AND sequence > :position) AND messages.store_id = :store_id
ORDER BY sequence LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
SELECT id AS id, sequence AS sequence, role AS role, name AS name, content AS content, LEAST(created_at, stored_at) AS
    created_at, trace_id AS trace, row_id AS row_id, user_id AS user
FROM messages
WHERE (session_row = (SELECT row_id FROM sessions WHERE (row_id = :row AND ref_code = :ref_code) AND sessions.store_id =
    :store_id) AND sequence <= :position) AND messages.store_id = :store_id
ORDER BY sequence DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.memories.extraction: newest
SELECT row_id AS row_id, id AS id, content AS content, source AS source, kind AS kind, category AS category, key AS key,
    value AS value, subject AS subject, owner_user_id AS owner, note_id AS note_id, pinned AS pinned, created_at AS
    created_at, visibility AS visibility, importance AS importance
FROM memories
WHERE (agent_id = :agent AND superseded_by IS NULL AND tenant IS NOT DISTINCT FROM :tenant AND (owner_user_id IS NULL OR
    owner_user_id IS NOT DISTINCT FROM :owner) AND note_id IS NULL) AND memories.store_id = :store_id
ORDER BY created_at DESC, row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.memories.extraction: with_subject
SELECT row_id AS row_id, id AS id, content AS content, source AS source, kind AS kind, category AS category, key AS key,
    value AS value, subject AS subject, owner_user_id AS owner, note_id AS note_id, pinned AS pinned, created_at AS
    created_at, visibility AS visibility, importance AS importance
FROM memories
WHERE (agent_id = :agent AND superseded_by IS NULL AND tenant IS NOT DISTINCT FROM :tenant AND subject = :subject AND
    owner_user_id IS NOT DISTINCT FROM :owner) AND memories.store_id = :store_id
ORDER BY created_at, row_id;
-- storage.memories.extraction: with_id
SELECT row_id AS row_id, id AS id, content AS content, source AS source, kind AS kind, category AS category, key AS key,
    value AS value, subject AS subject, owner_user_id AS owner, note_id AS note_id, pinned AS pinned, created_at AS
    created_at, visibility AS visibility, importance AS importance
FROM memories
WHERE (agent_id = :agent AND superseded_by IS NULL AND tenant IS NOT DISTINCT FROM :tenant AND id = :id) AND
    memories.store_id = :store_id;
-- storage.memories.extraction: with_rows
SELECT row_id AS row_id, id AS id, content AS content, source AS source, kind AS kind, category AS category, key AS key,
    value AS value, subject AS subject, owner_user_id AS owner, note_id AS note_id, pinned AS pinned, created_at AS
    created_at, visibility AS visibility, importance AS importance
FROM memories
WHERE (agent_id = :agent AND superseded_by IS NULL AND tenant IS NOT DISTINCT FROM :tenant AND row_id = ANY(CAST(:rows
    AS BIGINT[]))) AND memories.store_id = :store_id
ORDER BY created_at, row_id;
-- storage.memories.extraction: with_fact
SELECT row_id AS row_id, id AS id, content AS content, source AS source, kind AS kind, category AS category, key AS key,
    value AS value, subject AS subject, owner_user_id AS owner, note_id AS note_id, pinned AS pinned, created_at AS
    created_at, visibility AS visibility, importance AS importance
FROM memories
WHERE (agent_id = :agent AND superseded_by IS NULL AND tenant IS NOT DISTINCT FROM :tenant AND category = :category AND
    key = :key AND owner_user_id IS NOT DISTINCT FROM :owner) AND memories.store_id = :store_id;
-- storage.memories.extraction: rows_from_workspace
SELECT row_id
FROM memories
WHERE (agent_id = :agent AND session_row IS NULL AND JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(metadata)) <> 0
    THEN metadata ELSE '[]' END) AS JSON), 'workspace') = CAST(:workspace AS TEXT) AND (:session IS NULL OR
    JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(metadata)) <> 0 THEN metadata ELSE '[]' END) AS JSON), 'session')
    = CAST(:session AS TEXT))) AND memories.store_id = :store_id;
-- storage.memories.extraction: ref_codes
SELECT row_id, JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(metadata)) <> 0 THEN metadata ELSE '[]' END) AS JSON),
    'ref_code')
FROM memories
WHERE (agent_id = :agent AND row_id = ANY(CAST(:rows AS BIGINT[]))) AND memories.store_id = :store_id;
-- storage.memories.extraction: confirm
UPDATE memories
SET confirmed_at = :at
WHERE (row_id = :row AND agent_id = :agent AND COALESCE(confirmed_at, created_at) < :at) AND memories.store_id =
    :store_id;
-- storage.memories.extraction: contents
SELECT content, row_id
FROM memories
WHERE (agent_id = :agent AND superseded_by IS NULL AND tenant IS NOT DISTINCT FROM :tenant AND (NOT (visibility =
    'requested' AND source = 'extraction') OR NOT kind IN ('instruction', 'preference')) AND (owner_user_id IS NULL OR
    owner_user_id IS NOT DISTINCT FROM :owner)) AND memories.store_id = :store_id;
-- storage.memories.instructions: count
SELECT COUNT(*)
FROM (SELECT 1 FROM memories AS m WHERE (agent_id = :agent AND owner_user_id = :user AND (m.visibility = 'shared' OR
    m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS
    vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR
    ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id =
    :viewer) AND vu.store_id = :store_id)))) AND vs.store_id = :store_id)))) AND superseded_by IS NULL AND (kind =
    'instruction' OR (kind = 'preference' AND importance >= 0.8)) AND NOT (visibility = 'requested' AND source =
    'extraction') AND (NOT LOWER(m.source) IN ('tool', 'function', 'file', 'web') OR NOT m.confirmed_at IS NULL) AND
    created_at <= COALESCE(:until, created_at) AND (expires_at IS NULL OR expires_at > :now) AND (tier IN ('workspace',
    'account') OR (tier = 'channel' AND channel_id IS NOT DISTINCT FROM :channel) OR (tier = 'conversation' AND
    session_row IS NOT DISTINCT FROM :session_row))) AND m.store_id = :store_id LIMIT 1000);
SELECT COUNT(*)
FROM (SELECT 1 FROM memories AS m WHERE (agent_id = :agent AND owner_user_id IS NULL AND visibility <> 'requested' AND
    (m.visibility = 'shared' OR m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND (m.session_row IS NULL OR
    EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS NULL OR vs.user_id = :viewer
    OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id = :store_id)))) AND
    superseded_by IS NULL AND (kind = 'instruction' OR (kind = 'preference' AND importance >= 0.8)) AND NOT (visibility
    = 'requested' AND source = 'extraction') AND (NOT LOWER(m.source) IN ('tool', 'function', 'file', 'web') OR NOT
    m.confirmed_at IS NULL) AND created_at <= COALESCE(:until, created_at) AND (expires_at IS NULL OR expires_at > :now)
    AND (tier IN ('workspace', 'account') OR (tier = 'channel' AND channel_id IS NOT DISTINCT FROM :channel) OR (tier =
    'conversation' AND session_row IS NOT DISTINCT FROM :session_row))) AND m.store_id = :store_id LIMIT 1000);
SELECT COUNT(*)
FROM (SELECT 1 FROM memories AS m WHERE (agent_id = :agent AND visibility = 'shared' AND NOT owner_user_id IS NULL AND
    owner_user_id IS DISTINCT FROM :user AND (m.visibility = 'shared' OR m.owner_user_id = :viewer OR (m.owner_user_id
    IS NULL AND (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = m.session_row AND
    (vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM
    session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND
    vs.store_id = :store_id)))) AND superseded_by IS NULL AND (kind = 'instruction' OR (kind = 'preference' AND
    importance >= 0.8)) AND NOT (visibility = 'requested' AND source = 'extraction') AND (NOT LOWER(m.source) IN
    ('tool', 'function', 'file', 'web') OR NOT m.confirmed_at IS NULL) AND created_at <= COALESCE(:until, created_at)
    AND (expires_at IS NULL OR expires_at > :now) AND (tier IN ('workspace', 'account') OR (tier = 'channel' AND
    channel_id IS NOT DISTINCT FROM :channel) OR (tier = 'conversation' AND session_row IS NOT DISTINCT FROM
    :session_row))) AND m.store_id = :store_id LIMIT 1000);
-- storage.memories.instructions: of_owner
SELECT m.row_id AS row_id, m.id AS id, m.kind AS kind, SUBSTRING(m.content FROM 1 FOR 600) AS content, m.created_at AS
    created_at, m.tier AS tier, m.source AS source, m.pinned AS pinned, m.subject AS subject, m.owner_user_id AS owner,
    (SELECT s.id FROM sessions AS s WHERE s.row_id = m.session_row AND s.store_id = :store_id) AS session,
    m.source_message AS source_message, m.confirmed_at AS confirmed_at
FROM memories AS m
WHERE (agent_id = :agent AND owner_user_id IS NOT DISTINCT FROM :owner AND superseded_by IS NULL AND (kind =
    'instruction' OR (kind = 'preference' AND importance >= 0.8)) AND NOT (visibility = 'requested' AND source =
    'extraction') AND (NOT LOWER(m.source) IN ('tool', 'function', 'file', 'web') OR NOT m.confirmed_at IS NULL) AND
    tenant IS NOT DISTINCT FROM :tenant) AND m.store_id = :store_id
ORDER BY created_at DESC, row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.memories.instructions: _of
SELECT m.row_id AS row_id, m.id AS id, m.kind AS kind, SUBSTRING(m.content FROM 1 FOR 600) AS content, m.created_at AS
    created_at, m.tier AS tier, m.source AS source, m.pinned AS pinned, m.subject AS subject, m.owner_user_id AS owner,
    (SELECT s.id FROM sessions AS s WHERE s.row_id = m.session_row AND s.store_id = :store_id) AS session,
    m.source_message AS source_message, m.confirmed_at AS confirmed_at
FROM memories AS m
WHERE (agent_id = :agent AND owner_user_id = :user AND (m.visibility = 'shared' OR m.owner_user_id = :viewer OR
    (m.owner_user_id IS NULL AND (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id =
    m.session_row AND (vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND
    EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id
    = :store_id)))) AND vs.store_id = :store_id)))) AND superseded_by IS NULL AND (kind = 'instruction' OR (kind =
    'preference' AND importance >= 0.8)) AND NOT (visibility = 'requested' AND source = 'extraction') AND (NOT
    LOWER(m.source) IN ('tool', 'function', 'file', 'web') OR NOT m.confirmed_at IS NULL) AND created_at <=
    COALESCE(:until, created_at) AND (expires_at IS NULL OR expires_at > :now) AND (tier IN ('workspace', 'account') OR
    (tier = 'channel' AND channel_id IS NOT DISTINCT FROM :channel) OR (tier = 'conversation' AND session_row IS NOT
    DISTINCT FROM :session_row))) AND m.store_id = :store_id
ORDER BY created_at DESC, row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
SELECT m.row_id AS row_id, m.id AS id, m.kind AS kind, SUBSTRING(m.content FROM 1 FOR 600) AS content, m.created_at AS
    created_at, m.tier AS tier, m.source AS source, m.pinned AS pinned, m.subject AS subject, m.owner_user_id AS owner,
    (SELECT s.id FROM sessions AS s WHERE s.row_id = m.session_row AND s.store_id = :store_id) AS session,
    m.source_message AS source_message, m.confirmed_at AS confirmed_at
FROM memories AS m
WHERE (agent_id = :agent AND owner_user_id IS NULL AND visibility <> 'requested' AND (m.visibility = 'shared' OR
    m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS
    vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR
    ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id =
    :viewer) AND vu.store_id = :store_id)))) AND vs.store_id = :store_id)))) AND superseded_by IS NULL AND (kind =
    'instruction' OR (kind = 'preference' AND importance >= 0.8)) AND NOT (visibility = 'requested' AND source =
    'extraction') AND (NOT LOWER(m.source) IN ('tool', 'function', 'file', 'web') OR NOT m.confirmed_at IS NULL) AND
    created_at <= COALESCE(:until, created_at) AND (expires_at IS NULL OR expires_at > :now) AND (tier IN ('workspace',
    'account') OR (tier = 'channel' AND channel_id IS NOT DISTINCT FROM :channel) OR (tier = 'conversation' AND
    session_row IS NOT DISTINCT FROM :session_row))) AND m.store_id = :store_id
ORDER BY created_at DESC, row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
SELECT m.row_id AS row_id, m.id AS id, m.kind AS kind, SUBSTRING(m.content FROM 1 FOR 600) AS content, m.created_at AS
    created_at, m.tier AS tier, m.source AS source, m.pinned AS pinned, m.subject AS subject, m.owner_user_id AS owner,
    (SELECT s.id FROM sessions AS s WHERE s.row_id = m.session_row AND s.store_id = :store_id) AS session,
    m.source_message AS source_message, m.confirmed_at AS confirmed_at
FROM memories AS m
WHERE (agent_id = :agent AND visibility = 'shared' AND NOT owner_user_id IS NULL AND owner_user_id IS DISTINCT FROM
    :user AND (m.visibility = 'shared' OR m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND (m.session_row IS
    NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS NULL OR vs.user_id =
    :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE
    (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id =
    :store_id)))) AND superseded_by IS NULL AND (kind = 'instruction' OR (kind = 'preference' AND importance >= 0.8))
    AND NOT (visibility = 'requested' AND source = 'extraction') AND (NOT LOWER(m.source) IN ('tool', 'function',
    'file', 'web') OR NOT m.confirmed_at IS NULL) AND created_at <= COALESCE(:until, created_at) AND (expires_at IS NULL
    OR expires_at > :now) AND (tier IN ('workspace', 'account') OR (tier = 'channel' AND channel_id IS NOT DISTINCT FROM
    :channel) OR (tier = 'conversation' AND session_row IS NOT DISTINCT FROM :session_row))) AND m.store_id = :store_id
ORDER BY created_at DESC, row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.memories.memories: remove
DELETE FROM chunks
WHERE (agent_id = :agent AND memory_row = ANY(CAST(:rows AS BIGINT[]))) AND chunks.store_id = :store_id
RETURNING id;
-- storage.memories.memories: cancel_claims
DELETE FROM claims
WHERE (stage = 'chunk-memories' AND item_id = ANY(CAST(:rows AS BIGINT[]))) AND claims.store_id = :store_id;
-- storage.memories.memories: retag
DELETE FROM chunk_tags
WHERE (tag, chunk_id) IN (SELECT t.tag, k.id FROM (SELECT c.id, CASE WHEN (JSON_VALID(m.tags)) <> 0 THEN m.tags ELSE
    '[]' END AS tags FROM UNNEST(CAST(:rows AS BIGINT[])) WITH ORDINALITY AS j(value, key) JOIN chunks AS c ON
    c.memory_row = j.value AND c.agent_id = :agent JOIN memories AS m ON m.row_id = c.memory_row WHERE c.store_id =
    :store_id AND m.store_id = :store_id) AS k JOIN chunk_tags AS t ON t.chunk_id = k.id WHERE NOT t.tag IN (SELECT
    value FROM JSON_ELEMENTS(k.tags, '') WITH ORDINALITY AS json_each(value, key)) AND t.store_id = :store_id) AND
    chunk_tags.store_id = :store_id;
-- storage.memories.memories: retag
INSERT INTO chunk_tags (tag, chunk_id) SELECT t.value, k.id
FROM (SELECT c.id, CASE WHEN (JSON_VALID(m.tags)) <> 0 THEN m.tags ELSE '[]' END AS tags FROM UNNEST(CAST(:rows AS
    BIGINT[])) WITH ORDINALITY AS j(value, key) JOIN chunks AS c ON c.memory_row = j.value AND c.agent_id = :agent JOIN
    memories AS m ON m.row_id = c.memory_row WHERE c.store_id = :store_id AND m.store_id = :store_id) AS k
CROSS JOIN JSON_ELEMENTS(k.tags, '') WITH ORDINALITY AS t(value, key) ON CONFLICT DO NOTHING;
-- storage.memories.memories: add
INSERT INTO memories (id, content, created_at, tier, lifetime, kind, source, importance, expires_at, owner_user_id,
    tags, concept_tags, metadata, source_message, channel_id, note_id, category, key, value, subject, confidence,
    pinned, trace_id, visibility, tenant, made_by, confirmed_at, agent_id, session_row, updated_at, accessed_at,
    stored_at, superseded_by, superseded_at)
VALUES (:id, :content, :created_at, :tier, :lifetime, :kind, :source, :importance, :expires_at, :owner_user_id, :tags,
    :concept_tags, :metadata, :source_message, :channel, :note_id, :category, :key, :value, :subject, :confidence,
    :pinned, :trace, :visibility, :tenant, :made_by, :confirmed_at, :agent, :session_row, :created_at, :created_at,
    :now, :superseded_by, CASE WHEN NOT :superseded_by IS NULL THEN :now END) ON CONFLICT(store_id, agent_id, id) DO
    NOTHING;
-- storage.memories.memories: by_rows
SELECT m.id AS id, m.content AS content, m.created_at AS created_at, m.tier AS tier, m.lifetime AS lifetime, m.kind AS
    kind, m.source AS source, m.importance AS importance, m.expires_at AS expires_at, m.owner_user_id AS owner_user_id,
    m.tags AS tags, m.concept_tags AS concept_tags, m.metadata AS metadata, s.id AS session, m.source_message AS
    source_message, m.channel_id AS channel, m.note_id AS note_id, m.category AS category, m.key AS key, m.value AS
    value, m.subject AS subject, m.confidence AS confidence, m.pinned AS pinned, m.trace_id AS trace, m.visibility AS
    visibility, m.tenant AS tenant, m.made_by AS made_by, m.confirmed_at AS confirmed_at, m.row_id AS row_id, m.agent_id
    AS agent, m.access_count AS access_count, m.updated_at AS updated_at, m.accessed_at AS accessed_at, m.session_row AS
    session_row, m.superseded_at AS superseded_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at, b.id AS
    superseded_by, m.created_at AS valid_from, CASE WHEN NOT b.row_id IS NULL THEN GREATEST(m.created_at, b.created_at)
    END AS valid_to
FROM memories AS m
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = m.session_row
LEFT JOIN memories AS b ON b.store_id = :store_id AND b.row_id = m.superseded_by
WHERE (m.agent_id = :agent AND m.row_id = ANY(CAST(:rows AS BIGINT[]))) AND m.store_id = :store_id;
-- storage.memories.memories: due
SELECT m.id AS id, m.content AS content, m.created_at AS created_at, m.tier AS tier, m.lifetime AS lifetime, m.kind AS
    kind, m.source AS source, m.importance AS importance, m.expires_at AS expires_at, m.owner_user_id AS owner_user_id,
    m.tags AS tags, m.concept_tags AS concept_tags, m.metadata AS metadata, s.id AS session, m.source_message AS
    source_message, m.channel_id AS channel, m.note_id AS note_id, m.category AS category, m.key AS key, m.value AS
    value, m.subject AS subject, m.confidence AS confidence, m.pinned AS pinned, m.trace_id AS trace, m.visibility AS
    visibility, m.tenant AS tenant, m.made_by AS made_by, m.confirmed_at AS confirmed_at, m.row_id AS row_id, m.agent_id
    AS agent, m.access_count AS access_count, m.updated_at AS updated_at, m.accessed_at AS accessed_at, m.session_row AS
    session_row, m.superseded_at AS superseded_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at, b.id AS
    superseded_by, m.created_at AS valid_from, CASE WHEN NOT b.row_id IS NULL THEN GREATEST(m.created_at, b.created_at)
    END AS valid_to, (SELECT o.id FROM memories AS o WHERE (o.agent_id = m.agent_id AND o.subject = m.subject AND o.kind
    = m.kind AND o.superseded_by IS NULL AND o.visibility <> 'requested' AND o.content <> m.content AND o.owner_user_id
    IS NOT DISTINCT FROM m.owner_user_id AND o.tenant IS NOT DISTINCT FROM m.tenant) AND o.store_id = :store_id ORDER BY
    o.row_id LIMIT 1) AS contradicts
FROM memories AS m
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = m.session_row
LEFT JOIN memories AS b ON b.store_id = :store_id AND b.row_id = m.superseded_by
WHERE (m.agent_id = :agent AND m.superseded_by IS NULL AND m.visibility <> 'requested' AND (m.expires_at <= :now OR NOT
    (SELECT o.id FROM memories AS o WHERE (o.agent_id = m.agent_id AND o.subject = m.subject AND o.kind = m.kind AND
    o.superseded_by IS NULL AND o.visibility <> 'requested' AND o.content <> m.content AND o.owner_user_id IS NOT
    DISTINCT FROM m.owner_user_id AND o.tenant IS NOT DISTINCT FROM m.tenant) AND o.store_id = :store_id ORDER BY
    o.row_id LIMIT 1) IS NULL OR COALESCE(m.confirmed_at, m.created_at) < :now - CASE m.kind WHEN 'task' THEN
    2592000000000 WHEN 'fact' THEN 31536000000000 WHEN 'procedure' THEN 31536000000000 WHEN 'preference' THEN
    94608000000000 WHEN 'instruction' THEN 94608000000000 END) AND (m.visibility = 'shared' OR m.owner_user_id = :viewer
    OR (m.owner_user_id IS NULL AND (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id =
    m.session_row AND (vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND
    EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id
    = :store_id)))) AND vs.store_id = :store_id))))) AND m.store_id = :store_id
ORDER BY CAST(CAST(((SELECT o.id FROM memories AS o WHERE (o.agent_id = m.agent_id AND o.subject = m.subject AND o.kind
    = m.kind AND o.superseded_by IS NULL AND o.visibility <> 'requested' AND o.content <> m.content AND o.owner_user_id
    IS NOT DISTINCT FROM m.owner_user_id AND o.tenant IS NOT DISTINCT FROM m.tenant) AND o.store_id = :store_id ORDER BY
    o.row_id LIMIT 1) IS NULL) AS INT) AS BIGINT), COALESCE(m.confirmed_at, m.created_at), m.row_id LIMIT
    NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.memories.memories: contradicting
SELECT m.id, (SELECT o.id FROM memories AS o WHERE (o.agent_id = m.agent_id AND o.subject = m.subject AND o.kind =
    m.kind AND o.superseded_by IS NULL AND o.visibility <> 'requested' AND o.content <> m.content AND o.owner_user_id IS
    NOT DISTINCT FROM m.owner_user_id AND o.tenant IS NOT DISTINCT FROM m.tenant) AND o.store_id = :store_id ORDER BY
    o.row_id LIMIT 1)
FROM memories AS m
WHERE (m.agent_id = :agent AND m.id = ANY(CAST(:ids AS TEXT[])) AND NOT m.subject IS NULL) AND m.store_id = :store_id;
-- storage.memories.memories: iterate
SELECT m.row_id
FROM memories AS m
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = m.session_row
LEFT JOIN memories AS b ON b.store_id = :store_id AND b.row_id = m.superseded_by
WHERE (m.agent_id = :agent AND m.row_id > :after) AND m.store_id = :store_id
ORDER BY m.row_id LIMIT 1 OFFSET 999;
-- storage.memories.memories: any
SELECT 1
FROM memories AS m
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = m.session_row
LEFT JOIN memories AS b ON b.store_id = :store_id AND b.row_id = m.superseded_by
WHERE (m.agent_id = :agent AND (m.visibility = 'shared' OR m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND
    (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS
    NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users
    AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id =
    :store_id)))) AND m.superseded_by IS NULL) AND m.store_id = :store_id LIMIT 1;
-- storage.memories.memories: change
UPDATE memories
SET updated_at = :now, x = :x
WHERE (row_id = :row AND agent_id = :agent) AND memories.store_id = :store_id;
-- storage.memories.memories: rewrite
UPDATE memories
SET content = :content, value = COALESCE(:value, value), updated_at = :now, chunked_at = NULL
WHERE (row_id = :row AND agent_id = :agent) AND memories.store_id = :store_id;
-- storage.memories.memories: supersede
UPDATE memories
SET superseded_by = :by, superseded_at = :now
WHERE (row_id = :row AND agent_id = :agent) AND memories.store_id = :store_id;
-- storage.memories.memories: move_superseded
UPDATE memories
SET superseded_by = :to
WHERE (agent_id = :agent AND NOT superseded_by IS NULL AND row_id = ANY(CAST(:rows AS BIGINT[]))) AND memories.store_id
    = :store_id;
-- storage.memories.memories: detach_superseded
SELECT row_id, superseded_by
FROM memories
WHERE (agent_id = :agent AND superseded_by = ANY(CAST(:rows AS BIGINT[]))) AND memories.store_id = :store_id;
-- storage.memories.memories: detach_superseded
SELECT row_id, superseded_by
FROM memories
WHERE row_id = ANY(CAST(:rows AS BIGINT[])) AND memories.store_id = :store_id;
-- storage.memories.memories: detach_superseded
UPDATE memories
SET superseded_by = row_id
WHERE row_id = ANY(CAST(:rows AS BIGINT[])) AND memories.store_id = :store_id;
-- storage.memories.memories: detach_superseded
-- composed of the rows and columns that it is given
-- storage.memories.memories: delete
DELETE FROM memories
WHERE (agent_id = :agent AND row_id = ANY(CAST(:rows AS BIGINT[]))) AND memories.store_id = :store_id;
-- storage.memories.memories: ids_with_superseded
SELECT id
FROM memories
WHERE (row_id = ANY(CAST(:rows AS BIGINT[])) AND agent_id = :agent) AND memories.store_id = :store_id;
-- storage.memories.memories: _session_row
SELECT row_id
FROM sessions
WHERE (agent_id = :agent AND id = :id) AND sessions.store_id = :store_id;
-- storage.memories.memories: _with_superseded
WITH RECURSIVE removed(row_id) AS (SELECT CAST(value AS BIGINT) FROM UNNEST(CAST(:rows AS TEXT[])) WITH ORDINALITY AS
    json_each(value, key) UNION SELECT m.row_id FROM removed AS r JOIN memories AS m ON m.superseded_by = r.row_id WHERE
    m.store_id = :store_id) SELECT row_id
FROM removed;
-- storage.memories.memories: _one
SELECT m.id AS id, m.content AS content, m.created_at AS created_at, m.tier AS tier, m.lifetime AS lifetime, m.kind AS
    kind, m.source AS source, m.importance AS importance, m.expires_at AS expires_at, m.owner_user_id AS owner_user_id,
    m.tags AS tags, m.concept_tags AS concept_tags, m.metadata AS metadata, s.id AS session, m.source_message AS
    source_message, m.channel_id AS channel, m.note_id AS note_id, m.category AS category, m.key AS key, m.value AS
    value, m.subject AS subject, m.confidence AS confidence, m.pinned AS pinned, m.trace_id AS trace, m.visibility AS
    visibility, m.tenant AS tenant, m.made_by AS made_by, m.confirmed_at AS confirmed_at, m.row_id AS row_id, m.agent_id
    AS agent, m.access_count AS access_count, m.updated_at AS updated_at, m.accessed_at AS accessed_at, m.session_row AS
    session_row, m.superseded_at AS superseded_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at, b.id AS
    superseded_by, m.created_at AS valid_from, CASE WHEN NOT b.row_id IS NULL THEN GREATEST(m.created_at, b.created_at)
    END AS valid_to
FROM memories AS m
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = m.session_row
LEFT JOIN memories AS b ON b.store_id = :store_id AND b.row_id = m.superseded_by
WHERE (m.agent_id = :agent AND (m.visibility = 'shared' OR m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND
    (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS
    NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users
    AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id =
    :store_id)))) AND m.id = :id) AND m.store_id = :store_id;
SELECT m.id AS id, m.content AS content, m.created_at AS created_at, m.tier AS tier, m.lifetime AS lifetime, m.kind AS
    kind, m.source AS source, m.importance AS importance, m.expires_at AS expires_at, m.owner_user_id AS owner_user_id,
    m.tags AS tags, m.concept_tags AS concept_tags, m.metadata AS metadata, s.id AS session, m.source_message AS
    source_message, m.channel_id AS channel, m.note_id AS note_id, m.category AS category, m.key AS key, m.value AS
    value, m.subject AS subject, m.confidence AS confidence, m.pinned AS pinned, m.trace_id AS trace, m.visibility AS
    visibility, m.tenant AS tenant, m.made_by AS made_by, m.confirmed_at AS confirmed_at, m.row_id AS row_id, m.agent_id
    AS agent, m.access_count AS access_count, m.updated_at AS updated_at, m.accessed_at AS accessed_at, m.session_row AS
    session_row, m.superseded_at AS superseded_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at, b.id AS
    superseded_by, m.created_at AS valid_from, CASE WHEN NOT b.row_id IS NULL THEN GREATEST(m.created_at, b.created_at)
    END AS valid_to
FROM memories AS m
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = m.session_row
LEFT JOIN memories AS b ON b.store_id = :store_id AND b.row_id = m.superseded_by
WHERE (m.agent_id = :agent AND (m.visibility = 'shared' OR m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND
    (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS
    NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users
    AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id =
    :store_id)))) AND m.note_id = :note) AND m.store_id = :store_id;
SELECT m.id AS id, m.content AS content, m.created_at AS created_at, m.tier AS tier, m.lifetime AS lifetime, m.kind AS
    kind, m.source AS source, m.importance AS importance, m.expires_at AS expires_at, m.owner_user_id AS owner_user_id,
    m.tags AS tags, m.concept_tags AS concept_tags, m.metadata AS metadata, s.id AS session, m.source_message AS
    source_message, m.channel_id AS channel, m.note_id AS note_id, m.category AS category, m.key AS key, m.value AS
    value, m.subject AS subject, m.confidence AS confidence, m.pinned AS pinned, m.trace_id AS trace, m.visibility AS
    visibility, m.tenant AS tenant, m.made_by AS made_by, m.confirmed_at AS confirmed_at, m.row_id AS row_id, m.agent_id
    AS agent, m.access_count AS access_count, m.updated_at AS updated_at, m.accessed_at AS accessed_at, m.session_row AS
    session_row, m.superseded_at AS superseded_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at, b.id AS
    superseded_by, m.created_at AS valid_from, CASE WHEN NOT b.row_id IS NULL THEN GREATEST(m.created_at, b.created_at)
    END AS valid_to
FROM memories AS m
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = m.session_row
LEFT JOIN memories AS b ON b.store_id = :store_id AND b.row_id = m.superseded_by
WHERE (m.agent_id = :agent AND (m.visibility = 'shared' OR m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND
    (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS
    NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users
    AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id =
    :store_id)))) AND m.category = :category AND m.key = :key AND m.superseded_by IS NULL AND m.owner_user_id IS NOT
    DISTINCT FROM :owner) AND m.store_id = :store_id;
SELECT m.id AS id, m.content AS content, m.created_at AS created_at, m.tier AS tier, m.lifetime AS lifetime, m.kind AS
    kind, m.source AS source, m.importance AS importance, m.expires_at AS expires_at, m.owner_user_id AS owner_user_id,
    m.tags AS tags, m.concept_tags AS concept_tags, m.metadata AS metadata, s.id AS session, m.source_message AS
    source_message, m.channel_id AS channel, m.note_id AS note_id, m.category AS category, m.key AS key, m.value AS
    value, m.subject AS subject, m.confidence AS confidence, m.pinned AS pinned, m.trace_id AS trace, m.visibility AS
    visibility, m.tenant AS tenant, m.made_by AS made_by, m.confirmed_at AS confirmed_at, m.row_id AS row_id, m.agent_id
    AS agent, m.access_count AS access_count, m.updated_at AS updated_at, m.accessed_at AS accessed_at, m.session_row AS
    session_row, m.superseded_at AS superseded_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at, b.id AS
    superseded_by, m.created_at AS valid_from, CASE WHEN NOT b.row_id IS NULL THEN GREATEST(m.created_at, b.created_at)
    END AS valid_to
FROM memories AS m
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = m.session_row
LEFT JOIN memories AS b ON b.store_id = :store_id AND b.row_id = m.superseded_by
WHERE (m.agent_id = :agent AND (m.visibility = 'shared' OR m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND
    (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS
    NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users
    AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id =
    :store_id)))) AND m.category = :category AND m.key = :key AND m.superseded_by IS NULL) AND m.store_id = :store_id
ORDER BY CAST(CAST((m.owner_user_id IS NOT DISTINCT FROM :viewer) AS INT) AS BIGINT) DESC, CAST(CAST((m.owner_user_id IS
    NULL) AS INT) AS BIGINT) DESC LIMIT 1;
-- storage.memories.memories: _many
SELECT m.id AS id, m.content AS content, m.created_at AS created_at, m.tier AS tier, m.lifetime AS lifetime, m.kind AS
    kind, m.source AS source, m.importance AS importance, m.expires_at AS expires_at, m.owner_user_id AS owner_user_id,
    m.tags AS tags, m.concept_tags AS concept_tags, m.metadata AS metadata, s.id AS session, m.source_message AS
    source_message, m.channel_id AS channel, m.note_id AS note_id, m.category AS category, m.key AS key, m.value AS
    value, m.subject AS subject, m.confidence AS confidence, m.pinned AS pinned, m.trace_id AS trace, m.visibility AS
    visibility, m.tenant AS tenant, m.made_by AS made_by, m.confirmed_at AS confirmed_at, m.row_id AS row_id, m.agent_id
    AS agent, m.access_count AS access_count, m.updated_at AS updated_at, m.accessed_at AS accessed_at, m.session_row AS
    session_row, m.superseded_at AS superseded_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at, b.id AS
    superseded_by, m.created_at AS valid_from, CASE WHEN NOT b.row_id IS NULL THEN GREATEST(m.created_at, b.created_at)
    END AS valid_to
FROM memories AS m
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = m.session_row
LEFT JOIN memories AS b ON b.store_id = :store_id AND b.row_id = m.superseded_by
WHERE (m.agent_id = :agent AND (m.visibility = 'shared' OR m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND
    (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS
    NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users
    AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id =
    :store_id)))) AND m.id = ANY(CAST(:ids AS TEXT[]))) AND m.store_id = :store_id;
SELECT m.id AS id, m.content AS content, m.created_at AS created_at, m.tier AS tier, m.lifetime AS lifetime, m.kind AS
    kind, m.source AS source, m.importance AS importance, m.expires_at AS expires_at, m.owner_user_id AS owner_user_id,
    m.tags AS tags, m.concept_tags AS concept_tags, m.metadata AS metadata, s.id AS session, m.source_message AS
    source_message, m.channel_id AS channel, m.note_id AS note_id, m.category AS category, m.key AS key, m.value AS
    value, m.subject AS subject, m.confidence AS confidence, m.pinned AS pinned, m.trace_id AS trace, m.visibility AS
    visibility, m.tenant AS tenant, m.made_by AS made_by, m.confirmed_at AS confirmed_at, m.row_id AS row_id, m.agent_id
    AS agent, m.access_count AS access_count, m.updated_at AS updated_at, m.accessed_at AS accessed_at, m.session_row AS
    session_row, m.superseded_at AS superseded_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at, b.id AS
    superseded_by, m.created_at AS valid_from, CASE WHEN NOT b.row_id IS NULL THEN GREATEST(m.created_at, b.created_at)
    END AS valid_to
FROM memories AS m
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = m.session_row
LEFT JOIN memories AS b ON b.store_id = :store_id AND b.row_id = m.superseded_by
WHERE (m.agent_id = :agent AND (m.visibility = 'shared' OR m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND
    (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS
    NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users
    AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id =
    :store_id)))) AND m.superseded_by IS NULL) AND m.store_id = :store_id
ORDER BY m.created_at DESC, m.row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT m.id AS id, m.content AS content, m.created_at AS created_at, m.tier AS tier, m.lifetime AS lifetime, m.kind AS
    kind, m.source AS source, m.importance AS importance, m.expires_at AS expires_at, m.owner_user_id AS owner_user_id,
    m.tags AS tags, m.concept_tags AS concept_tags, m.metadata AS metadata, s.id AS session, m.source_message AS
    source_message, m.channel_id AS channel, m.note_id AS note_id, m.category AS category, m.key AS key, m.value AS
    value, m.subject AS subject, m.confidence AS confidence, m.pinned AS pinned, m.trace_id AS trace, m.visibility AS
    visibility, m.tenant AS tenant, m.made_by AS made_by, m.confirmed_at AS confirmed_at, m.row_id AS row_id, m.agent_id
    AS agent, m.access_count AS access_count, m.updated_at AS updated_at, m.accessed_at AS accessed_at, m.session_row AS
    session_row, m.superseded_at AS superseded_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at, b.id AS
    superseded_by, m.created_at AS valid_from, CASE WHEN NOT b.row_id IS NULL THEN GREATEST(m.created_at, b.created_at)
    END AS valid_to
FROM memories AS m
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = m.session_row
LEFT JOIN memories AS b ON b.store_id = :store_id AND b.row_id = m.superseded_by
WHERE (m.agent_id = :agent AND (m.visibility = 'shared' OR m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND
    (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS
    NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users
    AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id =
    :store_id)))) AND m.superseded_by IS NULL AND m.visibility <> 'requested' AND m.kind <> 'event' AND
    COALESCE(m.confirmed_at, m.created_at) < :at AND COALESCE(m.owner_user_id, '') = ANY(CAST(:owners AS TEXT[]))) AND
    m.store_id = :store_id
ORDER BY m.row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
SELECT m.id AS id, m.content AS content, m.created_at AS created_at, m.tier AS tier, m.lifetime AS lifetime, m.kind AS
    kind, m.source AS source, m.importance AS importance, m.expires_at AS expires_at, m.owner_user_id AS owner_user_id,
    m.tags AS tags, m.concept_tags AS concept_tags, m.metadata AS metadata, s.id AS session, m.source_message AS
    source_message, m.channel_id AS channel, m.note_id AS note_id, m.category AS category, m.key AS key, m.value AS
    value, m.subject AS subject, m.confidence AS confidence, m.pinned AS pinned, m.trace_id AS trace, m.visibility AS
    visibility, m.tenant AS tenant, m.made_by AS made_by, m.confirmed_at AS confirmed_at, m.row_id AS row_id, m.agent_id
    AS agent, m.access_count AS access_count, m.updated_at AS updated_at, m.accessed_at AS accessed_at, m.session_row AS
    session_row, m.superseded_at AS superseded_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at, b.id AS
    superseded_by, m.created_at AS valid_from, CASE WHEN NOT b.row_id IS NULL THEN GREATEST(m.created_at, b.created_at)
    END AS valid_to
FROM memories AS m
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = m.session_row
LEFT JOIN memories AS b ON b.store_id = :store_id AND b.row_id = m.superseded_by
WHERE (m.agent_id = :agent AND (m.visibility = 'shared' OR m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND
    (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS
    NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users
    AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id =
    :store_id)))) AND m.superseded_by IS NULL AND m.visibility <> 'requested' AND m.confirmed_at IS NULL AND (m.kind IN
    ('instruction', 'preference') AND NOT (NOT LOWER(m.source) IN ('tool', 'function', 'file', 'web') OR NOT
    m.confirmed_at IS NULL))) AND m.store_id = :store_id
ORDER BY m.row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
SELECT m.id AS id, m.content AS content, m.created_at AS created_at, m.tier AS tier, m.lifetime AS lifetime, m.kind AS
    kind, m.source AS source, m.importance AS importance, m.expires_at AS expires_at, m.owner_user_id AS owner_user_id,
    m.tags AS tags, m.concept_tags AS concept_tags, m.metadata AS metadata, s.id AS session, m.source_message AS
    source_message, m.channel_id AS channel, m.note_id AS note_id, m.category AS category, m.key AS key, m.value AS
    value, m.subject AS subject, m.confidence AS confidence, m.pinned AS pinned, m.trace_id AS trace, m.visibility AS
    visibility, m.tenant AS tenant, m.made_by AS made_by, m.confirmed_at AS confirmed_at, m.row_id AS row_id, m.agent_id
    AS agent, m.access_count AS access_count, m.updated_at AS updated_at, m.accessed_at AS accessed_at, m.session_row AS
    session_row, m.superseded_at AS superseded_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at, b.id AS
    superseded_by, m.created_at AS valid_from, CASE WHEN NOT b.row_id IS NULL THEN GREATEST(m.created_at, b.created_at)
    END AS valid_to
FROM memories AS m
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = m.session_row
LEFT JOIN memories AS b ON b.store_id = :store_id AND b.row_id = m.superseded_by
WHERE (m.agent_id = :agent AND (m.visibility = 'shared' OR m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND
    (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS
    NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users
    AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id =
    :store_id)))) AND m.superseded_by IS NULL AND m.visibility <> 'requested' AND m.confirmed_at IS NULL) AND m.store_id
    = :store_id
ORDER BY m.row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
SELECT m.id AS id, m.content AS content, m.created_at AS created_at, m.tier AS tier, m.lifetime AS lifetime, m.kind AS
    kind, m.source AS source, m.importance AS importance, m.expires_at AS expires_at, m.owner_user_id AS owner_user_id,
    m.tags AS tags, m.concept_tags AS concept_tags, m.metadata AS metadata, s.id AS session, m.source_message AS
    source_message, m.channel_id AS channel, m.note_id AS note_id, m.category AS category, m.key AS key, m.value AS
    value, m.subject AS subject, m.confidence AS confidence, m.pinned AS pinned, m.trace_id AS trace, m.visibility AS
    visibility, m.tenant AS tenant, m.made_by AS made_by, m.confirmed_at AS confirmed_at, m.row_id AS row_id, m.agent_id
    AS agent, m.access_count AS access_count, m.updated_at AS updated_at, m.accessed_at AS accessed_at, m.session_row AS
    session_row, m.superseded_at AS superseded_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at, b.id AS
    superseded_by, m.created_at AS valid_from, CASE WHEN NOT b.row_id IS NULL THEN GREATEST(m.created_at, b.created_at)
    END AS valid_to
FROM memories AS m
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = m.session_row
LEFT JOIN memories AS b ON b.store_id = :store_id AND b.row_id = m.superseded_by
WHERE (m.agent_id = :agent AND (m.visibility = 'shared' OR m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND
    (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS
    NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users
    AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id =
    :store_id)))) AND (m.superseded_by IS NULL) AND m.row_id > :after) AND m.store_id = :store_id
ORDER BY m.row_id LIMIT 1000;
-- storage.memories.memories: agents
SELECT DISTINCT agent_id
FROM memories
WHERE memories.store_id = :store_id
ORDER BY 1;
-- storage.memories.memories: current_counts
SELECT agent_id, tenant, COUNT(*)
FROM memories
WHERE superseded_by IS NULL AND memories.store_id = :store_id
GROUP BY 1, 2
ORDER BY 1, 2;
-- storage.memories.memories: count_memories
SELECT tier, lifetime, kind, source, COUNT(*) AS memories, SUM(CAST(CAST((NOT category IS NULL) AS INT) AS BIGINT)) AS
    facts, SUM(CAST(CAST((NOT note_id IS NULL) AS INT) AS BIGINT)) AS notes, MIN(created_at) AS oldest, MAX(created_at)
    AS newest
FROM memories AS m
WHERE (agent_id = :agent AND TRUE AND superseded_by IS NULL) AND m.store_id = :store_id
GROUP BY 1, 2, 3, 4;
-- storage.memories.memories: count_memories
SELECT COUNT(*)
FROM memories AS m
WHERE (agent_id = :agent AND TRUE AND NOT superseded_by IS NULL) AND m.store_id = :store_id;
-- storage.memories.memories: count_memories
SELECT COUNT(*)
FROM memory_promotions AS p
WHERE (agent_id = :agent AND ((:everything) <> 0 OR memory_id IN (SELECT id FROM memories AS m WHERE (m.agent_id =
    p.agent_id AND TRUE) AND m.store_id = :store_id))) AND p.store_id = :store_id;
-- storage.memories.provenance: of
SELECT m.id AS id, m.made_by AS made_by, m.source AS source, m.owner_user_id AS owner, m.created_at AS created_at,
    COALESCE(s.id, JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(m.metadata)) <> 0 THEN m.metadata ELSE '[]' END)
    AS JSON), 'session')) AS session, s.ref_code AS ref_code, JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN
    (JSON_VALID(m.metadata)) <> 0 THEN m.metadata ELSE '[]' END) AS JSON), 'workspace') AS workspace, m.source_message
    AS message, g.role AS role, COALESCE(g.name, g.tool_name) AS name, g.user_id AS user
FROM UNNEST(CAST(:ids AS TEXT[])) WITH ORDINALITY AS j(value, key)
JOIN memories AS m ON m.agent_id = :agent AND m.id = j.value
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = m.session_row
CROSS JOIN LATERAL (SELECT (SELECT MIN(g.row_id) FROM messages AS g JOIN sessions AS gs ON gs.row_id = g.session_row
    WHERE ((g.agent_id = m.agent_id AND g.id = m.source_message AND (m.session_row IS NULL OR g.session_row =
    m.session_row) AND (g.visibility = 'shared' OR (gs.user_id IS NULL OR gs.user_id = :viewer OR gs.id = :viewer_group
    OR ((gs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = gs.row_id AND vu.user_id
    = :viewer) AND vu.store_id = :store_id))))) AND g.store_id = :store_id) AND gs.store_id = :store_id) AS row_id
    OFFSET 0) AS g_keys
LEFT JOIN messages AS g ON g.store_id = :store_id AND g.row_id = g_keys.row_id
WHERE m.store_id = :store_id;
-- storage.memories.sweeps: outlines
SELECT m.row_id AS row_id, m.id AS id, m.tier AS tier, m.lifetime AS lifetime, m.kind AS kind, m.source AS source,
    m.importance AS importance, m.access_count AS access_count, m.created_at AS created_at, m.accessed_at AS
    accessed_at, m.expires_at AS expires_at, m.owner_user_id AS owner_user_id, m.channel_id AS channel, m.session_row AS
    session_row, CAST(CAST((NOT m.note_id IS NULL) AS INT) AS BIGINT) AS is_note, CAST(CAST((NOT m.category IS NULL) AS
    INT) AS BIGINT) AS is_fact, m.subject AS subject, m.pinned AS pinned, m.visibility AS visibility, m.tenant AS
    tenant, m.confirmed_at AS confirmed_at, CASE WHEN m.owner_user_id IS NULL AND NOT m.session_row IS NULL THEN (SELECT
    os.audience FROM sessions AS os WHERE os.row_id = m.session_row AND os.store_id = :store_id) END AS audience
FROM UNNEST(CAST(:rows AS BIGINT[])) WITH ORDINALITY AS j(value, key)
JOIN memories AS m ON m.row_id = j.value
WHERE (m.agent_id = :agent AND m.superseded_by IS NULL) AND m.store_id = :store_id
ORDER BY m.row_id;
SELECT m.row_id AS row_id, m.id AS id, m.tier AS tier, m.lifetime AS lifetime, m.kind AS kind, m.source AS source,
    m.importance AS importance, m.access_count AS access_count, m.created_at AS created_at, m.accessed_at AS
    accessed_at, m.expires_at AS expires_at, m.owner_user_id AS owner_user_id, m.channel_id AS channel, m.session_row AS
    session_row, CAST(CAST((NOT m.note_id IS NULL) AS INT) AS BIGINT) AS is_note, CAST(CAST((NOT m.category IS NULL) AS
    INT) AS BIGINT) AS is_fact, m.subject AS subject, m.pinned AS pinned, m.visibility AS visibility, m.tenant AS
    tenant, m.confirmed_at AS confirmed_at, CASE WHEN m.owner_user_id IS NULL AND NOT m.session_row IS NULL THEN (SELECT
    os.audience FROM sessions AS os WHERE os.row_id = m.session_row AND os.store_id = :store_id) END AS audience
FROM memories AS m
WHERE (m.agent_id = :agent AND m.superseded_by IS NULL) AND m.store_id = :store_id
ORDER BY m.row_id;
-- storage.memories.sweeps: outlines
SELECT m.row_id AS row_id, m.id AS id, m.tier AS tier, m.lifetime AS lifetime, m.kind AS kind, m.source AS source,
    m.importance AS importance, m.access_count AS access_count, m.created_at AS created_at, m.accessed_at AS
    accessed_at, m.expires_at AS expires_at, m.owner_user_id AS owner_user_id, m.channel_id AS channel, m.session_row AS
    session_row, CAST(CAST((NOT m.note_id IS NULL) AS INT) AS BIGINT) AS is_note, CAST(CAST((NOT m.category IS NULL) AS
    INT) AS BIGINT) AS is_fact, m.subject AS subject, m.pinned AS pinned, m.visibility AS visibility, m.tenant AS
    tenant, m.confirmed_at AS confirmed_at, CASE WHEN m.owner_user_id IS NULL AND NOT m.session_row IS NULL THEN (SELECT
    os.audience FROM sessions AS os WHERE os.row_id = m.session_row AND os.store_id = :store_id) END AS audience
FROM UNNEST(CAST(:rows AS BIGINT[])) WITH ORDINALITY AS j(value, key)
JOIN memories AS m ON m.row_id = j.value
WHERE (m.agent_id = :agent AND m.superseded_by IS NULL) AND m.store_id = :store_id
ORDER BY m.row_id;
SELECT m.row_id AS row_id, m.id AS id, m.tier AS tier, m.lifetime AS lifetime, m.kind AS kind, m.source AS source,
    m.importance AS importance, m.access_count AS access_count, m.created_at AS created_at, m.accessed_at AS
    accessed_at, m.expires_at AS expires_at, m.owner_user_id AS owner_user_id, m.channel_id AS channel, m.session_row AS
    session_row, CAST(CAST((NOT m.note_id IS NULL) AS INT) AS BIGINT) AS is_note, CAST(CAST((NOT m.category IS NULL) AS
    INT) AS BIGINT) AS is_fact, m.subject AS subject, m.pinned AS pinned, m.visibility AS visibility, m.tenant AS
    tenant, m.confirmed_at AS confirmed_at, CASE WHEN m.owner_user_id IS NULL AND NOT m.session_row IS NULL THEN (SELECT
    os.audience FROM sessions AS os WHERE os.row_id = m.session_row AND os.store_id = :store_id) END AS audience
FROM memories AS m
WHERE (m.agent_id = :agent AND m.superseded_by IS NULL) AND m.store_id = :store_id
ORDER BY m.row_id;
-- storage.memories.sweeps: little_known
SELECT m.row_id
FROM UNNEST(CAST(:rows AS BIGINT[])) WITH ORDINALITY AS j(value, key)
JOIN memories AS m ON m.row_id = j.value
WHERE (m.agent_id = :agent AND (m.visibility = 'shared' OR (m.owner_user_id IS NULL AND COALESCE((SELECT os.audience
    FROM sessions AS os WHERE os.row_id = m.session_row AND os.store_id = :store_id), '') NOT ILIKE 'u:%')) AND
    EXISTS(SELECT 1 FROM (SELECT COUNT(DISTINCT e.user_id) AS users, COUNT(DISTINCT e.at / NULLIF(86400000000, 0)) AS
    days FROM chunks AS c JOIN recall_events AS e ON e.chunk_id = c.id WHERE ((c.memory_row = m.row_id AND NOT e.user_id
    IS NULL AND e.user_id IS DISTINCT FROM COALESCE(m.owner_user_id, (SELECT MIN(am.user_id) FROM messages AS am WHERE
    (am.agent_id = m.agent_id AND am.id = m.source_message AND (m.session_row IS NULL OR am.session_row =
    m.session_row)) AND am.store_id = :store_id))) AND c.store_id = :store_id) AND e.store_id = :store_id) WHERE users <
    :min_users OR days < :min_days)) AND m.store_id = :store_id;
-- storage.memories.sweeps: count
SELECT COUNT(*)
FROM memories
WHERE (agent_id = :agent AND superseded_by IS NULL AND tier = COALESCE(:tier, tier)) AND memories.store_id = :store_id;
-- storage.memories.sweeps: texts
SELECT m.row_id, m.content
FROM UNNEST(CAST(:rows AS BIGINT[])) WITH ORDINALITY AS j(value, key)
JOIN memories AS m ON m.row_id = j.value
WHERE m.agent_id = :agent AND m.store_id = :store_id;
-- storage.memories.sweeps: single_chunk_vectors
SELECT c.memory_row, v.embedding
FROM chunks AS c
JOIN chunks_vec AS v ON v.chunk_id = c.id AND v.model = :model AND v.dim = :dim
WHERE ((c.agent_id = :agent AND c.memory_row = ANY(CAST(:rows AS BIGINT[])) AND NOT EXISTS(SELECT 1 FROM chunks AS o
    WHERE (o.memory_row = c.memory_row AND o.id <> c.id) AND o.store_id = :store_id)) AND c.store_id = :store_id) AND
    v.store_id = :store_id;
-- storage.memories.sweeps: remove
DELETE FROM memories
WHERE (row_id = :row AND agent_id = :agent) AND memories.store_id = :store_id;
-- storage.memories.sweeps: promote
UPDATE memories
SET lifetime = 'long_term'
WHERE (row_id = :row AND agent_id = :agent) AND memories.store_id = :store_id;
-- storage.memories.sweeps: merge
UPDATE memories
SET superseded_by = :by, superseded_at = :at
WHERE (row_id = :row AND agent_id = :agent) AND memories.store_id = :store_id;
-- storage.memories.sweeps: _update
UPDATE memories
SET importance = :importance, access_count = :access_count, accessed_at = :accessed_at, expires_at = :expires_at,
    lifetime = :lifetime, tags = :tags, subject = :subject
WHERE (row_id = :row AND agent_id = :agent) AND memories.store_id = :store_id;
-- storage.memories.sweeps: _update
INSERT INTO chunk_tags (tag, chunk_id) SELECT t.value, c.id
FROM chunks AS c
CROSS JOIN UNNEST(CAST(:tags AS TEXT[])) WITH ORDINALITY AS t(value, key)
WHERE (c.memory_row = :row AND c.agent_id = :agent) AND c.store_id = :store_id ON CONFLICT DO NOTHING;
-- storage.memories.sweeps: _remove_chunks
DELETE FROM chunks
WHERE (agent_id = :agent AND memory_row = :row) AND chunks.store_id = :store_id
RETURNING id;
-- storage.memories.sweeps: _ids_with_superseded
WITH RECURSIVE removed(root, row_id) AS (SELECT CAST(value AS BIGINT), CAST(value AS BIGINT) FROM UNNEST(CAST(:rows AS
    TEXT[])) WITH ORDINALITY AS json_each(value, key) UNION SELECT r.root, m.row_id FROM removed AS r JOIN memories AS m
    ON m.superseded_by = r.row_id WHERE m.store_id = :store_id) SELECT r.root, m.id
FROM removed AS r
JOIN memories AS m ON m.row_id = r.row_id
WHERE m.agent_id = :agent AND m.store_id = :store_id;
-- storage.pipeline.broker_content: follow
SELECT 1
FROM broker_content
WHERE id = :id AND broker_content.store_id = :store_id;
-- storage.pipeline.broker_content: follow
SELECT 1
FROM broker_content
WHERE broker_content.store_id = :store_id LIMIT 1;
-- storage.pipeline.broker_content: follow
DELETE FROM forgotten_sessions
WHERE forgotten_sessions.store_id = :store_id;
-- storage.pipeline.broker_content: follow
INSERT INTO broker_content (id, files_before)
VALUES (:id, CASE WHEN (:is_first) <> 0 THEN 0 ELSE COALESCE((SELECT HIGHEST_NUMBER('files') AS seq), 0) END);
-- storage.pipeline.broker_content: follow
DELETE FROM broker_content
WHERE seq <= (SELECT MAX(seq) FROM broker_content WHERE broker_content.store_id = :store_id) - :kept AND
    broker_content.store_id = :store_id;
-- storage.pipeline.broker_content: is_file_of_earlier
SELECT MAX(files_before)
FROM broker_content
WHERE broker_content.store_id = :store_id;
-- storage.pipeline.chunks: sources
WITH sized AS MATERIALIZED (SELECT row_id, SUM(OCTET_LENGTH(content) + COALESCE(OCTET_LENGTH(tool_calls), 0)) OVER
    (ORDER BY row_id) - (OCTET_LENGTH(content) + COALESCE(OCTET_LENGTH(tool_calls), 0)) AS bytes_before FROM messages
    WHERE row_id = ANY(CAST(:ids AS BIGINT[])) AND messages.store_id = :store_id) SELECT row_id AS row_id, id AS id,
    agent_id AS agent, session_row AS session_row, sequence AS sequence, role AS role, name AS name, content AS content,
    tool_calls AS tool_calls, tags AS tags, created_at AS created_at, accepted_at AS accepted_at, trace_id AS trace,
    COALESCE((SELECT SUBSTRING(b.content FROM -1000) FROM messages AS b WHERE (b.session_row = messages.session_row AND
    b.sequence < messages.sequence AND (messages.visibility IS DISTINCT FROM 'shared' OR b.visibility = 'shared')) AND
    b.store_id = :store_id ORDER BY b.sequence DESC LIMIT 1), '') AS before
FROM messages
WHERE (chunked_at IS NULL AND row_id = ANY(CAST(:ids AS BIGINT[])) AND row_id IN (SELECT row_id FROM sized WHERE
    bytes_before < :max_bytes)) AND messages.store_id = :store_id
ORDER BY row_id;
WITH sized AS MATERIALIZED (SELECT row_id, SUM(OCTET_LENGTH(content)) OVER (ORDER BY row_id) - (OCTET_LENGTH(content))
    AS bytes_before FROM files WHERE row_id = ANY(CAST(:ids AS BIGINT[])) AND files.store_id = :store_id) SELECT row_id
    AS row_id, id AS id, agent_id AS agent, session_row AS session_row, 0 AS sequence, 'user' AS role, NULL AS name,
    content AS content, NULL AS tool_calls, tags AS tags, created_at AS created_at, accepted_at AS accepted_at, trace_id
    AS trace, '' AS before
FROM files
WHERE (chunked_at IS NULL AND row_id = ANY(CAST(:ids AS BIGINT[])) AND row_id IN (SELECT row_id FROM sized WHERE
    bytes_before < :max_bytes)) AND files.store_id = :store_id
ORDER BY row_id;
WITH sized AS MATERIALIZED (SELECT row_id, SUM(OCTET_LENGTH(content)) OVER (ORDER BY row_id) - (OCTET_LENGTH(content))
    AS bytes_before FROM memories WHERE row_id = ANY(CAST(:ids AS BIGINT[])) AND memories.store_id = :store_id) SELECT
    row_id AS row_id, id AS id, agent_id AS agent, CASE WHEN tier = 'conversation' OR NOT note_id IS NULL THEN
    session_row END AS session_row, 0 AS sequence, 'user' AS role, NULL AS name, content AS content, NULL AS tool_calls,
    tags AS tags, created_at AS created_at, stored_at AS accepted_at, trace_id AS trace, '' AS before
FROM memories
WHERE (chunked_at IS NULL AND superseded_by IS NULL AND row_id = ANY(CAST(:ids AS BIGINT[])) AND row_id IN (SELECT
    row_id FROM sized WHERE bytes_before < :max_bytes)) AND memories.store_id = :store_id
ORDER BY row_id;
-- storage.pipeline.chunks: source_rows
WITH sized AS MATERIALIZED (SELECT row_id, SUM(OCTET_LENGTH(content) + COALESCE(OCTET_LENGTH(tool_calls), 0)) OVER
    (ORDER BY row_id) - (OCTET_LENGTH(content) + COALESCE(OCTET_LENGTH(tool_calls), 0)) AS bytes_before FROM messages
    WHERE row_id = ANY(CAST(:ids AS BIGINT[])) AND messages.store_id = :store_id) SELECT row_id
FROM messages
WHERE (chunked_at IS NULL AND row_id = ANY(CAST(:ids AS BIGINT[])) AND row_id IN (SELECT row_id FROM sized WHERE
    bytes_before < :max_bytes)) AND messages.store_id = :store_id
ORDER BY row_id;
WITH sized AS MATERIALIZED (SELECT row_id, SUM(OCTET_LENGTH(content) + COALESCE(OCTET_LENGTH(tool_calls), 0)) OVER
    (ORDER BY row_id) - (OCTET_LENGTH(content) + COALESCE(OCTET_LENGTH(tool_calls), 0)) AS bytes_before FROM messages
    WHERE row_id = ANY(CAST(:ids AS BIGINT[])) AND messages.store_id = :store_id) SELECT row_id
FROM messages
WHERE (chunked_at IS NULL AND superseded_by IS NULL AND row_id = ANY(CAST(:ids AS BIGINT[])) AND row_id IN (SELECT
    row_id FROM sized WHERE bytes_before < :max_bytes)) AND messages.store_id = :store_id
ORDER BY row_id;
WITH sized AS MATERIALIZED (SELECT row_id, SUM(OCTET_LENGTH(content)) OVER (ORDER BY row_id) - (OCTET_LENGTH(content))
    AS bytes_before FROM files WHERE row_id = ANY(CAST(:ids AS BIGINT[])) AND files.store_id = :store_id) SELECT row_id
FROM files
WHERE (chunked_at IS NULL AND row_id = ANY(CAST(:ids AS BIGINT[])) AND row_id IN (SELECT row_id FROM sized WHERE
    bytes_before < :max_bytes)) AND files.store_id = :store_id
ORDER BY row_id;
WITH sized AS MATERIALIZED (SELECT row_id, SUM(OCTET_LENGTH(content)) OVER (ORDER BY row_id) - (OCTET_LENGTH(content))
    AS bytes_before FROM files WHERE row_id = ANY(CAST(:ids AS BIGINT[])) AND files.store_id = :store_id) SELECT row_id
FROM files
WHERE (chunked_at IS NULL AND superseded_by IS NULL AND row_id = ANY(CAST(:ids AS BIGINT[])) AND row_id IN (SELECT
    row_id FROM sized WHERE bytes_before < :max_bytes)) AND files.store_id = :store_id
ORDER BY row_id;
WITH sized AS MATERIALIZED (SELECT row_id, SUM(OCTET_LENGTH(content)) OVER (ORDER BY row_id) - (OCTET_LENGTH(content))
    AS bytes_before FROM memories WHERE row_id = ANY(CAST(:ids AS BIGINT[])) AND memories.store_id = :store_id) SELECT
    row_id
FROM memories
WHERE (chunked_at IS NULL AND row_id = ANY(CAST(:ids AS BIGINT[])) AND row_id IN (SELECT row_id FROM sized WHERE
    bytes_before < :max_bytes)) AND memories.store_id = :store_id
ORDER BY row_id;
WITH sized AS MATERIALIZED (SELECT row_id, SUM(OCTET_LENGTH(content)) OVER (ORDER BY row_id) - (OCTET_LENGTH(content))
    AS bytes_before FROM memories WHERE row_id = ANY(CAST(:ids AS BIGINT[])) AND memories.store_id = :store_id) SELECT
    row_id
FROM memories
WHERE (chunked_at IS NULL AND superseded_by IS NULL AND row_id = ANY(CAST(:ids AS BIGINT[])) AND row_id IN (SELECT
    row_id FROM sized WHERE bytes_before < :max_bytes)) AND memories.store_id = :store_id
ORDER BY row_id;
-- storage.pipeline.chunks: add_message_chunks
INSERT INTO chunks (id, agent_id, session_row, file_row, memory_row, text, lead, content_hash, sequence_start,
    sequence_end, created_at, stored_at)
VALUES (:id, :agent, :session_row, :file_row, :memory_row, :text, :lead, :content_hash, :sequence_start, :sequence_end,
    :created_at, :now);
-- storage.pipeline.chunks: add_message_chunks
INSERT INTO forward_index (agent_id, chunk_id, thread, sequence, created_at, role, speaker, words, audience)
VALUES (:agent, :id, :thread, :sequence_start, :created_at, :role, :speaker, :words, (SELECT audience FROM
    chunk_audiences WHERE chunk_id = :id AND chunk_audiences.store_id = :store_id));
-- storage.pipeline.chunks: add_message_chunks
UPDATE chunks
SET sequence_end = GREATEST(sequence_end, :sequence)
WHERE id = :id AND chunks.store_id = :store_id;
-- storage.pipeline.chunks: add_message_chunks
INSERT INTO message_chunks (message_row, chunk_id)
VALUES (:message, :chunk) ON CONFLICT DO NOTHING;
-- storage.pipeline.chunks: add_message_chunks
INSERT INTO chunk_tags (tag, chunk_id)
VALUES (:tag, :chunk) ON CONFLICT DO NOTHING;
-- storage.pipeline.chunks: add_document_chunks
SELECT content_hash
FROM chunks
WHERE (memory_row = :row AND content_hash IN (SELECT decode(value, 'hex') FROM UNNEST(CAST(:hashes AS TEXT[])) WITH
    ORDINALITY AS json_each(value, key) OFFSET 0)) AND chunks.store_id = :store_id;
SELECT content_hash
FROM chunks
WHERE (file_row = :row AND content_hash IN (SELECT decode(value, 'hex') FROM UNNEST(CAST(:hashes AS TEXT[])) WITH
    ORDINALITY AS json_each(value, key) OFFSET 0)) AND chunks.store_id = :store_id;
-- storage.pipeline.chunks: add_document_chunks
INSERT INTO chunks (id, agent_id, session_row, file_row, memory_row, text, lead, content_hash, sequence_start,
    sequence_end, created_at, stored_at)
VALUES (:id, :agent, :session_row, :file_row, :memory_row, :text, :lead, :content_hash, :sequence_start, :sequence_end,
    :created_at, :now);
-- storage.pipeline.chunks: add_document_chunks
INSERT INTO forward_index (agent_id, chunk_id, thread, sequence, created_at, role, speaker, words, audience)
VALUES (:agent, :id, :thread, :sequence_start, :created_at, :role, :speaker, :words, (SELECT audience FROM
    chunk_audiences WHERE chunk_id = :id AND chunk_audiences.store_id = :store_id));
-- storage.pipeline.chunks: add_document_chunks
INSERT INTO chunk_tags (tag, chunk_id)
VALUES (:tag, :chunk) ON CONFLICT DO NOTHING;
-- storage.pipeline.chunks: outdated
SELECT id, content_hash
FROM chunks
WHERE file_row = :row AND chunks.store_id = :store_id;
-- storage.pipeline.chunks: remove
DELETE FROM chunks
WHERE id = ANY(CAST(:chunks AS BIGINT[])) AND chunks.store_id = :store_id;
-- storage.pipeline.chunks: mark_chunked
UPDATE messages
SET chunked_at = :now
WHERE row_id = ANY(CAST(:ids AS BIGINT[])) AND messages.store_id = :store_id;
UPDATE files
SET chunked_at = :now
WHERE row_id = ANY(CAST(:ids AS BIGINT[])) AND files.store_id = :store_id;
UPDATE memories
SET chunked_at = :now
WHERE row_id = ANY(CAST(:ids AS BIGINT[])) AND memories.store_id = :store_id;
-- storage.pipeline.chunks: pending
SELECT c.id AS id, c.agent_id AS agent, c.lead AS lead, c.text AS text, f.speaker AS speaker
FROM chunks AS c
LEFT JOIN forward_index AS f ON f.store_id = :store_id AND (f.agent_id = c.agent_id AND f.chunk_id = c.id)
WHERE (c.embedded_at IS NULL AND c.id = ANY(CAST(:ids AS BIGINT[]))) AND c.store_id = :store_id
ORDER BY c.id;
-- storage.pipeline.chunks: store_vectors
INSERT INTO chunks_vec (chunk_id, model, dim, embedding)
VALUES (:id, :model, :dim, :embedding) ON CONFLICT(store_id, chunk_id, model) DO UPDATE
SET dim = :dim, embedding = :embedding;
-- storage.pipeline.chunks: store_vectors
UPDATE chunks
SET embedded_at = :now
WHERE id = ANY(CAST(:ids AS BIGINT[])) AND chunks.store_id = :store_id;
-- storage.pipeline.chunks: vectors
SELECT v.chunk_id AS chunk_id, c.agent_id AS agent, v.embedding AS embedding
FROM chunks_vec AS v
JOIN chunks AS c ON c.id = v.chunk_id
WHERE ((v.chunk_id = ANY(CAST(:ids AS BIGINT[])) AND v.model = (SELECT model FROM indexes WHERE (kind = 'vector' AND
    state = 'active') AND indexes.store_id = :store_id) AND LENGTH(v.embedding) = 4 * v.dim) AND v.store_id = :store_id)
    AND c.store_id = :store_id
ORDER BY v.chunk_id;
-- storage.pipeline.chunks: remove_damaged_vectors
DELETE FROM chunks_vec
WHERE (chunk_id = ANY(CAST(:ids AS BIGINT[])) AND LENGTH(embedding) <> 4 * dim) AND chunks_vec.store_id = :store_id
RETURNING chunk_id;
-- storage.pipeline.chunks: remove_damaged_vectors
UPDATE chunks
SET embedded_at = NULL
WHERE id = ANY(CAST(:ids AS BIGINT[])) AND chunks.store_id = :store_id;
-- storage.pipeline.chunks: mark_indexed
UPDATE chunks
SET indexed_at = :now
WHERE id = ANY(CAST(:ids AS BIGINT[])) AND chunks.store_id = :store_id;
-- storage.pipeline.chunks: completed_by
WITH listed AS MATERIALIZED (SELECT id, file_row FROM chunks WHERE id = ANY(CAST(:ids AS BIGINT[])) AND chunks.store_id
    = :store_id) SELECT DISTINCT 'message' AS kind, m.row_id AS row_id, m.id AS id, m.created_at AS created_at,
    m.accepted_at AS accepted_at
FROM message_chunks AS l
JOIN messages AS m ON m.row_id = l.message_row
WHERE ((l.chunk_id = ANY(CAST(:ids AS BIGINT[])) AND NOT EXISTS(SELECT 1 FROM message_chunks AS o WHERE (o.message_row =
    m.row_id AND (SELECT c.indexed_at FROM chunks AS c WHERE c.id = o.chunk_id AND c.store_id = :store_id) IS NULL) AND
    o.store_id = :store_id)) AND l.store_id = :store_id) AND m.store_id = :store_id
UNION ALL SELECT 'file' AS kind, f.row_id AS row_id, f.id AS id, f.created_at AS created_at, f.accepted_at AS
    accepted_at
FROM files AS f
WHERE (f.row_id IN (SELECT file_row FROM listed) AND NOT EXISTS(SELECT 1 FROM chunks AS c WHERE (c.file_row = f.row_id
    AND c.indexed_at IS NULL) AND c.store_id = :store_id)) AND f.store_id = :store_id;
-- storage.pipeline.chunks: ready_messages
SELECT 'message' AS kind, m.row_id AS row_id, m.id AS id, m.created_at AS created_at, m.accepted_at AS accepted_at
FROM messages AS m
WHERE (NOT chunked_at IS NULL AND row_id = ANY(CAST(:rows AS BIGINT[])) AND (NOT (:with_vectors) <> 0 OR NOT
    EXISTS(SELECT 1 FROM message_chunks AS l JOIN chunks AS c ON c.id = l.chunk_id WHERE ((l.message_row = m.row_id AND
    c.indexed_at IS NULL) AND l.store_id = :store_id) AND c.store_id = :store_id))) AND m.store_id = :store_id;
-- storage.pipeline.chunks: ready_files
SELECT 'file' AS kind, f.row_id AS row_id, f.id AS id, f.created_at AS created_at, f.accepted_at AS accepted_at
FROM files AS f
WHERE (NOT chunked_at IS NULL AND row_id = ANY(CAST(:rows AS BIGINT[])) AND (NOT (:with_vectors) <> 0 OR NOT
    EXISTS(SELECT 1 FROM chunks AS c WHERE (c.file_row = f.row_id AND c.indexed_at IS NULL) AND c.store_id =
    :store_id))) AND f.store_id = :store_id;
-- storage.pipeline.chunks: is_memory_ready
SELECT 1
FROM memories AS m
WHERE (m.row_id = :row AND NOT m.chunked_at IS NULL AND (NOT (:with_vectors) <> 0 OR NOT EXISTS(SELECT 1 FROM chunks AS
    c WHERE (c.memory_row = m.row_id AND c.indexed_at IS NULL) AND c.store_id = :store_id))) AND m.store_id = :store_id;
-- storage.pipeline.chunks: source_messages
WITH listed AS MATERIALIZED (SELECT id, file_row FROM chunks WHERE id = ANY(CAST(:ids AS BIGINT[])) AND chunks.store_id
    = :store_id) SELECT DISTINCT 'message' AS kind, m.row_id AS row_id, m.id AS id, m.created_at AS created_at,
    m.accepted_at AS accepted_at
FROM message_chunks AS l
JOIN messages AS m ON m.row_id = l.message_row
WHERE (l.chunk_id = ANY(CAST(:ids AS BIGINT[])) AND l.store_id = :store_id) AND m.store_id = :store_id
UNION SELECT 'file' AS kind, f.row_id AS row_id, f.id AS id, f.created_at AS created_at, f.accepted_at AS accepted_at
FROM listed AS c
JOIN files AS f ON f.row_id = c.file_row
WHERE f.store_id = :store_id;
-- storage.pipeline.chunks: origins
WITH listed AS MATERIALIZED (SELECT id, file_row FROM chunks WHERE id = ANY(CAST(:ids AS BIGINT[])) AND chunks.store_id
    = :store_id) SELECT DISTINCT m.id AS id, m.trace_id AS trace, m.created_at AS created_at, m.accepted_at AS
    accepted_at
FROM message_chunks AS l
JOIN messages AS m ON m.row_id = l.message_row
WHERE (l.chunk_id = ANY(CAST(:ids AS BIGINT[])) AND l.store_id = :store_id) AND m.store_id = :store_id
UNION SELECT f.id AS id, f.trace_id AS trace, f.created_at AS created_at, f.accepted_at AS accepted_at
FROM listed AS c
JOIN files AS f ON f.row_id = c.file_row
WHERE f.store_id = :store_id;
-- storage.pipeline.chunks: newest_without_vector
SELECT id
FROM chunks
WHERE embedded_at IS NULL AND chunks.store_id = :store_id
ORDER BY id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.pipeline.chunks: set_embedding_error
UPDATE messages
SET embedding_error = :error
WHERE row_id IN (SELECT message_row FROM message_chunks WHERE chunk_id = ANY(CAST(:ids AS BIGINT[])) AND
    message_chunks.store_id = :store_id) AND messages.store_id = :store_id;
-- storage.pipeline.chunks: _known_hashes
SELECT c.session_row, c.content_hash, c.id
FROM JSONB_ARRAY_ELEMENTS(CAST(:hashes AS JSONB)) WITH ORDINALITY AS w(value, key)
CROSS JOIN LATERAL (SELECT CAST(JSON_EXTRACT_PATH_TEXT(CAST((w.value) AS JSON), '0') AS BIGINT) AS session_row,
    decode(JSON_EXTRACT_PATH_TEXT(CAST((w.value) AS JSON), '1'), 'hex') AS content_hash OFFSET 0) AS c_keys
JOIN chunks AS c ON c.session_row = c_keys.session_row AND c.content_hash = c_keys.content_hash AND c.file_row IS NULL
    AND c.memory_row IS NULL
WHERE c.store_id = :store_id;
-- storage.pipeline.chunks: _next_id
SELECT HIGHEST_NUMBER('chunks') AS seq;
-- storage.pipeline.dead_letters: add
INSERT INTO dead_letters (agent_id, session_id, stage, item_id, payload, error_type, error, attempts, trace_id, variant,
    created_at)
VALUES (:agent, :session, :stage, :item_id, :payload, :error_type, :error, :attempts, :trace, :variant, :now) ON
    CONFLICT(store_id, agent_id, stage, item_id, variant) DO UPDATE
SET payload = excluded.payload, error_type = excluded.error_type, error = excluded.error, created_at =
    excluded.created_at, attempts = dead_letters.attempts + excluded.attempts;
-- storage.pipeline.dead_letters: list
SELECT agent_id AS agent, session_id AS session, stage AS stage, item_id AS item_id, payload AS payload, error_type AS
    error_type, error AS error, attempts AS attempts, trace_id AS trace, variant AS variant, id AS id, created_at AS
    created_at
FROM dead_letters
WHERE COALESCE(:agent, agent_id) = agent_id AND dead_letters.store_id = :store_id
ORDER BY id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
-- storage.pipeline.dead_letters: find
SELECT agent_id AS agent, session_id AS session, stage AS stage, item_id AS item_id, payload AS payload, error_type AS
    error_type, error AS error, attempts AS attempts, trace_id AS trace, variant AS variant, id AS id, created_at AS
    created_at
FROM dead_letters
WHERE (COALESCE(:agent, agent_id) = agent_id AND id = :id) AND dead_letters.store_id = :store_id;
-- storage.pipeline.dead_letters: remove_of_items
SELECT 1
FROM dead_letters
WHERE dead_letters.store_id = :store_id LIMIT 1;
-- storage.pipeline.dead_letters: remove_of_items
DELETE FROM dead_letters
WHERE (agent_id = :agent AND stage = :stage AND item_id = :item AND variant = :variant) AND dead_letters.store_id =
    :store_id;
-- storage.pipeline.dead_letters: remove
DELETE FROM dead_letters
WHERE (id = :id AND created_at = :created_at AND COALESCE(:agent, agent_id) = agent_id) AND dead_letters.store_id =
    :store_id;
-- storage.pipeline.dead_letters: remove_of_stage
DELETE FROM dead_letters
WHERE (stage = :stage AND COALESCE(:agent, agent_id) = agent_id) AND dead_letters.store_id = :store_id;
-- storage.pipeline.dead_letters: _remove_rows
DELETE FROM dead_letters
WHERE id IN (SELECT l.id FROM dead_letters AS l WHERE ((l.stage = 'chunk' AND NOT EXISTS(SELECT 1 FROM messages WHERE
    (row_id = CAST(l.item_id AS BIGINT) AND chunked_at IS NULL) AND messages.store_id = :store_id)) OR (l.stage =
    'chunk-files' AND NOT EXISTS(SELECT 1 FROM files WHERE (row_id = CAST(l.item_id AS BIGINT) AND chunked_at IS NULL)
    AND files.store_id = :store_id)) OR (l.stage = 'chunk-memories' AND NOT EXISTS(SELECT 1 FROM memories WHERE (row_id
    = CAST(l.item_id AS BIGINT) AND chunked_at IS NULL AND superseded_by IS NULL) AND memories.store_id = :store_id)) OR
    (l.stage = 'embed' AND NOT EXISTS(SELECT 1 FROM chunks WHERE (id = CAST(l.item_id AS BIGINT) AND embedded_at IS
    NULL) AND chunks.store_id = :store_id)) OR (l.stage = 'index' AND NOT EXISTS(SELECT 1 FROM chunks WHERE (id =
    CAST(l.item_id AS BIGINT) AND NOT embedded_at IS NULL AND indexed_at IS NULL) AND chunks.store_id = :store_id)) OR
    (l.stage = 'items' AND NOT EXISTS(SELECT 1 FROM items WHERE (row_id = CAST(l.item_id AS BIGINT) AND embedding_model
    IS NULL AND NOT index_fields IS NULL) AND items.store_id = :store_id))) AND l.store_id = :store_id LIMIT
    NULLIF(CAST(:limit AS BIGINT), -1)) AND dead_letters.store_id = :store_id;
DELETE FROM dead_letters
WHERE id IN (SELECT id FROM dead_letters WHERE created_at < :before AND dead_letters.store_id = :store_id ORDER BY id
    LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AND dead_letters.store_id = :store_id;
DELETE FROM dead_letters
WHERE id IN (SELECT id FROM dead_letters WHERE dead_letters.store_id = :store_id ORDER BY id LIMIT LEAST(:limit,
    GREATEST(0, (SELECT COUNT(*) FROM dead_letters WHERE dead_letters.store_id = :store_id) - :kept))) AND
    dead_letters.store_id = :store_id;
-- storage.pipeline.dead_letters: count
SELECT COUNT(*)
FROM dead_letters
WHERE COALESCE(:agent, agent_id) = agent_id AND dead_letters.store_id = :store_id;
-- storage.pipeline.files: forget
UPDATE files
SET agent_id = '', id = row_id, source_uri = row_id, content = '', content_hash = CAST('\x' AS bytea), tags = '[]',
    metadata = '{}', chunked_at = NULL
WHERE row_id = :row AND files.store_id = :store_id;
-- storage.pipeline.files: forget
DELETE FROM claims
WHERE (stage = 'chunk-files' AND item_id = :row) AND claims.store_id = :store_id;
-- storage.pipeline.files: remove_step
SELECT id
FROM chunks
WHERE file_row = :row AND chunks.store_id = :store_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.pipeline.files: remove_step
DELETE FROM files
WHERE row_id = :row AND files.store_id = :store_id;
-- storage.pipeline.files: _next
SELECT row_id
FROM files
WHERE agent_id = '' AND files.store_id = :store_id
ORDER BY id LIMIT 1;
-- storage.pipeline.files: _is_large
SELECT 1
FROM chunks
WHERE file_row = :row AND chunks.store_id = :store_id LIMIT 1 OFFSET :chunks;
-- storage.pipeline.files: version
SELECT row_id AS row_id, id AS id, content_hash AS content_hash, tags AS tags, metadata AS metadata, visibility AS
    visibility, accepted_at AS accepted_at
FROM files
WHERE (agent_id = :agent AND source_uri = :uri AND COALESCE(session_row, 0) = COALESCE(:session_row, 0) AND
    COALESCE(user_id, '') = COALESCE(:user, '')) AND files.store_id = :store_id;
-- storage.pipeline.files: page
SELECT f.id AS id, f.source_uri AS source_uri, f.created_at AS created_at, OCTET_LENGTH(f.content) AS bytes, s.id AS
    session, f.tags AS tags, f.metadata AS metadata, f.user_id AS user, f.visibility AS visibility
FROM files AS f
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = f.session_row
WHERE (f.agent_id = :agent AND s.id = :session) AND f.store_id = :store_id
ORDER BY f.row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT f.id AS id, f.source_uri AS source_uri, f.created_at AS created_at, OCTET_LENGTH(f.content) AS bytes, s.id AS
    session, f.tags AS tags, f.metadata AS metadata, f.user_id AS user, f.visibility AS visibility
FROM files AS f
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = f.session_row
WHERE f.agent_id = :agent AND f.store_id = :store_id
ORDER BY f.row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT f.id AS id, f.source_uri AS source_uri, f.created_at AS created_at, OCTET_LENGTH(f.content) AS bytes, s.id AS
    session, f.tags AS tags, f.metadata AS metadata, f.user_id AS user, f.visibility AS visibility
FROM files AS f
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = f.session_row
WHERE (f.agent_id = :agent AND s.id = :session AND (f.visibility = 'shared' OR f.user_id = :viewer OR (f.user_id IS NULL
    AND (f.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = f.session_row AND (vs.user_id
    IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM
    session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND
    vs.store_id = :store_id))))) AND f.store_id = :store_id
ORDER BY f.row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT f.id AS id, f.source_uri AS source_uri, f.created_at AS created_at, OCTET_LENGTH(f.content) AS bytes, s.id AS
    session, f.tags AS tags, f.metadata AS metadata, f.user_id AS user, f.visibility AS visibility
FROM files AS f
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = f.session_row
WHERE (f.agent_id = :agent AND (f.visibility = 'shared' OR f.user_id = :viewer OR (f.user_id IS NULL AND (f.session_row
    IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = f.session_row AND (vs.user_id IS NULL OR
    vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu
    WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id =
    :store_id))))) AND f.store_id = :store_id
ORDER BY f.row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT f.id AS id, f.source_uri AS source_uri, f.created_at AS created_at, OCTET_LENGTH(f.content) AS bytes, s.id AS
    session, f.tags AS tags, f.metadata AS metadata, f.user_id AS user, f.visibility AS visibility
FROM files AS f
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = f.session_row
WHERE (f.agent_id = :agent AND s.id = :session AND (f.session_row IS NULL OR s.agent_id = f.agent_id)) AND f.store_id =
    :store_id
ORDER BY f.row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT f.id AS id, f.source_uri AS source_uri, f.created_at AS created_at, OCTET_LENGTH(f.content) AS bytes, s.id AS
    session, f.tags AS tags, f.metadata AS metadata, f.user_id AS user, f.visibility AS visibility
FROM files AS f
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = f.session_row
WHERE (f.agent_id = :agent AND (f.session_row IS NULL OR s.agent_id = f.agent_id)) AND f.store_id = :store_id
ORDER BY f.row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
-- storage.pipeline.files: with_ids
SELECT f.id AS id, f.source_uri AS source_uri, f.created_at AS created_at, OCTET_LENGTH(f.content) AS bytes, s.id AS
    session, f.tags AS tags, f.metadata AS metadata, f.user_id AS user, f.visibility AS visibility
FROM files AS f
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = f.session_row
WHERE (f.agent_id = :agent AND f.id = ANY(CAST(:ids AS TEXT[])) AND (f.visibility = 'shared' OR f.user_id = :viewer OR
    (f.user_id IS NULL AND (f.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id =
    f.session_row AND (vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND
    EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id
    = :store_id)))) AND vs.store_id = :store_id))))) AND f.store_id = :store_id;
-- storage.pipeline.files: ids_of
SELECT f.id
FROM files AS f
WHERE (f.agent_id = :agent AND f.source_uri = :uri AND (f.visibility = 'shared' OR f.user_id = :viewer OR (f.user_id IS
    NULL AND (f.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = f.session_row AND
    (vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM
    session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND
    vs.store_id = :store_id))))) AND f.store_id = :store_id;
-- storage.pipeline.files: row
SELECT row_id
FROM files
WHERE (agent_id = :agent AND id = :id) AND files.store_id = :store_id;
-- storage.pipeline.files: forget
SELECT f.id AS id, f.source_uri AS source_uri, f.created_at AS created_at, OCTET_LENGTH(f.content) AS bytes, s.id AS
    session, f.tags AS tags, f.metadata AS metadata, f.user_id AS user, f.visibility AS visibility
FROM files AS f
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = f.session_row
WHERE (f.agent_id = :agent AND f.id = :id AND (f.session_row IS NULL OR s.agent_id = f.agent_id) AND (f.visibility =
    'shared' OR f.user_id = :viewer OR (f.user_id IS NULL AND (f.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS
    vs WHERE (vs.row_id = f.session_row AND (vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR
    ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id =
    :viewer) AND vu.store_id = :store_id)))) AND vs.store_id = :store_id))))) AND f.store_id = :store_id;
-- storage.pipeline.files: forget
SELECT row_id
FROM files
WHERE (agent_id = :agent AND id = :id) AND files.store_id = :store_id;
-- storage.pipeline.files: forget
SELECT id
FROM chunks
WHERE (agent_id = :agent AND file_row = :row) AND chunks.store_id = :store_id;
-- storage.pipeline.files: forget
DELETE FROM dead_letters
WHERE (agent_id = :agent AND ((stage = 'ingest' AND item_id = :id) OR (stage = 'chunk-files' AND item_id = :row) OR
    (stage IN ('embed', 'index') AND item_id = ANY(CAST(:chunks AS TEXT[]))))) AND dead_letters.store_id = :store_id;
-- storage.pipeline.files: forgotten_at
SELECT MAX(forgotten_at)
FROM forgotten_sessions
WHERE (agent_id = :agent AND session_id IN (:delivery, :source)) AND forgotten_sessions.store_id = :store_id;
-- storage.pipeline.files: set_accepted_at
UPDATE files
SET accepted_at = GREATEST(accepted_at, :at)
WHERE (agent_id = :agent AND row_id = :row) AND files.store_id = :store_id;
-- storage.pipeline.files: rename
UPDATE files
SET id = :id
WHERE (agent_id = :agent AND row_id = :row) AND files.store_id = :store_id;
-- storage.pipeline.files: rewrite
UPDATE files
SET id = :id, content = :content, content_hash = :content_hash, metadata = :metadata, trace_id = :trace, created_at =
    :created_at, accepted_at = :accepted_at, stored_at = :stored_at, chunked_at = NULL
WHERE (agent_id = :agent AND row_id = :row_id) AND files.store_id = :store_id;
-- storage.pipeline.files: rewrite
DELETE FROM claims
WHERE (stage = 'chunk-files' AND item_id = :row) AND claims.store_id = :store_id;
-- storage.pipeline.files: replace
SELECT row_id
FROM files
WHERE (agent_id = :agent AND source_uri = :uri AND COALESCE(session_row, 0) = COALESCE(:session_row, 0) AND
    COALESCE(user_id, '') = COALESCE(:user, '')) AND files.store_id = :store_id;
-- storage.pipeline.files: replace
INSERT INTO files (id, agent_id, session_row, source_uri, content, content_hash, tags, metadata, trace_id, user_id,
    visibility, created_at, accepted_at, stored_at)
VALUES (:id, :agent, :session_row, :uri, :content, :content_hash, :tags, :metadata, :trace, :user, :visibility,
    :created_at, :accepted_at, :stored_at);
-- storage.pipeline.messages: whole
SELECT m.row_id AS row_id, m.id AS id, m.agent_id AS agent, s.id AS session, m.sequence AS sequence, m.role AS role,
    m.name AS name, m.content AS content, m.tool_call_id AS tool_call_id, m.tool_name AS tool_name, m.tool_calls AS
    tool_calls, m.token_count AS token_count, m.importance AS importance, m.tags AS tags, m.metadata AS metadata,
    m.trace_id AS trace, m.created_at AS created_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at,
    m.consolidated_at AS consolidated_at, m.embedding_error AS embedding_error, m.user_id AS user, m.visibility AS
    visibility, m.original AS original
FROM messages AS m
JOIN sessions AS s ON s.row_id = m.session_row AND s.agent_id = m.agent_id
WHERE ((m.agent_id = :agent AND m.session_row = :row AND m.id = ANY(CAST(:ids AS TEXT[]))) AND m.store_id = :store_id)
    AND s.store_id = :store_id;
-- storage.pipeline.messages: row
SELECT row_id
FROM messages
WHERE (agent_id = :agent AND session_row = :row AND id = :id) AND messages.store_id = :store_id;
-- storage.pipeline.messages: used_sequences
SELECT j.value
FROM UNNEST(CAST(:sequences AS BIGINT[])) WITH ORDINALITY AS j(value, key)
WHERE NOT (SELECT 1 FROM messages WHERE (session_row = :row AND sequence = j.value AND agent_id = :agent) AND
    messages.store_id = :store_id) IS NULL;
-- storage.pipeline.messages: insert
INSERT INTO messages (id, agent_id, role, name, content, tool_call_id, tool_name, tool_calls, token_count, importance,
    tags, metadata, trace_id, created_at, accepted_at, user_id, visibility, original, session_row, sequence, stored_at)
VALUES (:id, :agent, :role, :name, :content, :tool_call_id, :tool_name, :tool_calls, :token_count, :importance, :tags,
    :metadata, :trace, :created_at, :accepted_at, :user, :visibility, :original, :session_row, :sequence, :stored_at);
-- storage.pipeline.messages: last
SELECT m.row_id AS row_id, m.id AS id, m.agent_id AS agent, s.id AS session, m.sequence AS sequence, m.role AS role,
    m.name AS name, m.content AS content, m.tool_call_id AS tool_call_id, m.tool_name AS tool_name, m.tool_calls AS
    tool_calls, m.token_count AS token_count, m.importance AS importance, m.tags AS tags, m.metadata AS metadata,
    m.trace_id AS trace, m.created_at AS created_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at,
    m.consolidated_at AS consolidated_at, m.embedding_error AS embedding_error, m.user_id AS user, m.visibility AS
    visibility, m.original AS original
FROM messages AS m
JOIN sessions AS s ON s.row_id = m.session_row AND s.agent_id = m.agent_id
WHERE ((m.agent_id = :agent AND m.row_id IN (SELECT row_id FROM (SELECT row_id, SUM(size_bytes) OVER (ORDER BY sequence
    DESC) - size_bytes AS bytes_after FROM (SELECT m.row_id, m.sequence, COALESCE(OCTET_LENGTH(m.content), 0) +
    COALESCE(OCTET_LENGTH(m.metadata), 0) + COALESCE(OCTET_LENGTH(m.tool_calls), 0) + COALESCE(OCTET_LENGTH(m.original),
    0) AS size_bytes FROM messages AS m JOIN sessions AS s ON s.row_id = m.session_row AND s.agent_id = m.agent_id WHERE
    ((m.agent_id = :agent AND (m.visibility = 'shared' OR (s.user_id IS NULL OR s.user_id = :viewer OR s.id =
    :viewer_group OR ((s.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = s.row_id
    AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND m.session_row = :row AND m.sequence < :before) AND
    m.store_id = :store_id) AND s.store_id = :store_id ORDER BY m.sequence DESC LIMIT NULLIF(CAST(:limit AS BIGINT),
    -1))) WHERE bytes_after < :max_bytes)) AND m.store_id = :store_id) AND s.store_id = :store_id
ORDER BY m.sequence;
-- storage.pipeline.messages: spoken
SELECT m.session_row AS session_row, m.sequence AS sequence, m.id AS id, s.id AS session, m.role AS role,
    COALESCE(COALESCE(m.user_id, CASE WHEN NOT (s.is_group) <> 0 THEN s.user_id END), m.name, '') AS speaker, m.content
    AS content, m.created_at AS created_at
FROM messages AS m
JOIN sessions AS s ON s.row_id = m.session_row AND s.agent_id = m.agent_id
WHERE ((m.agent_id = :agent AND (m.session_row, m.sequence) > (:row, :sequence) AND (:user IS NULL OR
    COALESCE(m.user_id, CASE WHEN NOT (s.is_group) <> 0 THEN s.user_id END) = :user) AND (:session IS NULL OR s.id =
    :session)) AND m.store_id = :store_id) AND s.store_id = :store_id
ORDER BY m.session_row, m.sequence LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.pipeline.messages: originals
SELECT row_id, original
FROM messages
WHERE (row_id = ANY(CAST(:rows AS BIGINT[])) AND NOT original IS NULL) AND messages.store_id = :store_id;
-- storage.pipeline.messages: position
SELECT COUNT(*)
FROM messages AS m
JOIN sessions AS s ON s.row_id = m.session_row
WHERE ((m.session_row = :row AND (m.visibility = 'shared' OR (s.user_id IS NULL OR s.user_id = :viewer OR s.id =
    :viewer_group OR ((s.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = s.row_id
    AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND (m.created_at, m.id) < (:at, :id)) AND m.store_id =
    :store_id) AND s.store_id = :store_id;
-- storage.pipeline.messages: count_until
SELECT COUNT(*)
FROM messages AS m
WHERE (m.session_row = :row AND m.created_at <= :until) AND m.store_id = :store_id;
-- storage.pipeline.messages: sources_of
SELECT k.row_id, MIN(m.row_id)
FROM memories AS k
JOIN messages AS m ON m.agent_id = k.agent_id AND m.id = k.source_message AND (k.session_row IS NULL OR m.session_row =
    k.session_row)
WHERE ((k.agent_id = :agent AND k.row_id = ANY(CAST(:rows AS BIGINT[]))) AND k.store_id = :store_id) AND m.store_id =
    :store_id
GROUP BY k.row_id;
-- storage.pipeline.messages: preceding_texts
SELECT m.row_id, b.content
FROM messages AS m
CROSS JOIN LATERAL (SELECT (SELECT row_id FROM messages WHERE (session_row = m.session_row AND sequence < m.sequence)
    AND messages.store_id = :store_id ORDER BY sequence DESC LIMIT 1) AS row_id OFFSET 0) AS b_keys
JOIN messages AS b ON b.row_id = b_keys.row_id
WHERE ((m.agent_id = :agent AND m.row_id = ANY(CAST(:rows AS BIGINT[]))) AND m.store_id = :store_id) AND b.store_id =
    :store_id;
-- storage.pipeline.messages: said_next
SELECT content
FROM messages
WHERE (session_row = (SELECT session_row FROM messages WHERE row_id = :row AND messages.store_id = :store_id) AND
    agent_id = :agent AND sequence > :sequence AND role = :role AND name IS NOT DISTINCT FROM :name AND user_id IS NOT
    DISTINCT FROM :user) AND messages.store_id = :store_id
ORDER BY sequence LIMIT 1;
-- storage.pipeline.messages: by_rows
WITH chosen AS MATERIALIZED (SELECT * FROM messages WHERE row_id = ANY(CAST(:rows AS BIGINT[])) AND messages.store_id =
    :store_id) SELECT m.row_id AS row_id, m.id AS id, m.agent_id AS agent, s.id AS session, m.sequence AS sequence,
    m.role AS role, m.name AS name, m.content AS content, m.tool_call_id AS tool_call_id, m.tool_name AS tool_name,
    m.tool_calls AS tool_calls, m.token_count AS token_count, m.importance AS importance, m.tags AS tags, m.metadata AS
    metadata, m.trace_id AS trace, m.created_at AS created_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at,
    m.consolidated_at AS consolidated_at, m.embedding_error AS embedding_error, m.user_id AS user, m.visibility AS
    visibility
FROM chosen AS m
JOIN sessions AS s ON s.row_id = m.session_row AND s.agent_id IS NOT DISTINCT FROM m.agent_id
WHERE (m.agent_id = :agent AND (m.visibility = 'shared' OR (s.user_id IS NULL OR s.user_id = :viewer OR s.id =
    :viewer_group OR ((s.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = s.row_id
    AND vu.user_id = :viewer) AND vu.store_id = :store_id))))) AND s.store_id = :store_id
ORDER BY m.created_at NULLS FIRST, m.id NULLS FIRST;
-- storage.pipeline.messages: _messages
SELECT m.row_id AS row_id, m.id AS id, m.agent_id AS agent, s.id AS session, m.sequence AS sequence, m.role AS role,
    m.name AS name, m.content AS content, m.tool_call_id AS tool_call_id, m.tool_name AS tool_name, m.tool_calls AS
    tool_calls, m.token_count AS token_count, m.importance AS importance, m.tags AS tags, m.metadata AS metadata,
    m.trace_id AS trace, m.created_at AS created_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at,
    m.consolidated_at AS consolidated_at, m.embedding_error AS embedding_error, m.user_id AS user, m.visibility AS
    visibility
FROM messages AS m
JOIN sessions AS s ON s.row_id = m.session_row AND s.agent_id = m.agent_id
WHERE ((m.agent_id = :agent AND (m.visibility = 'shared' OR (s.user_id IS NULL OR s.user_id = :viewer OR s.id =
    :viewer_group OR ((s.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = s.row_id
    AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND m.session_row = :row AND m.created_at <= :until) AND
    m.store_id = :store_id) AND s.store_id = :store_id
ORDER BY m.created_at DESC, m.id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT m.row_id AS row_id, m.id AS id, m.agent_id AS agent, s.id AS session, m.sequence AS sequence, m.role AS role,
    m.name AS name, m.content AS content, m.tool_call_id AS tool_call_id, m.tool_name AS tool_name, m.tool_calls AS
    tool_calls, m.token_count AS token_count, m.importance AS importance, m.tags AS tags, m.metadata AS metadata,
    m.trace_id AS trace, m.created_at AS created_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at,
    m.consolidated_at AS consolidated_at, m.embedding_error AS embedding_error, m.user_id AS user, m.visibility AS
    visibility
FROM messages AS m
JOIN sessions AS s ON s.row_id = m.session_row AND s.agent_id = m.agent_id
WHERE ((m.agent_id = :agent AND (m.visibility = 'shared' OR (s.user_id IS NULL OR s.user_id = :viewer OR s.id =
    :viewer_group OR ((s.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = s.row_id
    AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND m.session_row = :row) AND m.store_id = :store_id) AND
    s.store_id = :store_id
ORDER BY m.created_at DESC, m.id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT m.row_id AS row_id, m.id AS id, m.agent_id AS agent, s.id AS session, m.sequence AS sequence, m.role AS role,
    m.name AS name, m.content AS content, m.tool_call_id AS tool_call_id, m.tool_name AS tool_name, m.tool_calls AS
    tool_calls, m.token_count AS token_count, m.importance AS importance, m.tags AS tags, m.metadata AS metadata,
    m.trace_id AS trace, m.created_at AS created_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at,
    m.consolidated_at AS consolidated_at, m.embedding_error AS embedding_error, m.user_id AS user, m.visibility AS
    visibility
FROM messages AS m
JOIN sessions AS s ON s.row_id = m.session_row AND s.agent_id = m.agent_id
WHERE ((m.agent_id = :agent AND (m.visibility = 'shared' OR (s.user_id IS NULL OR s.user_id = :viewer OR s.id =
    :viewer_group OR ((s.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = s.row_id
    AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND m.session_row = :row AND m.created_at <= :until) AND
    m.store_id = :store_id) AND s.store_id = :store_id
ORDER BY m.created_at ASC, m.id ASC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT m.row_id AS row_id, m.id AS id, m.agent_id AS agent, s.id AS session, m.sequence AS sequence, m.role AS role,
    m.name AS name, m.content AS content, m.tool_call_id AS tool_call_id, m.tool_name AS tool_name, m.tool_calls AS
    tool_calls, m.token_count AS token_count, m.importance AS importance, m.tags AS tags, m.metadata AS metadata,
    m.trace_id AS trace, m.created_at AS created_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at,
    m.consolidated_at AS consolidated_at, m.embedding_error AS embedding_error, m.user_id AS user, m.visibility AS
    visibility
FROM messages AS m
JOIN sessions AS s ON s.row_id = m.session_row AND s.agent_id = m.agent_id
WHERE ((m.agent_id = :agent AND (m.visibility = 'shared' OR (s.user_id IS NULL OR s.user_id = :viewer OR s.id =
    :viewer_group OR ((s.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = s.row_id
    AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND m.session_row = :row) AND m.store_id = :store_id) AND
    s.store_id = :store_id
ORDER BY m.created_at ASC, m.id ASC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT m.row_id AS row_id, m.id AS id, m.agent_id AS agent, s.id AS session, m.sequence AS sequence, m.role AS role,
    m.name AS name, m.content AS content, m.tool_call_id AS tool_call_id, m.tool_name AS tool_name, m.tool_calls AS
    tool_calls, m.token_count AS token_count, m.importance AS importance, m.tags AS tags, m.metadata AS metadata,
    m.trace_id AS trace, m.created_at AS created_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at,
    m.consolidated_at AS consolidated_at, m.embedding_error AS embedding_error, m.user_id AS user, m.visibility AS
    visibility
FROM messages AS m
JOIN sessions AS s ON s.row_id = m.session_row AND s.agent_id = m.agent_id
WHERE ((m.agent_id = :agent AND (m.visibility = 'shared' OR (s.user_id IS NULL OR s.user_id = :viewer OR s.id =
    :viewer_group OR ((s.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = s.row_id
    AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND m.session_row = :row AND m.id = :id) AND m.store_id =
    :store_id) AND s.store_id = :store_id;
SELECT m.row_id AS row_id, m.id AS id, m.agent_id AS agent, s.id AS session, m.sequence AS sequence, m.role AS role,
    m.name AS name, m.content AS content, m.tool_call_id AS tool_call_id, m.tool_name AS tool_name, m.tool_calls AS
    tool_calls, m.token_count AS token_count, m.importance AS importance, m.tags AS tags, m.metadata AS metadata,
    m.trace_id AS trace, m.created_at AS created_at, m.stored_at AS stored_at, m.chunked_at AS chunked_at,
    m.consolidated_at AS consolidated_at, m.embedding_error AS embedding_error, m.user_id AS user, m.visibility AS
    visibility
FROM messages AS m
JOIN sessions AS s ON s.row_id = m.session_row AND s.agent_id = m.agent_id
WHERE ((m.agent_id = :agent AND (m.visibility = 'shared' OR (s.user_id IS NULL OR s.user_id = :viewer OR s.id =
    :viewer_group OR ((s.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = s.row_id
    AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND m.session_row = :row AND m.importance >=
    :min_importance AND m.created_at <= :until AND NOT m.id = ANY(CAST(:exclude AS TEXT[]))) AND m.store_id = :store_id)
    AND s.store_id = :store_id
ORDER BY m.created_at DESC, m.id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.pipeline.samples: add
INSERT INTO pipeline_samples (minute, accepted, waiting, lag_p50_seconds, lag_p99_seconds)
VALUES (:minute, :accepted, :waiting, :lag_p50_seconds, :lag_p99_seconds) ON CONFLICT(minute) DO NOTHING;
-- storage.pipeline.samples: add
DELETE FROM pipeline_samples
WHERE minute <= :oldest OR minute > :newest;
-- storage.pipeline.samples: has
SELECT 1
FROM pipeline_samples
WHERE minute = :minute;
-- storage.pipeline.samples: last_day
SELECT minute AS minute, accepted AS accepted, waiting AS waiting, lag_p50_seconds AS lag_p50_seconds, lag_p99_seconds
    AS lag_p99_seconds
FROM pipeline_samples
WHERE minute > :after
ORDER BY minute;
-- storage.pipeline.work: claim
INSERT INTO claims (stage, item_id, token, lease_until) SELECT :stage, CAST(value AS BIGINT), :token, :until
FROM UNNEST(CAST(:items AS TEXT[])) WITH ORDINALITY AS json_each(value, key)
WHERE TRUE ON CONFLICT(store_id, stage, item_id) DO UPDATE
SET token = :token, lease_until = :until, crashes = claims.crashes + (CAST(CAST((NOT claims.token IS NULL) AS INT) AS
    BIGINT)), next_attempt_at = NULL;
-- storage.pipeline.work: _release_noted
SELECT DISTINCT token
FROM claims
WHERE (stage = :stage AND NOT token IS NULL AND (lease_until <= :now OR lease_until > :now + 2 * :lease)) AND
    claims.store_id = :store_id;
-- storage.pipeline.work: _release_noted
UPDATE claims
SET token = NULL, lease_until = NULL, attempts = attempts + 1, next_attempt_at = :now
WHERE token = ANY(CAST(:tokens AS BIGINT[])) AND claims.store_id = :store_id;
-- storage.pipeline.work: still_claimed
SELECT item_id
FROM claims
WHERE (stage = :stage AND token = :token AND item_id = ANY(CAST(:items AS BIGINT[]))) AND claims.store_id = :store_id;
-- storage.pipeline.work: finish
SELECT 1
FROM dead_letters
WHERE dead_letters.store_id = :store_id LIMIT 1;
-- storage.pipeline.work: finish
DELETE FROM dead_letters
WHERE (stage = :stage AND item_id = ANY(CAST(:items AS TEXT[])) AND NOT EXISTS(SELECT 1 FROM messages WHERE (row_id =
    CAST(dead_letters.item_id AS BIGINT) AND chunked_at IS NULL) AND messages.store_id = :store_id)) AND
    dead_letters.store_id = :store_id;
-- storage.pipeline.work: _end_claims
DELETE FROM claims
WHERE (stage = :stage AND token = :token AND item_id = ANY(CAST(:items AS BIGINT[]))) AND claims.store_id = :store_id;
-- storage.pipeline.work: retry
UPDATE claims
SET token = NULL, lease_until = NULL, attempts = GREATEST(attempts, :attempts) + 1, next_attempt_at = :at, error =
    :error
WHERE (stage = :stage AND token = :token AND item_id = ANY(CAST(:items AS BIGINT[]))) AND claims.store_id = :store_id;
-- storage.pipeline.work: bury
UPDATE claims
SET token = NULL, lease_until = NULL, next_attempt_at = NULL, error = :error
WHERE (stage = :stage AND token = :token AND item_id = ANY(CAST(:items AS BIGINT[]))) AND claims.store_id = :store_id;
-- storage.pipeline.work: revive
DELETE FROM claims
WHERE (stage = :stage AND item_id = :item AND token IS NULL AND next_attempt_at IS NULL) AND claims.store_id =
    :store_id;
-- storage.pipeline.work: has_buried
SELECT 1
FROM claims
WHERE (stage = :stage AND token IS NULL AND next_attempt_at IS NULL) AND claims.store_id = :store_id LIMIT 1;
-- storage.pipeline.work: revive_all
DELETE FROM claims
WHERE (stage = :stage AND token IS NULL AND next_attempt_at IS NULL) AND claims.store_id = :store_id
RETURNING item_id;
-- storage.pipeline.work: is_done
SELECT 1
FROM messages
WHERE (row_id = :item AND chunked_at IS NULL) AND messages.store_id = :store_id;
SELECT 1
FROM files
WHERE (row_id = :item AND chunked_at IS NULL) AND files.store_id = :store_id;
SELECT 1
FROM memories
WHERE (row_id = :item AND chunked_at IS NULL) AND memories.store_id = :store_id;
SELECT 1
FROM chunks
WHERE (row_id = :item AND chunked_at IS NULL) AND chunks.store_id = :store_id;
SELECT 1
FROM items
WHERE (row_id = :item AND chunked_at IS NULL) AND items.store_id = :store_id;
SELECT 1
FROM messages
WHERE (id = :item AND chunked_at IS NULL) AND messages.store_id = :store_id;
-- storage.pipeline.work: owner
SELECT agent_id
FROM items
WHERE row_id = :item AND items.store_id = :store_id;
-- storage.pipeline.work: owner
SELECT r.agent_id, s.id
FROM messages AS r
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = r.session_row
WHERE r.row_id = :item AND r.store_id = :store_id;
SELECT r.agent_id, s.id
FROM files AS r
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = r.session_row
WHERE r.row_id = :item AND r.store_id = :store_id;
SELECT r.agent_id, s.id
FROM memories AS r
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = r.session_row
WHERE r.row_id = :item AND r.store_id = :store_id;
SELECT r.agent_id, s.id
FROM chunks AS r
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = r.session_row
WHERE r.row_id = :item AND r.store_id = :store_id;
SELECT r.agent_id, s.id
FROM items AS r
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = r.session_row
WHERE r.row_id = :item AND r.store_id = :store_id;
SELECT r.agent_id, s.id
FROM messages AS r
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = r.session_row
WHERE r.id = :item AND r.store_id = :store_id;
-- storage.pipeline.work: is_idle
SELECT 1
FROM messages AS waiting
WHERE (chunked_at IS NULL AND (SELECT 1 FROM claims WHERE (stage = :stage AND item_id = waiting.row_id AND token IS NULL
    AND next_attempt_at IS NULL) AND claims.store_id = :store_id) IS NULL) AND waiting.store_id = :store_id LIMIT 1;
SELECT 1
FROM files AS waiting
WHERE (chunked_at IS NULL AND (SELECT 1 FROM claims WHERE (stage = :stage AND item_id = waiting.row_id AND token IS NULL
    AND next_attempt_at IS NULL) AND claims.store_id = :store_id) IS NULL) AND waiting.store_id = :store_id LIMIT 1;
SELECT 1
FROM memories AS waiting
WHERE (chunked_at IS NULL AND superseded_by IS NULL AND (SELECT 1 FROM claims WHERE (stage = :stage AND item_id =
    waiting.row_id AND token IS NULL AND next_attempt_at IS NULL) AND claims.store_id = :store_id) IS NULL) AND
    waiting.store_id = :store_id LIMIT 1;
SELECT 1
FROM schedules
WHERE (status IN ('active', 'paused', 'disabled') AND recall_limit > 0 AND COALESCE(goal_model, '') <> (SELECT model
    FROM indexes WHERE (kind = 'vector' AND state = 'active') AND indexes.store_id = :store_id)) AND schedules.store_id
    = :store_id
UNION ALL SELECT 1
FROM chunks AS waiting
WHERE (embedded_at IS NULL AND (SELECT 1 FROM claims WHERE (stage = :stage AND item_id = waiting.id AND token IS NULL
    AND next_attempt_at IS NULL) AND claims.store_id = :store_id) IS NULL) AND waiting.store_id = :store_id LIMIT 1;
SELECT 1
FROM chunks AS waiting
WHERE (NOT embedded_at IS NULL AND indexed_at IS NULL AND (SELECT 1 FROM claims WHERE (stage = :stage AND item_id =
    waiting.id AND token IS NULL AND next_attempt_at IS NULL) AND claims.store_id = :store_id) IS NULL) AND
    waiting.store_id = :store_id LIMIT 1;
SELECT 1
FROM items AS waiting
WHERE (embedding_model IS NULL AND NOT index_fields IS NULL AND (SELECT 1 FROM claims WHERE (stage = :stage AND item_id
    = waiting.row_id AND token IS NULL AND next_attempt_at IS NULL) AND claims.store_id = :store_id) IS NULL) AND
    waiting.store_id = :store_id LIMIT 1;
-- storage.pipeline.work: backlog
SELECT COUNT(*), MIN(stored_at)
FROM (SELECT waiting.stored_at FROM messages AS waiting WHERE (chunked_at IS NULL AND (SELECT 1 FROM claims WHERE (stage
    = :stage AND item_id = waiting.row_id AND token IS NULL AND next_attempt_at IS NULL) AND claims.store_id =
    :store_id) IS NULL) AND waiting.store_id = :store_id) AS every;
SELECT COUNT(*), MIN(stored_at)
FROM (SELECT waiting.stored_at FROM files AS waiting WHERE (chunked_at IS NULL AND (SELECT 1 FROM claims WHERE (stage =
    :stage AND item_id = waiting.row_id AND token IS NULL AND next_attempt_at IS NULL) AND claims.store_id = :store_id)
    IS NULL) AND waiting.store_id = :store_id) AS every;
SELECT COUNT(*), MIN(stored_at)
FROM (SELECT waiting.stored_at FROM memories AS waiting WHERE (chunked_at IS NULL AND superseded_by IS NULL AND (SELECT
    1 FROM claims WHERE (stage = :stage AND item_id = waiting.row_id AND token IS NULL AND next_attempt_at IS NULL) AND
    claims.store_id = :store_id) IS NULL) AND waiting.store_id = :store_id) AS every;
SELECT COUNT(*), MIN(stored_at)
FROM (SELECT waiting.stored_at FROM chunks AS waiting WHERE (embedded_at IS NULL AND (SELECT 1 FROM claims WHERE (stage
    = :stage AND item_id = waiting.id AND token IS NULL AND next_attempt_at IS NULL) AND claims.store_id = :store_id) IS
    NULL) AND waiting.store_id = :store_id UNION ALL SELECT updated_at FROM schedules WHERE (status IN ('active',
    'paused', 'disabled') AND recall_limit > 0 AND COALESCE(goal_model, '') <> (SELECT model FROM indexes WHERE (kind =
    'vector' AND state = 'active') AND indexes.store_id = :store_id)) AND schedules.store_id = :store_id) AS every;
SELECT COUNT(*), MIN(stored_at)
FROM (SELECT waiting.stored_at FROM chunks AS waiting WHERE (NOT embedded_at IS NULL AND indexed_at IS NULL AND (SELECT
    1 FROM claims WHERE (stage = :stage AND item_id = waiting.id AND token IS NULL AND next_attempt_at IS NULL) AND
    claims.store_id = :store_id) IS NULL) AND waiting.store_id = :store_id) AS every;
SELECT COUNT(*), MIN(stored_at)
FROM (SELECT waiting.stored_at FROM items AS waiting WHERE (embedding_model IS NULL AND NOT index_fields IS NULL AND
    (SELECT 1 FROM claims WHERE (stage = :stage AND item_id = waiting.row_id AND token IS NULL AND next_attempt_at IS
    NULL) AND claims.store_id = :store_id) IS NULL) AND waiting.store_id = :store_id) AS every;
-- storage.pipeline.work: backlog
SELECT COUNT(token), COUNT(next_attempt_at), COUNT(CASE WHEN crashes > 0 AND NOT COALESCE(token, next_attempt_at) IS
    NULL THEN 1 END), MIN(lease_until)
FROM claims
WHERE stage = :stage AND claims.store_id = :store_id;
-- storage.pipeline.work: _fresh
SELECT row_id
FROM messages AS waiting
WHERE (chunked_at IS NULL AND TRUE AND (SELECT 1 FROM claims WHERE (stage = :stage AND item_id = waiting.row_id) AND
    claims.store_id = :store_id) IS NULL) AND waiting.store_id = :store_id
ORDER BY row_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
SELECT row_id
FROM files AS waiting
WHERE (chunked_at IS NULL AND TRUE AND (SELECT 1 FROM claims WHERE (stage = :stage AND item_id = waiting.row_id) AND
    claims.store_id = :store_id) IS NULL) AND waiting.store_id = :store_id
ORDER BY row_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
SELECT row_id
FROM memories AS waiting
WHERE (chunked_at IS NULL AND TRUE AND (SELECT 1 FROM claims WHERE (stage = :stage AND item_id = waiting.row_id) AND
    claims.store_id = :store_id) IS NULL) AND waiting.store_id = :store_id
ORDER BY row_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
SELECT row_id
FROM chunks AS waiting
WHERE (chunked_at IS NULL AND TRUE AND (SELECT 1 FROM claims WHERE (stage = :stage AND item_id = waiting.row_id) AND
    claims.store_id = :store_id) IS NULL) AND waiting.store_id = :store_id
ORDER BY row_id NULLS FIRST LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
SELECT row_id
FROM items AS waiting
WHERE (chunked_at IS NULL AND TRUE AND (SELECT 1 FROM claims WHERE (stage = :stage AND item_id = waiting.row_id) AND
    claims.store_id = :store_id) IS NULL) AND waiting.store_id = :store_id
ORDER BY row_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.pipeline.work: _retryable
SELECT item_id, attempts, crashes + (CAST(CAST((NOT token IS NULL) AS INT) AS BIGINT))
FROM claims
WHERE (stage = :stage AND ((NOT token IS NULL AND (lease_until <= :now OR lease_until > :now + 2 * :lease)) OR (token IS
    NULL AND (next_attempt_at <= :now OR next_attempt_at > :now + 1200000 * GREATEST(5, LEAST(300, CAST(1 AS BIGINT) <<
    CAST(LEAST(attempts, 9) AS INT))))))) AND claims.store_id = :store_id
ORDER BY 3 DESC, next_attempt_at NULLS FIRST LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.postgres.search_index: _drop_tables
DELETE FROM text_index
WHERE generation = :generation AND text_index.store_id = :store_id;
-- storage.postgres.search_index: remove_step
DELETE FROM text_index
WHERE (NOT generation IN (SELECT id FROM indexes WHERE indexes.store_id = :store_id) AND chunk_id IN (SELECT chunk_id
    FROM text_index WHERE NOT generation IN (SELECT id FROM indexes WHERE indexes.store_id = :store_id) AND
    text_index.store_id = :store_id LIMIT 2000)) AND text_index.store_id = :store_id;
DELETE FROM vector_index
WHERE (NOT generation IN (SELECT id FROM indexes WHERE indexes.store_id = :store_id) AND chunk_id IN (SELECT chunk_id
    FROM text_index WHERE NOT generation IN (SELECT id FROM indexes WHERE indexes.store_id = :store_id) AND
    text_index.store_id = :store_id LIMIT 2000)) AND vector_index.store_id = :store_id;
DELETE FROM text_index
WHERE (NOT generation IN (SELECT id FROM indexes WHERE indexes.store_id = :store_id) AND chunk_id IN (SELECT chunk_id
    FROM vector_index WHERE NOT generation IN (SELECT id FROM indexes WHERE indexes.store_id = :store_id) AND
    vector_index.store_id = :store_id LIMIT 2000)) AND text_index.store_id = :store_id;
DELETE FROM vector_index
WHERE (NOT generation IN (SELECT id FROM indexes WHERE indexes.store_id = :store_id) AND chunk_id IN (SELECT chunk_id
    FROM vector_index WHERE NOT generation IN (SELECT id FROM indexes WHERE indexes.store_id = :store_id) AND
    vector_index.store_id = :store_id LIMIT 2000)) AND vector_index.store_id = :store_id;
-- storage.postgres.search_index: fill_texts
INSERT INTO text_index (generation, chunk_id, words) SELECT :generation, id, CHUNK_WORDS(store_id, agent_id, text)
FROM chunks
WHERE (id > :after AND id <= :last) AND chunks.store_id = :store_id ON CONFLICT DO NOTHING;
-- storage.postgres.search_index: _remove_vectors
DELETE FROM vector_index
WHERE (generation = :generation AND chunk_id = ANY(CAST(:ids AS BIGINT[]))) AND vector_index.store_id = :store_id;
-- storage.postgres.search_index: vector_ids
SELECT chunk_id
FROM vector_index
WHERE generation = :generation AND vector_index.store_id = :store_id;
-- storage.postgres.search_index: text_ids
SELECT chunk_id
FROM text_index
WHERE generation = :generation AND text_index.store_id = :store_id;
-- storage.postgres.search_index: differs_from_texts
SELECT 1
FROM text_index AS t
JOIN chunks AS c ON c.id = t.chunk_id
WHERE ((t.generation = :generation AND t.words IS DISTINCT FROM CHUNK_WORDS(c.store_id, c.agent_id, c.text)) AND
    t.store_id = :store_id) AND c.store_id = :store_id LIMIT 1;
-- storage.postgres.search_index: _search_text
WITH searched AS MATERIALIZED (SELECT chunk_id FROM forward_index WHERE agent_id = :agent AND forward_index.store_id =
    :store_id ORDER BY chunk_id DESC LIMIT NULLIF(CAST(:max_searched AS BIGINT), -1)) SELECT chunk_id AS chunk_id,
    WORDS_RANK(words, :match) AS score
FROM text_index
WHERE (HAS_WORDS(words, :match, :of_store, :of_agent) AND generation = :generation AND chunk_id >= (SELECT MIN(chunk_id)
    FROM searched) AND chunk_id IN (SELECT chunk_id FROM searched)) AND text_index.store_id = :store_id
ORDER BY score DESC NULLS LAST, chunk_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.postgres.search_index: _search_vectors
WITH searched AS MATERIALIZED (SELECT chunk_id FROM forward_index WHERE agent_id = :agent AND forward_index.store_id =
    :store_id ORDER BY chunk_id DESC LIMIT NULLIF(CAST(:max_searched AS BIGINT), -1)) SELECT chunk_id AS chunk_id, 1.0 -
    COSINE_DISTANCE_TO(embedding, :vector) AS score
FROM vector_index
WHERE (generation = :generation AND chunk_id >= (SELECT MIN(chunk_id) FROM searched) AND chunk_id IN (SELECT chunk_id
    FROM searched)) AND vector_index.store_id = :store_id
ORDER BY score DESC NULLS LAST, chunk_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.recall.captured: record
INSERT INTO captured_queries (id, agent_id, session_row, user_id, at, kind, query, parameters, found) SELECT :id,
    :agent, s.row_id, :user, :at, :kind, :query, :parameters, :found
FROM (SELECT 1 AS one) AS o
LEFT JOIN sessions AS s ON s.store_id = :store_id AND (s.agent_id = :agent AND s.id = :session AND s.started_at <= :at)
WHERE :session IS NULL OR NOT s.row_id IS NULL ON CONFLICT(store_id, id) DO NOTHING;
-- storage.recall.captured: newest
SELECT q.id AS id, q.agent_id AS agent, q.user_id AS user, q.at AS at, q.kind AS kind, q.query AS query, q.parameters AS
    parameters, q.found AS found, s.id AS session
FROM captured_queries AS q
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = q.session_row
WHERE ((:agent IS NULL OR q.agent_id = :agent) AND q.at >= :since) AND q.store_id = :store_id
ORDER BY q.at DESC, q.id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.recall.captured: answers
SELECT m.content
FROM sessions AS s
JOIN messages AS m ON m.session_row = s.row_id
WHERE ((s.agent_id = :agent AND (s.id = :session OR :session IS NULL AND NOT (s.is_group) <> 0 AND s.user_id IS NOT
    DISTINCT FROM :user) AND m.role = 'assistant' AND m.created_at > :at AND m.created_at <= :until) AND s.store_id =
    :store_id) AND m.store_id = :store_id
ORDER BY m.created_at LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.recall.captured: prune
DELETE FROM captured_queries
WHERE id IN (SELECT id FROM captured_queries WHERE at < :before AND captured_queries.store_id = :store_id ORDER BY id
    LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AND captured_queries.store_id = :store_id;
-- storage.recall.chunk_sources: held
SELECT 0 AS chunk_id, 'memory' AS kind, m.id AS id, s.id AS session, NULL AS role, NULL AS name, m.content AS text,
    SUBSTRING(m.content FROM 1 FOR 640) AS chunk_text, m.tags AS tags, 0 AS sequence, m.created_at AS created_at, m.tier
    AS tier, m.source_message AS source_message, m.expires_at AS expires_at, m.owner_user_id AS owner, s.ref_code AS
    ref_code, b.created_at AS valid_to, s.ref_code AS source_session, m.confirmed_at AS confirmed_at, CAST(CAST((1 = 0)
    AS INT) AS BIGINT) AS waits, NULL AS member, m.row_id AS row_id, m.channel_id AS channel, m.importance AS
    importance, m.access_count AS access_count, m.accessed_at AS accessed_at, m.kind AS memory_kind, CAST(CAST((NOT
    m.category IS NULL) AS INT) AS BIGINT) AS keyed
FROM memories AS m
JOIN memories AS b ON b.row_id = m.superseded_by
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = m.session_row
WHERE ((m.agent_id = :agent AND NOT m.superseded_by IS NULL AND m.created_at <= :until AND b.created_at > :until AND
    (m.visibility = 'shared' OR m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND (m.session_row IS NULL OR
    EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS NULL OR vs.user_id = :viewer
    OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id = :store_id))))) AND m.store_id
    = :store_id) AND b.store_id = :store_id
ORDER BY m.created_at DESC, m.row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.recall.chunk_sources: replacements
SELECT *
FROM (SELECT m.content AS older, b.id AS id, b.content AS newer, b.created_at AS at, COALESCE(m.owner_user_id, '') AS
    owner, CASE WHEN m.superseded_at IN (b.stored_at, m.stored_at) THEN COALESCE(m.source_message, '') ELSE '' END AS
    message, COALESCE((SELECT s.id FROM sessions AS s WHERE s.row_id = m.session_row AND s.store_id = :store_id), '') AS
    session FROM memories AS m JOIN memories AS b ON b.row_id = m.superseded_by WHERE ((m.agent_id = :agent AND NOT
    m.superseded_by IS NULL AND b.visibility <> 'requested' AND (b.visibility = 'shared' OR b.owner_user_id = :viewer OR
    (b.owner_user_id IS NULL AND (b.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id =
    b.session_row AND (vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND
    EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id
    = :store_id)))) AND vs.store_id = :store_id)))) AND COALESCE(m.owner_user_id, '') = :owner) AND m.store_id =
    :store_id) AND b.store_id = :store_id ORDER BY m.superseded_at DESC NULLS LAST LIMIT NULLIF(CAST(:limit AS BIGINT),
    -1)) AS replaced
UNION ALL SELECT *
FROM (SELECT '' AS older, m.id AS id, m.content AS newer, m.created_at AS at, COALESCE(m.owner_user_id, '') AS owner, ''
    AS message, '' AS session FROM (SELECT row_id FROM memories WHERE (agent_id = :agent AND subject = 'lives in') AND
    memories.store_id = :store_id UNION ALL SELECT row_id FROM memories WHERE (agent_id = :agent AND subject >=
    'changed: ' AND subject < 'changed: ~') AND memories.store_id = :store_id) AS said JOIN memories AS m ON m.row_id =
    said.row_id WHERE (m.superseded_by IS NULL AND m.visibility <> 'requested' AND (m.visibility = 'shared' OR
    m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS
    vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR
    ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id =
    :viewer) AND vu.store_id = :store_id)))) AND vs.store_id = :store_id)))) AND COALESCE(m.owner_user_id, '') = :owner)
    AND m.store_id = :store_id ORDER BY m.created_at DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AS changed;
-- storage.recall.chunk_sources: newest_replacements
SELECT *
FROM (SELECT m.content AS older, b.id AS id, b.content AS newer, b.created_at AS at, COALESCE(m.owner_user_id, '') AS
    owner, CASE WHEN m.superseded_at IN (b.stored_at, m.stored_at) THEN COALESCE(m.source_message, '') ELSE '' END AS
    message, COALESCE((SELECT s.id FROM sessions AS s WHERE s.row_id = m.session_row AND s.store_id = :store_id), '') AS
    session FROM memories AS m JOIN memories AS b ON b.row_id = m.superseded_by WHERE ((m.agent_id = :agent AND NOT
    m.superseded_by IS NULL AND b.visibility <> 'requested' AND (b.visibility = 'shared' OR b.owner_user_id = :viewer OR
    (b.owner_user_id IS NULL AND (b.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id =
    b.session_row AND (vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND
    EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id
    = :store_id)))) AND vs.store_id = :store_id))))) AND m.store_id = :store_id) AND b.store_id = :store_id ORDER BY
    m.superseded_at DESC NULLS LAST LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AS replaced
UNION ALL SELECT *
FROM (SELECT '' AS older, m.id AS id, m.content AS newer, m.created_at AS at, COALESCE(m.owner_user_id, '') AS owner, ''
    AS message, '' AS session FROM (SELECT row_id FROM memories WHERE (agent_id = :agent AND subject = 'lives in') AND
    memories.store_id = :store_id UNION ALL SELECT row_id FROM memories WHERE (agent_id = :agent AND subject >=
    'changed: ' AND subject < 'changed: ~') AND memories.store_id = :store_id) AS said JOIN memories AS m ON m.row_id =
    said.row_id WHERE (m.superseded_by IS NULL AND m.visibility <> 'requested' AND (m.visibility = 'shared' OR
    m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND (m.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions AS
    vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR
    ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id =
    :viewer) AND vu.store_id = :store_id)))) AND vs.store_id = :store_id))))) AND m.store_id = :store_id ORDER BY
    m.created_at DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AS changed;
-- storage.recall.chunk_sources: histories
WITH RECURSIVE said(root, row_id) AS (SELECT r.id, m.row_id FROM memories AS r JOIN memories AS m ON m.superseded_by =
    r.row_id WHERE ((r.agent_id = :agent AND r.id = ANY(CAST(:ids AS TEXT[]))) AND r.store_id = :store_id) AND
    m.store_id = :store_id UNION SELECT s.root, m.row_id FROM said AS s JOIN memories AS m ON m.superseded_by = s.row_id
    WHERE m.store_id = :store_id) SELECT s.root AS root, m.content AS content, m.value AS value, m.created_at AS
    created_at
FROM said AS s
JOIN memories AS m ON m.row_id = s.row_id
WHERE (m.visibility = 'shared' OR m.owner_user_id = :viewer OR (m.owner_user_id IS NULL AND (m.session_row IS NULL OR
    EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.row_id = m.session_row AND (vs.user_id IS NULL OR vs.user_id = :viewer
    OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id = :store_id)))) AND m.store_id =
    :store_id
UNION ALL SELECT r.id, r.content, r.value, r.created_at
FROM memories AS r
WHERE (r.agent_id = :agent AND r.id IN (SELECT root FROM said)) AND r.store_id = :store_id
ORDER BY created_at DESC NULLS LAST;
-- storage.recall.chunk_sources: texts
SELECT c.id AS chunk_id, CASE WHEN NOT c.memory_row IS NULL THEN 'memory' WHEN c.file_row IS NULL THEN 'message' ELSE
    'file' END AS kind, COALESCE(m.id, f.id, k.id) AS id, COALESCE(s.id, o.id) AS session, m.role AS role, CASE WHEN NOT
    c.file_row IS NULL AND c.memory_row IS NULL THEN f.source_uri ELSE m.name END AS name,
    COALESCE(NULLIF(COALESCE(m.content, k.content), ''), c.text) AS text, c.text AS chunk_text, COALESCE(m.tags, f.tags,
    k.tags) AS tags, COALESCE(m.sequence, c.sequence_start) AS sequence, COALESCE(m.created_at, f.created_at,
    k.created_at) AS created_at, k.tier AS tier, k.source_message AS source_message, k.expires_at AS expires_at,
    k.confirmed_at AS confirmed_at, COALESCE(s.ref_code, o.ref_code) AS ref_code, COALESCE(o.ref_code,
    JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(k.metadata)) <> 0 THEN k.metadata ELSE '[]' END) AS JSON),
    'ref_code')) AS source_session, CASE WHEN c.memory_row IS NULL THEN s.user_id ELSE k.owner_user_id END AS owner,
    CAST(CAST(((k.visibility = 'requested' AND k.source = 'extraction' AND (k.kind IN ('instruction', 'preference') OR
    k.owner_user_id IS NULL)) IS TRUE) AS INT) AS BIGINT) AS waits, CASE WHEN (s.is_group) <> 0 THEN m.user_id END AS
    member
FROM chunks AS c
CROSS JOIN LATERAL (SELECT (SELECT MAX(d.row_id) FROM message_chunks AS l JOIN messages AS d ON d.row_id = l.message_row
    WHERE ((l.chunk_id = c.id AND d.created_at <= :until) AND l.store_id = :store_id) AND d.store_id = :store_id) AS
    row_id OFFSET 0) AS m_keys
LEFT JOIN messages AS m ON m.store_id = :store_id AND m.row_id = m_keys.row_id
LEFT JOIN memories AS k ON k.store_id = :store_id AND k.row_id = c.memory_row
LEFT JOIN files AS f ON f.store_id = :store_id AND f.row_id = c.file_row
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = c.session_row
LEFT JOIN sessions AS o ON o.store_id = :store_id AND o.row_id = k.session_row
WHERE (c.agent_id = :agent AND c.id = ANY(CAST(:ids AS BIGINT[])) AND (c.session_row IS NULL OR s.agent_id = c.agent_id)
    AND (c.file_row IS NULL OR EXISTS(SELECT 1 FROM files AS here WHERE (here.row_id = c.file_row AND here.agent_id =
    c.agent_id AND NOT here.chunked_at IS NULL) AND here.store_id = :store_id))) AND c.store_id = :store_id;
SELECT c.id AS chunk_id, CASE WHEN NOT c.memory_row IS NULL THEN 'memory' WHEN c.file_row IS NULL THEN 'message' ELSE
    'file' END AS kind, COALESCE(m.id, f.id, k.id) AS id, COALESCE(s.id, o.id) AS session, m.role AS role, CASE WHEN NOT
    c.file_row IS NULL AND c.memory_row IS NULL THEN f.source_uri ELSE m.name END AS name,
    COALESCE(NULLIF(COALESCE(m.content, k.content), ''), c.text) AS text, c.text AS chunk_text, COALESCE(m.tags, f.tags,
    k.tags) AS tags, COALESCE(m.sequence, c.sequence_start) AS sequence, COALESCE(m.created_at, f.created_at,
    k.created_at) AS created_at, k.tier AS tier, k.source_message AS source_message, k.expires_at AS expires_at,
    k.confirmed_at AS confirmed_at, COALESCE(s.ref_code, o.ref_code) AS ref_code, COALESCE(o.ref_code,
    JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(k.metadata)) <> 0 THEN k.metadata ELSE '[]' END) AS JSON),
    'ref_code')) AS source_session, CASE WHEN c.memory_row IS NULL THEN s.user_id ELSE k.owner_user_id END AS owner,
    CAST(CAST(((k.visibility = 'requested' AND k.source = 'extraction' AND (k.kind IN ('instruction', 'preference') OR
    k.owner_user_id IS NULL)) IS TRUE) AS INT) AS BIGINT) AS waits, CASE WHEN (s.is_group) <> 0 THEN m.user_id END AS
    member
FROM chunks AS c
CROSS JOIN LATERAL (SELECT (SELECT MAX(message_row) FROM message_chunks WHERE chunk_id = c.id AND
    message_chunks.store_id = :store_id) AS row_id OFFSET 0) AS m_keys
LEFT JOIN messages AS m ON m.store_id = :store_id AND m.row_id = m_keys.row_id
LEFT JOIN memories AS k ON k.store_id = :store_id AND k.row_id = c.memory_row
LEFT JOIN files AS f ON f.store_id = :store_id AND f.row_id = c.file_row
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = c.session_row
LEFT JOIN sessions AS o ON o.store_id = :store_id AND o.row_id = k.session_row
WHERE (c.agent_id = :agent AND c.id = ANY(CAST(:ids AS BIGINT[])) AND (c.session_row IS NULL OR s.agent_id = c.agent_id)
    AND (c.file_row IS NULL OR EXISTS(SELECT 1 FROM files AS here WHERE (here.row_id = c.file_row AND here.agent_id =
    c.agent_id AND NOT here.chunked_at IS NULL) AND here.store_id = :store_id))) AND c.store_id = :store_id;
-- storage.recall.chunk_sources: attributes
SELECT c.id AS chunk_id, s.id AS session, COALESCE(k.channel_id, s.channel_id) AS channel, COALESCE(m.importance,
    k.importance, :importance) AS importance, COALESCE(k.access_count, c.access_count) AS access_count,
    COALESCE(k.accessed_at, c.accessed_at) AS accessed_at, COALESCE(m.created_at, c.created_at) AS created_at, k.tier AS
    tier, k.kind AS kind, CAST(CAST((NOT k.category IS NULL) AS INT) AS BIGINT) AS keyed, CAST(CAST((NOT k.confirmed_at
    IS NULL) AS INT) AS BIGINT) AS confirmed
FROM chunks AS c
CROSS JOIN LATERAL (SELECT (SELECT MAX(message_row) FROM message_chunks WHERE chunk_id = c.id AND
    message_chunks.store_id = :store_id) AS row_id OFFSET 0) AS m_keys
LEFT JOIN messages AS m ON m.store_id = :store_id AND m.row_id = m_keys.row_id
LEFT JOIN memories AS k ON k.store_id = :store_id AND k.row_id = c.memory_row
CROSS JOIN LATERAL (SELECT COALESCE(c.session_row, k.session_row) AS row_id OFFSET 0) AS s_keys
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = s_keys.row_id
WHERE (c.agent_id = :agent AND c.id = ANY(CAST(:ids AS BIGINT[]))) AND c.store_id = :store_id;
-- storage.recall.chunk_sources: neighbours
SELECT m.id AS id, m.role AS role, m.name AS name, m.content AS text, m.created_at AS created_at
FROM messages AS m
JOIN sessions AS s ON s.row_id = m.session_row
WHERE ((m.session_row = (SELECT row_id FROM sessions WHERE (agent_id = :agent AND id = :session) AND sessions.store_id =
    :store_id) AND m.sequence < :sequence AND (m.visibility = 'shared' OR (s.user_id IS NULL OR s.user_id = :viewer OR
    s.id = :viewer_group OR ((s.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    s.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id))))) AND m.store_id = :store_id) AND s.store_id =
    :store_id
ORDER BY m.sequence DESC LIMIT NULLIF(CAST(:count AS BIGINT), -1);
SELECT m.id AS id, m.role AS role, m.name AS name, m.content AS text, m.created_at AS created_at
FROM messages AS m
JOIN sessions AS s ON s.row_id = m.session_row
WHERE ((m.session_row = (SELECT row_id FROM sessions WHERE (agent_id = :agent AND id = :session) AND sessions.store_id =
    :store_id) AND m.sequence < :sequence AND (m.visibility = 'shared' OR (s.user_id IS NULL OR s.user_id = :viewer OR
    s.id = :viewer_group OR ((s.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    s.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id))))) AND m.store_id = :store_id) AND s.store_id =
    :store_id
ORDER BY m.sequence ASC LIMIT NULLIF(CAST(:count AS BIGINT), -1);
SELECT m.id AS id, m.role AS role, m.name AS name, m.content AS text, m.created_at AS created_at
FROM messages AS m
JOIN sessions AS s ON s.row_id = m.session_row
WHERE ((m.session_row = (SELECT row_id FROM sessions WHERE (agent_id = :agent AND id = :session) AND sessions.store_id =
    :store_id) AND m.sequence > :sequence AND (m.visibility = 'shared' OR (s.user_id IS NULL OR s.user_id = :viewer OR
    s.id = :viewer_group OR ((s.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    s.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id))))) AND m.store_id = :store_id) AND s.store_id =
    :store_id
ORDER BY m.sequence DESC LIMIT NULLIF(CAST(:count AS BIGINT), -1);
SELECT m.id AS id, m.role AS role, m.name AS name, m.content AS text, m.created_at AS created_at
FROM messages AS m
JOIN sessions AS s ON s.row_id = m.session_row
WHERE ((m.session_row = (SELECT row_id FROM sessions WHERE (agent_id = :agent AND id = :session) AND sessions.store_id =
    :store_id) AND m.sequence > :sequence AND (m.visibility = 'shared' OR (s.user_id IS NULL OR s.user_id = :viewer OR
    s.id = :viewer_group OR ((s.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    s.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id))))) AND m.store_id = :store_id) AND s.store_id =
    :store_id
ORDER BY m.sequence ASC LIMIT NULLIF(CAST(:count AS BIGINT), -1);
-- storage.recall.chunk_sources: session_threads
SELECT row_id
FROM files
WHERE (agent_id = :agent AND session_row = ANY(CAST(:sessions AS BIGINT[]))) AND files.store_id = :store_id;
-- storage.recall.chunk_sources: with_tags
SELECT t.chunk_id
FROM chunk_tags AS t
WHERE (t.tag = ANY(CAST(:tags AS TEXT[])) AND (SELECT agent_id FROM chunks WHERE id = t.chunk_id AND chunks.store_id =
    :store_id) = :agent) AND t.store_id = :store_id
GROUP BY t.chunk_id HAVING COUNT(*) = :count;
-- storage.recall.chunk_sources: first_of_messages
SELECT MIN(c.id)
FROM messages AS m
JOIN message_chunks AS l ON l.message_row = m.row_id
JOIN chunks AS c ON c.id = l.chunk_id
WHERE (((m.agent_id = :agent AND m.id = ANY(CAST(:messages AS TEXT[]))) AND m.store_id = :store_id) AND l.store_id =
    :store_id) AND c.store_id = :store_id
GROUP BY m.row_id;
-- storage.recall.chunk_sources: _of_memories
SELECT c.id
FROM memories AS k
JOIN chunks AS c ON c.memory_row = k.row_id
WHERE ((k.agent_id = :agent AND ((NOT k.session_row IS NULL AND k.session_row = ANY(CAST(:visible_sessions AS BIGINT[]))
    AND (k.tier = 'conversation' OR NOT k.note_id IS NULL)) OR (k.tier = 'channel' AND COALESCE(k.channel_id,
    :default_channel) = :visible_channel) OR k.tier IN ('workspace', 'account'))) AND k.store_id = :store_id) AND
    c.store_id = :store_id;
SELECT c.id
FROM memories AS k
JOIN chunks AS c ON c.memory_row = k.row_id
WHERE ((k.agent_id = :agent AND NOT (((NOT k.session_row IS NULL AND k.session_row = ANY(CAST(:visible_sessions AS
    BIGINT[])) AND (k.tier = 'conversation' OR NOT k.note_id IS NULL)) OR (k.tier = 'channel' AND COALESCE(k.channel_id,
    :default_channel) = :visible_channel) OR k.tier IN ('workspace', 'account')))) AND k.store_id = :store_id) AND
    c.store_id = :store_id;
-- storage.recall.chunk_sources: _by_first_column
SELECT c.id, s.id
FROM chunks AS c
JOIN sessions AS s ON s.row_id = c.session_row
WHERE ((c.agent_id = :agent AND c.id = ANY(CAST(:ids AS BIGINT[])) AND (c.session_row IS NULL OR s.agent_id =
    c.agent_id) AND (c.file_row IS NULL OR EXISTS(SELECT 1 FROM files AS here WHERE (here.row_id = c.file_row AND
    here.agent_id = c.agent_id AND NOT here.chunked_at IS NULL) AND here.store_id = :store_id))) AND c.store_id =
    :store_id) AND s.store_id = :store_id;
SELECT row_id, session_row
FROM files
WHERE (agent_id = :agent AND NOT session_row IS NULL AND row_id = ANY(CAST(:rows AS BIGINT[]))) AND files.store_id =
    :store_id;
SELECT c.id, k.session_row
FROM memories AS k
JOIN chunks AS c ON c.memory_row = k.row_id
WHERE ((k.agent_id = :agent AND NOT k.note_id IS NULL AND NOT k.session_row IS NULL) AND k.store_id = :store_id) AND
    c.store_id = :store_id;
SELECT c.id, c.created_at
FROM chunks AS c
WHERE (c.agent_id = :agent AND c.id = ANY(CAST(:ids AS BIGINT[]))) AND c.store_id = :store_id;
-- storage.recall.events: record
INSERT INTO recall_events (agent_id, recall, chunk_id, query, score, at, user_id) SELECT :agent, :recall, c.id, :query,
    CAST(JSON_EXTRACT_PATH_TEXT(CAST((hit.value) AS JSON), '1') AS DOUBLE PRECISION), :at, :user
FROM JSONB_ARRAY_ELEMENTS(CAST(:hits AS JSONB)) WITH ORDINALITY AS hit(value, key)
CROSS JOIN LATERAL (SELECT CAST(JSON_EXTRACT_PATH_TEXT(CAST((hit.value) AS JSON), '0') AS BIGINT) AS id OFFSET 0) AS
    c_keys
JOIN chunks AS c ON c.id = c_keys.id
WHERE (c.agent_id = :agent AND c.stored_at <= :at) AND c.store_id = :store_id ON CONFLICT(store_id, recall, chunk_id) DO
    NOTHING
RETURNING chunk_id;
-- storage.recall.events: record
UPDATE chunks
SET access_count = access_count + :times, accessed_at = GREATEST(COALESCE(accessed_at, 0), :at)
WHERE id = :chunk AND chunks.store_id = :store_id;
-- storage.recall.events: record
UPDATE memories
SET access_count = access_count + :times, accessed_at = GREATEST(accessed_at, :at)
WHERE row_id = (SELECT memory_row FROM chunks WHERE id = :chunk AND chunks.store_id = :store_id) AND memories.store_id =
    :store_id;
-- storage.recall.events: agents
SELECT MIN(agent_id)
FROM recall_events
WHERE agent_id > :after AND recall_events.store_id = :store_id;
-- storage.recall.events: prune
DELETE FROM recall_events
WHERE id IN (SELECT id FROM recall_events WHERE (agent_id = :agent AND at < :oldest) AND recall_events.store_id =
    :store_id ORDER BY at LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AND recall_events.store_id = :store_id;
-- storage.recall.events: recent
SELECT e.recall AS recall, e.query AS query, e.at AS at, e.score AS score, CASE WHEN NOT c.memory_row IS NULL THEN
    'memory' WHEN c.file_row IS NULL THEN 'message' ELSE 'file' END AS kind, COALESCE(m.id, f.id, k.id) AS id,
    COALESCE(s.id, o.id) AS session, COALESCE(k.access_count, c.access_count) AS access_count
FROM recall_events AS e
JOIN chunks AS c ON c.id = e.chunk_id
CROSS JOIN LATERAL (SELECT (SELECT MAX(message_row) FROM message_chunks WHERE chunk_id = c.id AND
    message_chunks.store_id = :store_id) AS row_id OFFSET 0) AS m_keys
LEFT JOIN messages AS m ON m.store_id = :store_id AND m.row_id = m_keys.row_id
LEFT JOIN files AS f ON f.store_id = :store_id AND f.row_id = c.file_row
LEFT JOIN memories AS k ON k.store_id = :store_id AND k.row_id = c.memory_row
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = c.session_row
LEFT JOIN sessions AS o ON o.store_id = :store_id AND o.row_id = k.session_row
WHERE ((e.agent_id = :agent AND (c.session_row IS NULL OR s.agent_id = c.agent_id) AND (c.file_row IS NULL OR f.agent_id
    = c.agent_id) AND e.user_id IS NOT DISTINCT FROM :viewer AND e.chunk_id IN (SELECT o.id FROM memories AS r JOIN
    chunks AS o ON o.memory_row = r.row_id WHERE ((r.agent_id = :agent AND r.id = :memory) AND r.store_id = :store_id)
    AND o.store_id = :store_id)) AND e.store_id = :store_id) AND c.store_id = :store_id
ORDER BY e.at DESC, e.recall DESC, e.score DESC, e.id LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT e.recall AS recall, e.query AS query, e.at AS at, e.score AS score, CASE WHEN NOT c.memory_row IS NULL THEN
    'memory' WHEN c.file_row IS NULL THEN 'message' ELSE 'file' END AS kind, COALESCE(m.id, f.id, k.id) AS id,
    COALESCE(s.id, o.id) AS session, COALESCE(k.access_count, c.access_count) AS access_count
FROM recall_events AS e
JOIN chunks AS c ON c.id = e.chunk_id
CROSS JOIN LATERAL (SELECT (SELECT MAX(message_row) FROM message_chunks WHERE chunk_id = c.id AND
    message_chunks.store_id = :store_id) AS row_id OFFSET 0) AS m_keys
LEFT JOIN messages AS m ON m.store_id = :store_id AND m.row_id = m_keys.row_id
LEFT JOIN files AS f ON f.store_id = :store_id AND f.row_id = c.file_row
LEFT JOIN memories AS k ON k.store_id = :store_id AND k.row_id = c.memory_row
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = c.session_row
LEFT JOIN sessions AS o ON o.store_id = :store_id AND o.row_id = k.session_row
WHERE ((e.agent_id = :agent AND (c.session_row IS NULL OR s.agent_id = c.agent_id) AND (c.file_row IS NULL OR f.agent_id
    = c.agent_id) AND e.user_id IS NOT DISTINCT FROM :viewer AND COALESCE(k.tenant, 'local') = :viewer_tenant AND
    e.chunk_id IN (SELECT o.id FROM memories AS r JOIN chunks AS o ON o.memory_row = r.row_id WHERE ((r.agent_id =
    :agent AND r.id = :memory) AND r.store_id = :store_id) AND o.store_id = :store_id)) AND e.store_id = :store_id) AND
    c.store_id = :store_id
ORDER BY e.at DESC, e.recall DESC, e.score DESC, e.id LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT e.recall AS recall, e.query AS query, e.at AS at, e.score AS score, CASE WHEN NOT c.memory_row IS NULL THEN
    'memory' WHEN c.file_row IS NULL THEN 'message' ELSE 'file' END AS kind, COALESCE(m.id, f.id, k.id) AS id,
    COALESCE(s.id, o.id) AS session, COALESCE(k.access_count, c.access_count) AS access_count
FROM recall_events AS e
JOIN chunks AS c ON c.id = e.chunk_id
CROSS JOIN LATERAL (SELECT (SELECT MAX(message_row) FROM message_chunks WHERE chunk_id = c.id AND
    message_chunks.store_id = :store_id) AS row_id OFFSET 0) AS m_keys
LEFT JOIN messages AS m ON m.store_id = :store_id AND m.row_id = m_keys.row_id
LEFT JOIN files AS f ON f.store_id = :store_id AND f.row_id = c.file_row
LEFT JOIN memories AS k ON k.store_id = :store_id AND k.row_id = c.memory_row
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = c.session_row
LEFT JOIN sessions AS o ON o.store_id = :store_id AND o.row_id = k.session_row
WHERE ((e.agent_id = :agent AND (c.session_row IS NULL OR s.agent_id = c.agent_id) AND (c.file_row IS NULL OR f.agent_id
    = c.agent_id) AND e.user_id IS NOT DISTINCT FROM :viewer) AND e.store_id = :store_id) AND c.store_id = :store_id
ORDER BY e.at DESC, e.recall DESC, e.score DESC, e.id LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT e.recall AS recall, e.query AS query, e.at AS at, e.score AS score, CASE WHEN NOT c.memory_row IS NULL THEN
    'memory' WHEN c.file_row IS NULL THEN 'message' ELSE 'file' END AS kind, COALESCE(m.id, f.id, k.id) AS id,
    COALESCE(s.id, o.id) AS session, COALESCE(k.access_count, c.access_count) AS access_count
FROM recall_events AS e
JOIN chunks AS c ON c.id = e.chunk_id
CROSS JOIN LATERAL (SELECT (SELECT MAX(message_row) FROM message_chunks WHERE chunk_id = c.id AND
    message_chunks.store_id = :store_id) AS row_id OFFSET 0) AS m_keys
LEFT JOIN messages AS m ON m.store_id = :store_id AND m.row_id = m_keys.row_id
LEFT JOIN files AS f ON f.store_id = :store_id AND f.row_id = c.file_row
LEFT JOIN memories AS k ON k.store_id = :store_id AND k.row_id = c.memory_row
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = c.session_row
LEFT JOIN sessions AS o ON o.store_id = :store_id AND o.row_id = k.session_row
WHERE ((e.agent_id = :agent AND (c.session_row IS NULL OR s.agent_id = c.agent_id) AND (c.file_row IS NULL OR f.agent_id
    = c.agent_id) AND e.user_id IS NOT DISTINCT FROM :viewer AND COALESCE(k.tenant, 'local') = :viewer_tenant) AND
    e.store_id = :store_id) AND c.store_id = :store_id
ORDER BY e.at DESC, e.recall DESC, e.score DESC, e.id LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
-- storage.recall.events: record
INSERT INTO contexts (id, agent_id, session_row, user_id, at, query, token_budget, tokens, degraded, items) SELECT :id,
    :agent, s.row_id, :user, :at, :query, :token_budget, :tokens, :degraded, :items
FROM (SELECT 1 AS one) AS o
LEFT JOIN sessions AS s ON s.store_id = :store_id AND (s.agent_id = :agent AND s.id = :session AND s.started_at <= :at)
WHERE :session IS NULL OR NOT s.row_id IS NULL ON CONFLICT(store_id, id) DO NOTHING;
-- storage.recall.events: prune
DELETE FROM contexts
WHERE id IN (SELECT id FROM contexts WHERE at < :before AND contexts.store_id = :store_id ORDER BY id LIMIT
    NULLIF(CAST(:limit AS BIGINT), -1)) AND contexts.store_id = :store_id;
-- storage.recall.events: page
SELECT c.id AS id, c.agent_id AS agent, s.id AS session, c.user_id AS user, c.at AS at, c.query AS query, c.token_budget
    AS token_budget, c.tokens AS tokens, c.degraded AS degraded, c.items AS items
FROM contexts AS c
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = c.session_row
WHERE (c.agent_id = :agent AND c.user_id IS NOT DISTINCT FROM :viewer AND (c.session_row IS NULL OR (s.user_id IS NULL
    OR s.user_id = :viewer OR s.id = :viewer_group OR ((s.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu
    WHERE (vu.session_row = s.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND s.id = :session) AND
    c.store_id = :store_id
ORDER BY c.at DESC, c.id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT c.id AS id, c.agent_id AS agent, s.id AS session, c.user_id AS user, c.at AS at, c.query AS query, c.token_budget
    AS token_budget, c.tokens AS tokens, c.degraded AS degraded, c.items AS items
FROM contexts AS c
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = c.session_row
WHERE (c.agent_id = :agent AND c.user_id IS NOT DISTINCT FROM :viewer AND (c.session_row IS NULL OR (s.user_id IS NULL
    OR s.user_id = :viewer OR s.id = :viewer_group OR ((s.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu
    WHERE (vu.session_row = s.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id))))) AND c.store_id =
    :store_id
ORDER BY c.at DESC, c.id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
-- storage.recall.events: find
SELECT c.id AS id, c.agent_id AS agent, s.id AS session, c.user_id AS user, c.at AS at, c.query AS query, c.token_budget
    AS token_budget, c.tokens AS tokens, c.degraded AS degraded, c.items AS items
FROM contexts AS c
LEFT JOIN sessions AS s ON s.store_id = :store_id AND s.row_id = c.session_row
WHERE (c.agent_id = :agent AND c.user_id IS NOT DISTINCT FROM :viewer AND (c.session_row IS NULL OR (s.user_id IS NULL
    OR s.user_id = :viewer OR s.id = :viewer_group OR ((s.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu
    WHERE (vu.session_row = s.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND c.id = :id) AND
    c.store_id = :store_id;
-- storage.recall.words: languages_of
WITH RECURSIVE span(low, high) AS (SELECT MIN(id), MAX(id) FROM chunks WHERE chunks.store_id = :store_id), place(number)
    AS (SELECT 0 UNION ALL SELECT number + 1 FROM place WHERE number + 1 < :sampled) SELECT text
FROM chunks
WHERE id IN (SELECT (SELECT MIN(id) FROM chunks WHERE id >= low + (high - low) * number / NULLIF((:sampled - 1), 0) AND
    chunks.store_id = :store_id) FROM place CROSS JOIN span OFFSET 0) AND chunks.store_id = :store_id;
-- storage.reindex: recount_words
SELECT c.id, c.agent_id, c.session_row, c.file_row, c.memory_row, c.sequence_start, c.created_at, m.role,
    COALESCE(f.speaker, m.name) AS speaker, c.lead, c.text, f.words
FROM chunks AS c
LEFT JOIN forward_index AS f ON f.store_id = :store_id AND (f.agent_id = c.agent_id AND f.chunk_id = c.id)
LEFT JOIN messages AS m ON m.store_id = :store_id AND (m.row_id = (SELECT MIN(message_row) FROM message_chunks WHERE
    chunk_id = c.id AND message_chunks.store_id = :store_id) AND c.file_row IS NULL AND c.memory_row IS NULL)
WHERE c.id > :after AND c.store_id = :store_id
ORDER BY c.id LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.reindex: _correct
DELETE FROM forward_index
WHERE (agent_id, chunk_id) IN (SELECT JSON_EXTRACT_PATH_TEXT(CAST((value) AS JSON), '0'),
    CAST(JSON_EXTRACT_PATH_TEXT(CAST((value) AS JSON), '1') AS BIGINT) FROM JSONB_ARRAY_ELEMENTS(CAST(:keys AS JSONB))
    WITH ORDINALITY AS json_each(value, key) OFFSET 0) AND forward_index.store_id = :store_id;
-- storage.reindex: _correct
INSERT INTO forward_index (agent_id, chunk_id, thread, sequence, created_at, role, speaker, words)
VALUES (:agent, :id, :thread, :sequence, :created_at, :role, :speaker, :words);
-- storage.reindex: _fill
SELECT id
FROM chunks
WHERE (TRUE AND id > :after) AND chunks.store_id = :store_id
ORDER BY id LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.reindex: _fill
UPDATE indexes
SET built_to = :last
WHERE id = :id AND indexes.store_id = :store_id;
-- storage.reindex: _count
SELECT COUNT(*)
FROM chunks
WHERE TRUE AND chunks.store_id = :store_id;
SELECT COUNT(*)
FROM chunks_vec
WHERE model = (SELECT model FROM indexes WHERE (kind = 'vector' AND state = 'active') AND indexes.store_id = :store_id)
    AND chunks_vec.store_id = :store_id;
-- storage.reindex: to_reembed
SELECT c.id AS id, c.agent_id AS agent, c.lead AS lead, c.text AS text, f.speaker AS speaker
FROM chunks_vec AS v
JOIN chunks AS c ON c.id = v.chunk_id
LEFT JOIN forward_index AS f ON f.store_id = :store_id AND (f.agent_id = c.agent_id AND f.chunk_id = c.id)
WHERE ((v.model = :old AND v.chunk_id > :after AND NOT EXISTS(SELECT 1 FROM chunks_vec AS n WHERE (n.chunk_id =
    v.chunk_id AND n.model = :new) AND n.store_id = :store_id) AND NOT v.chunk_id = ANY(CAST(:exclude AS BIGINT[]))) AND
    v.store_id = :store_id) AND c.store_id = :store_id
ORDER BY v.chunk_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.reindex: put_vectors
SELECT c.id, c.agent_id
FROM chunks_vec AS v
JOIN chunks AS c ON c.id = v.chunk_id
WHERE ((v.chunk_id = ANY(CAST(:ids AS BIGINT[])) AND v.model = :old) AND v.store_id = :store_id) AND c.store_id =
    :store_id;
-- storage.reindex: put_vectors
INSERT INTO chunks_vec (chunk_id, model, dim, embedding)
VALUES (:id, :model, :dim, :embedding) ON CONFLICT(store_id, chunk_id, model) DO UPDATE
SET dim = :dim, embedding = :embedding;
-- storage.reindex: leave_to_workers
DELETE FROM claims
WHERE (stage = 'index' AND item_id = ANY(CAST(:ids AS BIGINT[]))) AND claims.store_id = :store_id;
-- storage.reindex: leave_to_workers
UPDATE chunks
SET embedded_at = NULL, indexed_at = NULL
WHERE id = ANY(CAST(:ids AS BIGINT[])) AND chunks.store_id = :store_id;
-- storage.reindex: leave_to_workers
DELETE FROM chunks_vec
WHERE chunk_id = ANY(CAST(:ids AS BIGINT[])) AND chunks_vec.store_id = :store_id;
-- storage.reindex: count_vectors
SELECT COUNT(*)
FROM chunks_vec
WHERE model = :model AND chunks_vec.store_id = :store_id;
-- storage.reindex: has_vectors
SELECT 1
FROM chunks_vec
WHERE chunks_vec.store_id = :store_id LIMIT 1;
-- storage.reindex: has_leftovers
SELECT 1
FROM chunks_vec
WHERE (NOT model IN (SELECT model FROM indexes WHERE kind = 'vector' AND indexes.store_id = :store_id) AND EXISTS(SELECT
    1 FROM indexes WHERE (kind = 'vector' AND state = 'active') AND indexes.store_id = :store_id)) AND
    chunks_vec.store_id = :store_id LIMIT 1;
-- storage.reindex: remove_leftovers
DELETE FROM chunks_vec
WHERE ctid IN (SELECT ctid FROM chunks_vec WHERE (chunk_id >= :reached AND NOT model IN (SELECT model FROM indexes WHERE
    kind = 'vector' AND indexes.store_id = :store_id) AND EXISTS(SELECT 1 FROM indexes WHERE (kind = 'vector' AND state
    = 'active') AND indexes.store_id = :store_id)) AND chunks_vec.store_id = :store_id ORDER BY chunk_id LIMIT
    NULLIF(CAST(:limit AS BIGINT), -1)) AND chunks_vec.store_id = :store_id
RETURNING chunk_id;
-- storage.scheduling.deliveries: mark_delivered
UPDATE reminders
SET delivered_at = COALESCE(delivered_at, :now), claim_until = NULL, error = ''
WHERE (agent_id = :agent AND id = :id AND token = :token) AND reminders.store_id = :store_id;
UPDATE notifications
SET delivered_at = COALESCE(delivered_at, :now), claim_until = NULL, error = ''
WHERE (agent_id = :agent AND id = :id AND token = :token) AND notifications.store_id = :store_id;
-- storage.scheduling.deliveries: add
INSERT INTO reminders (id, user_id, session_id, channel_id, recipient, message, delivery, due_at, agent_id, created_at)
VALUES (:id, :user, :session, :channel, :recipient, :message, :delivery, :due_at, :agent, :now);
-- storage.scheduling.deliveries: page
SELECT id AS id, user_id AS user, session_id AS session, channel_id AS channel, recipient AS recipient, message AS
    message, delivery AS delivery, due_at AS due_at, agent_id AS agent, created_at AS created_at, claimed_at AS
    claimed_at, claim_until AS claim_until, token AS token, attempts AS attempts, error AS error, delivered_at AS
    delivered_at
FROM reminders
WHERE (agent_id = :agent AND (reminders.user_id = :viewer OR (reminders.user_id IS NULL AND NOT EXISTS(SELECT 1 FROM
    sessions AS vs WHERE (vs.agent_id = reminders.agent_id AND vs.id = reminders.session_id AND NOT ((vs.user_id IS NULL
    OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu
    WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) IS TRUE) AND vs.store_id
    = :store_id))) AND TRUE AND (:session IS NULL OR session_id = :session) AND (:recipient IS NULL OR recipient =
    :recipient)) AND reminders.store_id = :store_id
ORDER BY due_at, id LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT id AS id, user_id AS user, session_id AS session, channel_id AS channel, recipient AS recipient, message AS
    message, delivery AS delivery, due_at AS due_at, agent_id AS agent, created_at AS created_at, claimed_at AS
    claimed_at, claim_until AS claim_until, token AS token, attempts AS attempts, error AS error, delivered_at AS
    delivered_at
FROM reminders
WHERE (agent_id = :agent AND (reminders.user_id = :viewer OR (reminders.user_id IS NULL AND NOT EXISTS(SELECT 1 FROM
    sessions AS vs WHERE (vs.agent_id = reminders.agent_id AND vs.id = reminders.session_id AND NOT ((vs.user_id IS NULL
    OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu
    WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) IS TRUE) AND vs.store_id
    = :store_id))) AND delivered_at IS NULL AND (COALESCE(claim_until, 0) <= :clock OR claim_until > :clock +
    3700000000) AND due_at > :now AND (:session IS NULL OR session_id = :session) AND (:recipient IS NULL OR recipient =
    :recipient)) AND reminders.store_id = :store_id
ORDER BY due_at, id LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
-- storage.scheduling.deliveries: page
SELECT COUNT(*)
FROM reminders
WHERE (agent_id = :agent AND (reminders.user_id = :viewer OR (reminders.user_id IS NULL AND NOT EXISTS(SELECT 1 FROM
    sessions AS vs WHERE (vs.agent_id = reminders.agent_id AND vs.id = reminders.session_id AND NOT ((vs.user_id IS NULL
    OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu
    WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) IS TRUE) AND vs.store_id
    = :store_id))) AND TRUE AND (:session IS NULL OR session_id = :session) AND (:recipient IS NULL OR recipient =
    :recipient)) AND reminders.store_id = :store_id;
SELECT COUNT(*)
FROM reminders
WHERE (agent_id = :agent AND (reminders.user_id = :viewer OR (reminders.user_id IS NULL AND NOT EXISTS(SELECT 1 FROM
    sessions AS vs WHERE (vs.agent_id = reminders.agent_id AND vs.id = reminders.session_id AND NOT ((vs.user_id IS NULL
    OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu
    WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) IS TRUE) AND vs.store_id
    = :store_id))) AND delivered_at IS NULL AND (COALESCE(claim_until, 0) <= :clock OR claim_until > :clock +
    3700000000) AND due_at > :now AND (:session IS NULL OR session_id = :session) AND (:recipient IS NULL OR recipient =
    :recipient)) AND reminders.store_id = :store_id;
-- storage.scheduling.deliveries: claim
UPDATE reminders
SET claimed_at = :now, claim_until = :until, token = :token, attempts = attempts + 1
WHERE (agent_id = :agent AND id IN (SELECT id FROM reminders WHERE (agent_id = :agent AND (reminders.user_id = :viewer
    OR (reminders.user_id IS NULL AND EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.agent_id = reminders.agent_id AND
    vs.id = reminders.session_id AND NOT vs.user_id IS NULL AND (vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id =
    :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = vs.row_id
    AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id = :store_id))) AND delivered_at IS NULL
    AND (COALESCE(claim_until, 0) <= :clock OR claim_until > :clock + 3700000000) AND due_at <= :now AND (NOT
    (:has_notifier) <> 0 OR delivery IN ('auto', 'pull')) AND (:recipient IS NULL OR recipient = :recipient)) AND
    reminders.store_id = :store_id ORDER BY due_at, id LIMIT NULLIF(CAST(:limit AS BIGINT), -1))) AND reminders.store_id
    = :store_id
RETURNING id AS id, user_id AS user, session_id AS session, channel_id AS channel, recipient AS recipient, message AS
    message, delivery AS delivery, due_at AS due_at, agent_id AS agent, created_at AS created_at, claimed_at AS
    claimed_at, claim_until AS claim_until, token AS token, attempts AS attempts, error AS error, delivered_at AS
    delivered_at;
-- storage.scheduling.deliveries: delete_for_session
DELETE FROM reminders
WHERE (agent_id = :agent AND (reminders.user_id = :viewer OR (reminders.user_id IS NULL AND EXISTS(SELECT 1 FROM
    sessions AS vs WHERE (vs.agent_id = reminders.agent_id AND vs.id = reminders.session_id AND NOT vs.user_id IS NULL
    AND (vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1
    FROM session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id))))
    AND vs.store_id = :store_id))) AND session_id = :session) AND reminders.store_id = :store_id;
-- storage.scheduling.deliveries: add
INSERT INTO notifications (user_id, kind, schedule_id, schedule_name, run_id, run_status, channel_id, session_id, title,
    body, id, agent_id, created_at)
VALUES (:user, :kind, :schedule, :schedule_name, :run, :run_status, :channel, :session, :title, :body, :id, :agent,
    :now);
-- storage.scheduling.deliveries: page
SELECT user_id AS user, kind AS kind, schedule_id AS schedule, schedule_name AS schedule_name, run_id AS run, run_status
    AS run_status, channel_id AS channel, session_id AS session, title AS title, body AS body, id AS id, agent_id AS
    agent, created_at AS created_at, token AS token, attempts AS attempts, error AS error, delivered_at AS delivered_at,
    acknowledged_at AS acknowledged_at
FROM notifications
WHERE (agent_id = :agent AND (notifications.user_id = :viewer OR (notifications.user_id IS NULL AND NOT EXISTS(SELECT 1
    FROM sessions AS vs WHERE (vs.agent_id = notifications.agent_id AND vs.id = notifications.session_id AND NOT
    ((vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1
    FROM session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id))))
    IS TRUE) AND vs.store_id = :store_id))) AND (:schedule IS NULL OR schedule_id = :schedule) AND (:channel IS NULL OR
    channel_id = :channel)) AND notifications.store_id = :store_id
ORDER BY created_at, id LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT user_id AS user, kind AS kind, schedule_id AS schedule, schedule_name AS schedule_name, run_id AS run, run_status
    AS run_status, channel_id AS channel, session_id AS session, title AS title, body AS body, id AS id, agent_id AS
    agent, created_at AS created_at, token AS token, attempts AS attempts, error AS error, delivered_at AS delivered_at,
    acknowledged_at AS acknowledged_at
FROM notifications
WHERE (agent_id = :agent AND (notifications.user_id = :viewer OR (notifications.user_id IS NULL AND NOT EXISTS(SELECT 1
    FROM sessions AS vs WHERE (vs.agent_id = notifications.agent_id AND vs.id = notifications.session_id AND NOT
    ((vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1
    FROM session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id))))
    IS TRUE) AND vs.store_id = :store_id))) AND (:schedule IS NULL OR schedule_id = :schedule) AND (:channel IS NULL OR
    channel_id = :channel) AND acknowledged_at IS NULL) AND notifications.store_id = :store_id
ORDER BY created_at, id LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
-- storage.scheduling.deliveries: page
SELECT COUNT(*)
FROM notifications
WHERE (agent_id = :agent AND (notifications.user_id = :viewer OR (notifications.user_id IS NULL AND NOT EXISTS(SELECT 1
    FROM sessions AS vs WHERE (vs.agent_id = notifications.agent_id AND vs.id = notifications.session_id AND NOT
    ((vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1
    FROM session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id))))
    IS TRUE) AND vs.store_id = :store_id))) AND (:schedule IS NULL OR schedule_id = :schedule) AND (:channel IS NULL OR
    channel_id = :channel)) AND notifications.store_id = :store_id;
SELECT COUNT(*)
FROM notifications
WHERE (agent_id = :agent AND (notifications.user_id = :viewer OR (notifications.user_id IS NULL AND NOT EXISTS(SELECT 1
    FROM sessions AS vs WHERE (vs.agent_id = notifications.agent_id AND vs.id = notifications.session_id AND NOT
    ((vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1
    FROM session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id))))
    IS TRUE) AND vs.store_id = :store_id))) AND (:schedule IS NULL OR schedule_id = :schedule) AND (:channel IS NULL OR
    channel_id = :channel) AND acknowledged_at IS NULL) AND notifications.store_id = :store_id;
-- storage.scheduling.deliveries: acknowledge
UPDATE notifications
SET acknowledged_at = :now
WHERE (agent_id = :agent AND acknowledged_at IS NULL AND (notifications.user_id = :viewer OR (notifications.user_id IS
    NULL AND EXISTS(SELECT 1 FROM sessions AS vs WHERE (vs.agent_id = notifications.agent_id AND vs.id =
    notifications.session_id AND NOT vs.user_id IS NULL AND (vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id =
    :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = vs.row_id
    AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND vs.store_id = :store_id))) AND id = ANY(CAST(:ids AS
    TEXT[]))) AND notifications.store_id = :store_id
RETURNING user_id AS user, kind AS kind, schedule_id AS schedule, schedule_name AS schedule_name, run_id AS run,
    run_status AS run_status, channel_id AS channel, session_id AS session, title AS title, body AS body, id AS id,
    agent_id AS agent, created_at AS created_at, token AS token, attempts AS attempts, error AS error, delivered_at AS
    delivered_at, acknowledged_at AS acknowledged_at;
-- storage.scheduling.deliveries: claim_next
UPDATE reminders
SET claimed_at = :now, claim_until = :until, token = :token, attempts = attempts + 1
WHERE (agent_id, id) = (SELECT agent_id, id FROM reminders WHERE (delivered_at IS NULL AND delivery <> 'pull' AND due_at
    <= :now AND (COALESCE(claim_until, 0) <= :clock OR claim_until > :clock + 3700000000) AND ((COALESCE(not_before, 0)
    <= :clock OR not_before > :clock + 3700000000) OR paused_at > :clock + 60000000)) AND reminders.store_id = :store_id
    ORDER BY due_at, id LIMIT 1) AND reminders.store_id = :store_id
RETURNING id AS id, user_id AS user, session_id AS session, channel_id AS channel, recipient AS recipient, message AS
    message, delivery AS delivery, due_at AS due_at, agent_id AS agent, created_at AS created_at, claimed_at AS
    claimed_at, claim_until AS claim_until, token AS token, attempts AS attempts, error AS error, delivered_at AS
    delivered_at;
UPDATE notifications
SET claim_until = :until, token = :token, attempts = attempts + 1
WHERE (id) = (SELECT agent_id, id FROM reminders WHERE (delivered_at IS NULL AND delivery <> 'pull' AND due_at <= :now
    AND (COALESCE(claim_until, 0) <= :clock OR claim_until > :clock + 3700000000) AND ((COALESCE(not_before, 0) <=
    :clock OR not_before > :clock + 3700000000) OR paused_at > :clock + 60000000)) AND reminders.store_id = :store_id
    ORDER BY due_at, id LIMIT 1) AND notifications.store_id = :store_id
RETURNING user_id AS user, kind AS kind, schedule_id AS schedule, schedule_name AS schedule_name, run_id AS run,
    run_status AS run_status, channel_id AS channel, session_id AS session, title AS title, body AS body, id AS id,
    agent_id AS agent, created_at AS created_at, token AS token, attempts AS attempts, error AS error, delivered_at AS
    delivered_at, acknowledged_at AS acknowledged_at;
UPDATE reminders
SET claimed_at = :now, claim_until = :until, token = :token, attempts = attempts + 1
WHERE (agent_id, id) = (SELECT id FROM notifications WHERE (delivered_at IS NULL AND acknowledged_at IS NULL AND TRUE
    AND (COALESCE(claim_until, 0) <= :clock OR claim_until > :clock + 3700000000) AND ((COALESCE(not_before, 0) <=
    :clock OR not_before > :clock + 3700000000) OR paused_at > :clock + 60000000)) AND notifications.store_id =
    :store_id ORDER BY created_at, id LIMIT 1) AND reminders.store_id = :store_id
RETURNING id AS id, user_id AS user, session_id AS session, channel_id AS channel, recipient AS recipient, message AS
    message, delivery AS delivery, due_at AS due_at, agent_id AS agent, created_at AS created_at, claimed_at AS
    claimed_at, claim_until AS claim_until, token AS token, attempts AS attempts, error AS error, delivered_at AS
    delivered_at;
UPDATE notifications
SET claim_until = :until, token = :token, attempts = attempts + 1
WHERE (id) = (SELECT id FROM notifications WHERE (delivered_at IS NULL AND acknowledged_at IS NULL AND TRUE AND
    (COALESCE(claim_until, 0) <= :clock OR claim_until > :clock + 3700000000) AND ((COALESCE(not_before, 0) <= :clock OR
    not_before > :clock + 3700000000) OR paused_at > :clock + 60000000)) AND notifications.store_id = :store_id ORDER BY
    created_at, id LIMIT 1) AND notifications.store_id = :store_id
RETURNING user_id AS user, kind AS kind, schedule_id AS schedule, schedule_name AS schedule_name, run_id AS run,
    run_status AS run_status, channel_id AS channel, session_id AS session, title AS title, body AS body, id AS id,
    agent_id AS agent, created_at AS created_at, token AS token, attempts AS attempts, error AS error, delivered_at AS
    delivered_at, acknowledged_at AS acknowledged_at;
-- storage.scheduling.deliveries: retry_later
UPDATE reminders
SET claim_until = NULL, token = NULL, not_before = :not_before, paused_at = :clock, error = :error
WHERE (agent_id = :agent AND id = :id AND token = :token AND delivered_at IS NULL) AND reminders.store_id = :store_id;
UPDATE notifications
SET claim_until = NULL, token = NULL, not_before = :not_before, paused_at = :clock, error = :error
WHERE (agent_id = :agent AND id = :id AND token = :token AND delivered_at IS NULL) AND notifications.store_id =
    :store_id;
-- storage.scheduling.deliveries: oldest
SELECT MIN(delivered_at)
FROM reminders
WHERE NOT delivered_at IS NULL AND reminders.store_id = :store_id;
SELECT MIN(created_at)
FROM notifications
WHERE NOT created_at IS NULL AND notifications.store_id = :store_id;
-- storage.scheduling.deliveries: prune
DELETE FROM reminders
WHERE (agent_id, id) IN (SELECT agent_id, id FROM reminders WHERE delivered_at < :before AND reminders.store_id =
    :store_id ORDER BY delivered_at NULLS FIRST LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AND reminders.store_id =
    :store_id;
DELETE FROM notifications
WHERE (id) IN (SELECT id FROM notifications WHERE created_at < :before AND notifications.store_id = :store_id ORDER BY
    created_at LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AND notifications.store_id = :store_id;
-- storage.scheduling.deliveries: next_push_at
SELECT MIN(at)
FROM (SELECT MIN(due_at) AS at FROM reminders WHERE (delivered_at IS NULL AND delivery <> 'pull' AND due_at > :now) AND
    reminders.store_id = :store_id UNION ALL SELECT :now + MIN(CASE WHEN CASE WHEN (COALESCE(claim_until, 0) <= :clock
    OR claim_until > :clock + 3700000000) THEN 0 ELSE claim_until - :clock END IS NULL OR CASE WHEN
    ((COALESCE(not_before, 0) <= :clock OR not_before > :clock + 3700000000) OR paused_at > :clock + 60000000) THEN 0
    ELSE not_before - :clock END IS NULL THEN NULL ELSE GREATEST(0, CASE WHEN (COALESCE(claim_until, 0) <= :clock OR
    claim_until > :clock + 3700000000) THEN 0 ELSE claim_until - :clock END, CASE WHEN ((COALESCE(not_before, 0) <=
    :clock OR not_before > :clock + 3700000000) OR paused_at > :clock + 60000000) THEN 0 ELSE not_before - :clock END)
    END) FROM reminders WHERE (delivered_at IS NULL AND delivery <> 'pull' AND due_at <= :now) AND reminders.store_id =
    :store_id);
-- storage.scheduling.deliveries: next_push_at
SELECT 1
FROM notifications
WHERE (delivered_at IS NULL AND acknowledged_at IS NULL AND (COALESCE(claim_until, 0) <= :clock OR claim_until > :clock
    + 3700000000) AND ((COALESCE(not_before, 0) <= :clock OR not_before > :clock + 3700000000) OR paused_at > :clock +
    60000000)) AND notifications.store_id = :store_id LIMIT 1;
-- storage.scheduling.deliveries: next_push_at
SELECT MIN(GREATEST(COALESCE(claim_until, 0), COALESCE(not_before, 0)))
FROM notifications
WHERE (delivered_at IS NULL AND acknowledged_at IS NULL) AND notifications.store_id = :store_id;
-- storage.scheduling.runs: history
SELECT r.id AS id, r.due_at AS due_at, r.first_due_at AS first_due_at, r.coalesced AS coalesced, r.trigger_kind AS
    trigger, r.attempt AS attempt, r.trace_id AS trace, r.agent_id AS agent, r.schedule_id AS schedule, r.status AS
    status, r.created_at AS created_at, r.started_at AS started_at, r.finished_at AS finished_at, r.summary AS summary,
    r.output AS output, r.error AS error, r.turn_count AS turn_count, r.cost AS cost, r.notified AS notified, r.tries AS
    tries, r.crashes AS crashes, r.deadline AS deadline
FROM schedule_runs AS r
WHERE (r.agent_id = :agent AND EXISTS(SELECT 1 FROM schedules AS s WHERE (s.agent_id = r.agent_id AND s.id =
    r.schedule_id AND (s.user_id = :viewer OR (s.user_id IS NULL AND NOT EXISTS(SELECT 1 FROM sessions AS vs WHERE
    (vs.agent_id = s.agent_id AND vs.id = s.session_id AND NOT ((vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id =
    :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = vs.row_id
    AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) IS TRUE) AND vs.store_id = :store_id)))) AND s.store_id =
    :store_id) AND r.schedule_id = :schedule) AND r.store_id = :store_id
ORDER BY r.due_at DESC, r.created_at DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
-- storage.scheduling.runs: find
SELECT r.id AS id, r.due_at AS due_at, r.first_due_at AS first_due_at, r.coalesced AS coalesced, r.trigger_kind AS
    trigger, r.attempt AS attempt, r.trace_id AS trace, r.agent_id AS agent, r.schedule_id AS schedule, r.status AS
    status, r.created_at AS created_at, r.started_at AS started_at, r.finished_at AS finished_at, r.summary AS summary,
    r.output AS output, r.error AS error, r.turn_count AS turn_count, r.cost AS cost, r.notified AS notified, r.tries AS
    tries, r.crashes AS crashes, r.deadline AS deadline
FROM schedule_runs AS r
WHERE (r.agent_id = :agent AND EXISTS(SELECT 1 FROM schedules AS s WHERE (s.agent_id = r.agent_id AND s.id =
    r.schedule_id AND (s.user_id = :viewer OR (s.user_id IS NULL AND NOT EXISTS(SELECT 1 FROM sessions AS vs WHERE
    (vs.agent_id = s.agent_id AND vs.id = s.session_id AND NOT ((vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id =
    :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = vs.row_id
    AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) IS TRUE) AND vs.store_id = :store_id)))) AND s.store_id =
    :store_id) AND r.id = :id) AND r.store_id = :store_id;
-- storage.scheduling.runs: find_open
SELECT r.id AS id, r.due_at AS due_at, r.first_due_at AS first_due_at, r.coalesced AS coalesced, r.trigger_kind AS
    trigger, r.attempt AS attempt, r.trace_id AS trace, r.agent_id AS agent, r.schedule_id AS schedule, r.status AS
    status, r.created_at AS created_at, r.started_at AS started_at, r.finished_at AS finished_at, r.summary AS summary,
    r.output AS output, r.error AS error, r.turn_count AS turn_count, r.cost AS cost, r.notified AS notified, r.tries AS
    tries, r.crashes AS crashes, r.deadline AS deadline
FROM schedule_runs AS r
WHERE (r.agent_id = :agent AND EXISTS(SELECT 1 FROM schedules AS s WHERE (s.agent_id = r.agent_id AND s.id =
    r.schedule_id AND (s.user_id = :viewer OR (s.user_id IS NULL AND NOT EXISTS(SELECT 1 FROM sessions AS vs WHERE
    (vs.agent_id = s.agent_id AND vs.id = s.session_id AND NOT ((vs.user_id IS NULL OR vs.user_id = :viewer OR vs.id =
    :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = vs.row_id
    AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) IS TRUE) AND vs.store_id = :store_id)))) AND s.store_id =
    :store_id) AND r.schedule_id = :schedule AND r.status IN ('pending', 'running')) AND r.store_id = :store_id;
-- storage.scheduling.runs: end
UPDATE schedule_runs
SET status = :status, summary = :summary, output = :output, error = :error, turn_count = :turn_count, cost = :cost,
    finished_at = :now, token = NULL, lease_until = NULL, not_before = NULL, deadline = NULL
WHERE (agent_id = :agent AND id = :id AND status IN ('pending', 'running') AND (:token IS NULL OR token = :token)) AND
    schedule_runs.store_id = :store_id;
-- storage.scheduling.runs: mark_notified
UPDATE schedule_runs
SET notified = 1
WHERE (agent_id = :agent AND id = ANY(CAST(:ids AS TEXT[]))) AND schedule_runs.store_id = :store_id;
-- storage.scheduling.runs: is_delegated
SELECT 1
FROM schedule_runs
WHERE (agent_id = :agent AND id = :id AND status = 'running' AND lease_until IS NULL) AND schedule_runs.store_id =
    :store_id;
-- storage.scheduling.runs: prune
DELETE FROM schedule_runs
WHERE (agent_id = :agent AND schedule_id = :schedule AND id <> :last AND NOT status IN ('pending', 'running') AND NOT id
    IN (SELECT id FROM schedule_runs WHERE (agent_id = :agent AND schedule_id = :schedule AND id <> :last AND NOT status
    IN ('pending', 'running')) AND schedule_runs.store_id = :store_id ORDER BY due_at DESC, created_at DESC LIMIT
    NULLIF(CAST(:others AS BIGINT), -1))) AND schedule_runs.store_id = :store_id;
-- storage.scheduling.runs: find_agent
SELECT agent_id
FROM schedule_runs
WHERE id = :id AND schedule_runs.store_id = :store_id;
-- storage.scheduling.runs: start
UPDATE schedule_runs
SET status = 'running', started_at = COALESCE(started_at, :now), token = :token, lease_until = :until, deadline =
    COALESCE(deadline, :deadline), not_before = NULL
WHERE (id = :id AND status = 'pending' AND COALESCE(not_before, 0) <= :clock AND (deadline IS NULL OR deadline >
    :clock)) AND schedule_runs.store_id = :store_id;
-- storage.scheduling.runs: to_send
SELECT id AS id, agent_id AS agent, schedule_id AS schedule, status AS status, trace_id AS trace, crashes AS crashes,
    deadline AS deadline, lease_until AS lease_until, token AS token
FROM schedule_runs
WHERE (status IN ('pending', 'running') AND status = 'pending' AND (CASE WHEN not_before IS NULL THEN CAST(CAST((sent_at
    <= :lost_before) AS INT) AS BIGINT) ELSE CAST(CAST((not_before <= :clock AND (sent_at < not_before OR sent_at <=
    :lost_before)) AS INT) AS BIGINT) END) <> 0) AND schedule_runs.store_id = :store_id
ORDER BY due_at LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.scheduling.runs: mark_sent
UPDATE schedule_runs
SET sent_at = :at
WHERE (id = :id AND status = 'pending') AND schedule_runs.store_id = :store_id;
-- storage.scheduling.runs: abandoned
SELECT id AS id, agent_id AS agent, schedule_id AS schedule, status AS status, trace_id AS trace, crashes AS crashes,
    deadline AS deadline, lease_until AS lease_until, token AS token
FROM schedule_runs
WHERE (status IN ('pending', 'running') AND (deadline <= :clock AND COALESCE(lease_until, 0) <= :clock OR lease_until <=
    :clock)) AND schedule_runs.store_id = :store_id
ORDER BY due_at LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.scheduling.runs: next_at
SELECT MIN(CASE WHEN sent_at > :clock + :tolerance THEN :clock WHEN status = 'running' THEN COALESCE(lease_until,
    deadline) WHEN sent_at < not_before THEN CASE WHEN not_before IS NULL THEN NULL ELSE LEAST(not_before,
    COALESCE(deadline, not_before)) END ELSE LEAST(sent_at + :lost_after, COALESCE(deadline, sent_at + :lost_after))
    END)
FROM schedule_runs
WHERE status IN ('pending', 'running') AND schedule_runs.store_id = :store_id;
-- storage.scheduling.runs: has_future
SELECT 1
FROM schedule_runs
WHERE (status IN ('pending', 'running') AND sent_at > :limit) AND schedule_runs.store_id = :store_id LIMIT 1;
-- storage.scheduling.runs: bring_back
UPDATE schedule_runs
SET lease_until = lease_until - (sent_at - :clock), deadline = deadline - (sent_at - :clock), not_before = not_before -
    (sent_at - :clock), sent_at = :clock
WHERE (status IN ('pending', 'running') AND sent_at > :clock + :tolerance) AND schedule_runs.store_id = :store_id;
-- storage.scheduling.runs: _change
UPDATE schedule_runs
SET not_before = :not_before, sent_at = LEAST(sent_at, :not_before - 1)
WHERE (id = :id AND status = 'pending' AND COALESCE(not_before, 0) <= :clock) AND schedule_runs.store_id = :store_id;
UPDATE schedule_runs
SET lease_until = NULL, tries = tries + 1
WHERE (id = :id AND status = 'running' AND token = :token) AND schedule_runs.store_id = :store_id;
UPDATE schedule_runs
SET status = 'pending', token = NULL, lease_until = NULL, tries = tries + :tries, not_before = :not_before, sent_at =
    LEAST(sent_at, :not_before - 1), error = :error
WHERE (id = :id AND status = 'running' AND token = :token) AND schedule_runs.store_id = :store_id;
UPDATE schedule_runs
SET status = 'pending', token = NULL, lease_until = NULL, crashes = crashes + 1, sent_at = :sent_at
WHERE (id = :id AND status = 'running' AND lease_until <= :clock) AND schedule_runs.store_id = :store_id;
-- storage.scheduling.schedules: find
SELECT s.id AS id, s.user_id AS user, s.name AS name, s.goal AS goal, s.cadence AS cadence, s.executor AS executor,
    s.notification_policy AS policy, s.timeout_seconds AS timeout_seconds, s.recall_limit AS recall_limit, s.channel_id
    AS channel, s.session_id AS session, s.next_run_at AS next_run_at, s.agent_id AS agent, s.status AS status,
    s.created_at AS created_at, s.updated_at AS updated_at, s.last_run_at AS last_run_at, s.last_run_status AS
    last_run_status, s.consecutive_failures AS consecutive_failures, s.retries AS retries, s.revision AS revision,
    s.goal_vector AS goal_vector, s.goal_model AS goal_model
FROM schedules AS s
WHERE (s.agent_id = :agent AND (s.user_id = :viewer OR (s.user_id IS NULL AND NOT EXISTS(SELECT 1 FROM sessions AS vs
    WHERE (vs.agent_id = s.agent_id AND vs.id = s.session_id AND NOT ((vs.user_id IS NULL OR vs.user_id = :viewer OR
    vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) IS TRUE) AND vs.store_id = :store_id))) AND s.id
    = :id) AND s.store_id = :store_id;
SELECT s.id AS id, s.user_id AS user, s.name AS name, s.goal AS goal, s.cadence AS cadence, s.executor AS executor,
    s.notification_policy AS policy, s.timeout_seconds AS timeout_seconds, s.recall_limit AS recall_limit, s.channel_id
    AS channel, s.session_id AS session, s.next_run_at AS next_run_at, s.agent_id AS agent, s.status AS status,
    s.created_at AS created_at, s.updated_at AS updated_at, s.last_run_at AS last_run_at, s.last_run_status AS
    last_run_status, s.consecutive_failures AS consecutive_failures, s.retries AS retries, s.revision AS revision,
    s.goal_vector AS goal_vector, s.goal_model AS goal_model
FROM reminders AS s
WHERE (s.agent_id = :agent AND (s.user_id = :viewer OR (s.user_id IS NULL AND NOT EXISTS(SELECT 1 FROM sessions AS vs
    WHERE (vs.agent_id = s.agent_id AND vs.id = s.session_id AND NOT ((vs.user_id IS NULL OR vs.user_id = :viewer OR
    vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) IS TRUE) AND vs.store_id = :store_id))) AND s.id
    = :id) AND s.store_id = :store_id;
SELECT s.id AS id, s.user_id AS user, s.session_id AS session, s.channel_id AS channel, s.recipient AS recipient,
    s.message AS message, s.delivery AS delivery, s.due_at AS due_at, s.agent_id AS agent, s.created_at AS created_at,
    s.claimed_at AS claimed_at, s.claim_until AS claim_until, s.token AS token, s.attempts AS attempts, s.error AS
    error, s.delivered_at AS delivered_at
FROM schedules AS s
WHERE (s.agent_id = :agent AND (s.user_id = :viewer OR (s.user_id IS NULL AND NOT EXISTS(SELECT 1 FROM sessions AS vs
    WHERE (vs.agent_id = s.agent_id AND vs.id = s.session_id AND NOT ((vs.user_id IS NULL OR vs.user_id = :viewer OR
    vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) IS TRUE) AND vs.store_id = :store_id))) AND s.id
    = :id) AND s.store_id = :store_id;
SELECT s.id AS id, s.user_id AS user, s.session_id AS session, s.channel_id AS channel, s.recipient AS recipient,
    s.message AS message, s.delivery AS delivery, s.due_at AS due_at, s.agent_id AS agent, s.created_at AS created_at,
    s.claimed_at AS claimed_at, s.claim_until AS claim_until, s.token AS token, s.attempts AS attempts, s.error AS
    error, s.delivered_at AS delivered_at
FROM reminders AS s
WHERE (s.agent_id = :agent AND (s.user_id = :viewer OR (s.user_id IS NULL AND NOT EXISTS(SELECT 1 FROM sessions AS vs
    WHERE (vs.agent_id = s.agent_id AND vs.id = s.session_id AND NOT ((vs.user_id IS NULL OR vs.user_id = :viewer OR
    vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) IS TRUE) AND vs.store_id = :store_id))) AND s.id
    = :id) AND s.store_id = :store_id;
-- storage.scheduling.schedules: is_taken
SELECT 1
FROM schedules
WHERE (agent_id = :agent AND id = :id) AND schedules.store_id = :store_id;
SELECT 1
FROM reminders
WHERE (agent_id = :agent AND id = :id) AND reminders.store_id = :store_id;
-- storage.scheduling.schedules: own
SELECT 1
FROM schedules AS s
WHERE (s.agent_id = :agent AND s.id = :id AND (s.user_id = :viewer OR (s.user_id IS NULL AND EXISTS(SELECT 1 FROM
    sessions AS vs WHERE (vs.agent_id = s.agent_id AND vs.id = s.session_id AND NOT vs.user_id IS NULL AND (vs.user_id
    IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM
    session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND
    vs.store_id = :store_id)))) AND s.store_id = :store_id;
SELECT 1
FROM reminders AS s
WHERE (s.agent_id = :agent AND s.id = :id AND (s.user_id = :viewer OR (s.user_id IS NULL AND EXISTS(SELECT 1 FROM
    sessions AS vs WHERE (vs.agent_id = s.agent_id AND vs.id = s.session_id AND NOT vs.user_id IS NULL AND (vs.user_id
    IS NULL OR vs.user_id = :viewer OR vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM
    session_users AS vu WHERE (vu.session_row = vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND
    vs.store_id = :store_id)))) AND s.store_id = :store_id;
-- storage.scheduling.schedules: delete
DELETE FROM schedules
WHERE (agent_id = :agent AND id = :id) AND schedules.store_id = :store_id;
DELETE FROM reminders
WHERE (agent_id = :agent AND id = :id) AND reminders.store_id = :store_id;
-- storage.scheduling.schedules: add
INSERT INTO schedules (id, user_id, name, goal, cadence, executor, notification_policy, timeout_seconds, recall_limit,
    channel_id, session_id, next_run_at, agent_id, status, created_at, updated_at)
VALUES (:id, :user, :name, :goal, :cadence, :executor, :policy, :timeout_seconds, :recall_limit, :channel, :session,
    :next_run_at, :agent, 'active', :now, :now);
-- storage.scheduling.schedules: search
SELECT s.id AS id, s.user_id AS user, s.name AS name, s.goal AS goal, s.cadence AS cadence, s.executor AS executor,
    s.notification_policy AS policy, s.timeout_seconds AS timeout_seconds, s.recall_limit AS recall_limit, s.channel_id
    AS channel, s.session_id AS session, s.next_run_at AS next_run_at, s.agent_id AS agent, s.status AS status,
    s.created_at AS created_at, s.updated_at AS updated_at, s.last_run_at AS last_run_at, s.last_run_status AS
    last_run_status, s.consecutive_failures AS consecutive_failures, s.retries AS retries, s.revision AS revision,
    s.goal_vector AS goal_vector, s.goal_model AS goal_model
FROM schedules AS s
WHERE (s.agent_id = :agent AND (s.user_id = :viewer OR (s.user_id IS NULL AND NOT EXISTS(SELECT 1 FROM sessions AS vs
    WHERE (vs.agent_id = s.agent_id AND vs.id = s.session_id AND NOT ((vs.user_id IS NULL OR vs.user_id = :viewer OR
    vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) IS TRUE) AND vs.store_id = :store_id)))) AND
    s.store_id = :store_id
ORDER BY s.created_at DESC, s.id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT s.id AS id, s.user_id AS user, s.name AS name, s.goal AS goal, s.cadence AS cadence, s.executor AS executor,
    s.notification_policy AS policy, s.timeout_seconds AS timeout_seconds, s.recall_limit AS recall_limit, s.channel_id
    AS channel, s.session_id AS session, s.next_run_at AS next_run_at, s.agent_id AS agent, s.status AS status,
    s.created_at AS created_at, s.updated_at AS updated_at, s.last_run_at AS last_run_at, s.last_run_status AS
    last_run_status, s.consecutive_failures AS consecutive_failures, s.retries AS retries, s.revision AS revision,
    s.goal_vector AS goal_vector, s.goal_model AS goal_model
FROM schedules AS s
WHERE (s.agent_id = :agent AND (s.user_id = :viewer OR (s.user_id IS NULL AND NOT EXISTS(SELECT 1 FROM sessions AS vs
    WHERE (vs.agent_id = s.agent_id AND vs.id = s.session_id AND NOT ((vs.user_id IS NULL OR vs.user_id = :viewer OR
    vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) IS TRUE) AND vs.store_id = :store_id))) AND
    s.name = :name AND JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(s.executor)) <> 0 THEN s.executor ELSE '[]'
    END) AS JSON), 'type') = CAST(:executor AS TEXT) AND JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(s.cadence))
    <> 0 THEN s.cadence ELSE '[]' END) AS JSON), 'type') = CAST(:cadence AS TEXT) AND s.channel_id = :channel AND
    s.session_id = :session AND s.next_run_at < :due_before AND s.next_run_at >= :due_after AND POSITION(LOWER(:text) IN
    LOWER(COALESCE(s.name, '') || chr(10) || s.goal)) > 0 AND s.status = ANY(CAST(:statuses AS TEXT[]))) AND s.store_id
    = :store_id
ORDER BY s.created_at DESC, s.id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
-- storage.scheduling.schedules: count
SELECT COUNT(*)
FROM schedules AS s
WHERE (s.agent_id = :agent AND (s.user_id = :viewer OR (s.user_id IS NULL AND NOT EXISTS(SELECT 1 FROM sessions AS vs
    WHERE (vs.agent_id = s.agent_id AND vs.id = s.session_id AND NOT ((vs.user_id IS NULL OR vs.user_id = :viewer OR
    vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) IS TRUE) AND vs.store_id = :store_id)))) AND
    s.store_id = :store_id;
SELECT COUNT(*)
FROM schedules AS s
WHERE (s.agent_id = :agent AND (s.user_id = :viewer OR (s.user_id IS NULL AND NOT EXISTS(SELECT 1 FROM sessions AS vs
    WHERE (vs.agent_id = s.agent_id AND vs.id = s.session_id AND NOT ((vs.user_id IS NULL OR vs.user_id = :viewer OR
    vs.id = :viewer_group OR ((vs.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    vs.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) IS TRUE) AND vs.store_id = :store_id))) AND
    s.name = :name AND JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(s.executor)) <> 0 THEN s.executor ELSE '[]'
    END) AS JSON), 'type') = CAST(:executor AS TEXT) AND JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(s.cadence))
    <> 0 THEN s.cadence ELSE '[]' END) AS JSON), 'type') = CAST(:cadence AS TEXT) AND s.channel_id = :channel AND
    s.session_id = :session AND s.next_run_at < :due_before AND s.next_run_at >= :due_after AND POSITION(LOWER(:text) IN
    LOWER(COALESCE(s.name, '') || chr(10) || s.goal)) > 0 AND s.status = ANY(CAST(:statuses AS TEXT[]))) AND s.store_id
    = :store_id;
-- storage.scheduling.schedules: count_unfinished
SELECT COUNT(*)
FROM schedules
WHERE (agent_id = :agent AND user_id IS NOT DISTINCT FROM :user AND status IN ('active', 'paused', 'disabled')) AND
    schedules.store_id = :store_id;
-- storage.scheduling.schedules: update
UPDATE schedules
SET x = :x, revision = revision + 1
WHERE (agent_id = :agent AND id = :id) AND schedules.store_id = :store_id;
-- storage.scheduling.schedules: due
SELECT s.id AS id, s.user_id AS user, s.name AS name, s.goal AS goal, s.cadence AS cadence, s.executor AS executor,
    s.notification_policy AS policy, s.timeout_seconds AS timeout_seconds, s.recall_limit AS recall_limit, s.channel_id
    AS channel, s.session_id AS session, s.next_run_at AS next_run_at, s.agent_id AS agent, s.status AS status,
    s.created_at AS created_at, s.updated_at AS updated_at, s.last_run_at AS last_run_at, s.last_run_status AS
    last_run_status, s.consecutive_failures AS consecutive_failures, s.retries AS retries, s.revision AS revision,
    s.goal_vector AS goal_vector, s.goal_model AS goal_model
FROM schedules AS s
WHERE (s.status = 'active' AND NOT s.next_run_at IS NULL AND NOT EXISTS(SELECT 1 FROM schedule_runs AS r WHERE
    (r.agent_id = s.agent_id AND r.schedule_id = s.id AND r.status IN ('pending', 'running')) AND r.store_id =
    :store_id) AND s.next_run_at <= :now) AND s.store_id = :store_id
ORDER BY s.next_run_at NULLS FIRST, s.created_at, s.id LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.scheduling.schedules: disable_damaged
UPDATE schedules
SET status = 'disabled', next_run_at = NULL, revision = revision + 1
WHERE ((agent_id, id) IN (SELECT s.agent_id, s.id FROM schedules AS s WHERE (s.status = 'active' AND NOT s.next_run_at
    IS NULL AND NOT EXISTS(SELECT 1 FROM schedule_runs AS r WHERE (r.agent_id = s.agent_id AND r.schedule_id = s.id AND
    r.status IN ('pending', 'running')) AND r.store_id = :store_id) AND s.next_run_at <= :now) AND s.store_id =
    :store_id ORDER BY s.next_run_at NULLS FIRST, s.created_at, s.id LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AND NOT
    id = ANY(CAST(:read AS TEXT[]))) AND schedules.store_id = :store_id;
-- storage.scheduling.schedules: count_due
SELECT COUNT(*)
FROM (SELECT 1 FROM schedules AS s WHERE (s.status = 'active' AND NOT s.next_run_at IS NULL AND NOT EXISTS(SELECT 1 FROM
    schedule_runs AS r WHERE (r.agent_id = s.agent_id AND r.schedule_id = s.id AND r.status IN ('pending', 'running'))
    AND r.store_id = :store_id) AND s.next_run_at <= :now) AND s.store_id = :store_id ORDER BY s.next_run_at NULLS
    FIRST, s.created_at, s.id LIMIT NULLIF(CAST(:limit AS BIGINT), -1));
-- storage.scheduling.schedules: next_due_at
SELECT s.next_run_at
FROM schedules AS s
WHERE (s.status = 'active' AND NOT s.next_run_at IS NULL AND NOT EXISTS(SELECT 1 FROM schedule_runs AS r WHERE
    (r.agent_id = s.agent_id AND r.schedule_id = s.id AND r.status IN ('pending', 'running')) AND r.store_id =
    :store_id)) AND s.store_id = :store_id
ORDER BY s.next_run_at NULLS FIRST LIMIT 1;
-- storage.scheduling.schedules: has_future
SELECT CAST(CAST((EXISTS(SELECT 1 FROM schedule_runs WHERE created_at > :limit AND schedule_runs.store_id = :store_id)
    OR EXISTS(SELECT 1 FROM schedules WHERE updated_at > :limit AND schedules.store_id = :store_id)) AS INT) AS BIGINT);
-- storage.scheduling.schedules: of_future
SELECT s.id AS id, s.user_id AS user, s.name AS name, s.goal AS goal, s.cadence AS cadence, s.executor AS executor,
    s.notification_policy AS policy, s.timeout_seconds AS timeout_seconds, s.recall_limit AS recall_limit, s.channel_id
    AS channel, s.session_id AS session, s.next_run_at AS next_run_at, s.agent_id AS agent, s.status AS status,
    s.created_at AS created_at, s.updated_at AS updated_at, s.last_run_at AS last_run_at, s.last_run_status AS
    last_run_status, s.consecutive_failures AS consecutive_failures, s.retries AS retries, s.revision AS revision,
    s.goal_vector AS goal_vector, s.goal_model AS goal_model
FROM schedules AS s
WHERE (s.updated_at > :future OR EXISTS(SELECT 1 FROM schedule_runs AS r WHERE (r.agent_id = s.agent_id AND
    r.schedule_id = s.id AND r.created_at > :future) AND r.store_id = :store_id)) AND s.store_id = :store_id LIMIT
    NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.scheduling.schedules: bring_back
UPDATE schedules
SET next_run_at = :next, updated_at = LEAST(updated_at, :now), last_run_at = CASE WHEN last_run_at IS NULL THEN NULL
    ELSE LEAST(last_run_at, :now) END, revision = revision + 1
WHERE (agent_id = :agent AND id = :id) AND schedules.store_id = :store_id;
-- storage.scheduling.schedules: bring_back
SELECT id
FROM schedule_runs
WHERE (agent_id = :agent AND schedule_id = :id AND (created_at > :now OR due_at > :now)) AND schedule_runs.store_id =
    :store_id
ORDER BY due_at DESC;
-- storage.scheduling.schedules: bring_back
UPDATE schedule_runs
SET due_at = :now - :number, first_due_at = LEAST(first_due_at, :now), created_at = LEAST(created_at, :now), started_at
    = CASE WHEN started_at IS NULL THEN NULL ELSE LEAST(started_at, :now) END, finished_at = CASE WHEN finished_at IS
    NULL THEN NULL ELSE LEAST(finished_at, :now) END
WHERE (id = :run AND NOT EXISTS(SELECT 1 FROM schedule_runs AS other WHERE (other.id <> schedule_runs.id AND
    other.agent_id = schedule_runs.agent_id AND other.schedule_id = schedule_runs.schedule_id AND other.due_at = :now -
    :number) AND other.store_id = :store_id)) AND schedule_runs.store_id = :store_id;
-- storage.scheduling.schedules: pause_webhooks
UPDATE schedule_runs AS r
SET status = 'cancelled', finished_at = :now, error = 'restored from a backup'
WHERE (r.status IN ('pending', 'running') AND EXISTS(SELECT 1 FROM schedules AS s WHERE (s.agent_id = r.agent_id AND
    s.id = r.schedule_id AND JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(s.executor)) <> 0 THEN s.executor ELSE
    '[]' END) AS JSON), 'type') = 'webhook') AND s.store_id = :store_id)) AND r.store_id = :store_id;
-- storage.scheduling.schedules: pause_webhooks
UPDATE schedules AS s
SET status = 'paused', next_run_at = NULL, updated_at = :now, revision = revision + 1
WHERE (status = 'active' AND JSON_EXTRACT_PATH_TEXT(CAST((CASE WHEN (JSON_VALID(s.executor)) <> 0 THEN s.executor ELSE
    '[]' END) AS JSON), 'type') = 'webhook') AND s.store_id = :store_id;
-- storage.scheduling.schedules: claim
UPDATE schedules AS s
SET next_run_at = :next, revision = revision + 1
WHERE (s.status = 'active' AND NOT s.next_run_at IS NULL AND NOT EXISTS(SELECT 1 FROM schedule_runs AS r WHERE
    (r.agent_id = s.agent_id AND r.schedule_id = s.id AND r.status IN ('pending', 'running')) AND r.store_id =
    :store_id) AND s.agent_id = :agent AND s.id = :id AND s.revision = :revision) AND s.store_id = :store_id;
-- storage.scheduling.schedules: add_run
INSERT INTO schedule_runs (id, due_at, first_due_at, coalesced, trigger_kind, attempt, trace_id, agent_id, schedule_id,
    status, created_at, sent_at)
VALUES (:id, :due_at, :first_due_at, :coalesced, :trigger, :attempt, :trace, :agent, :schedule, 'pending', :now,
    :sent_at) ON CONFLICT(store_id, agent_id, schedule_id, due_at) DO NOTHING;
-- storage.scheduling.schedules: waiting
SELECT agent_id AS agent, id AS schedule, goal AS text
FROM schedules
WHERE (status IN ('active', 'paused', 'disabled') AND recall_limit > 0 AND goal_model IS DISTINCT FROM :model) AND
    schedules.store_id = :store_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.scheduling.schedules: any_waiting
SELECT 1
FROM schedules
WHERE (status IN ('active', 'paused', 'disabled') AND recall_limit > 0 AND COALESCE(goal_model, '') <> (SELECT model
    FROM indexes WHERE (kind = 'vector' AND state = 'active') AND indexes.store_id = :store_id)) AND schedules.store_id
    = :store_id LIMIT 1;
-- storage.scheduling.schedules: is_waiting
SELECT 1
FROM schedules
WHERE (agent_id = :agent AND id = :id AND status IN ('active', 'paused', 'disabled') AND recall_limit > 0 AND
    COALESCE(goal_model, '') <> (SELECT model FROM indexes WHERE (kind = 'vector' AND state = 'active') AND
    indexes.store_id = :store_id)) AND schedules.store_id = :store_id;
-- storage.scheduling.schedules: embed_again
UPDATE schedules
SET goal_vector = NULL, goal_model = NULL
WHERE (agent_id = :agent AND id = :id) AND schedules.store_id = :store_id;
-- storage.scheduling.schedules: put
UPDATE schedules
SET goal_vector = :vector, goal_model = :model
WHERE (agent_id = :agent AND id = :id AND goal = :goal) AND schedules.store_id = :store_id;
-- storage.scheduling.schedules: read_scheduling
SELECT status, COUNT(*), MIN(GREATEST(created_at, COALESCE(not_before, 0)))
FROM schedule_runs
WHERE status IN ('pending', 'running') AND schedule_runs.store_id = :store_id
GROUP BY status;
-- storage.scheduling.schedules: read_scheduling
SELECT started_at, trigger_kind, due_at
FROM schedule_runs
WHERE NOT started_at IS NULL AND schedule_runs.store_id = :store_id
ORDER BY started_at DESC NULLS LAST LIMIT NULLIF(CAST(:max AS BIGINT), -1);
-- storage.scheduling.schedules: read_scheduling
SELECT status, COUNT(*)
FROM schedules
WHERE schedules.store_id = :store_id
GROUP BY status;
-- storage.scheduling.schedules: _times
SELECT s.next_run_at
FROM schedules AS s
WHERE (s.status = 'active' AND NOT s.next_run_at IS NULL AND NOT EXISTS(SELECT 1 FROM schedule_runs AS r WHERE
    (r.agent_id = s.agent_id AND r.schedule_id = s.id AND r.status IN ('pending', 'running')) AND r.store_id =
    :store_id)) AND s.store_id = :store_id
ORDER BY s.next_run_at NULLS FIRST LIMIT NULLIF(CAST(:max AS BIGINT), -1);
SELECT finished_at
FROM schedule_runs
WHERE status IN ('failed', 'timed_out') AND schedule_runs.store_id = :store_id
ORDER BY finished_at DESC NULLS LAST LIMIT NULLIF(CAST(:max AS BIGINT), -1);
SELECT due_at
FROM reminders
WHERE delivered_at IS NULL AND reminders.store_id = :store_id
ORDER BY due_at LIMIT NULLIF(CAST(:max AS BIGINT), -1);
SELECT due_at
FROM reminders
WHERE (delivered_at IS NULL AND delivery <> 'pull') AND reminders.store_id = :store_id
ORDER BY due_at LIMIT NULLIF(CAST(:max AS BIGINT), -1);
-- storage.scheduling.schedules: _count
SELECT COUNT(*)
FROM reminders
WHERE delivered_at IS NULL AND reminders.store_id = :store_id;
SELECT COUNT(*)
FROM notifications
WHERE (delivered_at IS NULL AND acknowledged_at IS NULL) AND notifications.store_id = :store_id;
SELECT COUNT(*)
FROM notifications
WHERE acknowledged_at IS NULL AND notifications.store_id = :store_id;
SELECT COUNT(*)
FROM (SELECT error FROM reminders WHERE (delivered_at IS NULL AND delivery <> 'pull') AND reminders.store_id = :store_id
    ORDER BY due_at LIMIT NULLIF(CAST(:max AS BIGINT), -1))
WHERE error <> '';
SELECT COUNT(*)
FROM (SELECT error FROM notifications WHERE (delivered_at IS NULL AND acknowledged_at IS NULL) AND
    notifications.store_id = :store_id ORDER BY created_at LIMIT NULLIF(CAST(:max AS BIGINT), -1))
WHERE error <> '';
-- storage.sessions.channels: list
WITH known(id, sessions, memories, first_at) AS (SELECT id, 0, 0, created_at FROM channels WHERE agent_id = :agent AND
    channels.store_id = :store_id UNION ALL SELECT :default, 0, 0, NULL UNION ALL SELECT COALESCE(channel_id, :default),
    COUNT(*), 0, MIN(started_at) FROM sessions WHERE agent_id = :agent AND sessions.store_id = :store_id GROUP BY 1
    UNION ALL SELECT COALESCE(channel_id, :default), 0, COUNT(*), MIN(created_at) FROM memories WHERE (agent_id = :agent
    AND superseded_by IS NULL AND (NOT channel_id IS NULL OR tier = 'channel')) AND memories.store_id = :store_id GROUP
    BY 1) SELECT k.id AS id, COALESCE(c.description, '') AS description, CAST(CAST((k.id = :default) AS INT) AS BIGINT)
    AS is_default, MIN(k.first_at) AS created_at, SUM(k.sessions) AS sessions, SUM(k.memories) AS memories
FROM known AS k
LEFT JOIN channels AS c ON c.store_id = :store_id AND (c.agent_id = :agent AND c.id = k.id)
WHERE :id IS NULL OR k.id = :id
GROUP BY k.id, c.description
ORDER BY CAST(CAST((k.id <> :default) AS INT) AS BIGINT), k.id NULLS FIRST;
-- storage.sessions.channels: find
WITH known(id, sessions, memories, first_at) AS (SELECT id, 0, 0, created_at FROM channels WHERE agent_id = :agent AND
    channels.store_id = :store_id UNION ALL SELECT :default, 0, 0, NULL UNION ALL SELECT COALESCE(channel_id, :default),
    COUNT(*), 0, MIN(started_at) FROM sessions WHERE agent_id = :agent AND sessions.store_id = :store_id GROUP BY 1
    UNION ALL SELECT COALESCE(channel_id, :default), 0, COUNT(*), MIN(created_at) FROM memories WHERE (agent_id = :agent
    AND superseded_by IS NULL AND (NOT channel_id IS NULL OR tier = 'channel')) AND memories.store_id = :store_id GROUP
    BY 1) SELECT k.id AS id, COALESCE(c.description, '') AS description, CAST(CAST((k.id = :default) AS INT) AS BIGINT)
    AS is_default, MIN(k.first_at) AS created_at, SUM(k.sessions) AS sessions, SUM(k.memories) AS memories
FROM known AS k
LEFT JOIN channels AS c ON c.store_id = :store_id AND (c.agent_id = :agent AND c.id = k.id)
WHERE :id IS NULL OR k.id = :id
GROUP BY k.id, c.description
ORDER BY CAST(CAST((k.id <> :default) AS INT) AS BIGINT), k.id NULLS FIRST;
-- storage.sessions.channels: check_exists
SELECT CAST(CAST((EXISTS(SELECT 1 FROM channels WHERE (agent_id = :agent AND id = :id) AND channels.store_id =
    :store_id) OR EXISTS(SELECT 1 FROM sessions WHERE (agent_id = :agent AND channel_id = :id) AND sessions.store_id =
    :store_id) OR EXISTS(SELECT 1 FROM memories WHERE (agent_id = :agent AND channel_id = :id) AND memories.store_id =
    :store_id)) AS INT) AS BIGINT);
-- storage.sessions.channels: has_row
SELECT 1
FROM channels
WHERE (agent_id = :agent AND id = :id) AND channels.store_id = :store_id;
-- storage.sessions.channels: ensure
INSERT INTO channels (agent_id, id, description, is_default, created_at)
VALUES (:agent, :id, COALESCE(:description, ''), :is_default, :now) ON CONFLICT(store_id, agent_id, id) DO UPDATE
SET description = COALESCE(:description, channels.description);
-- storage.sessions.channels: delete
DELETE FROM channels
WHERE (agent_id = :agent AND id = :id AND NOT (is_default) <> 0) AND channels.store_id = :store_id;
-- storage.sessions.channels: move_session
UPDATE sessions
SET channel_id = :channel
WHERE (row_id = :row AND agent_id = :agent) AND sessions.store_id = :store_id;
-- storage.sessions.channels: move_session
UPDATE memories
SET channel_id = :channel
WHERE (session_row = :row AND agent_id = :agent AND tier = 'conversation' AND NOT channel_id IS NULL) AND
    memories.store_id = :store_id;
-- storage.sessions.scratchpads: items
SELECT items, updated_at
FROM scratchpad_lists
WHERE (session_row = :row AND agent_id = :agent) AND scratchpad_lists.store_id = :store_id;
-- storage.sessions.scratchpads: replace
INSERT INTO scratchpad_lists (session_row, agent_id, items, updated_at)
VALUES (:row, :agent, :items, :now) ON CONFLICT(store_id, session_row) DO UPDATE
SET items = excluded.items, updated_at = excluded.updated_at;
-- storage.sessions.scratchpads: clear_items
DELETE FROM scratchpad_lists
WHERE (session_row = :row AND agent_id = :agent) AND scratchpad_lists.store_id = :store_id;
-- storage.sessions.scratchpads: keys
SELECT key AS key, value AS value, created_at AS created_at, updated_at AS updated_at
FROM scratchpads
WHERE (session_row = :row AND agent_id = :agent) AND scratchpads.store_id = :store_id
ORDER BY key;
-- storage.sessions.scratchpads: find
SELECT key AS key, value AS value, created_at AS created_at, updated_at AS updated_at
FROM scratchpads
WHERE (session_row = :row AND agent_id = :agent AND key = :key) AND scratchpads.store_id = :store_id;
-- storage.sessions.scratchpads: count
SELECT COUNT(*)
FROM scratchpads
WHERE (session_row = :row AND agent_id = :agent) AND scratchpads.store_id = :store_id;
-- storage.sessions.scratchpads: write
INSERT INTO scratchpads (session_row, agent_id, key, value, created_at, updated_at)
VALUES (:row, :agent, :key, :value, :now, :now) ON CONFLICT(store_id, session_row, key) DO UPDATE
SET value = excluded.value, updated_at = excluded.updated_at
RETURNING key AS key, value AS value, created_at AS created_at, updated_at AS updated_at;
-- storage.sessions.scratchpads: delete
DELETE FROM scratchpads
WHERE (session_row = :row AND agent_id = :agent AND key = COALESCE(:key, key)) AND scratchpads.store_id = :store_id;
-- storage.sessions.sessions: is_small
SELECT 1
FROM chunks
WHERE session_row = :row AND chunks.store_id = :store_id LIMIT 1 OFFSET 150;
SELECT 1
FROM messages
WHERE session_row = :row AND messages.store_id = :store_id LIMIT 1 OFFSET 150;
SELECT 1
FROM files
WHERE session_row = :row AND files.store_id = :store_id LIMIT 1 OFFSET 150;
-- storage.sessions.sessions: set_aside
DELETE FROM schedules
WHERE (agent_id = :agent AND session_id = :session AND user_id IS NULL) AND schedules.store_id = :store_id;
DELETE FROM notifications
WHERE (agent_id = :agent AND session_id = :session AND user_id IS NULL) AND notifications.store_id = :store_id;
DELETE FROM reminders
WHERE (agent_id = :agent AND session_id = :session AND user_id IS NULL) AND reminders.store_id = :store_id;
-- storage.sessions.sessions: set_aside
UPDATE sessions
SET agent_id = '', id = ref_code || '-' || row_id, provider = NULL, chat_id = NULL, status = 'archived', last_sequence =
    0, summary_text = NULL
WHERE row_id = :row AND sessions.store_id = :store_id;
-- storage.sessions.sessions: not_forgotten
SELECT ref_code
FROM sessions
WHERE (agent_id <> '' AND ref_code = ANY(CAST(:codes AS TEXT[]))) AND sessions.store_id = :store_id;
-- storage.sessions.sessions: remove_step
SELECT id
FROM chunks
WHERE session_row = :row AND chunks.store_id = :store_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.sessions.sessions: remove_step
DELETE FROM chunks
WHERE id = ANY(CAST(:chunks AS BIGINT[])) AND chunks.store_id = :store_id;
-- storage.sessions.sessions: remove_step
DELETE FROM messages
WHERE row_id IN (SELECT row_id FROM messages WHERE session_row = :row AND messages.store_id = :store_id ORDER BY row_id
    LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AND messages.store_id = :store_id;
DELETE FROM files
WHERE row_id IN (SELECT row_id FROM files WHERE session_row = :row AND files.store_id = :store_id ORDER BY row_id LIMIT
    NULLIF(CAST(:limit AS BIGINT), -1)) AND files.store_id = :store_id;
-- storage.sessions.sessions: remove_step
DELETE FROM sessions
WHERE row_id = :row AND sessions.store_id = :store_id;
-- storage.sessions.sessions: _next
SELECT row_id
FROM sessions
WHERE agent_id = '' AND sessions.store_id = :store_id
ORDER BY id LIMIT 1;
-- storage.sessions.sessions: find
SELECT row_id AS row_id, id AS id, agent_id AS agent, ref_code AS ref_code, user_id AS user, provider AS provider,
    chat_id AS chat_id, channel_id AS channel, status AS status, started_at AS started_at, ended_at AS ended_at,
    updated_at AS updated_at, last_sequence AS last_sequence, metadata AS metadata, (SELECT COUNT(*) FROM messages WHERE
    session_row = sessions.row_id AND messages.store_id = :store_id) AS messages, is_group AS is_group
FROM sessions
WHERE (agent_id = :agent AND id = :id AND (sessions.user_id IS NULL OR sessions.user_id = :viewer OR sessions.id =
    :viewer_group OR ((sessions.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    sessions.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND sessions.store_id = :store_id;
-- storage.sessions.sessions: is_hidden
SELECT 1
FROM sessions
WHERE (agent_id = :agent AND id = :id AND NOT ((sessions.user_id IS NULL OR sessions.user_id = :viewer OR sessions.id =
    :viewer_group OR ((sessions.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    sessions.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) IS TRUE) AND sessions.store_id =
    :store_id;
-- storage.sessions.sessions: has_users
SELECT 1
FROM sessions
WHERE (agent_id = :agent AND id = :id AND NOT user_id IS NULL) AND sessions.store_id = :store_id;
-- storage.sessions.sessions: owner
SELECT user_id
FROM sessions
WHERE (agent_id = :agent AND id = :id AND NOT (is_group) <> 0) AND sessions.store_id = :store_id;
-- storage.sessions.sessions: summary
SELECT summary_text
FROM sessions
WHERE (row_id = :row AND agent_id = :agent) AND sessions.store_id = :store_id;
-- storage.sessions.sessions: ensure
INSERT INTO sessions (id, agent_id, ref_code, user_id, provider, chat_id, channel_id, started_at, updated_at)
VALUES (:id, :agent, :ref_code, :creator, :provider, :chat_id, :channel, :now, :now) ON CONFLICT(store_id, agent_id, id)
    DO UPDATE
SET user_id = COALESCE(sessions.user_id, :user), provider = CASE WHEN sessions.chat_id IS NULL THEN
    COALESCE(excluded.provider, sessions.provider) ELSE sessions.provider END, chat_id = COALESCE(sessions.chat_id,
    excluded.chat_id), channel_id = COALESCE(excluded.channel_id, sessions.channel_id);
-- storage.sessions.sessions: users
SELECT user_id
FROM session_users
WHERE session_row = :row AND session_users.store_id = :store_id;
-- storage.sessions.sessions: add_users
INSERT INTO session_users (session_row, agent_id, user_id)
VALUES (:row, :agent, :user) ON CONFLICT DO NOTHING;
-- storage.sessions.sessions: add_users
UPDATE sessions
SET is_group = 1
WHERE (row_id = :row AND agent_id = :agent) AND sessions.store_id = :store_id;
-- storage.sessions.sessions: id_by_chat
SELECT id
FROM sessions
WHERE (agent_id = :agent AND provider = :provider AND chat_id = :chat_id) AND sessions.store_id = :store_id;
-- storage.sessions.sessions: id_by_ref_code
SELECT id
FROM sessions
WHERE (agent_id = :agent AND ref_code = :code AND (sessions.user_id IS NULL OR sessions.user_id = :viewer OR sessions.id
    = :viewer_group OR ((sessions.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    sessions.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND sessions.store_id = :store_id;
-- storage.sessions.sessions: set_metadata
UPDATE sessions
SET metadata = :metadata
WHERE (row_id = :row AND agent_id = :agent) AND sessions.store_id = :store_id;
-- storage.sessions.sessions: rows_in_channel
SELECT row_id
FROM sessions
WHERE (agent_id = :agent AND (channel_id = :channel)) AND sessions.store_id = :store_id;
SELECT row_id
FROM sessions
WHERE (agent_id = :agent AND (channel_id = :channel OR channel_id IS NULL)) AND sessions.store_id = :store_id;
-- storage.sessions.sessions: touch
UPDATE sessions
SET updated_at = GREATEST(updated_at, :now), last_sequence = :last_sequence, status = CASE status WHEN 'idle' THEN
    'active' ELSE status END, ended_at = CASE status WHEN 'idle' THEN NULL ELSE ended_at END
WHERE (row_id = :row AND agent_id = :agent) AND sessions.store_id = :store_id;
-- storage.sessions.sessions: list
SELECT row_id AS row_id, id AS id, agent_id AS agent, ref_code AS ref_code, user_id AS user, provider AS provider,
    chat_id AS chat_id, channel_id AS channel, status AS status, started_at AS started_at, ended_at AS ended_at,
    updated_at AS updated_at, last_sequence AS last_sequence, metadata AS metadata, (SELECT COUNT(*) FROM messages WHERE
    session_row = sessions.row_id AND messages.store_id = :store_id) AS messages, is_group AS is_group
FROM sessions
WHERE (agent_id = :agent AND status = :status AND (sessions.user_id IS NULL OR sessions.user_id = :viewer OR sessions.id
    = :viewer_group OR ((sessions.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    sessions.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND sessions.store_id = :store_id
ORDER BY updated_at DESC, row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT row_id AS row_id, id AS id, agent_id AS agent, ref_code AS ref_code, user_id AS user, provider AS provider,
    chat_id AS chat_id, channel_id AS channel, status AS status, started_at AS started_at, ended_at AS ended_at,
    updated_at AS updated_at, last_sequence AS last_sequence, metadata AS metadata, (SELECT COUNT(*) FROM messages WHERE
    session_row = sessions.row_id AND messages.store_id = :store_id) AS messages, is_group AS is_group
FROM sessions
WHERE (agent_id = :agent AND TRUE AND (sessions.user_id IS NULL OR sessions.user_id = :viewer OR sessions.id =
    :viewer_group OR ((sessions.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row =
    sessions.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND sessions.store_id = :store_id
ORDER BY updated_at DESC, row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT row_id AS row_id, id AS id, agent_id AS agent, ref_code AS ref_code, user_id AS user, provider AS provider,
    chat_id AS chat_id, channel_id AS channel, status AS status, started_at AS started_at, ended_at AS ended_at,
    updated_at AS updated_at, last_sequence AS last_sequence, metadata AS metadata, (SELECT COUNT(*) FROM messages WHERE
    session_row = sessions.row_id AND messages.store_id = :store_id) AS messages, is_group AS is_group
FROM sessions
WHERE (agent_id = :agent AND status = :status AND id = ANY(CAST(:ids AS TEXT[])) AND (sessions.user_id IS NULL OR
    sessions.user_id = :viewer OR sessions.id = :viewer_group OR ((sessions.is_group) <> 0 AND EXISTS(SELECT 1 FROM
    session_users AS vu WHERE (vu.session_row = sessions.row_id AND vu.user_id = :viewer) AND vu.store_id =
    :store_id)))) AND sessions.store_id = :store_id
ORDER BY updated_at DESC, row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT row_id AS row_id, id AS id, agent_id AS agent, ref_code AS ref_code, user_id AS user, provider AS provider,
    chat_id AS chat_id, channel_id AS channel, status AS status, started_at AS started_at, ended_at AS ended_at,
    updated_at AS updated_at, last_sequence AS last_sequence, metadata AS metadata, (SELECT COUNT(*) FROM messages WHERE
    session_row = sessions.row_id AND messages.store_id = :store_id) AS messages, is_group AS is_group
FROM sessions
WHERE (agent_id = :agent AND TRUE AND id = ANY(CAST(:ids AS TEXT[])) AND (sessions.user_id IS NULL OR sessions.user_id =
    :viewer OR sessions.id = :viewer_group OR ((sessions.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu
    WHERE (vu.session_row = sessions.row_id AND vu.user_id = :viewer) AND vu.store_id = :store_id)))) AND
    sessions.store_id = :store_id
ORDER BY updated_at DESC, row_id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
-- storage.sessions.sessions: contents
SELECT s.row_id AS session_row, (SELECT SUBSTRING(m.content FROM 1 FOR 400) FROM messages AS m WHERE (m.session_row =
    s.row_id AND m.role IN ('user', 'assistant')) AND m.store_id = :store_id ORDER BY m.created_at, m.id LIMIT 1) AS
    first_words, (SELECT MIN(m.created_at) FROM messages AS m WHERE m.session_row = s.row_id AND m.store_id = :store_id)
    AS first_said_at, (SELECT MAX(m.created_at) FROM messages AS m WHERE m.session_row = s.row_id AND m.store_id =
    :store_id) AS last_said_at
FROM sessions AS s
WHERE (s.agent_id = :agent AND s.row_id = ANY(CAST(:rows AS BIGINT[]))) AND s.store_id = :store_id;
-- storage.sessions.sessions: speakers
SELECT session_row, name
FROM messages
WHERE (session_row = ANY(CAST(:rows AS BIGINT[])) AND sequence <= :last AND NOT name IS NULL AND role <> 'tool') AND
    messages.store_id = :store_id
GROUP BY session_row, name
ORDER BY session_row, MIN(sequence);
-- storage.sessions.sessions: forget
DELETE FROM dead_letters
WHERE (agent_id = :agent AND session_id = :session) AND dead_letters.store_id = :store_id;
-- storage.sessions.sessions: forget
DELETE FROM job_progress
WHERE (job IN (:extract, :summarize) AND item IN (:ref_code, 'retry ' || :ref_code, :name)) AND job_progress.store_id =
    :store_id;
-- storage.sessions.sessions: forget
SELECT id
FROM chunks
WHERE session_row = :row AND chunks.store_id = :store_id;
-- storage.sessions.sessions: forget
DELETE FROM sessions
WHERE (row_id = :row AND agent_id = :agent) AND sessions.store_id = :store_id;
-- storage.sessions.sessions: forgotten_at
SELECT forgotten_at
FROM forgotten_sessions
WHERE (agent_id = :agent AND session_id = :session) AND forgotten_sessions.store_id = :store_id;
-- storage.sessions.sessions: _note_forgotten
DELETE FROM dead_letters
WHERE (agent_id = :agent AND session_id = :session) AND dead_letters.store_id = :store_id;
-- storage.sessions.sessions: set_status
UPDATE sessions
SET status = :status, ended_at = :at
WHERE (row_id = :row AND agent_id = :agent) AND sessions.store_id = :store_id;
-- storage.sessions.sessions: clearable
SELECT m.row_id
FROM memories AS m
WHERE (m.session_row = :row AND m.agent_id = :agent AND m.tier = 'conversation' AND m.superseded_by IS NULL AND NOT
    EXISTS(SELECT 1 FROM curation_log AS l JOIN curation_items AS i ON i.entry_id = l.id WHERE ((i.agent_id = m.agent_id
    AND i.memory_id = m.id AND l.action = :clear AND NOT l.undone_at IS NULL) AND l.store_id = :store_id) AND i.store_id
    = :store_id)) AND m.store_id = :store_id
ORDER BY m.row_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.sessions.sessions: _query
SELECT s.agent_id, s.id, s.updated_at
FROM sessions AS s
WHERE (s.status = 'active' AND s.updated_at < :before AND NOT EXISTS(SELECT 1 FROM curation_log AS l WHERE (l.agent_id =
    s.agent_id AND l.session_id = s.id AND l.action = :close AND l.undone_at > s.updated_at) AND l.store_id = :store_id)
    AND COALESCE(:agent, s.agent_id) = s.agent_id) AND s.store_id = :store_id
ORDER BY s.updated_at, s.row_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
SELECT s.agent_id, s.id, MIN(m.updated_at)
FROM memories AS m
JOIN sessions AS s ON s.row_id = m.session_row
WHERE ((m.tier = 'conversation' AND m.superseded_by IS NULL AND s.status <> 'active' AND m.updated_at < :before AND NOT
    EXISTS(SELECT 1 FROM curation_log AS l JOIN curation_items AS i ON i.entry_id = l.id WHERE ((i.agent_id = m.agent_id
    AND i.memory_id = m.id AND l.action = :clear AND NOT l.undone_at IS NULL) AND l.store_id = :store_id) AND i.store_id
    = :store_id) AND COALESCE(:agent, s.agent_id) = s.agent_id) AND m.store_id = :store_id) AND s.store_id = :store_id
GROUP BY s.row_id, s.agent_id, s.id
ORDER BY MIN(m.updated_at), s.row_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.sessions.summaries: state
SELECT s.row_id AS row_id, s.id AS session, s.agent_id AS agent, COALESCE(s.summary_text, '') AS text, s.summary_epoch
    AS epoch, s.summary_upper_sequence AS upper_sequence, COALESCE((SELECT MAX(l.undone_at) FROM curation_log AS l WHERE
    (l.agent_id = s.agent_id AND l.session_id = s.id AND l.action = :action) AND l.store_id = :store_id), 0) AS
    undone_at
FROM sessions AS s
WHERE (s.agent_id = :agent AND s.id = :id AND (s.user_id IS NULL OR s.user_id = :viewer OR s.id = :viewer_group OR
    ((s.is_group) <> 0 AND EXISTS(SELECT 1 FROM session_users AS vu WHERE (vu.session_row = s.row_id AND vu.user_id =
    :viewer) AND vu.store_id = :store_id)))) AND s.store_id = :store_id;
-- storage.sessions.summaries: coverage
SELECT COUNT(consolidated_at), COUNT(*) - COUNT(consolidated_at)
FROM messages
WHERE (session_row = :row AND agent_id = :agent) AND messages.store_id = :store_id;
-- storage.sessions.summaries: unsummarised
SELECT row_id, OCTET_LENGTH(content) + COALESCE(OCTET_LENGTH(tool_calls), 0) AS size_bytes
FROM messages
WHERE (session_row = :row AND consolidated_at IS NULL AND agent_id = :agent) AND messages.store_id = :store_id
ORDER BY created_at, id;
-- storage.sessions.summaries: newest_stored_at
SELECT MAX(stored_at)
FROM messages
WHERE (session_row = :row AND agent_id = :agent) AND messages.store_id = :store_id;
-- storage.sessions.summaries: vectors
SELECT l.message_row, (SELECT text FROM chunks WHERE (id = l.chunk_id AND agent_id = :agent) AND chunks.store_id =
    :store_id) AS text, (SELECT embedding FROM chunks_vec WHERE (chunk_id = l.chunk_id AND model = :model) AND
    chunks_vec.store_id = :store_id) AS embedding
FROM message_chunks AS l
WHERE l.message_row = ANY(CAST(:rows AS BIGINT[])) AND l.store_id = :store_id
ORDER BY l.message_row, l.chunk_id;
-- storage.sessions.summaries: write
UPDATE messages
SET consolidated_at = :now
WHERE (session_row = :row AND agent_id = :agent AND consolidated_at IS NULL AND row_id = ANY(CAST(:rows AS BIGINT[])))
    AND messages.store_id = :store_id;
-- storage.sessions.summaries: write
UPDATE sessions
SET summary_text = :text, summary_epoch = summary_epoch + 1, summary_upper_sequence = COALESCE((SELECT MAX(sequence)
    FROM messages WHERE (session_row = :row AND sequence < COALESCE((SELECT MIN(sequence) FROM messages WHERE
    (session_row = :row AND consolidated_at IS NULL) AND messages.store_id = :store_id), :max_sequence)) AND
    messages.store_id = :store_id), 0)
WHERE (row_id = :row AND agent_id = :agent AND id = :id AND summary_epoch = :epoch) AND sessions.store_id = :store_id;
-- storage.sessions.summaries: sessions_with_messages
SELECT s.agent_id, s.id, MAX(m.row_id)
FROM (SELECT row_id, session_row FROM messages WHERE row_id > :after AND messages.store_id = :store_id ORDER BY row_id
    LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AS m
JOIN sessions AS s ON s.row_id = m.session_row AND s.agent_id <> ''
WHERE s.store_id = :store_id
GROUP BY s.row_id, s.agent_id, s.id
ORDER BY MIN(m.row_id);
-- storage.sessions.summaries: inactive_unsummarised
SELECT s.row_id, s.agent_id, s.id
FROM sessions AS s
WHERE (s.row_id > :after AND s.agent_id <> '' AND (s.status <> 'active' OR s.updated_at < :before) AND EXISTS(SELECT 1
    FROM messages AS m WHERE (m.session_row = s.row_id AND m.consolidated_at IS NULL) AND m.store_id = :store_id)) AND
    s.store_id = :store_id
ORDER BY s.row_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.status: agents_of
SELECT agent_id, SUM(sessions), SUM(memories)
FROM (SELECT agent_id, COUNT(*) AS sessions, 0 AS memories FROM sessions WHERE agent_id <> '' AND sessions.store_id =
    :store_id GROUP BY agent_id UNION ALL SELECT agent_id, 0, COUNT(*) FROM memories WHERE (superseded_by IS NULL AND
    (expires_at IS NULL OR expires_at > :now)) AND memories.store_id = :store_id GROUP BY agent_id)
GROUP BY agent_id
ORDER BY agent_id;
-- storage.status: counts_of
SELECT model, dim, CAST(CAST((embedder <> '') AS INT) AS BIGINT)
FROM indexes
WHERE (kind = 'vector' AND state = 'active') AND indexes.store_id = :store_id;
-- storage.status: counts_of
SELECT COUNT(*)
FROM dead_letters
WHERE dead_letters.store_id = :store_id;
-- storage.status: counts_of
SELECT (SELECT COUNT(*) FROM memories WHERE memories.store_id = :store_id) - (SELECT COUNT(*) FROM memories WHERE NOT
    superseded_by IS NULL AND memories.store_id = :store_id);
-- storage.status: _extraction_backlog
SELECT MAX(position)
FROM job_progress
WHERE (job = :job AND item = 'mark' AND position <= :now) AND job_progress.store_id = :store_id;
-- storage.status: _extraction_backlog
WITH RECURSIVE agents(agent_id) AS (SELECT MIN(agent_id) FROM sessions WHERE agent_id > '' AND sessions.store_id =
    :store_id UNION ALL SELECT (SELECT MIN(s.agent_id) FROM sessions AS s WHERE s.agent_id > a.agent_id AND s.store_id =
    :store_id) FROM agents AS a WHERE NOT a.agent_id IS NULL) SELECT COUNT(*), MIN(s.updated_at), (SELECT COUNT(*) FROM
    job_progress WHERE (job = :job AND item >= 'reading ' AND item < 'reading ￿') AND job_progress.store_id =
    :store_id), COUNT(r.position)
FROM agents AS a
JOIN sessions AS s ON s.agent_id = a.agent_id AND s.updated_at >= :since
LEFT JOIN job_progress AS p ON p.store_id = :store_id AND (p.job = :job AND p.item = s.ref_code)
LEFT JOIN job_progress AS r ON r.store_id = :store_id AND (r.job = :job AND r.item = 'retry ' || s.ref_code)
WHERE s.last_sequence > COALESCE(p.position, 0) AND s.store_id = :store_id;
-- storage.status: _extraction_backlog
SELECT MAX(at)
FROM job_progress
WHERE (job = :job AND at <= :now + 60000000) AND job_progress.store_id = :store_id;
-- storage.store: viewer_of
SELECT user_id, is_group
FROM sessions
WHERE (agent_id = :agent AND id = :session) AND sessions.store_id = :store_id;
-- storage.trust.audit: record
INSERT INTO audit_log (at, actor, action, target, token, workspace, agent_id, outcome, origin, trace_id, count)
VALUES (:at, :actor, :action, :target, :token, :workspace, :agent, :outcome, :origin, :trace, :count);
-- storage.trust.audit: entries
SELECT id AS id, at AS at, actor AS actor, action AS action, target AS target, outcome AS outcome, workspace AS
    workspace, agent_id AS agent, origin AS origin, trace_id AS trace, token AS token, count AS count
FROM audit_log
WHERE TRUE
ORDER BY id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
SELECT id AS id, at AS at, actor AS actor, action AS action, target AS target, outcome AS outcome, workspace AS
    workspace, agent_id AS agent, origin AS origin, trace_id AS trace, token AS token, count AS count
FROM audit_log
WHERE at >= :since AND actor = ANY(CAST(:actors AS TEXT[])) AND action = :action AND workspace = :workspace AND target =
    ANY(CAST(:targets AS TEXT[]))
ORDER BY id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
-- storage.trust.audit: remove_before
UPDATE audit_retention
SET ended_at = :at;
-- storage.trust.audit: remove_before
DELETE FROM audit_log
WHERE id IN (SELECT id FROM audit_log WHERE at < :at ORDER BY id LIMIT NULLIF(CAST(:limit AS BIGINT), -1));
-- storage.trust.audit: remove_before
UPDATE audit_retention
SET ended_at = NULL;
-- storage.trust.quotas: all
SELECT holder, name, resource, amount
FROM quotas
ORDER BY holder, name, resource;
-- storage.trust.quotas: set
DELETE FROM quotas
WHERE holder = :holder AND name = :name AND resource = :resource;
-- storage.trust.quotas: set
INSERT INTO quotas (holder, name, resource, amount)
VALUES (:holder, :name, :resource, :amount);
-- storage.trust.quotas: stored_amounts
SELECT messages, bytes, memories, schedules
FROM stored_amounts
WHERE tenant = :tenant AND stored_amounts.store_id = :store_id;
-- storage.trust.quotas: wrong_amounts
WITH counted AS (SELECT tenant, messages, memories, schedules, bytes FROM stored_amounts WHERE ((messages) <> 0 OR
    (memories) <> 0 OR (schedules) <> 0 OR (bytes) <> 0) AND stored_amounts.store_id = :store_id), actual AS (SELECT
    tenant, SUM(messages) AS messages, SUM(memories) AS memories, SUM(schedules) AS schedules, SUM(bytes) AS bytes FROM
    (SELECT '' AS tenant, 1 AS messages, 0 AS memories, 0 AS schedules, COALESCE(OCTET_LENGTH(content), 0) +
    COALESCE(OCTET_LENGTH(metadata), 0) + COALESCE(OCTET_LENGTH(tool_calls), 0) + COALESCE(OCTET_LENGTH(original), 0) AS
    bytes FROM messages WHERE messages.store_id = :store_id UNION ALL SELECT '' AS tenant, 1 AS messages, 0 AS memories,
    0 AS schedules, COALESCE(OCTET_LENGTH(content), 0) + COALESCE(OCTET_LENGTH(metadata), 0) AS bytes FROM files WHERE
    files.store_id = :store_id UNION ALL SELECT COALESCE(memories.tenant, '') AS tenant, 0 AS messages,
    CAST(CAST((memories.superseded_by IS NULL) AS INT) AS BIGINT) AS memories, 0 AS schedules,
    COALESCE(OCTET_LENGTH(content), 0) + COALESCE(OCTET_LENGTH(value), 0) + COALESCE(OCTET_LENGTH(metadata), 0) AS bytes
    FROM memories WHERE memories.store_id = :store_id UNION ALL SELECT '' AS tenant, 0 AS messages, 0 AS memories, 0 AS
    schedules, COALESCE(OCTET_LENGTH(key), 0) + COALESCE(OCTET_LENGTH(value), 0) AS bytes FROM scratchpads WHERE
    scratchpads.store_id = :store_id UNION ALL SELECT '' AS tenant, 0 AS messages, 0 AS memories, 0 AS schedules,
    COALESCE(OCTET_LENGTH(items), 0) AS bytes FROM scratchpad_lists WHERE scratchpad_lists.store_id = :store_id UNION
    ALL SELECT '' AS tenant, 0 AS messages, 0 AS memories, 0 AS schedules, COALESCE(OCTET_LENGTH(namespace), 0) +
    COALESCE(OCTET_LENGTH(key), 0) + COALESCE(OCTET_LENGTH(value), 0) AS bytes FROM items WHERE items.store_id =
    :store_id UNION ALL SELECT '' AS tenant, 0 AS messages, 0 AS memories, 1 AS schedules, COALESCE(OCTET_LENGTH(goal),
    0) + COALESCE(OCTET_LENGTH(cadence), 0) + COALESCE(OCTET_LENGTH(executor), 0) AS bytes FROM schedules WHERE
    schedules.store_id = :store_id UNION ALL SELECT '' AS tenant, 0 AS messages, 0 AS memories,
    CAST(CAST((reminders.delivered_at IS NULL) AS INT) AS BIGINT) AS schedules, COALESCE(OCTET_LENGTH(message), 0) AS
    bytes FROM reminders WHERE reminders.store_id = :store_id) GROUP BY tenant) SELECT COUNT(*)
FROM (SELECT * FROM (SELECT tenant, messages, memories, schedules, bytes FROM counted EXCEPT SELECT tenant, messages,
    memories, schedules, bytes FROM actual) UNION SELECT * FROM (SELECT tenant, messages, memories, schedules, bytes
    FROM actual EXCEPT SELECT tenant, messages, memories, schedules, bytes FROM counted));
-- storage.trust.quotas: stored_ids
SELECT id
FROM x
WHERE agent_id = :agent AND id = ANY(CAST(:ids AS TEXT[]));
-- storage.trust.quotas: set_for
SELECT tenant
FROM tenants
WHERE workspace = :workspace;
-- storage.trust.quotas: all
SELECT workspace, tenant
FROM tenants;
-- storage.trust.quotas: set
INSERT INTO tenants (workspace, tenant)
VALUES (:workspace, :tenant) ON CONFLICT(workspace) DO UPDATE
SET tenant = :tenant;
-- storage.trust.quotas: workspaces
SELECT workspace
FROM tenants
WHERE tenant = :tenant
ORDER BY workspace;
-- storage.trust.tokens: add
INSERT INTO tokens (id, name, hash, workspace, agents, user_id, scopes, created_at, created_by, expires_at,
    last_used_at, revoked_at, replaces)
VALUES (:id, :name, :hash, :workspace, :agents, :user, :scopes, :created_at, :created_by, :expires_at, :last_used_at,
    :revoked_at, :replaces);
-- storage.trust.tokens: by_hash
SELECT id AS id, name AS name, hash AS hash, workspace AS workspace, agents AS agents, user_id AS user, scopes AS
    scopes, created_at AS created_at, created_by AS created_by, expires_at AS expires_at, last_used_at AS last_used_at,
    revoked_at AS revoked_at, replaces AS replaces
FROM tokens
WHERE hash = :hash;
-- storage.trust.tokens: named
SELECT id AS id, name AS name, hash AS hash, workspace AS workspace, agents AS agents, user_id AS user, scopes AS
    scopes, created_at AS created_at, created_by AS created_by, expires_at AS expires_at, last_used_at AS last_used_at,
    revoked_at AS revoked_at, replaces AS replaces
FROM tokens
WHERE id = :name OR name = :name
ORDER BY created_at DESC, id DESC;
-- storage.trust.tokens: list
SELECT id AS id, name AS name, hash AS hash, workspace AS workspace, agents AS agents, user_id AS user, scopes AS
    scopes, created_at AS created_at, created_by AS created_by, expires_at AS expires_at, last_used_at AS last_used_at,
    revoked_at AS revoked_at, replaces AS replaces
FROM tokens
WHERE (:workspace IS NULL OR workspace = :workspace) AND (:valid_at IS NULL OR revoked_at IS NULL AND (expires_at IS
    NULL OR :valid_at < expires_at))
ORDER BY created_at DESC, id DESC LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
-- storage.trust.tokens: any_valid
SELECT 1
FROM tokens
WHERE revoked_at IS NULL AND (expires_at IS NULL OR :valid_at < expires_at) LIMIT 1;
-- storage.trust.tokens: revoke
UPDATE tokens
SET revoked_at = :now
WHERE id = :id AND revoked_at IS NULL;
-- storage.trust.tokens: replace
UPDATE tokens
SET expires_at = LEAST(:ends_at, COALESCE(expires_at, :ends_at))
WHERE id = :id AND revoked_at IS NULL AND (expires_at IS NULL OR :valid_at < expires_at);
UPDATE tokens
SET revoked_at = :now
WHERE id = :id AND revoked_at IS NULL AND (expires_at IS NULL OR :valid_at < expires_at);
-- storage.trust.tokens: replace
INSERT INTO tokens (id, name, hash, workspace, agents, user_id, scopes, created_at, created_by, expires_at,
    last_used_at, revoked_at, replaces)
VALUES (:id, :name, :hash, :workspace, :agents, :user, :scopes, :created_at, :created_by, :expires_at, :last_used_at,
    :revoked_at, :replaces);
-- storage.trust.tokens: forget_user
SELECT DISTINCT name
FROM tokens
WHERE user_id = :user AND (:workspace IS NULL OR workspace = :workspace) AND (:agents IS NULL OR agents = :agents);
-- storage.trust.tokens: forget_user
UPDATE tokens
SET user_id = :name, scopes = CASE WHEN name = :spared THEN :read ELSE scopes END, expires_at = CASE WHEN name = :spared
    THEN LEAST(:until, COALESCE(expires_at, :until)) ELSE expires_at END, revoked_at = CASE WHEN name = :spared THEN
    revoked_at ELSE COALESCE(revoked_at, :now) END, name = :name
WHERE user_id = :user AND (:workspace IS NULL OR workspace = :workspace) AND (:agents IS NULL OR agents = :agents);
-- storage.trust.tokens: not_revoked
SELECT id AS id, name AS name, hash AS hash, workspace AS workspace, agents AS agents, user_id AS user, scopes AS
    scopes, created_at AS created_at, created_by AS created_by, expires_at AS expires_at, last_used_at AS last_used_at,
    revoked_at AS revoked_at, replaces AS replaces
FROM tokens
WHERE revoked_at IS NULL
ORDER BY created_at, id;
-- storage.trust.tokens: forget_name
UPDATE tokens
SET user_id = :name, name = :name, revoked_at = COALESCE(revoked_at, :now)
WHERE id = :id;
-- storage.trust.tokens: note_uses
UPDATE tokens
SET last_used_at = GREATEST(:at, COALESCE(last_used_at, 0))
WHERE id = :id;
-- storage.trust.tokens: of
SELECT count, rotated_at
FROM webhook_rotations
WHERE agent_hash = :agent_hash AND webhook_rotations.store_id = :store_id;
-- storage.trust.tokens: add
INSERT INTO webhook_rotations (agent_hash, count, rotated_at)
VALUES (:agent_hash, 1, :now) ON CONFLICT(store_id, agent_hash) DO UPDATE
SET count = webhook_rotations.count + 1, rotated_at = :now;
-- storage.upkeep.dreams: events
SELECT id, chunk_id, recall, query, score, at, user_id AS user
FROM recall_events
WHERE (agent_id = :agent AND at >= :since AND at <= :until AND (at, id) > (:after_at, :after_id)) AND
    recall_events.store_id = :store_id
ORDER BY at, id LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.upkeep.dreams: sources
SELECT c.id, k.row_id, k.id, k.kind, x.row_id, x.id, x.kind, g.id, g.row_id, (SELECT gs.id FROM sessions AS gs WHERE
    gs.row_id = g.session_row AND gs.store_id = :store_id), (SELECT CASE COUNT(*) WHEN COUNT(o.superseded_by) THEN 2 *
    COUNT(*) ELSE COUNT(*) - COUNT(o.superseded_by) END FROM memories AS o WHERE (o.agent_id = :agent AND g.agent_id =
    o.agent_id AND g.id = o.source_message AND (o.session_row IS NULL OR g.session_row = o.session_row)) AND o.store_id
    = :store_id), (CAST(CAST((k.visibility = 'shared' OR (k.owner_user_id IS NULL AND COALESCE((SELECT os.audience FROM
    sessions AS os WHERE os.row_id = k.session_row AND os.store_id = :store_id), '') NOT ILIKE 'u:%')) AS INT) AS
    BIGINT)), COALESCE(k.owner_user_id, (SELECT MIN(am.user_id) FROM messages AS am WHERE (am.agent_id = k.agent_id AND
    am.id = k.source_message AND (k.session_row IS NULL OR am.session_row = k.session_row)) AND am.store_id =
    :store_id)), (CAST(CAST((x.visibility = 'shared' OR (x.owner_user_id IS NULL AND COALESCE((SELECT os.audience FROM
    sessions AS os WHERE os.row_id = x.session_row AND os.store_id = :store_id), '') NOT ILIKE 'u:%')) AS INT) AS
    BIGINT)), COALESCE(x.owner_user_id, (SELECT MIN(am.user_id) FROM messages AS am WHERE (am.agent_id = x.agent_id AND
    am.id = x.source_message AND (x.session_row IS NULL OR am.session_row = x.session_row)) AND am.store_id =
    :store_id)), COALESCE(g.user_id, (SELECT s.user_id FROM sessions AS s WHERE (s.row_id = g.session_row AND NOT
    (s.is_group) <> 0) AND s.store_id = :store_id))
FROM UNNEST(CAST(:ids AS BIGINT[])) WITH ORDINALITY AS j(value, key)
JOIN chunks AS c ON c.id = j.value AND c.agent_id = :agent AND (c.session_row IS NULL OR EXISTS(SELECT 1 FROM sessions
    AS cs WHERE (cs.row_id = c.session_row AND cs.agent_id = c.agent_id) AND cs.store_id = :store_id))
LEFT JOIN memories AS k ON k.store_id = :store_id AND k.row_id = c.memory_row
CROSS JOIN LATERAL (SELECT (SELECT MAX(message_row) FROM message_chunks WHERE chunk_id = c.id AND
    message_chunks.store_id = :store_id) AS row_id OFFSET 0) AS g_keys
LEFT JOIN messages AS g ON g.store_id = :store_id AND g.row_id = g_keys.row_id
CROSS JOIN LATERAL (SELECT (SELECT MIN(o.row_id) FROM memories AS o WHERE (o.agent_id = :agent AND g.agent_id =
    o.agent_id AND g.id = o.source_message AND (o.session_row IS NULL OR g.session_row = o.session_row) AND
    o.superseded_by IS NULL) AND o.store_id = :store_id) AS row_id OFFSET 0) AS x_keys
LEFT JOIN memories AS x ON x.store_id = :store_id AND x.row_id = x_keys.row_id
WHERE c.store_id = :store_id;
-- storage.upkeep.dreams: has_users
SELECT CAST(CAST((EXISTS(SELECT 1 FROM sessions WHERE (agent_id = :agent AND NOT user_id IS NULL) AND sessions.store_id
    = :store_id) OR EXISTS(SELECT 1 FROM memories WHERE (agent_id = :agent AND NOT owner_user_id IS NULL) AND
    memories.store_id = :store_id) OR EXISTS(SELECT 1 FROM recall_events WHERE (agent_id = :agent AND NOT user_id IS
    NULL) AND recall_events.store_id = :store_id)) AS INT) AS BIGINT);
-- storage.upkeep.dreams: promoted
SELECT memory_id
FROM memory_promotions
WHERE (agent_id = :agent AND memory_id = ANY(CAST(:ids AS TEXT[]))) AND memory_promotions.store_id = :store_id;
-- storage.upkeep.dreams: count_at
SELECT COUNT(*)
FROM memory_promotions
WHERE (agent_id = :agent AND promoted_at = :at) AND memory_promotions.store_id = :store_id;
-- storage.upkeep.dreams: promote
INSERT INTO memory_promotions (memory_id, promoted_at, score, phase, agent_id)
VALUES (:memory_id, :promoted_at, :score, :phase, :agent) ON CONFLICT(store_id, agent_id, memory_id) DO NOTHING;
-- storage.upkeep.dreams: ledger
SELECT memory_id AS memory_id, promoted_at AS promoted_at, score AS score, phase AS phase
FROM memory_promotions
WHERE agent_id = :agent AND memory_promotions.store_id = :store_id
ORDER BY promoted_at DESC, score DESC, memory_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1) OFFSET :offset;
-- storage.upkeep.dreams: agents
SELECT DISTINCT agent_id
FROM memory_promotions
WHERE memory_promotions.store_id = :store_id
ORDER BY 1;
-- storage.upkeep.jobs: claim
DELETE FROM job_runs
WHERE job = :job AND period = :period;
-- storage.upkeep.jobs: claim
UPDATE job_runs
SET finished_at = :now, error = :error
WHERE job = :job AND period <> :period AND finished_at IS NULL AND started_at < :abandoned;
-- storage.upkeep.jobs: claim
INSERT INTO job_runs (job, period, started_at)
VALUES (:job, :period, :now) ON CONFLICT(job, period) DO UPDATE
SET started_at = :now
WHERE job_runs.finished_at IS NULL AND job_runs.started_at < :abandoned;
-- storage.upkeep.jobs: finish
UPDATE job_runs
SET finished_at = :now, counts = :counts, error = :error
WHERE job = :job AND period = :period;
-- storage.upkeep.jobs: finish
DELETE FROM job_runs
WHERE job = :job AND id <= (SELECT id FROM job_runs WHERE job = :job ORDER BY id DESC LIMIT 1 OFFSET :keep);
-- storage.upkeep.jobs: stop
UPDATE job_runs
SET finished_at = :now, error = :error
WHERE job = :job AND period = :period AND finished_at IS NULL;
-- storage.upkeep.jobs: fail_killed
UPDATE job_runs
SET finished_at = :now, error = :error
WHERE (finished_at IS NULL OR error = :stopped) AND id = (SELECT MAX(id) FROM job_runs WHERE job = :job);
-- storage.upkeep.jobs: last_runs
SELECT job AS job, period AS period, started_at AS started_at, finished_at AS finished_at, counts AS counts, error AS
    error
FROM job_runs AS r
WHERE id = (SELECT MAX(id) FROM job_runs WHERE job = r.job)
ORDER BY job;
-- storage.upkeep.jobs: _is_too_soon
SELECT started_at, finished_at
FROM job_runs
WHERE job = :job AND period <> started_at
ORDER BY id DESC LIMIT 1;
-- storage.upkeep.jobs: add
INSERT INTO language_model_usage (model, purpose, calls, failures, input_tokens, output_tokens, cost, messages, day)
VALUES (:model, :purpose, :calls, :failures, :input_tokens, :output_tokens, :cost, :messages, :day) ON CONFLICT(day,
    model, purpose) DO UPDATE
SET calls = language_model_usage.calls + excluded.calls, failures = language_model_usage.failures + excluded.failures,
    input_tokens = language_model_usage.input_tokens + excluded.input_tokens, output_tokens =
    language_model_usage.output_tokens + excluded.output_tokens, cost = language_model_usage.cost + excluded.cost,
    messages = language_model_usage.messages + excluded.messages;
-- storage.upkeep.jobs: last_days
SELECT model, purpose, SUM(calls) AS calls, SUM(failures) AS failures, SUM(input_tokens) AS input_tokens,
    SUM(output_tokens) AS output_tokens, SUM(cost) AS cost, SUM(messages) AS messages
FROM language_model_usage
WHERE day > :before AND day <= :today
GROUP BY model, purpose
ORDER BY model, purpose;
-- storage.upkeep.jobs: remove_before
DELETE FROM language_model_usage
WHERE day < :day;
-- storage.upkeep.retention: count
SELECT COUNT(*)
FROM (SELECT m.row_id AS row_id, s.row_id AS session_row, s.agent_id AS agent, s.id AS session FROM sessions AS s JOIN
    messages AS m ON m.session_row = s.row_id AND m.sequence <= s.summary_upper_sequence WHERE ((s.row_id >=
    :from_session AND s.summary_upper_sequence > 0 AND COALESCE(s.summary_text, '') <> '' AND NOT m.consolidated_at IS
    NULL AND m.created_at < :before AND m.stored_at < :before AND COALESCE(:agent, s.agent_id) = s.agent_id) AND
    s.store_id = :store_id) AND m.store_id = :store_id ORDER BY s.row_id, m.sequence LIMIT NULLIF(CAST(:limit AS
    BIGINT), -1));
-- storage.upkeep.retention: expired
SELECT m.row_id AS row_id, s.row_id AS session_row, s.agent_id AS agent, s.id AS session
FROM sessions AS s
JOIN messages AS m ON m.session_row = s.row_id AND m.sequence <= s.summary_upper_sequence
WHERE ((s.row_id >= :from_session AND s.summary_upper_sequence > 0 AND COALESCE(s.summary_text, '') <> '' AND NOT
    m.consolidated_at IS NULL AND m.created_at < :before AND m.stored_at < :before AND COALESCE(:agent, s.agent_id) =
    s.agent_id) AND s.store_id = :store_id) AND m.store_id = :store_id
ORDER BY s.row_id, m.sequence LIMIT NULLIF(CAST(:limit AS BIGINT), -1);
-- storage.upkeep.retention: remove
SELECT DISTINCT chunk_id
FROM message_chunks
WHERE message_row = ANY(CAST(:rows AS BIGINT[])) AND message_chunks.store_id = :store_id;
-- storage.upkeep.retention: remove
DELETE FROM messages
WHERE (row_id = ANY(CAST(:rows AS BIGINT[])) AND NOT consolidated_at IS NULL AND NOT (SELECT 1 FROM sessions AS s WHERE
    (s.row_id = messages.session_row AND messages.sequence <= s.summary_upper_sequence AND COALESCE(s.summary_text, '')
    <> '') AND s.store_id = :store_id) IS NULL) AND messages.store_id = :store_id
RETURNING row_id;
-- storage.upkeep.retention: _remove_unused
WITH listed AS MATERIALIZED (SELECT id, file_row, memory_row FROM chunks WHERE id = ANY(CAST(:ids AS BIGINT[])) AND
    chunks.store_id = :store_id) SELECT id
FROM listed
WHERE file_row IS NULL AND memory_row IS NULL AND (SELECT 1 FROM message_chunks WHERE chunk_id = listed.id AND
    message_chunks.store_id = :store_id LIMIT 1) IS NULL;
-- storage.upkeep.retention: _remove_unused
DELETE FROM chunks
WHERE id = ANY(CAST(:ids AS BIGINT[])) AND chunks.store_id = :store_id;
-- storage.upkeep.retention: remove
DELETE FROM schedules
WHERE ctid IN (SELECT ctid FROM schedules WHERE (status IN ('completed', 'failed') AND updated_at < :before AND
    COALESCE(last_run_at, 0) < :before AND NOT EXISTS(SELECT 1 FROM schedule_runs AS r WHERE (r.agent_id =
    schedules.agent_id AND r.schedule_id = schedules.id AND r.status IN ('pending', 'running')) AND r.store_id =
    :store_id)) AND schedules.store_id = :store_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AND schedules.store_id =
    :store_id;
DELETE FROM reminders
WHERE (agent_id, id) IN (SELECT agent_id, id FROM reminders WHERE (delivered_at IS NULL AND due_at < :before AND
    created_at < :before) AND reminders.store_id = :store_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AND
    reminders.store_id = :store_id;
DELETE FROM items
WHERE row_id IN (SELECT row_id FROM items WHERE (NOT expires_at IS NULL AND expires_at <= :before) AND items.store_id =
    :store_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AND items.store_id = :store_id;
DELETE FROM memory_promotions
WHERE (agent_id, memory_id) IN (SELECT p.agent_id, p.memory_id FROM memory_promotions AS p WHERE (p.promoted_at <
    :before AND NOT EXISTS(SELECT 1 FROM memories AS k WHERE (k.agent_id = p.agent_id AND k.id = p.memory_id) AND
    k.store_id = :store_id) AND NOT EXISTS(SELECT 1 FROM messages AS m WHERE (m.agent_id = p.agent_id AND m.id =
    p.memory_id) AND m.store_id = :store_id)) AND p.store_id = :store_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AND
    memory_promotions.store_id = :store_id;
DELETE FROM job_progress
WHERE (job, item) IN (SELECT p.job, p.item FROM job_progress AS p WHERE (p.job = 'reverie.extract_memories' AND p.item
    <> 'mark' AND NOT EXISTS(SELECT 1 FROM sessions AS s WHERE s.ref_code = SUBSTRING(p.item FROM POSITION(' ' IN
    p.item) + 1) AND s.store_id = :store_id)) AND p.store_id = :store_id LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AND
    job_progress.store_id = :store_id;
-- storage.verify: sampled_chunks
SELECT c.agent_id AS agent, c.text AS text, m.content AS source, c.lead AS lead, f.words AS words, CASE WHEN
    (s.is_group) <> 0 THEN NULL ELSE s.user_id END AS user, CASE WHEN (s.is_group) <> 0 THEN s.id END AS "group"
FROM chunks AS c
JOIN message_chunks AS l ON l.chunk_id = c.id
JOIN messages AS m ON m.row_id = l.message_row
JOIN sessions AS s ON s.row_id = m.session_row
JOIN forward_index AS f ON f.agent_id = c.agent_id AND f.chunk_id = c.id
WHERE (((((c.id IN (SELECT id FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY id) AS place FROM chunks WHERE
    chunks.store_id = :store_id) WHERE place % GREATEST(1, (SELECT COUNT(*) FROM chunks WHERE chunks.store_id =
    :store_id) / NULLIF(:limit, 0)) = 0 ORDER BY id LIMIT NULLIF(CAST(:limit AS BIGINT), -1)) AND l.message_row =
    (SELECT MIN(message_row) FROM message_chunks WHERE chunk_id = c.id AND message_chunks.store_id = :store_id)) AND
    c.store_id = :store_id) AND l.store_id = :store_id) AND m.store_id = :store_id) AND s.store_id = :store_id) AND
    f.store_id = :store_id;
-- storage.verify: _number
SELECT COUNT(*)
FROM sessions
WHERE agent_id <> '' AND sessions.store_id = :store_id;
SELECT COUNT(*)
FROM messages
WHERE messages.store_id = :store_id;
SELECT COUNT(*)
FROM files
WHERE agent_id <> '' AND files.store_id = :store_id;
SELECT COUNT(*)
FROM memories
WHERE superseded_by IS NULL AND memories.store_id = :store_id;
SELECT COUNT(*)
FROM chunks
WHERE chunks.store_id = :store_id;
SELECT COUNT(*)
FROM chunks_vec
WHERE model = (SELECT model FROM indexes WHERE (kind = 'vector' AND state = 'active') AND indexes.store_id = :store_id)
    AND chunks_vec.store_id = :store_id;
-- storage.verify: _compare_vectors
SELECT id
FROM chunks
WHERE NOT indexed_at IS NULL AND chunks.store_id = :store_id;
-- storage.verify: _compare_next
SELECT id
FROM chunks
WHERE chunks.store_id = :store_id;
-- storage.verify: _with_vector
SELECT chunk_id
FROM chunks_vec
WHERE model = :model AND chunks_vec.store_id = :store_id;
-- storage.verify: _compare_words
SELECT id
FROM chunks
WHERE chunks.store_id = :store_id;
-- storage.verify: damaged_values
SELECT chunk_id
FROM chunks_vec
WHERE LENGTH(embedding) <> 4 * dim AND chunks_vec.store_id = :store_id
ORDER BY chunk_id;
-- storage.verify: _damaged_in
-- composed of the rows and columns that it is given
-- storage.viewer: audiences
SELECT DISTINCT 's:' || session_row
FROM session_users
WHERE (agent_id = :agent AND user_id = :viewer) AND session_users.store_id = :store_id
UNION ALL SELECT audience
FROM sessions
WHERE (agent_id = :agent AND id = :viewer_group AND (is_group) <> 0) AND sessions.store_id = :store_id;
