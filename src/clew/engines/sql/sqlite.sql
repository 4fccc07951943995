-- The schema of a SQLite store, format 2: equal to the sum of the migrations beside it (tested).
--
--   namespaces  tenants; no. 1 is 'default'
--   threads     one row a thread: where it stood after its record `seq` (leaf, tail, updated_us) and the
--               columns lists filter by
--   records     every entry, leaf move and fact; the one truth. A record's number is its thread's
--               number and its seq, so that a thread lies together and a range is one scan
--   segments    where a run of consecutive entries begins, and what it hangs on; a path is a few
--               ranges of records, from segment to segment
--   facts       the record that holds a thread's latest value of a key
--   tags        the tags fact, one row a tag, to list by
--   leases      who may write a thread; the row stays, so that the fence grows
--   blobs       bytes by their hash, compressed; bodies over 8 KiB are here
--   blob_uses   blobs that an entry says it refers to
--   packs       runs of cold entries, compressed; such an entry has no row in records
--   packed_ids  where an entry of a pack is found by its id
--
-- The life of a record. An append puts large bodies into blobs, writes the records under the next
-- seqs of their thread, a segment where an entry does not follow the one before it, facts and tags
-- as they are now, and last the thread's row: all in one transaction. A record is never changed.
-- An append of entries alone leaves the row as it is, if the thread is out of the list by update
-- (listed_us is NULL): the thread then stands on its last record. One page less for every append.
-- A fork writes one row, in threads, and reads the records of its origin in place. A purge removes
-- the records of a thread, except for entries on the path of a fork, and the blobs that only those
-- records used.
--
-- A pack moves: in one transaction a run of a thread's entries leaves records and is in a pack. Moves,
-- facts, entries with a blob and the last record of a thread stay in records.
--
-- threads, segments, facts, tags, blob_uses and packed_ids are sums over records: verify compares them with a
-- replay.
--
-- An entry's hash covers its parent's hash, and its body by body_hash. So a chain is checked without
-- its bodies, and one body can be erased while every hash stays as it is.
--
-- A namespace sees nothing of another one. Whatever is entered by a name from outside (an id of a
-- thread, a hash, a filter of a list) has the namespace in its key: threads, tags, blobs. The rest is
-- entered by the number of a thread, a record or a blob, which only ever comes from a row that was
-- found in its namespace: there it would say the same thing again, and cost every append.
--
-- Times are microseconds since 1970, UTC. Bodies are bytes of canonical JSON. Hashes are text, with
-- their algorithm in front ('b3:…'); the two of a record, of which there are the most, are bytes.

CREATE TABLE namespaces (
  no   INTEGER PRIMARY KEY,
  name TEXT    NOT NULL UNIQUE
) STRICT;

INSERT INTO namespaces (no, name) VALUES (1, 'default');

CREATE TABLE threads (
  no            INTEGER PRIMARY KEY AUTOINCREMENT,
  space         INTEGER NOT NULL,           -- namespaces.no
  id            TEXT    NOT NULL,
  created_us    INTEGER NOT NULL,
  updated_us    INTEGER NOT NULL,
  listed_us     INTEGER,                    -- updated_us, for the index; NULL since it last changed
  seq           INTEGER NOT NULL,           -- of the last record
  leaf          TEXT,                       -- the entry the thread stands on
  leaf_hash     TEXT,
  tail          TEXT,                       -- the last entry written here
  shelf         INTEGER NOT NULL,           -- 0 in use, 1 archived, 2 deleted, 3 purged but for what forks share
  deleted_us    INTEGER,
  parent        TEXT,                       -- the thread that this one works for
  status        TEXT,
  workspace     TEXT,
  origin        TEXT,                       -- fork: the id of the thread it was forked from,
  origin_entry  TEXT,                       --   the entry, NULL for before the root,
  origin_hash   TEXT,                       --   its hash,
  origin_no     INTEGER,                    --   and the number of its record
  hash          TEXT    NOT NULL            -- over what the thread was created with
) STRICT;

