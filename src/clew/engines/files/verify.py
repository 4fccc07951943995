"""Verification: read every file, recompute every hash, replay every thread, compare the index.

The files are read with an empty index in memory, so that the one on disk has no say in it; at the
end it is compared with what the files say. What an interrupted append left at the end of a file
is set aside first, as opening a thread for writing does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

from clew.core.engine import Progress
from clew.core.errors import ClewError, NotFound
from clew.core.lines import Header, Source, is_sound, take_apart
from clew.core.model import Entry, Move, Problem
from clew.core.names import file_stem
from clew.engines.files import leases
from clew.engines.files.blobs import Blobs, Stored
from clew.engines.files.changes import Changes, thread_files
from clew.engines.files.disk import is_exhausted
from clew.engines.files.frames import UNREADABLE_FRAME
from clew.engines.files.index import INDEX_ERRORS, Index, Untrue
from clew.engines.files.journal import Journal
from clew.engines.files.locks import SHARED
from clew.engines.files.open_store import OpenStore
from clew.engines.files.pack import check_leftover
from clew.engines.files.place import LINES, PACKED, is_there, stem_of
from clew.engines.files.thread_file import read_header
from clew.engines.shared import audit
from clew.engines.shared.audit import MISSING_BLOB, Audit, Link, Meter, ReadRecord, ReadThread
from clew.engines.shared.tables import rows
from clew.engines.shared.tables.rows import every, one


def check(
    store: OpenStore, changes: Changes, *, quick: bool, progress: Progress | None
) -> Iterator[Problem]:
    """Every problem, file by file; a file that cannot be read is a problem of its own."""
    with store.writing_to(store.place.root):
        if quick:
            with store.gate.open():
                # An index that cannot be right, or is no file at all, is done without.
                found = store.with_index(lambda: list(_check_quickly(store, changes)))
            yield from found
            return
        afresh = store.twin(Index(":memory:"))
        broken: dict[str, str] = {}
        try:
            for part in _Check(store, afresh, progress).parts():
                # The gate is not held while the caller looks at what was found: a purge would wait.
                with store.gate.open(), afresh.looking_at_all(broken):
                    found = list(part)
                yield from found
        finally:
            afresh.close()


def _check_quickly(store: OpenStore, changes: Changes) -> Iterator[Problem]:
    """What can be told without reading what was read before: new records, files and blobs that
    are missing."""
    yield from list(_lost(store))  # before the index goes by the files that are there
    try:
        changes.refresh_all()
    except (ClewError, OSError) as error:
        yield Problem(code="damaged_record", message=str(error))
    with store.index.asked() as db:
        uses = every(db, _USES)
    for blob, thread, record, entry in uses:
        where = {"thread": thread, "seq": record & rows.SEQ_MAX, "entry": entry}
        try:
            found = store.blobs.find(blob)
        except ClewError as error:
            yield audit.problem("damaged_blob", str(error), blob=blob, **where)
            continue
        if found is None:
            yield audit.problem("missing_blob", MISSING_BLOB.format(blob), blob=blob, **where)


def _lost(store: OpenStore) -> Iterator[Problem]:
    """What the index remembers, and files that are missing or cut off have no more."""
    files = thread_files(store.place.threads)
    with store.index.asked() as db:
        known = every(db, f"SELECT f.no, f.name, f.size, t.id, t.seq {_KNOWN} AND f.name NOT NULL")
        for no, name, size, id, seq in known:
            thread = id or name
            if name not in files:
                yield Problem(code="missing_thread", message=_MISSING, thread=thread)
                continue
            try:
                there = os.lstat(store.place.named(name)).st_size
            except FileNotFoundError:
                continue  # a packed one is whole, or cannot be read
            if there < size and _is_witness(store.index, no, size):
                yield Problem(code="missing_records", message=_FEWER.format(seq), thread=thread)


_USES = (
    "SELECT u.blob, t.id, u.record, r.id FROM uses u JOIN records r ON r.no = u.record"
    " JOIN threads t ON t.no = u.record >> 32 ORDER BY u.record"
)


class _Check:
    """The parts of a check. `afresh` is the same store with an empty index."""

    def __init__(self, store: OpenStore, afresh: OpenStore, progress: Progress | None) -> None:
        self._store = store
        self._afresh = afresh
        self._threads = sorted(thread_files(store.place.threads))
        self._husks = sorted(thread_files(store.place.purged, packed_too=False))
        self._blobs = list(store.blobs.all())
        total = len(self._threads) + len(self._husks) + len(self._blobs)
        self._meter = Meter(progress, total, every=1)
        self._keys: dict[str, str] = {}
        self._damaged: set[str] = set()  # files, by name, of which more cannot be said

    def parts(self) -> Iterator[Iterator[Problem]]:
        """File by file, and the index last."""
        place = self._store.place
        for name in self._threads:
            yield self._guarded(place.named(name), self._check_thread)
        for key in self._husks:
            yield self._guarded(f"{place.purged}/{key}{LINES}", self._check_husk)
        for blob in self._blobs:
            yield self._check_blob(blob)
        text = "{} must be a folder, and no link; what it leads to is not looked at"
        yield iter(
            [
                Problem(code="strange_file", message=text.format(path))
                for path in self._store.blobs.strange()
            ]
        )
        yield self._check_index()

    def _guarded(
        self, path: str, work: Callable[[str, Header], Iterator[Problem]]
    ) -> Iterator[Problem]:
        found = self._problems(path, work)
        if found:
            # Others may have erased something between two looks, in this file or in one above it.
            found = self._problems(path, work)
        if found:
            self._damaged.add(stem_of(path))
        yield from found
        self._meter.step()

    def _problems(
        self, path: str, work: Callable[[str, Header], Iterator[Problem]]
    ) -> list[Problem]:
        found: list[Problem] = []
        thread = None
        try:
            header = read_header(path)
            thread = header.draft.id
            for problem in work(path, header):
                found.append(problem)
        except FileNotFoundError:  # no test: between two looks
            pass  # purged meanwhile
        except (ClewError, OSError, Untrue) as error:
            # Untrue: the index that these files were read into is new, so that they are to blame.
            if is_exhausted(error):
                raise
            found.append(Problem(code="damaged_thread", message=f"{path}: {error}", thread=thread))
        return found

    # --- threads ---

    def _check_thread(self, path: str, header: Header) -> Iterator[Problem]:
        id = header.draft.id
        if file_stem(id) != stem_of(path):
            text = f"{path} is named like another thread's file; it is not used"
            yield Problem(code="misnamed", message=text, thread=id)
            return
        other = self._keys.setdefault(header.key, path)
        if other != path:
            text = f"{path} and {other} have the same key"
            yield Problem(code="same_key", message=text, thread=id)
            return
        journal = self._afresh.journal(id)
        refused = None
        with journal.mutex:  # to the end: it must not be closed for others, which origins are
            with journal.alone():
                if leases.read(journal.lock.descriptor, self._store.clock()).damaged:
                    yield audit.damaged_lease(id, where=f"{journal.lock.path}: ")
                try:
                    journal.catch_up(exclusive=True)
                except NotFound:  # no test: purged between two looks
                    return
                except ClewError as error:
                    refused = error  # the lines that are to blame are named below
                yield from _check_beside(journal)
            lines = _Lines(header, journal, self._store.blobs, self._source(header))
            found = list(Audit(lines, quick=False, meter=None).check())
        if refused is not None and not found:
            found = [Problem(code="damaged_thread", message=str(refused), thread=id)]
        yield from found

    def _source(self, header: Header) -> tuple[str, str] | None:
        """Id and hash of the entry that lies where a fork says that it begins."""
        source = header.source
        if source is None:
            return None
        try:
            self._afresh.ensure(source)
            place = rows.number(self._afresh.index.number(source.key), source.seq)
            (where,) = self._afresh.index.places((place, place))
            owner = self._afresh.owner(source)
            with owner.mutex:
                owner.refresh()
                (entry,) = owner.records([where])
        except (ClewError, ValueError):
            return None  # what is wrong with that file is told where it is checked itself
        return entry.id, entry.hash

    def _check_husk(self, path: str, header: Header) -> Iterator[Problem]:
        """What is left of a purged thread."""
        if header.key != stem_of(path) or not header.purged:
            text = f"{path} is named like another file"
            yield Problem(code="misnamed", message=text, thread=header.draft.id)
            return
        if self._afresh.index.is_live(header.key):
            return  # an interrupted purge: the thread itself is still there
        husk = self._afresh.husk(Source(header.draft.id, header.key, 0))
        with husk.mutex:
            husk.refresh_index()
            lines = _Lines(header, husk, self._store.blobs, None)
            yield from Audit(lines, quick=False, meter=None).check()

    # --- blobs and the index ---

    def _check_blob(self, blob: Stored) -> Iterator[Problem]:
        try:
            self._store.blobs.load(blob)
        except ClewError as error:
            if is_exhausted(error):
                raise
            yield audit.damaged_blob(blob.hash, error)
        self._meter.step()

    def _check_index(self) -> Iterator[Problem]:
        """As far as the index on disk has seen the files, it must say the same as they do.

        One that does not is dropped, and made anew by what is asked for next. One that remembers
        more than the files have is kept, as a witness.
        """
        index = self._store.index
        wrong: list[Problem] = []
        try:
            with index.moment() as db:
                flaw = index.flaw()
                if flaw is not None:
                    raise Untrue(index.file, flaw)
                known = every(db, f"SELECT f.no, f.key, f.name, f.size {_KNOWN}")
                doubtful = [row[0] for row in known if any(self._compare(*row))]
            for no in doubtful:
                for problem in self._look_again(no):
                    wrong += [problem] if problem.code == "wrong_index" else []
                    yield problem
        except INDEX_ERRORS as error:
            text = f"the index cannot be right ({error}); it is made anew"
            wrong.append(Problem(code="damaged_index", message=text))
            yield wrong[-1]
        if wrong and not self._store.readonly:
            index.drop(wrong[0].message)

    def _look_again(self, no: int) -> list[Problem]:
        """Compare a file that was found different, with all that others have written meanwhile."""
        index = self._store.index
        with index.asked() as db:
            row = one(db, f"SELECT t.id {_KNOWN} AND f.no = ? AND f.name IS NOT NULL", (no,))
        with ExitStack() as held:
            if row is not None:
                journal = self._afresh.journal(row[0])
                held.enter_context(journal.mutex)
                # The file first and then the index, as a writer has them.
                held.enter_context(journal.lock.held(SHARED, self._store.busy_seconds))
                with suppress(ClewError, Untrue):  # one that cannot be read on is as it was read
                    journal.catch_up()
            with index.moment() as db:
                row = one(db, f"SELECT f.no, f.key, f.name, f.size {_KNOWN} AND f.no = ?", (no,))
                return [] if row is None else list(self._compare(*row))

    def _compare(self, no: int, key: str, name: str | None, size: int) -> Iterator[Problem]:
        index, afresh = self._store.index, self._afresh.index
        if (name or key) in self._damaged:
            return
        there = one(afresh.db, _THERE, (key,))
        thread = one(index.db, "SELECT id, seq FROM threads WHERE no = ?", (no,)) or (name, 0)
        if there is None:
            place = self._store.place
            path = place.husk(key) if name is None else place.named(name)
            # In this order: a thread may have been made since the files were listed, and a purge
            # takes it out of the index before it removes the file.
            there_now = is_there(path)
            if there_now and name is not None and read_header(path).key == key:
                return
            if index.known(key) is None:  # no test: forgotten between two looks
                return
            if there_now:
                yield _wrong_index(thread[0])
            else:
                yield Problem(code="missing_thread", message=_MISSING, thread=thread[0])
        elif there[1] < size and not _is_witness(index, no, size):
            yield _wrong_index(thread[0])
        elif there[1] < size:
            text = _FEWER.format(thread[1])
            yield Problem(code="missing_records", message=text, thread=thread[0])
        elif (
            name != there[2]
            or (name is not None and thread[1] and not _is_witness(index, no, size))
            # It may not have been asked for the rest yet: then sums differ, but no record.
            or (there[1] == size and _facts_of(index, no) != _facts_of(afresh, there[0]))
            or _records_of(index, no) != _records_of(afresh, there[0], size)
        ):
            yield _wrong_index(thread[0])


_MISSING = "the index remembers it, but its file is not there"
_FEWER = "the index remembers {} records, the file has fewer"
_KNOWN = "FROM files f LEFT JOIN threads t ON t.no = f.no WHERE f.size > 0"
_THERE = "SELECT f.no, f.size, f.name FROM files f JOIN threads t ON t.no = f.no WHERE key = ?"


def _check_beside(journal: Journal) -> Iterator[Problem]:
    """A packed file beside the plain one is what was left over, or it is in the way."""
    if not journal.file.is_packed and os.path.lexists(journal.path + PACKED):
        try:
            check_leftover(journal.file)
        except ClewError as error:
            yield Problem(code="strange_file", message=str(error), thread=journal.id)


class _Lines:
    """The lines of one thread's file, also those behind damaged ones, as the audit takes them.

    A header is read only if it matches its hash, so that is not left to the audit. And the file
    has nothing beside its records: sums stand in the index, which is compared as a whole.
    """

    def __init__(
        self,
        header: Header,
        journal: Journal,
        blobs: Blobs,
        source: tuple[str, str] | None,
    ) -> None:
        self._file, self._size = journal.file, journal.extent
        self._journal = journal
        self._blobs = blobs
        self._name = header.draft.id.encode("utf-8")
        self._seq = 0
        self._hashes: dict[str, tuple[int, str]] = {}  # entries by id: seq and hash
        self.thread = ReadThread(
            id=header.draft.id,
            created_us=header.draft.created_us,
            parent=header.draft.parent,
            origin=header.draft.origin,
            hash="",
            namespace=None,
            purged=header.purged,
            source=source,
            sums={},
        )

    def pages(self) -> Iterator[list[ReadRecord]]:
        number = 0
        for piece in self._file.pieces(self._size):
            for text in piece.split(b"\n")[:-1]:
                number += 1
                if number > 1:  # behind the header
                    yield [self._read(text, f"{self._file.path} line {number}")]

    def _read(self, text: bytes, where: str) -> ReadRecord:
        self._seq += 1  # as far as a line that cannot be read is concerned
        flaw = None
        try:
            line = take_apart(text, "")
            if line.type == "entry":
                # A damaged line is taken at its word here, so that the entries that hang on it are
                # not blamed too.
                self._hashes[line.id] = self._seq, line.hash
            if not is_sound(self._name, text):
                return ReadRecord(self._seq, None, where=where, flaw=_NOT_SOUND)
            self._seq = line.seq
            missing = [blob for blob in line.uses if self._blobs.find(blob) is None]
            large, body_flaw = None, None
            if line.spilled is not None:
                large = b""
                try:
                    large = self._blobs.get(line.spilled)
                except NotFound:
                    missing.append(line.spilled)
                except ClewError as error:
                    if line.type == "entry":
                        body_flaw = "damaged_body", f"its body cannot be read: {error}"
                    else:
                        flaw = f"it cannot be read: {error}"
            elif line.lacks_body:
                large, body_flaw = b"", ("missing_body", "its body is missing")
            record = line.record(self.thread.id, large)
        except ClewError as error:
            flaw = f"it cannot be read: {error}" if is_sound(self._name, text) else _NOT_SOUND
            if text == UNREADABLE_FRAME:
                flaw = "the frame that it is in is damaged"
            return ReadRecord(self._seq, None, where=where, flaw=flaw)
        body = line.spilled  # a blob is named by the digest of what is in it
        return ReadRecord(line.seq, record, None, where, flaw, body, missing, body_flaw=body_flaw)

    def find(self, record: Entry | Move, id: str) -> Link | None:
        if id in self._hashes:
            seq, hash = self._hashes[id]
            return Link(None, hash) if seq < record.seq else None
        try:
            found = self._journal.find(id)
        except (ClewError, OSError, *INDEX_ERRORS):
            return None
        return Link(None, found.hash) if isinstance(found, Entry) else None

    def rest(self) -> None:
        return None


_NOT_SOUND = "it does not match its checksum"


def _facts_of(index: Index, no: int) -> list[Any]:
    """All that an index says of one thread, with numbers that do not depend on the index."""
    first, last = rows.number(no, 0), rows.number(no, rows.SEQ_MAX)
    db = index.db
    return [
        every(db, f"SELECT {_SUMS} FROM threads WHERE no = ?", (no,)),
        every(
            db,
            "SELECT s.first & 4294967295, s.parent & 4294967295, f.key FROM segments s"
            " LEFT JOIN files f ON f.no = s.parent >> 32 WHERE first BETWEEN ? AND ? ORDER BY 1",
            (first, last),
        ),
        every(
            db,
            "SELECT key, record & 4294967295, record >> 32 = thread FROM facts WHERE thread = ?"
            " ORDER BY 1",
            (no,),
        ),
        every(db, "SELECT tag FROM tags WHERE thread = ? ORDER BY 1", (no,)),
        every(
            db,
            "SELECT record & 4294967295, blob, body FROM uses WHERE record BETWEEN ? AND ?"
            " ORDER BY 1, 2, 3",
            (first, last),
        ),
    ]


def _records_of(index: Index, no: int, size: int = 2**62) -> list[Any]:
    """What it says of the records that lie before a place."""
    return every(
        index.db,
        "SELECT no & 4294967295, type, id, time_us, hash, parent, kind, body, start, length"
        " FROM records WHERE no BETWEEN ? AND ? AND start < ? ORDER BY no",
        (rows.number(no, 0), rows.number(no, rows.SEQ_MAX), size),
    )


def _is_witness(index: Index, no: int, size: int) -> bool:
    """Whether it has the records that make up the size that it says a file had."""
    query = "SELECT max(start + length) + 1, count(*) FROM records WHERE no BETWEEN ? AND ?"
    seq = one(index.db, "SELECT seq FROM threads WHERE no = ?", (no,))
    return one(index.db, query, rows.everything_of(no)) == (size, *(seq or ()))


def _wrong_index(thread: str) -> Problem:
    text = "the index does not say what the file says; it is made anew"
    return Problem(code="wrong_index", message=text, thread=thread)


_SUMS = (
    "id, created_us, updated_us, listed_us, seq, leaf, leaf_hash, tail, shelf, deleted_us, parent,"
    " status, workspace, origin, origin_entry, origin_hash, origin_no & 4294967295,"
    " (SELECT key FROM files WHERE no = origin_no >> 32), hash"
)
