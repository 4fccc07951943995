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
CREATE INDEX IF NOT EXISTS search_documents_by_thread ON clew.search_documents (space, thread, seq);
CREATE INDEX IF NOT EXISTS search_documents_by_word ON clew.search_documents USING gin (words);
