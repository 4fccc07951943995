"""Words that stand in one place only, and where they are found in a folder, byte by byte.

A word is looked for in the bytes as they are, in what is compressed among them, and in the values
of databases, which lie in pieces in their files. Its first letters are left out: an index of words
may share them with the word before.
"""

from __future__ import annotations

import random
import re
import string
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
from psycopg import sql

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_LETTERS = string.ascii_lowercase + string.digits
_SHARED = 3
_MARK = re.compile(rb"qz[a-z0-9]{16}")
_FRAME = b"\x28\xb5\x2f\xfd"
_BYTES_MAX = 32 * 1024 * 1024  # of one frame


class Mint:
    """Makes words, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(f"words {seed}")

    def word(self) -> str:
        return "qz" + "".join(self._random.choices(_LETTERS, k=16))


def in_bytes(data: bytes) -> set[str]:
    """The whole words in some bytes."""
    return {found.decode() for found in _MARK.findall(data)}


def anywhere(folders: Iterable[Path], words: Iterable[str]) -> dict[str, list[str]]:
    """In which files words, or all but their first letters, still are."""
    return among((layer for folder in folders for layer in _below(folder)), words)


def in_tables(address: str, words: Iterable[str]) -> dict[str, list[str]]:
    """In which tables of a server they are, as far as a statement can see."""
    return among(_rows(address), words)


def among(layers: Iterable[tuple[str, bytes]], words: Iterable[str]) -> dict[str, list[str]]:
    parts = {word[_SHARED:].encode(): word for word in words}
    found: dict[str, list[str]] = {}
    if parts:
        ends = re.compile(b"|".join(map(re.escape, parts)))
        for where, data in layers:
            for part in set(ends.findall(data)):
                found.setdefault(parts[part], []).append(where)
    return found


def _below(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        yield f"the name {path}", str(path.relative_to(folder)).encode()
        if path.is_file() and not path.is_symlink():
            for where, data in _layers(path):
                yield f"{path}{where}", data


def _rows(address: str) -> Iterator[tuple[str, bytes]]:
    tables = (
        "SELECT relname::text FROM pg_class WHERE relkind = 'r'"
        " AND relnamespace = 'clew'::regnamespace"
    )
    with psycopg.connect(address) as connection:
        for (table,) in connection.execute(tables).fetchall():
            query = sql.SQL("SELECT * FROM {}").format(sql.Identifier("clew", table))
            for row in connection.execute(query):
                for value in filter(None, row):
                    data = _encoded(value)
                    yield f"a value of {table}", data
                    for where, inner in _frames(data):
                        yield f"a value of {table}{where}", inner


def _layers(path: Path) -> Iterator[tuple[str, bytes]]:
    """A file as it is; what is compressed in it; the values of a database, and those in turn."""
    data = path.read_bytes()
    yield "", data
    yield from _frames(data)
    if data.startswith(b"SQLite format 3\0"):
        for table, value in _values(path):
            yield f", a value of {table}", value
            for where, inner in _frames(value):
                yield f", a value of {table}{where}", inner


def _frames(data: bytes) -> Iterator[tuple[str, bytes]]:
    at = data.find(_FRAME)
    while at >= 0:
        yield f", a frame at {at}", _decompressed(data[at:])
        at = data.find(_FRAME, at + 1)


def _decompressed(data: bytes) -> bytes:
    """As much as can be decompressed: of a frame that was cut, the blocks that are whole."""
    frame = zstd.ZstdDecompressor()
    found = b""
    try:
        for at in range(0, len(data), 512):
            found += frame.decompress(data[at : at + 512], max_length=_BYTES_MAX)
            if frame.eof or len(found) > _BYTES_MAX:
                break
    except (zstd.ZstdError, EOFError):
        pass
    return found


def _values(path: Path) -> Iterator[tuple[str, bytes]]:
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        tables = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        for (table,) in tables:
            if table.startswith("sqlite_"):
                continue
            for row in db.execute(f'SELECT * FROM "{table}"'):
                yield from ((table, _encoded(value)) for value in row if value is not None)
    finally:
        db.close()


def _encoded(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")
