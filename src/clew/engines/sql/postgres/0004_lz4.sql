-- Bodies that the server compresses itself, those of rows over about 2 kB, by lz4: it takes less time than pglz for
-- nearly the same size. What is stored stays as it is. A server that was built without lz4 goes on with its default.
-- Writers queue up behind this while it waits for a long transaction, a dump say: so it does not wait for long.
SET LOCAL lock_timeout = '2s';
DO $$
BEGIN
  ALTER TABLE clew.records ALTER COLUMN body SET COMPRESSION lz4;  -- first, so that writers wait for this one lock
  FOR part IN 0..7 LOOP
    EXECUTE format('ALTER TABLE clew.records_%s ALTER COLUMN body SET COMPRESSION lz4', part);
  END LOOP;
EXCEPTION WHEN feature_not_supported THEN NULL;
END $$;
