"""What else says what some entries say: earlier saves of the same reply, titles, summaries.

An earlier save of a streamed reply is the same reply, and goes with it. A title that was made of
the first words is taken away; the log still has it, as it has every fact. What was made of an entry
in words of its own cannot be known, so it is only named: whoever erases decides about it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from clew.core import drafts
from clew.core.engine import Engine
from clew.core.errors import ClewError, Corrupt, NotFound
from clew.core.facts import read_fact
from clew.core.model import PAGE_MAX, Entry, Fact, Record, ThreadInfo
from clew.core.removal import Repeat
from clew.upkeep.transfer import everything

if TYPE_CHECKING:
    from clew.store import Store

_DAMAGED_MAX = 100  # records in a row
_LETTERS_MIN = 3  # of a title or a label: shorter ones are in every text


def earlier_saves(engine: Engine, entries: Sequence[Entry]) -> list[Entry]:
    """The other entries that a reply was saved in while it was streamed."""
    streams = {(one.thread, _stream(one)) for one in entries if one.kind == "assistant_message"}
    given = {one.id for one in entries}
    found: list[Entry] = []
    for thread in sorted({thread for thread, _ in streams}):
        with suppress(NotFound):  # it was purged, and its saves are on no path
            found += [
                one
                for one in _records(engine, thread)
                if isinstance(one, Entry)
                and one.kind == "assistant_message"
                and one.id not in given
                and (thread, _stream(one)) in streams
            ]
    return found


def _records(engine: Engine, thread: str) -> Iterator[Record | str]:
    """All of a thread's own; of those that are damaged the numbers, and what comes behind is read.

    Behind many damaged ones in a row nothing is looked for: numbers may be all that there is.
    """
    after, limit, damaged = 0, PAGE_MAX, 0
    while damaged < _DAMAGED_MAX:
        try:
            page = engine.read(thread, after=after, limit=limit)
        except Corrupt:
            if limit > 1:
                limit = 1  # up to the one that is damaged
            elif after < engine.thread(thread).seq:
                after, damaged = after + 1, damaged + 1
            else:
                break
            continue
        yield from _numbers(after, damaged)
        if not page:
            return
        yield from page
        after, limit, damaged = page[-1].seq, min(2 * limit, PAGE_MAX), 0
    yield from _numbers(after, damaged, " and all behind it")


def _numbers(last: int, count: int, more: str = "") -> Iterator[str]:
    if count:
        first = last - count + 1
        yield (f"no. {first}" if first == last else f"no. {first} to {last}") + more


def _stream(entry: Entry) -> Any:
    """The id of the reply that an entry is a save of: the last save has it as its own."""
    stream = entry.meta.get("stream")
    return stream if isinstance(stream, str) else entry.id


def family_of(engine: Engine, threads: set[str]) -> list[ThreadInfo]:
    """Threads, and all that were forked from them, at the cost of these alone.

    Forks are found by the id of what they were forked from. So a fork of a fork that was purged is
    not among them, though it may share entries: nothing is left that leads to it.
    """
    found: dict[str, ThreadInfo] = {}
    for id in threads:
        with suppress(NotFound):  # it was purged; there may be forks of it
            found[id] = engine.thread(id)
    todo = list(threads)
    while todo:
        forks = {info.id: info for info in everything(engine, origin=todo.pop())}
        todo += forks.keys() - found.keys() - threads
        found |= forks
    return list(found.values())


def untitled(store: Store, family: Sequence[ThreadInfo], entries: Sequence[Entry]) -> None:
    """Take titles away that are the beginning of what is about to be erased."""
    texts = texts_of(entries)
    for info in family:
        if info.deleted_at is None and info.title is not None:
            title = _flat(info.title.text)
            if len(title) >= _LETTERS_MIN and any(text.startswith(title) for text in texts):
                store.engine.append(info.id, drafts.facts({"title": None}, store.clock()))


def repeats(
    engine: Engine, family: Sequence[ThreadInfo], entries: Sequence[Entry], texts: Sequence[str]
) -> Iterator[Repeat]:
    """What may repeat it. `texts` are those of the entries, when they still had them."""
    ids = {one.id for one in entries}
    hashes = {one.body_hash for one in entries}
    for info in family:
        with suppress(NotFound):  # it was purged meanwhile
            for record in _records(engine, info.id):
                if isinstance(record, str):
                    how = "it is damaged, so that nobody can tell"
                    yield Repeat(thread=info.id, record=record, how=how)
                    continue
                if isinstance(record, Entry):
                    found = _how(engine, info.id, record, ids, hashes)
                else:
                    found = _in_fact(record, texts) if isinstance(record, Fact) else None
                if found is not None:
                    fact = record.key if isinstance(record, Fact) else None
                    yield Repeat(thread=info.id, record=record.id, fact=fact, how=found)


def _how(engine: Engine, thread: str, entry: Entry, ids: set[str], hashes: set[str]) -> str | None:
    if entry.tombstone is not None or entry.id in ids:
        return None
    if entry.body_hash in hashes:
        return "it has the same body"
    if entry.kind == "compaction" and any(_follows(engine, thread, entry.id, id) for id in ids):
        return "a summary of what came before it"
    body = entry.body if entry.kind == "context_edit" else None
    if isinstance(body, dict) and body.get("edit") == "replace" and body.get("target") in ids:
        return "it stands in its place in contexts"
    return None


def _follows(engine: Engine, thread: str, entry: str, before: str) -> bool:
    try:
        return bool(engine.path(thread, entry, after=before, limit=1))
    except ClewError:
        return False


def _in_fact(fact: Fact, texts: Sequence[str]) -> str | None:
    if fact.key != "title" and not fact.key.startswith("label."):
        return None
    try:
        value: Any = read_fact(fact.key, fact.data)
    except ClewError:
        return None
    said = _flat(value["text"]) if isinstance(value, dict) else _flat(value or "")
    if len(said) < _LETTERS_MIN or not any(said in text for text in texts):
        return None
    return "its words are in it, and facts stay in the log"


def texts_of(entries: Sequence[Entry]) -> list[str]:
    """All texts of entries that were not erased before, each in one line."""
    found: list[str] = []
    for entry in entries:
        if entry.tombstone is None:
            with suppress(ClewError):  # what is damaged cannot be compared
                found += [_flat(text) for text in _texts(entry.body)]
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for child in value.values() if isinstance(value, dict) else value:
            yield from _texts(child)


def _flat(text: str) -> str:
    return " ".join(text.split()).removesuffix("…").removesuffix("...").rstrip().casefold()
