"""Erasing bodies: the row stays, with a tombstone in place of its meta, and its body goes.

It is one transaction with the facts that tell of it. `secure_delete` overwrites what was freed, and
the log is emptied afterwards, as after a purge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import apsw

from clew.core.errors import Corrupt, NotFound
from clew.core.lease_rules import Instant
from clew.core.model import Entry
from clew.core.reducer import plan_erasure
from clew.core.removal import Erased
from clew.core.tombstones import to_erased, to_stored, tombstoned
from clew.engines.shared.tables import packs, record_rows, rows
from clew.engines.shared.tables.purge import UNUSED
from clew.engines.shared.tables.rows import Lineages, one, value
from clew.engines.sqlite import write


def erase(
    db: apsw.Connection,
    standings: write.Standings,
    lineages: Lineages,
    space: int,
    thread: str,
    entries: Sequence[str],
    *,
    time_us: int,
    reason: str | None,
    clock: Callable[[], Instant],
) -> list[Erased]:
    row = rows.thread_row(db, space, thread)
    lineage = lineages.of(db, row.origin_no)
    done: list[Erased] = []
    for id in dict.fromkeys(entries):
        no = rows.locate(db, row.no, lineage, id)
        if no is None:
            raise NotFound("entry", id)
        owner = one(db, "SELECT id, shelf < 3 FROM threads WHERE no = ?", (no >> 32,))
        name, lives = owner or (thread, False)
        entry, is_new = _erase(db, no, name, time_us)
        done.append(to_erased(entry, recorded=bool(lives)))
        if is_new and lives:
            at = standings.find(db, lineages, space, name)
            write.announce(db, space, at, plan_erasure(at.head, [entry], reason), clock)
    return done


def _erase(db: apsw.Connection, no: int, thread: str, time_us: int) -> tuple[Entry, bool]:
    """The entry without its body; false if it was so before."""
    row = next(record_rows.raw(db, (no, no)), None)
    if row is None:  # no test: it was found in the same transaction
        raise Corrupt(f"record no. {no}", "it is missing")
    blob, body = row[12:]
    size = None
    if body is None and blob is not None:
        size = value(db, "SELECT size FROM blobs WHERE no = ?", (blob,))
        row = (*row[:13], _read(db, blob))
    entry = record_rows.to_record(db, thread, row)
    assert isinstance(entry, Entry)
    if entry.tombstone is not None:
        return entry, False
    buried = tombstoned(entry, time_us, size)
    assert buried.tombstone is not None
    if packs.take_out(db, no):
        rows.insert(db, no, buried, None)
    else:
        db.execute(
            "UPDATE records SET meta = ?, body = NULL, blob = NULL WHERE no = ?",
            (to_stored(buried.tombstone), no),
        )
    db.execute("DELETE FROM blob_uses WHERE record = ?", (no,))
    if blob is not None:
        db.execute(f"DELETE FROM blobs AS b WHERE no = ? AND {UNUSED}", (blob,))
    return buried, True


def _read(db: apsw.Connection, blob: int) -> bytes:
    """A large body; nothing if it is damaged, which must not keep it from being erased."""
    try:
        return rows.fetch_blob(db, blob)
    except Corrupt:
        return b""
