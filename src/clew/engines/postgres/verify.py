"""Verification: read everything at one moment, and hand it to the audit, which compares.

PostgreSQL can tell whether a page is as it was written, if checksums are on; whether the data is,
only our hashes can tell. Whether an index holds every row is for `pg_amcheck` to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from clew.core.codec import digest
from clew.core.engine import Progress
from clew.core.errors import Corrupt
from clew.core.model import DEFAULT_NAMESPACE, Entry, Fact, Move, Origin, Problem, Record
from clew.engines.postgres.leases import lease_check
from clew.engines.postgres.lookup import Book
from clew.engines.postgres.pool import Connections
from clew.engines.postgres.rows import ENTRY, Position, to_bytes, to_hash, to_lease
from clew.engines.postgres.table_streams import (
    LEAST,
    PAGE_BYTES,
    PAGE_ROWS,
    Beside,
    Moment,
    RecordRow,
    Tables,
    moment,
)
from clew.engines.postgres.wire import array
from clew.engines.postgres.write import LISTED_FACTS
from clew.engines.shared import audit
from clew.engines.shared.audit import Audit, Link, Meter, ReadRecord, ReadThread, Rest
from clew.engines.shared.compression import unpack
from clew.engines.shared.migrations import migrations, schema

NOWHERE = (None, None)


def check(
    connections: Connections, book: Book, *, quick: bool = False, progress: Progress | None = None
) -> Iterator[Problem]:
    """Every problem of a namespace, part by part; what cannot be read is a problem of its own.

    All of it is as it was at one moment. The quick form leaves out the parts that read bodies
    and blobs.
    """
    with moment(connections, book) as now:
        work = _Check(now, quick, progress)
        for name, problems in (
            ("schema", work.schema()),
            ("namespaces", work.namespaces()),
            # Before the threads, which are told what blobs are damaged.
            ("blobs", () if quick else work.blobs()),
            ("threads", work.threads()),
        ):
            try:
                yield from problems
            except Corrupt as error:
                yield audit.unreadable(name, error, namespace=book.namespace)
                if name == "schema":
                    break
        work.meter.end()


class _Check:
    """The parts of a check."""

    def __init__(self, moment: Moment, quick: bool, progress: Progress | None) -> None:
        self._moment = moment
        self._book = moment.book
        self._quick = quick
        self.meter = Meter(progress, 0 if progress is None else self._count())
        self._damaged: set[bytes] = set()  # blobs, by their hash

    def _count(self) -> int:
        sql = "SELECT records, blobs FROM clew.count_all(%s)"
        try:
            ((records, blobs),) = self._moment.every(sql, self._book.space)
        except Corrupt:
            return 0  # too damaged to count; what is wrong is found by reading
        return max(0, int(records)) + (0 if self._quick else int(blobs))

    # --- the store itself ---

    def schema(self) -> Iterator[Problem]:
        """What is missing of the schema, or is not as it should be. More than that is fine."""
        readable = True
        for kind, query, wanted in _wanted(self._book):
            found: dict[str, object] = dict(self._moment.every(query))
            for name, right in sorted(wanted.items()):
                if found.get(name) != right:
                    readable = readable and kind != "table"
                    yield audit.unlike_schema(kind, name, self._book.namespace)
        if not readable:
            raise Corrupt(self._moment.place, "tables are missing")

    def namespaces(self) -> Iterator[Problem]:
        book = self._book
        name = self._moment.value("SELECT name FROM clew.spaces() WHERE no = %s", book.space)
        if name != book.namespace:
            text = f"namespace no. {book.space} is {name!r}, not {book.namespace!r}"
            yield audit.problem("orphans", text, namespace=book.namespace)
        if book.namespace != DEFAULT_NAMESPACE:
            return  # what is in no namespace is told once, with the one that every store has
        for table in ("threads", "records", "segments", "facts", "tags", "blobs", "blob_uses"):
            sql = "SELECT * FROM clew.homeless(%s)"
            found = [str(space) for (space,) in self._moment.every(sql, table)]
            if found:
                text = f"{table} has rows of namespaces that are not there: {', '.join(found)}"
                yield audit.problem("orphans", text)

    # --- blobs ---

    def blobs(self) -> Iterator[Problem]:
        """By hash: first how large they are, then as many of them as memory is meant for."""
        after = b""
        sql = "SELECT * FROM clew.scan_blob_sizes(%s, %s, %s)"
        while page := self._moment.every(sql, self._book.space, after, PAGE_ROWS):
            last = max(hash for hash, _ in page)
            if last <= after:
                raise Corrupt(self._moment.place, "the rows of blobs are not in order")
            for hashes in _batches([(hash, size) for hash, size in page]):
                yield from self._check_blobs(hashes)
            after = last

    def _check_blobs(self, hashes: list[bytes]) -> Iterator[Problem]:
        sql = "SELECT hash, size, codec, stored, data FROM clew.scan_blobs(%s, %s::bytea[])"
        try:
            found = self._moment.every(sql, self._book.space, hashes)
        except Corrupt as error:
            # One of them is the reason: asked for alone, the others can still be read.
            if len(hashes) > 1:
                for hash in hashes:
                    yield from self._check_blobs([hash])
                return
            self.meter.step()
            yield self._damaged_blob(hashes[0], error)
            return
        for hash, size, codec, stored, data in found:
            self.meter.step()
            try:
                # A bit of the compressed form may flip without changing what comes out of it.
                if codec not in ("raw", "zstd") or digest(data) != to_hash(stored):
                    raise Corrupt(f"blob {to_hash(hash)}", "it is not stored as it was written")
                unpack(to_hash(hash), size, codec, data)
            except Corrupt as error:
                yield self._damaged_blob(hash, error)

    def _damaged_blob(self, hash: bytes, error: Corrupt) -> Problem:
        self._damaged.add(hash)
        return audit.damaged_blob(to_hash(hash), error, self._book.namespace)

    # --- threads ---

    def threads(self) -> Iterator[Problem]:
        tables = Tables(self._moment, self._quick)
        after = LEAST
        while page := [
            _FullRow(*row)
            for row in self._moment.every(_THREADS, self._book.space, after, PAGE_ROWS)
        ]:
            last = max(row.no for row in page)
            if last <= after:
                raise Corrupt(self._moment.place, "the rows of threads are not in order")
            sources = self._sources([row.source for row in page if row.source is not None])
            for row in page:
                source = None if row.source is None else sources.get(row.source)
                yield from self._check_thread(row, tables, source)
            after = last
        for table in tables:
            if count := table.end():
                name = self._book.namespace
                yield audit.strays(count, table.table, "threads", namespace=name)

    def _sources(self, places: list[Position]) -> dict[Position, tuple[str, str]]:
        """The entries that are where forks say that they begin; not those that are unreadable."""
        if not places:
            return {}
        threads, seqs = (array(part) for part in zip(*places, strict=True))
        sql = "SELECT * FROM clew.entries_at(%s, %s::bigint[], %s::bigint[])"
        try:
            found = self._moment.every(sql, self._book.space, threads, seqs)
        except Corrupt:
            half = len(places) // 2
            if half == 0:
                return {}
            return self._sources(places[:half]) | self._sources(places[half:])
        return {(thread, seq): (id, to_hash(hash)) for thread, seq, id, hash in found}

    def _check_thread(
        self, row: _FullRow, tables: Tables, source: tuple[str, str] | None
    ) -> Iterator[Problem]:
        name = self._book.namespace
        if row.lease_is_odd and not row.purged:
            yield audit.damaged_lease(row.id, name)
        rows = _Rows(row, tables, name, source, self._damaged)
        try:
            yield from Audit(rows, quick=self._quick, meter=self.meter).check()
        except Corrupt as error:
            for table in tables:
                table.pass_over(row.no)
            yield audit.unreadable("the thread", error, thread=row.id, namespace=name)


# --- one thread's rows, as the audit takes them ---


class _FullRow(Struct, frozen=True):
    """A thread's row with every column that can be verified."""

    no: int
    id: str
    created_us: int
    updated_us: int
    listed_us: int | None
    seq: int
    leaf: str | None
    leaf_hash: bytes | None
    leaf_thread: int | None
    leaf_seq: int | None
    tail: str | None
    archived: bool
    purged: bool
    shelf: int
    deleted_us: int | None
    status: str | None
    workspace: str | None
    parent: str | None
    origin: str | None
    origin_entry: str | None
    origin_hash: bytes | None
    origin_thread: int | None
    origin_seq: int | None
    fence: int
    owner: str | None
    lease_turn: str | None
    leased_us: int
    until_us: int
    lease_check: int
    hash: bytes

    @property
    def source(self) -> Position | None:
        """Where the last shared entry is."""
        if self.origin_thread is None or self.origin_seq is None:
            return None
        return self.origin_thread, self.origin_seq

    @property
    def is_odd(self) -> bool:
        """Whether a text is empty that should be NULL, or of two that go together one is."""
        return "" in (self.id, self.parent, self.origin, self.origin_entry) or (
            (self.origin_entry is None) != (self.origin_hash is None)
            or (self.origin is None and self.origin_entry is not None)
            or (self.origin_thread is None) != (self.origin_seq is None)
        )

    @property
    def lease_is_odd(self) -> bool:
        state = to_lease((self.fence, self.owner, self.lease_turn, self.leased_us, self.until_us))
        if state.fence == 0:
            return self.lease_check != 0 or state != to_lease((0, None, None, 0, 0))
        try:
            right = lease_check(self.id, state)
        except UnicodeEncodeError:
            return True
        return "" in (self.owner, self.lease_turn) or self.lease_check != right


