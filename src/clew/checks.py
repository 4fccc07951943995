"""Names and facts: what may go in, the same on every engine."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from clew.codec import new_id
from clew.errors import InvalidInput, TooLarge

ID_BYTES_MAX = 512
NAMESPACE_BYTES_MAX = 128
META_BYTES_MAX = 64 * 1024
TIME_US_MIN, TIME_US_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999
TITLE_STATUSES = ("pending", "ready", "failed")


def check_name(value: object, field: str, limit: int = ID_BYTES_MAX) -> str:
    """An id, kind or key: text without NUL that UTF-8 can carry, 1 to `limit` bytes."""
    if not isinstance(value, str) or not value:
        raise InvalidInput(field, f"must be a non-empty string, not {value!r}")
    try:
        size = len(value) if value.isascii() else len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidInput(field, "is not valid Unicode text") from None
    if size > limit:
        raise TooLarge(field, size=size, limit=limit)
    if "\0" in value:
        raise InvalidInput(field, "must not contain NUL")
    return value


def check_namespace(value: object) -> str:
    return check_name(value, "namespace", NAMESPACE_BYTES_MAX)


def seconds(value: Any, field: str) -> float:
    """A span of time: a finite number that is not negative."""
    if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InvalidInput(field, f"must be a number of seconds, not {value!r}")
    return float(value)


def _is_time(value: Any) -> bool:
    return type(value) is int and TIME_US_MIN <= value <= TIME_US_MAX


def _is_name(value: Any) -> bool:
    try:
        return bool(check_name(value, "facts"))
    except (InvalidInput, TooLarge):
        return False


def _is_title(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("text"), str)
        and value.get("status", "ready") in TITLE_STATUSES
        and isinstance(value.get("source", ""), str)
        and isinstance(value.get("error"), str | None)
        and (value.get("time_us") is None or _is_time(value["time_us"]))
    )


_FACT_SHAPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "title": (_is_title, "an object with text, status, source, error and time_us"),
    "tags": (lambda v: isinstance(v, list) and all(map(_is_name, v)), "a list of names"),
    "archived": (lambda v: isinstance(v, bool), "true or false"),
    "status": (_is_name, "a name"),
    "workspace": (_is_name, "a name"),
    "deleted_us": (_is_time, "a time in microseconds"),
    "last_viewed_us": (_is_time, "a time in microseconds"),
}


def check_fact(key: str, value: Any) -> None:
    """The facts that stores list and filter by have a shape; all others are free."""
    shape = _FACT_SHAPES.get(key)
    if shape is not None and value is not None and not shape[0](value):
        raise InvalidInput("facts", f"{key} must be {shape[1]}, not {value!r}")


def mint(id: str | None) -> str:
    """The caller's id, checked, or a fresh one."""
    return new_id() if id is None else check_name(id, "id")
