-- With the hash, so that a chunk is found by it whichever index of a session's chunks the planner takes.
DROP INDEX chunks_by_session;
CREATE INDEX chunks_by_session ON chunks (store_id, session_row, content_hash);