class _Rows:
    """`source` is the entry that is where the thread says its origin is: its id and hash."""

    def __init__(
        self,
        row: _FullRow,
        tables: Tables,
        namespace: str,
        source: tuple[str, str] | None,
        damaged: set[bytes],
    ) -> None:
        self._no = row.no
        self._tables = tables
        self._damaged = damaged
        origin = None
        if row.origin is not None:
            origin = Origin(row.origin, row.origin_entry, to_hash(row.origin_hash))
        same = "seq leaf tail updated_us listed_us archived shelf deleted_us status workspace owner"
        sums: dict[str, Any] = {name: getattr(row, name) for name in same.split()}
        sums |= {"lease_turn": row.lease_turn, "leaf_hash": to_hash(row.leaf_hash)}
        self.thread = ReadThread(
            id=row.id,
            created_us=row.created_us,
            parent=row.parent,
            origin=origin,
            hash=to_hash(row.hash),
            namespace=namespace,
            purged=row.purged,
            flawed=row.is_odd,
            source=source,
            source_place=row.source,
            sums={**sums, "leaf_place": _place(row.leaf_thread, row.leaf_seq)},
        )

    def pages(self) -> Iterator[list[ReadRecord]]:
        self._segments = Beside(self._tables.segments.of(self._no))
        self._uses = Beside(self._tables.uses.of(self._no))
        for page in self._tables.records.of(self._no):
            # Of a row that the server cannot read only the keys are there.
            yield [
                self._read(row)
                if isinstance(row, RecordRow)
                else ReadRecord(row[1], None, flaw="it cannot be read")
                for row in page
            ]

    def _read(self, row: RecordRow) -> ReadRecord:
        there = self._tables.records.there
        flaw = body_flaw = None
        blob = None if row.blob is None else to_hash(row.blob)
        gone = row.blob is not None and row.blob not in there
        if row.type == ENTRY:  # its hash can be told without its body
            if gone:
                body_flaw = "missing_body", f"its body is blob {blob}, which is missing"
            elif row.blob in self._damaged:
                body_flaw = "damaged_body", f"its body is blob {blob}, which is damaged"
            elif row.blob is None and row.body is None and not row.is_erased:
                body_flaw = "missing_body", "its body is missing"
        elif gone:
            flaw = f"it cannot be read: blob {blob}: it is missing"
        elif row.blob in self._damaged:
            flaw = f"it cannot be read: blob {blob}: it is damaged"
        if flaw is None and (row.is_odd or row.seq < 1):
            flaw = "it is not as a record is written"
        return ReadRecord(
            row.seq,
            self._with_value(row, row.to_record(self.thread.id)),
            (row.thread, row.seq),
            flaw=flaw,
            body=blob,
            body_flaw=body_flaw,
            missing=sorted(hash for hash in set(row.named) if to_bytes(hash) not in there),
            uses_noted={blob for _, _, blob in self._uses.at(row.seq)} == row.uses,
            segments=[_place(*parent) for _, _, *parent in self._segments.at(row.seq)],
        )

    def _with_value(self, row: RecordRow, record: Record) -> Record:
        """A fact with its value, if that is in a blob, and a column repeats it."""
        if row.blob is None or not isinstance(record, Fact) or record.key not in LISTED_FACTS:
            return record
        try:
            return replace(record, data=self._tables.records.body(row.blob))
        except Corrupt:
            return record  # the blob is reported, and so is the record

    def find(self, record: Entry | Move, id: str) -> Link | None:
        link = self._tables.records.links.get((self._no, id))
        return link if link is not None and link.place < (self._no, record.seq) else None

    def rest(self) -> Rest:
        tables = self._tables
        return Rest(
            facts={key: seq for page in tables.facts.of(self._no) for _, key, seq in page},
            tags={tag for page in tables.tags.of(self._no) for _, tag in page},
            segments=self._segments.end(),
            uses=self._uses.end(),
        )


