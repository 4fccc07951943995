"""The shapes of facts: what may be set, and what a stored value is read as.

The facts that lists show and filter by have a shape; all others are free. A stored value that is
not what it must be is damage of that one fact: it is told, and the rest is read all the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from clew.core.codec import decode
from clew.core.errors import Corrupt, InvalidInput
from clew.core.names import is_name

TIME_US_MIN, TIME_US_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 to 9999
TITLE_STATUSES = ("pending", "ready", "failed")


def is_time(value: Any) -> bool:
    """Whether a value is a time in microseconds that a datetime can hold."""
    return type(value) is int and TIME_US_MIN <= value <= TIME_US_MAX


def _is_title(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("text"), str)
        and value.get("status", "ready") in TITLE_STATUSES
        and isinstance(value.get("source", ""), str)
        and isinstance(value.get("error"), str | None)
        and (value.get("time_us") is None or is_time(value["time_us"]))
    )


_SHAPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "title": (_is_title, "an object with text, status, source, error and time_us"),
    "tags": (lambda v: isinstance(v, list) and all(map(is_name, v)), "a list of names"),
    "archived": (lambda v: isinstance(v, bool), "true or false"),
    "status": (is_name, "a name"),
    "workspace": (is_name, "a name"),
    "deleted_us": (is_time, "a time in microseconds"),
    "last_viewed_us": (is_time, "a time in microseconds"),
}


def check_fact(key: str, value: Any) -> None:
    """That a value may be set: the shape of its key, if it has one."""
    shape = _SHAPES.get(key)
    if shape is not None and value is not None and not shape[0](value):
        raise InvalidInput("facts", f"{key} must be {shape[1]}, not {value!r}")


def read_fact(key: str, data: bytes) -> Any:
    """The value of a stored fact. Corrupt if it is no JSON, or not of the shape of its key."""
    value = decode(data)
    try:
        check_fact(key, value)
    except InvalidInput as error:
        raise Corrupt(f"fact {key!r}", error.fields["reason"]) from error
    return value
