"""A search from end to end: catch up, ask the index, rank, and look at what was found."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from clew.core.drafts import check_number, several
from clew.core.engine import Progress
from clew.core.errors import ClewError, Corrupt, InvalidInput
from clew.core.model import Entry, Fact, Record, ThreadInfo, to_time, to_us
from clew.core.names import check_name
from clew.core.text_index import (
    COUNT_MAX,
    And,
    Candidate,
    Document,
    Filter,
    Or,
    Query,
    TextIndex,
    Words,
    leaves,
    memory_text_index,
    open_text_index,
    split,
)
from clew.search import snippet
from clew.search.catch_up import Followed, catch_up, is_behind
from clew.search.documents import CALL, USER, Found, document, mark, plain, read_entry, read_title
from clew.search.query import parse
from clew.search.words import RULES, words

if TYPE_CHECKING:
    from clew.store import Store

WINDOW = 200  # candidates that are ranked by us; further ones come as the engine has them
LIMIT = 20
CONTEXT = 100
_WEIGHTS = (3.0, 2.0, 1.5, 1.0)
_COUNT_MAX = 8  # a word that stands there more often says no more
_DAY_US = 86_400_000_000
_RELAXED_MAX = 12  # words, of a query that was relaxed
_VOCABULARY_MAX = 500
_SCAN = 500
_CURSOR = re.compile("[0-9]{1,9}")

ROLES = ("user", "assistant", "system", "tool")


class Hit(Struct, frozen=True, kw_only=True):
    """Where something was found. `entry` is None for a title, which is a fact of its thread.

    `matches` are places in the snippet, as pairs of where one begins and where it ends.
    """

    thread: str
    entry: str | None
    seq: int
    time: datetime
    kind: str
    role: str | None
    title: str | None
    score: float
    snippet: str
    matches: list[tuple[int, int]]


class SearchPage(Struct, frozen=True, kw_only=True):
    """Some hits, the best first, and how many there are.

    `exact`: `total` is all of them; otherwise there are at least so many. `cursor` continues the
    page; None: there are no more. `relaxed`: nothing has all the words, so these have some.
    `notes` say what else a person should know, such as that the index was made anew.
    """

    items: list[Hit]
    total: int
    exact: bool = True
    cursor: str | None = None
    relaxed: bool = False
    notes: tuple[str, ...] = ()

    @property
    def more(self) -> bool:
        return self.cursor is not None


class Wanted(Struct, frozen=True, kw_only=True):
    """What a search is for: the arguments of `Store.search`, checked."""

    text: str
    filter: Filter
    narrow: tuple[Query, ...]
    substring: bool
    deleted: bool
    limit: int
    start: int
    context: int


class Searcher:
    """Searches one store. Made when it is first asked for; closed with the store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._engine = store.engine
        self._lock = threading.Lock()
        self._index: TextIndex | None = None
        self._told: str | None = None

    def close(self) -> None:
        with self._lock:
            if self._index is not None:
                self._index.close()
            self._index = None

    def search(self, query: str, *, progress: Progress | None = None, **options: Any) -> SearchPage:
        """See `Store.search`. An index that turns out to be damaged is made anew, once."""
        wanted = _wanted(query, **options)
        notes: list[str] = []
        try:
            return self._search(wanted, notes, progress)
        except Corrupt:
            if self._index is None or not self._broken():
                raise
            return self._search(wanted, notes, progress)

    def _broken(self) -> bool:
        """Whether it was the index. One that can only be looked at is given up."""
        with self._lock:
            index = self._index
            if index is None:
                return False
            if self._store.properties.read_only:
                index.close()
                self._index = memory_text_index(RULES)
                return True
            return index.rebuilt is not None and index.rebuilt != self._told

    def _search(self, wanted: Wanted, notes: list[str], progress: Progress | None) -> SearchPage:
        index, followed = self.ready(progress)
        if index.rebuilt is not None and index.rebuilt != self._told:
            notes.append(index.rebuilt)
            self._told = index.rebuilt
        if followed.stopped is not None:
            notes.append(f"what was written last may be missing: {followed.stopped}")
        if followed.unreadable:
            notes.append(f"{followed.unreadable} threads are damaged; run clew verify")
        work = _Search(self._store, index, wanted, notes, progress)
        return work.substring() if wanted.substring else work.words()

    def ready(self, progress: Progress | None = None) -> tuple[TextIndex, Followed]:
        """The index, as far as the store has come by now."""
        with self._lock:
            index = self._index or open_text_index(self._engine, RULES)
            if index is not None and self._store.properties.read_only and self._is_stale(index):
                index.close()
                index = None
            index = index or memory_text_index(RULES)
            self._index = index
        return index, catch_up(self._engine, index, progress)

    def _is_stale(self, index: TextIndex) -> bool:
        """Whether an index that may not be written is not what the store says now."""
        try:
            return not index.fleeting and is_behind(self._engine, index)
        except Corrupt:
            return True

    def rebuild(self, progress: Progress | None = None) -> int:
        """Make the index anew; how many records were read."""
        with self._lock:
            index = self._index or open_text_index(self._engine, RULES)
            if index is not None:
                index.clear()
        return self.ready(progress)[1].records

    def known(self, threads: Sequence[str]) -> list[str]:
        """Those of some threads that the index that there is has words of."""
        with self._lock:
            index = self._index or open_text_index(self._engine, RULES, existing=True)
            if index is None:
                return []
            self._index = index
            try:
                known = index.known()
            except Corrupt:
                return []
            return [id for id in threads if id in known]

    def forget(self, threads: Sequence[str]) -> None:
        """Take threads out of the index that there is, if there is one."""
        with self._lock:
            index = self._index or open_text_index(self._engine, RULES, existing=True)
            if index is not None:
                self._index = index
                with suppress(Corrupt):  # then it was dropped, and the words with it
                    index.remove(threads)