def _place(thread: int | None, seq: int | None) -> Any:
    """A place; None for none. Half a place is none that any entry has."""
    return None if (thread, seq) == NOWHERE else (thread, seq)


# --- statements ---

_THREADS = f"SELECT {', '.join(_FullRow.__struct_fields__)} FROM clew.scan_threads(%s, %s, %s)"


def _batches(sizes: list[tuple[bytes, int]]) -> Iterator[list[bytes]]:
    """Blobs that fit into memory together; a large one alone."""
    batch: list[bytes] = []
    total = 0
    for hash, size in sizes:
        if batch and total + size > PAGE_BYTES:
            yield batch
            batch, total = [], 0
        batch.append(hash)
        total += size
    if batch:  # one way: a page has a row
        yield batch


# --- the schema as it should be ---

_OURS = "= (SELECT n.relnamespace FROM pg_class n WHERE n.oid = 'clew.namespaces'::regclass)"
_RELATIONS = (
    f"SELECT relname, true FROM pg_class WHERE relkind IN ('r', 'p') AND relnamespace {_OURS}"
)
_INDEXES = f"""
SELECT c.relname, i.indisunique FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
 WHERE i.indisvalid AND c.relnamespace {_OURS}
"""
_FUNCTIONS = f"SELECT proname, prosrc FROM pg_proc WHERE pronamespace {_OURS}"
_OTHERS = ("now_us", "admits")  # may be other ones: a clock of tests, and row-level security


def _wanted(book: Book) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    text = book.sql(schema("postgres"))
    newest = len(migrations("postgres"))
    yield "format", "SELECT 'version', max(version) FROM clew.format", {"version": newest}
    tables = re.findall(r"^CREATE TABLE \w+\.(\w+)", text, re.M)
    yield "table", _RELATIONS, dict.fromkeys(tables, True)
    indexes = re.findall(r"^CREATE (UNIQUE )?INDEX\s+(\w+)", text, re.M)
    yield "index", _INDEXES, {name: bool(unique) for unique, name in indexes}
    bodies = r"^CREATE FUNCTION \w+\.(\w+)\(.*?\$\$(.*?)\$\$"
    functions = dict(re.findall(bodies, text, re.M | re.S))
    yield "function", _FUNCTIONS, {n: body for n, body in functions.items() if n not in _OTHERS}
