"""The import of another store's file: how it is opened, and what is told when it is done."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct, field

from clew import foreign_file
from clew.core.errors import Corrupt, NotFound, Unsupported


class Imported(Struct, kw_only=True):
    """What an import has done. It can be done again: then only what is new is written.

    `threads` counts those that the file was brought into, `entries` what was written of it now:
    items, events or checkpoints. `left` is what was left out, each with the reason.
    """

    threads: int = 0
    entries: int = 0
    left: list[str] = field(default_factory=list)


@contextmanager
def reading(
    path: str | os.PathLike[str], owner: str, tables: tuple[str, ...]
) -> Iterator[sqlite3.Connection]:
    """A SQLite file of a framework, to be read, and never made or changed.

    NotFound: there is no file. Unsupported: it is none of the owner's. Corrupt: its pages are
    damaged. Unavailable, at the end: it was written to meanwhile.
    """
    file = Path(path)
    if not file.is_file():
        raise NotFound("file", str(file))
    try:
        with foreign_file.reading(file) as db:
            found = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
            for name in tables:
                if name not in found:
                    raise Unsupported(f"{file} is no file of {owner}: it has no table {name!r}")
            yield db
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_CORRUPT:
            raise Corrupt(str(file), f"it cannot be read to its end: {error}") from error
        raise Unsupported(f"{file} is no file of {owner}: {error}") from error
