"""The replies that were counted already: tables as `clew.derived` keeps them.

Each call reads from the store what is new since the last one, some threads at a time.

    threads   how far each one was read, and what is known of it
    replies   one row for each thread that tells of a reply; `counted` is 1 in one of them
    sums      those rows added up: by thread, quarter of an hour, model, and band of prices
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, cast

import apsw
import msgspec
from msgspec import Struct
from msgspec.msgpack import encode
from msgspec.structs import replace

from clew import derived
from clew.core.engine import Engine
from clew.core.engine import Progress as Told
from clew.core.errors import Corrupt, FormatTooNew, NotFound
from clew.core.model import PAGE_MAX, ThreadHead, ThreadInfo, ThreadQuery, decode_cursor
from clew.core.tombstones import is_erasure
from clew.derived import Known, Tables, step
from clew.messages import replies
from clew.messages.neutral import Usage
from clew.messages.replies import Reply
from clew.usage.prices import bundled

if TYPE_CHECKING:
    from clew.store import Store

QUARTER_US = 900_000_000
_PAGE = 1000
_STEP = 1 << 17  # replies that are written in one step: some ten megabytes
_NAME_MAX = 200  # of a model's name
_LISTED_MIN = 32  # new threads from which on a list of all is cheaper than a look at each
_log = logging.getLogger("clew")

T = TypeVar("T")

# `key` is what `clew.messages.replies` makes: by another hash it is another version, so it is said.
_SCHEMA = """
-- key: blake2b
CREATE TABLE names (no INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE threads (
    no INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, birth TEXT NOT NULL, seq INTEGER NOT NULL,
    hash TEXT, created_us INTEGER NOT NULL, above TEXT, workspace TEXT, agent TEXT,
    progress BLOB NOT NULL
) STRICT;
CREATE TABLE replies (
    thread INTEGER NOT NULL, quarter INTEGER NOT NULL, time_us INTEGER NOT NULL,
    key INTEGER NOT NULL, model INTEGER NOT NULL, provider INTEGER NOT NULL,
    band INTEGER NOT NULL, unreadable INTEGER NOT NULL, input INTEGER NOT NULL,
    output INTEGER NOT NULL, cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL,
    cache_write_1h INTEGER NOT NULL, reasoning INTEGER NOT NULL, counted INTEGER NOT NULL,
    PRIMARY KEY (thread, quarter, time_us, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE sums (
    thread INTEGER NOT NULL, quarter INTEGER NOT NULL, model INTEGER NOT NULL,
    provider INTEGER NOT NULL, band INTEGER NOT NULL, replies INTEGER NOT NULL,
    unreadable INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL,
    cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL, cache_write_1h INTEGER NOT NULL,
    reasoning INTEGER NOT NULL, PRIMARY KEY (thread, quarter, model, provider, band)
) STRICT, WITHOUT ROWID;
INSERT INTO names VALUES (1, '');
"""
_COPIES = "CREATE UNIQUE INDEX copies ON replies (key, thread)"

_WIDTH, _KEY = 14, 3  # values of a row that is put, and which of them is the key
_TOGETHER = 100  # rows that one statement puts: half as dear as a statement for each
_ON_CONFLICT = """
ON CONFLICT (key, thread) DO UPDATE SET
    quarter = excluded.quarter, time_us = excluded.time_us, band = excluded.band,
    model = CASE excluded.model WHEN 1 THEN model ELSE excluded.model END,
    provider = excluded.provider, unreadable = excluded.unreadable, input = excluded.input,
    output = excluded.output, cache_read = excluded.cache_read,
    cache_write = excluded.cache_write, cache_write_1h = excluded.cache_write_1h,
    reasoning = excluded.reasoning
"""

_ADD_UP = """
INSERT INTO sums
SELECT thread, quarter, model, provider, band, count(*), sum(unreadable), sum(input), sum(output),
    sum(cache_read), sum(cache_write), sum(cache_write_1h), sum(reasoning)
FROM replies WHERE {} AND counted GROUP BY thread, quarter, model, provider, band
"""


class News(Struct):
    """What some records of a thread gave. `seen` is what was known of it when they were read."""

    head: ThreadHead
    seen: Known | None
    is_fresh: bool  # read from its beginning
    seq: int
    hash: str | None
    progress: replies.Progress
    found: dict[int, Reply]
    info: ThreadInfo | None = None


Question = Callable[[apsw.Connection, list[str]], T]
"""Asked of the tables; the list has the threads that could not be read to their end."""


def ask(store: Store, question: Question[T], progress: Told | None = None) -> T:
    """Bring the tables up to date with the store, and ask them something."""
    return derived.ask(
        store, _tables(), lambda db: question(db, _catch_up(db, store.engine, progress))
    )


def forget_usage(store: Store, threads: Iterable[str]) -> None:
    """Remove what was counted in threads. Those that are there are counted anew when asked for."""
    ids = list(threads)
    derived.forget(store, _tables(), lambda db: _forget(db, ids))


def _tables() -> Tables:
    # Other bands of prices make other sums, so they are another version of the tables.
    return Tables("usage", f"{_SCHEMA}{_COPIES}; -- {bundled().bands}")


def _catch_up(db: apsw.Connection, engine: Engine, progress: Told | None) -> list[str]:
    """Read what is new. The threads that could not be read to their end."""
    changes = derived.changes(db, engine)
    known, behind = changes.known, changes.behind
    _forget(db, changes.gone)
    infos = _infos(engine, [head.thread for head in behind if head.thread not in known])
    damaged: list[str] = []
    batch: list[News] = []
    size = 0
    is_longer = bool(known) and not changes.gone  # whether it has only grown since, as mostly
    for done, head in enumerate(behind):
        if progress is not None:
            progress(done, len(behind))
        try:
            for news in _read_on(db, engine, head, known.get(head.thread)):
                news.info = infos.get(head.thread)
                is_longer &= not news.is_fresh or head.thread not in known
                batch.append(news)
                size += len(news.found) + 1
                if size > _STEP:
                    _write(db, engine, batch)
                    batch, size = [], 0
        except NotFound:
            continue  # it was purged meanwhile
        except (Corrupt, FormatTooNew) as error:
            _log.warning("usage of thread %r is not complete: %s", head.thread, error)
            damaged.append(head.thread)
    _write(db, engine, batch)
    if is_longer:
        derived.leave_log(db)
    return damaged


def _infos(engine: Engine, ids: list[str]) -> dict[str, ThreadInfo]:
    """What is known of new threads, where there are so many that a list is cheaper than looks."""
    if len(ids) < _LISTED_MIN or not engine.properties.processes:
        return {}  # in a store of this process alone, a look costs next to nothing
    wanted = set(ids)
    found: dict[str, ThreadInfo] = {}
    for deleted in (False, True):
        query = ThreadQuery(archived=None, deleted=deleted, limit=PAGE_MAX)
        while True:
            page = engine.threads(query)
            found |= {info.id: info for info in page.items if info.id in wanted}
            if page.cursor is None:
                break
            query = replace(query, cursor=decode_cursor(page.cursor))
    return found


def _read_on(
    db: apsw.Connection, engine: Engine, head: ThreadHead, seen: Known | None
) -> Iterator[News]:
    """Read a thread from where it was left or, if it is not the same any more, anew."""
    after, progress = 0, replies.Progress()
    if seen is not None and seen.birth == head.birth and 0 < seen.seq < head.seq:
        last, *_ = engine.read(head.thread, after=seen.seq - 1, limit=1)
        kept = db.execute("SELECT progress FROM threads WHERE id = ?", (head.thread,)).get
        if last.hash == seen.hash and kept is not None:
            after, progress = seen.seq, msgspec.msgpack.decode(kept, type=replies.Progress)
    is_fresh, resumed = after == 0, after > 0
    found: dict[int, Reply] = {}
    hash = None if is_fresh or seen is None else seen.hash
    while True:
        page = engine.read(head.thread, after=after, limit=_PAGE)
        if resumed and any(map(is_erasure, page)):
            # What was erased is not counted any more, and only a look at all of it tells how much.
            after, progress, resumed, is_fresh, hash = 0, replies.Progress(), False, True, None
            found = {}
            continue
        for record in page:
            reply = replies.read(record, progress)
            if reply is not None:
                found[reply.key] = reply
        if page:
            after, hash = page[-1].seq, page[-1].hash
        is_end = not page or after >= head.seq
        if is_end or len(found) > _STEP:
            yield News(head, seen, is_fresh, after, hash, progress, found)
            is_fresh, found, seen = False, {}, Known(head.birth, after, hash)
        if is_end:
            return


def _write(db: apsw.Connection, engine: Engine, batch: list[News]) -> None:
    if not batch:
        return
    missing = [news for news in batch if news.is_fresh and news.info is None]
    for news in missing:
        with suppress(NotFound):
            news.info = engine.thread(news.head.thread)
    with step(db):
        writing = _Writing(db)
        for news in batch:
            writing.put(news)
        writing.finish()


def _forget(db: apsw.Connection, ids: list[str]) -> None:
    """Threads that are gone. What a copy elsewhere tells as well counts there from now on."""
    if not ids:
        return
    with step(db):
        writing = _Writing(db)
        for id in ids:
            writing.forget(id)
        writing.finish()


_NOTHING = Usage()
_time_of = attrgetter("time_us")


class _Writing:
    """One step: rows first, then which of several copies counts, then the sums."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        names: Any = db.execute("SELECT name, no FROM names")
        self._names: dict[str | None, int] = {**dict(names), None: 1}
        self._values: list[int] = []  # of the rows to put, one behind the other
        self._lost: set[int] = set()  # replies of which a row was taken away
        self._from: dict[int, int] = {}  # the first quarter of each thread that has changed
        self._is_first = not db.execute("SELECT EXISTS (SELECT 1 FROM replies)").get
        self._has_forgotten = False

    def put(self, news: News) -> None:
        id = news.head.thread
        row = self._db.execute("SELECT no, birth, seq, hash FROM threads WHERE id = ?", (id,)).get
        if (None if row is None else Known(*row[1:])) != news.seen:
            return  # another process has read it meanwhile
        if news.is_fresh:
            if news.info is None:
                return  # it was purged meanwhile
            if row is not None:
                self.forget(id)
            no = self._add_thread(news, news.info)
        else:
            no = row[0]
            self._is_first = False  # it may tell again of what it has told of
            self._note_quarters(no, news.found)
        facts = news.progress.facts
        self._db.execute(
            "UPDATE threads SET seq = ?, hash = ?, workspace = ?, agent = ?, progress = ? "
            "WHERE no = ?",
            (
                *(news.seq, news.hash, facts.get("workspace")),
                *(facts.get("agent") or facts.get("adapter"), encode(news.progress), no),
            ),
        )
        found = sorted(news.found.values(), key=_time_of)
        if found:
            self._make(no, found)
            self._touch(no, found[0].time_us // QUARTER_US)

    def forget(self, id: str) -> None:
        row = self._db.execute("SELECT no FROM threads WHERE id = ?", (id,)).get
        if row is None:
            return
        keys: Any = self._db.execute("SELECT key FROM replies WHERE thread = ?", (row,))
        self._lost.update(key for (key,) in keys)
        for table, column in (("threads", "no"), ("replies", "thread"), ("sums", "thread")):
            self._db.execute(f"DELETE FROM {table} WHERE {column} = ?", (row,))
        self._from.pop(row, None)
        self._has_forgotten = True

    def finish(self) -> None:
        """Write the rows, let one row of each reply count, and add up what has changed."""
        if self._is_first:
            # Sorting an index once is much cheaper than keeping it in order row by row.
            self._db.execute("DROP INDEX copies")
            self._put_rows("")
            self._db.execute(_COPIES)
        else:
            self._put_rows(_ON_CONFLICT)
        for key in self._copied():
            self._choose(key)
        if self._is_first:
            self._db.execute(_ADD_UP.format("1"))
        else:
            for no, quarter in self._from.items():
                since = (no, quarter)
                self._db.execute("DELETE FROM sums WHERE thread = ? AND quarter >= ?", since)
                self._db.execute(_ADD_UP.format("thread = ? AND quarter >= ?"), since)
        if self._has_forgotten:
            self._forget_names()

    def _forget_names(self) -> None:
        """A name that only removed replies had goes with them: it is whatever the body said."""
        used = "SELECT 1 FROM {} WHERE model = names.no OR provider = names.no"
        # Sums first: they have nearly every name, near their beginning, and rows are many.
        self._db.execute(
            f"DELETE FROM names WHERE no > 1 AND NOT EXISTS ({used.format('sums')})"
            f" AND NOT EXISTS ({used.format('replies')})"
        )

    def _put_rows(self, on_conflict: str) -> None:
        row = f"({'?, ' * _WIDTH}1)"
        for start in range(0, len(self._values), _TOGETHER * _WIDTH):
            part = self._values[start : start + _TOGETHER * _WIDTH]
            rows = ", ".join([row] * (len(part) // _WIDTH))
            self._db.execute(f"INSERT INTO replies VALUES {rows} {on_conflict}", part)

    def _add_thread(self, news: News, info: ThreadInfo) -> int:
        above = info.parent
        if above is None and info.origin is not None:
            above = info.origin.thread
        self._db.execute(
            "INSERT INTO threads (id, birth, seq, created_us, above, progress) "
            "VALUES (?, ?, 0, ?, ?, x'')",
            (info.id, news.head.birth, info.created_us, above),
        )
        return self._db.last_insert_rowid()

    def _note_quarters(self, no: int, found: dict[int, Reply]) -> None:
        """A reply that is told anew may have stood in another quarter before."""
        sql = "SELECT quarter FROM replies WHERE key = ? AND thread = ?"
        for key in found:
            quarter = self._db.execute(sql, (key, no)).get
            if quarter is not None:
                self._touch(no, quarter)

    def _touch(self, no: int, quarter: int) -> None:
        self._from[no] = min(quarter, self._from.get(no, quarter))

    def _make(self, no: int, found: Iterable[Reply]) -> None:
        """The rows of replies. Written out, and no object for a row: there may be millions."""
        names, band_of, add = self._names, bundled().band_of, self._values.extend
        for reply in found:
            usage = reply.usage or _NOTHING
            sent, read, written = (
                usage.input_tokens,
                usage.cache_read_tokens,
                usage.cache_write_tokens,
            )
            output, reasoning = usage.output_tokens, usage.reasoning_tokens
            if reasoning > output:
                reasoning = output
            hour = usage.cache_write_1h_tokens
            model, provider, time_us = reply.model, reply.provider, reply.time_us
            add(
                (
                    no,
                    time_us // QUARTER_US,
                    time_us,
                    reply.key,
                    names[model] if model in names else self._name(model),
                    names[provider] if provider in names else self._name(provider),
                    band_of(sent + read + written),
                    1 if reply.usage is None else 0,
                    sent,
                    output - reasoning,
                    read,
                    written,
                    hour if hour < written else written,
                    reasoning,
                )
            )

    def _name(self, text: str | None) -> int:
        name = "" if text is None else text.encode("utf-8", "replace").decode()[:_NAME_MAX]
        if name not in self._names:
            self._db.execute("INSERT INTO names (name) VALUES (?)", (name,))
            self._names[name] = self._db.last_insert_rowid()
        return self._names[name]

    def _copied(self) -> list[int]:
        """The replies that several threads tell of, or that only a copy tells of now."""
        among = "WHERE key IN (SELECT value FROM json_each(?))"
        several = "SELECT key FROM replies {} GROUP BY key HAVING count(*) > 1"
        if self._is_first:
            found = self._db.execute(several.format("")).fetchall()
        else:
            keys = _listed(self._values[_KEY::_WIDTH])
            found = self._db.execute(several.format(among), (keys,)).fetchall()
        lost = f"SELECT DISTINCT key FROM replies {among}"
        found += self._db.execute(lost, (_listed(self._lost),)).fetchall()
        return [key for (key,) in cast(Any, dict.fromkeys(found))]

    def _choose(self, key: int) -> None:
        """The last record that tells of a reply counts; of equal ones that of the oldest thread."""
        sql = """
            SELECT r.thread, r.quarter, r.counted FROM replies r JOIN threads t ON t.no = r.thread
            WHERE r.key = ? ORDER BY r.time_us DESC, t.created_us, t.id
        """
        rows: list[Any] = self._db.execute(sql, (key,)).fetchall()
        for place, (no, quarter, is_counted) in enumerate(rows):
            if is_counted != (place == 0):
                sql = "UPDATE replies SET counted = ? WHERE key = ? AND thread = ?"
                self._db.execute(sql, (int(place == 0), key, no))
                self._touch(no, quarter)


def _listed(keys: Iterable[int]) -> str:
    return msgspec.json.encode(list(keys)).decode()
