"""JSON inside of messages: arguments that are text, results that are not."""

from __future__ import annotations

import json
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def dump(value: Any) -> str:
    """A value as compact JSON text. Never raises: what JSON cannot carry becomes its text."""
    try:
        return _encode(value).decode("utf-8")
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return _dump_with_care(value)


def parse_arguments(value: Any) -> tuple[Any, str | None]:
    """A call's arguments and, when they are text that is not JSON, that text instead.

    Nothing at all means no arguments: several models call a tool without any with "".
    """
    if not isinstance(value, str):
        return ({} if value is None else value), None
    try:
        return _decode(value), None
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return ({}, None) if not value.strip() else (None, value)


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


def _dump_with_care(value: Any) -> str:
    # The fast encoder refuses lone surrogates, which are legitimate tool output.
    try:
        return json.dumps(value, separators=(",", ":"), default=str)
    except (TypeError, ValueError, RecursionError):
        return str(value)
