-- What the planner knows of store numbers from when a store had few rows stalls it later.
DO $$
DECLARE
    table_of_stores text;
BEGIN
    FOR table_of_stores IN
        SELECT c.relname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
        WHERE c.relnamespace = 'reverie'::regnamespace AND c.relkind = 'r' AND a.attname = 'store_id'
    LOOP
        EXECUTE format('ALTER TABLE reverie.%I ALTER COLUMN store_id SET STATISTICS 0', table_of_stores);
    END LOOP;
END $$;
-- Each row that waits is looked up in it.
DROP INDEX IF EXISTS claims_set_aside;
CREATE INDEX claims_set_aside ON claims (store_id, stage, item_id) WHERE token IS NULL AND next_attempt_at IS NULL;
-- Row-level security keeps `@@` from finding rows, so no search has used it.
DROP INDEX IF EXISTS text_index_by_word;
