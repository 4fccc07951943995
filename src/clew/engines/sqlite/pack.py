"""Packing: cold entries leave `records`, run by run, for compressed packs.

A run is read and compressed without any lock. Then, in one short transaction, its rows are read
again, and only if the pack gives back exactly those it takes their place: whatever happens, each
entry is in one of the two. An entry is packed once in its life, so that packing never costs more
than what was written.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

import apsw
from msgspec import Struct

from clew.core.codec import digest
from clew.engines.shared.compression import train
from clew.engines.shared.tables import packs, rows
from clew.engines.shared.tables.rows import Row, every, one, value

RUN_MIN = 4  # entries at the end of a thread that rests; fewer gain too little
PART_MIN = 128  # entries, or KiB, of a thread that goes on; more compress better together
WORTH = 1.0  # of what its entries had: a pack that is larger is not made
DICTIONARY_BYTES = 64 * 1024
SAMPLES_MIN = 256 * 1024  # bytes: a dictionary of less would not be worth its room
_SAMPLED_THREADS = 200
_SAMPLED_BYTES = 2 * 1024 * 1024
_PIECES = re.compile(rb"\w+|\W")
_TOGETHER = 6  # pieces that have to stand in a row, and
_COMMON_TO = 3  # in so many threads, to be in a dictionary


class Cold(Struct, frozen=True):
    """What may be packed: records behind the newest `tail` of a thread; of a thread that was not
    updated since `rests_us`, all but the last.
    """

    tail: int
    rests_us: int


class Made(Struct, frozen=True):
    """A run of rows, and the pack that holds them."""

    run: list[Row]
    pack: Row
    raw_bytes: int


# --- what to pack ---

_THREADS = (
    f"SELECT t.no, {rows.UPDATED_US} FROM {rows.THREADS}"
    " WHERE t.space = ? AND t.no > ? AND t.shelf < 3 ORDER BY t.no LIMIT 100"
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
        db, rows.IN_RANGE + _COLD, (max(whole[0], after + 1), end, packs.ENTRIES_MAX)
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


def make(run: list[Row], trained: packs.Dictionary | None) -> Made | None:
    """The pack of a run; None if it would not be smaller, or does not give the same rows back."""
    pack = packs.encode(run, trained)
    size = sum(map(_bytes_of, run))
    if len(pack[4]) + len(pack[6]) >= size * WORTH:
        return None
    if packs.decode(pack, trained).rows() != run:  # a row that only damage can have made
        return None
    return Made(run, pack, size)


# --- in a transaction ---


def put(db: apsw.Connection, made: Made) -> bool:
    """Let the pack take the place of its rows, if those are still what it was made of.

    A purge may have come in between; then nothing is changed.
    """
    for row in made.run:
        if one(db, rows.IN_RANGE, (row[0], row[0])) != row:
            return False
    if packs.overlapping(db, (made.pack[0], made.pack[1])):
        return False
    dictionary = made.pack[3]
    if dictionary is not None and not one(db, _KNOWN, (dictionary,)):
        return False
    packs.insert(db, made.pack, made.run)
    db.executemany("DELETE FROM records WHERE no = ?", [(row[0],) for row in made.run])
    return True


_KNOWN = "SELECT 1 FROM dictionaries WHERE no = ?"


# --- the dictionary ---


def newest_dictionary(db: apsw.Connection, space: int) -> packs.Dictionary | None:
    no = value(db, "SELECT max(no) FROM dictionaries WHERE space = ?", (space,))
    return packs.dictionary(db, no)


def samples(db: apsw.Connection, space: int) -> dict[int, list[bytes]]:
    """Bodies of some threads, the newest ones, to train a dictionary on."""
    found: dict[int, list[bytes]] = {}
    left = _SAMPLED_BYTES
    query = "SELECT no FROM threads WHERE space = ? AND shelf < 2 ORDER BY no DESC LIMIT ?"
    for (thread,) in every(db, query, (space, _SAMPLED_THREADS)):
        bodies = (
            "SELECT body FROM records WHERE no BETWEEN ? AND ? AND type = 0 AND body IS NOT NULL"
        )
        own: list[bytes] = []
        share = max(left // 20, 16 * 1024)
        for (body,) in rows.each(db, bodies, rows.everything_of(thread)):
            own.append(body)
            left -= len(body)
            share -= len(body)
            if share <= 0 or left <= 0:
                break
        found[thread] = own
        if left <= 0:
            break
    return found


def train_on(found: dict[int, list[bytes]]) -> bytes | None:
    """A dictionary of what is common to several threads.

    Nothing else may be in it: when a thread is purged, the dictionary stays.
    """
    if sum(len(body) for own in found.values() for body in own) < SAMPLES_MIN:
        return None
    seen: defaultdict[int, set[int]] = defaultdict(set)
    for thread, own in found.items():
        for body in own:
            for window in _windows(_PIECES.findall(body)):
                known = seen[window]
                if len(known) < _COMMON_TO:
                    known.add(thread)
    common = {window for window, threads in seen.items() if len(threads) >= _COMMON_TO}
    kept = [part for own in found.values() for body in own for part in _common(body, common)]
    if sum(map(len, kept)) < DICTIONARY_BYTES:
        return None
    return train(kept, DICTIONARY_BYTES)


def _windows(pieces: Sequence[bytes]) -> Iterator[int]:
    for at in range(len(pieces) - _TOGETHER + 1):
        yield hash(tuple(pieces[at : at + _TOGETHER]))


def _common(body: bytes, common: set[int]) -> Iterator[bytes]:
    """The stretches of a body that are made of common windows, and of nothing else."""
    pieces = _PIECES.findall(body)
    start = end = 0
    for at, window in enumerate(_windows(pieces)):
        if window not in common:
            continue
        if at > end:
            yield from _stretch(pieces, start, end)
            start = at
        end = at + _TOGETHER
    yield from _stretch(pieces, start, end)


def _stretch(pieces: Sequence[bytes], start: int, end: int) -> Iterator[bytes]:
    if end - start >= _TOGETHER:
        yield b"".join(pieces[start:end])


def put_dictionary(db: apsw.Connection, space: int, trained: bytes) -> int:
    """Store it unless another process was faster; its number."""
    no = value(db, "SELECT max(no) FROM dictionaries WHERE space = ?", (space,))
    if no is not None:
        return int(no)
    db.execute(
        "INSERT INTO dictionaries (space, hash, data) VALUES (?,?,?)",
        (space, digest(trained), trained),
    )
    return db.last_insert_rowid()


def drop_unused(db: apsw.Connection, space: int) -> None:
    """Remove the dictionaries of a namespace that no pack is left for."""
    db.execute(
        "DELETE FROM dictionaries WHERE space = ? AND no NOT IN"
        " (SELECT dictionary FROM packs WHERE dictionary IS NOT NULL)",
        (space,),
    )


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