class _Search:
    """One search."""

    def __init__(
        self,
        store: Store,
        index: TextIndex,
        wanted: Wanted,
        notes: list[str],
        progress: Progress | None,
    ) -> None:
        self._engine = store.engine
        self._now_us = store.clock()
        self._index = index
        self._wanted = wanted
        self._notes = notes
        self._progress = progress
        self._infos: dict[str, ThreadInfo | None] = {}

    # --- by words ---

    def words(self) -> SearchPage:
        wanted = self._wanted
        parsed = parse(wanted.text)
        if parsed.cut:
            self._notes.append("the query is very long: its beginning was looked for")
        if parsed.query is None and wanted.text.strip():
            return self._page([], 0, None)  # punctuation, which is in no index
        asked = parsed.query or And(())
        query = _narrowed(asked, wanted.narrow)
        page = self._ranked(asked, query, relaxed=False)
        if not page.items and not wanted.start and page.total == 0:
            loose = self._relaxed(asked)
            if loose is not None:
                return self._ranked(loose, _narrowed(loose, wanted.narrow), relaxed=True)
        return page

    def _relaxed(self, query: Query) -> Query | None:
        """The same words, of which some will do: the rarest, for those say most."""
        found = list(dict.fromkeys(Words((word,)) for leaf in leaves(query) for word in leaf.words))
        if len(found) < 2:
            return None
        unwanted = query.unwanted if isinstance(query, And) else ()
        counts = self._index.counts(found)
        there = sorted((count, n) for n, count in enumerate(counts) if count)
        # What stands nearly everywhere says nothing, unless there is nothing else.
        telling = [pair for pair in there if pair[0] < COUNT_MAX]
        rare = [found[n] for _, n in (telling or there[:2])[:_RELAXED_MAX]]
        if not rare:
            return None
        loose = Or(tuple(rare))
        return And((loose,), unwanted) if unwanted else loose

    def _ranked(self, asked: Query, query: Query, *, relaxed: bool) -> SearchPage:
        wanted = self._wanted
        found = leaves(asked)
        weights = [_rarity(count) for count in self._index.counts(found)]
        looks = snippet.looks(found)
        hits: list[Hit] = []
        place, total = wanted.start, 0
        while True:
            chunk, total = self._chunk(asked, query, place - place % WINDOW, weights)
            for candidate, score in chunk[place % WINDOW :]:
                if len(hits) == wanted.limit:
                    return self._page(hits, total, place, relaxed=relaxed)
                place += 1
                hit = self._hit(candidate, score, asked, looks)
                if hit is not None:
                    hits.append(hit)
            if len(chunk) < WINDOW or place >= total:
                return self._page(hits, total, None, relaxed=relaxed)

    def _chunk(
        self, asked: Query, query: Query, skip: int, weights: Sequence[float]
    ) -> tuple[list[tuple[Candidate, float]], int]:
        """The next candidates of the engine, in our order."""
        newest = not weights
        found = self._index.search(
            query, self._wanted.filter, limit=WINDOW, skip=skip, newest=newest
        )
        scored = [
            (candidate, self._score(asked, candidate, weights)) for candidate in found.candidates
        ]
        scored.sort(key=lambda pair: (-pair[1], -pair[0].time_us, pair[0].thread, -pair[0].seq))
        return scored, found.total

    def _score(self, asked: Query, candidate: Candidate, weights: Sequence[float]) -> float:
        length = 0.4 + 0.6 * min(candidate.size / 1000, 8.0)
        # The marks that narrow a query come behind its own words, and weigh nothing.
        said = [
            weight * often / (often + 1.2 * length)
            for weight, often in zip(weights, map(_often, candidate.counts), strict=False)
        ]
        relevance = _sum(asked, iter(said)) if said else 1.0
        age_days = max(0, self._now_us - candidate.time_us) / _DAY_US
        return round(relevance * (0.85 + 0.15 * math.exp2(-age_days / 30)), 9)

    # --- by characters ---

    def substring(self) -> SearchPage:
        """Every document that may have the text is read, the newest first."""
        wanted = self._wanted
        needle = wanted.text.casefold()
        if not needle:
            return self._page([], 0, None)
        query = _narrowed(self._near(wanted.text), wanted.narrow)
        look = [snippet.literal(wanted.text)]
        hits: list[Hit] = []
        place = wanted.start
        while True:
            found = self._index.search(query, wanted.filter, limit=_SCAN, skip=place, newest=True)
            for candidate in found.candidates:
                if len(hits) == wanted.limit:
                    return self._page(hits, len(hits) + 1, place, exact=False)
                place += 1
                hit = self._hit(candidate, 1.0, None, look, needle)
                if hit is not None:
                    hits.append(hit)
            if self._progress is not None:
                self._progress(min(place, found.total), found.total)
            if len(found.candidates) < _SCAN:
                first = wanted.start == 0
                return self._page(hits, len(hits), None, exact=first)

    def _near(self, text: str) -> Query:
        """What every document must have that has the text, as far as words can tell.

        The first and the last word of it may be parts of longer ones. A document of which not
        everything was read for the index may always have it.
        """
        found = tuple(words(text))
        begins, ends = not words(text[0]), not words(text[-1])
        whole = found[0 if begins else 1 : len(found) if ends else len(found) - 1]
        if len(found) > 1 and not ends:
            near: Query | None = Words((*whole, found[-1]), prefix=True)
        elif whole:
            near = Words(whole)
        else:
            near = self._with_part(found)
        return And(()) if near is None else Or((near, Words((mark("cut"),))))

    def _with_part(self, found: tuple[str, ...]) -> Query | None:
        if len(found) != 1:
            return None
        known = self._index.words_with(found[0], _VOCABULARY_MAX)
        if known is None:
            return None
        return Or(tuple(Words((word,)) for word in known) or (Words(found),))

    # --- hits ---

    def _hit(
        self,
        candidate: Candidate,
        score: float,
        query: Query | None,
        looks: Sequence[snippet.Look],
        needle: str | None = None,
    ) -> Hit | None:
        """What was found, read from the thread itself. None: it is not there any more."""
        info = self._info(candidate.thread)
        if info is None or (info.deleted_at is not None and not self._wanted.deleted):
            return None
        record = self._record(candidate)
        if record is None:
            return None
        found = _read(record, info)
        if found is None:
            return None
        if needle is not None:
            if not any(needle in text.casefold() for _, text in found.pieces):
                return None
        elif query is not None and not matches(query, document(record, found)):
            return None
        text, places = snippet.snippet(found.pieces, looks, self._wanted.context)
        entry = record if isinstance(record, Entry) else None
        return Hit(
            thread=candidate.thread,
            entry=None if entry is None else entry.id,
            seq=record.seq,
            time=to_time(record.time_us),
            kind="title" if entry is None else entry.kind,
            role=found.role,
            title=None if info.title is None else info.title.text,
            score=score,
            snippet=text,
            matches=places,
        )

    def _info(self, thread: str) -> ThreadInfo | None:
        if thread not in self._infos:
            try:
                self._infos[thread] = self._engine.thread(thread)
            except ClewError:
                self._infos[thread] = None
        return self._infos[thread]

    def _record(self, candidate: Candidate) -> Record | None:
        try:
            read = self._engine.read(candidate.thread, after=candidate.seq - 1, limit=1)
        except ClewError:
            return None
        return read[0] if read and read[0].seq == candidate.seq else None

    def _page(
        self,
        hits: list[Hit],
        total: int,
        place: int | None,
        *,
        exact: bool = True,
        relaxed: bool = False,
    ) -> SearchPage:
        return SearchPage(
            items=hits,
            total=total,
            exact=exact,
            cursor=None if place is None else str(place),
            relaxed=relaxed,
            notes=tuple(self._notes),
        )


