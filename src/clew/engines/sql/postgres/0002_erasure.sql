-- Erasure: one body can be removed for good. A row without a body has its tombstone in `meta`.

-- Erase one entry: a tombstone takes the place of its meta, and its body goes; the hash of that stays. False: there
-- is no such entry, or it was erased before. The caller holds the row of the thread that it is in, if that is not
-- purged, and has taken its turn: so no writer waits for this one while it waits for the writer.
CREATE FUNCTION clew.erase_entry(_space bigint, _thread bigint, _seq bigint, _hash bytea, _tombstone bytea)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
  held bytea;
BEGIN
  PERFORM clew.admit(_space);
  SELECT r.blob INTO held FROM clew.records r
   WHERE r.space = _space AND r.thread = _thread AND r.seq = _seq AND r.type = 0 AND r.hash = _hash
     AND (r.body IS NOT NULL OR r.blob IS NOT NULL) FOR UPDATE;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE clew.records r
     SET meta = _tombstone, body_hash = coalesce(r.body_hash, r.blob), blob = NULL, body = NULL
   WHERE r.space = _space AND r.thread = _thread AND r.seq = _seq;
  DELETE FROM clew.blob_uses u WHERE u.space = _space AND u.thread = _thread AND u.seq = _seq;
  -- Locked by one statement, looked at by the next: what a writer has begun to use meanwhile is seen then.
  PERFORM 1 FROM clew.blobs b WHERE b.space = _space AND b.hash = held FOR UPDATE;
  DELETE FROM clew.blobs b
   WHERE b.space = _space AND b.hash = held
     AND b.hash IS DISTINCT FROM (
       SELECT u.blob FROM clew.blob_uses u WHERE u.space = b.space AND u.blob BETWEEN b.hash AND b.hash ORDER BY u.blob LIMIT 1);
  RETURN true;
END $$;
