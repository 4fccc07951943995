"""The intake: the values of a file go into the store as the entries of a thread.

Every value is stored once. One that the thread has already, by its id and its content, is passed
over; one that has the id of another becomes an entry beside it, and what follows hangs on that: so
a file that was rewritten becomes a branch. A parent that is not there makes a root.

A session that Clew wrote for an agent to go on with becomes a fork of the thread that it was made
of: records with the mark of an entry are that entry, and only what the agent has added is stored.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from clew.core import drafts
from clew.core.codec import digest_fields, encode
from clew.core.errors import ClewError, Conflict
from clew.core.model import Draft, Entry, EntryDraft, Origin, ThreadDraft
from clew.interchange import bundle, ledger
from clew.interchange.ledger import Ledger, Line
from clew.interchange.marks import Mark, mark_of
from clew.interchange.reader import Head, Reader, Session, Source, Stored
from clew.interchange.registry import Format, detect, format_of, sources_in
from clew.interchange.report import FileReport
from clew.interchange.values import (
    Lines,
    Pieces,
    Unreadable,
    Value,
    open_values,
    read_document,
)
from clew.store import Store
from clew.thread import Thread

BATCH_ENTRIES, BATCH_BYTES = 2000, 16 * 1024 * 1024
HEAD_BYTES = 1024 * 1024
HEAD_VALUES = 20
_TRIES = 3


class Intake:
    """Files into one store. With `dry_run` it only tells what it would write.

    With `redact` no secret that is known as one is stored. What is stored then follows from the
    file alone, so that to bring it again brings nothing twice.
    """

    def __init__(self, store: Store, *, dry_run: bool = False, redact: bool = False) -> None:
        self.store = store
        self.dry_run = dry_run
        self.redact = redact
        self.ledger = Ledger(store)

    def bring(self, path: Path, agent: str | None = None) -> list[FileReport]:
        """Bring what a file holds; nothing, if it is no agent's. A database holds many sessions.

        Never raises for what is wrong with the file. `agent` says whose it must be.
        """
        try:
            known = self.ledger.find(path)
            if known is not None:
                files = format_of(known[1].agent).Reader.files(path)
                sources: Iterable[Source] = [Source.of(path, files)]
            elif agent is None and bundle.is_bundle(path):
                return [bundle.bring(self.store, path, dry_run=self.dry_run)]
            else:
                sources = sources_in(path, agent) or [Source.of(path, (path,))]
            found = [self._bring_one(source, agent) for source in sources]
        except (OSError, Unreadable) as error:
            return [FileReport(path=str(path)).fail("failed", _reason(error))]
        return [report for report in found if report is not None]

    def _bring_one(self, source: Source, agent: str | None) -> FileReport | None:
        report = FileReport(path=str(source.path), size=source.size)
        try:
            return self._bring(source, agent, report)
        except (OSError, Unreadable) as error:
            return report.fail("failed", _reason(error))
        except ClewError as error:
            if error.code in ("unavailable", "closed", "read_only", "corrupt"):
                raise  # that is the store, and the next file would fare no better
            return report.fail("failed", str(error))

    def _bring(self, source: Source, agent: str | None, report: FileReport) -> FileReport | None:
        known = self.ledger.find(source.path)
        if known is not None:
            report.thread, line = known
            report.agent = line.agent
            if (line.size, line.mtime_ns) == (source.size, source.mtime_ns):
                return report.fail("unchanged", "")
        head = read_head(source.path) if source.head is None else source.head()
        found = detect(head, agent)
        if found is None:
            return None
        format, session = found
        if source.head is None:
            source = Source.of(source.path, format.Reader.files(source.path))
        for tries in range(1, _TRIES + 1):
            fresh = FileReport(
                path=report.path, agent=session.agent, thread=session.thread, size=source.size
            )
            try:
                return self._read(source, head, format, session, fresh)
            except Conflict:  # another import of the same file was first: what it has is known
                if tries == _TRIES:
                    raise
        return None

    def _read(
        self, source: Source, head: Head, format: Format, session: Session, report: FileReport
    ) -> FileReport:
        stored = Stored(self.store.engine, session.thread)
        if stored.info is not None and stored.info.deleted_at is not None:
            return report.fail("skipped", "its thread is deleted in this store")
        pieces = format.Reader.pieces(head)
        origin = find_origin(self.store, head, session)
        start = self._start(source, session.thread) if pieces is None and not origin else None
        reader = format.Reader(session, stored, fresh=start is None)
        written_us = source.mtime_ns // 1000 if source.files else self.store.clock()
        reader.time_us = reader.time_us or head.time_us or written_us
        clean = _cleaner(report) if self.redact else _as_it_is
        out = _Output(self, session, stored, reader, report, origin, clean)
        if pieces is not None:
            values: Lines | Pieces = Pieces(pieces)
            self._take(values, source, session, reader, out)
        else:
            offset, number = (0, 0) if start is None else (start.offset, start.line)
            with open_values(source.path, offset) as file:
                values = Lines(file, report.note, start=offset, line=number)
                self._take(values, source, session, reader, out)
        report.skipped = values.skipped
        report.values += values.skipped
        for name, count in reader.notes.items():
            report.notes[name] = report.notes.get(name, 0) + count
        if _is_changed(source, values.end if pieces is None else 0):
            out.write(None)
            report.note("changed", "it was rewritten while it was read; import it again")
        else:
            line = _line(source, session, values.end, values.line, marked=pieces is None)
            out.write(replace(line, size=source.size), last=True)
        return report

    def _take(
        self,
        values: Lines | Pieces,
        source: Source,
        session: Session,
        reader: Reader,
        out: _Output,
    ) -> None:
        ordered, read_to = _Ordered(values, reader, source.path), values.end
        for value in ordered:
            if out.is_full and value.start >= read_to and not ordered.waiting:
                in_lines = isinstance(values, Lines)
                out.write(_line(source, session, value.start, value.line - 1, marked=in_lines))
            read_to = max(read_to, value.end)
            draft = reader.take(_cleaned(value, out.clean))
            if out.origin is None or not out.recognise(draft, mark_of(value.value)):
                out.put(draft)

    def _start(self, source: Source, thread: str) -> Line | None:
        """Where to go on in a file that has only grown; None: at its beginning."""
        known = self.ledger.find(source.path)
        if known is None or known[0] != thread or source.path.suffix == ".zst":
            return None
        line = known[1]
        if source.size < line.offset or ledger.mark_of(source.path, line.offset) != line.mark:
            return None
        return line


Clean = Callable[[Any, str, str], Any]
"""Gives a value without its secrets, by where it stands and under which key."""


def _cleaner(report: FileReport) -> Clean:
    from clew.interchange.redaction.redactor import Redactor, Replaced

    def tell(one: Replaced) -> None:
        report.note("redacted", f"{one.rule} at {one.place}")

    redactor = Redactor(numbered=False, tell=tell)
    return lambda value, place, key: redactor.value(value, None, place, key)


def _as_it_is(value: Any, place: str, key: str) -> Any:
    return value


def _cleaned(value: Value, clean: Clean) -> Value:
    found = clean(value.value, f"line {value.line}", "")
    return value if found is value.value else replace(value, value=found, data=encode(found))


def _line(source: Source, session: Session, offset: int, line: int, *, marked: bool) -> Line:
    """How far a source is read. The size says that there is more, until all of it is."""
    return Line(
        path=str(source.path),
        agent=session.agent,
        size=-1,
        mtime_ns=source.mtime_ns,
        offset=offset,
        line=line,
        mark=ledger.mark_of(source.path, offset) if marked else "",
    )


def _is_changed(source: Source, read_to: int) -> bool:
    """Whether files were rewritten while they were read. To grow is no harm."""
    if not source.files:
        return False
    now = Source.of(source.path, source.files)
    rewritten = now.mtime_ns != source.mtime_ns and now.size == source.size
    return rewritten or now.size < min(read_to, source.size)


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


def find_origin(store: Store, head: Head, session: Session) -> Origin | None:
    """Where the thread stood that Clew wrote a session of; None if it is another's own."""
    told = [mark_of(value) for value in (*head.values, *_messages(head))]
    mark = next((one for one in told if one is not None), None)
    if mark is None or mark.leaf is None or mark.thread == session.thread:
        return None
    stored = Stored(store.engine, mark.thread)
    if stored.info is None or stored.info.deleted_at is not None:
        return None
    entry = stored.find(mark.leaf)
    return None if entry is None else Origin(mark.thread, entry.id, entry.hash)


