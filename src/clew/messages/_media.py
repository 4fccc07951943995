"""Images, sounds and files between formats."""

from __future__ import annotations

import base64
import binascii
from typing import Literal
from urllib.parse import unquote_to_bytes

from clew.messages.neutral import Media

IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
PDF = "application/pdf"

_TO_STANDARD = str.maketrans("-_", "+/")


def kind_of(mime: str | None) -> Literal["image", "audio", "file"]:
    if mime is None:
        return "file"
    if mime.startswith("image/"):
        return "image"
    return "audio" if mime.startswith("audio/") else "file"


def placeholder(media: Media) -> str:
    """What stands for media that a format or a place in it cannot carry."""
    return f"[{media.kind} left out: {media.mime or media.name or 'unknown type'}]"


def standard_base64(data: str) -> str:
    """Base64 in the standard alphabet with padding; some SDKs write the URL-safe one."""
    if "-" in data or "_" in data:
        data = data.translate(_TO_STANDARD)
    return data + "=" * (-len(data) % 4)


def data_url(media: Media) -> str:
    return f"data:{media.mime};base64,{standard_base64(media.data or '')}"


def split_data_url(url: str) -> tuple[str | None, str] | None:
    """The type and the base64 data of a data: address; None if it is another address."""
    if not url.startswith("data:"):
        return None
    head, _, data = url[5:].partition(",")
    mime, *options = head.split(";")
    if "base64" not in options:
        data = base64.b64encode(unquote_to_bytes(data)).decode("ascii")
    return mime or None, data


def decoded_text(media: Media) -> str | None:
    """The text in a file of text, or None."""
    if media.data is None or not (media.mime or "").startswith("text/"):
        return None
    try:
        return base64.b64decode(standard_base64(media.data), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return None
