"""What is done to a journal as a whole: copied, cut down to some checkpoints, found by run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain

from clew.adapters._ownership import Owner
from clew.adapters.langgraph.journal import Found, Journal
from clew.adapters.langgraph.memory import Memory, Recent
from clew.adapters.langgraph.names import OWN_THREADS, facts_of, thread_name
from clew.core import drafts
from clew.core.codec import digest
from clew.core.errors import Conflict, NotFound
from clew.core.model import Draft, Entry, Segment, ThreadInfo
from clew.store import Store
from clew.upkeep.transfer import to_draft

REWRITTEN = "langgraph.rewritten"


def copy(journal: Journal, thread_id: str) -> None:
    """The same journal for another thread: a fork, so that nothing is copied.

    Branches that were left are not on the path that a fork shares; their entries are written
    to it once more.
    """
    store, source = journal.store, journal.name
    info = store.engine.thread(source)
    target = thread_name(thread_id, journal.namespace)
    parent = thread_name(thread_id, "") if journal.namespace else None
    facts = facts_of(thread_id, journal.namespace)
    store.fork(source, id=target, parent=parent, facts=facts)
    if not _is_line(store.engine.segments(source), info):
        on_path = {entry.id for entry in store.engine.path(source, info.leaf)}
        # Of a copy, too: what it shares with its own source may be a branch that it has left.
        shared = [] if info.origin is None else store.engine.path(source, info.origin.entry)
        rest: list[Draft] = [
            to_draft(record)
            for record in chain(shared, store.get(source).read())
            if isinstance(record, Entry) and record.id not in on_path
        ]
        store.engine.append(target, [*rest, drafts.move(info.leaf, store.clock())])


def keep(journal: Journal, runs: Runs, wanted: Callable[[Found], bool]) -> None:
    """Remove for good every checkpoint that is not wanted, with its writes.

    What a wanted one is told from stays: elements, and ancestors that a DeltaChannel needs.
    The thread is written anew without the rest, and takes the place of the old one; writers
    of other processes are kept out meanwhile (LeaseHeld).
    """
    with journal.memory.lock(journal.name):
        if journal.info() is None:
            return
        guard = journal.owner if journal.owner.is_asked else Owner(journal.store, "lease")
        guard.fence(journal.name)
        try:
            found = {one.id: one for one in journal.newest_first()}
            kept = {id for id, one in found.items() if wanted(one)}
            for id in list(kept):
                kept |= _needed(found, id)
            if not kept:
                journal.purge()
                guard.forget(journal.name)
            elif len(kept) < len(found):
                # The new thread is no copy of anything: its runs are found by its own name.
                for run in {found[id].run for id in kept} - {None}:
                    runs.note(str(run), journal.name)
                _rewrite(journal, guard, [found[id] for id in reversed(found) if id in kept])
        finally:
            if guard is not journal.owner:
                guard.release(journal.name)


def _rewrite(journal: Journal, guard: Owner, kept: Sequence[Found]) -> None:
    info = journal.engine.thread(journal.name)
    new = Journal(journal.store, Owner(journal.store, None), Memory(), "", "")
    new.name, new.is_line = journal.rewritten, True
    with suppress(NotFound):
        journal.store.purge(new.name)  # what an attempt left that was interrupted
    journal.store.create(new.name, facts={"archived": True, "adapter": "langgraph"})
    for one in kept:
        values = journal.load(one)
        frame, metadata = one.body["checkpoint"], one.body["metadata"]
        new.put(one.id, one.parent, frame, metadata, values, values.__getitem__, {})
        for write in journal.pending(one):
            told = [write.place, write.channel, write.value]
            new.write(one.id, write.task, write.path, [told])
    # A writer that knows the old thread by heart must not find the leaf that it expects: what it
    # would refer to is gone.
    meta = {"label": "older checkpoints were removed"}
    journal.store.get(new.name).append("custom", {}, format=REWRITTEN, meta=meta)
    # From here on the new thread counts, if this one is gone: see `Journal.recover`.
    facts = {key: value for key, value in info.facts.items() if key != "deleted_us"}
    journal.store.get(new.name).set(
        rewritten={"facts": facts, "parent": info.parent, "created_us": info.created_us}
    )
    journal.store.purge(journal.name)
    guard.forget(journal.name)
    journal.memory.forget(journal.name)
    journal.recover()


def _needed(found: Mapping[str, Found], id: str) -> set[str]:
    """The ancestors without which a checkpoint's DeltaChannels could not be read."""
    at = found[id]
    counted = at.body["metadata"].get("counters_since_delta_snapshot") or {}
    missing = counted.keys() - at.body["values"].keys()
    needed: set[str] = set()
    while missing and at.parent is not None and at.parent in found:
        at = found[at.parent]
        needed.add(at.id)
        missing -= at.body["values"].keys()
    return needed


class Runs:
    """In which threads a run has left checkpoints: a thread of its own, with an entry for each."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._name = f"{OWN_THREADS}runs"
        self._noted: Recent[tuple[str, str], bool] = Recent()

    def note(self, run: str, thread: str) -> None:
        """Write down that a run is about to leave a checkpoint in a thread."""
        if self._noted.get((run, thread)):
            return
        number = 0
        index = self._store.get_or_create(self._name, facts={"archived": True})
        while True:
            try:
                id = f"{_run_name(run)}.{number}"
                index.append(
                    "custom", {"run": run, "thread": thread}, id=id, format="langgraph.run"
                )
                break
            except Conflict:
                number += 1  # the run was in another thread, too
        self._noted[(run, thread)] = True

    def threads(self, runs: Iterable[str]) -> list[str]:
        """The threads that runs were in, and the copies that were made of them."""
        found: dict[str, None] = {}
        index = self._store.find(self._name)
        for run in runs if index is not None else ():
            number = 0
            assert index is not None
            with suppress(NotFound):
                while True:
                    found[index.get(f"{_run_name(run)}.{number}").body["thread"]] = None
                    number += 1
        todo = list(found)
        while todo:
            for copy in self._store.threads(origin=todo.pop(), archived=None):
                if copy.id not in found:
                    found[copy.id] = None
                    todo.append(copy.id)
        return list(found)


def _run_name(run: str) -> str:
    return digest(run.encode("utf-8", "surrogatepass"))[3:35]


def _is_line(segments: Sequence[Segment], info: ThreadInfo) -> bool:
    """Whether all entries of a thread are on the path to its leaf."""
    at = None if info.origin is None else info.origin.entry
    for segment in segments:
        if segment.parent != at:
            return False
        at = segment.last
    return at == info.leaf
