-- oldest program: 0100
ALTER TABLE contexts ALTER COLUMN session_row DROP NOT NULL;
