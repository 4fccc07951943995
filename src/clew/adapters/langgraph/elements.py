"""Values by element: a list is entries that name the one before them, and runs of such entries.

An element's entry has the id of the element before it as `prev` in its meta. So "400 elements, the
last is this one" is a run, `[last, 400]`, and a list that grew by one costs one entry and a run. A
list that was cut, or changed in the middle, is several runs. When there are many, a table of ids
takes their place, and a run in it is `[table, first place, count]`.

A message of the conversation is a message entry. Of what goes out of the middle of the list, or
is replaced there, a context edit tells, which is the entry of the message that came in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec import Struct

from clew.core import drafts
from clew.core.codec import decode, digest, encode
from clew.core.engine import Engine
from clew.core.errors import InvalidInput, NotFound
from clew.core.model import Entry, EntryDraft
from clew.core.tombstones import TEXT
from clew.messages.incoming import message_draft

CHECKPOINT = "langgraph.checkpoint"
ELEMENT, TABLE = "langgraph.element", "langgraph.table"

RUNS_MAX = 32
_CHUNK_MAX = 1024

Json: TypeAlias = Any
Run: TypeAlias = list[Any]


class Item(Struct, frozen=True, gc=False):
    """One element: its JSON, the hash of that, and whether it is a message of the conversation."""

    data: bytes
    hash: str
    message: bool = False


def item_of(value: Json, *, message: bool = False) -> Item:
    data = encode(value, field="checkpoint")
    return Item(data, digest(data), message)


class Stored(Struct, frozen=True):
    """A channel's value as it goes into the journal: as a whole, or by element."""

    value: Json = None
    kind: Literal["list", "dict"] | None = None
    items: Sequence[Item] = ()


class Ref(NamedTuple):
    """Where an element is: its entry, and the entry by which a reader of the thread sees it."""

    id: str
    shown: str | None


class Elements(NamedTuple):
    """A list as it lies in the journal: its elements, where each is, and how that is said.

    `erased`: some say other than their hash, which is of what was there before.
    """

    items: Sequence[Item]
    refs: Sequence[Ref]
    runs: list[Run]
    erased: bool = False

    @property
    def size(self) -> int:
        return sum([len(item.data) for item in self.items])


def element_of(entry: Entry) -> tuple[Item, Ref]:
    """An element from its entry: a message, the message of an edit, or anything else."""
    if entry.tombstone is not None and entry.tombstone.format != ELEMENT:
        item = item_of(_erased(entry), message=True)
        if entry.kind == "context_edit":
            return item, Ref(entry.id, entry.body["target"])
        # By its old hash it is known again when a graph gives it that still has it in its state.
        return Item(item.data, entry.body_hash, True), Ref(entry.id, entry.id)
    if entry.kind == "context_edit":
        body = entry.body
        return item_of(body["message"], message=True), Ref(entry.id, body["target"])
    if entry.format == ELEMENT or entry.tombstone is not None:
        message = entry.meta.get("message") is True
        return Item(entry.data, entry.body_hash, message), Ref(entry.id, None)
    return Item(entry.data, entry.body_hash, True), Ref(entry.id, entry.id)


_TYPES = {"assistant_message": "ai", "system_message": "system", "tool_result": "tool"}


def _erased(entry: Entry) -> dict[str, Json]:
    """What the graph is given in place of a message that was erased, and of the call it answers."""
    type = _TYPES.get(entry.kind, "human")
    found: dict[str, Json] = {"type": type, "content": TEXT, "id": entry.id}
    return {**found, "tool_call_id": entry.id} if type == "tool" else found


