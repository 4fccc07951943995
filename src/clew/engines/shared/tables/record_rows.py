"""The rows of records: those of a range, or the one with an id, read as records.

A file that others made may hold anything in any column, whatever its schema says. So every value is
looked at, in C where a row is as most are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import itemgetter
from types import NoneType
from typing import Any, Literal

import apsw
from msgspec import Struct, ValidationError, convert

from clew.core.errors import Corrupt
from clew.core.facts import TIME_US_MAX, TIME_US_MIN
from clew.core.model import Entry, Fact, Move, Record
from clew.core.tombstones import from_stored
from clew.engines.shared.tables import packs
from clew.engines.shared.tables.rows import (
    COLUMNS,
    ENTRY,
    FACT,
    MOVE,
    SEQ_MAX,
    Lineage,
    Range,
    Row,
    Time,
    each,
    fetch_blob,
    garbled,
    locate_inherited,
    name_of,
    one,
    value,
)

# Whether a body is there can be told without reading it.
_HEADS = COLUMNS.removesuffix("body") + "iif(type = 0, iif(body IS NULL, NULL, x''), body)"
_FIND = f"SELECT {COLUMNS} FROM records WHERE id = ? AND no >> 32 = ?"
# The rows of a range, as `to_record` takes them; the second one has entries without their bodies.
IN_RANGE = f"SELECT {COLUMNS} FROM records WHERE no BETWEEN ? AND ?"
HEADS_IN_RANGE = f"SELECT {_HEADS} FROM records WHERE no BETWEEN ? AND ?"
# A range is read in runs of rows. Bodies of Clew's own are smaller than this. For a larger one the
# number of its row stands, so that it is read when its turn comes: a run must not fill the memory.
_RUN, _RUN_BODY_BYTES = 64, 64 * 1024
_BODY = f"iif(length(body) > {_RUN_BODY_BYTES}, no, body)"
_SCAN = f"SELECT {COLUMNS.removesuffix('body')}{_BODY} FROM records WHERE no BETWEEN ? AND ?"
_BODY_AT = "SELECT body FROM records WHERE no = ?"


# --- rows as records ------------------------------------------------------------------------

_TEXT, _BYTES, _NUMBER = (str, NoneType), (bytes, NoneType), (int, NoneType)
_TYPES = (
    *((int,), (int,), (str,), (int,), (bytes,), _TEXT, _TEXT, _TEXT, _TEXT, _BYTES),
    *(_TEXT, _BYTES, _NUMBER, _BYTES),
)


class _Ordinary(Struct, gc=False, array_like=True, forbid_unknown_fields=True):
    """The row of an entry that has its body in it, and no blobs: the columns in their order."""

    no: int
    type: Literal[0]
    id: str
    time_us: Time
    hash: bytes
    parent: str | None
    kind: str
    turn: str | None
    format: str | None
    meta: bytes | None
    blobs: None
    body_hash: bytes
    blob: None
    body: bytes


_ORDINARY = list[_Ordinary]


def to_record(db: apsw.Connection, thread: str, row: Row) -> Record:
    record: Record = next(_with_care(db, thread, (row,)))
    return record


def to_records(db: apsw.Connection, thread: str, found: Iterable[Row]) -> Iterator[Any]:
    """Rows as records. Corrupt at the first that holds what cannot be."""
    return chain.from_iterable(_runs_of_records(db, thread, found))


def _runs_of_records(
    db: apsw.Connection, thread: str, found: Iterable[Row]
) -> Iterator[Iterable[Any]]:
    # This is what loading a thread costs. Rows have a few kinds and formats in common: each text is
    # kept once, and hashed once by who looks it up.
    shared: Callable[[Any, Any], Any] = {}.setdefault
    try:
        for run in _runs(found):
            try:
                convert(run, _ORDINARY, builtin_types=(bytes,))
            except ValidationError:
                yield _with_care(db, thread, run)
                continue
            yield [
                Entry(
                    thread, no & SEQ_MAX, id, time_us, hash, parent, shared(kind, kind), body, own,
                    turn, shared(format, format), meta,
                )
                for no, _, id, time_us, hash, parent, kind, turn, format, meta, _, own, _, body
                in run
            ]  # fmt: skip
    except UnicodeDecodeError as error:
        raise garbled(db, error) from error


def _runs(found: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows in runs. Where one cannot be read, those before it come first."""
    rows = iter(found)
    while True:
        run: list[Row] = []
        try:
            run += islice(rows, _RUN)
        except Exception:
            if run:
                yield run
            raise
        if not run:
            return
        yield run


