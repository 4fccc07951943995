-- The index of words, made when a store is first searched; it is derived, and no part of the format:
-- dropping these tables loses nothing. It is written for the schema "clew", like the rest.
--
--   search_threads    how far each thread was read, by which version of the rules of words
--   search_marks      what threads are filtered by
--   search_documents  the words of a record; those of the four columns have the weights A to D

CREATE TABLE IF NOT EXISTS clew.search_threads (
  no      bigint  GENERATED ALWAYS AS IDENTITY,
  space   integer NOT NULL,
  version integer NOT NULL,
  seq     integer NOT NULL,
  id      text COLLATE "C" NOT NULL,
  birth   text COLLATE "C" NOT NULL,
  hash    text COLLATE "C" NOT NULL,
  PRIMARY KEY (space, no)
);
CREATE UNIQUE INDEX IF NOT EXISTS search_threads_by_id ON clew.search_threads (space, id);

CREATE TABLE IF NOT EXISTS clew.search_marks (
  thread bigint  NOT NULL,
  space  integer NOT NULL,
  key    text COLLATE "C" NOT NULL,
  value  text COLLATE "C" NOT NULL,
  PRIMARY KEY (space, key, value, thread)
);
CREATE INDEX IF NOT EXISTS search_marks_by_thread ON clew.search_marks (space, thread);

CREATE TABLE IF NOT EXISTS clew.search_documents (
  no      bigint  GENERATED ALWAYS AS IDENTITY,
  thread  bigint  NOT NULL,
  time_us bigint  NOT NULL,
  space   integer NOT NULL,
  seq     integer NOT NULL,
  size    integer NOT NULL,
  title   boolean NOT NULL,
  words   tsvector NOT NULL,
  PRIMARY KEY (space, no)
);
-- As what entries say: no samples of it in the server's catalogue.
ALTER TABLE clew.search_documents ALTER COLUMN words SET STATISTICS 0;
CREATE INDEX IF NOT EXISTS search_documents_by_thread ON clew.search_documents (space, thread, seq);
CREATE INDEX IF NOT EXISTS search_documents_by_word ON clew.search_documents USING gin (words);

-- As with the journal, a client asks functions, so that a role needs no right on a table.

CREATE OR REPLACE FUNCTION clew.search_known(_space bigint) RETURNS SETOF clew.search_threads LANGUAGE plpgsql STABLE AS $$
BEGIN
  PERFORM clew.admit(_space);
  RETURN QUERY SELECT t.* FROM clew.search_threads t WHERE t.space = _space;
END $$;

-- Whether another version of the rules of words has made a part of it.
CREATE OR REPLACE FUNCTION clew.search_is_other(_space bigint, _version bigint) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
  PERFORM clew.admit(_space);
  RETURN EXISTS (SELECT 1 FROM clew.search_threads t WHERE t.space = _space AND t.version <> _version);
END $$;

-- The number of a thread that is known up to a record now; NULL if another process was first.
CREATE OR REPLACE FUNCTION clew.search_advance(
  _space bigint, _id text, _version bigint, _birth text, _seq bigint, _hash text, _old_birth text, _old_seq bigint, _old_hash text
) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  advanced bigint;
BEGIN
  PERFORM clew.admit(_space);
  IF _old_birth IS NULL THEN
    INSERT INTO clew.search_threads (space, id, birth, seq, hash, version)
    VALUES (_space, _id, _birth, _seq, _hash, _version) ON CONFLICT (space, id) DO NOTHING RETURNING no INTO advanced;
  ELSE
    UPDATE clew.search_threads t SET seq = _seq, hash = _hash
     WHERE t.space = _space AND t.id = _id AND t.birth = _old_birth AND t.seq = _old_seq AND t.hash = _old_hash
    RETURNING t.no INTO advanced;
  END IF;
  RETURN advanced;
END $$;

-- Marks of a thread; those of the keys in _anew take the place of what was there.
CREATE OR REPLACE FUNCTION clew.search_add_marks(_space bigint, _thread bigint, _anew text[], _keys text[], _values text[])
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM clew.admit(_space);
  DELETE FROM clew.search_marks m WHERE m.space = _space AND m.thread = _thread AND m.key = ANY (_anew);
  INSERT INTO clew.search_marks (space, thread, key, value)
  SELECT _space, _thread, m.key, m.value FROM unnest(_keys, _values) AS m (key, value)
  ON CONFLICT DO NOTHING;
