"""What the readers of all agents' files have in common.

A reader is given the values of one file in their order and makes an entry of each: its body is the
agent's own record, its format names the reader that gives the neutral view of it. On the way it
gathers what the records say about the thread as a whole, and in the end it tells where the agent
itself would go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from clew.context.tokens import shorten
from clew.context.window import MESSAGE_KINDS
from clew.core.codec import digest
from clew.core.engine import Engine, pages
from clew.core.errors import InvalidInput, NotFound, TooLarge
from clew.core.facts import is_time
from clew.core.model import Entry, EntryDraft, ThreadInfo, to_us
from clew.core.names import is_name
from clew.interchange.values import Value
from clew.messages import view
from clew.messages.incoming import kind_for
from clew.messages.neutral import text_of

TITLE_CHARACTERS = 80
TEXT_FORMAT = "text"  # of what stood in a file and was no value of it


class Session(Struct, frozen=True, kw_only=True):
    """Whose session a file holds, as its name and its first values tell."""

    agent: str
    thread: str
    parent: str | None = None  # the thread that it works for
    begin: str | None = None  # the first id in the file, where those without one need it
    facts: dict[str, Any] = {}


class Head(Struct, frozen=True):
    """The beginning of a file: what tells whose it is."""

    path: Path
    values: list[Any]

    @property
    def objects(self) -> Iterator[dict[str, Any]]:
        return (value for value in self.values if isinstance(value, dict))

    @property
    def first(self) -> dict[str, Any]:
        return next(self.objects, {})

    @property
    def time_us(self) -> int | None:
        """The first time that is told: what comes before it and tells none is as old."""
        told = (time_us(one.get(key)) for one in self.objects for key in _TIMES if key in one)
        return next((time for time in told if time is not None), None)


_TIMES = ("timestamp", "startTime", "created_at", "ts")


class Source(Struct, frozen=True, kw_only=True):
    """What is brought as one session: a file, several of them, or a part of a database."""

    path: Path
    size: int
    mtime_ns: int
    files: tuple[Path, ...] = ()  # none: it is a part of something, which `head` reads
    head: Callable[[], Head] | None = None

    @classmethod
    def of(cls, path: Path, files: Iterable[Path]) -> Source:
        found = tuple(files)
        stats = [file.stat() for file in found]
        newest = max(stat.st_mtime_ns for stat in stats)
        size = sum(stat.st_size for stat in stats)
        return cls(path=path, size=size, mtime_ns=newest, files=found)


class Stored:
    """What a thread has before a file is read; nothing, if it is not there."""

    def __init__(self, engine: Engine, thread: str) -> None:
        self._engine = engine
        self._thread = thread
        self.info: ThreadInfo | None
        try:
            self.info = engine.thread(thread)
        except NotFound:
            self.info = None

    def find(self, id: str) -> Entry | None:
        if self.info is None or self.info.leaf is None:
            return None
        try:
            return self._engine.path(self._thread, id, limit=1)[-1]
        except (NotFound, InvalidInput, TooLarge):  # what is no id names no entry
            return None

    def last_message(self, id: str) -> str | None:
        """The last message on the way to an entry, not far from it."""
        try:
            path = [] if self.info is None else self._engine.path(self._thread, id, limit=64)
        except NotFound:
            return None
        return next((e.id for e in reversed(path) if e.kind in MESSAGE_KINDS), None)

    def path(self) -> list[Entry]:
        """The whole current path."""
        return [] if self.info is None else self._engine.path(self._thread)

    def entries(self) -> Iterator[Entry]:
        """All entries, in the order of their file."""
        after = 0
        while self.info is not None and after < self.info.seq:
            page = self._engine.read(self._thread, after=after)
            yield from (record for record in page if isinstance(record, Entry))
            after = page[-1].seq if page else self.info.seq

    def ids(self) -> list[str]:
        return [entry.id for entry in self.entries()]

    def tail(self, limit: int) -> list[Entry]:
        """The last records that were stored, in the order of their file."""
        if self.info is None:
            return []
        after = max(0, self.info.seq - limit)
        found = pages(self._engine, self._thread, after=after, limit=limit)
        return [record for page in found for record in page if isinstance(record, Entry)]


class Reader:
    """The values of one file as entries. A format has a class of its own."""

    format: str

    def __init__(self, session: Session, stored: Stored, *, fresh: bool) -> None:
        self.session = session
        self.stored = stored
        self._before = {} if stored.info is None else stored.info.facts
        self.facts: dict[str, Any] = {}  # what the values read so far say about the thread
        self.notes: dict[str, int] = {}
        self.time_us = 0
        self.last: str | None = None  # the entry of the last value
        # Whether there is an entry with an id, in the file so far or in the store.
        self.has: Callable[[str], bool] = lambda id: stored.find(id) is not None
        if not fresh:
            self.resume(stored.tail(64))

    @classmethod
    def files(cls, path: Path) -> Iterable[Path]:
        """All files of the session whose main one is this."""
        return (path,)

    @classmethod
    def pieces(cls, head: Head) -> Iterable[Any] | None:
        """The values of a session that is no file of lines; None: it is one."""
        return None

    def resume(self, tail: list[Entry]) -> None:
        """Go on behind what is stored: the file has grown."""
        if tail:
            self.last = tail[-1].id
            self.time_us = tail[-1].time_us

    def take(self, value: Value) -> EntryDraft:
        """The entry of a value."""
        raise NotImplementedError

    def awaits(self, value: Any) -> str | None:
        """The id of the record that a value hangs on."""
        return None

    def spelled(self, id: str) -> bytes:
        """How a line spells that it is the record with an id."""
        raise NotImplementedError

    def leaf(self) -> str | UnsetType | None:
        """Where the agent would go on; UNSET: at the last entry of the file."""
        return UNSET

    # --- for readers ---

    def draft(
        self,
        value: Value,
        kind: str,
        *,
        id: str | None = None,
        parent: str | UnsetType | None = UNSET,
        time: Any = None,
        turn: str | None = None,
        meta: bytes | None = None,
        format: str | None = None,
    ) -> EntryDraft:
        """An entry; by default it goes on from the last one, and its id follows from that.

        So a file without ids of its own has the same ones whenever it is read, and where it was
        rewritten it goes on as a branch.
        """
        found = time_us(time)
        if found is not None:
            self.time_us = found
        if id is None or not is_name(id):
            id = digest(f"{self.last or ''}\n".encode() + value.data)[3:35]
        made = EntryDraft(
            id=id,
            kind=kind,
            data=value.data,
            time_us=self.time_us,
            parent=self.last if parent is UNSET else parent,
            turn=turn if turn is not None and is_name(turn) else None,
            format=TEXT_FORMAT if value.text else format or self.format,
            meta_data=meta,
        )
        self.last = id
        return made

    def note(self, name: str) -> None:
        self.notes[name] = self.notes.get(name, 0) + 1

    def kind(self, record: Any, otherwise: str = "custom") -> str:
        """The kind of the message that a record holds, if it holds one that can be read."""
        try:
            return kind_for(record, self.format)
        except InvalidInput:
            return otherwise

    def title(self, text: Any, source: str) -> None:
        """A title, unless there is a better one."""
        if not isinstance(text, str) or not text.strip():
            return
        known = self._known("title")
        rank = -1 if known is None else _RANKS.get(known.get("source", ""), 9)
        if rank < _RANKS[source] or rank == _RANKS[source] > 0:
            if source != "host":
                text = shorten(text.strip().splitlines()[0].strip(), TITLE_CHARACTERS)
            self.facts["title"] = {"text": text, "status": "ready", "source": source}

    def prompt(self, record: Any) -> None:
        """What the user has asked; the first time it stands in for a title."""
        if self._known("title") is None:
            texts = [text_of(message) for message in view(self.format, record)]
            self.title(" ".join(texts), "prompt")

    def workspace(self, folder: Any) -> None:
        """The folder that the session is about: the first one that it names."""
        if self._known("workspace") is None and is_name(folder):
            self.facts["workspace"] = folder

    def fact(self, key: str, value: Any) -> None:
        """A fact that is a name, such as a branch or a model; others say nothing."""
        if value and value != self.facts.get(key) and is_name(value):
            self.facts[key] = value

    def _known(self, key: str) -> Any:
        told = self.facts if key in self.facts else self.session.facts
        return told[key] if key in told else self._before.get(key)


class TreeReader(Reader):
    """Records that name themselves and the one that they hang on. The last one is the end."""

    id_key: str
    parent_key: str
    time_key = "timestamp"

    def __init__(self, session: Session, stored: Stored, *, fresh: bool) -> None:
        self.end: str | None = None
        super().__init__(session, stored, fresh=fresh)

    def resume(self, tail: list[Entry]) -> None:
        super().resume(tail)
        self.end = None if self.stored.info is None else self.stored.info.leaf

    def awaits(self, value: Any) -> str | None:
        parent = value.get(self.parent_key) if isinstance(value, dict) else None
        if not isinstance(parent, str) or parent == value.get(self.id_key):
            return None
        return parent

    def spelled(self, id: str) -> bytes:
        return f'"{self.id_key}":"{id}"'.encode("utf-8", "surrogatepass")

    def take(self, value: Value) -> EntryDraft:
        record = value.value
        if value.text or not isinstance(record, dict):
            return self.draft(value, "custom")
        self.tell(record)
        parent: str | UnsetType | None = UNSET
        if self.id_key in record and self.parent_key in record:
            named = record[self.parent_key]
            parent = named if is_name(named) else None
        made = self.draft(
            value,
            self.kind_of(record),
            id=record.get(self.id_key),
            parent=parent,
            time=record.get(self.time_key),
        )
        self.end = made.id
        return made

    def kind_of(self, record: dict[str, Any]) -> str:
        """The kind of entry that a record becomes."""
        return self.kind(record)

    def tell(self, record: dict[str, Any]) -> None:
        """Note what a record says about the whole session."""

    def leaf(self) -> str | UnsetType | None:
        return UNSET if self.end is None or self.end == self.last else self.end


# Who made a title: the first prompt stands in for one, until the model or the user says one.
_RANKS = {"prompt": 0, "model": 1, "host": 2}


def time_us(value: Any) -> int | None:
    """A time as agents write it: ISO 8601, or a number of seconds or milliseconds."""
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            return to_us(time if time.tzinfo is not None else time.replace(tzinfo=UTC))
        if type(value) in (int, float) and 0 < value < 1e17:
            # Seconds have ten digits in our time, milliseconds thirteen, microseconds sixteen.
            found = round(value * (1_000_000 if value < 1e11 else 1000 if value < 1e14 else 1))
        else:
            return None
    except (ValueError, OverflowError, InvalidInput):
        return None
    return found if is_time(found) else None
