"""The index of words on PostgreSQL: a tsvector a document, made of our words and not of its own.

Its tables are made when a store is first searched, by whoever may make tables there. A role that
may not, and finds none, searches with an index in memory. Row-level security holds for them as
for all others: a role sees the documents of its own namespaces.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, Any

from psycopg import errors as states

from clew.core.errors import Unsupported
from clew.core.text_index import (
    COUNT_MAX,
    EVERY,
    Addition,
    And,
    Candidate,
    Document,
    Filter,
    Known,
    Matches,
    Or,
    Query,
    TextIndex,
    Words,
    leaves,
    memory_text_index,
    split,
)
from clew.engines.postgres import rls
from clew.engines.postgres.address import rename
from clew.engines.postgres.lookup import Book
from clew.engines.postgres.schema import lock_migrations
from clew.engines.postgres.wire import Wire, array
from clew.engines.shared.migrations import optional

if TYPE_CHECKING:
    from clew.engines.postgres.engine import PostgresEngine

RANKED_MAX = 2_000  # of more matches, the newest are ranked: each one's words must be read for that
_WEIGHTS = "'{0.33, 0.5, 0.67, 1.0}'::real[]"  # of D to A, which is how PostgreSQL counts
_LABELS = "ABCD"

_log = logging.getLogger("clew")


def open_text_index(
    engine: PostgresEngine, place: str | None, version: int, *, readonly: bool, existing: bool
) -> TextIndex | None:
    """See `clew.core.text_index.open_text_index`."""
    index = PostgresTextIndex(engine, version)
    if index.is_there():
        if not readonly:
            index.drop_others()
        return index
    if readonly or existing:
        return None
    try:
        index.make()
    except Unsupported as error:
        _log.warning("the search index is kept in memory: %s", error)
        return memory_text_index(version)
    return index


class PostgresTextIndex:
    """The words of one namespace. It works on the connections of the engine, and has none."""

    fleeting = False

    def __init__(self, engine: PostgresEngine, version: int) -> None:
        self.rebuilt: str | None = None
        self._engine = engine
        self._version = version & 0x7FFF_FFFF

    def is_there(self) -> bool:
        return bool(self._read(_is_there))

    def make(self) -> None:
        """Make the tables; where row-level security is on, for these too."""

        def work(wire: Wire, again: bool) -> None:
            address = self._engine._address
            try:
                with wire.transaction():
                    lock_migrations(wire, address)
                    wire.execute(rename(optional("postgres", "search"), address.schema))
                    if rls.is_wanted(wire, address):
                        wire.execute(rls.script(address.schema))
            except states.InsufficientPrivilege as error:
                raise Unsupported(
                    f"{address.place}: the role may not make tables; let the owner of Clew's tables"
                    " search once"
                ) from error

        self._engine._run(work)

    def drop_others(self) -> None:
        """Remove what was made by other rules of words than these."""
        sql = "SELECT 1 FROM clew.search_threads WHERE space = %s AND version <> %s LIMIT 1"
        if self._read(lambda wire, book: wire.one(book.sql(sql), (book.space, self._version))):
            self.rebuilt = "the search index was made anew: another version of Clew has made it"
            _log.warning("%s: %s", self._engine.properties.place, self.rebuilt)
            self.clear()

    def _read(self, function: Any, *arguments: Any) -> Any:
        return self._engine._run(
            lambda wire, again: function(wire, self._engine._book, *arguments), writes=False
        )

    def _write(self, function: Any, *arguments: Any) -> Any:
        def work(wire: Wire, again: bool) -> Any:
            with wire.transaction():
                lock = (
                    "SELECT pg_advisory_xact_lock("
                    "'clew.search_documents'::regclass::oid::integer, %s::integer)"
                )
                wire.execute(self._engine._book.sql(lock), (self._engine._book.space,))
                return function(wire, self._engine._book, *arguments)

        return self._engine._run(work)

    # --- what was read ---

    def known(self) -> Mapping[str, Known]:
        found: Mapping[str, Known] = self._read(_known)
        return found

    def add(self, additions: Sequence[Addition]) -> None:
        self._write(_add, additions, self._version)

    def remove(self, threads: Collection[str]) -> None:
        self._write(_remove, list(threads))

    def settle(self) -> None:
        """The server does that by itself."""

    def clear(self) -> None:
        self._write(_clear)

    # --- looking ---

    def search(
        self, query: Query, filter: Filter, *, limit: int, skip: int = 0, newest: bool = False
    ) -> Matches:
        found: Matches = self._read(_search, query, filter, limit, skip, newest)
        return found

    def counts(self, words: Sequence[Words]) -> list[int]:
        found: list[int] = self._read(_counts, words)
        return found

    def words_with(self, part: str, limit: int) -> list[str] | None:
        found: list[str] = self._read(_words_with, part, limit + 1)
        return None if len(found) > limit else found

    def size_bytes(self) -> int:
        sql = "SELECT pg_total_relation_size('clew.search_documents')"
        return int(self._read(lambda wire, book: wire.value(book.sql(sql))))

    def close(self) -> None:
        """The connections are the engine's."""


