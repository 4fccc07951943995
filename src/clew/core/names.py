"""Names: what an id, a kind, a key or a namespace may be, the same on every engine."""

from __future__ import annotations

from clew.core.errors import InvalidInput, TooLarge

ID_BYTES_MAX = 512
NAMESPACE_BYTES_MAX = 128


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


def is_name(value: object) -> bool:
    """Whether a value could be an id."""
    try:
        return bool(check_name(value, "id"))
    except (InvalidInput, TooLarge):
        return False
