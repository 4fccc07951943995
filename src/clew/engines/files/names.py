"""File names for thread ids: two ids never share one, on any file system.

Small letters, digits, `-` and `_` stand for themselves; every other byte of the id's UTF-8 is
`%` and two hexadecimal digits. So a file system that folds case, rewrites Unicode or stumbles
over dots, colons and spaces sees nothing that it could change. What would be too long ends in
`~` and a hash of the id; the names that Windows keeps for devices get their first letter escaped.
"""

from __future__ import annotations

import re

from blake3 import blake3

STEM_MAX = 180  # with an ending and a time stamp it stays below the 255 bytes of a file name
_HEAD = 100
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")
_STEM = re.compile(r"[a-z0-9%_~-]+")
_ESCAPED = [chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in range(256)]
_DEVICES = {"con", "prn", "aux", "nul"} | {
    f"{port}{n}" for port in ("com", "lpt") for n in range(10)
}


def stem(id: str) -> str:
    """The name of a thread's file, without its ending."""
    data = id.encode("utf-8")
    name = "".join([_ESCAPED[byte] for byte in data])
    if name in _DEVICES:
        name = f"%{data[0]:02x}{name[1:]}"
    if len(name) > STEM_MAX:
        name = f"{name[:_HEAD]}~{blake3(data).hexdigest()}"
    return name


def is_stem(name: str) -> bool:
    """Whether a name can be one of these."""
    return _STEM.fullmatch(name) is not None


def unescaped(stem: str) -> str:
    """The id that a name was made of, if it was not too long."""
    data = re.sub(rb"%([0-9a-f]{2})", lambda m: bytes.fromhex(m[1].decode()), stem.encode())
    return data.decode("utf-8", "replace")


def anonymous(id: str) -> str:
    """A name that does not tell the id: lock files outlive what is purged."""
    return blake3(id.encode("utf-8")).hexdigest()[:40]