def _is_there(wire: Wire, book: Book) -> bool:
    sql = """
    SELECT to_regclass('clew.search_documents') IS NOT NULL
       AND has_table_privilege(to_regclass('clew.search_documents'), 'SELECT')
    """
    return bool(wire.value(book.sql(sql)))


# --- writing ---


def _known(wire: Wire, book: Book) -> dict[str, Known]:
    sql = "SELECT id, birth, seq, hash FROM clew.search_threads WHERE space = %s"
    return {id: Known(*rest) for id, *rest in wire.every(book.sql(sql), (book.space,))}


def _add(wire: Wire, book: Book, additions: Sequence[Addition], version: int) -> None:
    for addition in additions:
        thread = _advance(wire, book, addition, version)
        if thread is None:
            continue
        for key, values in addition.marks.items():
            sql = "DELETE FROM clew.search_marks WHERE space = %s AND thread = %s AND key = %s"
            wire.execute(book.sql(sql), (book.space, thread, key))
            _add_marks(wire, book, thread, [(key, value) for value in values])
        _add_marks(wire, book, thread, addition.more_marks)
        _add_documents(wire, book, thread, addition.documents)


def _advance(wire: Wire, book: Book, addition: Addition, version: int) -> int | None:
    """The number of the thread, which is known up to there now. None: another was first."""
    now, before = addition.now, addition.before
    if before is None:
        sql = """
        INSERT INTO clew.search_threads (space, id, birth, seq, hash, version)
        VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (space, id) DO NOTHING RETURNING no
        """
        given: tuple[Any, ...] = (
            book.space,
            addition.thread,
            now.birth,
            now.seq,
            now.hash,
            version,
        )
    else:
        sql = """
        UPDATE clew.search_threads SET seq = %s, hash = %s
         WHERE space = %s AND id = %s AND birth = %s AND seq = %s AND hash = %s RETURNING no
        """
        given = (now.seq, now.hash, book.space, addition.thread, before.birth, before.seq)
        given = (*given, before.hash)
    no = wire.value(book.sql(sql), given)
    return None if no is None else int(no)


def _add_marks(wire: Wire, book: Book, thread: int, marks: Collection[tuple[str, str]]) -> None:
    sql = """
    INSERT INTO clew.search_marks (space, thread, key, value)
    SELECT %s, %s, m.key, m.value FROM unnest(%s::text[], %s::text[]) AS m (key, value)
    ON CONFLICT DO NOTHING
    """
    if marks:
        keys, values = zip(*marks, strict=True)
        wire.execute(book.sql(sql), (book.space, thread, list(keys), list(values)))


def _add_documents(wire: Wire, book: Book, thread: int, documents: Sequence[Document]) -> None:
    titles = [document for document in documents if document.title]
    if titles:
        sql = "DELETE FROM clew.search_documents WHERE space = %s AND thread = %s AND title"
        wire.execute(book.sql(sql), (book.space, thread))
    kept = [one for one in documents if not one.title or one is titles[-1]]
    sql = """
    INSERT INTO clew.search_documents (space, thread, seq, time_us, size, title, words)
    SELECT %s, %s, d.seq, d.time_us, d.size, d.title, d.words::tsvector
      FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::boolean[], %s::text[])
        AS d (seq, time_us, size, title, words)
    """
    if kept:
        columns = (
            array(one.seq for one in kept),
            array(one.time_us for one in kept),
            array(one.size for one in kept),
            [one.title for one in kept],
            [_vector(one) for one in kept],
        )
        wire.execute(book.sql(sql), (book.space, thread, *columns))


def _vector(document: Document) -> str:
    """The words of a document with their places, as PostgreSQL reads a tsvector."""
    places: dict[str, list[str]] = defaultdict(list)
    place = 0
    for label, column in zip(_LABELS, document.columns, strict=True):
        for word in split(column):
            place += 1
            places[word].append(f"{place}{label}")
        place += 1  # so that no phrase goes from one column into the next
    return " ".join(f"{_quoted(word)}:{','.join(found)}" for word, found in places.items())


def _quoted(word: str) -> str:
    """A word has no quotes and no backslashes; they are doubled all the same."""
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


