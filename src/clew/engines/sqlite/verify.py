"""Verification: the file's schema and pages, then every row, which the audit compares.

SQLite's own integrity check only sees broken pages; whether the data in them is what was
written can be told by our hashes alone. Both are run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import apsw
from msgspec.structs import replace

from clew.core.codec import digest, to_hash
from clew.core.engine import Progress
from clew.core.errors import Corrupt
from clew.core.lease_rules import LeaseState
from clew.core.model import Entry, Move, Origin, Problem
from clew.core.tombstones import from_stored, used_blobs
from clew.engines.shared import audit
from clew.engines.shared.audit import Audit, Link, Meter, ReadRecord, ReadThread, Rest
from clew.engines.shared.tables import namespaces, packs, record_rows, rows
from clew.engines.shared.tables.namespaces import Space
from clew.engines.shared.tables.rows import Row, fetch_blob
from clew.engines.shared.thread_list import PURGED
from clew.engines.sqlite import blobs, leases
from clew.engines.sqlite.errors import UNREADABLE
from clew.engines.sqlite.schema import differences
from clew.engines.sqlite.write import is_number_left

PAGE_ROWS = 200

# The statements are run on the connection itself, not through `rows.one` and its kin: damaged text
# is one of the many things that make a row UNREADABLE here, and needs no translation.


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
    work = _Check(db, space, quick, progress)
    for name, problems in (
        ("schema", work.schema()),
        ("namespaces", work.namespaces()),
        ("SQLite", () if quick else work.pages()),
        ("blobs", () if quick else work.blobs()),
        ("packs", work.packs()),
        ("threads", work.threads()),
        ("leases", work.leases()),
        ("orphans", work.orphans()),
    ):
        try:
            yield from problems
        except UNREADABLE as error:
            yield audit.unreadable(name, error)
    work.meter.end()


_RECORDS = (
    "SELECT count(*) FROM (SELECT no FROM threads WHERE {} AND shelf < 3) t CROSS JOIN records r"
    f" ON r.no BETWEEN t.no << 32 AND t.no << 32 | {rows.SEQ_MAX}"
)
_PACKED = (
    "SELECT ifnull(sum(p.entries), 0) FROM (SELECT no FROM threads WHERE {} AND shelf < 3) t"
    f" CROSS JOIN packs p ON p.first BETWEEN t.no << 32 AND t.no << 32 | {rows.SEQ_MAX}"
)
_BLOBS = "SELECT count(*) FROM blobs WHERE {}"


class _Check:
    """The parts of a check, of one namespace (`space`) or of all."""

    def __init__(
        self, db: apsw.Connection, space: Space | None, quick: bool, progress: Progress | None
    ) -> None:
        self._db = db
        self._quick = quick
        self._mine = "TRUE" if space is None else f"space = {space.no}"
        self._names: dict[int, str] = {}
        try:
            self._names = {found.no: found.name for found in namespaces.everyone(db)}
        except UNREADABLE:
            pass  # each thread says that it is in none
        counted: tuple[str, ...] = () if progress is None else (_RECORDS, _PACKED)
        counted += () if quick or progress is None else (_BLOBS,)
        self.meter = Meter(progress, sum(self._count(sql) for sql in counted))

    def _count(self, sql: str) -> int:
        try:
            return int(self._db.execute(sql.format(self._mine)).get)
        except apsw.Error:
            return 0  # too damaged to count; what is wrong is found by reading

    # --- the file ---

    def schema(self) -> Iterator[Problem]:
        foreign, changed = differences(self._db)
        for kind, name, _ in sorted({*foreign, *changed}):
            yield audit.unlike_schema(kind, name)

    def namespaces(self) -> Iterator[Problem]:
        default = namespaces.DEFAULT
        if self._names.get(default.no) != default.name:
            text = f"namespace no. {default.no} is not {default.name!r}"
            yield Problem(code="damaged_namespace", message=text)
        if not is_number_left(self._db):
            text = "table sqlite_sequence: no thread can get a number any more"
            yield Problem(code="damaged_namespace", message=text)

    def pages(self) -> Iterator[Problem]:
        for (line,) in self._db.execute("PRAGMA integrity_check"):
            if line != "ok":
                yield Problem(code="damaged_page", message=str(line))

    def orphans(self) -> Iterator[Problem]:
        """Rows that refer to something that is not there."""
        for code, table, column, target in (
            ("orphans", "records", "no >> 32", "threads"),
            ("orphans", "segments", "first >> 32", "threads"),
            ("orphans", "packs", "first >> 32", "threads"),
            ("orphans", "packed_ids", "no >> 32", "threads"),
            ("orphans", "threads", "space", "namespaces"),
            ("orphans", "blobs", "space", "namespaces"),
            ("orphans", "facts", "thread", "threads"),
            ("orphans", "tags", "thread", "threads"),
            ("orphans", "leases", "thread", "threads"),
            ("orphans", "blob_uses", "record", "records"),
            ("missing_blob", "blob_uses", "blob", "blobs"),
        ):
            missing = f"{column} IS NOT NULL AND {column} NOT IN (SELECT no FROM {target})"
            count = self._db.execute(f"SELECT count(*) FROM {table} WHERE {missing}").get
            if count:
                yield audit.strays(count, table, target, code=code)

    # --- rows ---

    def blobs(self) -> Iterator[Problem]:
        query = f"SELECT no, hash, space FROM blobs WHERE {self._mine} ORDER BY no"
        for no, hash, space in self._db.execute(query):
            self.meter.step()
            try:
                fetch_blob(self._db, no)
                # A bit of the compressed form may flip without changing what comes out of it.
                packed = "SELECT data, stored FROM blobs WHERE no = ?"
                data, stored = self._db.execute(packed, (no,)).fetchone() or (b"", "")
                if digest(data) != stored:
                    reason = "its compressed form is not as it was written"
                    raise Corrupt(f"blob {hash}", reason)
            except UNREADABLE as error:
                yield audit.damaged_blob(hash, error, self._names.get(space))

    def packs(self) -> Iterator[Problem]:
        """Packs as they are stored. What is in them, the audit of their thread compares."""
        query = (
            "SELECT p.first, p.last, p.entries, p.stored, t.id, t.space"
            f" FROM (SELECT no, id, space FROM threads WHERE {self._mine}) t"
            f" CROSS JOIN packs p ON p.first BETWEEN t.no << 32 AND t.no << 32 | {rows.SEQ_MAX}"
            " ORDER BY p.first"
        )
        counted, end = 0, 0
        for first, last, entries, stored, thread, space in self._db.execute(query):
            counted += entries
            flaws = ["it overlaps the one before it"] if first <= end else []
            end = last
            try:
                if not self._quick:
                    packs.read(self._db, packs.Pack(first, last, stored), anew=True)
            except UNREADABLE as error:
                flaws.append(str(error))
            for flaw in flaws:
                seqs = f"{first & rows.SEQ_MAX} to {last & rows.SEQ_MAX}"
                where = {"thread": thread, "namespace": self._names.get(space)}
                text = f"the pack of records {seqs}: {flaw}"
                yield audit.problem("damaged_pack", text, **where, seq=first & rows.SEQ_MAX)
        found = self._db.execute(
            f"SELECT count(*) FROM packed_ids WHERE no >> 32 IN (SELECT no FROM threads"
            f" WHERE {self._mine})"
        ).get
        if found != counted:
            text = f"{found} ids are noted for {counted} entries in packs"
            yield Problem(code="wrong_sum", message=text)

    def threads(self) -> Iterator[Problem]:
        query = f"SELECT {_THREAD} FROM threads WHERE {self._mine} ORDER BY no"
        lineages = rows.Lineages()
        for values in self._db.execute(query):
            row = dict(zip(_THREAD.split(", "), values, strict=True))
            namespace = self._names.get(row["space"])
            if namespace is None:
                text = f"there is no namespace no. {row['space']}"
                yield audit.problem("damaged_thread", text, thread=row["id"])
            try:
                found = _Rows(self._db, row, namespace, lineages, quick=self._quick)
                yield from Audit(found, quick=self._quick, meter=self.meter).check()
            except UNREADABLE as error:
                where = {"thread": row["id"], "namespace": namespace}
                yield audit.unreadable("the thread", error, **where)

    def leases(self) -> Iterator[Problem]:
        query = (
            f"SELECT t.id, t.space, l.hash, {leases.COLUMNS} FROM leases l"
            f" JOIN (SELECT no, id, space FROM threads WHERE {self._mine}) t ON t.no = l.thread"
        )
        for thread, space, hash, *fields in self._db.execute(query):
            if leases.lease_hash(thread, LeaseState(*fields)) != hash:
                yield audit.damaged_lease(thread, self._names.get(space))


# --- one thread's rows, as the audit takes them ---

_SUMS = "seq, leaf, leaf_hash, tail, updated_us, listed_us, shelf, deleted_us, status, workspace"
_THREAD = (
    "no, id, created_us, parent, origin, origin_entry, origin_hash, origin_no, hash, space, "
    + _SUMS
)


class _Rows:
    def __init__(
        self,
        db: apsw.Connection,
        row: dict[str, Any],
        namespace: str | None,
        lineages: rows.Lineages,
        *,
        quick: bool,
    ) -> None:
        self._db = db
        self._quick = quick
        self._no: int = row["no"]
        self._space: int = row["space"]
        self._origin_no: int | None = row["origin_no"]
        self._lineage = lineages.of(db, row["origin_no"])
        # From seq 0 on, which no record of ours has, so that such a row shows as damaged.
        self._span = (self._no << 32, self._no << 32 | rows.SEQ_MAX)
        origin = None
        if row["origin"] is not None:
            origin = Origin(row["origin"], row["origin_entry"], row["origin_hash"])
        self.thread = ReadThread(
            id=row["id"],
            created_us=row["created_us"],
            parent=row["parent"],
            origin=origin,
            hash=row["hash"],
            namespace=namespace,
            purged=row["shelf"] == PURGED,
            behind=row["listed_us"] is None,
            source=self._source(),
            sums={name: row[name] for name in _SUMS.split(", ")},
        )

    def _source(self) -> tuple[str, str] | None:
        """Id and hash of the entry that lies where the thread was forked."""
        no = self._origin_no
        home = None if no is None else "SELECT 1 FROM threads WHERE no = ? AND space = ?"
        if home is None or no is None or not self._db.execute(home, (no >> 32, self._space)).get:
            return None
        row = record_rows.row_at(self._db, no)
        return None if row is None or row[1] != rows.ENTRY else (row[2], to_hash(row[4]))

    def pages(self) -> Iterator[list[ReadRecord]]:
        beside = "SELECT first, parent FROM segments WHERE first BETWEEN ? AND ?"
        self._segments: dict[int, int | None] = dict(self._db.execute(beside, self._span))
        self._uses: defaultdict[int, set[int]] = defaultdict(set)
        noted = "SELECT record, blob FROM blob_uses WHERE record BETWEEN ? AND ?"
        for record, blob in self._db.execute(noted, self._span):
            self._uses[record].add(blob)
        page: list[ReadRecord] = []
        try:
            for read in self._records():
                page.append(read)
                if len(page) == PAGE_ROWS:
                    yield page
                    page = []
        except UNREADABLE:
            yield page  # what was read before the damage is judged all the same
            raise
        yield page

    def _records(self) -> Iterator[ReadRecord]:
        first, last = self._span
        for pack in packs.overlapping(self._db, self._span):
            yield from self._in_range((first, pack.first - 1), None)
            yield from self._in_range((pack.first, pack.last), pack)
            first = pack.last + 1
        yield from self._in_range((first, last), None)

    def _in_range(self, span: rows.Range, pack: packs.Pack | None) -> Iterator[ReadRecord]:
        """The records of a range, which is that of a pack or has none in it."""
        select = record_rows.HEADS_IN_RANGE if self._quick else record_rows.IN_RANGE
        found = self._db.execute(f"{select} ORDER BY no", span)
        if pack is None:
            yield from map(self._read, found)
            return
        beside = {row[0]: row for row in found}
        try:
            run = packs.read(self._db, pack, anew=True)
        except UNREADABLE as error:
            yield from self._lost_run(pack, beside, error)
            return
        noted = "SELECT 1 FROM packed_ids WHERE key = ? AND no = ?"
        packed = {row[0]: row for row in run.rows()}
        for no in sorted({*packed, *beside}):
            read = self._read(beside.get(no) or packed[no])
            if no in packed and no in beside:
                read = replace(read, flaw="it is in a pack, and beside it")
            elif no in packed:
                key = packs.key_of(packed[no][2])
                if not self._db.execute(noted, (key, no)).get:
                    read = replace(read, flaw="it is in a pack, and is not found by its id")
            yield read

    def _lost_run(
        self, pack: packs.Pack, beside: dict[int, Row], error: Exception
    ) -> Iterator[ReadRecord]:
        """Every record of a pack that cannot be read, by its seq; not those that lie beside it."""
        end = min(pack.last + 1, pack.first + packs.ENTRIES_MAX + len(beside))
        for no in sorted({*range(pack.first, end), *beside}):
            if no in beside:
                yield self._read(beside[no])
            else:
                flaw = f"it is in a pack that cannot be read: {error}"
                yield ReadRecord(no & rows.SEQ_MAX, None, flaw=flaw)

    def _read(self, row: Row) -> ReadRecord:
        no, type, blob, body = row[0], row[1], row[12], row[13]
        seq = no & rows.SEQ_MAX
        body_flaw = held = None
        try:
            if blob is not None:
                here = "SELECT hash FROM blobs WHERE no = ? AND space = ?"
                held = self._db.execute(here, (blob, self._space)).get
            if type == rows.ENTRY and body is None and not self._is_erased(row):
                body_flaw = self._body_flaw(blob, held)
                row = (*row[:13], b"")  # its hash can be told without its body
            elif blob is not None and held is None:
                raise Corrupt(f"blob no. {blob}", "it is missing")
            record = record_rows.to_record(self._db, self.thread.id, row)
        except UNREADABLE as error:
            return ReadRecord(seq, None, flaw=f"it cannot be read: {error}")
        named = used_blobs(record)
        found = blobs.numbers(self._db, self._space, named) if named else {}
        missing = sorted(set(named) - set(found))
        return ReadRecord(
            seq,
            record,
            no,
            missing=missing,
            # Where a blob is missing, what is noted of it cannot be right either.
            uses_noted=bool(missing) or self._uses.get(no, set()) == set(found.values()),
            segments=[self._segments.pop(no)] if no in self._segments else (),
            body=held,
            body_flaw=body_flaw,
        )

    @staticmethod
    def _is_erased(row: Row) -> bool:
        """Whether there is a tombstone. Only then may a body be missing."""
        if row[12] is not None:
            return False
        try:
            from_stored(row[9], row[8], "")
        except Corrupt:
            return False
        return True

    def _body_flaw(self, blob: int | None, held: str | None) -> tuple[str, str] | None:
        """What is wrong with a body that does not stand in the row itself."""
        if held is None:
            return "missing_body", "its body is missing"
        try:
            if not self._quick:
                fetch_blob(self._db, blob)
        except UNREADABLE as error:
            return "damaged_body", f"its body cannot be read: {error}"
        return None

    def find(self, record: Entry | Move, id: str) -> Link | None:
        try:
            no = rows.locate(self._db, self._no, self._lineage, id)
        except Corrupt:
            if not self.thread.purged:
                raise
            # What is kept may have lost its origin to another purge, but never what it hangs on.
            above = "SELECT parent FROM segments WHERE first = ?"
            no = self._db.execute(above, (self._no << 32 | record.seq,)).get
        row = record_rows.row_at(self._db, no)
        return None if no is None or row is None or row[2] != id else Link(no, to_hash(row[4]))

    def rest(self) -> Rest:
        facts = self._db.execute("SELECT key, record FROM facts WHERE thread = ?", (self._no,))
        tags = self._db.execute("SELECT tag, space FROM tags WHERE thread = ?", (self._no,))
        return Rest(
            # A record of another thread gives a number that is no seq of this one.
            facts={key: record - self._span[0] for key, record in facts},
            tags={tag if space == self._space else None for tag, space in tags},
            segments=len(self._segments),
        )
