"""Removing a thread for good, but for the entries that forks share with it.

What forks need stays under the thread's row, which nobody can see any more (shelf 3). It goes
with the last fork that needs it.
"""

from __future__ import annotations

import apsw

from clew.engines.sqlite import rows
from clew.engines.sqlite.journal import PURGED
from clew.engines.sqlite.query import every, one, value
from clew.engines.sqlite.rows import Range
from clew.model import Purged


def purge(db: apsw.Connection, thread: str) -> Purged:
    row = rows.thread_row(db, thread)
    for table in ("facts", "tags", "leases"):
        db.execute(f"DELETE FROM {table} WHERE thread = ?", (row.no,))
    db.execute(
        "UPDATE threads SET shelf = ?, leaf = NULL, leaf_hash = NULL, tail = NULL,"
        " deleted_us = NULL, status = NULL, workspace = NULL WHERE no = ?",
        (PURGED, row.no),
    )
    removed, kept, kept_for = _remove_unneeded(db, row.no)
    if not kept:
        _collect(db, row.no, row.origin_thread)
    return Purged(thread=thread, records=removed, kept=kept, kept_for=kept_for)


def _remove_unneeded(db: apsw.Connection, no: int) -> tuple[int, int, tuple[str, ...]]:
    """Remove the records of a purged thread that no fork's path runs through."""
    forks, needed = _needs(db, no)
    doomed = [
        (record, seq)
        for record, seq in db.execute("SELECT no, seq FROM records WHERE thread = ?", (no,))
        if not any(first <= seq <= last for _, first, last in needed)
    ]
    kept = int(value(db, "SELECT count(*) FROM records WHERE thread = ?", (no,)) or 0)
    db.executemany("DELETE FROM blob_uses WHERE record = ?", [(record,) for record, _ in doomed])
    db.executemany("DELETE FROM records WHERE no = ?", [(record,) for record, _ in doomed])
    # A move or a fact inside a needed range is of no use to a fork, and may hold what was
    # meant to go: only entries stay.
    db.execute("DELETE FROM records WHERE thread = ? AND type <> 0", (no,))
    left = int(value(db, "SELECT count(*) FROM records WHERE thread = ?", (no,)) or 0)
    firsts = {first for _, first, _ in needed}
    for (first_seq,) in every(db, "SELECT first_seq FROM segments WHERE thread = ?", (no,)):
        if first_seq not in firsts:
            db.execute("DELETE FROM segments WHERE thread = ? AND first_seq = ?", (no, first_seq))
    return kept - left, left, forks


def _needs(db: apsw.Connection, no: int) -> tuple[tuple[str, ...], list[Range]]:
    """The forks whose paths run through a thread, and the ranges of it that they need."""
    forks: list[str] = []
    needed: set[Range] = set()
    todo = [no]
    seen = {no}
    while todo:
        source = todo.pop()
        found = every(
            db,
            "SELECT no, id, shelf, origin_thread, origin_seq FROM threads WHERE origin_thread = ?",
            (source,),
        )
        for fork, id, shelf, origin_thread, origin_seq in found:
            if fork not in seen:
                seen.add(fork)
                todo.append(fork)
            if shelf == PURGED:
                continue  # nobody reads it; those who fork it count for themselves
            spans = [s for s in rows.path_ranges(db, (origin_thread, origin_seq)) if s[0] == no]
            needed.update(spans)
            if spans:
                forks.append(id)
    return tuple(sorted(forks)), sorted(needed)


def _collect(db: apsw.Connection, no: int, origin: int | None) -> None:
    """Drop the row of a purged thread that nobody needs, then look at what it hung on."""
    db.execute("DELETE FROM threads WHERE no = ?", (no,))
    while origin is not None:
        row = one(db, "SELECT shelf, origin_thread FROM threads WHERE no = ?", (origin,))
        if row is None or row[0] != PURGED:
            return
        _, left, _ = _remove_unneeded(db, origin)
        if left:
            return
        db.execute("DELETE FROM threads WHERE no = ?", (origin,))
        origin = row[1]
