"""What can be read of a damaged store of files, line by line.

Works on a copy. A line that matches its checksum is what was written, wherever it stands now;
any other is lost. What an interrupted append left at the end of a file was never acknowledged,
and is no loss.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import UNSET, Struct, UnsetType

from clew.core.errors import ClewError, Corrupt
from clew.core.lines import (
    UNREADABLE,
    Header,
    Line,
    Source,
    is_sound,
    parse_header,
    take_apart,
)
from clew.core.maintenance import Budget, Lost, SalvagedThread, Sort
from clew.core.model import Origin, Record, ThreadDraft, to_us
from clew.engines.files.blobs import Blobs
from clew.engines.files.disk import Disk
from clew.engines.files.frames import readable
from clew.engines.files.place import LINES, PACKED, Place, anonymous, unescaped
from clew.engines.files.tail import Damage, judge, scan
from clew.engines.shared.plain_files import refuse_hollow

_SORTS: dict[str, Sort] = {"entry": "entry", "move": "move", "fact": "fact"}
_UNREADABLE = (ClewError, ValueError, TypeError, LookupError, OverflowError)


class _Piece(Struct, frozen=True):
    """A line of a file: a sound one with its seq, or the place of a lost one."""

    seq: int
    number: int
    start: int
    end: int
    sound: bool


class FilesSalvage:
    """See `clew.core.maintenance.Salvage`. `where` is the folder as the report names it."""

    def __init__(self, root: Path, namespace: str, where: str, budget: Budget) -> None:
        self.namespace = namespace
        self.budget = budget
        self._where = "" if where == "." else f"{where}/"
        self.notes: list[str] = []
        self.unverified: set[tuple[str, str]] = set()
        self._root = root
        self._blobs = Blobs(Place(root), Disk())
        self._bodies: set[str] = set()
        self._threads = self._find_threads()

    def threads(self) -> list[SalvagedThread]:
        return list(self._threads)

    def blob(self, hash: str) -> bytes:
        return self._blobs.get(hash)

    def loose_blobs(self) -> Iterator[str]:
        try:
            for stored in self._blobs.all():
                if stored.hash not in self._bodies:
                    yield stored.hash
        except OSError:  # no test: what was just copied cannot be read
            return  # those that entries name are looked for one by one

    def body(self, line: Line) -> bytes | None:
        return None if line.spilled is None else self._blobs.get(line.spilled)

    # --- threads ---

    def _find_threads(self) -> list[SalvagedThread]:
        found: list[_Thread] = []
        # What is left of purged threads comes first: forks in the other room hang on it.
        for room in ("purged", "threads"):
            paths = {*(self._root / room).glob(f"*{LINES}")}
            if room == "threads":
                packed = (self._root / room).glob(f"*{LINES}{PACKED}")
                paths |= {path.with_suffix("") for path in packed}
            for path in sorted(paths):
                thread = self._read(path, purged=room == "purged")
                if thread is not None:
                    found.append(thread)
                    self._bodies |= thread.bodies
        self._tell_apart(found)
        return [*self._stand_ins(found), *found]

    def _read(self, path: Path, *, purged: bool) -> _Thread | None:
        place = f"{self._where}{path.parent.name}/{path.name}"
        try:
            data = _lines_in(path, place)
        except OSError as error:
            self.notes.append(f"{place} cannot be read: {error.strerror}")
            return None
        except Corrupt as error:
            self.notes.append(f"{error}; it is left out")
            return None
        if not path.exists():
            place += PACKED
        header = self._header(data, place, path.stem)
        if header is None:
            self.notes.append(f"{place} cannot be read: nothing tells whose file it is")
            return None
        return _Thread(self, path, place, header, data, purged=purged)

    def _header(self, data: bytes, place: str, stem: str) -> Header | None:
        first, _, rest = data.partition(b"\n")
        try:
            return parse_header(first, place)
        except Corrupt as error:
            guess = _guess_header(first, rest, stem)
            if guess is not None:
                self.notes.append(f"{error}; it is kept as thread {guess.draft.id!r}")
            return guess

    def _tell_apart(self, found: list[_Thread]) -> None:
        taken: set[str] = set()
        keys: set[str] = set()
        for thread in found:
            # A file that was copied by hand has the key of the other one.
            if thread.key in keys:
                thread.key = thread.place
            keys.add(thread.key)
            if thread.purged:
                continue
            if thread.draft.id in taken:
                name = f"{thread.draft.id} ({thread.place})"
                self.notes.append(f"two files were of one thread; {thread.place} is now {name!r}")
                thread.draft = msgspec.structs.replace(thread.draft, id=name)
            taken.add(thread.draft.id)

    def _stand_ins(self, found: list[_Thread]) -> list[SalvagedThread]:
        """For forks whose origin is in no file any more."""
        known = {thread.key for thread in found}
        live = {thread.draft.id: thread.key for thread in found if not thread.purged}
        made: dict[str, SalvagedThread] = {}
        for thread in found:
            origin = thread.draft.origin
            if origin is None or thread.origin_key in known:
                continue
            if thread.origin_key is None and origin.thread in live:
                thread.origin_key = live[origin.thread]
                continue
            thread.origin_key = key = thread.origin_key or f"origin of {thread.key}"
            made.setdefault(key, _Nothing(key, origin.thread))
            self.notes.append(f"the origin of thread {thread.draft.id!r} is lost")
        return list(made.values())


class _Nothing:
    """A thread of which nothing is left but that forks hang on it."""

    origin_key: str | None = None
    purged: bool = True
    leaf: str | UnsetType | None = UNSET
    size: int = 0

    def __init__(self, key: str, id: str) -> None:
        self.key = key
        self.draft = ThreadDraft(id=id, created_us=0)

    def records(self) -> Iterator[Record | Lost]:
        return iter(())


class _Thread:
    """One thread's file, as `SalvagedThread` wants it."""

    leaf: str | UnsetType | None = UNSET

    def __init__(
        self,
        salvage: FilesSalvage,
        path: Path,
        place: str,
        header: Header,
        data: bytes,
        *,
        purged: bool,
    ) -> None:
        self._salvage = salvage
        self._path = path
        self._name = header.draft.id.encode("utf-8")
        self.place = place
        self.purged = purged
        self.key = header.key
        self.draft = header.draft
        self.origin_key = None if header.source is None else header.source.key
        self.bodies: set[str] = set()
        self._pieces = self._find(data)
        # Of a purged thread only what forks need was kept, so that gaps in it are no loss.
        self._gaps = {} if purged else self._find_gaps()
        self.size = len(self._pieces)

    def records(self) -> Iterator[Record | Lost]:
        data = _lines_in(self._path, self.place)
        for piece in self._pieces:
            first = self._gaps.get(piece.number, piece.seq)
            yield from (self._missing(seq, piece) for seq in range(first, piece.seq))
            text = data[piece.start : piece.end]
            yield self._record(piece, text) if piece.sound else self._lost(piece, text)

    def _record(self, piece: _Piece, text: bytes) -> Record | Lost:
        try:
            line = take_apart(text, self.place)
            return line.record(self.draft.id, self._salvage.body(line))
        except _UNREADABLE as error:
            return self._lost(piece, text, f"it cannot be read: {error}")

    def _lost(self, piece: _Piece, text: bytes, reason: str = "") -> Lost:
        """What the remains of a line still tell; they may themselves be damaged."""
        reason = reason or "the line does not match its checksum"
        place = f"{self.place} line {piece.number}"
        try:
            line = take_apart(text, self.place)
        except _UNREADABLE:
            return Lost(place=place, reason=reason, seq=piece.seq, id=_id_in(text))
        sort = _SORTS.get(line.type, "record")
        parent = line.parent if sort == "entry" else UNSET
        id = line.id or None
        return Lost(place=place, reason=reason, seq=piece.seq, id=id, sort=sort, parent=parent)

    def _find_gaps(self) -> dict[int, int]:
        """By the number of the line behind each gap: the first seq that is missing.

        A seq may be any number, and what it says is missing would be written. Where that is more
        than can have been, the gap is closed: what comes behind it gets other seqs.
        """
        gaps: dict[int, int] = {}
        last = 0
        for piece in self._pieces:
            missing = piece.seq - last - 1
            if missing > 0 and self._salvage.budget.take(missing):
                gaps[piece.number] = last + 1
            elif missing > 0:
                text = f"{self.place} line {piece.number} says that it is record {piece.seq:,}"
                self._salvage.notes.append(f"{text}, which cannot be; it follows record {last:,}")
            last = piece.seq
        return gaps

    def _missing(self, seq: int, before: _Piece) -> Lost:
        place = f"{self.place} before line {before.number}"
        return Lost(place=place, reason="its line is missing", seq=seq)

    # --- the lines ---

    def _find(self, data: bytes) -> list[_Piece]:
        start = data.find(b"\n") + 1
        end = self._end(data, start) if start else len(data)
        sound: dict[int, list[_Piece]] = {}
        seen: set[tuple[int, str]] = set()
        bad: list[tuple[int, int, int, int]] = []
        last = 0
        for number, at, text in _lines(data, start, end):
            line = self._sound(text)
            if line is None:
                bad.append((last, number, at, at + len(text)))
            else:
                last = line.seq
                if (line.seq, line.hash) in seen:
                    continue  # the very same line once more
                seen.add((line.seq, line.hash))
                doubled = sound.setdefault(line.seq, [])
                doubled.append(_Piece(line.seq, number, at, at + len(text), True))
                if len(doubled) == 2:
                    self._salvage.notes.append(
                        f"{self.place} has two different records {line.seq}, of two writers at "
                        "once; both are kept, entries as branches"
                    )
                if line.spilled is not None:
                    self.bodies.add(line.spilled)
        return self._in_order(sound, bad)

    def _end(self, data: bytes, start: int) -> int:
        """Where what was acknowledged ends: a torn append behind it is no loss."""
        try:
            found = scan(self._name, data[start:], start, 0, gaps=self.purged)
            rest = data[found.end :]
            whole = bool(rest) and judge(self._name, rest, found.end)
        except Damage:
            return len(data)
        return found.end + len(rest.rstrip(b"\0")) if whole else found.end

    def _sound(self, text: bytes) -> Line | None:
        if not is_sound(self._name, text):
            return None
        try:
            return take_apart(text, self.place)
        except Corrupt:
            return None

    def _in_order(
        self, sound: dict[int, list[_Piece]], bad: list[tuple[int, int, int, int]]
    ) -> list[_Piece]:
        """Sound lines by their seq; a lost one takes the next seq that nothing sound has."""
        taken = dict(sound)
        next_free: dict[int, int] = {}  # behind a sound line there may be many that are lost
        for after, number, start, end in bad:
            seq = next_free.get(after, after + 1)
            while seq in taken and not taken[seq][0].sound:
                seq += 1
            next_free[after] = seq
            if seq not in taken:
                taken[seq] = [_Piece(seq, number, start, end, False)]
            # Otherwise its seq is there: it was a piece of a line, or came twice.
        return [piece for seq in sorted(taken) for piece in taken[seq]]


