"""Packing: cold entries leave `records`, run by run, for compressed packs.

A run is read and compressed without any lock. Then, in one short transaction, its rows are read
again, and only if the pack gives back exactly those it takes their place: whatever happens, each
entry is in one of the two. An entry is packed once in its life, so that packing never costs more
than what was written.
"""

from __future__ import annotations

import apsw
from msgspec import Struct

from clew.core.errors import InvalidInput
from clew.engines.shared.tables import packs, record_rows, rows
from clew.engines.shared.tables.rows import Row, every, one, value

RUN_MIN = 4  # entries at the end of a thread that rests; fewer gain too little
PART_MIN = 128  # entries, or KiB, of a thread that goes on; more compress better together
WORTH = 1.0  # of what its entries had: a pack that is larger is not made


class Cold(Struct, frozen=True):
    """What may be packed: records behind the newest `tail` of a thread; of a thread that was not
    updated since `rests_us`, all but the last.
    """

    tail: int
    rests_us: int


class Place(Struct, frozen=True):
    """How far a round of packing came: to this thread, and in it to this record."""

    thread: int = 0
    record: int = 0

    @classmethod
    def parse(cls, text: str) -> Place:
        """What `str` gave; the beginning, if it is empty."""
        if not text:
            return cls()
        try:
            thread, record = map(int, text.split(":"))
        except (ValueError, AttributeError):
            raise InvalidInput("after", f"must be where a pack stopped, not {text!r}") from None
        return cls(thread, record)

    def __str__(self) -> str:
        return f"{self.thread}:{self.record}"


class Made(Struct, frozen=True):
    """A run of rows, and the pack that holds them."""

    run: list[Row]
    pack: Row
    raw_bytes: int


# --- what to pack ---

_THREADS = (
    f"SELECT t.no, {rows.UPDATED_US} FROM {rows.THREADS}"
    " WHERE t.space = ? AND t.no > ? AND t.shelf < 3"
    # Beyond it there is no number for a record: what stands there, only damage has made.
    f" AND t.no <= {rows.THREAD_NO_MAX} ORDER BY t.no LIMIT 100"
)
# Those with a blob stay: what is large is compressed already, and blobs are counted by these rows.
_COLD = (
    " AND type = 0 AND blob IS NULL AND blobs IS NULL AND body IS NOT NULL"
    " AND body_hash IS NOT NULL AND kind IS NOT NULL ORDER BY no LIMIT ?"
)


def threads(db: apsw.Connection, space: int, after: int) -> list[Row]:
    """The next threads of a namespace: number and time of the last change."""
    return every(db, _THREADS, (space, after))


def next_run(
    db: apsw.Connection, thread: int, updated_us: int, cold: Cold, after: int
) -> list[Row] | None:
    """The next run of a thread that is worth a pack, behind a number; None if there is none."""
    rests = updated_us <= cold.rests_us
    keep = 1 if rests else max(cold.tail, 1)
    whole = rows.everything_of(thread)
    newest = "SELECT no FROM records WHERE no BETWEEN ? AND ? ORDER BY no DESC LIMIT 1 OFFSET ?"
    end = value(db, newest, (*whole, keep))
    if end is None or end <= after:
        return None
    run: list[Row] = []
    size = 0
    stop = None
    for row in rows.each(
        db, record_rows.IN_RANGE + _COLD, (max(whole[0], after + 1), end, packs.ENTRIES_MAX)
    ):
        if stop is None:
            barrier = "SELECT min(first) FROM packs WHERE first > ? AND first <= ?"
            stop = value(db, barrier, (row[0], whole[1])) or whole[1] + 1
        if row[0] >= stop:
            break
        run.append(row)
        size += _bytes_of(row)
        if size >= packs.RUN_BYTES:
            break
    worth = len(run) >= (RUN_MIN if rests else PART_MIN) or size >= PART_MIN * 1024
    return run if worth else None


def _bytes_of(row: Row) -> int:
    return sum(len(part) for part in (row[2], row[9] or b"", row[13]))


def make(run: list[Row]) -> Made | None:
    """The pack of a run; None if it would not be smaller, or does not give the same rows back."""
    pack = packs.encode(run)
    size = sum(map(_bytes_of, run))
    if len(pack[3]) + len(pack[5]) >= size * WORTH:
        return None
    if packs.decode(pack).rows() != run:  # no test: no damage is known that packs lose
        return None
    return Made(run, pack, size)


# --- in a transaction ---


def put(db: apsw.Connection, made: Made) -> bool:
    """Let the pack take the place of its rows, if those are still what it was made of.

    A purge may have come in between; then nothing is changed.
    """
    for row in made.run:
        if one(db, record_rows.IN_RANGE, (row[0], row[0])) != row:
            return False
    if packs.overlapping(db, (made.pack[0], made.pack[1])):  # no test: both, after damage
        return False
    packs.insert(db, made.pack, made.run)
    db.executemany("DELETE FROM records WHERE no = ?", [(row[0],) for row in made.run])
    return True


# --- the room that became free ---


def free_bytes(db: apsw.Connection) -> int:
    return int(value(db, "PRAGMA freelist_count") * value(db, "PRAGMA page_size"))


def shrink(db: apsw.Connection) -> None:
    """Write the file anew without its free pages, in one transaction of SQLite's own."""
    db.limit(apsw.SQLITE_LIMIT_ATTACHED, 1)  # which builds the new one in a second database
    try:
        db.execute("VACUUM").fetchall()
    finally:
        db.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
