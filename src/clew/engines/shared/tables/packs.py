"""Packs: runs of cold entries that left `records`, compressed; how they are read and made.

A pack holds entries of one thread, with what their rows held, and needs nothing but itself: what is
taken out of it is nowhere else, as it would be in a dictionary that packs share. It is decoded as a
whole and then remembered for a while, so that the next entry of the same run costs nothing. Nothing
that a pack says of itself is believed before memory is spent on it: docs/format.md has the layout.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat
from typing import Any

import apsw
import msgspec
from blake3 import blake3
from msgspec import Struct

from clew.core.codec import digest, digest_fields
from clew.core.errors import Corrupt
from clew.core.facts import TIME_US_MAX, TIME_US_MIN
from clew.core.model import Entry
from clew.engines.shared.compression import compress_run, decompress_run

ENTRIES_MAX = 256
RUN_BYTES = 256 * 1024  # a run is full with the entry that brings it there
PACK_BYTES_MAX = 1024 * 1024  # decompressed: a full run, and an entry with all that it may have
_HASH_BYTES = 32
_SEQ_MAX = 0xFFFF_FFFF

Row = tuple[Any, ...]  # as `record_rows.to_record` takes it

_PACK = "first, last, entries, hashes, stored, data"


class _Columns(Struct, array_like=True, forbid_unknown_fields=True):
    """What is compressed: one list for each column that is neither `hash` nor always empty.

    Seqs and times are each the difference to the one before. The hash of a body that is there is
    what its bytes give, so only of one that is not there it has to be kept.
    """

    seqs: list[int]
    ids: list[str]
    times: list[int]
    parents: list[str | None]
    kinds: list[str]
    turns: list[str | None]
    formats: list[str | None]
    metas: list[bytes | None]
    body_hashes: list[bytes | None]
    bodies: list[bytes | None]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Columns)


class Pack(Struct, frozen=True):
    """Where a pack lies, and which content it has: enough to remember it by."""

    first: int
    last: int
    stored: str


class Run(Struct, frozen=True):
    """The entries of a pack, column by column; all lists have one length."""

    numbers: list[int]
    ids: list[str]
    times: list[int]
    hashes: list[bytes]
    parents: list[str | None]
    kinds: list[str]
    turns: list[str | None]
    formats: list[str | None]
    metas: list[bytes | None]
    body_hashes: list[bytes | None]
    bodies: list[bytes | None]

    def row(self, at: int) -> Row:
        own, body = self.body_hashes[at], self.bodies[at]
        if own is None and body is not None:
            own = blake3(body).digest()
        return (
            *(self.numbers[at], 0, self.ids[at], self.times[at], self.hashes[at]),
            *(self.parents[at], self.kinds[at], self.turns[at], self.formats[at]),
            *(self.metas[at], None, own, None, body),
        )

    def rows(self, first: int = 0, last: int = 1 << 63) -> list[Row]:
        """Those with numbers of a range."""
        begin, end = bisect_left(self.numbers, first), bisect_right(self.numbers, last)
        return [self.row(at) for at in range(begin, end)]

    def get(self, no: int) -> Row | None:
        at = bisect_left(self.numbers, no)
        return self.row(at) if self.numbers[at : at + 1] == [no] else None

    def entries(self, thread: str) -> Iterator[Entry]:
        """All of them at once, without a row in between: this is what loading a thread costs."""
        return map(
            Entry,
            repeat(thread),
            [no & _SEQ_MAX for no in self.numbers],
            *(self.ids, self.times, self.hashes, self.parents, self.kinds, self.bodies),
            *(self.body_hashes, self.turns, self.formats, self.metas),
        )


# --- finding --------------------------------------------------------------------------------

_OVERLAPPING = (
    "SELECT first, last, stored FROM packs WHERE first BETWEEN"
    " ifnull((SELECT max(first) FROM packs WHERE first <= ?1), ?1) AND ?2 AND last >= ?1"
    " ORDER BY first"
)


def overlapping(db: apsw.Connection, span: tuple[int, int]) -> list[Pack]:
    """The packs that hold records of a range, in order. In most stores one look at an index."""
    found = []
    for first, last, stored in _rows(db, span[0], _OVERLAPPING, span):
        if type(last) is not int or type(stored) is not str or last >> 32 != first >> 32:
            raise _damaged(first, "its row has values that cannot be")
        found.append(Pack(first, last, stored))
    return found


def _rows(db: apsw.Connection, first: int, query: str, bindings: tuple[int, ...]) -> list[Row]:
    try:
        return db.execute(query, bindings).fetchall()
    except UnicodeDecodeError as error:
        raise _damaged(first, f"text of its row is not UTF-8: {error}") from error


def every(db: apsw.Connection, unreadable: tuple[type[Exception], ...]) -> Iterator[Pack]:
    """All packs of a damaged store, as far as their rows can be read."""
    for order in ("ASC", "DESC"):
        try:
            for first, last, stored in db.execute(
                f"SELECT first, last, stored FROM packs ORDER BY first {order}"
            ):
                if type(last) is int and type(stored) is str and last >> 32 == first >> 32:
                    yield Pack(first, last, stored)
            return
        except unreadable:
            continue


def row_at(db: apsw.Connection, no: int) -> Row | None:
    """The row of an entry that is in a pack."""
    for pack in overlapping(db, (no, no)):
        return read(db, pack).get(no)
    return None


def rows_of(db: apsw.Connection, id: str, thread: int | None = None) -> Iterator[Row]:
    """The rows of packed entries with an id, in one thread or in all of them."""
    if thread is None:
        found: list[Row] = db.execute(
            "SELECT no FROM packed_ids WHERE key = ?", (key_of(id),)
        ).fetchall()
    else:
        query = "SELECT no FROM packed_ids WHERE key = ? AND no BETWEEN ? AND ?"
        span = thread << 32, thread << 32 | _SEQ_MAX
        found = db.execute(query, (key_of(id), *span)).fetchall()
    for (no,) in found:
        row = row_at(db, no)
        if row is not None and row[2] == id:  # other ids have the same key, if rarely
            yield row


def key_of(id: str) -> int:
    return int.from_bytes(blake3(id.encode("utf-8", "surrogatepass")).digest(length=6), "big")


# --- reading --------------------------------------------------------------------------------


class _Remembered:
    """Runs that were decoded last. A run is known by its content, so that it is never stale."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._runs: dict[tuple[int, str], Run] = {}

    def get(self, pack: Pack) -> Run | None:
        with self._lock:
            run = self._runs.pop((pack.first, pack.stored), None)
            if run is not None:
                self._runs[pack.first, pack.stored] = run
            return run

    def put(self, pack: Pack, run: Run) -> None:
        with self._lock:
            self._runs[pack.first, pack.stored] = run
            while len(self._runs) > self._most:
                del self._runs[next(iter(self._runs))]

    def forget(self, pack: Pack) -> None:
        with self._lock:
            self._runs.pop((pack.first, pack.stored), None)


