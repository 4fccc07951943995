-- A store of format 1, as Clew 0.1 wrote it: a thread with branches, large body, blobs and facts,
-- forks, one of them of a thread that was purged, an archived and a deleted thread, leases.

BEGIN;
PRAGMA application_id = 1129071959;
PRAGMA user_version = 1;

CREATE TABLE threads (
  no            INTEGER PRIMARY KEY AUTOINCREMENT,
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
CREATE UNIQUE INDEX threads_by_id        ON threads (id) WHERE shelf < 3;
CREATE INDEX threads_by_created   ON threads (shelf, created_us DESC, id);
CREATE INDEX threads_by_updated   ON threads (shelf, listed_us DESC, id)      WHERE listed_us IS NOT NULL;
CREATE INDEX threads_unlisted     ON threads (shelf)                          WHERE listed_us IS NULL;
CREATE INDEX threads_by_parent    ON threads (parent, created_us DESC, id)    WHERE parent IS NOT NULL;
CREATE INDEX threads_by_workspace ON threads (workspace, created_us DESC, id) WHERE workspace IS NOT NULL;
CREATE INDEX threads_by_origin    ON threads (origin, created_us DESC, id)    WHERE origin IS NOT NULL;
CREATE INDEX threads_by_source    ON threads (origin_no)                      WHERE origin_no IS NOT NULL;
CREATE TABLE records (
  no      INTEGER PRIMARY KEY,              -- the thread's number << 32 | seq
  type    INTEGER NOT NULL,                 -- 0 entry, 1 move, 2 fact
  id      TEXT    NOT NULL,
  time_us INTEGER NOT NULL,
  hash    TEXT    NOT NULL,
  parent  TEXT,                             -- entry: its parent; move: the new leaf
  kind    TEXT,                             -- entry: its kind; fact: its key
  turn    TEXT,
  format  TEXT,
  meta    BLOB,
  blobs   TEXT,                             -- hashes of blob_uses, comma-separated
  body    BLOB,                             -- NULL when it is in a blob
  blob    INTEGER
) STRICT;
CREATE UNIQUE INDEX records_by_id   ON records (id, no >> 32);
CREATE INDEX records_by_blob ON records (blob) WHERE blob IS NOT NULL;
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
  tag    TEXT    NOT NULL,
  thread INTEGER NOT NULL,
  PRIMARY KEY (tag, thread)
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
  hash   TEXT    NOT NULL,
  size   INTEGER NOT NULL,                  -- of the bytes themselves
  codec  TEXT    NOT NULL,                  -- raw or zstd
  stored TEXT    NOT NULL,                  -- the hash of `data` as it is stored
  put_us INTEGER NOT NULL,
  data   BLOB    NOT NULL
) STRICT;
CREATE UNIQUE INDEX blobs_by_hash ON blobs (hash);
CREATE TABLE blob_uses (
  blob   INTEGER NOT NULL,
  record INTEGER NOT NULL,
  PRIMARY KEY (blob, record)
) STRICT, WITHOUT ROWID;
CREATE INDEX blob_uses_by_record ON blob_uses (record);

