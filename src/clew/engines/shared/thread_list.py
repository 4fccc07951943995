"""Lists of threads: the shelves that threads stand on, and how a page of a list is put together.

Each engine writes its own SQL. What the statements must agree on is here: which shelves a query
means, which scans of an index add up to it, and where a page ends and the next one begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from clew.core.model import Page, ThreadInfo, ThreadQuery, encode_cursor

IN_USE, ARCHIVED, DELETED, PURGED = range(4)

# So many threads that are not in the index by update are sorted for a page; with more, the index
# is brought up to date first.
UNLISTED_MAX = 256

# By update there are two sorts of threads: those in the index, and those that have changed since.
# Each is a scan in order: the column that it is ordered by, and the condition that it needs.
_SCANS = {
    "created": (("created_us", "TRUE"),),
    "updated": (("listed_us", "listed_us IS NOT NULL"), ("updated_us", "listed_us IS NULL")),
}


class Listed(Protocol):
    """A thread's row, as far as its place in a list depends on it."""

    @property
    def id(self) -> str: ...
    @property
    def created_us(self) -> int: ...
    @property
    def updated_us(self) -> int: ...


T = TypeVar("T", bound=Listed)


def shelf_of(*, archived: bool, deleted: bool) -> int:
    if deleted:
        return DELETED
    return ARCHIVED if archived else IN_USE


def scans(query: ThreadQuery) -> list[tuple[int, str, str]]:
    """The scans that add up to a list: shelf, column to order by, condition.

    One for each shelf, because an index is in order within a shelf only.
    """
    if query.deleted:
        shelves: tuple[int, ...] = (DELETED,)
    elif query.archived is None:
        shelves = (IN_USE, ARCHIVED)
    else:
        shelves = (ARCHIVED,) if query.archived else (IN_USE,)
    return [(shelf, *scan) for shelf in shelves for scan in _SCANS[query.order]]


def page_of(
    query: ThreadQuery, rows: Sequence[T], info: Callable[[T], ThreadInfo | None]
) -> Page[ThreadInfo]:
    """A page from sorted rows. One row more than the limit tells that there is a next page.

    A thread without an `info`, because it cannot be read, is left out.
    """
    page = [found for row in rows[: query.limit] if (found := info(row)) is not None]
    if len(rows) <= query.limit:
        return Page(page)
    last = rows[query.limit - 1]
    time_us = last.created_us if query.order == "created" else last.updated_us
    return Page(page, encode_cursor(time_us, last.id))
