-- Packs, format 2: cold entries, compressed. What each table is for, ../sqlite.sql says.

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
