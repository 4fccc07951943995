"""What formats exchange beside text: images, sounds and files, and JSON inside of texts."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

import msgspec

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


# --- JSON in messages: arguments that are text, results that are not text -------------------

_encode = msgspec.json.Encoder().encode


def dump(value: Any) -> str:
    """A value as compact JSON text. Never raises: what JSON cannot carry becomes its text."""
    try:
        return _encode(value).decode("utf-8")
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        pass
    # The fast encoder refuses lone surrogates, which are legitimate tool output.
    try:
        return json.dumps(value, separators=(",", ":"), default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def as_given(arguments: Any) -> Any:
    """What a call with these arguments is given: a text would be read as JSON, so it becomes it."""
    return dump(arguments) if arguments is None or isinstance(arguments, str) else arguments


def is_unicode(value: Any) -> bool:
    """Whether UTF-8 can carry a value: no string in it has a lone surrogate."""
    try:
        _encode(value)
    except UnicodeEncodeError:
        return False
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        pass  # wrong in other ways, which are not asked here
    return True


def with_unicode(value: Any) -> Any:
    """The value with � in place of every lone surrogate."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [with_unicode(item) for item in value]
    if isinstance(value, dict):
        return {with_unicode(key): with_unicode(item) for key, item in value.items()}
    return value
