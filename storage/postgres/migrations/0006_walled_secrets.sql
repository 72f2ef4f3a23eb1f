-- What a transaction of one store sees nothing of: see `foundation.sql`.
ALTER TABLE erasure_key ENABLE ROW LEVEL SECURITY;
ALTER TABLE erasure_key FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS no_store ON erasure_key;
CREATE POLICY no_store ON erasure_key USING (coalesce(current_setting('reverie.store', true), '') = '');
ALTER TABLE installation_key ENABLE ROW LEVEL SECURITY;
ALTER TABLE installation_key FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS no_store ON installation_key;
CREATE POLICY no_store ON installation_key USING (coalesce(current_setting('reverie.store', true), '') = '');
ALTER TABLE webhook_rotations ENABLE ROW LEVEL SECURITY;
ALTER TABLE webhook_rotations FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS no_store ON webhook_rotations;
CREATE POLICY no_store ON webhook_rotations USING (coalesce(current_setting('reverie.store', true), '') = '');
