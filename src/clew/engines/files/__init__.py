"""The files engine: a folder of JSONL files, one for each thread, to read with any tool.

Reading tour: `engine` is the waist, `open_store` what all threads of an open store share. `journal`
is one thread's file and how it grows; its lines are `core.lines`, `thread_file` opens it with care,
`tail` tells a torn end from damage. `index` is a cache of where things are, in SQLite, with the
tables of `shared.tables`; `changes` keeps it up to date with all files. `place` is the folder with
its namespaces, `disk` every system call that changes something, `locks` keep processes apart.
`blobs`, `leases`, `pack` and `purge` are what their names say; `frames` are what a packed file
holds. `verify` brings the lines to `shared.audit`.
For tools: `doctor` is the folder with all its namespaces, and what it says of itself; `repair`
makes a sound folder from a damaged one.
"""

from clew.engines.files.engine import FilesEngine

__all__ = ["FilesEngine"]
