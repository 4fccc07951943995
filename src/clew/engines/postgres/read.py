"""Reading: the feed, paths, the shape of the tree, pages of threads. One statement each."""

from __future__ import annotations

import psycopg
from msgspec import UNSET, UnsetType

from clew.core.engine import PAGE_BYTES, PathSize, fill_page
from clew.core.errors import Corrupt, NotFound
from clew.core.model import (
    Entry,
    Page,
    Record,
    Segment,
    Stats,
    ThreadHead,
    ThreadInfo,
    ThreadQuery,
)
from clew.engines.postgres import rows
from clew.engines.postgres.lookup import Book
from clew.engines.postgres.rows import ThreadRow
from clew.engines.postgres.wire import NOT_ON_PATH, Row, Wire, array
from clew.engines.shared.thread_list import UNLISTED_MAX, page_of, scans

# --- one thread ---


def thread(wire: Wire, book: Book, id: str) -> tuple[ThreadRow, ThreadInfo]:
    sql = "SELECT * FROM clew.get_thread(%s, %s)"
    found = rows.to_infos(wire.every(book.sql(sql), (book.space, id)))
    if not found:
        raise NotFound("thread", id)
    return found[0]


def read(wire: Wire, book: Book, thread: str, after: int, limit: int) -> list[Record]:
    after = min(max(after, 0), 2**62)  # larger numbers have no type on the server
    sql = "SELECT * FROM clew.read(%s, %s, %s, %s, %s)"
    found = wire.every(book.sql(sql), (book.space, thread, after, limit, PAGE_BYTES))
    if not found:
        number_and_seq(wire, book, thread)
    return fill_page(map(rows.to_record, found))


def number_and_seq(wire: Wire, book: Book, thread: str) -> tuple[int, int]:
    """What a waiter asks for again and again: as little as will do. NotFound: no such thread."""
    row = wire.one(book.sql("SELECT no, seq FROM clew.head_of(%s, %s)"), (book.space, thread))
    if row is None:
        raise NotFound("thread", thread)
    return row[0], row[1]


# One statement sees one moment: with several, a purge in between would look like damage.
_PATH_TO_LEAF = "SELECT * FROM clew.path_to_leaf(%s, %s, %s)"
_PATH_BETWEEN = "SELECT * FROM clew.path_between(%s, %s, %s, %s, %s)"


def path(
    wire: Wire,
    book: Book,
    thread: str,
    leaf: str | UnsetType | None,
    after: str | None,
    limit: int | None,
) -> list[Entry]:
    if leaf is UNSET and after is None:
        found = wire.every(book.sql(_PATH_TO_LEAF), (book.space, thread, limit))
        if not found:
            number_and_seq(wire, book, thread)
    elif leaf is None:  # before the root
        number_and_seq(wire, book, thread)
        if after is not None:
            raise NotFound("entry", after)
        return []
    else:
        found = _path_between(wire, book, thread, leaf, after, limit)
    found.reverse()
    return PathSize(thread).count(map(rows.to_record, found))  # type: ignore[arg-type]


def _path_between(
    wire: Wire,
    book: Book,
    thread: str,
    leaf: str | UnsetType,
    after: str | None,
    limit: int | None,
) -> list[Row]:
    end = None if leaf is UNSET else leaf
    try:
        found = wire.every(book.sql(_PATH_BETWEEN), (book.space, thread, end, after, limit))
    except psycopg.DatabaseError as error:
        if error.sqlstate == NOT_ON_PATH:
            raise NotFound("entry", after or "") from None
        raise
    if not found:
        raise NotFound("thread", thread)
    missing = found[0][-1]
    if missing is not None:  # a thread that stands on nothing has no path to be after something
        raise NotFound("entry", str(after if missing == "after" or leaf is UNSET else leaf))
    return found if found[0][0] is not None else []


def segments(wire: Wire, book: Book, thread: str) -> list[Segment]:
    found = wire.every(book.sql("SELECT * FROM clew.shape(%s, %s)"), (book.space, thread))
    if not found:
        number_and_seq(wire, book, thread)
    for row in found:
        if row[1] is None:
            raise Corrupt(
                f"record {row[5]} of {thread!r}", "a segment begins here, but no entry does"
            )
    return [Segment(*row[:5]) for row in found]


# --- pages of threads ---


def relist(wire: Wire, book: Book) -> None:
    """Bring the threads that have changed back into the index of what changed when."""
    while wire.value(book.sql("SELECT clew.relist(%s, %s)"), (book.space, UNLISTED_MAX)):
        pass


_LIST = f"SELECT * FROM clew.list_threads({', '.join(['%s'] * 15)})"


def threads(wire: Wire, book: Book, query: ThreadQuery) -> Page[ThreadInfo]:
    shelves, orders, _ = zip(*scans(query), strict=True)
    bindings = (
        *(book.space, array(shelves), list(orders), query.workspace, query.status, query.parent),
        *(query.origin, query.tag, query.prefix, query.roots, query.after_us, query.before_us),
        *(query.cursor or (None, None)),
        query.limit + 1,  # one more tells whether there is another page
    )
    found = rows.to_infos(wire.every(book.sql(_LIST), bindings))
    infos = {row.no: info for row, info in found}
    return page_of(query, [row for row, _ in found], lambda row: infos[row.no])


def heads(wire: Wire, book: Book) -> list[ThreadHead]:
    sql = "SELECT id, no::text, seq FROM clew.heads(%s)"
    return [ThreadHead(*row) for row in wire.every(book.sql(sql), (book.space,))]


def stats(wire: Wire, book: Book) -> Stats:
    names = "threads deleted entries records blobs blob_bytes stored_bytes".split()
    row = wire.one(book.sql(f"SELECT {', '.join(names)} FROM clew.stats(%s)"), (book.space,))
    assert row is not None
    return Stats(**dict(zip(names, row, strict=True)))
