-- What entries say is in no statistics. The server samples every column when it analyses a table, and keeps values of
-- it in its catalogue, where an erasure does not reach. No plan depends on these columns.

-- Writers queue up behind this while it waits for a long transaction, a dump say: so it does not wait for long.
SET LOCAL lock_timeout = '2s';

-- To name the type that a column has already removes what was sampled of it before; no row is touched.
ALTER TABLE clew.records ALTER COLUMN body TYPE bytea, ALTER COLUMN meta TYPE bytea;
ALTER TABLE clew.records ALTER COLUMN body SET STATISTICS 0, ALTER COLUMN meta SET STATISTICS 0;
ALTER TABLE clew.blobs ALTER COLUMN data TYPE bytea;
ALTER TABLE clew.blobs ALTER COLUMN data SET STATISTICS 0, ALTER COLUMN data SET STORAGE EXTERNAL;  -- as it was

-- The words of a store that was searched; others get it with their index.
DO $$
BEGIN
  IF to_regclass('clew.search_documents') IS NOT NULL THEN
    ALTER TABLE clew.search_documents ALTER COLUMN words TYPE tsvector;
    ALTER TABLE clew.search_documents ALTER COLUMN words SET STATISTICS 0;
  END IF;
END $$;