def _read(record: Record, info: ThreadInfo) -> Found | None:
    """The texts of a record, None if it is nothing that is found: a title must be the last one."""
    if isinstance(record, Entry):
        return read_entry(record)
    title = read_title(record) if isinstance(record, Fact) and record.key == "title" else None
    if title is None or info.title is None or plain(info.title.text) != title:
        return None
    return Found([(USER, title)])


def matches(query: Query, document: Document) -> bool:
    """Whether a document is what a query asks for: what an index decides by its postings."""
    return _matches(query, [f" {' '.join(split(column))} " for column in document.columns])


def _matches(query: Query, columns: list[str]) -> bool:
    match query:
        case Words(phrase, prefix, column):
            text = f" {' '.join(phrase)}" + ("" if prefix else " ")
            return any(text in c for c in (columns if column is None else [columns[column]]))
        case And(wanted, unwanted):
            return all(_matches(part, columns) for part in wanted) and not any(
                _matches(part, columns) for part in unwanted
            )
        case Or(parts):
            return any(_matches(part, columns) for part in parts)


def _often(counts: Sequence[int]) -> float:
    return sum(w * min(count, _COUNT_MAX) for w, count in zip(_WEIGHTS, counts, strict=True))


def _sum(query: Query, said: Iterator[float]) -> float:
    """What the leaves of a query say together; of those that mean the same, the best counts."""
    match query:
        case Words():
            return next(said)
        case And(wanted):
            return sum([_sum(part, said) for part in wanted])
        case Or(parts, same):
            each = [_sum(part, said) for part in parts]
            return max(each) if same else sum(each)


