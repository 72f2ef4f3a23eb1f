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