INSERT INTO threads VALUES (1,'t',1700000000000000,1700000000000004,NULL,9,'d','b3:9e5d6d8b86621d1e17b9be207e41139292574cd1a2f12e9140d25db197a7bf91','d',0,NULL,'boss','busy','/w',NULL,NULL,NULL,NULL,'b3:35cc70a484b686aa2ac24e09ed79852c0da3faff7af46cdb8086e6f94075c249');
INSERT INTO threads VALUES (2,'fork',1700000000000000,1700000000000000,1700000000000000,2,'f2','b3:159de45d77a1ea878d44a61c20f9f0f6c1ce28b2de6c5fa6182a839d004ee3a4','f2',0,NULL,NULL,NULL,NULL,'t','c','b3:1dcba674a4d99941494d51fa7404df9ce07b0036c1046d6d5fda6eef3219fe6c',4294967303,'b3:b08ee997256c827f2082ec5aff5a4d71459d934ccbdbcaefe314d263cf387d61');
INSERT INTO threads VALUES (3,'origin',1700000000000010,1700000000000000,NULL,3,NULL,NULL,NULL,3,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'b3:f675ccc2ac570deb82e1c3f01841cc7b659fa33bf81aa1a33740d5abba78363e');
INSERT INTO threads VALUES (4,'heir',1700000000000000,1700000000000000,1700000000000000,1,'h1','b3:d6f5a5756156ae3a2f4f00680cb738d9ea830e8ea48b7514df210eb74b3556dd','h1',0,NULL,NULL,NULL,NULL,'origin','o2','b3:98737bfa18c92dbe8c2ca208f5a995aba20514b841e0b07d49f0c245866c890b',12884901890,'b3:abc50efccf5f8c60ddcdebdaf7f0161621facece51fe4a5a3af985da5a9d7ac4');
INSERT INTO threads VALUES (5,'origin',1700000000000020,1700000000000000,NULL,1,'again','b3:1139c089d34fe60ea2fcc5a7372c18573df869ec2603f578c8c94bf7c446d4ab','again',0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'b3:d1e78d53587098c11dffdc6241d34df04c285194e49c38aeb2c2632dacc40173');
INSERT INTO threads VALUES (6,'archived',1700000000000030,1700000000000030,1700000000000030,2,NULL,NULL,NULL,1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'b3:c7c60016776984b0bf5785d5ee3baccde7c50a107c3694c06ce5401fc3ddeaf6');
INSERT INTO threads VALUES (7,'deleted',1700000000000040,1700000000000000,NULL,2,'z','b3:80884cc0f07588e6a0f7467fc51a32179cdb085fc648982bd9c70a144f03a9f6','z',2,1700000000000041,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'b3:d32735849630a91b8b29e3698064df7ceda13ce372c93a617366ccaf109ba7b2');
INSERT INTO records VALUES (12884901889,0,'o1',1700000000000000,'b3:d33796c032c848ded0bc55716702e7cdb450068bba291e0e3ab20d66dc5e5283',NULL,'user_message',NULL,NULL,NULL,NULL,X'7B226E223A226F31227D',NULL);
INSERT INTO records VALUES (12884901890,0,'o2',1700000000000000,'b3:98737bfa18c92dbe8c2ca208f5a995aba20514b841e0b07d49f0c245866c890b','o1','user_message',NULL,NULL,NULL,NULL,X'7B226E223A226F32227D',NULL);
INSERT INTO records VALUES (17179869185,0,'h1',1700000000000000,'b3:d6f5a5756156ae3a2f4f00680cb738d9ea830e8ea48b7514df210eb74b3556dd','o2','user_message',NULL,NULL,NULL,NULL,X'7B226E223A226831227D',NULL);
INSERT INTO records VALUES (21474836481,0,'again',1700000000000000,'b3:1139c089d34fe60ea2fcc5a7372c18573df869ec2603f578c8c94bf7c446d4ab',NULL,'user_message',NULL,NULL,NULL,NULL,X'7B226E223A22616761696E227D',NULL);
INSERT INTO records VALUES (25769803777,2,'fact5',1700000000000030,'b3:3e11d1c312534c6aa4d2557ad2e2cf0de6aafd8238585c56de9d33ed429e55ea',NULL,'archived',NULL,NULL,NULL,NULL,X'74727565',NULL);
INSERT INTO records VALUES (25769803778,2,'fact6',1700000000000030,'b3:7713282dbd6b2b73339638a418a24558f4b1f978d66c057d1102b2b3265a18a0',NULL,'tags',NULL,NULL,NULL,NULL,X'5B2278225D',NULL);
INSERT INTO records VALUES (30064771073,0,'z',1700000000000000,'b3:80884cc0f07588e6a0f7467fc51a32179cdb085fc648982bd9c70a144f03a9f6',NULL,'user_message',NULL,NULL,NULL,NULL,X'7B226E223A227A227D',NULL);
INSERT INTO records VALUES (30064771074,2,'fact7',1700000000000041,'b3:4af6252138ad5810cc9def3495e442ac9d73a965300e02fcabfbedec58c34996',NULL,'deleted_us',NULL,NULL,NULL,NULL,X'31373030303030303030303030303431',NULL);
INSERT INTO records VALUES (4294967297,2,'fact1',1700000000000000,'b3:0cbd4d4e7d6c823f5cc1dabc01ba24032aa41f982541ff6548d6e6d420e6b6ea',NULL,'title',NULL,NULL,NULL,NULL,X'7B2274657874223A224120746872656164206F6620666F726D61742031222C22737461747573223A227265616479222C22736F75726365223A22686F7374222C2274696D655F7573223A313730303030303030303030303030307D',NULL);
INSERT INTO records VALUES (4294967298,2,'fact2',1700000000000000,'b3:bc0722097f00da41b853038691b3f5726317c2d730c24e1af51f4d6c8f7b1b4f',NULL,'tags',NULL,NULL,NULL,NULL,X'5B2278222C2279225D',NULL);
INSERT INTO records VALUES (4294967299,2,'fact3',1700000000000000,'b3:6b91ceaf06d86e2ba50dd229084520219642c695286e39524b8fd0164646a9b5',NULL,'workspace',NULL,NULL,NULL,NULL,X'222F7722',NULL);
INSERT INTO records VALUES (4294967300,2,'fact4',1700000000000000,'b3:2e480e25611009124654390c04c24a90ccc42ab7e0a977d3d58c17667193e41e',NULL,'status',NULL,NULL,NULL,NULL,X'226275737922',NULL);
INSERT INTO records VALUES (4294967301,0,'a',1700000000000000,'b3:ee85dd876059eb3a7545ada05717c32f2c3832d34f8b4122500a9a3798cc8303',NULL,'user_message','turn-1','plain',X'7B226D6F64656C223A226D227D',NULL,X'7B22726F6C65223A2275736572222C22636F6E74656E74223A224772C3BCC39F65227D',NULL);
INSERT INTO records VALUES (4294967302,0,'b',1700000000000001,'b3:456ee8fc4de2dd88d239eb78bd3e7399ed8d4ca103084933a8a766926078fbb9','a','assistant_message',NULL,NULL,NULL,NULL,NULL,3);
INSERT INTO records VALUES (4294967303,0,'c',1700000000000002,'b3:1dcba674a4d99941494d51fa7404df9ce07b0036c1046d6d5fda6eef3219fe6c','b','custom',NULL,NULL,NULL,'b3:61f8aabb3e3c35e50bce572b875ec47ec3bdf293d1dab0db56fd206c638ac2fb',X'5B312E352C6E756C6C2C225C7564383364225D',NULL);
INSERT INTO records VALUES (4294967304,1,'m1',1700000000000003,'b3:17f5e345527f77f2eefce316f4360ece92f43aa523e9b20dc58805966f17141f','a',NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO records VALUES (4294967305,0,'d',1700000000000004,'b3:9e5d6d8b86621d1e17b9be207e41139292574cd1a2f12e9140d25db197a7bf91','a','user_message',NULL,NULL,NULL,NULL,X'34',NULL);
INSERT INTO records VALUES (8589934593,0,'f1',1700000000000000,'b3:5182aaef1975acf0b05ac23e99f2e657a36dbe0dbdc95ebee165974cb8f47e4c','c','user_message',NULL,NULL,NULL,NULL,X'7B226E223A226631227D',NULL);
INSERT INTO records VALUES (8589934594,0,'f2',1700000000000000,'b3:159de45d77a1ea878d44a61c20f9f0f6c1ce28b2de6c5fa6182a839d004ee3a4','f1','user_message',NULL,NULL,NULL,NULL,X'7B226E223A226632227D',NULL);
INSERT INTO segments VALUES (12884901889,NULL);
INSERT INTO segments VALUES (17179869185,12884901890);
INSERT INTO segments VALUES (21474836481,NULL);
INSERT INTO segments VALUES (30064771073,NULL);
INSERT INTO segments VALUES (4294967301,NULL);
INSERT INTO segments VALUES (4294967305,4294967301);
INSERT INTO segments VALUES (8589934593,4294967303);
INSERT INTO facts VALUES (1,'status',4294967300);
INSERT INTO facts VALUES (1,'tags',4294967298);
INSERT INTO facts VALUES (1,'title',4294967297);
INSERT INTO facts VALUES (1,'workspace',4294967299);
INSERT INTO facts VALUES (6,'archived',25769803777);
INSERT INTO facts VALUES (6,'tags',25769803778);
INSERT INTO facts VALUES (7,'deleted_us',30064771074);
INSERT INTO tags VALUES ('x',1);
INSERT INTO tags VALUES ('x',6);
INSERT INTO tags VALUES ('y',1);
INSERT INTO leases VALUES (1,1,'worker','turn-1',1700000007000000,1700000067000000,61000000000,'boot 1','b3:808ee8d3c48c0370b38d53911aa1c628beacd81602e3a67f191e09ef6be44f0d');
INSERT INTO leases VALUES (2,1,NULL,NULL,1700000007000000,1700000067000000,61000000000,'boot 1','b3:10a8c54f8bfa351589cfd22c7cc1963431d95553f380b8be8957195b5d4c61cd');
INSERT INTO blobs VALUES (1,'b3:61f8aabb3e3c35e50bce572b875ec47ec3bdf293d1dab0db56fd206c638ac2fb',25,'raw','b3:61f8aabb3e3c35e50bce572b875ec47ec3bdf293d1dab0db56fd206c638ac2fb',1700000007000000,X'6279746573207468617420616E20656E747279206E616D6573');
INSERT INTO blobs VALUES (2,'b3:eb49601aa13a7af05df487a8574558090e5e1c024e4601e6a46f7219640e194c',23,'raw','b3:eb49601aa13a7af05df487a8574558090e5e1c024e4601e6a46f7219640e194c',1700000007000000,X'62797465732074686174206E6F626F6479206E616D6573');
INSERT INTO blobs VALUES (3,'b3:b63abf6ff6ddcdd6f94c0fb20fa609e3db02bb64eb46ed93b05487854a7f2ec8',14002,'zstd','b3:0a54c687bf03c620e605a763a61fb6d4d0946a43e15f565d46b5757d84422ee2',1700000007000000,X'28B52FFD60B235C50000802261206C6F6E6720616E73776572202201009F36F85907');
INSERT INTO blob_uses VALUES (1,4294967303);
UPDATE sqlite_sequence SET seq = 7 WHERE name = 'threads';
COMMIT;
