"""A SQLite file of another program: it is read, and nothing is made beside it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from clew.core.errors import Unavailable


@contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """The file as it is at one moment, while the other program may go on writing.

    Where nothing is logged beside it, all is in the file, which is opened as one that never
    changes: otherwise SQLite would leave a log and its index there, in a folder that is not ours.
    Unavailable, at the end: it was written to meanwhile, so that nothing of it can be relied on.
    """
    before = _states(path)
    is_at_rest = not any(size for _, size in before[1:])
    how = "immutable=1" if is_at_rest else "mode=ro"
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as db:
        db.execute("BEGIN")
        yield db
    if is_at_rest and _states(path) != before:
        raise Unavailable(f"{path} was written while it was read: read it again")


def _states(path: Path) -> list[tuple[int, int]]:
    """When the file and what is logged beside it were written, and how long they are."""
    found = []
    for ending in ("", "-wal", "-journal"):
        try:
            stat = os.stat(f"{path}{ending}")
        except FileNotFoundError:
            found.append((0, 0))
        else:
            found.append((stat.st_mtime_ns, stat.st_size))
    return found
