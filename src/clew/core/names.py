"""Names: what an id, a kind, a key or a namespace may be, the same on every engine."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from blake3 import blake3

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


# --- a file named for an id: two ids never share one, on any file system ---

STEM_MAX = 180  # with an ending and a time stamp it stays below the 255 bytes of a file name
_HEAD = 100
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")
_ESCAPED = [chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in range(256)]
_DEVICES = {"con", "prn", "aux", "nul"} | {
    f"{port}{n}" for port in ("com", "lpt") for n in range(10)
}


def id_of(stem: str) -> str | None:
    """The id of the thread whose file has that name; None if it is a hash, or none of ours."""
    try:
        id = unquote_to_bytes(stem).decode("utf-8")
        return id if file_stem(id) == stem else None
    except UnicodeDecodeError:
        return None


def file_stem(id: str) -> str:
    """The name of a thread's file, without its ending."""
    data = id.encode("utf-8")
    name = "".join([_ESCAPED[byte] for byte in data])
    if name in _DEVICES:
        name = f"%{data[0]:02x}{name[1:]}"
    if len(name) > STEM_MAX:
        name = f"{name[:_HEAD]}~{blake3(data).hexdigest()}"
    return name
