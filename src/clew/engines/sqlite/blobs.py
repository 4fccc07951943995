"""Blobs: bytes by their hash, compressed, stored once.

Compression happens before the transaction, so that no writer waits for another one's.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence

import apsw

from clew.core.codec import digest
from clew.core.errors import NotFound
from clew.core.removal import Swept
from clew.engines.shared.compression import Packed, unpack
from clew.engines.shared.tables.purge import UNUSED
from clew.engines.shared.tables.rows import every, one, value

SPILL_BYTES = 8 * 1024  # bodies over this are blobs
SWEEP_SECONDS = 0.005  # of a transaction that removes blobs, before its commit
SWEEP_MAX = 100  # blobs of such a transaction: each changes pages of its own, which are synced


def put(db: apsw.Connection, space: int, blob: Packed, now_us: int) -> int:
    """Store a blob unless it is there; its number. A blob put again is young again for sweep.

    What another namespace has does not count: whether it is there must not show.
    """
    row = one(db, _BY_HASH, (space, blob.hash))
    if row is not None:
        db.execute("UPDATE blobs SET put_us = ? WHERE no = ?", (now_us, row[0]))
        return int(row[0])
    db.execute(
        "INSERT INTO blobs (space, hash, size, codec, stored, put_us, data) VALUES (?,?,?,?,?,?,?)",
        (space, blob.hash, blob.size, blob.codec, digest(blob.data), now_us, blob.data),
    )
    return db.last_insert_rowid()


def get(db: apsw.Connection, space: int, hash: str) -> bytes:
    query = "SELECT hash, size, codec, data FROM blobs WHERE space = ? AND hash = ?"
    row = one(db, query, (space, hash))
    if row is None:
        raise NotFound("blob", hash)
    return unpack(*row)


def numbers(db: apsw.Connection, space: int, hashes: Iterable[str]) -> dict[str, int]:
    """The numbers of those blobs that are stored."""
    found: dict[str, int] = {}
    for hash in hashes:
        row = one(db, _BY_HASH, (space, hash))
        if row is not None:
            found[hash] = row[0]
    return found


def use(db: apsw.Connection, record: int, blobs: Sequence[int]) -> None:
    for blob in blobs:
        db.execute("INSERT OR IGNORE INTO blob_uses (blob, record) VALUES (?,?)", (blob, record))


def renew(db: apsw.Connection, space: int, hashes: Iterable[str], now_us: int) -> set[str]:
    """Those that are stored; they are young again for sweep."""
    found = numbers(db, space, hashes)
    db.executemany(
        "UPDATE blobs SET put_us = ? WHERE no = ?", [(now_us, n) for n in found.values()]
    )
    return set(found)


def unused(db: apsw.Connection, space: int, before_us: int) -> dict[str, int]:
    """The blobs that no record uses and that were put before a time, by hash, with their numbers.

    In the order in which they lie in the file.
    """
    # Numbers first, then rows by number, for the same reason.
    mine = "SELECT no FROM blobs WHERE space = ?"
    query = f"SELECT hash, no FROM blobs b WHERE no IN ({mine}) AND put_us <= ? AND {UNUSED}"
    return dict(every(db, f"{query} ORDER BY no", (space, before_us)))


def remove(db: apsw.Connection, doomed: deque[int], before_us: int) -> Swept:
    """Remove the first of them, as far as they are still unused and old, for a short while."""
    count = size_bytes = 0
    until = time.monotonic() + SWEEP_SECONDS
    query = f"DELETE FROM blobs AS b WHERE no = ? AND put_us <= ? AND {UNUSED} RETURNING size"
    while doomed and count < SWEEP_MAX and (not count or time.monotonic() < until):
        size = value(db, query, (doomed.popleft(), before_us))
        if size is not None:
            count, size_bytes = count + 1, size_bytes + int(size)
    return Swept(blobs=count, size_bytes=size_bytes)


_BY_HASH = "SELECT no FROM blobs WHERE space = ? AND hash = ?"
