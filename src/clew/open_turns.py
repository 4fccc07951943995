"""The turns of all threads that were started and have not ended: what a crash leaves behind.

Where a thread stands in its turn is remembered in tables as `clew.derived` keeps them. So a
question reads what was written since the last one, and the turns that it finds.

    threads   how far each one was read, where it stood then, and the marker of its open turn
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

import apsw
from msgspec import Struct

from clew import derived, tree
from clew.core.engine import Engine
from clew.core.errors import Corrupt, NotFound
from clew.core.model import Entry, Fact, Record, ThreadHead
from clew.derived import Known, Tables, step

if TYPE_CHECKING:
    from clew.store import Store

_PAGE = 1000
_STEP = 1000  # threads that are written in one step
_log = logging.getLogger("clew")

_TABLES = Tables(
    "turns",
    """
    CREATE TABLE threads (
        no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, birth TEXT NOT NULL, seq INTEGER NOT NULL,
        hash TEXT, leaf TEXT, marker TEXT
    ) STRICT;
    CREATE INDEX open_turns ON threads (id) WHERE marker IS NOT NULL;
    """,
)
_PUT = """
INSERT INTO threads (id, birth, seq, hash, leaf, marker) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET birth = excluded.birth, seq = excluded.seq, hash = excluded.hash,
    leaf = excluded.leaf, marker = excluded.marker
"""


class _Standing(Struct):
    """Where a thread stands: its leaf, and the marker of the turn that is open there."""

    leaf: str | None
    marker: str | None

    def follow(self, record: Record) -> bool:
        """Go on to the next record. False: it leads elsewhere, so one has to look there."""
        if not isinstance(record, Entry):
            return isinstance(record, Fact)
        if record.parent != self.leaf:
            return False
        self.leaf = record.id
        status = tree.turn_status(record)
        if status == "started":
            self.marker = record.id
        elif record.kind == "turn_marker" and status != "save_point":
            self.marker = None
        return True


def unfinished_turns(store: Store) -> dict[str, Entry]:
    """See `Store.unfinished_turns`."""

    def question(db: apsw.Connection) -> list[tuple[str, str]]:
        _catch_up(db, store)
        sql = "SELECT id, marker FROM threads WHERE marker IS NOT NULL"
        return cast("list[tuple[str, str]]", db.execute(sql).fetchall())

    found: list[tuple[str, Entry]] = []
    for id, marker in derived.ask(store, _TABLES, question):
        try:
            found.append((id, store.get(id).get(marker)))
        except NotFound:
            continue  # it is deleted, or was purged meanwhile
        except Corrupt as error:
            _log.warning("the open turn of thread %r cannot be read: %s", id, error)
    found.sort(key=lambda one: (one[1].time_us, one[0]))
    return dict(found)


def forget_turns(store: Store, threads: Iterable[str]) -> None:
    """Remove what is remembered of threads."""
    ids = [(id,) for id in threads]
    derived.forget(
        store, _TABLES, lambda db: db.executemany("DELETE FROM threads WHERE id = ?", ids)
    )


def _catch_up(db: apsw.Connection, store: Store) -> None:
    changes = derived.changes(db, store.engine)
    with step(db):
        db.executemany("DELETE FROM threads WHERE id = ?", [(id,) for id in changes.gone])
    rows: list[tuple[str | int | None, ...]] = []
    for head in changes.behind:
        try:
            rows.append(_row(db, store, head, changes.known.get(head.thread)))
        except NotFound:
            continue  # it was purged meanwhile
        except Corrupt as error:
            _log.warning("whether thread %r has an open turn: %s", head.thread, error)
        if len(rows) >= _STEP:
            _write(db, rows)
            rows = []
    _write(db, rows)


def _write(db: apsw.Connection, rows: list[tuple[str | int | None, ...]]) -> None:
    if rows:
        with step(db):
            db.executemany(_PUT, rows)


def _row(
    db: apsw.Connection, store: Store, head: ThreadHead, seen: Known | None
) -> tuple[str | int | None, ...]:
    """What there is to remember of a thread that has changed."""
    if seen is not None and seen.birth == head.birth and 0 < seen.seq < head.seq:
        sql = "SELECT leaf, marker FROM threads WHERE id = ?"
        for kept in db.execute(sql, (head.thread,)):
            standing = _Standing(*kept)
            last = _follow(store.engine, head.thread, seen, standing)
            if last is not None:
                return head.thread, head.birth, last.seq, last.hash, standing.leaf, standing.marker
    at_seq = store.engine.read(head.thread, after=head.seq - 1, limit=1) if head.seq else []
    thread = store.get(head.thread, deleted=True)
    leaf = thread.info.leaf
    marker = tree.unfinished_turn(thread, leaf)
    hash = at_seq[0].hash if at_seq else None
    return head.thread, head.birth, head.seq, hash, leaf, None if marker is None else marker.id


def _follow(engine: Engine, thread: str, seen: Known, standing: _Standing) -> Record | None:
    """Read on from where a thread was left: the last record; None if one has to look anew."""
    last, *page = engine.read(thread, after=seen.seq - 1, limit=_PAGE)
    if last.hash != seen.hash:
        return None  # it is another thread, or an older one that was brought back
    page = page or engine.read(thread, after=last.seq, limit=_PAGE)  # it may fill one alone
    while page:
        if not all(standing.follow(record) for record in page):
            return None
        last = page[-1]
        page = engine.read(thread, after=last.seq, limit=_PAGE)
    return last
