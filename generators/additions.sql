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