def _remove(wire: Wire, book: Book, threads: list[str]) -> None:
    sql = "DELETE FROM clew.search_threads WHERE space = %s AND id = ANY(%s::text[]) RETURNING no"
    gone = array(no for (no,) in wire.every(book.sql(sql), (book.space, threads)))
    for table in ("search_marks", "search_documents"):
        sql = f"DELETE FROM clew.{table} WHERE space = %s AND thread = ANY(%s::bigint[])"
        wire.execute(book.sql(sql), (book.space, gone))


def _clear(wire: Wire, book: Book) -> None:
    for table in ("search_threads", "search_marks", "search_documents"):
        wire.execute(book.sql(f"DELETE FROM clew.{table} WHERE space = %s"), (book.space,))


# --- looking ---


def _search(
    wire: Wire, book: Book, query: Query, filter: Filter, limit: int, skip: int, newest: bool
) -> Matches:
    where, given = _where(book, filter)
    given["query"] = _expression(query)
    total = wire.value(
        book.sql(f"SELECT count(*) FROM clew.search_documents d WHERE {where}"), given
    )
    order = "d.time_us DESC, t.id, d.seq DESC" if newest else "d.rank DESC, d.no DESC"
    ranked = ""
    if not newest:
        rank, more = _rank(wire, book, leaves(query) if total > limit else [])
        given |= more
        ranked = f", {rank} AS rank"
    few = "" if newest else f" ORDER BY d.time_us DESC LIMIT {max(RANKED_MAX, skip + limit)}"
    sql = f"""
    SELECT d.no, t.id, d.seq, d.time_us, d.size, d.title FROM (
      SELECT d.no, d.space, d.thread, d.seq, d.time_us, d.size, d.title{ranked}
        FROM (SELECT * FROM clew.search_documents d WHERE {where}{few}) AS d) AS d
      JOIN clew.search_threads t ON t.space = d.space AND t.no = d.thread
     ORDER BY {order} LIMIT %(limit)s OFFSET %(skip)s
    """
    rows = wire.every(book.sql(sql), {**given, "limit": limit, "skip": skip})
    placed = {} if newest else _places(wire, book, [row[0] for row in rows], _every_leaf(query))
    return Matches(
        int(total),
        [
            Candidate(
                *(id, seq, time_us, size, title),
                () if newest else tuple(_tally(query, placed[no])[1]),
            )
            for no, id, seq, time_us, size, title in rows
        ],
    )


def _rank(wire: Wire, book: Book, found: list[Words]) -> tuple[str, dict[str, Any]]:
    """What documents are chosen by, where not all can be: rare words count for more than common.

    PostgreSQL's own rank does not know how rare a word is.
    """
    rank = f"ts_rank({_WEIGHTS}, d.words, %(query)s::tsquery)"
    given: dict[str, Any] = {}
    if len(found) > 1:
        for n, count in enumerate(_counts(wire, book, found)):
            rarity = log(1 + COUNT_MAX / (count + 1))
            given |= {f"leaf{n}": _expression(found[n]), f"rarity{n}": rarity}
            rank += f" + (d.words @@ %(leaf{n})s::tsquery)::integer * %(rarity{n})s::real"
    return rank, given


_ALL = "= ANY(ARRAY(SELECT m.thread FROM clew.search_marks m WHERE m.space = %(space)s AND"
_NONE = "<> ALL(ARRAY(SELECT m.thread FROM clew.search_marks m WHERE m.space = %(space)s AND"


def _where(book: Book, filter: Filter) -> tuple[str, dict[str, Any]]:
    clauses = ["d.space = %(space)s", "d.words @@ %(query)s::tsquery"]
    given: dict[str, Any] = {"space": book.space}
    for kind, marks in ((_ALL, filter.marks), (_NONE, filter.without)):
        for key, value in marks:
            n = len(given)
            given |= {f"key{n}": key, f"value{n}": value}
            clauses.append(f"d.thread {kind} m.key = %(key{n})s AND m.value = %(value{n})s))")
    if filter.threads is not None:
        given["threads"] = list(filter.threads)
        clauses.append(
            "d.thread = ANY(ARRAY(SELECT s.no FROM clew.search_threads s"
            " WHERE s.space = %(space)s AND s.id = ANY(%(threads)s::text[])))"
        )
    for name, time_us in (("since", filter.since_us), ("until", filter.until_us)):
        if time_us is not None:
            given[name] = time_us
            clauses.append(f"d.time_us {'>=' if name == 'since' else '<'} %({name})s")
    return " AND ".join(clauses), given