class Reader:
    """Entries by id, with what lies around them: a list's elements lie close together."""

    def __init__(self, engine: Engine, thread: str) -> None:
        self._path = engine.path
        self._thread = thread
        self._seen: dict[str, Entry] = {}
        self._used = _CHUNK_MAX  # elements that the last chunk gave

    def entry(self, id: str) -> Entry:
        found = self._seen.get(id)
        return self._path(self._thread, id, limit=1)[0] if found is None else found

    def whole(self, id: str, what: str) -> Entry:
        """An entry that is of no use without its body. NotFound: it was erased."""
        entry = self.entry(id)
        if entry.tombstone is not None:
            raise NotFound(what, id, erased_at=entry.erased_at)
        return entry

    def elements(self, channel: str, runs: Sequence[Run]) -> list[Entry]:
        """The entries of a list. NotFound: it cannot be told any more what was in it."""
        found: list[Entry] = []
        for run in runs:
            if len(run) == 3:
                table, first, count = run
                ids = self.whole(table, "the table of a list").body["ids"][first : first + count]
                back = [self._near(id, count) for id in reversed(ids)]
                found += reversed(back)
            else:
                found += self._chain(channel, *run)
        return found

    def _chain(self, channel: str, last: str, count: int) -> list[Entry]:
        back: list[Entry] = []
        id = last
        while True:
            entry = self._near(id, count - len(back))
            back.append(entry)
            if len(back) == count:
                return back[::-1]
            id = self._before(entry, channel) if entry.tombstone else entry.meta["prev"]

    def _before(self, entry: Entry, channel: str) -> str:
        """The element before one whose meta was erased, where that is certain.

        It is if its checkpoint only put messages behind the list that it found: those that it wrote
        are as many as the list has grown by, and messages never come into the middle of a list
        that loses none. Then each is behind the one written before it, and the first behind
        what was the last.
        """
        unknown = NotFound("what a list had before entry", entry.id, erased_at=entry.erased_at)
        name = entry.id.rpartition(".")[0]
        checkpoint, base, batch = self._written_with(name)
        formats = [one.format if one.tombstone is None else one.tombstone.format for one in batch]
        moved = [
            one.kind == "context_edit"
            or (format == ELEMENT and one.meta.get("channel", channel) == channel)
            for one, format in zip(batch, formats, strict=True)
        ]
        others = (ELEMENT, TABLE)
        messages = [
            one.id for one, format in zip(batch, formats, strict=True) if format not in others
        ]
        before = [] if base is None else _runs(base, channel)
        grown = _length(_runs(checkpoint, channel)) - _length(before)
        if any(moved) or entry.id not in messages or grown != len(messages):
            raise unknown
        place = messages.index(entry.id)
        if place > 0:
            return messages[place - 1]
        if not before:
            raise unknown
        if len(before[-1]) == 2:
            return str(before[-1][0])
        table, first, count = before[-1]
        return str(self.whole(table, "the table of a list").body["ids"][first + count - 1])

    def _written_with(self, name: str) -> tuple[Entry, Entry | None, list[Entry]]:
        """A checkpoint, the one that it was told against, and the entries written for it."""
        checkpoint = self.whole(name, "checkpoint")
        batch: list[Entry] = []
        leaf = checkpoint.parent
        while leaf is not None:
            chunk = self._path(self._thread, leaf, limit=_CHUNK_MAX)
            for one in reversed(chunk):
                if CHECKPOINT in (one.format, one.tombstone and one.tombstone.format):
                    return checkpoint, self.whole(one.id, "checkpoint"), batch[::-1]
                owner, _, number = one.id.rpartition(".")
                if owner == name and number.isdigit():  # and not a write, which has a w
                    batch.append(one)
            leaf = chunk[0].parent
        return checkpoint, None, batch[::-1]

    def _near(self, id: str, left: int) -> Entry:
        """An entry. If it is not at hand, those before it are read along with it."""
        found = self._seen.get(id)
        if found is None:
            # About three entries of other kinds lie between two messages. If they are further
            # apart than that, less is read ahead.
            size = min(4 * left, 8 * self._used, _CHUNK_MAX)
            for entry in self._path(self._thread, id, limit=max(1, size)):
                self._seen[entry.id] = entry
            self._used = 0
            found = self._seen[id]
        self._used += 1
        return found


class Batch:
    """The entries that one checkpoint writes."""

    def __init__(self, name: str, clock: Callable[[], int]) -> None:
        self.drafts: list[EntryDraft] = []
        self._name = name
        self._clock = clock

    def add(self, kind: str, body: Any, *, id: str | None = None, **fields: Any) -> str:
        name = self._next() if id is None else id
        self.drafts.append(drafts.draft(kind, body, id=name, clock=self._clock, **fields))
        return name

    def add_element(self, item: Item, meta: dict[str, Json]) -> tuple[str, str | None]:
        """The entry of an element, and itself if it shows a message."""
        if item.message:
            try:
                draft = message_draft(
                    decode(item.data), "langchain", id=self._next(), meta=meta, clock=self._clock
                )
                self.drafts.append(draft)
                return draft.id, draft.id
            except InvalidInput:
                meta = {**meta, "message": True}  # no reader makes sense of it: it is data here
        name = self.add("custom", item.data, format=ELEMENT, meta=meta)
        return name, None

    def _next(self) -> str:
        return f"{self._name}.{len(self.drafts)}"


