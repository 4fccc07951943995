"""Blobs: bytes by their hash, compressed, stored once.

Compression happens before the transaction, so that no writer waits for another one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import apsw

from clew.core.codec import digest
from clew.core.engine import Keep
from clew.core.errors import NotFound
from clew.core.model import Swept
from clew.engines.shared.compression import Packed, unpack
from clew.engines.shared.tables.purge import UNUSED
from clew.engines.shared.tables.rows import every, one

SPILL_BYTES = 8 * 1024  # bodies over this are blobs


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


def sweep(db: apsw.Connection, space: int, before_us: int, keep: Keep | None) -> Swept:
    """Remove the blobs that no record uses, that were put before a time, and `keep` lets go."""
    # Numbers first, then rows by number: in the order in which they lie in the file.
    mine = "SELECT no FROM blobs WHERE space = ?"
    query = f"SELECT no, size, hash FROM blobs b WHERE no IN ({mine}) AND put_us <= ? AND {UNUSED}"
    rows = every(db, query, (space, before_us))
    wanted = keep({hash for _, _, hash in rows}) if keep is not None and rows else set()
    gone = [(no, size) for no, size, hash in rows if hash not in wanted]
    db.executemany("DELETE FROM blobs WHERE no = ?", [(no,) for no, _ in gone])
    return Swept(blobs=len(gone), size_bytes=sum(size for _, size in gone))


_BY_HASH = "SELECT no FROM blobs WHERE space = ? AND hash = ?"
