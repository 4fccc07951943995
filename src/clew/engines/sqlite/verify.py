"""Verification: read everything, recompute every hash, replay every thread, compare.

SQLite's own integrity check only sees broken pages; whether the data in them is what was
written can be told by our hashes alone. Both are run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import apsw
from msgspec.structs import replace

from clew.core.codec import digest, to_bytes, to_hash
from clew.core.engine import Progress
from clew.core.errors import Corrupt
from clew.core.hashes import record_hash, thread_hash
from clew.core.lease_rules import LeaseState
from clew.core.model import Entry, Fact, Move, Origin, Problem, Record
from clew.engines.shared.audit import Sums
from clew.engines.shared.migrations import schema
from clew.engines.shared.tables import namespaces, rows
from clew.engines.shared.tables.facts import ARCHIVED, DELETED, IN_USE, PURGED
from clew.engines.shared.tables.namespaces import Space
from clew.engines.shared.tables.rows import Row, every, fetch_blob, one, value
from clew.engines.sqlite import blobs, leases
from clew.engines.sqlite.connections import UNREADABLE

_TOLD_EVERY = 100


def check(
    db: apsw.Connection,
    space: Space | None = None,
    *,
    quick: bool = False,
    progress: Progress | None = None,
) -> Iterator[Problem]:
    """Every problem, part by part; a part that cannot be read is a problem of its own.

    Of one namespace and the file itself, or of all of them. The quick form leaves out the parts
    that read bodies and blobs.
    """
    part = _Part(db, space)
    tally = _Tally(part, quick, progress)
    for name, problems in (
        ("schema", _check_schema(db)),
        ("namespaces", _check_names(part)),
        ("SQLite", () if quick else _check_pages(db)),
        ("blobs", () if quick else _check_blobs(part, tally)),
        ("threads", _check_threads(part, tally, quick)),
        ("leases", _check_leases(part)),
        ("orphans", _check_orphans(db)),
    ):
        try:
            yield from problems
        except UNREADABLE as error:
            yield Problem(code="unreadable", message=f"{name} cannot be read further: {error}")
    tally.end()


class _Part:
    """What of the file is looked at: one namespace, or all."""

    def __init__(self, db: apsw.Connection, space: Space | None) -> None:
        self.db = db
        self.where = "" if space is None else f"WHERE space = {space.no}"
        self.names: dict[int, str] = {}
        try:
            self.names = {found.no: found.name for found in namespaces.everyone(db)}
        except UNREADABLE:
            pass  # each thread says that it is in none

    def rows(self, columns: str, table: str) -> list[Row]:
        return every(self.db, f"SELECT {columns} FROM {table} {self.where} ORDER BY no")


class _Tally:
    """Counts records and blobs, and tells it to whoever wants to know."""

    def __init__(self, part: _Part, quick: bool, progress: Progress | None) -> None:
        self._progress = progress
        self._done = 0
        self._total = 0
        if progress is not None:
            self._total = _count(part, _RECORDS) + (0 if quick else _count(part, _BLOBS))

    def step(self) -> None:
        self._done += 1
        if self._progress is not None and self._done % _TOLD_EVERY == 0:
            self._progress(min(self._done, self._total), self._total)

    def end(self) -> None:
        if self._progress is not None:
            self._progress(self._total, self._total)


_RECORDS = (
    "FROM (SELECT no FROM threads {}) t CROSS JOIN records r"
    f" ON r.no BETWEEN t.no << 32 AND t.no << 32 | {rows.SEQ_MAX}"
)
_BLOBS = "FROM blobs {}"


def _count(part: _Part, source: str) -> int:
    try:
        return int(value(part.db, f"SELECT count(*) {source.format(part.where)}"))
    except apsw.Error:
        return 0  # too damaged to count; what is wrong is found by reading


_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"


def _check_schema(db: apsw.Connection) -> Iterator[Problem]:
    """The text of the schema is data too: a changed name in it makes rows unreadable."""
    model = apsw.Connection(":memory:")
    try:
        model.execute(schema("sqlite"))
        wanted = {row[:3]: row[3] for row in model.execute(_SCHEMA)}
    finally:
        model.close()
    found = {row[:3]: row[3] for row in db.execute(_SCHEMA)}
    for key in sorted(wanted.keys() | found.keys()):
        if wanted.get(key) != found.get(key):
            text = f"{key[0]} {key[1]} is not defined as it should be"
            yield Problem(code="damaged_schema", message=text)


def _check_names(part: _Part) -> Iterator[Problem]:
    if part.names.get(namespaces.DEFAULT.no) != namespaces.DEFAULT.name:
        text = f"namespace no. {namespaces.DEFAULT.no} is not {namespaces.DEFAULT.name!r}"
        yield Problem(code="damaged_namespace", message=text)


def _check_leases(part: _Part) -> Iterator[Problem]:
    query = (
        f"SELECT t.id, t.space, l.hash, {leases.COLUMNS} FROM leases l"
        f" JOIN (SELECT no, id, space FROM threads {part.where}) t ON t.no = l.thread"
    )
    for thread, space, hash, *fields in every(part.db, query):
        if leases.lease_hash(thread, LeaseState(*fields)) != hash:
            text = "its lease does not match its hash"
            name = namespaces.told(part.names.get(space))
            yield Problem(code="damaged_lease", message=text, thread=thread, namespace=name)


def _check_pages(db: apsw.Connection) -> Iterator[Problem]:
    for (line,) in db.execute("PRAGMA integrity_check"):
        if line != "ok":
            yield Problem(code="damaged_page", message=str(line))


def _check_blobs(part: _Part, tally: _Tally) -> Iterator[Problem]:
    db = part.db
    for no, hash, space in part.rows("no, hash, space", "blobs"):
        tally.step()
        try:
            fetch_blob(db, no)
            # A bit of the compressed form may flip without changing what comes out of it.
            data, stored = one(db, "SELECT data, stored FROM blobs WHERE no = ?", (no,)) or ("", "")
            if digest(data) != stored:
                raise Corrupt(f"blob {hash}", "its compressed form is not as it was written")
        except UNREADABLE as error:
            name = namespaces.told(part.names.get(space))
            yield Problem(code="damaged_blob", message=str(error), blob=hash, namespace=name)


def _check_threads(part: _Part, tally: _Tally, quick: bool) -> Iterator[Problem]:
    for no, id, space in part.rows("no, id, space", "threads"):
        try:
            yield from Replay(part.db, no, part.names, quick=quick, step=tally.step).check()
        except UNREADABLE as error:
            text = f"the thread cannot be read further: {error}"
            name = namespaces.told(part.names.get(space))
            yield Problem(code="unreadable", message=text, thread=id, namespace=name)


def _check_orphans(db: apsw.Connection) -> Iterator[Problem]:
    """Rows that refer to something that is not there."""
    for code, table, column, target in (
        ("orphans", "records", "no >> 32", "threads"),
        ("orphans", "segments", "first >> 32", "threads"),
        ("orphans", "threads", "space", "namespaces"),
        ("orphans", "blobs", "space", "namespaces"),
        ("orphans", "facts", "thread", "threads"),
        ("orphans", "tags", "thread", "threads"),
        ("orphans", "leases", "thread", "threads"),
        ("orphans", "blob_uses", "record", "records"),
        ("missing_blob", "blob_uses", "blob", "blobs"),
    ):
        count = value(
            db, f"SELECT count(*) FROM {table} WHERE {column} NOT IN (SELECT no FROM {target})"
        )
        if count:
            text = f"{count} rows of {table} refer to {target} that are not there"
            yield Problem(code=code, message=text)


# --- one thread's replay: goes through its records and compares what they add up to ---

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
                record, wrong = self._to_record(row)
            except UNREADABLE as error:
                seq = self._sums.seq = row[0] & rows.SEQ_MAX
                yield self._problem("damaged_record", f"it cannot be read: {error}", seq)
                continue
            yield from self._check_record(record)
            if wrong is not None:
                yield wrong
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
        if source != (origin.entry, to_bytes(origin.hash or ""), row["space"]):
            yield self._problem("broken_origin", f"the origin {origin.entry!r} is not there")

    # --- records ---

    def _to_record(self, row: Row) -> tuple[Record, Problem | None]:
        """The record, an entry without its body, and what is wrong with that.

        The hash of an entry can be told without its body, and so can those of all that follow it.
        """
        blob, body = row[12:]
        held = None if blob is None else self._hash_of_blob(blob)
        if row[1] != rows.ENTRY:
            if blob is not None and held is None:
                raise Corrupt(f"blob no. {blob}", "it is missing")
            return rows.to_record(self._db, self._name, row), None
        entry = rows.to_record(self._db, self._name, (*row[:13], b""))
        assert isinstance(entry, Entry)
        code, text = "damaged_body", None
        try:
            if body is None and held is None:
                code, text = "missing_body", "its body is missing"
            elif body is None and not self._quick:
                fetch_blob(self._db, blob)
            elif not self._quick:
                held = digest(body)
        except UNREADABLE as error:
            text = f"its body cannot be read: {error}"
        if text is None and held not in (None, entry.body_hash):
            text = "its body does not match its hash"
        return entry, None if text is None else self._problem(code, text, entry.seq, entry.id)

    def _hash_of_blob(self, no: int) -> str | None:
        query = "SELECT hash FROM blobs WHERE no = ? AND space = ?"
        row = one(self._db, query, (no, self._row["space"]))
        return None if row is None else str(row[0])

    def _check_record(self, record: Record) -> Iterator[Problem]:
        gap = None if self._purged else self._sums.lacks(record.seq)
        if gap is not None:
            yield self._problem("gap", gap)
        if isinstance(record, Entry):
            yield from self._check_entry(record)
        elif record_hash(record) != record.hash:
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
        if record_hash(entry, parent_hash) != entry.hash:
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
        hash = value(self._db, "SELECT hash FROM records WHERE no = ?", (no,))
        return None if hash is None else to_hash(hash)

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
            namespace=namespaces.told(self._namespace),
        )
