"""The SQLite engine: one file, safe among threads and processes of one host.

Reading tour: `engine` is the waist (writers share transactions through `engines/_commit`);
`connections` opens, guards and closes; `format` recognises a store and brings an older one up to
date; `spaces` are its namespaces; `journal` writes and `reading` reads, both through `rows`;
`blobs`, `leases` and `purge` are what their names say; `check` verifies by `replay`; `place`
refuses bad places. For tools: `whole` is the file with all its namespaces, `workshop` repairs by
`salvage`.
"""

from clew.engines.sqlite.engine import SQLiteEngine

__all__ = ["SQLiteEngine"]
