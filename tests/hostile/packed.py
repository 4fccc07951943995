"""Packed files as a stranger may make them: bombs, tables that lie, frames that are none."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

from clew.core.codec import digest
from clew.core.lines import Header, header_line, summed
from clew.core.model import ThreadDraft
from clew.engines.files.frames import FRAME_BYTES_MAX, RATIO_MAX, packed
from clew.engines.shared.compression import _zstd

NOW = 1_700_000_000_000_000
HEADER = header_line(Header("k1", ThreadDraft(id="bad", created_us=NOW)))
NOTE = b"\x50\x2a\x4d\x18"  # begins a frame that other tools pass over


def frame(data: bytes, **options: Any) -> bytes:
    zstd = _zstd()
    wanted = {"checksum_flag": 1, "compression_level": 3} | options
    names = zstd.CompressionParameter
    return bytes(zstd.compress(data, options={getattr(names, n): v for n, v in wanted.items()}))


def table(*entries: tuple[int, int], count: int | None = None, flags: int = 0) -> bytes:
    """Lengths and sizes of frames, as they are said to be."""
    body = b"".join(struct.pack("<II", *entry) for entry in entries)
    foot = struct.pack("<IBI", len(entries) if count is None else count, flags, 0x8F92EAB1)
    return struct.pack("<II", 0x184D2A5E, len(body) + len(foot)) + body + foot


def whole(pieces: Sequence[bytes]) -> bytes:
    """A file of frames with a table that is right."""
    frames = [frame(piece) for piece in pieces]
    return b"".join(frames) + table(*map(_entry, frames, pieces))


def _entry(made: bytes, piece: bytes) -> tuple[int, int]:
    return len(made), len(piece)


def noise(size: int) -> bytes:
    """A line that does not shrink, so that others may shrink the more."""
    return random.Random(3).randbytes(size).replace(b"\n", b" ") + b"\n"


def bomb(line: bytes, frames: int, ballast: int = 0) -> bytes:
    lines = line * (FRAME_BYTES_MAX // len(line))
    return whole([HEADER + (noise(ballast) if ballast else b""), *[lines] * frames])


def entry(seq: int, body: bytes) -> bytes:
    text = b'{"seq":%d,"type":"entry","kind":"event","time":"2023-11-14T22:13:20.000001Z",' % seq
    text += b'"id":"e%d","parent":null,"body":%s,"body_hash":"b3:%s","hash":"b3:%s"'
    hashes = [digest(b"%d %d" % (seq, n))[3:].encode() for n in range(2)]  # that do not shrink
    return summed(b"bad", text % (seq, body, *hashes))


def without_its_size(data: bytes) -> bytes:
    return frame(data, content_size_flag=0)


def of_a_huge_window(data: bytes) -> bytes:
    """Says that it has few bytes, and needs gigabytes to be unpacked."""
    made = bytearray(frame(data, content_size_flag=1))
    # Its own descriptor: a window of two gigabytes, four bytes of size, no single segment.
    block = made[4 + 1 + (1 if made[4] & 0xC0 == 0 else 2 if made[4] & 0xC0 == 0x40 else 4) :]
    return bytes(made[:4]) + b"\x84" + b"\xa8" + struct.pack("<I", len(data)) + bytes(block)


def sound(count: int = 300) -> bytes:
    lines = HEADER + b"".join(entry(seq, b'"word"') for seq in range(1, count + 1))
    return b"".join(packed(lambda start, length: lines[start : start + length], len(lines)))


_A, _B = frame(HEADER), frame(entry(1, b"1") + entry(2, b"2"))
_SIZES = len(HEADER), len(entry(1, b"1") + entry(2, b"2"))
_FRAMES = _A + _B
_FIRST = HEADER + entry(1, b"1")
_LONG = b'{"seq":1,"body":"' + b"x" * 60_000 + b'"}\n'
_SHORT = entry(1, b'"' + b"x" * 60_000 + b'"')

PACKED: dict[str, Callable[[], bytes]] = {
    "nothing": lambda: b"",
    "text": lambda: b"no frames at all\n" * 20,
    "only a table": table,
    "only a table of nothing": lambda: table((0, 0)),
    "no table": lambda: _FRAMES,
    "half a table": lambda: (_FRAMES + table((len(_A), _SIZES[0]), (len(_B), _SIZES[1])))[:-12],
    "a table of four billion frames": lambda: _FRAMES + table((len(_A), 1), count=0xFFFFFFFF),
    "a table with checksums": lambda: (
        _FRAMES + table((len(_A), _SIZES[0]), (len(_B), _SIZES[1]), flags=0x80)
    ),
    "frames that overlap": lambda: (
        _FRAMES + table((len(_FRAMES), _SIZES[0]), (len(_FRAMES), _SIZES[1]))
    ),
    "frames beyond the end": lambda: _FRAMES + table((len(_A), 300), (0xFFFFFFF0, 300)),
    "frames that leave a gap": lambda: (
        _A + b"between" + _B + table((len(_A), _SIZES[0]), (len(_B), _SIZES[1]))
    ),
    "sizes that are too small": lambda: _FRAMES + table((len(_A), 5), (len(_B), 5)),
    "sizes that are too large": lambda: _FRAMES + table((len(_A), 5000), (len(_B), 5000)),
    "a size of four gigabytes": lambda: _FRAMES + table((len(_A), _SIZES[0]), (len(_B), 2**32 - 1)),
    "many empty frames": lambda: _A + table((len(_A), _SIZES[0]), *[(0, 300)] * 50_000),
    "a note in front": lambda: (
        NOTE + b"\4\0\0\0note" + _FRAMES + table((12, 4), (len(_A), _SIZES[0]), (len(_B), 1))
    ),
    "a note in between": lambda: (
        _A + NOTE + b"\4\0\0\0note" + _B + table((len(_A), _SIZES[0]), (12, 0), (len(_B), 9))
    ),
    "a note behind": lambda: sound() + NOTE + b"\4\0\0\0note",
    "a frame that does not say its size": lambda: (
        _A + without_its_size(b"x\n" * 99) + table((len(_A), _SIZES[0]), (len(_B), 198))
    ),
    "a first frame that does not": lambda: (
        without_its_size(HEADER) + table((len(without_its_size(HEADER)), len(HEADER)))
    ),
    "a huge window": lambda: (
        of_a_huge_window(_FIRST) + table((len(of_a_huge_window(_FIRST)), len(_FIRST)))
    ),
    "a bomb of empty lines": lambda: bomb(b"\n", 40),
    "a bomb of empty lines, with ballast": lambda: bomb(b"\n", 16, 2 * 16 * 4 * 2**20 // RATIO_MAX),
    "a bomb of long lines": lambda: bomb(_LONG, 40),
    "a bomb of long lines, with ballast": lambda: bomb(_LONG, 24, 24 * 4 * 2**20 // RATIO_MAX),
    "a bomb of sound lines, with ballast": lambda: bomb(_SHORT, 24, 24 * 4 * 2**20 // RATIO_MAX),
    "a bomb without a table": lambda: frame(HEADER + bytes(2**28)),
    "a first line without an end": lambda: whole([b"x" * 2**22, b"\n"]),
    "frames in frames": lambda: frame(b"\x28\xb5\x2f\xfd" * 2**20) + _A * 9,
    "the beginnings of many frames": lambda: _A[:12] * 40_000,
    "bombs that break off": lambda: (frame(bytes(FRAME_BYTES_MAX))[:-2] + b"no") * 400,
    "another thread's": lambda: whole(
        [header_line(Header("k", ThreadDraft(id="x", created_us=1)))]
    ),
    "a line that goes on in the next frame": lambda: whole(
        [(HEADER + entry(1, b"1"))[:-9], (HEADER + entry(1, b"1"))[-9:]]
    ),
    "half a write": lambda: whole(
        [HEADER + summed(b"bad", entry(1, b"1")[:-27] + b',"left":1,"of":2')]
    ),
    "lines that hang on nothing": sound,
}
