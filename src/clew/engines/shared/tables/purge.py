"""Removing a thread for good, but for the entries that forks share with it.

What forks need stays under the thread's row, which no reader finds any more (shelf 3). It goes
with the last fork that needs it.
"""

from __future__ import annotations

import apsw

from clew.core.removal import Purged
from clew.engines.shared.tables import packs, rows
from clew.engines.shared.tables.rows import Range, every, one, value
from clew.engines.shared.thread_list import PURGED

# Of a blob b: no record has its body in it, and no entry names it.
UNUSED = (
    "NOT EXISTS (SELECT 1 FROM records r WHERE r.blob = b.no)"
    " AND NOT EXISTS (SELECT 1 FROM blob_uses u WHERE u.blob = b.no)"
)


def purge(db: apsw.Connection, space: int, thread: str) -> Purged:
    row = rows.thread_row(db, space, thread)
    for table in ("facts", "tags", "leases"):
        db.execute(f"DELETE FROM {table} WHERE thread = ?", (row.no,))
    db.execute(
        "UPDATE threads SET shelf = ?, leaf = NULL, leaf_hash = NULL, tail = NULL,"
        " deleted_us = NULL, status = NULL, workspace = NULL, listed_us = updated_us WHERE no = ?",
        (PURGED, row.no),
    )
    removed, kept, kept_for = _remove_unneeded(db, row.no)
    if not kept:
        _drop(db, row.no)
    _collect(db, row.origin_no)
    return Purged(thread=thread, records=removed, kept=kept, kept_for=kept_for)


def _remove_unneeded(db: apsw.Connection, no: int) -> tuple[int, int, tuple[str, ...]]:
    """Remove the records of a purged thread that no fork's path runs through."""
    forks, needed = needs(db, no)
    mine = rows.everything_of(no)
    # Inside of what is needed, moves and facts are of no use to a fork, and may hold what was
    # meant to go: only entries stay.
    found = every(db, "SELECT no, type FROM records WHERE no BETWEEN ? AND ?", mine)
    doomed = [
        (record,)
        for record, type in found
        if type != rows.ENTRY or not any(first <= record <= last for first, last in needed)
    ]
    bodies = [value(db, "SELECT blob FROM records WHERE no = ?", record) for record in doomed]
    db.executemany("DELETE FROM blob_uses WHERE record = ?", doomed)
    db.executemany("DELETE FROM records WHERE no = ?", doomed)
    # Large bodies go at once; blobs that were put by hand wait for `sweep` and its grace.
    for blob in {blob for blob in bodies if blob is not None}:
        db.execute(f"DELETE FROM blobs AS b WHERE no = ? AND {UNUSED}", (blob,))
    gone, kept = len(doomed), len(found) - len(doomed)
    for pack in packs.overlapping(db, mine):
        own = db.execute("SELECT entries FROM packs WHERE first = ?", (pack.first,)).get
        went = packs.keep_only(db, pack, needed)
        gone, kept = gone + went, kept + own - went
    firsts = {first for first, _ in needed}
    for (first,) in every(db, "SELECT first FROM segments WHERE first BETWEEN ? AND ?", mine):
        if first not in firsts:
            db.execute("DELETE FROM segments WHERE first = ?", (first,))
    return gone, kept, forks


def needs(db: apsw.Connection, no: int) -> tuple[tuple[str, ...], list[Range]]:
    """The forks whose paths run through a thread, and the ranges of it that they need."""
    forks: list[str] = []
    needed: set[Range] = set()
    passed: dict[int, bool] = {}
    todo = [no]
    seen = {no}
    while todo:
        source = todo.pop()
        found = every(
            db,
            "SELECT no, id, shelf, origin_no FROM threads WHERE origin_no BETWEEN ? AND ?",
            rows.everything_of(source),
        )
        for fork, id, shelf, origin_no in found:
            if fork not in seen:
                seen.add(fork)
                todo.append(fork)
            if shelf == PURGED:
                continue  # no reader's path ends in it; its own forks count for themselves
            if _runs_through(db, no, origin_no, needed, passed):
                forks.append(id)
    return tuple(sorted(forks)), sorted(needed)


def _runs_through(
    db: apsw.Connection, no: int, end: int, needed: set[Range], passed: dict[int, bool]
) -> bool:
    """Whether the path to a record runs through a thread; the ranges of it that it needs.

    The paths of forks of forks are the same further up: what was `passed` is not walked again.
    """
    walked: list[Range] = []
    through = False
    for first, last in rows.path_ranges(db, end):
        if last in passed:
            through = passed[last]
            break
        walked.append((first, last))
    for first, last in reversed(walked):
        if first >> 32 == no:
            needed.add((first, last))
            through = True
        passed[last] = through
    return through


def _collect(db: apsw.Connection, origin_no: int | None) -> None:
    """Remove what is left of purged threads above one that has gone, if no fork needs it now."""
    first = True
    while origin_no is not None:
        source = origin_no >> 32
        row = one(db, "SELECT shelf, origin_no FROM threads WHERE no = ?", (source,))
        if row is None or row[0] != PURGED:
            return  # a thread that is still there needs all that is above it
        removed, left, _ = _remove_unneeded(db, source)
        if not left:
            _drop(db, source)
        elif first and not removed:
            # Another fork needs what this one began at, and so all that is above.
            return
        first = False
        origin_no = row[1]


def _drop(db: apsw.Connection, no: int) -> None:
    """Remove a row. What is left of its forks hangs on what it hung on, so it can be found."""
    db.execute(
        "UPDATE threads SET origin_no = (SELECT origin_no FROM threads WHERE no = ?)"
        " WHERE origin_no BETWEEN ? AND ? AND shelf = ?",
        (no, *rows.everything_of(no), PURGED),
    )
    db.execute("DELETE FROM threads WHERE no = ?", (no,))