class Change:
    """From the elements that a list had to those that it has: what is written, what is kept."""

    def __init__(self, old: Elements, items: Sequence[Item], batch: Batch, channel: str) -> None:
        self._old = old
        self._items = items
        self._batch = batch
        self._channel = channel
        self._refs: list[Ref] = []
        self._runs: list[Run] = []

    def take(self) -> Elements:
        at, put = 0, 0
        for start, first, count in self._kept():
            come = self._items[put:first]
            if not self._fits(self._old.refs[at:start], come):
                break
            self._write(at, start, come, behind=False)
            self._keep(start, start + count)
            at, put = start + count, first + count
        else:
            return self._made()
        # More messages come into the middle than leave it, and an edit replaces one by one: so
        # what follows them is written anew, behind them.
        self._write(at, len(self._old.refs), self._items[put:], behind=True)
        return self._made()

    def _made(self) -> Elements:
        if len(self._runs) > RUNS_MAX:
            ids = [ref.id for ref in self._refs]
            table = self._batch.add("custom", {"ids": ids}, format=TABLE)
            self._runs = [[table, 0, len(ids)]]
        return Elements(self._items, self._refs, self._runs, self._old.erased)

    def _kept(self) -> list[tuple[int, int, int]]:
        """What stays: from where in the old list, to where in the new, how many. Ends with 0."""
        old, new = self._old.items, self._items
        limit = min(len(old), len(new))
        start = 0
        while start < limit and (old[start] is new[start] or old[start].hash == new[start].hash):
            start += 1
        end = 0
        while end < limit - start and old[-1 - end].hash == new[-1 - end].hash:
            end += 1
        before = [item.hash for item in old[start : len(old) - end]]
        after = [item.hash for item in new[start : len(new) - end]]
        kept = [(0, 0, start)] if start else []
        # The blocks between are looked for only where few elements are equal to others: with
        # many it takes the square of their number.
        if before and after and len(set(after)) * 2 > len(after):
            found = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
            kept += [(start + a, start + b, size) for a, b, size in found if size]
        if end:
            kept.append((len(old) - end, len(new) - end, end))
        return [*kept, (len(old), len(new), 0)]

    def _fits(self, gone: Sequence[Ref], come: Sequence[Item]) -> bool:
        """Whether edits can tell what happens between two elements that stay."""
        return sum([item.message for item in come]) <= len([ref for ref in gone if ref.shown])

    def _keep(self, start: int, end: int) -> None:
        if self._old.erased:  # what is kept is what lies there, and not what the caller still has
            at, kept = len(self._refs), self._old.items[start:end]
            self._items = [*self._items[:at], *kept, *self._items[at + len(kept) :]]
        self._refs += self._old.refs[start:end]
        self._runs += _slice(self._old, start, end)

    def _write(self, start: int, end: int, come: Sequence[Item], *, behind: bool) -> None:
        """Entries for the elements that come, edits for the messages that go.

        `behind`: those that come are the last of the list, so that their messages need no edit.
        """
        leaving = [ref.shown for ref in self._old.refs[start:end] if ref.shown is not None]
        messages = 0 if behind else sum([item.message for item in come])
        staying = len(leaving) - messages
        for target in leaving[:staying]:
            self._batch.add("context_edit", {"edit": "remove", "target": target})
        replaced = iter(leaving[staying:])
        for item in come:
            prev = self._refs[-1].id if self._refs else None
            meta: dict[str, Json] = {"channel": self._channel}
            if prev is not None:
                meta["prev"] = prev
            shown = next(replaced, None) if item.message else None
            if shown is not None:
                edit = {"edit": "replace", "target": shown, "message": decode(item.data)}
                id = self._batch.add("context_edit", {**edit, "format": "langchain"}, meta=meta)
            else:
                id, shown = self._batch.add_element(item, meta)
            self._refs.append(Ref(id, shown))
            last = self._runs[-1] if self._runs else None
            if last is not None and len(last) == 2 and last[0] == prev:
                self._runs[-1] = [id, last[1] + 1]
            else:
                self._runs.append([id, 1])


def _slice(of: Elements, start: int, end: int) -> list[Run]:
    """The runs that hold the elements from one place to another."""
    found: list[Run] = []
    at = 0
    for run in of.runs:
        count = run[-1]
        first, last = max(start - at, 0), min(end - at, count)
        if first < last:
            if len(run) == 3:
                found.append([run[0], run[1] + first, last - first])
            else:
                found.append([of.refs[at + last - 1].id, last - first])
        at += count
    return found


def _runs(checkpoint: Entry, channel: str) -> list[Run]:
    recipe = checkpoint.body["values"].get(channel, {})
    return recipe.get("list", [])  # type: ignore[no-any-return]


def _length(runs: Sequence[Run]) -> int:
    return sum(run[-1] for run in runs)


def whole(stored: Stored) -> Json:
    items = [decode(item.data) for item in stored.items]
    return items if stored.kind == "list" else dict(pairs_of(stored))


def pairs_of(stored: Stored) -> list[Json]:
    """The keys and values of a dict, as JSON, but for those that were erased: no key is left."""
    return [pair for item in stored.items if isinstance(pair := decode(item.data), list)]