def _messages(head: Head) -> list[Any]:
    """The messages of a document, which has no lines."""
    found = head.first.get("messages")
    return found[:HEAD_VALUES] if isinstance(found, list) else []


def read_head(path: Path) -> Head:
    """The first values of a file; of a document, that is the whole."""
    if path.suffix == ".json":
        return Head(path, [read_document(path)])
    values: list[Any] = []
    with open_values(path) as file:
        lines = Lines(file, lambda name, place: None, line_bytes_max=HEAD_BYTES)
        for value in lines:
            if not value.text:
                values.append(value.value)
            if len(values) >= HEAD_VALUES or lines.end > HEAD_BYTES:
                break
    return Head(path, values)


# --- values in an order in which parents come first ------------------------------------------


class _Ordered:
    """Values in the order of the file, but a child that stands before its parent comes after it."""

    def __init__(self, lines: Lines | Pieces, reader: Reader, path: Path) -> None:
        self.waiting: dict[str, list[Value]] = {}
        self._lines = lines
        self._reader = reader
        self._path = path

    def __iter__(self) -> Iterator[Value]:
        reader, waiting = self._reader, self.waiting
        for value in self._lines:
            awaited = None if value.text else reader.awaits(value.value)
            if awaited is not None and not reader.has(awaited):
                spelled = reader.spelled(awaited)
                if awaited in waiting or _comes_later(self._path, spelled, value.end):
                    waiting.setdefault(awaited, []).append(value)
                    reader.note("late_parent")
                    continue
                reader.note("dangling_parent")
            yield value
            while waiting and reader.last in waiting:
                yield from waiting.pop(reader.last)
        for left in list(waiting.values()):
            yield from left


