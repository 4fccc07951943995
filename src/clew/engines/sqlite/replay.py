"""One thread's replay: goes through its records and compares what they add up to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import apsw
from msgspec.structs import replace

from clew.engines._replay import Sums, hash_of
from clew.engines.sqlite import blobs, rows, spaces
from clew.engines.sqlite.errors import UNREADABLE
from clew.engines.sqlite.journal import ARCHIVED, DELETED, IN_USE, PURGED
from clew.engines.sqlite.query import Row, every, one, value
from clew.errors import Corrupt
from clew.hashes import thread_hash
from clew.model import (
    Entry,
    Fact,
    Move,
    Origin,
    Problem,
    Record,
)

_THREAD = (
    "no, id, created_us, updated_us, listed_us, seq, leaf, leaf_hash, tail, shelf, deleted_us,"
    " parent, status, workspace, origin, origin_entry, origin_hash, origin_no, hash, space"
)

_SOURCE = (
    "SELECT r.id, r.hash, t.space FROM records r JOIN threads t ON t.no = r.no >> 32"
    " WHERE r.no = ? AND r.type = 0"
)


class Replay:
    """Keeps what the records of a thread should add up to. `step` is called with each of them."""

    def __init__(
        self,
        db: apsw.Connection,
        no: int,
        namespaces: Mapping[int, str],
        *,
        quick: bool,
        step: Callable[[], None],
    ) -> None:
        self._db = db
        self._quick = quick
        self._step = step
        self._no = no
        row = one(db, f"SELECT {_THREAD} FROM threads WHERE no = ?", (no,))
        names = [name.strip() for name in _THREAD.split(",")]
        self._row: dict[str, Any] = dict(zip(names, row or (), strict=True))
        self._name: str = self._row["id"]
        self._namespace = namespaces.get(self._row["space"])
        self._purged = self._row["shelf"] == PURGED
        self._lineage = self._inherited()
        self._origin = None
        if self._row["origin"] is not None:
            parts = ("origin", "origin_entry", "origin_hash")
            self._origin = Origin(*(self._row[name] for name in parts))
        self._sums = Sums(self._row["created_us"], self._origin)
        self._starts: dict[int, str | None] = {}

    def _inherited(self) -> tuple[rows.Range, ...]:
        origin_no = self._row["origin_no"]
        try:
            return () if origin_no is None else tuple(rows.path_ranges(self._db, origin_no))
        except Corrupt:
            if self._purged:
                return ()  # what is kept of it may not need its origin, which may be gone
            raise

    def check(self) -> Iterator[Problem]:
        yield from self._check_row()
        span = (rows.number(self._no, 0), rows.everything_of(self._no)[1])
        for row in rows.raw(self._db, span, heads=self._quick):
            self._step()
            try:
                record = self._to_record(row)
            except UNREADABLE as error:
                seq = self._sums.seq = row[0] & rows.SEQ_MAX
                yield self._problem("damaged_record", f"it cannot be read: {error}", seq)
                continue
            yield from self._check_record(record)
        yield from self._check_sums()

    def _check_row(self) -> Iterator[Problem]:
        row, origin = self._row, self._origin
        made = (self._name, row["created_us"], row["parent"], origin)
        if self._namespace is None:
            yield self._problem("damaged_thread", f"there is no namespace no. {row['space']}")
        elif thread_hash(*made, self._namespace) != row["hash"]:
            yield self._problem("damaged_thread", "its row does not match its hash")
        if origin is None or origin.entry is None or self._purged:
            return  # what is kept of a purged one hangs on what is kept of others
        source = one(self._db, _SOURCE, (row["origin_no"],))
        if source != (origin.entry, origin.hash, row["space"]):
            yield self._problem("broken_origin", f"the origin {origin.entry!r} is not there")

    # --- records ---

    def _to_record(self, row: Row) -> Record:
        """The record; in the quick form an entry without its body, which need only be there."""
        blob, type = row[11], row[12]
        if blob is not None and not self._has_blob(blob):
            raise Corrupt(f"blob no. {blob}", "it is missing")
        if not self._quick or type != rows.ENTRY:
            return rows.to_record(self._db, self._name, row)
        return rows.to_record(self._db, self._name, (*row[:6], b"", *row[7:]))

    def _has_blob(self, no: int) -> bool:
        query = "SELECT 1 FROM blobs WHERE no = ? AND space = ?"
        return one(self._db, query, (no, self._row["space"])) is not None

    def _check_record(self, record: Record) -> Iterator[Problem]:
        gap = None if self._purged else self._sums.lacks(record.seq)
        if gap is not None:
            yield self._problem("gap", gap)
        if isinstance(record, Entry):
            yield from self._check_entry(record)
        elif hash_of(record, None) != record.hash:
            yield self._damaged(record)
        if isinstance(record, Move):
            leaf_hash = None if record.leaf is None else self._find(record.leaf)
            self._sums.take_move(record, leaf_hash)
        elif isinstance(record, Fact):
            self._sums.take_fact(record)

    def _check_entry(self, entry: Entry) -> Iterator[Problem]:
        parent_hash = None
        if entry.parent is not None:
            parent_hash = self._find(entry.parent)
            if parent_hash is None:
                text = f"its parent {entry.parent!r} is not there"
                yield self._problem("broken_chain", text, entry.seq, entry.id)
        if not self._quick and hash_of(entry, parent_hash) != entry.hash:
            yield self._damaged(entry)
        yield from self._check_uses(entry)
        if not self._sums.continues(entry):
            self._starts[entry.seq] = entry.parent
        self._sums.take_entry(entry)

    def _check_uses(self, entry: Entry) -> Iterator[Problem]:
        """The blobs that an entry names are there, and noted as used by it."""
        found = blobs.numbers(self._db, self._row["space"], entry.blobs)
        missing = sorted(set(entry.blobs) - set(found))
        for hash in missing:
            text = f"it refers to blob {hash}, which is not there"
            problem = self._problem("missing_blob", text, entry.seq, entry.id)
            yield replace(problem, blob=hash)
        if missing:
            return  # what is noted of them cannot be right either
        no = rows.number(self._no, entry.seq)
        noted = every(self._db, "SELECT blob FROM blob_uses WHERE record = ?", (no,))
        if {blob for (blob,) in noted} != set(found.values()):
            text = "the blobs that it uses are not noted"
            yield self._problem("wrong_sum", text, entry.seq, entry.id)

    def _find(self, id: str) -> str | None:
        """The hash of an entry that is visible here."""
        tail = self._sums.tail
        if tail is not None and id == tail.id:
            return tail.hash
        no = rows.locate(self._db, self._no, self._lineage, id)
        found: str | None = value(self._db, "SELECT hash FROM records WHERE no = ?", (no,))
        return found

    def _damaged(self, record: Record) -> Problem:
        id = record.id if isinstance(record, Entry) else None
        return self._problem("damaged_record", "it does not match its hash", record.seq, id)

    # --- what the records add up to ---

    def _check_sums(self) -> Iterator[Problem]:
        yield from self._check_segments()
        if self._purged:
            return
        stored = rows.facts_of(self._db, self._no)
        if stored != {key: fact.data for key, fact in self._sums.facts.items()}:
            yield self._problem("wrong_sum", "its facts are not the latest ones")
        tags = set(every(self._db, "SELECT space, tag FROM tags WHERE thread = ?", (self._no,)))
        if tags != {(self._row["space"], tag) for tag in self._sums.tags()}:
            yield self._problem("wrong_sum", "its tags are not those of its facts")
        if self._row["listed_us"] not in (None, self._row["updated_us"]):
            yield self._problem("wrong_sum", "its place in the list by update is not its update")
        for name, right in self._expected().items():
            if self._row[name] != right:
                text = f"{name} is {self._row[name]!r}, its records say {right!r}"
                yield self._problem("wrong_sum", text)

    def _expected(self) -> dict[str, Any]:
        head = self._sums.head()
        shelf = ARCHIVED if head.pop("archived") else IN_USE
        return head | {"shelf": shelf if head["deleted_us"] is None else DELETED}

    def _check_segments(self) -> Iterator[Problem]:
        mine = rows.everything_of(self._no)
        stored: dict[int, int | None] = dict(
            every(self._db, "SELECT first, parent FROM segments WHERE first BETWEEN ? AND ?", mine)
        )
        expected = {
            rows.number(self._no, seq): self._number_of(parent)
            for seq, parent in self._starts.items()
        }
        if self._purged:
            # Between the runs that forks kept there is nothing left to tell them apart by.
            kept = {first: self._number_of(self._parent_at(first)) for first in stored}
            expected = kept if expected.items() <= kept.items() else expected
        if stored != expected:
            yield self._problem("wrong_sum", "its segments are not those of its entries")

    def _parent_at(self, no: int) -> str | None:
        parent: str | None = value(self._db, "SELECT parent FROM records WHERE no = ?", (no,))
        return parent

    def _number_of(self, id: str | None) -> int | None:
        return None if id is None else rows.locate(self._db, self._no, self._lineage, id)

    def _problem(
        self, code: str, message: str, seq: int | None = None, entry: str | None = None
    ) -> Problem:
        return Problem(
            code=code,
            message=message,
            thread=self._name,
            seq=seq,
            entry=entry,
            namespace=spaces.told(self._namespace),
        )
