"""Packed lines: a thread's file as Zstandard frames, each of which can be unpacked alone.

A packed file is what the public seekable format of Zstandard describes: ordinary frames, and at
the end a table of their sizes in a frame that other tools pass over. Each frame has whole lines,
says its size and carries a checksum. Offsets are always those of the lines, as if they were not
packed, so that what remembers a place need not know whether the file is.

Nothing here is believed before it was checked: what is unpacked, and how much memory that takes,
is in proportion to what the file has on disk.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import accumulate, islice

from clew.core.errors import Corrupt
from clew.engines.shared.compression import (
    compress_run,
    decompress_run,
    decompress_start,
    unpack_first,
)
from clew.engines.shared.plain_files import read_at

FRAME_BYTES = 512 * 1024  # of lines, and what the last line has beyond it
FRAME_BYTES_MAX = 4 * 1024 * 1024
RATIO_MAX = 128  # lines of Clew hold hashes, which do not shrink
LINE_BYTES_MIN = 32  # and so each takes as much as that, however it is packed
UNREADABLE_FRAME = b"(a frame that cannot be unpacked)"  # stands for its lines
_FRAME = b"\x28\xb5\x2f\xfd"  # what a frame begins with
_TABLE = b"\x5e\x2a\x4d\x18"  # what the table does
_SEEKABLE = b"\xb1\xea\x92\x8f"  # what the table ends with
_HEAD = struct.Struct("<4sI")
_FOOT = struct.Struct("<IB4s")
_BLOCK_BYTES = 128 * 1024  # of a frame, at most
_KEPT_MAX = 16  # frames that stay unpacked, of all files together

Read = Callable[[int, int], bytes]  # so many bytes from an offset


class Frames:
    """The frames of an open packed file. Its lines are read as if it were a plain one."""

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor = descriptor
        self._path = path
        sizes, lengths = self._table(os.fstat(descriptor).st_size)
        self._starts = array("Q", accumulate(sizes, initial=0))  # of the lines
        self._places = array("Q", accumulate(lengths, initial=0))  # in the file
        self.size = self._starts[-1]

    def _table(self, size: int) -> tuple[array[int], array[int]]:
        """How large each frame's lines are, and how long it is, by the end of the file."""
        foot = read_at(self._descriptor, max(0, size - _FOOT.size), _FOOT.size)
        count, flags, magic = _FOOT.unpack(foot) if len(foot) == _FOOT.size else (0, 0, b"")
        length = _HEAD.size + 8 * count + _FOOT.size
        if magic != _SEEKABLE or flags or not count or length > size:
            raise Corrupt(self._path, "it does not end in a table of its frames; " + _BY_HAND)
        table = read_at(self._descriptor, size - length, length)
        entries = array("I", table[_HEAD.size : -_FOOT.size])
        if sys.byteorder == "big":  # no test: no machine here is
            entries.byteswap()
        lengths, sizes = entries[0::2], entries[1::2]
        whole = (_TABLE, length - _HEAD.size), size - length
        if (_HEAD.unpack(table[: _HEAD.size]), sum(lengths)) != whole:
            raise Corrupt(self._path, "the table of its frames does not fit the file; " + _BY_HAND)
        # What cannot shrink grows by very little, so that no frame is longer than this.
        if not all(
            0 < lines <= FRAME_BYTES_MAX and 0 < packed <= lines + lines // 128 + 256
            for lines, packed in zip(sizes, lengths, strict=True)
        ):
            raise Corrupt(self._path, "by its table it has a frame that cannot be")
        if sum(sizes) > RATIO_MAX * size:
            text = f"it says that its {size:,} bytes are {sum(sizes):,}, which cannot be"
            raise Corrupt(self._path, text)
        return sizes, lengths

    def read(self, start: int, length: int) -> bytes:
        """So many bytes of the lines, or as many as there are. Corrupt names the line."""
        end = min(start + length, self.size)
        pieces = []
        at = start
        while at < end:
            no = bisect_right(self._starts, at) - 1
            begin = self._starts[no]
            frame = self._frame(no)
            pieces.append(frame[at - begin : end - begin])
            at = begin + len(frame)
        return b"".join(pieces)

    def each(self) -> Iterator[bytes]:
        """The lines frame by frame; those of one that is damaged are a line that says so."""
        for no in range(len(self._starts) - 1):
            try:
                yield self._unpacked(no)
            except ValueError:
                yield UNREADABLE_FRAME + b"\n"

    def _frame(self, no: int) -> bytes:
        frame = _kept.find((self, no))
        if frame is None:
            try:
                frame = self._unpacked(no)
            except ValueError as error:
                lines = sum(data.count(b"\n") for data in islice(self.each(), no))
                place = f"{self._path} line {lines + 1} (about record {lines})"
                reason = f"frame {no + 1} of {len(self._starts) - 1} is damaged: {error}; "
                raise Corrupt(place, reason + "run clew repair to keep the rest") from error
            _kept.add((self, no), frame)
        return frame

    def _unpacked(self, no: int) -> bytes:
        """The lines of a frame. ValueError if they are not as they were written."""
        begin, end = self._places[no], self._places[no + 1]
        size = self._starts[no + 1] - self._starts[no]
        return _checked(read_at(self._descriptor, begin, end - begin), size)


