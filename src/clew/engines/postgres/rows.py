"""Rows to records and back: the parts that reading and writing share."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from clew.core import codec
from clew.core.errors import Corrupt
from clew.core.lease_rules import Instant, LeaseState
from clew.core.model import Entry, Fact, Move, Origin, Record, ThreadInfo
from clew.core.reducer import Head
from clew.core.tombstones import from_stored
from clew.engines.postgres.wire import Row
from clew.engines.shared.compression import unpack

ENTRY, MOVE, FACT = 0, 1, 2
ERA = "postgres"  # there is one clock, the server's, and it does not begin anew

Position = tuple[int, int]  # a thread's number and a seq


def to_hash(data: bytes | None) -> Any:
    return None if data is None else codec.to_hash(data)


def to_bytes(hash: str | None) -> bytes | None:
    return None if hash is None else codec.to_bytes(hash)


def to_record(row: Row) -> Record:
    """A record from `clew.found_record`; more columns may follow."""
    _, name, seq, type, id, time_us, hash, parent, kind, turn, format, meta, blobs, *rest = row[:19]
    own, blob, body, *stored = rest
    tombstone = None
    if type == MOVE:
        return Move(name, seq, id, time_us, hash, parent)
    if body is None:
        place = f"record {seq} of {name!r}"
        if blob is not None:
            body = _body(blob, *stored)
        elif type == FACT:
            raise Corrupt(place, "its value is missing")
        else:
            tombstone = from_stored(meta, format, place)
            body, format, meta = tombstone.stand_in, None, None
    if type == FACT:
        return Fact(name, seq, id, time_us, hash, kind, body)
    names = () if blobs is None else tuple(blobs.split(","))
    # Where damage took the hash, there are bytes that no hash has: verify tells.
    own = blob or own or b""
    # One by one: to put the arguments together from tuples would take twice the time.
    return Entry(
        name, seq, id, time_us, hash, parent, kind, body, own, turn,
        format, meta, names, tombstone,
    )  # fmt: skip


def _body(hash: bytes | None, size: int | None, codec: str | None, data: bytes | None) -> bytes:
    if hash is None or size is None or codec is None or data is None:
        place = "its body" if hash is None else f"blob {to_hash(hash)}"
        raise Corrupt(place, "it is missing")
    return unpack(to_hash(hash), size, codec, data)


# --- threads ---

LEASE = "fence, owner, lease_turn, leased_us, until_us"
STAND = (
    "no, origin_thread, origin_seq, leaf_thread, leaf_seq, id, seq, leaf, leaf_hash, tail,"
    " updated_us, deleted_us"
)


class Stand(Struct):
    """Where a thread stands: its number, what it shares, its head, and where the leaf is."""

    no: int
    origin: Position | None
    leaf: Position | None
    head: Head
    last: Entry | None = None  # the entry at the leaf, when it was written here


def to_stand(row: Row) -> Stand:
    no, origin_thread, origin_seq, leaf_thread, leaf_seq, id, seq, leaf, hash, tail, *times = row
    return Stand(
        no,
        None if origin_thread is None else (origin_thread, origin_seq),
        None if leaf_thread is None else (leaf_thread, leaf_seq),
        Head(id, seq, leaf, to_hash(hash), tail, *times),
    )


def to_lease(row: Row) -> LeaseState:
    fence, owner, turn, leased_us, until_us = row
    return LeaseState(fence, owner, turn, leased_us, until_us, until_us * 1000, ERA)


def instant(now_us: int) -> Instant:
    return Instant(now_us * 1000, ERA, now_us)


class ThreadRow(Struct, frozen=True):
    """A thread's row, as lists and look-ups read it: `clew.found_thread` begins with this."""

    no: int
    id: str
    created_us: int
    updated_us: int
    seq: int
    leaf: str | None
    parent: str | None
    origin: str | None
    origin_entry: str | None
    origin_hash: bytes | None
    origin_thread: int | None
    origin_seq: int | None
    leaf_thread: int | None
    leaf_seq: int | None

    def info(self, facts: dict[str, bytes], lost: dict[str, str]) -> ThreadInfo:
        origin = None
        if self.origin is not None:
            origin = Origin(self.origin, self.origin_entry, to_hash(self.origin_hash))
        return ThreadInfo(
            self.id,
            self.created_us,
            self.updated_us,
            self.seq,
            self.leaf,
            self.parent,
            origin,
            facts,
            lost,
        )


COLUMNS = len(ThreadRow.__struct_fields__)


def to_infos(rows: list[Row]) -> list[tuple[ThreadRow, ThreadInfo]]:
    """Threads with their facts, from a join that repeats the thread for each of them.

    A value that is not there any more is told as lost: it hides neither the thread nor another one.
    """
    threads: dict[int, ThreadRow] = {}
    facts: dict[int, dict[str, bytes]] = {}
    lost: dict[int, dict[str, str]] = {}
    for row in rows:
        no = row[0]
        if no not in threads:
            threads[no] = ThreadRow(*row[:COLUMNS])
            facts[no], lost[no] = {}, {}
        key, body, blob, *stored = row[COLUMNS:]
        if key is None:
            continue
        try:
            facts[no][key] = body if body is not None else _body(blob, *stored)
        except Corrupt as error:
            lost[no][key] = str(error)
    return [
        (row, row.info(dict(sorted(facts[no].items())), lost[no])) for no, row in threads.items()
    ]
