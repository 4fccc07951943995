"""Reading: the feed, paths, the shape of the tree, pages of threads. One statement each."""

from __future__ import annotations

from typing import Any

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
from clew.engines.postgres.rows import FACTS, INFO, JOIN_FACTS, ThreadRow
from clew.engines.postgres.wire import NOT_ON_PATH, Row, Wire
from clew.engines.shared.thread_list import UNLISTED_MAX, page_of, scans

# --- one thread ---

_THREAD = (
    f"SELECT {', '.join(f't.{name.strip()}' for name in INFO.split(','))}, {FACTS}"
    f" FROM clew.threads t {JOIN_FACTS} WHERE t.space = %s AND t.id = %s AND NOT t.purged"
)


def thread(wire: Wire, book: Book, id: str) -> tuple[ThreadRow, ThreadInfo]:
    found = rows.to_infos(wire.every(book.sql(_THREAD), (book.space, id)))
    if not found:
        raise NotFound("thread", id)
    return found[0]


_ROW = f"SELECT {INFO} FROM clew.threads WHERE space = %s AND id = %s AND NOT purged"


def thread_row(wire: Wire, book: Book, id: str) -> ThreadRow:
    row = wire.one(book.sql(_ROW), (book.space, id))
    if row is None:
        raise NotFound("thread", id)
    return ThreadRow(*row)


# First the thread, then its records: a planner that has no statistics yet might read all records
# to find those of one thread.
# What lies behind a full page does not leave the server.
_READ = f"""
SELECT * FROM (
  SELECT {rows.RECORD.format(name="t.id")}, sum(coalesce(b.size, octet_length(r.body), 0)) OVER (
           ORDER BY r.seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_bytes
    FROM clew.threads t
   CROSS JOIN LATERAL (
     SELECT * FROM clew.records
      WHERE space = t.space AND thread = t.no AND seq > %s ORDER BY seq LIMIT %s) AS r
    {rows.WITH_BODY}
   WHERE t.space = %s AND t.id = %s AND NOT t.purged) AS page
 WHERE coalesce(before_bytes, 0) < {PAGE_BYTES}
 ORDER BY seq
"""


def read(wire: Wire, book: Book, thread: str, after: int, limit: int) -> list[Record]:
    after = min(max(after, 0), 2**62)  # larger numbers have no type on the server
    found = wire.every(book.sql(_READ), (after, limit, book.space, thread))
    if not found:
        thread_row(wire, book, thread)
    return fill_page(map(rows.to_record, found))


def number_and_seq(wire: Wire, book: Book, thread: str) -> tuple[int, int]:
    """What a waiter asks for again and again: as little as will do."""
    sql = "SELECT no, seq FROM clew.threads WHERE space = %s AND id = %s AND NOT purged"
    row = wire.one(book.sql(sql), (book.space, thread))
    if row is None:
        raise NotFound("thread", thread)
    return row[0], row[1]


# The leaf's place is in the thread's row; any other entry has to be found first. One statement sees
# one moment: with several, a purge in between would look like damage.
_PATH_TO_LEAF = """
SELECT p.* FROM clew.threads t
 CROSS JOIN LATERAL clew.path(%s, t.leaf_thread, t.leaf_seq, NULL, NULL, %s) AS p
 WHERE t.space = %s AND t.id = %s AND NOT t.purged
"""
_LOCATE = "clew.locate(t.space, t.no, t.origin_thread, t.origin_seq, %({id})s::text, true)"
# Where an end is missing the path is not looked for: what is wrong then is the end.
_PATH_BETWEEN = f"""
SELECT p.*, CASE WHEN e.thread IS NULL THEN 'leaf'
                 WHEN a.thread IS NULL AND %(after)s::text IS NOT NULL THEN 'after' END AS missing
  FROM clew.threads t
 CROSS JOIN LATERAL {{end}} AS e
 CROSS JOIN LATERAL {_LOCATE.format(id="after")} AS a
  LEFT JOIN LATERAL clew.path(
    t.space, CASE WHEN a.thread IS NOT NULL OR %(after)s::text IS NULL THEN e.thread END, e.seq,
    CASE WHEN e.thread IS NOT NULL THEN a.thread END, a.seq, %(limit)s) AS p ON true
 WHERE t.space = %(space)s AND t.id = %(thread)s AND NOT t.purged
"""
_PATH_BETWEEN_ENTRIES = _PATH_BETWEEN.format(end=_LOCATE.format(id="leaf"))
_PATH_AFTER = _PATH_BETWEEN.format(end="(SELECT t.leaf_thread AS thread, t.leaf_seq AS seq)")


