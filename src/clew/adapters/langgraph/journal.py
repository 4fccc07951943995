"""How the checkpoints of one LangGraph thread, in one of its namespaces, lie in a Clew thread.

Everything is an entry. A checkpoint is one of kind `custom`: its frame (versions, metadata) and,
for each channel, where the value is: here, at an earlier checkpoint, or in elements that were
written once, by the checkpoint that first had them (see `elements`).

A checkpoint whose parent is not the last one begins a branch of the tree at its parent. So the
path of the thread is the history of the checkpoint that was written last, and a context made of
it is that checkpoint's conversation.

The writes of a checkpoint are found by their ids, which count: `<checkpoint>.w0`, `.w1`, and so
on without a gap. LangGraph may write them before their checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from heapq import merge
from itertools import chain, islice
from typing import Any, NamedTuple

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from clew.adapters._ownership import Owner
from clew.adapters.langgraph.elements import (
    CHECKPOINT,
    Batch,
    Change,
    Elements,
    Json,
    Reader,
    Run,
    Stored,
    element_of,
    whole,
)
from clew.adapters.langgraph.memory import Memory
from clew.adapters.langgraph.names import (
    FACT,
    again,
    entry_name,
    facts_of,
    own_name,
    thread_name,
)
from clew.context.logs import erasures
from clew.core import drafts
from clew.core.codec import encode
from clew.core.engine import pages
from clew.core.errors import AlreadyExists, Conflict, NotFound
from clew.core.model import Draft, Entry, EntryDraft, ThreadInfo, to_time
from clew.store import Store

WRITES = "langgraph.writes"

_INLINE_BYTES = 512  # a list or dict below this is stored with its checkpoint
_AGAIN_BYTES = 128  # a value below this is repeated rather than referred to
_CHUNK = 8
_CHUNK_MAX = 1024


class Write(NamedTuple):
    """One pending write; the order is that of LangGraph's `writes_sort_key`."""

    path: str
    task: str
    place: int
    channel: str
    value: Json


class Found(Struct, frozen=True):
    """A checkpoint that was found."""

    entry: Entry
    body: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.body["id"])

    @property
    def parent(self) -> str | None:
        return self.body["parent"]  # type: ignore[no-any-return]

    @property
    def run(self) -> str | None:
        run = self.body["metadata"].get("run_id")
        return run if isinstance(run, str) and run else None

    @property
    def versions(self) -> dict[str, Any]:
        return self.body["checkpoint"]["channel_versions"]  # type: ignore[no-any-return]


class Head(Struct, frozen=True):
    """Where the thread stands, and the last checkpoint on the way there."""

    birth: str  # tells it from a thread that had this name before
    leaf: str | None
    checkpoint: Found | None
    foreign: bool  # the thread holds entries that were written before any of this adapter's


class _Place(Struct, frozen=True):
    """Where a checkpoint goes: what it hangs on, and the checkpoint that it is told against.

    `exact`: that one is its parent, so that equal versions of a channel mean equal values.
    """

    head: Head
    parent: str | UnsetType | None = UNSET
    base: Found | None = None
    exact: bool = False


