"""Reading: the feed, paths, the shape of the tree, pages of threads."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import apsw
from msgspec import UNSET, UnsetType

from clew.core.engine import PathSize, fill_page
from clew.core.errors import Corrupt, NotFound
from clew.core.model import (
    PAGE_MAX,
    Entry,
    Page,
    Record,
    Segment,
    Stats,
    ThreadHead,
    ThreadInfo,
    ThreadQuery,
)
from clew.engines.shared.tables import packs, record_rows, rows
from clew.engines.shared.tables.rows import (
    Lineage,
    Lineages,
    Range,
    ThreadRow,
    each,
    every,
    one,
    value,
)
from clew.engines.shared.thread_list import PURGED, UNLISTED_MAX, page_of, scans

_log = logging.getLogger("clew")


def read(db: apsw.Connection, space: int, thread: str, after: int, limit: int) -> list[Record]:
    row = rows.thread_row(db, space, thread)
    if after >= row.seq:
        return []
    # A number below 0 would reach into the records of the thread before this one.
    span = rows.everything_of(row.no, max(after, 0))
    return fill_page(record_rows.scan(db, span, entries_only=False, limit=limit, name=row.id))


def path(
    db: apsw.Connection,
    lineages: Lineages,
    space: int,
    thread: str,
    leaf: str | UnsetType | None,
    after: str | None,
    limit: int | None,
) -> list[Entry]:
    spans = path_spans(db, lineages, space, thread, leaf, after)
    size = PathSize(thread)
    if limit is not None:
        return _read_newest(db, spans, limit, size)
    entries: list[Entry] = []
    for span in reversed(list(spans)):
        entries += size.count(record_rows.scan(db, span, entries_only=True))
    return entries


def path_spans(
    db: apsw.Connection,
    lineages: Lineages,
    space: int,
    thread: str,
    leaf: str | UnsetType | None,
    after: str | None,
) -> Iterable[Range]:
    """The ranges of records that hold a path, the newest first, each found when it is asked for."""
    row = rows.thread_row(db, space, thread)
    lineage = lineages.of(db, row.origin_no)
    end = row.leaf if leaf is UNSET else leaf
    if end is None:
        if after is not None:
            raise NotFound("entry", after)
        return ()
    place = _place(db, row, lineage, end)
    if after is None:
        return rows.path_ranges(db, place)
    return _spans(db, place, _place(db, row, lineage, after), after)


def _place(db: apsw.Connection, row: ThreadRow, lineage: Lineage, id: str) -> int:
    place = rows.locate(db, row.no, lineage, id)
    if place is None:
        raise NotFound("entry", id)
    return place


def _spans(db: apsw.Connection, place: int, stop: int, after: str) -> list[Range]:
    """The ranges of a path, newest first, down to the entry after `stop`."""
    spans: list[Range] = []
    for first, last in rows.path_ranges(db, place):
        if first <= stop <= last:
            return [*spans, (stop + 1, last)]
        spans.append((first, last))
    raise NotFound("entry", after)


def _read_newest(
    db: apsw.Connection, spans: Iterable[Range], limit: int, size: PathSize
) -> list[Entry]:
    entries: list[Entry] = []
    for span in spans:
        left = limit - len(entries)
        if left <= 0:
            break
        newest = record_rows.scan(db, span, entries_only=True, limit=left, newest_first=True)
        entries += size.count(newest)
    entries.reverse()
    return entries


def segments(db: apsw.Connection, space: int, thread: str) -> list[Segment]:
    """Each segment with its ends: the last entry before the next segment's first is its last."""
    first, last = rows.everything_of(rows.thread_row(db, space, thread).no)
    query = "SELECT first FROM segments WHERE first BETWEEN ? AND ? ORDER BY first"
    starts = [row[0] for row in every(db, query, (first, last))]
    return [_segment(db, start, end) for start, end in pairwise([*starts, last + 1])]


def _segment(db: apsw.Connection, start: int, end: int) -> Segment:
    query = "SELECT no, id, parent FROM records WHERE no BETWEEN ? AND ? AND type = 0 ORDER BY no"
    head = one(db, f"{query} ASC LIMIT 1", (start, end - 1))
    tail = one(db, f"{query} DESC LIMIT 1", (start, end - 1))
    packed = packs.overlapping(db, (start, end - 1))
    if packed:
        near = [
            row for p in (packed[0], packed[-1]) for row in packs.read(db, p).rows(start, end - 1)
        ]
        ends = [(row[0], row[2], row[5]) for row in near]
        ends += [row for row in (head, tail) if row is not None]
        head, tail = min(ends, default=None), max(ends, default=None)
    if head is None or tail is None:
        raise Corrupt(f"record no. {start}", "a segment begins here, but no entry does")
    return Segment(head[2], head[1], tail[1], head[0] & rows.SEQ_MAX, tail[0] & rows.SEQ_MAX)


