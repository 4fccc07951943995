"""The SQLite engine: one file, safe among threads and processes of one host.

Reading tour: `engine` is the waist; its writers share transactions through `shared.group_commit`,
and with those of other processes through `writer_queue`, `mailbox` and `guests`. `errors` says what
SQLite's mean. `place` refuses bad places, `connections` opens, guards and closes, `schema`
recognises a store and brings an older one up to date. `write` creates and appends; rows, reading
and purging are in `shared.tables`, which the files engine uses too. `blobs` and `leases` are what
their names say. `verify` brings the file's rows to `shared.audit`. For tools: `doctor` is the file
with all its namespaces, and what it says of itself; `repair` makes a sound file from a damaged one.
"""

from clew.engines.sqlite.engine import SQLiteEngine

__all__ = ["SQLiteEngine"]