CREATE UNIQUE INDEX threads_by_id        ON threads (space, id)                             WHERE shelf < 3;
CREATE INDEX        threads_by_created   ON threads (space, shelf, created_us DESC, id);
CREATE INDEX        threads_by_updated   ON threads (space, shelf, listed_us DESC, id)      WHERE listed_us IS NOT NULL;
CREATE INDEX        threads_unlisted     ON threads (space, shelf)                          WHERE listed_us IS NULL;
CREATE INDEX        threads_by_parent    ON threads (space, parent, created_us DESC, id)    WHERE parent IS NOT NULL;
CREATE INDEX        threads_by_workspace ON threads (space, workspace, created_us DESC, id) WHERE workspace IS NOT NULL;
CREATE INDEX        threads_by_origin    ON threads (space, origin, created_us DESC, id)    WHERE origin IS NOT NULL;
CREATE INDEX        threads_by_source    ON threads (origin_no)                             WHERE origin_no IS NOT NULL;

CREATE TABLE records (
  no        INTEGER PRIMARY KEY,            -- the thread's number << 32 | seq
  type      INTEGER NOT NULL,               -- 0 entry, 1 move, 2 fact
  id        TEXT    NOT NULL,
  time_us   INTEGER NOT NULL,
  hash      BLOB    NOT NULL,
  parent    TEXT,                           -- entry: its parent; move: the new leaf
  kind      TEXT,                           -- entry: its kind; fact: its key
  turn      TEXT,
  format    TEXT,
  meta      BLOB,
  blobs     TEXT,                           -- hashes of blob_uses, comma-separated
  body_hash BLOB,                           -- entry: the hash of its body, wherever that is
  blob      INTEGER,                        -- blobs.no of the body, when it is large
  body      BLOB                            -- last, so that the rest is read without it
) STRICT;

CREATE UNIQUE INDEX records_by_id   ON records (id, no >> 32);
CREATE INDEX        records_by_blob ON records (blob) WHERE blob IS NOT NULL;

CREATE TABLE segments (
  first  INTEGER PRIMARY KEY,               -- the number of the first entry's record
  parent INTEGER                            -- that of the entry it hangs on; NULL: a root
) STRICT;

CREATE TABLE facts (
  thread INTEGER NOT NULL,
  key    TEXT    NOT NULL,
  record INTEGER NOT NULL,
  PRIMARY KEY (thread, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE tags (
  space  INTEGER NOT NULL,
  tag    TEXT    NOT NULL,
  thread INTEGER NOT NULL,
  PRIMARY KEY (space, tag, thread)
) STRICT, WITHOUT ROWID;

CREATE INDEX tags_by_thread ON tags (thread);

CREATE TABLE leases (
  thread     INTEGER PRIMARY KEY,
  fence      INTEGER NOT NULL,
  owner      TEXT,                          -- NULL: released
  turn       TEXT,
  created_us INTEGER NOT NULL,
  until_us   INTEGER NOT NULL,              -- wall time, to be shown
  until_ns   INTEGER NOT NULL,              -- the clock since boot, to be compared
  era        TEXT    NOT NULL,              -- which boot that was
  hash       TEXT    NOT NULL               -- over the thread's id and all of the above
) STRICT;

CREATE TABLE blobs (
  no     INTEGER PRIMARY KEY,
  space  INTEGER NOT NULL,                  -- namespaces.no
  hash   TEXT    NOT NULL,
  size   INTEGER NOT NULL,                  -- of the bytes themselves
  codec  TEXT    NOT NULL,                  -- raw or zstd
  stored TEXT    NOT NULL,                  -- the hash of `data` as it is stored
  put_us INTEGER NOT NULL,
  data   BLOB    NOT NULL
) STRICT;

CREATE UNIQUE INDEX blobs_by_hash ON blobs (space, hash);

CREATE TABLE blob_uses (
  blob   INTEGER NOT NULL,
  record INTEGER NOT NULL,
  PRIMARY KEY (blob, record)
) STRICT, WITHOUT ROWID;

CREATE INDEX blob_uses_by_record ON blob_uses (record);

CREATE TABLE packs (
  first      INTEGER PRIMARY KEY,           -- the number of its first entry's record
  last       INTEGER NOT NULL,              -- that of its last
  entries    INTEGER NOT NULL,              -- how many it holds
  hashes     BLOB    NOT NULL,              -- of each entry its hash, 32 bytes
  stored     TEXT    NOT NULL,              -- the hash of all of the above and of `data`
  data       BLOB    NOT NULL               -- the other columns of the entries, as one zstd frame
) STRICT;

CREATE TABLE packed_ids (
  key INTEGER NOT NULL,                     -- 48 bits of the hash of an entry's id
  no  INTEGER NOT NULL,                     -- the number of its record
  PRIMARY KEY (key, no)
) STRICT, WITHOUT ROWID;
