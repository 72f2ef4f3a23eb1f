-- Hosts that share the database, and what each has done for an erasure: see `foundation.sql`. Databases that were made
-- shortly before this step have some of it.
ALTER TABLE stores ADD COLUMN IF NOT EXISTS key uuid NOT NULL DEFAULT gen_random_uuid();
CREATE TABLE IF NOT EXISTS hosts (
    id text COLLATE "C" PRIMARY KEY,
    name text NOT NULL,
    joined_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE hosts ADD COLUMN IF NOT EXISTS error text NOT NULL DEFAULT '';
CREATE TABLE IF NOT EXISTS host_erasures (
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
CREATE TABLE IF NOT EXISTS tombstones (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    content text COLLATE "C" NOT NULL UNIQUE
);
CREATE TABLE IF NOT EXISTS erasure_key (only_row bigint PRIMARY KEY CHECK (only_row = 1), key bytea NOT NULL);
