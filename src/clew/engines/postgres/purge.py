"""Removing a thread for good, but for the entries that forks share with it.

What forks need stays under the thread's row, which nobody can see any more. It goes with the last
fork that needs it. All of it happens while nobody else purges, sweeps, or begins to use a blob.
"""

from __future__ import annotations

from clew.engines.postgres import blobs
from clew.engines.postgres.finding import Book
from clew.engines.postgres.wire import Wire, array
from clew.errors import NotFound
from clew.model import Purged

Range = tuple[int, int]


class Purge:
    """One purge, which may need several tries."""

    def __init__(self, book: Book, thread: str) -> None:
        self._book = book
        self._thread = thread
        self._no: int | None = None
        self._purged: Purged | None = None

    def run(self, wire: Wire, again: bool) -> Purged:
        try:
            with wire.transaction():
                self._purged = self._purge(wire)
        except NotFound:
            if again and self._purged is not None:
                # An earlier try was done, and only its answer was lost. Something is committed
                # after it, so that this answer is as good as any.
                touch = "UPDATE clew.namespaces SET name = name WHERE no = %s"
                wire.change(self._book.sql(touch), (self._book.space,))
                return self._purged
            raise
        return self._purged

    def _purge(self, wire: Wire) -> Purged:
        book = self._book
        blobs.hold_all_off(wire, book)
        row = wire.one(book.sql(_TAKE), (book.space, self._thread))
        if row is None:
            raise NotFound("thread", self._thread)
        no, origin_thread = row
        if self._no not in (None, no):
            raise NotFound("thread", self._thread)  # another one, made since an earlier try
        self._no = no
        for table in ("facts", "tags"):
            sql = f"DELETE FROM clew.{table} WHERE space = %s AND thread = %s"
            wire.execute(book.sql(sql), (book.space, no))
        wire.execute(book.sql(_HIDE), (book.space, no))
        removed, kept, forks = self._remove_unneeded(wire, no)
        if not kept:
            self._drop(wire, no)
        self._collect(wire, origin_thread)
        return Purged(thread=self._thread, records=removed, kept=kept, kept_for=forks)

    def _remove_unneeded(self, wire: Wire, no: int) -> tuple[int, int, tuple[str, ...]]:
        """Remove the records of a purged thread that no fork's path runs through."""
        book = self._book
        forks, needed = self._needs(wire, no)
        firsts = array(first for first, _ in needed)
        lasts = array(last for _, last in needed)
        # Inside of what is needed, moves and facts are of no use to a fork, and may hold what was
        # meant to go: only entries stay.
        gone = wire.every(book.sql(_REMOVE), (book.space, no, firsts, lasts))
        seqs = array(seq for seq, _ in gone)
        wire.execute(book.sql(_REMOVE_USES), (book.space, no, seqs))
        # Large bodies go at once; blobs that were put by hand wait for `sweep` and its grace.
        blobs.remove_unused(wire, book, [blob for _, blob in gone if blob is not None])
        wire.execute(book.sql(_REMOVE_SEGMENTS), (book.space, no, firsts))
        sql = "SELECT count(*) FROM clew.records WHERE space = %s AND thread = %s"
        return len(gone), int(wire.value(book.sql(sql), (book.space, no))), forks

    def _needs(self, wire: Wire, no: int) -> tuple[tuple[str, ...], list[Range]]:
        """The forks whose paths run through a thread, and the ranges of it that they need."""
        found = wire.every(
            self._book.sql(_NEEDS), (self._book.space, no, *[self._book.space] * 2, no)
        )
        forks = {id for id, _, _ in found}
        return tuple(sorted(forks)), sorted({(first, last) for _, first, last in found})

    def _collect(self, wire: Wire, source: int | None) -> None:
        """Look at what a purged thread hung on: it may be left of purged ones, and unneeded now."""
        book = self._book
        first = True
        while source is not None:
            row = wire.one(book.sql(_SOURCE), (book.space, source))
            if row is None:
                return  # not purged: whatever is above, it needs itself
            removed, left, _ = self._remove_unneeded(wire, source)
            if not left:
                self._drop(wire, source)
            elif first and not removed:
                return  # somebody else needs what it began at, and so all that is above
            first = False
            source = row[0]

    def _drop(self, wire: Wire, no: int) -> None:
        """Remove a row. What is left of its forks hangs on what it hung on, so it can be found."""
        book = self._book
        wire.execute(book.sql(_REHANG), (book.space, no))
        drop = book.sql("DELETE FROM clew.threads WHERE space = %s AND no = %s")
        wire.execute(drop, (book.space, no))


# A fork that is being made holds on to the row; so either it is there, or it does not find us.
_TAKE = """
SELECT no, origin_thread FROM clew.threads WHERE space = %s AND id = %s AND NOT purged FOR UPDATE
"""
_HIDE = """
UPDATE clew.threads
   SET purged = true, leaf = NULL, leaf_hash = NULL, leaf_thread = NULL, leaf_seq = NULL,
       tail = NULL, deleted_us = NULL, status = NULL, workspace = NULL, owner = NULL,
       lease_turn = NULL
 WHERE space = %s AND no = %s
"""
_REMOVE = """
DELETE FROM clew.records r
 WHERE r.space = %s AND r.thread = %s
   AND (r.type <> 0 OR NOT EXISTS (
     SELECT 1 FROM unnest(%s::bigint[], %s::bigint[]) AS n (first, last)
      WHERE r.seq BETWEEN n.first AND n.last))
RETURNING r.seq, r.blob
"""
_REMOVE_USES = (
    "DELETE FROM clew.blob_uses WHERE space = %s AND thread = %s AND seq = ANY(%s::bigint[])"
)
_REMOVE_SEGMENTS = (
    "DELETE FROM clew.segments WHERE space = %s AND thread = %s AND first <> ALL(%s::bigint[])"
)
# Forks, forks of forks, and so on; of those that are purged themselves only the forks count.
_NEEDS = """
WITH RECURSIVE family (no) AS (
  SELECT no FROM clew.threads WHERE space = %s AND origin_thread = %s
  UNION
  SELECT t.no FROM clew.threads t JOIN family f ON t.space = %s AND t.origin_thread = f.no
)
SELECT t.id, s.first::bigint, s.last
  FROM family f
  JOIN clew.threads t ON t.space = %s AND t.no = f.no AND NOT t.purged
 CROSS JOIN LATERAL clew.spans(t.space, t.origin_thread, t.origin_seq) AS s
 WHERE s.thread = %s
"""
_REHANG = """
UPDATE clew.threads t SET origin_thread = p.origin_thread, origin_seq = p.origin_seq
  FROM clew.threads p
 WHERE p.space = %s AND p.no = %s AND t.space = p.space AND t.origin_thread = p.no AND t.purged
"""
_SOURCE = """
SELECT origin_thread FROM clew.threads WHERE space = %s AND no = %s AND purged FOR UPDATE
"""
