"""Verification: read everything, recompute every hash, replay every thread, compare.

PostgreSQL can tell whether a page is as it was written, if checksums are on; whether the data is,
only our hashes can tell. Whether an index holds every row is for `pg_amcheck` to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from clew.core.codec import digest
from clew.core.engine import Progress
from clew.core.errors import Corrupt
from clew.core.model import DEFAULT_NAMESPACE, Problem
from clew.engines.postgres.lookup import Book
from clew.engines.postgres.pool import Connections
from clew.engines.postgres.rows import ENTRY, Place, to_hash
from clew.engines.postgres.verify.replay import Replay, ThreadRow, clean, told
from clew.engines.postgres.verify.streams import (
    LEAST,
    PAGE_BYTES,
    PAGE_ROWS,
    Moment,
    Tables,
    moment,
)
from clew.engines.postgres.wire import array
from clew.engines.shared.compression import unpack
from clew.engines.shared.migrations import migrations, schema

_TOLD_EVERY = 100


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
            ("blobs", () if quick else work.blobs()),
            ("threads", work.threads()),
        ):
            try:
                yield from problems
            except Corrupt as error:
                text = f"{name} cannot be read further: {error}"
                yield Problem(code="unreadable", message=text, namespace=told(book.namespace))
                if name == "schema":
                    break
        work.tally.end()


class _Tally:
    """Counts records and blobs, and tells it to whoever wants to know."""

    def __init__(self, moment: Moment, quick: bool, progress: Progress | None) -> None:
        self._progress = progress
        self._done = 0
        self._total = 0
        if progress is not None:
            self._total = _count(moment, _RECORDS) + (0 if quick else _count(moment, _BLOB_COUNT))

    def step(self) -> None:
        self._done += 1
        if self._progress is not None and self._done % _TOLD_EVERY == 0:
            self._progress(min(self._done, self._total), self._total)

    def end(self) -> None:
        if self._progress is not None:
            self._progress(self._total, self._total)


# What heads say, which is quicker than to count; what is left of purged threads is not told of.
_RECORDS = "SELECT coalesce(sum(seq), 0) FROM clew.threads WHERE space = %s AND NOT purged"
_BLOB_COUNT = "SELECT count(*) FROM clew.blobs WHERE space = %s"


def _count(moment: Moment, sql: str) -> int:
    try:
        return max(0, int(moment.value(sql, moment.book.space)))
    except Corrupt:
        return 0  # too damaged to count; what is wrong is found by reading


class _Check:
    def __init__(self, moment: Moment, quick: bool, progress: Progress | None) -> None:
        self._moment = moment
        self._book = moment.book
        self._quick = quick
        self.tally = _Tally(moment, quick, progress)
        self._damaged: set[bytes] = set()  # blobs, by their hash
        self._readable = True

    def _problem(
        self, code: str, message: str, *, thread: str | None = None, blob: str | None = None
    ) -> Problem:
        name = told(self._book.namespace)
        return Problem(code=code, message=clean(message), thread=thread, blob=blob, namespace=name)

    # --- the store itself ---

    def schema(self) -> Iterator[Problem]:
        """What is missing of the schema, or is not as it should be. More than that is fine."""
        for kind, query, wanted in _wanted(self._book):
            found: dict[str, object] = dict(self._moment.every(query))
            for name, right in sorted(wanted.items()):
                if found.get(name) != right:
                    self._readable = self._readable and kind != "table"
                    text = f"{kind} {name} is not defined as it should be"
                    yield self._problem("damaged_schema", text)
        if not self._readable:
            raise Corrupt(self._moment.place, "tables are missing")

    def namespaces(self) -> Iterator[Problem]:
        book = self._book
        name = self._moment.value("SELECT name FROM clew.namespaces WHERE no = %s", book.space)
        if name != book.namespace:
            text = f"namespace no. {book.space} is {name!r}, not {book.namespace!r}"
            yield self._problem("orphans", text)
        if book.namespace != DEFAULT_NAMESPACE:
            return  # what is in no namespace is told once, with the one that every store has
        for table in ("threads", "records", "segments", "facts", "tags", "blobs", "blob_uses"):
            found = [str(space) for (space,) in self._moment.every(_HOMELESS.format(table=table))]
            if found:
                text = f"{table} has rows of namespaces that are not there: {', '.join(found)}"
                yield self._problem("orphans", text)

    # --- blobs ---

    def blobs(self) -> Iterator[Problem]:
        """By hash: first how large they are, then as many of them as memory is meant for."""
        after = b""
        while page := self._moment.every(_BLOBS, self._book.space, after):
            for hashes in _batches([(hash, size) for hash, size in page]):
                yield from self._check_blobs(hashes)
            last = max(hash for hash, _ in page)
            if last <= after:
                raise Corrupt(self._moment.place, "the rows of blobs are not in order")
            after = last

    def _check_blobs(self, hashes: list[bytes]) -> Iterator[Problem]:
        try:
            found = self._moment.every(_DATA, self._book.space, hashes)
        except Corrupt as error:
            if len(hashes) > 1:
                for hash in hashes:
                    yield from self._check_blobs([hash])
                return
            self.tally.step()
            yield self._damaged_blob(hashes[0], error)
            return
        for hash, size, codec, stored, data in found:
            self.tally.step()
            try:
                # A bit of the compressed form may flip without changing what comes out of it.
                if codec not in ("raw", "zstd") or digest(data) != to_hash(stored):
                    raise Corrupt(f"blob {to_hash(hash)}", "it is not stored as it was written")
                unpack(to_hash(hash), size, codec, data)
            except Corrupt as error:
                yield self._damaged_blob(hash, error)

    def _damaged_blob(self, hash: bytes, error: Corrupt) -> Problem:
        self._damaged.add(hash)
        return self._problem("damaged_blob", str(error), blob=to_hash(hash))

    # --- threads ---

    def threads(self) -> Iterator[Problem]:
        tables = Tables(self._moment, self._quick)
        after = LEAST
        while page := [
            ThreadRow(*row) for row in self._moment.every(_THREADS, self._book.space, after)
        ]:
            sources = self._sources([row.source for row in page if row.source is not None])
            for row in page:
                yield from self._check_thread(row, tables, sources)
            last = max(row.no for row in page)
            if last <= after:
                raise Corrupt(self._moment.place, "the rows of threads are not in order")
            after = last
        for table in tables:
            if strays := table.end():
                text = f"{strays} rows of {table.table} refer to threads that are not there"
                yield self._problem("orphans", text)

    def _sources(self, places: list[Place]) -> dict[Place, tuple[str, str]]:
        """The entries that are where forks say that they begin; not those that are unreadable."""
        if not places:
            return {}
        threads, seqs = (array(part) for part in zip(*places, strict=True))
        try:
            found = self._moment.every(_SOURCES, threads, seqs, self._book.space)
        except Corrupt:
            half = len(places) // 2
            if half == 0:
                return {}
            return self._sources(places[:half]) | self._sources(places[half:])
        return {(thread, seq): (id, to_hash(hash)) for thread, seq, id, hash in found}

    def _check_thread(
        self, row: ThreadRow, tables: Tables, sources: dict[Place, tuple[str, str]]
    ) -> Iterator[Problem]:
        source = None if row.source is None else sources.get(row.source)
        replay = Replay(row, tables, quick=self._quick, source=source, damaged=self._damaged)
        try:
            yield from replay.check((lambda: None) if row.purged else self.tally.step)
        except Corrupt as error:
            for table in tables:
                table.pass_over(row.no)
            text = f"the thread cannot be read further: {error}"
            yield self._problem("unreadable", text, thread=clean(row.id))


# A row of each namespace that a table has: from one to the next by the index.
_HOMELESS = """
WITH RECURSIVE found (space) AS (
  (SELECT t.space FROM clew.{table} t ORDER BY t.space LIMIT 1)
  UNION ALL
  SELECT (SELECT t.space FROM clew.{table} t WHERE t.space > f.space ORDER BY t.space LIMIT 1)
    FROM found f WHERE f.space IS NOT NULL
)
SELECT f.space FROM found f
 WHERE f.space IS NOT NULL AND NOT EXISTS (SELECT 1 FROM clew.namespaces n WHERE n.no = f.space)