def path(
    wire: Wire,
    book: Book,
    thread: str,
    leaf: str | UnsetType | None,
    after: str | None,
    limit: int | None,
) -> list[Entry]:
    if leaf is UNSET and after is None:
        found = wire.every(book.sql(_PATH_TO_LEAF), (book.space, limit, book.space, thread))
        if not found:
            thread_row(wire, book, thread)
    elif leaf is None:  # before the root
        thread_row(wire, book, thread)
        if after is not None:
            raise NotFound("entry", after)
        return []
    else:
        found = _path_between(wire, book, thread, leaf, after, limit)
    found.reverse()
    size = PathSize(thread)
    return [size.count(rows.to_record(row)) for row in found]  # type: ignore[misc]


def _path_between(
    wire: Wire,
    book: Book,
    thread: str,
    leaf: str | UnsetType,
    after: str | None,
    limit: int | None,
) -> list[Row]:
    bindings = {"space": book.space, "thread": thread, "after": after, "limit": limit}
    sql = _PATH_AFTER
    if leaf is not UNSET:
        sql, bindings["leaf"] = _PATH_BETWEEN_ENTRIES, leaf
    try:
        found = wire.every(book.sql(sql), bindings)
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


# Each segment with its ends: the last entry before the next segment's first is its last.
_SEGMENTS = """
SELECT head.parent, head.id, tail.id, head.seq, tail.seq, s.first
  FROM clew.threads t
 CROSS JOIN LATERAL (
   SELECT g.first, lead(g.first) OVER (ORDER BY g.first) AS next
     FROM clew.segments g WHERE g.space = t.space AND g.thread = t.no) AS s
  LEFT JOIN LATERAL (
   SELECT r.parent, r.id, r.seq FROM clew.records r
    WHERE r.space = t.space AND r.thread = t.no AND r.type = 0 AND r.seq = s.first
    LIMIT 1) AS head ON true
  LEFT JOIN LATERAL (
   SELECT r.id, r.seq FROM clew.records r
    WHERE r.space = t.space AND r.thread = t.no AND r.type = 0
      AND r.seq >= s.first AND r.seq < coalesce(s.next, 2147483647)
    ORDER BY r.seq DESC LIMIT 1) AS tail ON true
 WHERE t.space = %s AND t.id = %s AND NOT t.purged
 ORDER BY s.first
"""


def segments(wire: Wire, book: Book, thread: str) -> list[Segment]:
    found = wire.every(book.sql(_SEGMENTS), (book.space, thread))
    if not found:
        thread_row(wire, book, thread)
    for row in found:
        if row[1] is None:
            raise Corrupt(
                f"record {row[5]} of {thread!r}", "a segment begins here, but no entry does"
            )
    return [Segment(*row[:5]) for row in found]


# --- pages of threads ---

_UNLISTED = f"""
SELECT count(*) FROM (
  SELECT 1 FROM clew.threads
   WHERE space = %s AND listed_us IS NULL LIMIT {UNLISTED_MAX + 1}) AS few
"""
# The rows are found once, and then by where they lie (ctid): a planner that has no statistics of
# the table yet would read all of it for each of them.
_RELIST = """
UPDATE clew.threads t SET listed_us = t.updated_us
 WHERE t.ctid = ANY (ARRAY(
   SELECT f.ctid FROM clew.threads f WHERE f.space = %s AND f.listed_us IS NULL
    LIMIT 1000 FOR UPDATE SKIP LOCKED))
"""


def relist(wire: Wire, book: Book) -> None:
    """Bring the threads that have changed back into the index of what changed when.

    Threads that are being written right now are passed over: the list is right without them, only
    slower.
    """
    while wire.value(book.sql(_UNLISTED), (book.space,)) > UNLISTED_MAX:
        if wire.change(book.sql(_RELIST), (book.space,)) < UNLISTED_MAX:
            return


