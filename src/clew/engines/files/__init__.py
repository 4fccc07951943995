"""The files engine: a folder of JSONL files, one for each thread, to read with any tool.

Reading tour: `engine` is the waist; `journal` is one thread's file, written through `batch`, read
through `lines`, its end judged by `tail`; `shared` is what they have in common; `index` is a
cache of where things are, filled by `indexing`; `locks`, `leases`, `blobs`, `purge`, `names` are
what their names say; `check` verifies; `place` is the folder, `spaces` are the folders of other
namespaces in it; every change goes through `disk`. For tools: `whole` is all of them, `workshop`
repairs by `salvage`.
"""

from clew.engines.files.engine import FilesEngine

__all__ = ["FilesEngine"]