def _narrowed(query: Query, more: tuple[Query, ...]) -> Query:
    return And((query, *more)) if more else query


def _rarity(count: int) -> float:
    return math.log(1 + 20_000 / (count + 1))


# --- what a caller says ---


def _wanted(
    text: str,
    *,
    substring: bool = False,
    thread: str | Iterable[str] | None = None,
    agent: str | None = None,
    workspace: str | None = None,
    model: str | None = None,
    tool: str | None = None,
    role: str | None = None,
    kind: str | None = None,
    path: str | None = None,
    tag: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    deleted: bool = False,
    limit: int = LIMIT,
    cursor: str | None = None,
    context: int = CONTEXT,
) -> Wanted:
    if not isinstance(text, str):
        raise InvalidInput("query", f"must be a text, not {text!r}")
    narrow: list[Query] = []
    for key, value in (("tool", tool), ("role", role)):
        if value is not None:
            narrow.append(Words((mark(key, check_name(value, key)),)))
    if kind is not None:
        narrow.append(
            Words((mark("title") if kind == "title" else mark("kind", check_name(kind, "kind")),))
        )
    if model is not None:
        own, named = Words((mark("model", check_name(model, "model")),)), Words((mark("model"),))
        narrow.append(Or((own, And((), (named,)))))
    if path is not None:
        parts = tuple(words(check_name(path, "path")))
        narrow.append(Words(parts, column=CALL) if parts else Or((Words((mark("never"),)),)))
    given = {"agent": agent, "workspace": workspace, "model": model, "tag": tag}
    marks = [(key, check_name(value, key)) for key, value in given.items() if value is not None]
    threads = None
    if thread is not None:
        threads = (thread,) if isinstance(thread, str) else tuple(several(thread, "thread"))
        threads = tuple(check_name(id, "thread") for id in threads)
    return Wanted(
        text=text,
        filter=Filter(
            marks=tuple(marks),
            without=() if deleted else (("deleted", "yes"),),
            threads=threads,
            since_us=None if since is None else to_us(since, "since"),
            until_us=None if until is None else to_us(until, "until"),
        ),
        narrow=tuple(narrow),
        substring=substring,
        deleted=deleted,
        limit=check_number(limit, "limit", 1),
        start=_start(cursor),
        context=check_number(context, "context", 1),
    )


def _start(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not isinstance(cursor, str) or not _CURSOR.fullmatch(cursor):
        raise InvalidInput("cursor", f"{cursor!r} is not one that a page gave")
    return int(cursor)