END $$;

-- Documents of a thread; one with a title takes the place of the last title.
CREATE OR REPLACE FUNCTION clew.search_add_documents(
  _space bigint, _thread bigint, _seqs bigint[], _times bigint[], _sizes bigint[], _titles boolean[], _words text[]
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  PERFORM clew.admit(_space);
  IF true = ANY (_titles) THEN
    DELETE FROM clew.search_documents d WHERE d.space = _space AND d.thread = _thread AND d.title;
  END IF;
  INSERT INTO clew.search_documents (space, thread, seq, time_us, size, title, words)
  SELECT _space, _thread, d.seq, d.time_us, d.size, d.title, d.words::tsvector
    FROM unnest(_seqs, _times, _sizes, _titles, _words) AS d (seq, time_us, size, title, words);
END $$;

-- Forget threads, all of them if no ids are given.
CREATE OR REPLACE FUNCTION clew.search_remove(_space bigint, _ids text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  gone bigint[];
BEGIN
  PERFORM clew.admit(_space);
  WITH removed AS (
    DELETE FROM clew.search_threads t WHERE t.space = _space AND (_ids IS NULL OR t.id = ANY (_ids)) RETURNING t.no
  )
  SELECT coalesce(array_agg(r.no), '{}') INTO gone FROM removed r;
  DELETE FROM clew.search_marks m WHERE m.space = _space AND (_ids IS NULL OR m.thread = ANY (gone));
  DELETE FROM clew.search_documents d WHERE d.space = _space AND (_ids IS NULL OR d.thread = ANY (gone));
END $$;

-- The documents that a query matches, in threads that have all marks, none of the unwanted ones, and one of the
-- ids: a page of them, each row with the number of all. Of many, the newest _ranked are ranked, where _newest
-- does not order them: by PostgreSQL's own rank, which does not know how rare a word is, and by the rarity of the
-- leaves of the query.
CREATE OR REPLACE FUNCTION clew.search_match(
  _space bigint, _query text, _keys text[], _values text[], _unwanted_keys text[], _unwanted_values text[], _ids text[],
  _since_us bigint, _until_us bigint, _newest boolean, _weights real[], _leaves text[], _rarities real[], _ranked bigint,
  _limit bigint, _skip bigint
) RETURNS TABLE (no bigint, id text, seq integer, time_us bigint, size integer, title boolean) LANGUAGE plpgsql STABLE AS $$
DECLARE
  chosen text := clew.search_filter(_keys, _unwanted_keys, _ids, _since_us, _until_us);
  rank text := 'ts_rank($10, d.words, $2::tsquery)';
BEGIN
  PERFORM clew.admit(_space);
  IF _newest THEN
    RETURN QUERY EXECUTE format('
      SELECT d.no, t.id, d.seq, d.time_us, d.size, d.title FROM clew.search_documents d
        JOIN clew.search_threads t ON t.space = d.space AND t.no = d.thread
       WHERE %s ORDER BY d.time_us DESC, t.id, d.seq DESC LIMIT %s OFFSET %s', chosen, _limit, _skip)
      USING _space, _query, _keys, _values, _unwanted_keys, _unwanted_values, _ids, _since_us, _until_us;
    RETURN;
  END IF;
  FOR i IN 1..cardinality(_leaves) LOOP
    rank := rank || format(' + (d.words @@ ($11)[%1$s]::tsquery)::integer * ($12)[%1$s]', i);
  END LOOP;
  RETURN QUERY EXECUTE format('
    SELECT d.no, t.id, d.seq, d.time_us, d.size, d.title FROM (
      SELECT d.no, d.space, d.thread, d.seq, d.time_us, d.size, d.title, %s AS rank
        FROM (SELECT * FROM clew.search_documents d WHERE %s ORDER BY d.time_us DESC LIMIT %s) AS d) AS d
      JOIN clew.search_threads t ON t.space = d.space AND t.no = d.thread
     ORDER BY d.rank DESC, d.no DESC LIMIT %s OFFSET %s', rank, chosen, _ranked, _limit, _skip)
    USING _space, _query, _keys, _values, _unwanted_keys, _unwanted_values, _ids, _since_us, _until_us, _weights, _leaves, _rarities;
END $$;

CREATE OR REPLACE FUNCTION clew.search_total(
  _space bigint, _query text, _keys text[], _values text[], _unwanted_keys text[], _unwanted_values text[], _ids text[],
  _since_us bigint, _until_us bigint
) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
  total bigint;
BEGIN
  PERFORM clew.admit(_space);
  EXECUTE 'SELECT count(*) FROM clew.search_documents d WHERE '
       || clew.search_filter(_keys, _unwanted_keys, _ids, _since_us, _until_us) INTO total
    USING _space, _query, _keys, _values, _unwanted_keys, _unwanted_values, _ids, _since_us, _until_us;
  RETURN total;
END $$;

-- The condition of both, with the parameters in their order: each mark is one look into the index of marks.
CREATE OR REPLACE FUNCTION clew.search_filter(_keys text[], _unwanted_keys text[], _ids text[], _since_us bigint, _until_us bigint)
RETURNS text LANGUAGE plpgsql STABLE AS $$
DECLARE
  chosen text := 'd.space = $1 AND d.words @@ $2::tsquery';
  mark constant text := '(ARRAY(SELECT m.thread FROM clew.search_marks m'
    ' WHERE m.space = $1 AND m.key = ($%s)[%s] AND m.value = ($%s)[%s]))';
BEGIN
  FOR i IN 1..cardinality(_keys) LOOP
    chosen := chosen || ' AND d.thread = ANY ' || format(mark, 3, i, 4, i);
  END LOOP;
  FOR i IN 1..cardinality(_unwanted_keys) LOOP
    chosen := chosen || ' AND d.thread <> ALL ' || format(mark, 5, i, 6, i);
  END LOOP;
  RETURN chosen || concat(
    CASE WHEN _ids IS NOT NULL THEN
      ' AND d.thread = ANY (ARRAY(SELECT s.no FROM clew.search_threads s WHERE s.space = $1 AND s.id = ANY ($7)))' END,
    CASE WHEN _since_us IS NOT NULL THEN ' AND d.time_us >= $8' END,
    CASE WHEN _until_us IS NOT NULL THEN ' AND d.time_us < $9' END);
END $$;

-- How many documents have a word, or words that follow each other; _most is enough.
CREATE OR REPLACE FUNCTION clew.search_count(_space bigint, _query text, _most bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
  total bigint;
BEGIN
  PERFORM clew.admit(_space);
  EXECUTE format('SELECT count(*) FROM (SELECT 1 FROM clew.search_documents d
    WHERE d.space = $1 AND d.words @@ $2::tsquery LIMIT %s) AS found', _most) INTO total USING _space, _query;
  RETURN total;
END $$;

-- Where words stand in some documents: whole ones, and all that begin so.
CREATE OR REPLACE FUNCTION clew.search_places(_space bigint, _numbers bigint[], _whole text[], _begins text[])
RETURNS TABLE (no bigint, lexeme text, positions smallint[], weights text[]) LANGUAGE plpgsql STABLE AS $$
BEGIN
  PERFORM clew.admit(_space);
  RETURN QUERY
    SELECT d.no, w.lexeme, w.positions, w.weights
      FROM clew.search_documents d CROSS JOIN LATERAL unnest(d.words) AS w
     WHERE d.space = _space AND d.no = ANY (_numbers) AND (w.lexeme = ANY (_whole)
        OR EXISTS (SELECT 1 FROM unnest(_begins) AS b (it) WHERE starts_with(w.lexeme, b.it)));
END $$;

-- Words that have a part in them.
CREATE OR REPLACE FUNCTION clew.search_words(_space bigint, _part text, _limit bigint) RETURNS SETOF text LANGUAGE plpgsql STABLE AS $$
BEGIN
  PERFORM clew.admit(_space);
  RETURN QUERY SELECT s.word FROM ts_stat(format('SELECT words FROM clew.search_documents WHERE space = %s', _space)) AS s
   WHERE strpos(s.word, _part) > 0 LIMIT _limit;
END $$;

-- The size of what a namespace has in it; how large the tables are tells of others too.
CREATE OR REPLACE FUNCTION clew.search_size(_space bigint) RETURNS bigint LANGUAGE plpgsql STABLE AS $$
DECLARE
  total bigint;
BEGIN
  PERFORM clew.admit(_space);
  SELECT coalesce(sum(pg_column_size(d.*)), 0) INTO total FROM clew.search_documents d WHERE d.space = _space;
  RETURN total;
END $$;
