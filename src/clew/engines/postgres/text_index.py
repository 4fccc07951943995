"""The index of words on PostgreSQL: a tsvector a document, made of our words and not of its own.

Its tables are made when a store is first searched, by a role that may make tables there. One that
may not, and finds none, searches with an index in memory. They are asked by functions, as all
others are: under row-level security a role sees the documents of its own namespaces.
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
        if index.is_other():
            if readonly:
                return None
            index.begin_anew()
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

    def is_other(self) -> bool:
        """Whether other rules of words than these have made a part of it."""
        sql = "SELECT clew.search_is_other(%s, %s)"
        given = (self._engine._book.space, self._version)
        return bool(self._read(lambda wire, book: wire.value(book.sql(sql), given)))

    def begin_anew(self) -> None:
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
                book = self._engine._book
                wire.execute(book.sql("SELECT clew.take_turns(%s)"), (book.space,))
                return function(wire, book, *arguments)

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
        self._write(_remove, None)

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
        sql = "SELECT clew.search_size(%s)"
        return int(self._read(lambda wire, book: wire.value(book.sql(sql), (book.space,))))

    def close(self) -> None:
        """The connections are the engine's."""


def _is_there(wire: Wire, book: Book) -> bool:
    """Whether there is an index, and this role may search it."""
    sql = """
    SELECT coalesce(has_function_privilege(to_regprocedure('clew.search_known(bigint)'), 'EXECUTE')
       AND (has_table_privilege(to_regclass('clew.search_documents'), 'SELECT')
            OR (SELECT p.prosecdef FROM pg_proc p
                 WHERE p.oid = to_regprocedure('clew.search_known(bigint)'))), false)
    """
    return bool(wire.value(book.sql(sql)))


# --- writing ---


def _known(wire: Wire, book: Book) -> dict[str, Known]:
    sql = "SELECT id, birth, seq, hash FROM clew.search_known(%s)"
    return {id: Known(*rest) for id, *rest in wire.every(book.sql(sql), (book.space,))}


def _add(wire: Wire, book: Book, additions: Sequence[Addition], version: int) -> None:
    for addition in additions:
        thread = _advance(wire, book, addition, version)
        if thread is None:
            continue
        marks = [(key, value) for key, values in addition.marks.items() for value in values]
        _add_marks(wire, book, thread, list(addition.marks), [*marks, *addition.more_marks])
        _add_documents(wire, book, thread, addition.documents)


def _advance(wire: Wire, book: Book, addition: Addition, version: int) -> int | None:
    """The number of the thread, which is known up to there now. None: another was first."""
    now, before = addition.now, addition.before
    old = (None, None, None) if before is None else (before.birth, before.seq, before.hash)
    given = (book.space, addition.thread, version, now.birth, now.seq, now.hash, *old)
    no = wire.value(book.sql(f"SELECT clew.search_advance({', '.join(['%s'] * 9)})"), given)
    return None if no is None else int(no)


def _add_marks(
    wire: Wire, book: Book, thread: int, anew: list[str], marks: Collection[tuple[str, str]]
) -> None:
    sql = "SELECT clew.search_add_marks(%s, %s, %s::text[], %s::text[], %s::text[])"
    if anew or marks:
        keys, values = [key for key, _ in marks], [value for _, value in marks]
        wire.execute(book.sql(sql), (book.space, thread, anew, keys, values))


def _add_documents(wire: Wire, book: Book, thread: int, documents: Sequence[Document]) -> None:
    titles = [document for document in documents if document.title]
    kept = [one for one in documents if not one.title or one is titles[-1]]
    sql = """
    SELECT clew.search_add_documents(
      %s, %s, %s::bigint[], %s::bigint[], %s::bigint[], %s::boolean[], %s::text[])
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


def _remove(wire: Wire, book: Book, threads: list[str] | None) -> None:
    """Forget threads; None is all of them."""
    wire.execute(book.sql("SELECT clew.search_remove(%s, %s::text[])"), (book.space, threads))


# --- looking ---


_CHOSEN = (
    "%(space)s, %(query)s, %(keys)s::text[], %(values)s::text[], %(unwanted_keys)s::text[],"
    " %(unwanted_values)s::text[], %(threads)s::text[], %(since)s, %(until)s"
)
_MATCH = f"""
SELECT no, id, seq, time_us, size, title FROM clew.search_match({_CHOSEN}, %(newest)s, {_WEIGHTS},
  %(leaves)s::text[], %(rarities)s::real[], %(ranked)s, %(limit)s, %(skip)s)
"""


def _search(
    wire: Wire, book: Book, query: Query, filter: Filter, limit: int, skip: int, newest: bool
) -> Matches:
    given: dict[str, Any] = {
        "space": book.space,
        "query": _expression(query),
        "keys": [key for key, _ in filter.marks],
        "values": [value for _, value in filter.marks],
        "unwanted_keys": [key for key, _ in filter.without],
        "unwanted_values": [value for _, value in filter.without],
        "threads": None if filter.threads is None else list(filter.threads),
        "since": filter.since_us,
        "until": filter.until_us,
    }
    total = int(wire.value(book.sql(f"SELECT clew.search_total({_CHOSEN})"), given))
    found = [] if newest or total <= limit else leaves(query)
    given |= {
        "newest": newest,
        "leaves": [_expression(leaf) for leaf in found] if len(found) > 1 else [],
        "rarities": _rarities(wire, book, found) if len(found) > 1 else [],
        "ranked": max(RANKED_MAX, skip + limit),
        "limit": limit,
        "skip": skip,
    }
    rows = wire.every(book.sql(_MATCH), given)
    placed = {} if newest else _places(wire, book, [row[0] for row in rows], _every_leaf(query))
    return Matches(
        total,
        [
            Candidate(
                *(id, seq, time_us, size, title),
                () if newest else tuple(_tally(query, placed[no])[1]),
            )
            for no, id, seq, time_us, size, title in rows
        ],
    )


def _rarities(wire: Wire, book: Book, found: list[Words]) -> list[float]:
    """What each leaf of a query counts for where not all documents can be had: rare ones more."""
    return [log(1 + COUNT_MAX / (count + 1)) for count in _counts(wire, book, found)]


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
        case Or(parts):  # one way: there is no other query
            return f"({' | '.join(map(_expression, parts))})"


Placed = dict[str, list[tuple[int, int]]]  # of words: their places, and the columns


def _places(
    wire: Wire, book: Book, numbers: Sequence[int], found: Sequence[Words]
) -> dict[int, Placed]:
    """Where the words of a query stand in some documents."""
    sql = "SELECT * FROM clew.search_places(%s, %s::bigint[], %s::text[], %s::text[])"
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
        case Or(alternatives):  # one way: as above
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
        case Or(parts):  # one way: there is no other query
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
    sql = book.sql("SELECT clew.search_count(%s, %s, %s)")
    return [int(wire.value(sql, (book.space, _expression(leaf), COUNT_MAX))) for leaf in words]


def _words_with(wire: Wire, book: Book, part: str, limit: int) -> list[str]:
    sql = "SELECT * FROM clew.search_words(%s, %s, %s)"
    return [str(word) for (word,) in wire.every(book.sql(sql), (book.space, part, limit))]
