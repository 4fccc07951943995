"""Blobs and packs as they are stored: compressed where that helps, checked when they are read."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from msgspec import Struct

from clew.core.codec import digest
from clew.core.errors import Corrupt, TooLarge
from clew.core.model import Draft, MoveDraft
from clew.core.parts import loading

_LEVEL = 3
_RUN_LEVEL = 19  # packing is done once, in idle time, and reading costs the same at every level
BLOB_BYTES_MAX = 512 * 1024 * 1024  # every engine can hold it as one value


class Packed(Struct, frozen=True):
    """A blob ready to be written."""

    hash: str
    size: int
    codec: str
    data: bytes


def pack(data: bytes) -> Packed:
    if len(data) > BLOB_BYTES_MAX:
        raise TooLarge("blob", size=len(data), limit=BLOB_BYTES_MAX)
    packed = _zstd().compress(data, _LEVEL)
    # Images and archives do not shrink; kept as they are, they need not be unpacked either.
    if len(packed) < len(data):
        return Packed(digest(data), len(data), "zstd", packed)
    return Packed(digest(data), len(data), "raw", data)


def pack_large(drafts: Sequence[Draft], over_bytes: int) -> dict[str, Packed]:
    """The bodies and values that are too large to stand in a record's row or line, by draft id.

    Before the engine takes any lock: no writer waits for what another one compresses.
    """
    packed: dict[str, Packed] = {}
    for draft in drafts:
        if not isinstance(draft, MoveDraft) and len(draft.data) > over_bytes:
            packed[draft.id] = pack(draft.data)
    return packed


def unpack(hash: str, size: int, codec: str, data: bytes) -> bytes:
    """The bytes again, checked: their size before memory is spent on them, then their hash."""
    if codec == "zstd":
        if size > BLOB_BYTES_MAX:  # nothing is spent on one that cannot be
            raise Corrupt(f"blob {hash}", f"it says that it has {size:,} bytes")
        data = _decompress(hash, size, data)
    if len(data) != size or digest(data) != hash:
        raise Corrupt(f"blob {hash}", "its bytes do not match its hash")
    return data


def frame_size(hash: str, data: bytes) -> int:
    """The size that compressed bytes say they have; their first ones are enough."""
    zstd = _zstd()
    try:
        size = zstd.get_frame_info(data).decompressed_size
    except zstd.ZstdError as error:
        raise Corrupt(f"blob {hash}", f"it cannot be decompressed: {error}") from error
    if size is None:
        raise Corrupt(f"blob {hash}", "it does not say how large it is")
    return int(size)


def _decompress(hash: str, size: int, data: bytes) -> bytes:
    zstd = _zstd()
    try:
        # One byte over the size that was recorded is enough to tell a bomb from a blob.
        return bytes(zstd.ZstdDecompressor().decompress(data, max_length=size + 1))
    except (zstd.ZstdError, OverflowError) as error:
        _refuse_exhausted(error)
        raise Corrupt(f"blob {hash}", f"it cannot be decompressed: {error}") from error


# How zstd says that there is no memory: it has no code of its own for that.
_EXHAUSTED = ("not enough memory", "Unable to create", "Failed to allocate")


def _refuse_exhausted(error: Exception) -> None:
    """Nothing is damaged because there is no room to look at it."""
    if any(text in str(error) for text in _EXHAUSTED):
        raise MemoryError(str(error)) from error


# --- packs: runs of entries ---


def compress_run(data: bytes) -> bytes:
    """One frame that says its size and has a checksum, so that no damage comes out of it."""
    zstd = _zstd()
    options = {
        zstd.CompressionParameter.compression_level: _RUN_LEVEL,
        zstd.CompressionParameter.checksum_flag: 1,
    }
    return bytes(zstd.compress(data, options=options))


def decompress_run(data: bytes, most: int) -> bytes:
    """Corrupt if it is damaged, or would have more than `most` bytes."""
    zstd = _zstd()
    try:
        size = zstd.get_frame_info(data).decompressed_size
        if size is None or size > most:  # nothing is spent on one that cannot be
            raise Corrupt("a pack", f"it says that it has {size} bytes")
        frame = zstd.ZstdDecompressor()
        found = bytes(frame.decompress(data, max_length=size + 1))
    except (zstd.ZstdError, OverflowError, ValueError) as error:
        _refuse_exhausted(error)
        raise Corrupt("a pack", f"it cannot be decompressed: {error}") from error
    # The checksum stands at the end of the frame: without the end there was no look at it.
    if len(found) != size or not frame.eof or frame.unused_data:
        raise Corrupt("a pack", "it is not one whole frame")
    # Kept until the next one comes: given back at once, the memory would go to the system and be
    # fetched from there again for every pack, which costs more than what is decompressed into it.
    _last[:] = frame, found
    return found


_last: list[Any] = []


def decompress_start(data: bytes, most: int, whole: int) -> bytes | None:
    """The first bytes of what a frame has in it; no checksum covers them.

    None: it is none, or has over `whole` bytes.
    """
    zstd = _zstd()
    try:
        size = zstd.get_frame_info(data).decompressed_size
        if size is None or size > whole:
            return None
        return bytes(zstd.ZstdDecompressor().decompress(data, max_length=most))
    except (zstd.ZstdError, OverflowError, ValueError) as error:
        _refuse_exhausted(error)
        return None


def unpack_first(data: bytes, at: int, most: int) -> tuple[bytes, int, int]:
    """The frame that begins at a place, how long it is, and how much was unpacked to find out.

    A length of 0: there is none, it is damaged, or it has over `most` bytes.
    """
    zstd = _zstd()
    tried = 1
    try:
        size = zstd.get_frame_info(data[at : at + 32]).decompressed_size
        if size is None or size > most:
            return b"", 0, tried
        tried += size
        frame = zstd.ZstdDecompressor()
        # No frame is longer than what it has in it, but for very little.
        given = data[at : at + size + size // 128 + 256]
        found = bytes(frame.decompress(given, max_length=size + 1))
    except (zstd.ZstdError, OverflowError, ValueError) as error:
        _refuse_exhausted(error)
        return b"", 0, tried
    if len(found) != size or not frame.eof:
        return b"", 0, tried
    return found, len(given) - len(frame.unused_data), tried


@cache
def _zstd() -> Any:
    # Loaded with the first large body: most processes never need it.
    with loading("zstd"):
        if sys.version_info >= (3, 14):
            from compression import zstd  # no test: Python 3.14, which has its own
        else:
            from backports import zstd
    return zstd
