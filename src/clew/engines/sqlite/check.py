"""Verification: read everything, recompute every hash, replay every thread, compare.

SQLite's own integrity check only sees broken pages; whether the data in them is what was
written can be told by our hashes alone. Both are run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apsw

from clew.codec import decode, digest
from clew.engines.sqlite import blobs, rows
from clew.engines.sqlite.journal import ARCHIVED, DELETED, IN_USE, PURGED
from clew.engines.sqlite.query import every, one, value
from clew.errors import ClewError, Corrupt
from clew.hashes import entry_hash, fact_hash, move_hash, thread_hash
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
    " parent, status, workspace, origin, origin_entry, origin_hash, origin_no, hash"
)


def check(db: apsw.Connection) -> Iterator[Problem]:
    """Every problem, part by part; a part that cannot be read is a problem of its own."""
    for name, part in (
        ("SQLite", _check_pages),
        ("blobs", _check_blobs),
        ("threads", _check_threads),
        ("orphans", _check_orphans),
    ):
        try:
            yield from part(db)
        except (apsw.Error, ClewError) as error:
            yield Problem(code="unreadable", message=f"{name} cannot be read further: {error}")


def _check_pages(db: apsw.Connection) -> Iterator[Problem]:
    for (line,) in db.execute("PRAGMA integrity_check"):
        if line != "ok":
            yield Problem(code="damaged_page", message=str(line))


def _check_blobs(db: apsw.Connection) -> Iterator[Problem]:
    for no, hash in every(db, "SELECT no, hash FROM blobs ORDER BY no"):
        try:
            blobs.fetch(db, no)
            # A bit of the compressed form may flip without changing what comes out of it.
            data, stored = one(db, "SELECT data, stored FROM blobs WHERE no = ?", (no,)) or ("", "")
            if digest(data) != stored:
                raise Corrupt(f"blob {hash}", "its compressed form is not as it was written")
        except ClewError as error:
            yield Problem(code="damaged_blob", message=str(error), blob=hash)


def _check_orphans(db: apsw.Connection) -> Iterator[Problem]:
    """Rows that refer to something that is not there."""
    for table, column, target in (
        ("records", "no >> 32", "threads"),
        ("segments", "first >> 32", "threads"),
        ("facts", "thread", "threads"),
        ("tags", "thread", "threads"),
        ("leases", "thread", "threads"),
        ("blob_uses", "record", "records"),
        ("blob_uses", "blob", "blobs"),
    ):
        count = value(
            db, f"SELECT count(*) FROM {table} WHERE {column} NOT IN (SELECT no FROM {target})"
        )
        if count:
            text = f"{count} rows of {table} refer to {target} that are not there"
            yield Problem(code="orphans", message=text)


def _check_threads(db: apsw.Connection) -> Iterator[Problem]:
    for (no,) in every(db, "SELECT no FROM threads ORDER BY no"):
        try:
            yield from _Thread(db, no).check()
        except (apsw.Error, ClewError) as error:
            name = value(db, "SELECT id FROM threads WHERE no = ?", (no,))
            text = f"the thread cannot be read further: {error}"
            yield Problem(code="unreadable", message=text, thread=name)


class _Thread:
    """One thread's replay: goes through its records and keeps what they should add up to."""

    def __init__(self, db: apsw.Connection, no: int) -> None:
        self._db = db
        self._no = no
        row = one(db, f"SELECT {_THREAD} FROM threads WHERE no = ?", (no,))
        names = [name.strip() for name in _THREAD.split(",")]
        self._row: dict[str, Any] = dict(zip(names, row or (), strict=True))
        self._name: str = self._row["id"]
        self._purged = self._row["shelf"] == PURGED
        self._lineage = self._inherited()
        self._leaf: str | None = self._row["origin_entry"]
        self._leaf_hash: str | None = self._row["origin_hash"]
        self._updated_us: int = self._row["created_us"]
        self._tail: tuple[str, str] | None = None  # the last entry's id and hash
        self._seq = 0
        self._starts: dict[int, str | None] = {}
        self._facts: dict[str, Any] = {}

    def _inherited(self) -> tuple[rows.Range, ...]:
        origin_no = self._row["origin_no"]
        return () if origin_no is None else tuple(rows.path_ranges(self._db, origin_no))

    def check(self) -> Iterator[Problem]:
        yield from self._check_row()
        for row in rows.raw(self._db, (rows.number(self._no, 0), rows.everything_of(self._no)[1])):
            try:
                record = rows.to_record(self._db, self._name, row)
            except (apsw.Error, ClewError) as error:
                self._seq = row[0] & rows.SEQ_MAX
                yield self._problem("damaged_record", f"it cannot be read: {error}", self._seq)
                continue
            yield from self._check_record(record)
        yield from self._check_sums()

    def _check_row(self) -> Iterator[Problem]:
        row = self._row
        origin = None
        if row["origin"] is not None:
            origin = Origin(row["origin"], row["origin_entry"], row["origin_hash"])
        if thread_hash(self._name, row["created_us"], row["parent"], origin) != row["hash"]:
            yield self._problem("damaged_thread", "its row does not match its hash")
        if origin is None or origin.entry is None:
            return
        if self._find(origin.entry) != origin.hash:
            yield self._problem("broken_origin", f"the origin {origin.entry!r} is not there")

    # --- records ---

    def _check_record(self, record: Record) -> Iterator[Problem]:
        if not self._purged and record.seq != self._seq + 1:
            yield self._problem("gap", f"records {self._seq + 1} to {record.seq - 1} are missing")
        self._seq = record.seq
        if isinstance(record, Entry):
            yield from self._check_entry(record)
        elif isinstance(record, Move):
            if move_hash(self._name, record.seq, record) != record.hash:
                yield self._damaged(record)
            self._leaf = record.leaf
            self._leaf_hash = None if record.leaf is None else self._find(record.leaf)
            self._updated_us = record.time_us
        elif isinstance(record, Fact):
            if fact_hash(self._name, record.seq, record) != record.hash:
                yield self._damaged(record)
            self._facts[record.key] = record

    def _check_entry(self, entry: Entry) -> Iterator[Problem]:
        parent_hash = None
        if entry.parent is not None:
            parent_hash = self._find(entry.parent)
            if parent_hash is None:
                text = f"its parent {entry.parent!r} is not there"
                yield self._problem("broken_chain", text, entry.seq, entry.id)
        if entry_hash(entry, entry.parent, parent_hash) != entry.hash:
            yield self._damaged(entry)
        yield from self._check_uses(entry)
        if entry.parent is None or self._tail is None or entry.parent != self._tail[0]:
            self._starts[entry.seq] = entry.parent
        self._tail = entry.id, entry.hash
        self._leaf, self._leaf_hash = entry.id, entry.hash
        self._updated_us = entry.time_us

    def _check_uses(self, entry: Entry) -> Iterator[Problem]:
        """The blobs that an entry names are there, and noted as used by it."""
        found = blobs.numbers(self._db, entry.blobs)
        for hash in set(entry.blobs) - set(found):
            text = f"it refers to blob {hash}, which is not there"
            yield self._problem("missing_blob", text, entry.seq, entry.id)
        no = rows.number(self._no, entry.seq)
        noted = every(self._db, "SELECT blob FROM blob_uses WHERE record = ?", (no,))
        if {blob for (blob,) in noted} != set(found.values()):
            text = "the blobs that it uses are not noted"
            yield self._problem("wrong_sum", text, entry.seq, entry.id)

    def _find(self, id: str) -> str | None:
        """The hash of an entry that is visible here."""
        if self._tail is not None and id == self._tail[0]:
            return self._tail[1]
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
        facts = {key: fact for key, fact in self._facts.items() if fact.value is not None}
        stored = rows.facts_of(self._db, self._no)
        if stored != {key: fact.data for key, fact in facts.items()}:
            yield self._problem("wrong_sum", "its facts are not the latest ones")
        tags = {
            tag for (tag,) in self._db.execute("SELECT tag FROM tags WHERE thread=?", (self._no,))
        }
        if tags != set(self._value("tags") or ()):
            yield self._problem("wrong_sum", "its tags are not those of its facts")
        if self._row["listed_us"] not in (None, self._row["updated_us"]):
            yield self._problem("wrong_sum", "its place in the list by update is not its update")
        for name, right in self._expected().items():
            if self._row[name] != right:
                text = f"{name} is {self._row[name]!r}, its records say {right!r}"
                yield self._problem("wrong_sum", text)

    def _expected(self) -> dict[str, Any]:
        deleted_us = self._value("deleted_us")
        shelf = ARCHIVED if self._value("archived") else IN_USE
        return {
            "seq": self._seq,
            "leaf": self._leaf,
            "leaf_hash": self._leaf_hash,
            "tail": None if self._tail is None else self._tail[0],
            "updated_us": self._updated_us,
            "shelf": shelf if deleted_us is None else DELETED,
            "deleted_us": deleted_us,
            "status": self._value("status"),
            "workspace": self._value("workspace"),
        }

    def _value(self, key: str) -> Any:
        fact = self._facts.get(key)
        return None if fact is None else decode(fact.data)

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
        return Problem(code=code, message=message, thread=self._name, seq=seq, entry=entry)