def _expression(query: Query) -> str:
    """A query as PostgreSQL reads a tsquery."""
    match query:
        case Words(words, prefix, column):
            label = "" if column is None else _LABELS[column]
            spelled = [f"{_quoted(word)}:{label}" if label else _quoted(word) for word in words]
            if prefix:
                spelled[-1] = f"{_quoted(words[-1])}:*{label}"
            return f"({' <-> '.join(spelled)})"
        case And(wanted, unwanted):
            parts = [_expression(part) for part in wanted] or [_quoted(EVERY)]
            parts += [f"!({_expression(part)})" for part in unwanted]
            return f"({' & '.join(parts)})"
        case Or(parts):
            return f"({' | '.join(map(_expression, parts))})"


Placed = dict[str, list[tuple[int, int]]]  # of words: their places, and the columns


def _places(
    wire: Wire, book: Book, numbers: Sequence[int], found: Sequence[Words]
) -> dict[int, Placed]:
    """Where the words of a query stand in some documents."""
    sql = """
    SELECT d.no, w.lexeme, w.positions, w.weights
      FROM clew.search_documents d CROSS JOIN LATERAL unnest(d.words) AS w
     WHERE d.space = %s AND d.no = ANY(%s::bigint[]) AND (w.lexeme = ANY(%s::text[])
        OR EXISTS (SELECT 1 FROM unnest(%s::text[]) AS b (it) WHERE starts_with(w.lexeme, b.it)))
    """
    whole = [word for leaf in found for word in leaf.words]
    begins = [leaf.words[-1] for leaf in found if leaf.prefix]
    placed: dict[int, Placed] = {no: {} for no in numbers}
    rows = wire.every(book.sql(sql), (book.space, array(numbers), whole, begins))
    for no, word, positions, weights in rows:
        columns = (_LABELS.index(weight) for weight in weights)
        placed[no][word] = list(zip(positions, columns, strict=True))
    return placed


def _tally(query: Query, placed: Placed) -> tuple[bool, list[tuple[int, ...]]]:
    """Whether a part of a query matches, and how often each of its leaves stands in each column.

    The leaves of a part that does not match count for nothing.
    """
    match query:
        case Words():
            counts = _often(query, placed)
            return any(counts), [counts]
        case And(wanted, unwanted):
            parts = [_tally(part, placed) for part in wanted]
            matches = all(found for found, _ in parts) and not any(
                _tally(part, placed)[0] for part in unwanted
            )
        case Or(alternatives):
            parts = [_tally(part, placed) for part in alternatives]
            matches = any(found for found, _ in parts)
    said = [counts for _, own in parts for counts in own]
    return matches, said if matches else [(0, 0, 0, 0)] * len(said)


def _every_leaf(query: Query) -> list[Words]:
    """The leaves, with those that are unwanted."""
    match query:
        case Words():
            return [query]
        case And(wanted, unwanted):
            return [leaf for part in (*wanted, *unwanted) for leaf in _every_leaf(part)]
        case Or(parts):
            return [leaf for part in parts for leaf in _every_leaf(part)]


def _often(leaf: Words, placed: Placed) -> tuple[int, ...]:
    """How often words that follow each other stand in each column."""
    first, *rest = [_standing(placed, word) for word in leaf.words[:-1]] + [
        _standing(placed, leaf.words[-1], leaf.prefix)
    ]
    counts = [0, 0, 0, 0]
    for place, column in first.items():
        wanted = leaf.column in (None, column)
        if wanted and all(place + n in other for n, other in enumerate(rest, 1)):
            counts[column] += 1
    return tuple(counts)


def _standing(placed: Placed, word: str, prefix: bool = False) -> dict[int, int]:
    """The places of a word, or of all that begin so, with their columns."""
    if not prefix:
        return dict(placed.get(word, ()))
    return {
        place: column
        for other, places in placed.items()
        if other.startswith(word)
        for place, column in places
    }


def _counts(wire: Wire, book: Book, words: Sequence[Words]) -> list[int]:
    sql = f"""
    SELECT count(*) FROM (SELECT 1 FROM clew.search_documents d
     WHERE d.space = %s AND d.words @@ %s::tsquery LIMIT {COUNT_MAX}) AS found
    """
    return [int(wire.value(book.sql(sql), (book.space, _expression(leaf)))) for leaf in words]


def _words_with(wire: Wire, book: Book, part: str, limit: int) -> list[str]:
    sql = f"""
    SELECT word FROM ts_stat('SELECT words FROM clew.search_documents WHERE space = {book.space:d}')
     WHERE strpos(word, %s) > 0 LIMIT %s
    """
    return [str(word) for (word,) in wire.every(book.sql(sql), (part, limit))]
