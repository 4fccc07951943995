"""Verification: read everything, recompute every hash, replay every thread, compare.

SQLite's own integrity check only sees broken pages; whether the data in them is what was
written can be told by our hashes alone. Both are run.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from clew.codec import digest
from clew.engine import Progress
from clew.engines._migrate import schema
from clew.engines.sqlite import blobs, leases, rows, spaces
from clew.engines.sqlite.errors import UNREADABLE
from clew.engines.sqlite.query import Row, every, one, value
from clew.engines.sqlite.replay import Replay
from clew.engines.sqlite.spaces import Space
from clew.errors import Corrupt
from clew.leasing import LeaseState
from clew.model import Problem

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
            self.names = {found.no: found.name for found in spaces.everyone(db)}
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
    if part.names.get(spaces.DEFAULT.no) != spaces.DEFAULT.name:
        text = f"namespace no. {spaces.DEFAULT.no} is not {spaces.DEFAULT.name!r}"
        yield Problem(code="damaged_namespace", message=text)


def _check_leases(part: _Part) -> Iterator[Problem]:
    query = (
        f"SELECT t.id, t.space, l.hash, {leases.COLUMNS} FROM leases l"
        f" JOIN (SELECT no, id, space FROM threads {part.where}) t ON t.no = l.thread"
    )
    for thread, space, hash, *fields in every(part.db, query):
        if leases.lease_hash(thread, LeaseState(*fields)) != hash:
            text = "its lease does not match its hash"
            name = spaces.told(part.names.get(space))
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
            blobs.fetch(db, no)
            # A bit of the compressed form may flip without changing what comes out of it.
            data, stored = one(db, "SELECT data, stored FROM blobs WHERE no = ?", (no,)) or ("", "")
            if digest(data) != stored:
                raise Corrupt(f"blob {hash}", "its compressed form is not as it was written")
        except UNREADABLE as error:
            name = spaces.told(part.names.get(space))
            yield Problem(code="damaged_blob", message=str(error), blob=hash, namespace=name)


def _check_threads(part: _Part, tally: _Tally, quick: bool) -> Iterator[Problem]:
    for no, id, space in part.rows("no, id, space", "threads"):
        try:
            yield from Replay(part.db, no, part.names, quick=quick, step=tally.step).check()
        except UNREADABLE as error:
            text = f"the thread cannot be read further: {error}"
            name = spaces.told(part.names.get(space))
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
