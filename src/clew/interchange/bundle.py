"""A thread that Clew wrote to a file, back in a store: exactly, or not at all.

The file is built up in memory first, record by record, through the same door as everything that is
written; each must come out with the hash that its line tells. Then it is copied into the store as
from any other one: what is there already is passed over, and where both sides moved on, the file's
entries become a branch.
"""

from __future__ import annotations

from base64 import b64decode
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from msgspec import Struct
from msgspec.json import Decoder
from msgspec.structs import replace

from clew.address import open_engine
from clew.core import drafts
from clew.core.codec import decode, digest, parse
from clew.core.drafts import KEY_BYTES_MAX
from clew.core.engine import Engine
from clew.core.errors import ClewError, Corrupt, NotFound
from clew.core.facts import check_fact
from clew.core.lines import (
    FORMAT,
    UNREADABLE,
    Line,
    declared_version,
    is_sound,
    parse_header,
    take_apart,
)
from clew.core.lines import VERSION as LINES_VERSION
from clew.core.model import Draft, Entry, Fact, FactDraft, Record, ThreadDraft
from clew.core.names import check_name
from clew.core.tombstones import used_blobs
from clew.interchange.clew_lines import VERSION
from clew.interchange.report import FileReport
from clew.store import Store
from clew.upkeep.copy import copy
from clew.upkeep.transfer import MARK, find_thread

AGENT = "clew"
HEADER_BYTES_MAX = 32_768
LINE_BYTES_MAX = 512 * 1024 * 1024
BATCH_RECORDS = 500
_BEGINNING = b'{"format":"%s"' % FORMAT.encode()
_ASIDE = b'{"type":'  # how a line begins that is no record's


class _Aside(Struct, frozen=True):
    """A line that a bundle has beside those of records."""

    type: str
    version: int = VERSION
    hash: str = ""
    text: str | None = None
    base64: str = ""
    records: int = 0


_decoder = Decoder(_Aside)


def is_bundle(path: Path) -> bool:
    """Whether a file is one of ours, by how it begins."""
    with path.open("rb") as file:
        return file.read(len(_BEGINNING)) == _BEGINNING


def bring(store: Store, path: Path, *, dry_run: bool = False) -> FileReport:
    """Bring the thread of a file; its report. OSError if the file cannot be read.

    A file that is damaged anywhere is not brought at all: its places are named.
    """
    report = FileReport(path=str(path), agent=AGENT, size=path.stat().st_size)
    with closing(open_engine("memory:")) as engine, path.open("rb") as file:
        try:
            report.thread = _File(file, engine, store.engine).load()
        except ClewError as error:
            return report.fail("failed", f"{error}; nothing was brought")
        report.values = report.skipped = engine.thread(report.thread).seq
        theirs = find_thread(store.engine, report.thread)
        if theirs is not None and theirs.deleted_at is not None:
            return report.fail("skipped", "its thread is deleted in this store")
        if dry_run:
            return _counted(report, report.values - (0 if theirs is None else theirs.seq))
        (done,) = copy(engine, store.engine).threads
    if not done.complete:
        return report.fail("failed", done.reason or done.outcome)
    _counted(report, 0 if done.outcome in ("same", "ahead") else done.records)
    if done.outcome == "diverged":
        report.note("branched", f"{report.thread} has moved on in the store")
    return report


def _counted(report: FileReport, new: int) -> FileReport:
    """The report with how many records are new, and how many were there already."""
    report.entries = min(max(0, new), report.values)
    report.known = report.values - report.entries
    report.skipped = 0
    return report