_remembered = _Remembered(8)


def read(db: apsw.Connection, pack: Pack, *, anew: bool = False) -> Run:
    """The entries of a pack. Corrupt if it is not what was written.

    `anew`: whatever is remembered of it, for those who look for damage.
    """
    run = None if anew else _remembered.get(pack)
    if run is None:
        query = f"SELECT {_PACK} FROM packs WHERE first = ?"
        found = _rows(db, pack.first, query, (pack.first,))
        if not found:
            raise _damaged(pack.first, "it is not there any more")
        run = decode(found[0])
        _remembered.put(pack, run)
    return run


def decode(row: Row) -> Run:
    """What the row of a pack holds."""
    first, last, entries, hashes, stored, data = row
    if not (
        all(type(number) is int for number in (first, last, entries))
        and type(hashes) is bytes
        and type(data) is bytes
    ):
        raise _damaged(first, "its row has values that cannot be")
    # Before anything is made of it: what is remembered of a pack is remembered by this hash.
    if stored != stored_hash(first, last, entries, hashes, data):
        raise _damaged(first, "it is not as it was written")
    if not 0 < entries <= ENTRIES_MAX or len(hashes) != entries * _HASH_BYTES:
        raise _damaged(first, "it has not as many hashes as entries")
    try:
        plain = decompress_run(data, PACK_BYTES_MAX)
        found = _decoder.decode(plain)
    except (Corrupt, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _damaged(first, f"it cannot be read: {error}") from error
    if {len(getattr(found, name)) for name in _Columns.__struct_fields__} != {entries}:
        raise _damaged(first, "its columns are not of one length")
    thread = first >> 32 << 32
    numbers = [thread | seq for seq in accumulate(found.seqs)]
    times = list(accumulate(found.times))
    if min(found.seqs) < 1 or numbers[0] != first or numbers[-1] != last:
        raise _damaged(first, "its entries are not those of its range")
    if not TIME_US_MIN <= min(times) <= max(times) <= TIME_US_MAX:
        raise _damaged(first, "it has times that cannot be")
    return Run(
        numbers,
        found.ids,
        times,
        [hashes[at : at + _HASH_BYTES] for at in range(0, len(hashes), _HASH_BYTES)],
        *(found.parents, found.kinds, found.turns, found.formats, found.metas),
        found.body_hashes,
        found.bodies,
    )


def _damaged(first: Any, why: str) -> Corrupt:
    thread, seq = (first >> 32, first & _SEQ_MAX) if type(first) is int else (first, "?")
    return Corrupt(f"the pack at record {seq} of thread no. {thread}", why)


# --- making ---------------------------------------------------------------------------------


def encode(rows: Sequence[Row]) -> Row:
    """The row of a pack that holds these rows, of one thread and in order."""
    by_column = list(zip(*rows, strict=True))
    numbers, ids, times, hashes, of_bodies, bodies = (by_column[at] for at in (0, 2, 3, 4, 11, 13))
    columns = (
        _differences([no & _SEQ_MAX for no in numbers]),
        ids,
        _differences(times),
        *(by_column[at] for at in (5, 6, 7, 8, 9)),
        [
            None if body is not None and blake3(body).digest() == hash else hash
            for body, hash in zip(bodies, of_bodies, strict=True)
        ],
        bodies,
    )
    data = compress_run(_encoder.encode(columns))
    made = (numbers[0], numbers[-1], len(numbers))
    own = b"".join(hashes)
    return (*made, own, stored_hash(*made, own, data), data)


def _differences(values: Sequence[int]) -> list[int]:
    return [values[0], *map(int.__sub__, values[1:], values)]


def stored_hash(first: int, last: int, entries: int, hashes: bytes, data: bytes) -> str:
    """The hash of a pack as it is stored."""
    return digest_fields("pack", first, last, entries, digest(hashes), digest(data))


def insert(db: apsw.Connection, pack: Row, rows: Sequence[Row]) -> None:
    """Store a pack of these rows, and where they are found by their ids."""
    db.execute(f"INSERT INTO packs ({_PACK}) VALUES (?,?,?,?,?,?)", pack)
    db.executemany(
        "INSERT INTO packed_ids (key, no) VALUES (?,?)",
        [(key_of(row[2]), row[0]) for row in rows],
    )


def remove(db: apsw.Connection, pack: Pack, rows: Sequence[Row]) -> None:
    """Take a pack of these rows away."""
    db.execute("DELETE FROM packs WHERE first = ?", (pack.first,))
    db.executemany(
        "DELETE FROM packed_ids WHERE key = ? AND no = ?",
        [(key_of(row[2]), row[0]) for row in rows],
    )


def keep_only(db: apsw.Connection, pack: Pack, wanted: Sequence[tuple[int, int]]) -> int:
    """Take entries out of a pack for good, but for those in ranges that are wanted; how many went.

    A pack that cannot be read goes as a whole if nothing in its range is wanted, and otherwise
    stays as it is: nothing more may be lost.
    """
    near = [(first, last) for first, last in wanted if first <= pack.last and pack.first <= last]
    try:
        held = read(db, pack, anew=True).rows()
    except Corrupt:
        if near:
            return 0
        entries = db.execute("SELECT entries FROM packs WHERE first = ?", (pack.first,)).get
        db.execute("DELETE FROM packs WHERE first = ?", (pack.first,))
        db.execute("DELETE FROM packed_ids WHERE no BETWEEN ? AND ?", (pack.first, pack.last))
        return int(entries)
    kept = [row for row in held if any(first <= row[0] <= last for first, last in near)]
    if len(kept) < len(held):
        replace(db, pack, held, kept)
    return len(held) - len(kept)


def take_out(db: apsw.Connection, no: int) -> bool:
    """Let an entry be in no pack any more; whether it was in one. The others of the run stay."""
    for pack in overlapping(db, (no, no)):
        held = read(db, pack, anew=True).rows()
        others = [row for row in held if row[0] != no]
        if len(others) < len(held):
            replace(db, pack, held, others)
            return True
    return False


def replace(db: apsw.Connection, pack: Pack, held: Sequence[Row], rows: Sequence[Row]) -> None:
    """Let a pack that held some rows hold others, or none; what is stored of it is overwritten."""
    remove(db, pack, held)
    _remembered.forget(pack)
    if rows:
        insert(db, encode(rows), rows)
