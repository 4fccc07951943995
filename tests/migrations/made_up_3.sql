-- A third format, made up: what a newer Clew might do to a store of those before it.

CREATE TABLE colours (
  no    INTEGER PRIMARY KEY,
  name  TEXT    NOT NULL UNIQUE,
  shade INTEGER NOT NULL
) STRICT;

INSERT INTO colours (no, name, shade) VALUES (1, 'grey', 5);

ALTER TABLE threads ADD COLUMN colour INTEGER NOT NULL DEFAULT 1;
ALTER TABLE records ADD COLUMN weight INTEGER;

DROP INDEX threads_by_id;
DROP INDEX threads_by_created;
DROP INDEX threads_by_updated;
DROP INDEX threads_unlisted;
DROP INDEX blobs_by_hash;

CREATE UNIQUE INDEX threads_by_id ON threads (space, id, colour) WHERE shelf < 3;
CREATE INDEX threads_by_created ON threads (space, shelf, created_us DESC, id, colour);
CREATE INDEX threads_by_updated ON threads (space, shelf, listed_us, id) WHERE listed_us > 0;
CREATE INDEX threads_unlisted ON threads (space, shelf, colour) WHERE listed_us IS NULL;
CREATE UNIQUE INDEX blobs_by_hash ON blobs (space, hash, size);

-- A table that is made anew.
DROP INDEX tags_by_thread;
ALTER TABLE tags RENAME TO tags_before;

CREATE TABLE tags (
  thread INTEGER NOT NULL,
  tag    TEXT    NOT NULL,
  space  INTEGER NOT NULL,
  PRIMARY KEY (space, tag, thread)
) STRICT, WITHOUT ROWID;

CREATE INDEX tags_by_thread ON tags (thread);

INSERT INTO tags (space, tag, thread) SELECT space, tag, thread FROM tags_before;
DROP TABLE tags_before;
