"""Blobs as they are stored: compressed where that helps, checked when they are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from msgspec import Struct

from clew.core.codec import digest
from clew.core.errors import Corrupt, TooLarge
from clew.core.model import Draft, MoveDraft

_LEVEL = 3
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
    return {
        draft.id: pack(draft.data)
        for draft in drafts
        if not isinstance(draft, MoveDraft) and len(draft.data) > over_bytes
    }


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
    except (zstd.ZstdError, OverflowError, MemoryError) as error:
        raise Corrupt(f"blob {hash}", f"it cannot be decompressed: {error}") from error


@cache
def _zstd() -> Any:
    # Loaded with the first large body: most processes never need it.
    try:
        from compression import zstd  # Python 3.14 has it
    except ImportError:
        from backports import zstd
    return zstd
