"""The stores that are measured, in one folder that goes away afterwards.

The big ones take a while to build and serve several groups, so they are built when they are
first asked for. Building is relaxed; what is measured is always opened with full durability.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import clew
from bench import child
from bench.messages import FORMAT, Message, messages
from bench.pace import MANY
from bench.progress import say
from clew.messages.incoming import message_draft

FEW_ENTRIES = 100
FEW_THREADS = 1_000
_BATCH = 1_000


class Workshop:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open = ExitStack()
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def new_path(self) -> Path:
        """A place where nothing is yet, in a folder of its own."""
        folder = self._folder / str(next(self._numbers))
        folder.mkdir()
        return folder / "store.db"

    def open(self, path: Path | str | None = None, **options: Any) -> clew.Store:
        """A store that stays open until the end of the run."""
        return self._open.enter_context(clew.open(path or self.new_path(), **options))

    @cached_property
    def long_thread(self) -> clew.Thread:
        """A thread of 100,000 entries. Its store has room for short ones beside it."""
        say(f"building a thread of {MANY:,} entries")
        path = self.new_path()
        with clew.open(path, durability="relaxed") as store:
            thread = store.create(title="The long one")
            extend(thread, messages(MANY))
        return self.open(path).get(thread.id)

    @cached_property
    def crowded_store(self) -> clew.Store:
        say(f"building a store of {MANY:,} threads")
        return self._populated(MANY)

    @cached_property
    def small_store(self) -> clew.Store:
        return self._populated(FEW_THREADS)

    def _populated(self, threads: int) -> clew.Store:
        path = self.new_path()
        with clew.open(path, durability="relaxed") as store:
            for number, message in enumerate(messages(threads)):
                store.create(title=f"Thread number {number}").append_message(message)
        return self.open(path)


def short_thread(store: clew.Store) -> clew.Thread:
    """A new thread of 100 entries."""
    thread = store.create(title="A short one")
    extend(thread, messages(FEW_ENTRIES))
    return thread


def extend(thread: clew.Thread, batch: Iterable[Message]) -> None:
    """Append many messages quickly."""
    drafts = (message_draft(message, FORMAT) for message in batch)
    while part := list(itertools.islice(drafts, _BATCH)):
        thread.append(part)


def size_on_disk(path: Path) -> int:
    """The bytes of a database and of whatever lies beside it under its name."""
    return sum(file.stat().st_size for file in path.parent.glob(path.name + "*"))


_GROW_LOG = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("CREATE TABLE padding (bytes BLOB)")
db.execute("INSERT INTO padding VALUES (zeroblob(4500000))")
db.commit()
db.execute("DROP TABLE padding")
db.commit()
db.execute("PRAGMA wal_checkpoint(RESTART)")
"""


def grow_log(path: Path) -> None:
    """Let the log of a new database in WAL mode have the size that it has in one that is in use.

    While it still grows, the file system has to note its new length with each sync. It must be
    open elsewhere, or the log goes away. In a process of its own, because two SQLite libraries in
    one process undo each other's locks.
    """
    child.run(_GROW_LOG, path)
