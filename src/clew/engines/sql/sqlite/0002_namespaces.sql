-- Namespaces: every thread and every blob belongs to one; what was there before is in 'default'.
--
-- Columns are added, tables with much in them are not rebuilt: a large store is migrated in a moment.

CREATE TABLE namespaces (
  no   INTEGER PRIMARY KEY,
  name TEXT    NOT NULL UNIQUE
) STRICT;

INSERT INTO namespaces (no, name) VALUES (1, 'default');

ALTER TABLE threads ADD COLUMN space         INTEGER NOT NULL DEFAULT 1  /* namespaces.no */;
ALTER TABLE blobs   ADD COLUMN space  INTEGER NOT NULL DEFAULT 1         /* namespaces.no */;

DROP INDEX threads_by_id;
DROP INDEX threads_by_created;
DROP INDEX threads_by_updated;
DROP INDEX threads_unlisted;
DROP INDEX threads_by_parent;
DROP INDEX threads_by_workspace;
DROP INDEX threads_by_origin;
DROP INDEX blobs_by_hash;

CREATE UNIQUE INDEX threads_by_id        ON threads (space, id) WHERE shelf < 3;
CREATE INDEX        threads_by_created   ON threads (space, shelf, created_us DESC, id);
CREATE INDEX        threads_by_updated   ON threads (space, shelf, listed_us DESC, id)      WHERE listed_us IS NOT NULL;
CREATE INDEX        threads_unlisted     ON threads (space, shelf)                          WHERE listed_us IS NULL;
CREATE INDEX        threads_by_parent    ON threads (space, parent, created_us DESC, id)    WHERE parent IS NOT NULL;
CREATE INDEX        threads_by_workspace ON threads (space, workspace, created_us DESC, id) WHERE workspace IS NOT NULL;
CREATE INDEX        threads_by_origin    ON threads (space, origin, created_us DESC, id)    WHERE origin IS NOT NULL;
CREATE UNIQUE INDEX blobs_by_hash        ON blobs (space, hash);

-- A list by tag enters here, so the tags know their namespace too.
DROP INDEX tags_by_thread;
ALTER TABLE tags RENAME TO tags_before;

CREATE TABLE tags (
  space  INTEGER NOT NULL,
  tag    TEXT    NOT NULL,
  thread INTEGER NOT NULL,
  PRIMARY KEY (space, tag, thread)
) STRICT, WITHOUT ROWID;

CREATE INDEX tags_by_thread ON tags (thread);

INSERT INTO tags (space, tag, thread) SELECT 1, tag, thread FROM tags_before;
DROP TABLE tags_before;