class Journal:
    """The checkpoints and writes of one namespace of a LangGraph thread."""

    def __init__(
        self, store: Store, owner: Owner, memory: Memory, thread_id: str, namespace: str
    ) -> None:
        self.thread_id = thread_id
        self.namespace = namespace
        self.name = thread_name(thread_id, namespace)
        self.store = store
        self.engine = store.engine
        self.owner = owner
        self.memory = memory
        self.is_line = False  # whatever its parent is, a checkpoint goes behind the last one

    # --- reading ----------------------------------------------------------------------------

    def info(self) -> ThreadInfo | None:
        """The thread, unless there is none, or it is deleted."""
        try:
            info = self.engine.thread(self.name)
        except NotFound:
            if not self.recover():
                return None
            info = self.engine.thread(self.name)
        known = self.memory.heads.get(self.name)
        if known is not None and known.birth != _birth(info):
            self.memory.forget(self.name)  # it is another thread of this name
        self.memory.forget_erased(self.name, erasures(self.engine, info))
        return None if info.deleted_at is not None else info

    def find(self, checkpoint_id: str | None) -> Found | None:
        """A checkpoint; without an id the one whose id is the greatest."""
        info = self.info()
        if info is None:
            return None
        if checkpoint_id is not None:
            return self._by_id(checkpoint_id)
        head = self._look(info).checkpoint
        newest = None if head is None else head.body.get("newest")
        if newest is None:
            return head
        return self._by_id(newest) or next(self.newest_first(), None)  # it may have been erased

    def refuse_erased(self, checkpoint_id: str) -> None:
        """NotFound if there was such a checkpoint, and it was erased: to begin anew would be worse.

        Without an id, the last one that is there is the one to go on from.
        """
        entry = self._version(checkpoint_id)
        if entry is not None and entry.tombstone is not None:
            raise NotFound("checkpoint", checkpoint_id, erased_at=entry.erased_at)

    def _by_id(self, checkpoint_id: str) -> Found | None:
        return _found(self._version(checkpoint_id))

    def _version(self, checkpoint_id: str) -> Entry | None:
        """The entry of a checkpoint, as it was put last."""
        name = entry_name(checkpoint_id)
        found: Entry | None = None
        while (entry := self._entry(name if found is None else again(found.id))) is not None:
            found = entry  # a checkpoint that was put again stands under the next number
        return found

    def _entry(self, id: str) -> Entry | None:
        try:
            return self.engine.path(self.name, id, limit=1)[0]
        except NotFound:
            return None

    def _look(self, info: ThreadInfo | None = None) -> Head:
        """Read where the thread stands; what is known by heart of another thread is forgotten."""
        info = info or self.engine.thread(self.name)
        known = self.memory.heads.get(self.name)
        if known is not None and known.birth != _birth(info):
            self.memory.forget(self.name)
        elif known is not None and known.leaf == info.leaf:
            return known
        checkpoint, leaf, size = None, info.leaf, _CHUNK
        while leaf is not None and checkpoint is None:
            chunk = self.engine.path(self.name, leaf, limit=size)
            for entry in reversed(chunk):
                if entry.format == CHECKPOINT:
                    checkpoint = _found(entry)
                    break
            leaf, size = chunk[0].parent, min(size * 4, _CHUNK_MAX)
        foreign = FACT not in info.fact_data and info.leaf is not None
        head = Head(_birth(info), info.leaf, checkpoint, foreign)
        self.memory.heads[self.name] = head
        return head

    def newest_first(self) -> Iterator[Found]:
        """Every checkpoint, by id from the greatest on."""
        if self.info() is None:
            return
        head = self._look().checkpoint
        scanned = self._scan()
        if head is not None and head.body.get("unordered"):
            scanned = iter(sorted(scanned, key=_order, reverse=True))
        seen: set[str] = set()
        for found in scanned:
            if found.id not in seen:
                seen.add(found.id)
                yield found

    def _scan(self) -> Iterator[Found]:
        """Every checkpoint, the last written first.

        A copy has the branches that its source had left as entries of its own, which are older
        than some of those that it shares: so the two are merged by what they say.
        """
        return merge(self._own(), self._inherited(), key=_order, reverse=True)

    def _own(self) -> Iterator[Found]:
        last = self.engine.thread(self.name).seq
        while last > 0:
            first = max(0, last - _CHUNK_MAX)
            feed = chain.from_iterable(pages(self.engine, self.name, after=first, limit=_CHUNK_MAX))
            for record in reversed(list(islice(feed, last - first))):
                if isinstance(record, Entry) and record.format == CHECKPOINT:
                    yield Found(record, record.body)
            last = first

    def _inherited(self) -> Iterator[Found]:
        origin = self.engine.thread(self.name).origin
        leaf = None if origin is None else origin.entry
        while leaf is not None:
            chunk = self.engine.path(self.name, leaf, limit=_CHUNK_MAX)
            for entry in reversed(chunk):
                if entry.format == CHECKPOINT:
                    yield Found(entry, entry.body)
            leaf = chunk[0].parent

    def pending(self, found: Found) -> list[Write]:
        """The writes of a checkpoint, in order. The first of a task and place counts, unless it
        tells of the task itself (an error, an interrupt): then it is the last."""
        name = entry_name(found.id)
        kept: dict[tuple[str, int], Write] = {}
        number = 0
        while (entry := self._entry(f"{name}.w{number}")) is not None:
            body = entry.body
            # What was erased is as if the task had not written it yet.
            for index, channel, value in [] if entry.tombstone else body["writes"]:
                if index < 0 or (body["task"], index) not in kept:
                    write = Write(body["path"], body["task"], index, channel, value)
                    kept[(body["task"], index)] = write
            number += 1
        self.memory.slots[(self.name, self._birth(), name)] = number
        return sorted(kept.values(), key=lambda write: write[:3])

    def load(self, found: Found, channels: Iterable[str] | None = None) -> dict[str, Stored]:
        """The values of a checkpoint's channels, all of them or some."""
        recipes = found.body["values"]
        wanted = recipes if channels is None else [name for name in channels if name in recipes]
        reader = Reader(self.engine, self.name)
        return {name: self._load(found, name, recipes[name], reader) for name in wanted}

    def _load(self, found: Found, channel: str, recipe: Json, reader: Reader) -> Stored:
        if "at" in recipe:
            what = f"the value of channel {channel!r}, with checkpoint"
            recipe = reader.whole(recipe["at"], what).body["values"][channel]
        if "in" in recipe:
            return Stored(recipe["in"])
        kind: Any = "list" if "list" in recipe else "dict"
        return Stored(kind=kind, items=self._elements(found, channel, recipe[kind], reader).items)

    def _elements(self, found: Found, channel: str, runs: list[Run], reader: Reader) -> Elements:
        """A list's elements, from memory or from the journal."""
        birth = self._birth()
        known = self.memory.lists(self.name, birth, found.entry.id).get(channel)
        if known is None:
            entries = reader.elements(channel, runs)
            both = [element_of(entry) for entry in entries]
            erased = any(entry.tombstone is not None for entry in entries)
            known = Elements([item for item, _ in both], [ref for _, ref in both], runs, erased)
            self.memory.remember(self.name, birth, found.entry.id, {channel: known})
        return known

    def _birth(self) -> str:
        return (self.memory.heads.get(self.name) or self._look()).birth

    # --- writing ----------------------------------------------------------------------------

    def put(
        self,
        checkpoint_id: str,
        parent: str | None,
        frame: dict[str, Json],
        metadata: dict[str, Json],
        channels: Iterable[str],
        encode_channel: Callable[[str], Stored],
        changed: Mapping[str, Any],
    ) -> None:
        """Store a checkpoint. `encode_channel` is asked for values that its parent has not."""
        with self.memory.lock(self.name):
            name = entry_name(checkpoint_id)
            while True:
                place = self._place(parent)
                batch = Batch(name, self.store.clock)
                values: dict[str, Json] = {}
                lists: dict[str, Elements] = {}
                try:
                    for channel in channels:
                        recipe = self._recipe_again(place, channel, frame, changed, lists)
                        if recipe is None:
                            stored = encode_channel(channel)
                            recipe = self._recipe(place, channel, stored, batch, lists)
                        values[channel] = recipe
                    for channel in self._lists_gone(place, values):
                        Change(self._before(place, channel, "list"), [], batch, channel).take()
                except (NotFound, KeyError):
                    if self._is_still(place.head):
                        raise
                    self.memory.forget_head(self.name)  # what was read is of the thread before
                    continue
                body = {
                    "id": checkpoint_id,
                    "parent": parent,
                    "checkpoint": frame,
                    "metadata": metadata,
                    "values": values,
                    **_disorder(checkpoint_id, place.head.checkpoint),
                }
                label = f"checkpoint of step {metadata.get('step')}, {metadata.get('source')}"
                batch.add("custom", body, format=CHECKPOINT, id=name, meta={"label": label})
                try:
                    entry, is_new = self._append(batch.drafts, place)
                except Conflict as conflict:
                    taken = conflict.fields.get("actual")
                    if not isinstance(taken, Entry):
                        self.memory.forget_head(self.name)  # another was first, or cut it down
                        continue
                    is_new = False
                # Where it was put twice, the first time is not the one that counts.
                if not is_new or (place.parent is not UNSET and self._entry(again(name))):
                    latest = self._version(checkpoint_id)
                    if latest is not None and _says(latest.body) == _says(body):
                        return  # the same put once more
                    name = again(name if latest is None else latest.id)
                    continue
                break
            self.memory.remember(self.name, place.head.birth, entry.id, lists)
            head = Head(place.head.birth, entry.id, Found(entry, body), False)
            self.memory.heads[self.name] = head

    def _place(self, parent: str | None) -> _Place:
        head = self.memory.heads.get(self.name) or self._opened()
        newest = head.checkpoint
        if newest is not None and newest.id == parent:
            return _Place(head, base=newest, exact=True)
        if (newest is None and not head.foreign) or self.is_line:
            return _Place(head, base=newest)
        if parent is None:
            return _Place(head, parent=None)
        found = self._by_id(parent)
        if found is not None:
            return _Place(head, parent=found.entry.id, base=found, exact=True)
        return _Place(head, base=newest)

    def _opened(self) -> Head:
        """Where the thread stands; it is made if there is none."""
        try:
            return self._look()
        except NotFound:
            if not self.recover():
                self.create()
            return self._look()

    def create(self) -> None:
        parent = None
        if self.namespace:
            parent = thread_name(self.thread_id, "")
            self.store.get_or_create(parent, facts=facts_of(self.thread_id, ""))
        self.store.get_or_create(
            self.name, parent=parent, facts=facts_of(self.thread_id, self.namespace)
        )

    def _append(self, batch: Sequence[EntryDraft], place: _Place) -> tuple[Entry, bool]:
        """The entry of a checkpoint, and whether it is new, as far as its place tells."""
        first = batch[0] if place.parent is UNSET else replace(batch[0], parent=place.parent)
        given: list[Draft] = [first, *batch[1:]]
        if place.head.foreign:
            given += drafts.facts(facts_of(self.thread_id, self.namespace), self.store.clock())
        try:
            written = self.engine.append(
                self.name, given, expect=place.head.leaf, fence=self.owner.fence(self.name)
            )
        except NotFound as error:
            if error.deleted_at is not None:
                raise
            self.memory.forget(self.name)  # it was purged, and may be made again
            raise Conflict("the thread is gone", field="leaf", expected=None, actual=None) from None
        first_written, entry = written[0], written[len(batch) - 1]
        assert isinstance(first_written, Entry)
        assert isinstance(entry, Entry)
        parent = place.head.leaf if place.parent is UNSET else place.parent
        return entry, first_written.parent == parent

    def write(self, checkpoint_id: str, task: str, path: str, writes: Sequence[list[Json]]) -> None:
        """Store writes of a task for a checkpoint, which need not be there yet."""
        with self.memory.lock(self.name):
            name = entry_name(checkpoint_id)
            head = self.memory.heads.get(self.name) or self._opened()
            body = {"checkpoint": checkpoint_id, "task": task, "path": path, "writes": writes}
            label = f"writes to {', '.join([str(channel) for _, channel, _ in writes])[:200]}"
            # One after the other, so that the numbers have no gap whatever fails.
            number = self.memory.slots.get((self.name, head.birth, name)) or 0
            while True:
                draft = drafts.draft(
                    "custom",
                    body,
                    id=f"{name}.w{number}",
                    format=WRITES,
                    meta={"label": label},
                    clock=self.store.clock,
                )
                try:
                    fence = self.owner.fence(self.name)
                    entry = self.engine.append(self.name, [draft], fence=fence)[0]
                    assert isinstance(entry, Entry)
                    if entry.parent == head.leaf or number == 0 or self._is_still(head):
                        break
                    # It was written anew meanwhile, and has fewer writes: no number is left out.
                    self.memory.forget(self.name)
                    head, number = self._opened(), 0
                except Conflict:
                    number += 1
                except NotFound as error:
                    if error.deleted_at is not None:
                        raise
                    self.memory.forget(self.name)
                    number = 0
                    head = self._opened()
            self.memory.slots[(self.name, head.birth, name)] = number + 1
            if entry.parent == head.leaf:
                self.memory.heads[self.name] = replace(head, leaf=entry.id)
            else:
                self.memory.forget_head(self.name)

    def _is_still(self, head: Head) -> bool:
        """Whether the thread is the one that is known by heart."""
        try:
            return _birth(self.engine.thread(self.name)) == head.birth
        except NotFound:
            return False

    # --- the values of a checkpoint ---------------------------------------------------------

    def _recipe_again(
        self,
        place: _Place,
        channel: str,
        frame: dict[str, Json],
        changed: Mapping[str, Any],
        lists: dict[str, Elements],
    ) -> Json:
        """Where the value is, if it is the parent's; None if that is not certain."""
        base = place.base
        if base is None or not place.exact or channel in changed:
            return None
        recipe = base.body["values"].get(channel)
        version = frame["channel_versions"].get(channel)
        if recipe is None or version is None or base.versions.get(channel) != version:
            return None
        known = self.memory.lists(self.name, place.head.birth, base.entry.id)
        if channel in known:
            lists[channel] = known[channel]
        if "in" in recipe and len(encode(recipe["in"])) > _AGAIN_BYTES:
            return {"at": base.entry.id}
        return recipe

    def _recipe(
        self,
        place: _Place,
        channel: str,
        stored: Stored,
        batch: Batch,
        lists: dict[str, Elements],
    ) -> Json:
        if stored.kind is None:
            return {"in": stored.value}
        if not any(item.message for item in stored.items) and (
            sum(len(item.data) for item in stored.items) < _INLINE_BYTES
        ):
            return {"in": whole(stored)}
        made = Change(
            self._before(place, channel, stored.kind), stored.items, batch, channel
        ).take()
        lists[channel] = made
        return {stored.kind: made.runs}

    def _lists_gone(self, place: _Place, values: Mapping[str, Json]) -> list[str]:
        """The channels that were lists by element and are not any more: their messages go."""
        before = {} if place.base is None else place.base.body["values"]
        return [
            name for name in before if "list" in before[name] and "list" not in values.get(name, ())
        ]

    def _before(self, place: _Place, channel: str, kind: str) -> Elements:
        """The elements that a channel had in the checkpoint before."""
        recipe = None if place.base is None else place.base.body["values"].get(channel)
        if place.base is None or recipe is None or kind not in recipe:
            return Elements([], [], [])
        return self._elements(place.base, channel, recipe[kind], Reader(self.engine, self.name))

    # --- the thread as a whole --------------------------------------------------------------

    def purge(self) -> None:
        """Remove the thread for good. LeaseHeld if leases are asked for and another has it."""
        with self.memory.lock(self.name):
            if self.info() is not None:
                self.owner.fence(self.name)
            for name in (self.rewritten, self.name):
                with suppress(NotFound):
                    self.store.purge(name)
            self.owner.forget(self.name)
            self.memory.forget(self.name)

    @property
    def rewritten(self) -> str:
        """The thread that is about to take this one's place."""
        return own_name("rewritten", self.name)

    def recover(self) -> bool:
        """Let the rewritten thread take this one's place, if there is one that is complete."""
        found = self.store.find(self.rewritten)
        told = None if found is None else found.facts.get("rewritten")
        if found is None or told is None:
            return False
        try:
            self.store.fork(
                found.id,
                id=self.name,
                parent=told["parent"],
                facts=told["facts"],
                time=to_time(told["created_us"]),
            )
        except AlreadyExists:
            pass  # another process was first
        with suppress(NotFound):  # another process was first here, too
            self.store.purge(found.id)  # the fork keeps what it shares with it
        return True


def _order(found: Found) -> tuple[str, int]:
    """By the id and, of what was put again, by its version."""
    return found.id, int(found.entry.id.partition("~")[2] or 0)


def _found(entry: Entry | None) -> Found | None:
    return None if entry is None or entry.format != CHECKPOINT else Found(entry, entry.body)


def _says(body: dict[str, Json]) -> dict[str, Json]:
    """A checkpoint's body without what is said of others in it."""
    return {key: value for key, value in body.items() if key not in ("newest", "unordered")}


def _disorder(checkpoint_id: str, last: Found | None) -> dict[str, Json]:
    """What a checkpoint says if its id is not the greatest so far: which one is.

    Ids grow with time, so a list may end early, and the last checkpoint is the newest. Where that
    does not hold, every later checkpoint says so.
    """
    if last is None:
        return {}
    newest = last.body.get("newest", last.id)
    if checkpoint_id >= newest:
        return {"unordered": True} if last.body.get("unordered") else {}
    return {"newest": newest, "unordered": True}


def _birth(info: ThreadInfo) -> str:
    origin = info.origin
    return f"{info.created_us}:{'' if origin is None else origin.hash}"
