"""Numbered SQL files that bring a store's schema from any older version to the newest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct

_FOLDER = Path(__file__).parent.parent / "sql"


class Migration(Struct, frozen=True):
    version: int
    name: str
    sql: str


def migrations(dialect: str) -> Sequence[Migration]:
    """The dialect's migrations, oldest first. Their versions are 1, 2, 3, …"""
    return _in_folder(_FOLDER / dialect)


@cache
def _in_folder(folder: Path) -> Sequence[Migration]:
    found = [_load(path) for path in sorted(folder.glob("[0-9]*.sql"))]
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise RuntimeError(f"the migrations in {folder} are not numbered 1, 2, 3, …")
    return tuple(found)


def schema(dialect: str) -> str:
    """The newest schema as one file, for people to read; a test holds it equal to the sum."""
    return (_FOLDER / f"{dialect}.sql").read_text("utf-8")


def optional(dialect: str, name: str) -> str:
    """A part of the schema that not every store has. It can be run again at any time."""
    return (_FOLDER / dialect / f"{name}.sql").read_text("utf-8")


def _load(path: Path) -> Migration:
    match = re.fullmatch(r"(\d{4})_(\w+)", path.stem)
    if match is None:
        raise RuntimeError(f"{path.name} is not named like 0001_words.sql")
    return Migration(int(match[1]), match[2], path.read_text("utf-8"))