# --- pages of threads ---


def too_many_unlisted(db: apsw.Connection, space: int) -> bool:
    """Whether sorting the threads that are not in the index would cost more than a page should."""
    # With a limit inside: to count all of them would cost what is to be saved.
    some = "SELECT 1 FROM threads WHERE space = ? AND listed_us IS NULL LIMIT ?"
    found = value(db, f"SELECT count(*) FROM ({some})", (space, UNLISTED_MAX + 1))
    return bool(found > UNLISTED_MAX)


def threads(db: apsw.Connection, space: int, query: ThreadQuery) -> Page[ThreadInfo]:
    """Ordered index scans, merged: the cost is the page, not the store.

    A thread that cannot be read is passed over, and named in the log: it hides no other one.
    """
    column = f"{query.order}_us"
    found: list[ThreadRow] = []
    for scan in scans(query):
        near = _near(db, space, query, column, *scan) if _is_sorted(query, scan) else []
        found.extend(near or _all(db, *_select(space, query, column, *scan), query.limit))
    found.sort(key=lambda row: (-getattr(row, column), row.id))
    facts = rows.facts_of_all(db, [row.no for row in found[: query.limit]])
    return page_of(query, found, lambda row: row.info(db, facts[row.no]))


def _is_sorted(query: ThreadQuery, scan: tuple[int, str, str]) -> bool:
    """Whether a scan has no index in its order, so that all that it asks for would be sorted."""
    by_update = scan[1] == "listed_us"
    in_order = query.prefix is None and query.tag is None
    by_created = (query.workspace, query.parent, query.origin)
    sorts = not in_order or (by_update and by_created != (None, None, None))
    # Threads that are in no index by update are few, and always sorted.
    return sorts and scan[1] != "updated_us" and query.limit <= PAGE_MAX


def _near(
    db: apsw.Connection, space: int, query: ThreadQuery, column: str, *scan: Any
) -> list[ThreadRow]:
    """The rows of a page, if they are among the first of the shelf; empty if too few of them are.

    What is asked for is often most of what there is: the sessions of the one application, say. A
    few steps along the shelf's own index tell, and save the sorting.
    """
    sql, bindings = _select(space, query, column, *scan, near=True)
    found = [row for row in map(_readable, every(db, sql, bindings)) if row is not None]
    return found if len(found) > query.limit else []


def _all(db: apsw.Connection, sql: str, bindings: dict[str, Any], limit: int) -> list[ThreadRow]:
    """The first rows of a scan, one more than a page has, wherever they are."""
    while True:
        count, readable = 0, []
        for raw in each(db, sql, bindings):
            count += 1
            row = _readable(raw)
            if row is not None:
                readable.append(row)
        enough = len(readable) > limit or count < bindings["limit"]
        if enough or len(readable) == count:
            return readable
        bindings["limit"] += count - len(readable)  # others stand behind these


def _readable(row: rows.Row) -> ThreadRow | None:
    try:
        return rows.to_thread(row)
    except Corrupt as error:
        _log.warning("%s; it is not listed: run clew verify", error)
        return None


def _select(
    space: int,
    query: ThreadQuery,
    column: str,
    shelf: int,
    order: str,
    part: str,
    *,
    near: bool = False,
) -> tuple[str, dict[str, Any]]:
    """A scan as a statement; `near`: only among the first threads of the shelf."""
    selective = (query.workspace, query.parent, query.origin, query.tag, query.prefix)
    # The plus keeps SQLite from walking the whole shelf in order when a narrower index will do.
    clauses = ["t.shelf = +:shelf" if selective == (None,) * 5 else "+t.shelf = +:shelf"]
    # And by tag alone the threads are known by their numbers.
    by_tag = query.tag is not None and selective.count(None) == 4
    clauses += ["+t.space = +:space" if by_tag else "t.space = +:space", part]
    time, order = _TIMES[column], _TIMES[order]
    bindings: dict[str, Any] = {"space": space, "shelf": shelf, "limit": query.limit + 1}
    for name in ("workspace", "status", "parent", "origin"):
        value = getattr(query, name)
        if value is not None:
            clauses.append(f"t.{name} = +:{name}")
            bindings[name] = value
    if query.roots:
        clauses.append("t.parent IS NULL AND t.origin IS NULL")
    if query.after_us is not None:
        clauses.append(f"{time} > :after")
        bindings["after"] = query.after_us
    if query.before_us is not None:
        clauses.append(f"{time} < :before")
        bindings["before"] = query.before_us
    behind = "TRUE"
    if query.cursor is not None:
        behind = f"{order} <= :time AND ({order} < :time OR t.id > :id)"
        bindings |= {"time": query.cursor[0], "id": query.cursor[1]}
    if query.tag is not None:
        bindings["tag"] = query.tag
    if query.prefix is not None:
        bindings |= {"prefix": query.prefix, "prefix_end": after_prefix(query.prefix)}
    source = rows.THREADS
    if near:
        bindings["near"] = _NEAR * bindings["limit"]
        source = f"({_nearest(query, part, order, behind)}) n CROSS JOIN {source}"
        clauses.append("t.no = n.no")
    else:
        clauses.append(behind)
        if query.tag is not None:
            clauses.append("t.no IN (SELECT thread FROM tags WHERE space = :space AND tag = :tag)")
        if query.prefix is not None:
            clauses.append(f"t.shelf < 3 AND {_HAS_PREFIX}")
    select = f"SELECT {rows.THREAD} FROM {source} WHERE {' AND '.join(clauses)}"
    return f"{select} ORDER BY {order} DESC, t.id LIMIT :limit", bindings