def threads(wire: Wire, book: Book, query: ThreadQuery) -> Page[ThreadInfo]:
    """Ordered index scans, merged: the cost is the page, not the store.

    The limit is part of the statement: a plan that is made once, for any number of rows, would
    sort the whole store.
    """
    column = f"{query.order}_us"
    bindings = _bindings(book, query)
    parts = " UNION ALL ".join(f"({_select(query, column, *scan)})" for scan in scans(query))
    page = f"SELECT * FROM ({parts}) AS parts ORDER BY {column} DESC, id {_limit(query)}"
    sql = (
        f"WITH t AS ({page})"
        f" SELECT {', '.join(f't.{name.strip()}' for name in INFO.split(','))}, {FACTS}"
        f" FROM t {JOIN_FACTS} ORDER BY t.{column} DESC, t.id"
    )
    found = rows.to_infos(wire.every(book.sql(sql), bindings))
    infos = {row.no: info for row, info in found}
    return page_of(query, [row for row, _ in found], lambda row: infos[row.no])


_CLAUSES = {
    "workspace": "workspace = %(workspace)s",
    "status": "status = %(status)s",
    "parent": "parent = %(parent)s",
    "origin": "origin = %(origin)s",
    "tag": "no IN (SELECT g.thread FROM clew.tags g WHERE g.space = %(space)s AND g.tag = %(tag)s)",
    "prefix": "starts_with(id, %(prefix)s) AND id >= %(prefix)s",
}


def _select(query: ThreadQuery, column: str, shelf: int, order: str, part: str) -> str:
    clauses = ["space = %(space)s", f"shelf = {shelf}", part]
    clauses += [sql for name, sql in _CLAUSES.items() if getattr(query, name) is not None]
    if query.roots:
        clauses.append("parent IS NULL AND origin IS NULL")
    if query.after_us is not None:
        clauses.append(f"{column} > %(after_us)s")
    if query.before_us is not None:
        clauses.append(f"{column} < %(before_us)s")
    if query.cursor is not None:
        clauses.append(f"{order} <= %(time)s AND ({order} < %(time)s OR id > %(id)s)")
    where = " AND ".join(clauses)
    return f"SELECT * FROM clew.threads WHERE {where} ORDER BY {order} DESC, id {_limit(query)}"


def _limit(query: ThreadQuery) -> str:
    return f"LIMIT {query.limit + 1:d}"  # one more tells whether there is another page


def _bindings(book: Book, query: ThreadQuery) -> dict[str, Any]:
    names = ("workspace", "status", "parent", "origin", "tag", "prefix", "after_us", "before_us")
    bindings: dict[str, Any] = {name: getattr(query, name) for name in names}
    bindings |= {"space": book.space}
    if query.cursor is not None:
        bindings |= {"time": query.cursor[0], "id": query.cursor[1]}
    return bindings


# The size of the tables is the size of the store only where no other namespace shares them.
_STATS = """
SELECT t.threads, t.deleted, r.entries, r.records, b.blobs, b.size,
       CASE WHEN (SELECT count(*) FROM clew.namespaces) = 1
            THEN (SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c
                   WHERE c.relkind = 'r' AND c.relnamespace = (
                     SELECT n.relnamespace FROM pg_class n WHERE n.oid = 'clew.threads'::regclass))
            ELSE r.bytes + b.bytes END::bigint
  FROM (SELECT count(*) FILTER (WHERE shelf < 2) AS threads,
               count(*) FILTER (WHERE shelf = 2) AS deleted
          FROM clew.threads WHERE space = %(space)s) AS t,
       (SELECT count(*) AS records, count(*) FILTER (WHERE type = 0) AS entries,
               coalesce(sum(coalesce(length(body), 0) + coalesce(length(meta), 0)), 0) AS bytes
          FROM clew.records WHERE space = %(space)s) AS r,
       (SELECT count(*) AS blobs, coalesce(sum(size), 0)::bigint AS size,
               coalesce(sum(length(data)), 0) AS bytes
          FROM clew.blobs WHERE space = %(space)s) AS b
"""


def heads(wire: Wire, book: Book) -> list[ThreadHead]:
    sql = "SELECT id, no::text, seq FROM clew.threads WHERE space = %s AND NOT purged"
    return [ThreadHead(*row) for row in wire.every(book.sql(sql), (book.space,))]


def stats(wire: Wire, book: Book) -> Stats:
    row = wire.one(book.sql(_STATS), {"space": book.space})
    assert row is not None
    names = "threads deleted entries records blobs blob_bytes stored_bytes".split()
    return Stats(**dict(zip(names, row, strict=True)))
