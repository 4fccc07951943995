"""How much the tests try: a sample in `make test`, and everything in `make torture`.

Whoever asks here, and every property, is run once more by `make torture`, which sets
CLEW_TESTS=full. A sample is the same in every run, and of a table has each row and each column.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")

FULL = os.environ.get("CLEW_TESTS") == "full"


def amount(sample: int, full: int) -> int:
    """How many examples, rounds or cases."""
    return full if FULL else sample


def sample(cases: Iterable[T], every: int, start: int = 0) -> list[T]:
    """Every n-th case, from this one on."""
    found = list(cases)
    return found if FULL else found[start % every :: every]


def pairs(rows: Sequence[T], columns: Sequence[U], every: int) -> list[tuple[T, U]]:
    """Every n-th pair; the start moves by one with each row, so that no column is left out."""
    return [pair for n, row in enumerate(rows) for pair in sample(_row(row, columns), every, n)]


def _row(row: T, columns: Sequence[U]) -> list[tuple[T, U]]:
    return [(row, column) for column in columns]