class _File:
    """A file on its way into an engine that no other process sees."""

    def __init__(self, file: IO[bytes], engine: Engine, target: Engine) -> None:
        self._file = file
        self._engine = engine
        self._target = target
        self._number = 1
        self._batch: list[tuple[Line, Draft]] = []
        self._is_bundle = self._is_ended = False

    def load(self) -> str:
        """The id of the thread. Corrupt, with the place, unless the file is whole."""
        first = self._file.readline(HEADER_BYTES_MAX + 1).rstrip(b"\n")
        version = declared_version(first)
        if version is not None and version > LINES_VERSION:
            raise self._wrong(f"is of version {version}; this Clew knows {LINES_VERSION}")
        draft = parse_header(first, self._place).draft
        if draft.origin is not None:
            raise self._wrong("it is a fork that needs the file of its origin; export it instead")
        if draft.parent == MARK:
            raise self._wrong("it was made while a store was copied, and is no thread")
        self._thread = check_name(draft.id, "id")
        parent = None if draft.parent is None else check_name(draft.parent, "parent")
        self._engine.create(
            ThreadDraft(id=self._thread, created_us=draft.created_us, parent=parent)
        )
        name = self._thread.encode("utf-8")
        while raw := self._file.readline(LINE_BYTES_MAX + 1):
            self._number += 1
            self._take(name, raw)
        self._write()
        if self._is_bundle and not self._is_ended:
            raise self._wrong("the bundle ends before its last line")
        return self._thread

    @property
    def _place(self) -> str:
        return f"line {self._number}"

    def _wrong(self, reason: str) -> Corrupt:
        return Corrupt(self._place, reason)

    def _take(self, name: bytes, raw: bytes) -> None:
        if not raw.endswith(b"\n"):
            long = len(raw) > LINE_BYTES_MAX
            raise self._wrong("it is too long" if long else "it ends in the middle of a record")
        line = raw[:-1]
        if not is_sound(name, line):
            raise self._wrong("it does not match its checksum")
        if self._is_ended:
            raise self._wrong("it stands behind the end")
        if line.startswith(_ASIDE):
            self._take_aside(line)
            return
        record = take_apart(line, self._place)
        self._batch.append((record, self._draft(record)))
        if len(self._batch) >= BATCH_RECORDS:
            self._write()

    def _take_aside(self, line: bytes) -> None:
        try:
            found = _decoder.decode(line)
            data = b64decode(found.base64, validate=True)
        except (ValueError, *UNREADABLE) as error:
            raise self._wrong(f"it cannot be read: {error}") from error
        if found.type == "bundle":
            if found.version > VERSION:
                text = f"the bundle is of version {found.version}; this Clew knows {VERSION}"
                raise self._wrong(text)
            self._is_bundle = True
        elif found.type == "blob":
            data = data if found.text is None else found.text.encode("utf-8")
            if digest(data) != found.hash:
                raise self._wrong("the blob does not match its hash")
            self._engine.put_blobs([data])
        elif found.type == "end":
            self._write()
            self._is_ended = True
            count = self._engine.thread(self._thread).seq
            if found.records != count:
                raise self._wrong(f"there are {count} records, and not {found.records}")
        # Others are of a later version of ours, and say nothing that this one must know.

    def _draft(self, line: Line) -> Draft:
        """What a line says, checked as if a caller had said it."""
        record = line.record(self._thread, self._large(line))
        if isinstance(record, Entry):
            for hash in used_blobs(record):
                self._blob(hash)
            made = drafts.draft(
                record.kind,
                record.data,
                id=record.id,
                parent=record.parent,
                turn=record.turn,
                format=record.format,
                meta=_meta(record),
                blobs=record.blobs,
                clock=lambda: record.time_us,
            )
            if record.tombstone is None:
                return made
            return replace(made, tombstone=record.tombstone, known_hash=record.body_hash)
        if isinstance(record, Fact):
            data = parse(record.data, field=f"fact {record.key}")
            check_name(record.key, "facts", KEY_BYTES_MAX)
            check_fact(record.key, decode(data))
            id = check_name(record.id, "id")
            return FactDraft(id=id, key=record.key, data=data, time_us=record.time_us)
        return drafts.move(line.leaf, record.time_us, check_name(record.id, "id"))

    def _large(self, line: Line) -> bytes | None:
        """The body of a file that was taken out of a store of files, if it is to be had."""
        return None if line.spilled is None else self._blob(line.spilled)

    def _blob(self, hash: str) -> bytes:
        """A blob that came in the file, or that the store has."""
        for engine in (self._engine, self._target):
            try:
                data = engine.get_blob(hash)
            except NotFound:
                continue
            self._engine.put_blobs([data])
            return data
        hint = "export the thread as a bundle"
        raise self._wrong(f"blob {hash} is neither in the file nor in the store; {hint}")

    def _write(self) -> None:
        if not self._batch:
            return
        written = self._engine.append(self._thread, [draft for _, draft in self._batch])
        for (line, _), record in zip(self._batch, written, strict=True):
            if (record.seq, record.hash) != (line.seq, line.hash):
                text = f"it should be {line.seq} with hash {line.hash}"
                raise Corrupt(f"record {record.seq}", f"{text}, but is {record.hash}")
        self._batch.clear()


def _meta(record: Record) -> Any:
    """The meta as an object; what is none is refused at the door."""
    data = getattr(record, "meta_data", None)
    return None if data is None else decode(parse(data, field="meta"))
