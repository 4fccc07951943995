"""The SQLite engine: one file, safe among threads and processes of one host.

Reading tour: `engine` is the waist (writers share transactions through `engines/_commit`);
`connections` opens, guards and closes; `journal` writes and `reading` reads, both through `rows`;
`blobs`, `leases` and `purge` are what their names say; `check` verifies; `place` refuses bad
places.
"""

from clew.engines.sqlite.engine import SQLiteEngine

__all__ = ["SQLiteEngine"]
