"""Blocks of content that a provider refuses: empty texts, and pictures that are too large."""

from __future__ import annotations

import base64
import binascii
import re
import struct
from typing import Any

from clew.messages.shared.media import standard_base64

IMAGE_CHARACTERS_MAX = 5 * 1024 * 1024  # of base64; "image exceeds 5 MB maximum"
SIDE_MAX = 8000
MANY_IMAGES = 20  # in one request; then each may have no more than so many pixels a side
SIDE_MAX_OF_MANY = 2000
EMPTY = "(empty)"

_SIGNS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"RIFF", "image/webp"),
)


def is_blank(block: Any) -> bool:
    """Whether a block is text that says nothing."""
    if not isinstance(block, dict) or block.get("type") != "text":
        return False
    text = block.get("text")
    return not isinstance(text, str) or not text.strip()


def image_fault(data: Any, side_max: int) -> str | None:
    """Why a provider will not take a picture, given as base64; None if it will."""
    if not isinstance(data, str) or not data:
        return "an image without data"
    if len(data) > IMAGE_CHARACTERS_MAX:
        return f"an image of {len(data):,} bytes; at most {IMAGE_CHARACTERS_MAX:,} are taken"
    raw = _decoded(data)
    if raw is None or kind_of(raw) is None:
        return "an image that cannot be read"
    width, height = sides(raw)
    if max(width, height) > side_max:
        return f"an image of {width:,} × {height:,} pixels; at most {side_max:,} a side are taken"
    return None


def mime_of(data: str) -> str | None:
    """What a picture is by its first bytes, which providers compare with what is said of it."""
    raw = _decoded(data[:64])
    return None if raw is None else kind_of(raw)


def _decoded(data: str) -> bytes | None:
    try:
        return base64.b64decode(standard_base64(data), validate=True)
    except (binascii.Error, ValueError):
        return None


def kind_of(raw: bytes) -> str | None:
    return next((mime for sign, mime in _SIGNS if raw.startswith(sign)), None)


def sides(raw: bytes) -> tuple[int, int]:
    """Width and height of a picture; zero where they cannot be seen."""
    try:
        match kind_of(raw):
            case "image/png":
                width, height = struct.unpack(">II", raw[16:24])
            case "image/gif":
                width, height = struct.unpack("<HH", raw[6:10])
            case "image/jpeg":
                width, height = _jpeg_sides(raw)
            case "image/webp":
                width, height = _webp_sides(raw)
            case _:
                width = height = 0
    except struct.error:
        return 0, 0
    return width, height


def _jpeg_sides(raw: bytes) -> tuple[int, int]:
    place = 2
    while place + 9 <= len(raw) and raw[place] == 0xFF:
        marker, size = raw[place + 1], struct.unpack(">H", raw[place + 2 : place + 4])[0]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", raw[place + 5 : place + 9])
            return width, height
        place += 2 + size
    return 0, 0


def _webp_sides(raw: bytes) -> tuple[int, int]:
    match raw[12:16]:
        case b"VP8X":
            width = int.from_bytes(raw[24:27], "little") + 1
            return width, int.from_bytes(raw[27:30], "little") + 1
        case b"VP8L":
            bits = int.from_bytes(raw[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            width, height = struct.unpack("<HH", raw[26:30])
            return width & 0x3FFF, height & 0x3FFF
    return 0, 0


def split_data_url(url: str) -> tuple[str, str] | None:
    """The type and the data of a picture that stands in an address."""
    found = re.match(r"data:([^;,]*);base64,", url)
    return None if found is None else (found[1], url[found.end() :])