def _comes_later(path: Path, spelled: bytes, offset: int) -> bool:
    """Whether a record with this id stands behind an offset. A look at bytes is enough."""
    if path.suffix != ".jsonl":
        return False
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return data.find(spelled, offset) >= 0


# --- entries ---------------------------------------------------------------------------------


class _Output:
    """The entries of one file on their way into a thread, in batches."""

    def __init__(
        self,
        intake: Intake,
        session: Session,
        stored: Stored,
        reader: Reader,
        report: FileReport,
        origin: Origin | None,
        clean: Clean,
    ) -> None:
        self.clean = clean
        self.origin = origin
        self._shared: dict[str, Entry] = {}
        if origin is not None and stored.info is None:
            path = intake.store.engine.path(origin.thread, origin.entry)
            self._shared = {entry.id: entry for entry in path}
        self._intake = intake
        self._session = session
        self._stored = stored
        self._reader = reader
        self._report = report
        self._exists = stored.info is not None
        self._leaf = None if stored.info is None else stored.info.leaf
        if stored.info is None and origin is not None:
            self._leaf = origin.entry
        self._marks: dict[str, int] = {}  # entries of this file, and what their bodies hash to
        self._names: dict[str, str] = {}  # ids that the file uses again, and the last one's own
        self._beside: set[str | None] = set()  # what stands beside another entry of its name
        self._batch: list[EntryDraft] = []
        self._bytes = 0
        self._end_us = 0 if stored.info is None else stored.info.updated_us
        self._facts: dict[str, Any] = {}
        self._near: str | None = None  # the last entry that a record was recognised as
        reader.has = self.has

    @property
    def is_full(self) -> bool:
        return len(self._batch) >= BATCH_ENTRIES or self._bytes >= BATCH_BYTES

    def has(self, id: str) -> bool:
        """Whether there is an entry with this id, by the file or by the store."""
        return id in self._marks or self._find(id) is not None

    def _find(self, id: str) -> Entry | None:
        """An entry of the thread, or of what it will share as a fork."""
        return self._shared.get(id) if self._shared else self._stored.find(id)

    def recognise(self, draft: EntryDraft, mark: Mark | None) -> bool:
        """Take a record for the entry that it was made of, which the thread shares.

        The header of such a file is made by Clew, too, and of no entry.
        """
        if mark is None and draft.kind != "thread_info":
            return False
        self._report.values += 1
        self._report.known += 1
        self._marks[draft.id] = 0
        if mark is not None and mark.entry is not None and self._find(mark.entry) is not None:
            self._near = mark.entry
        if self._near is not None:
            self._names[draft.id] = self._near
        return True

    def put(self, draft: EntryDraft) -> None:
        """Take an entry, unless it is there already."""
        self._report.values += 1
        id, mark, parent = draft.id, hash(draft.data), self._parent(draft)
        same = self._is_same(id, draft, mark, parent)
        if same is False:
            # Not the same thing under that name: it stays, and this one stands beside it.
            id = f"{id}~{digest_fields(draft.content_hash, parent)[3:11]}"
            same = self._is_same(id, draft, mark, parent)
            self._reader.note("branched")
        if id != draft.id or draft.id in self._names:
            self._names[draft.id] = id
            self._beside.add(id)
        self._marks[id] = mark
        if same is not None:
            self._report.known += 1
            return
        self._batch.append(replace(draft, id=id, parent=parent))
        self._bytes += len(draft.data)
        self._report.entries += 1

    def _is_same(self, id: str, draft: EntryDraft, mark: int, parent: str | None) -> bool | None:
        """Whether the entry with an id says the same as a draft; None if there is none.

        What follows an entry that stands beside another one goes with it, or it would tell a
        history that has the other one in it.
        """
        if id in self._marks:
            return self._marks[id] == mark
        found = self._find(id)
        if found is None:
            return None
        moved = parent in self._beside and found.parent != parent
        return found.body_hash == draft.content_hash and not moved

    def _parent(self, draft: EntryDraft) -> str | None:
        parent = draft.parent
        if not isinstance(parent, str):
            return None
        if parent == draft.id:
            self._reader.note("loop")
            return None
        parent = self._names.get(parent, parent)
        return parent if self.has(parent) else None

    def write(self, line: Line | None, *, last: bool = False) -> None:
        """Store the batch, with the facts that changed and how far the file is read."""
        batch: list[Draft] = list(self._batch)
        end = self._batch[-1].id if self._batch else self._leaf
        if self._batch:
            self._end_us = self._batch[-1].time_us
        leaf = self._reader.leaf() if last else UNSET
        if last and leaf is UNSET and self._report.entries:
            leaf = self._reader.last  # which may be stored already, unlike what stands before it
        if leaf is not UNSET and leaf is not None:
            leaf = self._names.get(leaf, leaf)
            if leaf != end and self.has(leaf):
                batch.append(drafts.move(leaf, self._end_us))
                end = leaf
        facts = {**self._new_facts(), **({} if line is None else ledger.fact_of(line))}
        self._batch, self._bytes = [], 0
        if self._intake.dry_run:
            return
        if self.origin is not None and not self._exists and not batch:
            self._report.thread = self.origin.thread  # the agent has not gone on yet
            return
        now_us = self._intake.store.clock()
        if not self._exists:
            self._create(batch, now_us)
        batch += drafts.facts(facts, now_us)
        if batch:
            thread = Thread(self._intake.store, self._session.thread)
            thread.write(batch, expect=self._leaf)
            self._leaf = end
        if line is not None:
            self._intake.ledger.set(self._session.thread, line)

    def _new_facts(self) -> dict[str, Any]:
        """The facts that the file tells and that are not stored so already."""
        told = {
            key: self.clean(value, f"fact {key}", key)
            for key, value in {**self._session.facts, **self._reader.facts}.items()
        }
        known = {} if self._stored.info is None else self._stored.info.facts
        new = {
            key: value
            for key, value in told.items()
            if self._facts.get(key, known.get(key)) != value
        }
        self._facts |= new
        return new

    def _create(self, batch: list[Draft], now_us: int) -> None:
        first = next((d.time_us for d in batch if isinstance(d, EntryDraft) and d.time_us), now_us)
        draft = ThreadDraft(
            id=self._session.thread,
            created_us=first,
            parent=self._session.parent,
            origin=self.origin,
        )
        # Not `Store.create`: a sub-agent's file may come before that of its session.
        self._intake.store.engine.create(draft)
        self._exists = True