_BY_HAND = "unpack it with zstd -d, or run clew repair"


def _checked(data: bytes, size: int) -> bytes:
    try:
        lines = decompress_run(data, size)
    except Corrupt as error:
        raise ValueError(error.fields["reason"]) from error
    if len(lines) != size or lines[-1:] != b"\n":
        raise ValueError("it does not have the lines that it says")
    if lines.count(b"\n") * LINE_BYTES_MIN > len(data):
        raise ValueError("it has more lines than Clew can have packed in it")
    return lines


class _Kept:
    """The frames that were unpacked last: a thread that is read is read again soon."""

    def __init__(self) -> None:
        self.begin()
        # A process may fork while one of its threads is in here: its child has no such thread.
        if hasattr(os, "register_at_fork"):  # one way: Windows has no fork
            os.register_at_fork(after_in_child=self.begin)

    def begin(self) -> None:
        self._frames: OrderedDict[tuple[Frames, int], bytes] = OrderedDict()
        self._mutex = threading.Lock()

    def find(self, key: tuple[Frames, int]) -> bytes | None:
        with self._mutex:
            frame = self._frames.get(key)
            if frame is not None:
                self._frames.move_to_end(key)
            return frame

    def add(self, key: tuple[Frames, int], frame: bytes) -> None:
        with self._mutex:
            self._frames[key] = frame
            while len(self._frames) > _KEPT_MAX:
                self._frames.popitem(last=False)

    def drop(self, frames: Frames) -> None:
        with self._mutex:
            for key in [key for key in self._frames if key[0] is frames]:
                del self._frames[key]


_kept = _Kept()


def first_bytes(descriptor: int, path: str, most: int) -> bytes:
    """The beginning of the lines, without a look at the rest of the file."""
    # Whatever it is packed to, a block of a frame is no longer than this.
    found = decompress_start(read_at(descriptor, 0, 2 * _BLOCK_BYTES), most, FRAME_BYTES_MAX)
    if found is None:
        raise Corrupt(path, "it does not begin with a frame; " + _BY_HAND)
    return found


def let_go(frames: Frames) -> None:
    """Keep nothing of a file that was closed."""
    _kept.drop(frames)


# --- packing ---


def packed(read: Read, size: int) -> Iterator[bytes]:
    """A plain file piece by piece as a packed one. ValueError if a line of it is too long."""
    table = array("I")
    at = 0
    while at < size:
        lines = _whole_lines(read, at, size)
        frame = compress_run(lines)
        table.extend((len(frame), len(lines)))
        yield frame
        at += len(lines)
    count = len(table) // 2
    if sys.byteorder == "big":  # no test: as above
        table.byteswap()
    entries = table.tobytes()
    head = _HEAD.pack(_TABLE, len(entries) + _FOOT.size)
    yield head + entries + _FOOT.pack(count, 0, _SEEKABLE)


def _whole_lines(read: Read, at: int, size: int) -> bytes:
    """The next lines of a frame: the last of them is the one that makes it full."""
    if size - at <= FRAME_BYTES:
        return read(at, size - at)
    length = FRAME_BYTES
    while length <= FRAME_BYTES_MAX:
        data = read(at, min(length, size - at))
        newline = data.find(b"\n", FRAME_BYTES - 1)
        if newline >= 0:
            return data[: newline + 1]
        length *= 2
    raise ValueError("it has a line that is too long for a frame")


# --- what is left of a damaged one ---


def readable(data: bytes) -> bytes:
    """The lines of all frames that can be unpacked, wherever they lie, whatever the table says.

    In the place of what cannot be is a line that says so.
    """
    found: list[bytes] = []
    at = end = 0  # where to look next, and where the last sound frame ends
    left = RATIO_MAX * len(data)
    while left > 0 and (at := data.find(_FRAME, at)) >= 0:
        lines, length, tried = unpack_first(data, at, FRAME_BYTES_MAX)
        left -= tried
        if not length or lines[-1:] != b"\n" or lines.count(b"\n") * LINE_BYTES_MIN > length:
            at += 1
            continue
        if at > end:
            found.append(UNREADABLE_FRAME + b"\n")
        found.append(lines)
        at = end = at + length
    rest = data[end:]
    if rest[:4] != _TABLE and rest[-4:] != _SEEKABLE:
        found.append(UNREADABLE_FRAME + b"\n")
    return b"".join(found)