def _nearest(query: ThreadQuery, part: str, order: str, behind: str) -> str:
    """The numbers of threads near the beginning, from the shelf's index alone."""
    walk = (
        f"SELECT t.no, t.id, {order} AS at FROM threads t"
        f" WHERE t.space = :space AND t.shelf = :shelf AND {part} AND {behind}"
        f" ORDER BY {order} DESC, t.id LIMIT :near"
    )
    wanted = []
    if query.tag is not None:
        tags = "SELECT 1 FROM tags WHERE space = :space AND tag = :tag AND thread = t.no"
        wanted.append(f"EXISTS ({tags})")
    if query.prefix is not None:
        wanted.append(_HAS_PREFIX)
    if not wanted:
        return walk
    # No more than a page: what else is asked for, their rows tell, and those cost the most.
    return (
        f"SELECT t.no FROM ({walk}) t WHERE {' AND '.join(wanted)}"
        " ORDER BY t.at DESC, t.id LIMIT :limit"
    )


_NEAR = 32  # threads are looked at for each that is asked for
_HAS_PREFIX = "t.id >= :prefix AND (:prefix_end IS NULL OR t.id < :prefix_end)"

_TIMES = {
    "created_us": "t.created_us",
    "listed_us": "t.listed_us",
    "updated_us": rows.UPDATED_US,
}


def after_prefix(prefix: str) -> str | None:
    """The least text greater than all that begin with a prefix; None if there is none."""
    for end in range(len(prefix), 0, -1):
        point = ord(prefix[end - 1]) + 1
        if point <= 0x10FFFF:
            # Surrogates are no characters: after U+D7FF comes U+E000.
            return prefix[: end - 1] + chr(0xE000 if point == 0xD800 else point)
    return None


def heads(db: apsw.Connection, space: int) -> list[ThreadHead]:
    sql = f"SELECT t.id, t.no, {rows.SEQ} FROM {rows.THREADS} WHERE t.space = ? AND t.shelf < ?"
    return [ThreadHead(id, str(no), seq) for id, no, seq in every(db, sql, (space, PURGED))]


def stats(db: apsw.Connection, space: int | None) -> Stats:
    """What a namespace has, or all of them together.

    The size of the file is the size of the store only where no other namespace shares it.
    """
    where, bindings = ("TRUE", ()) if space is None else ("space = ?", (space,))

    def row(sql: str) -> list[int]:
        return [number or 0 for number in one(db, sql, bindings) or ()]

    threads, deleted = row(
        "SELECT count(*) FILTER (WHERE shelf < 2), count(*) FILTER (WHERE shelf = 2)"
        f" FROM threads WHERE {where}"
    )
    records, entries, record_bytes = row(
        "SELECT count(*), count(*) FILTER (WHERE r.type = 0),"
        " sum(ifnull(length(r.body), 0) + ifnull(length(r.meta), 0))"
        " FROM threads t CROSS JOIN records r"
        f" ON r.no BETWEEN t.no << 32 AND t.no << 32 | {rows.SEQ_MAX} WHERE {where}"
    )
    packed, pack_bytes = row(
        "SELECT sum(p.entries), sum(length(p.hashes) + length(p.data))"
        " FROM threads t CROSS JOIN packs p"
        f" ON p.first BETWEEN t.no << 32 AND t.no << 32 | {rows.SEQ_MAX} WHERE {where}"
    )
    count, blob_bytes, packed_bytes = row(
        "SELECT count(*), sum(size), sum(length(data)) FROM blobs"
        f" WHERE no IN (SELECT no FROM blobs WHERE {where})"
    )
    alone = space is None or value(db, "SELECT count(*) FROM namespaces") == 1
    return Stats(
        threads=threads,
        deleted=deleted,
        entries=entries + packed,
        records=records + packed,
        blobs=count,
        blob_bytes=blob_bytes,
        stored_bytes=file_bytes(db) if alone else record_bytes + pack_bytes + packed_bytes,
    )


def file_bytes(db: apsw.Connection) -> int:
    return int(value(db, "PRAGMA page_count") * value(db, "PRAGMA page_size"))
