"""Verification: read every file, recompute every hash, replay every thread, compare the index.

The files are read with an empty index in memory, so that the one on disk has no say in it; at the
end it is compared with what the files say. What an interrupted append left at the end of a file
is set aside first, as opening a thread for writing does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from clew.core.codec import digest
from clew.core.engine import Progress
from clew.core.errors import ClewError, NotFound
from clew.core.hashes import record_hash
from clew.core.lines import Header, Line, Source, is_sound, take_apart
from clew.core.model import Entry, Problem, Record
from clew.engines.files import leases
from clew.engines.files.blobs import Stored
from clew.engines.files.handle import Shared
from clew.engines.files.index import INDEX_ERRORS, Index
from clew.engines.files.journal import Journal
from clew.engines.files.locks import EXCLUSIVE
from clew.engines.files.place import stem
from clew.engines.files.survey import Survey, thread_files
from clew.engines.files.thread_file import read_header
from clew.engines.shared.tables import rows
from clew.engines.shared.tables.rows import every, one


def check(
    shared: Shared, survey: Survey, *, quick: bool, progress: Progress | None
) -> Iterator[Problem]:
    """Every problem, file by file; a file that cannot be read is a problem of its own."""
    tell = progress or (lambda done, total: None)
    if quick:
        with shared.gate.open():
            found = list(_check_quickly(shared, survey))
        yield from found
        return
    afresh = shared.twin(Index(":memory:"))
    try:
        for part in _Check(shared, afresh, tell).parts():
            with shared.gate.open():  # not while somebody looks at what was found
                found = list(part)
            yield from found
    finally:
        afresh.close()


def _check_quickly(shared: Shared, survey: Survey) -> Iterator[Problem]:
    """What can be told without reading what was read before: new records, and missing blobs."""
    try:
        survey.refresh_all()
    except (ClewError, OSError) as error:
        yield Problem(code="damaged_record", message=str(error))
    with shared.index.lock:
        uses = every(shared.index.db, _USES)
    for blob, thread, record, entry in uses:
        if shared.blobs.find(blob) is None:
            yield _missing(blob, thread, record & rows.SEQ_MAX, entry)


_USES = (
    "SELECT u.blob, t.id, u.record, r.id FROM uses u JOIN records r ON r.no = u.record"
    " JOIN threads t ON t.no = u.record >> 32 ORDER BY u.record"
)


def _missing(blob: str, thread: str, seq: int, entry: str) -> Problem:
    text = f"it refers to blob {blob}, which is not there"
    return Problem(
        code="missing_blob", message=text, thread=thread, seq=seq, entry=entry, blob=blob
    )


class _Check:
    def __init__(self, shared: Shared, afresh: Shared, tell: Progress) -> None:
        self._shared = shared
        self._afresh = afresh
        self._tell = tell
        self._threads = [name for name, _ in sorted(thread_files(shared.place.threads))]
        self._husks = [key for key, _ in sorted(thread_files(shared.place.purged))]
        self._blobs = list(shared.blobs.all())
        self._keys: dict[str, str] = {}
        self._done = 0
        self._damaged: set[str] = set()  # files, by name, of which more cannot be said

    def parts(self) -> Iterator[Iterator[Problem]]:
        """File by file, and the index last."""
        place = self._shared.place
        for name in self._threads:
            yield self._guarded(f"{place.threads}/{name}.jsonl", self._check_thread)
        for key in self._husks:
            yield self._guarded(f"{place.purged}/{key}.jsonl", self._check_husk)
        for blob in self._blobs:
            yield self._check_blob(blob)
        yield self._check_index()

    def _guarded(
        self, path: str, work: Callable[[str, Header], Iterator[Problem]]
    ) -> Iterator[Problem]:
        thread = None
        name = os.path.basename(path).removesuffix(".jsonl")
        try:
            header = read_header(path)
            thread = header.draft.id
            for problem in work(path, header):
                self._damaged.add(name)
                yield problem
        except FileNotFoundError:
            pass  # purged meanwhile
        except (ClewError, OSError) as error:
            self._damaged.add(name)
            yield Problem(code="damaged_thread", message=f"{path}: {error}", thread=thread)
        self._step()

    def _step(self) -> None:
        self._done += 1
        self._tell(self._done, len(self._threads) + len(self._husks) + len(self._blobs))

    # --- threads ---

    def _check_thread(self, path: str, header: Header) -> Iterator[Problem]:
        id = header.draft.id
        if stem(id) != os.path.basename(path).removesuffix(".jsonl"):
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
            with journal.lock.held(EXCLUSIVE, self._shared.busy_seconds):
                yield from self._check_lease(journal)
                try:
                    journal.catch_up(exclusive=True)
                except NotFound:
                    return
                except ClewError as error:
                    refused = error  # the lines that are to blame are named below
                data = journal.contents()
            found = list(self._check_origin(header)) + list(
                self._check_lines(path, header, data, journal)
            )
        if refused is not None and not found:
            found = [Problem(code="damaged_thread", message=str(refused), thread=id)]
        yield from found

    def _check_origin(self, header: Header) -> Iterator[Problem]:
        """A fork begins at the very entry that it says."""
        origin, source = header.draft.origin, header.source
        if origin is None or origin.entry is None:
            return
        try:
            if source is None:
                raise NotFound("entry", origin.entry)
            self._afresh.ensure(source)
            place = rows.number(self._afresh.index.number(source.key), source.seq)
            (where,) = self._afresh.index.places((place, place))
            owner = self._afresh.owner(source)
            with owner.mutex:
                owner.refresh()
                (entry,) = owner.records([where])
            if (entry.id, entry.hash) != (origin.entry, origin.hash):
                raise NotFound("entry", origin.entry)
        except (ClewError, ValueError) as error:
            text = f"it was forked at {origin.entry!r} of {origin.thread!r}: {error}"
            yield Problem(code="broken_origin", message=text, thread=header.draft.id)

    def _check_husk(self, path: str, header: Header) -> Iterator[Problem]:
        if header.key != os.path.basename(path).removesuffix(".jsonl") or not header.purged:
            text = f"{path} is named like another file"
            yield Problem(code="misnamed", message=text, thread=header.draft.id)
            return
        if self._afresh.index.is_live(header.key):
            return  # an interrupted purge: the thread itself is still there
        husk = self._afresh.husk(Source(header.draft.id, header.key, 0))
        with husk.mutex:
            husk.refresh_index()
            yield from self._check_lines(path, header, husk.contents(), husk)

    def _check_lease(self, journal: Journal) -> Iterator[Problem]:
        if leases.read(journal.lock.descriptor, self._shared.clock()).damaged:
            text = f"{journal.lock.path}: a slot of its lease is not as it was written"
            yield Problem(code="damaged_lease", message=text, thread=journal.id)

    def _check_lines(
        self, path: str, header: Header, data: bytes, journal: Journal
    ) -> Iterator[Problem]:
        """Every line, also behind damaged ones."""
        thread = header.draft.id
        name = thread.encode("utf-8")
        hashes: dict[str, str] = {}
        seq = 0
        for number, text in enumerate(data.split(b"\n")[1:-1], start=2):
            place = f"{path} line {number}"
            if not is_sound(name, text):
                seq += 1
                yield _damaged(thread, seq, f"{place} does not match its checksum")
                _take_at_its_word(text, hashes)
                continue
            try:
                line = take_apart(text, place)
                if line.seq != seq + 1 and not (header.purged and line.seq > seq):
                    text_ = f"{place}: record {line.seq} follows record {seq}"
                    yield Problem(code="gap", message=text_, thread=thread, seq=line.seq)
                seq = line.seq
                yield from self._check_uses(thread, line.seq, line.id, line.blobs)
                if line.type == "entry":
                    yield from self._check_body(thread, line, place)
                    record = line.record(thread, b"")  # its hash can be told without its body
                else:
                    large = None if line.spilled is None else self._shared.blobs.get(line.spilled)
                    record = line.record(thread, large)
            except NotFound:
                yield _missing(line.spilled or "", thread, seq, line.id)
                continue
            except ClewError as error:
                yield _damaged(thread, seq, f"{place}: {error}")
                continue
            yield from self._check_hash(record, hashes, journal, place)
            if isinstance(record, Entry):
                hashes[record.id] = record.hash

    def _check_body(self, thread: str, line: Line, place: str) -> Iterator[Problem]:
        """The body of an entry is there, in the line or as a blob, and matches its own hash."""
        code, text = "damaged_body", None
        try:
            if line.lacks_body:
                code, text = "missing_body", "its body is missing"
            elif line.spilled is not None:
                self._shared.blobs.get(line.spilled)
            elif digest(bytes(line.body)) != line.body_hash:
                text = "its body does not match its hash"
        except NotFound:
            yield _missing(line.spilled or "", thread, line.seq, line.id)
        except ClewError as error:
            text = f"its body cannot be read: {error}"
        if text is not None:
            text = f"{place}: {text}"
            yield Problem(code=code, message=text, thread=thread, seq=line.seq, entry=line.id)

    def _check_uses(
        self, thread: str, seq: int, id: str, blobs: tuple[str, ...]
    ) -> Iterator[Problem]:
        for blob in blobs:
            if self._shared.blobs.find(blob) is None:
                yield _missing(blob, thread, seq, id)

    def _check_hash(
        self, record: Record, hashes: dict[str, str], journal: Journal, place: str
    ) -> Iterator[Problem]:
        parent_hash = None
        if isinstance(record, Entry) and record.parent is not None:
            parent_hash = self._hash(record.parent, hashes, journal)
            if parent_hash is None:
                text = f"{place}: its parent {record.parent!r} is not there"
                yield Problem(
                    code="broken_chain",
                    message=text,
                    thread=record.thread,
                    seq=record.seq,
                    entry=record.id,
                )
                return
        if record_hash(record, parent_hash) != record.hash:
            yield _damaged(record.thread, record.seq, f"{place} does not match its hash", record.id)

    def _hash(self, id: str | None, hashes: dict[str, str], journal: Journal) -> str | None:
        if id is None:
            return None
        if id in hashes:
            return hashes[id]
        try:
            found = journal.find(id)
        except (ClewError, OSError, *INDEX_ERRORS):
            return None
        return found.hash if isinstance(found, Entry) else None

    # --- blobs and the index ---

    def _check_blob(self, blob: Stored) -> Iterator[Problem]:
        try:
            self._shared.blobs.load(blob)
        except ClewError as error:
            yield Problem(code="damaged_blob", message=str(error), blob=blob.hash)
        self._step()

    def _check_index(self) -> Iterator[Problem]:
        """Where the index on disk has seen as much of a file as we have, it must say the same."""
        index, afresh = self._shared.index, self._afresh.index
        try:
            with index.lock:
                known = every(index.db, "SELECT no, key, name, size FROM files WHERE size > 0")
                for no, key, name, size in known:
                    yield from self._compare(index, afresh, no, key, name, size)
        except INDEX_ERRORS as error:
            text = f"the index cannot be read ({error}); it is made anew when it is next opened"
            yield Problem(code="damaged_index", message=text)

    def _compare(
        self, index: Index, afresh: Index, no: int, key: str, name: str | None, size: int
    ) -> Iterator[Problem]:
        if (name or key) in self._damaged:
            return
        there = one(
            afresh.db,
            "SELECT f.no, f.size, f.name FROM files f JOIN threads t ON t.no = f.no WHERE key = ?",
            (key,),
        )
        thread = one(index.db, "SELECT id, seq FROM threads WHERE no = ?", (no,)) or (name, 0)
        if there is None:
            text = "the index remembers it, but its file is not there"
            yield Problem(code="missing_thread", message=text, thread=thread[0])
        elif there[1] < size:
            text = f"the index remembers {thread[1]} records, the file has fewer"
            yield Problem(code="missing_records", message=text, thread=thread[0])
        elif there[1] > size:
            return  # it has not been asked for the rest yet
        elif name != there[2] or _facts_of(index, no) != _facts_of(afresh, there[0]):
            text = "the index does not say what the file says; clew repair --reindex"
            yield Problem(code="wrong_index", message=text, thread=thread[0])


def _take_at_its_word(text: bytes, hashes: dict[str, str]) -> None:
    """What a damaged line says its hash is, so that those who hang on it are not blamed too."""
    try:
        line = take_apart(text, "")
        hashes[line.id] = line.hash
    except ClewError:
        pass


def _facts_of(index: Index, no: int) -> list[Any]:
    """All that an index says of one thread, with numbers that do not depend on the index."""
    first, last = rows.number(no, 0), rows.number(no, rows.SEQ_MAX)
    db = index.db
    return [
        every(db, f"SELECT {_SUMS} FROM threads WHERE no = ?", (no,)),
        every(
            db,
            "SELECT no & 4294967295, type, id, time_us, hash, parent, kind, body, start, length"
            " FROM records WHERE no BETWEEN ? AND ? ORDER BY no",
            (first, last),
        ),
        every(
            db,
            "SELECT s.first & 4294967295, s.parent & 4294967295, f.key FROM segments s"
            " LEFT JOIN files f ON f.no = s.parent >> 32 WHERE first BETWEEN ? AND ? ORDER BY 1",
            (first, last),
        ),
        every(db, "SELECT key, record & 4294967295 FROM facts WHERE thread=? ORDER BY 1", (no,)),
        every(db, "SELECT tag FROM tags WHERE thread = ? ORDER BY 1", (no,)),
        every(
            db,
            "SELECT record & 4294967295, blob, body FROM uses WHERE record BETWEEN ? AND ?"
            " ORDER BY 1, 2, 3",
            (first, last),
        ),
    ]


_SUMS = (
    "id, created_us, updated_us, listed_us, seq, leaf, leaf_hash, tail, shelf, deleted_us, parent,"
    " status, workspace, origin, origin_entry, origin_hash, origin_no & 4294967295, hash"
)


def _damaged(thread: str, seq: int, message: str, entry: str | None = None) -> Problem:
    return Problem(code="damaged_record", message=message, thread=thread, seq=seq, entry=entry)