def _lines_in(path: Path, place: str) -> bytes:
    """The lines of a thread's file, and those of a packed one beside it, or in its place.

    Where both are there, one of them may have been cut: a line that comes twice counts once.
    """
    found: list[bytes] = []
    for name in (path, path.with_name(path.name + PACKED)):
        try:
            with name.open("rb") as file:
                refuse_hollow(file.fileno(), place)
                data = file.read()
        except FileNotFoundError:
            continue
        if name != path:
            data = readable(data)
            if found:  # without its header
                data = data.partition(b"\n")[2]
        found.append(data)
    if not found:  # no test: it goes from the copy between two looks
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return b"".join(found)


def _lines(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, bytes]]:
    number, at = 1 + (start > 0), start
    while at < end:
        newline = data.find(b"\n", at, end)
        stop = end if newline < 0 else newline
        yield number, at, data[at:stop]
        number, at = number + 1, stop + 1


_HEAD_BYTES = 250  # behind these it may be an id in the body
_ID = re.compile(rb'"id":"([^"\\]{1,512})"')


def _id_in(text: bytes) -> str | None:
    found = _ID.search(text[:_HEAD_BYTES])
    try:
        return None if found is None else found[1].decode("utf-8")
    except UnicodeDecodeError:
        return None


class _Remains(Struct):
    """A header whose checksum or hash is wrong, as far as it can be decoded."""

    id: str = ""
    key: str = ""
    created: str = ""
    parent: str | None = None
    origin: Origin | None = None
    source: Source | None = None
    purged: bool = False


def _guess_header(first: bytes, rest: bytes, stem: str) -> Header | None:
    """Whose file it is: the right id is the one that the checksums of the lines agree with."""
    try:
        remains = msgspec.json.decode(first, type=_Remains)
    except UNREADABLE:
        remains = _Remains()
    lines = rest.split(b"\n")
    for id in dict.fromkeys([remains.id, unescaped(stem), _id_in(first) or ""]):
        data = id.encode("utf-8", "replace")
        if id and any(is_sound(data, line) for line in lines):
            created_us = _first_time(remains.created, lines)
            draft = ThreadDraft(
                id=id, created_us=created_us, parent=remains.parent, origin=remains.origin
            )
            key = remains.key if remains.key.isalnum() else f"lost{anonymous(id)}"
            return Header(key, draft, remains.source, remains.purged)
    return None


def _first_time(created: str, lines: list[bytes]) -> int:
    times = [created]
    for line in lines[:10]:
        try:
            times.append(take_apart(line, "").time)
        except _UNREADABLE:
            pass
    for text in times:
        try:
            return to_us(datetime.fromisoformat(text))
        except _UNREADABLE:
            pass
    return 0
