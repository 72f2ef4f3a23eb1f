-- What all hosts sign with: see `foundation.sql`.
CREATE TABLE installation_key (only_row bigint PRIMARY KEY CHECK (only_row = 1), key bytea NOT NULL);
CREATE TABLE webhook_rotations (
    store bigint PRIMARY KEY REFERENCES stores (id) ON DELETE CASCADE,
    content text NOT NULL DEFAULT '{}'
);