"""
_BLOBS = f"""
SELECT b.hash, octet_length(b.data) FROM clew.blobs b
 WHERE b.space = %s AND b.hash > %s ORDER BY b.hash LIMIT {PAGE_ROWS}
"""
_DATA = """
SELECT b.hash, b.size, b.codec, b.stored, b.data FROM clew.blobs b
 WHERE b.space = %s AND b.hash = ANY(%s::bytea[])
"""
_THREADS = (
    f"SELECT {', '.join(f't.{name}' for name in ThreadRow.__struct_fields__)} FROM clew.threads t"
    f" WHERE t.space = %s AND t.no > %s ORDER BY t.no LIMIT {PAGE_ROWS}"
)
_SOURCES = f"""
SELECT r.thread, r.seq, r.id, r.hash
  FROM unnest(%s::bigint[], %s::bigint[]) AS w (thread, seq)
 CROSS JOIN LATERAL (
   SELECT * FROM clew.records o
    WHERE o.space = %s AND o.thread = w.thread AND o.seq = w.seq AND o.type = {ENTRY} LIMIT 1) AS r
"""


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
    if batch:
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
_CLOCK = "now_us"  # may be another one


def _wanted(book: Book) -> Iterator[tuple[str, str, Mapping[str, object]]]:
    text = book.sql(schema("postgres"))
    yield "format", "SELECT 'version', max(version) FROM clew.format", {"version": _newest()}
    tables = re.findall(r"^CREATE TABLE \w+\.(\w+)", text, re.M)
    yield "table", _RELATIONS, dict.fromkeys(tables, True)
    indexes = re.findall(r"^CREATE (UNIQUE )?INDEX\s+(\w+)", text, re.M)
    yield "index", _INDEXES, {name: bool(unique) for unique, name in indexes}
    bodies = r"^CREATE FUNCTION \w+\.(\w+)\(.*?\$\$(.*?)\$\$"
    functions = dict(re.findall(bodies, text, re.M | re.S))
    yield "function", _FUNCTIONS, {n: body for n, body in functions.items() if n != _CLOCK}


def _newest() -> int:
    return len(migrations("postgres"))
