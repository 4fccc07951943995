"""Every JSON value of a file, one after the other, and what stands between them.

Agents write a record a line, and die in between: two records may stand on one line, the last line
may be torn, a block of a disk may be zeros. Nothing is passed over in silence. What is no JSON, or
JSON that would not come back exactly, is given as the text that it is; bytes that are no UTF-8 are
kept in it as Python's `surrogateescape` has them, so that the bytes can be made again. Only what
no entry can hold is left out, and named: a line that is longer than a body may be.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from clew.core.codec import BODY_BYTES_MAX, encode, parse_value
from clew.core.errors import ClewError, InvalidInput

LINE_BYTES_MAX = BODY_BYTES_MAX
UNPACKED_BYTES_MAX = 4 * 1024 * 1024 * 1024  # of a compressed file; a bomb has more
UNPACKED_RATIO_MAX = 200  # sessions shrink to a tenth or so; a bomb to less than a thousandth …
UNPACKED_BYTES_ALWAYS = 256 * 1024 * 1024  # … which does no harm as long as it is not larger
DOCUMENT_BYTES_MAX = 256 * 1024 * 1024
_CHUNK = 1024 * 1024

Note = Callable[[str, str], None]
"""Told what is odd about a file: the name of the case, and where."""


class Value(Struct, frozen=True):
    """One value: as it is, and as its canonical bytes. `end` is the offset behind it.

    `text` says that it was no value: then `value` is the text that stood there.
    """

    value: Any
    data: bytes
    line: int
    start: int
    end: int
    text: bool = False


class Lines:
    """The values of a file of lines, from an offset on.

    `end` is how far the file has been read for good. A torn last line lies behind it, and is read
    when there is more of it. `skipped` are the lines that were too long.
    """

    def __init__(
        self,
        file: IO[bytes],
        note: Note,
        *,
        start: int = 0,
        line: int = 0,
        line_bytes_max: int = LINE_BYTES_MAX,
    ) -> None:
        self.end = start
        self.line = line
        self.skipped = 0
        self._file = file
        self._note = note
        self._max = line_bytes_max

    def __iter__(self) -> Iterator[Value]:
        read = self._file.readline
        while raw := read(self._max + 1):
            start, whole = self.end, raw.endswith(b"\n")
            if len(raw) > self._max and not whole:
                self._pass_over(len(raw))
                continue
            text = raw.strip()
            if not whole and text and not _is_whole(text):
                self._note("torn", f"line {self.line + 1} ends in the middle of a record")
                return
            self.line += 1
            self.end = start + len(raw)
            if text:
                yield from self._values(text, start)

    def _values(self, text: bytes, start: int) -> Iterator[Value]:
        try:
            data, value = parse_value(text)
        except (ClewError, UnicodeDecodeError):
            yield from self._odd_values(text, start)
        else:
            yield Value(value, data, self.line, start, self.end)

    def _odd_values(self, raw: bytes, start: int) -> Iterator[Value]:
        """A line that is not one exact value: several values, or text."""
        text = raw.decode("utf-8", "surrogateescape")
        if any("\udc80" <= c <= "\udcff" for c in text):
            self._note("invalid_utf8", f"line {self.line} has bytes that are not UTF-8")
        place, found = 0, 0
        while place < len(text):
            end = _end_of_value(text, place)
            if end is None:
                self._note("not_json", f"line {self.line}: {text[place : place + 60]!r}")
                yield self._text(text[place:], start)
                break
            yield self._value(text[place:end], start)
            found += 1
            place = end
            while place < len(text) and text[place].isspace():
                place += 1
        if found > 1:
            self._note("glued", f"line {self.line} holds {found} records")

    def _value(self, text: str, start: int) -> Value:
        try:
            try:
                data, value = parse_value(text)
            except UnicodeEncodeError:
                value = json.loads(text)
                data = encode(value)
            return Value(value, data, self.line, start, self.end)
        except (ClewError, ValueError, RecursionError) as error:
            reason = error.fields["reason"] if isinstance(error, InvalidInput) else str(error)
            self._note("inexact", f"line {self.line}: {reason}; it is kept as text")
            return self._text(text, start)

    def _text(self, text: str, start: int) -> Value:
        return Value(text, encode(text), self.line, start, self.end, True)

    def _pass_over(self, size: int) -> None:
        """Leave out a line without having it in memory."""
        whole = False
        while not whole and (chunk := self._file.readline(_CHUNK)):
            size += len(chunk)
            whole = chunk.endswith(b"\n")
        self.line += 1
        self.end += size
        self.skipped += 1
        self._note("too_long", f"line {self.line} has {size:,} bytes; at most {self._max:,} fit")


class Pieces:
    """The pieces of a document, or of several files, as the values of one file."""

    def __init__(self, pieces: Iterable[Any]) -> None:
        self.end = 0
        self.line = 0
        self.skipped = 0
        self._pieces = pieces

    def __iter__(self) -> Iterator[Value]:
        for piece in self._pieces:
            self.end += 1
            self.line += 1
            yield Value(piece, encode(piece), self.line, self.end - 1, self.end)


def read_document(path: Path) -> Any:
    """The one value that a file is. Unreadable if it is none, or too large."""
    size = path.stat().st_size
    if size > DOCUMENT_BYTES_MAX:
        raise Unreadable(f"has {size:,} bytes; at most {DOCUMENT_BYTES_MAX:,} are read at once")
    try:
        return parse_value(path.read_bytes(), limit=DOCUMENT_BYTES_MAX)[1]
    except ClewError as error:
        raise Unreadable(str(error).removeprefix("body: ")) from error


def _is_whole(text: bytes) -> bool:
    """Whether the last line, which has no end of line yet, ends with a record all the same."""
    if text[-1:] not in b"}]":
        return False
    rest = text.decode("utf-8", "surrogateescape")
    place: int | None = 0
    while place is not None and place < len(rest):
        place = _end_of_value(rest, place)
        while place is not None and place < len(rest) and rest[place].isspace():
            place += 1
    return place is not None


def _end_of_value(text: str, place: int) -> int | None:
    """Where the object or list ends that begins here; None if there is none."""
    if text[place] not in "{[":
        return None
    try:
        return int(_DECODER.raw_decode(text, place)[1])
    except (ValueError, RecursionError):
        return None


_DECODER = json.JSONDecoder(parse_int=str)  # no number is too long to find its end


# --- files ----------------------------------------------------------------------------------


class Unreadable(ClewError):
    """A file that cannot be read to its end; what came before that is kept."""

    code = "corrupt"


def check_unpacked(path: Path) -> None:
    """Unreadable for a compressed file that holds more than a session can: before any is stored.

    It unpacks the file once, into nothing, which takes a fraction of the time that reading it does.
    """
    packed = path.stat().st_size
    limit = min(UNPACKED_BYTES_MAX, max(UNPACKED_BYTES_ALWAYS, packed * UNPACKED_RATIO_MAX))
    try:
        with open_values(path) as stream:
            while limit >= 0 and (chunk := stream.read(_CHUNK)):
                limit -= len(chunk)
    except Unreadable:
        return  # it is torn: what can be read of it is read, and the rest is told then
    if limit < 0:
        reason = f"unpacks from {packed:,} bytes to more than a session can have"
        raise Unreadable(f"{reason}; it was not read")


@contextmanager
def open_values(path: Path, start: int = 0) -> Iterator[Any]:
    """A file to be read line by line from an offset; what is compressed is unpacked on the way."""
    if path.suffix == ".zst":
        zstd = _zstd()
        try:
            with zstd.open(path, "rb") as stream:
                left = start
                while left > 0 and (chunk := stream.read(min(left, _CHUNK))):
                    left -= len(chunk)
                yield stream
        except (zstd.ZstdError, EOFError) as error:
            raise Unreadable(f"cannot be unpacked: {error}") from error
    else:
        with path.open("rb", buffering=_CHUNK) as file:
            file.seek(start)
            yield file


def _zstd() -> Any:
    try:
        from compression import zstd  # Python 3.14 has it
    except ImportError:
        from backports import zstd
    return zstd