def _with_care(db: apsw.Connection, thread: str, found: Iterable[Row]) -> Iterator[Any]:
    """The same one by one, for rows of any kind: it says what is wrong with one."""
    for row in found:
        no, what, id, time_us, hash, parent, kind, turn, format, meta, uses, own, blob, body = row
        if type(body) is int and body == no:
            body = value(db, _BODY_AT, (no,))
        if not (
            type(no) is int
            and type(id) is str
            and type(time_us) is int
            and TIME_US_MIN <= time_us <= TIME_US_MAX
            and type(hash) is bytes
            and (parent is None or type(parent) is str)
            and (kind is None or type(kind) is str)
            and (turn is None or type(turn) is str)
            and (format is None or type(format) is str)
            and (meta is None or type(meta) is bytes)
            and (uses is None or type(uses) is str)
            and (own is None or type(own) is bytes)
            and (blob is None or type(blob) is int)
            and (body is None or type(body) is bytes)
            and type(what) is int
        ):
            raise _odd(thread, row)
        if what == MOVE:
            yield Move(thread, no & SEQ_MAX, id, time_us, hash, parent)
            continue
        tombstone = None
        if body is None:
            if blob is None:
                place = f"record {no & SEQ_MAX} of {thread!r}"
                if what != ENTRY:
                    raise Corrupt(place, "its value is missing")
                tombstone = from_stored(meta, format, place)
                body, format, meta = tombstone.stand_in, None, None
            else:
                body = fetch_blob(db, blob)
        if what == FACT and kind is not None:
            yield Fact(thread, no & SEQ_MAX, id, time_us, hash, kind, body)
            continue
        if kind is None or own is None:
            place = f"record {no & SEQ_MAX} of {thread!r}"
            raise Corrupt(place, "its kind or its hash is missing")
        blobs = () if uses is None else tuple(uses.split(","))
        yield Entry(
            *(thread, no & SEQ_MAX, id, time_us, hash, parent, kind, body, own),
            *(turn, format, meta, blobs, tombstone),
        )


def _odd(thread: str, row: Row) -> Corrupt:
    for held, allowed in zip(row, _TYPES, strict=True):
        if type(held) not in allowed:
            what = f"record no. {row[0]!r} of {thread!r}"
            return Corrupt(what, f"it has a {type(held).__name__} where none can be")
    return Corrupt(f"record no. {row[0]} of {thread!r}", f"its time is {row[3]} µs")


# --- finding --------------------------------------------------------------------------------


def find(db: apsw.Connection, thread: int, name: str, lineage: Lineage, id: str) -> Record | None:
    """The record with an id among those visible in a thread."""
    row = one(db, _FIND, (id, thread)) or next(packs.rows_of(db, id, thread), None)
    if row is not None:
        return to_record(db, name, row)
    no = locate_inherited(db, lineage, id) if lineage else None
    if no is None:
        return None
    record: Record = next(scan(db, (no, no), entries_only=True))
    return record


def scan(
    db: apsw.Connection,
    span: Range,
    *,
    entries_only: bool,
    limit: int = -1,
    newest_first: bool = False,
    name: str | None = None,
) -> Iterator[Any]:
    """The records of a range, in order, each read when it is asked for.

    `name` is the id of the thread that has them, for callers that know it.
    """
    name = name_of(db, span[0] >> 32) if name is None else name
    only = "AND type = 0" if entries_only else ""
    direction = "DESC" if newest_first else "ASC"
    sql = f"{_SCAN} {only} ORDER BY no {direction} LIMIT ?"
    packed = packs.overlapping(db, span)
    if not packed:
        return to_records(db, name, db.execute(sql, (*span, limit)))
    found = _scan_packed(db, span, packed, sql, name, newest_first=newest_first)
    return found if limit < 0 else islice(found, limit)


def _scan_packed(
    db: apsw.Connection,
    span: Range,
    packed: Sequence[packs.Pack],
    sql: str,
    name: str,
    *,
    newest_first: bool,
) -> Iterator[Any]:
    """The records of a range that lie in packs, and beside them."""
    parts = list(_parts(span, packed))
    for first, last, pack in reversed(parts) if newest_first else parts:
        found = db.execute(sql, (first, last, -1))
        if pack is None:
            yield from to_records(db, name, found)
            continue
        run = packs.read(db, pack)
        # Facts, moves, and entries with a blob: few of them lie between the entries of a pack.
        beside = found.fetchall()
        whole = (first, last) == (pack.first, pack.last) and None not in run.bodies
        if whole and not beside and not newest_first:
            yield from run.entries(name)
        else:
            rows = [*run.rows(first, last), *beside]
            rows.sort(key=_number_of, reverse=newest_first)
            yield from to_records(db, name, rows)


def _parts(
    span: Range, packed: Sequence[packs.Pack]
) -> Iterator[tuple[int, int, packs.Pack | None]]:
    """A range as the ranges of its packs, and what lies before, between and behind them."""
    at, end = span
    for pack in packed:
        if at < pack.first:
            yield at, pack.first - 1, None
        yield max(at, pack.first), min(end, pack.last), pack
        at = max(at, pack.last + 1)
    if at <= end:
        yield at, end, None


def raw(db: apsw.Connection, span: Range) -> Iterator[Row]:
    """The rows of a range, as `to_record` takes them, wherever they lie."""
    for first, last, pack in _parts(span, packs.overlapping(db, span)):
        found = each(db, f"{IN_RANGE} ORDER BY no", (first, last))
        if pack is None:
            yield from found
        else:
            packed = packs.read(db, pack).rows(first, last)
            yield from sorted([*packed, *found], key=_number_of)


_number_of = itemgetter(0)


def row_at(db: apsw.Connection, no: int | None) -> Row | None:
    """The row of a record by its number, wherever it lies."""
    if no is None:
        return None
    return one(db, IN_RANGE, (no, no)) or packs.row_at(db, no)
