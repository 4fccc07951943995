"""Many Python threads on one handle: group commit keeps each writer's outcome apart."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import NoneType

import pytest

import clew
from clew.core.model import Acquire
from clew.engines.files.index import Index
from clew.engines.shared.group_commit import GroupCommit, Ticket
from clew.store import Store


def together(*jobs: Callable[[], object]) -> None:
    """Run jobs in threads that start at once; the first error is raised here."""
    barrier = threading.Barrier(len(jobs))
    errors: list[BaseException] = []

    def run(job: Callable[[], object]) -> None:
        barrier.wait()
        try:
            job()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if errors:
        raise errors[0]


def test_concurrent_appends_to_one_thread_form_one_branch(store: Store) -> None:
    thread = store.create()

    def job(n: int) -> Callable[[], object]:
        return lambda: [thread.append("event", [n, i]) for i in range(25)]

    together(*(job(n) for n in range(8)))
    path = thread.path()
    assert [e.seq for e in path] == list(range(1, 201))
    for n in range(8):
        assert [e.body[1] for e in path if e.body[0] == n] == list(range(25))


def test_a_lease_that_is_taken_in_the_same_commit_is_not_overlooked(tmp_path: Path) -> None:
    store = clew.open(tmp_path / "store.db")
    thread = store.create("t")
    thread.append("event", "the handle knows now where the thread stands, and that it is free")
    engine, works = store.engine, []
    engine._commits.run = works.append
    engine.lease("t", Acquire("me", 60.0))
    engine.append("t", [clew.draft("event", "refused")])
    engine.append("t", [clew.draft("event", "refused as well")])
    batch: list[Ticket] = [Ticket(work) for work in works]
    engine._transact(batch)
    assert [type(ticket.error) for ticket in batch] == [NoneType, clew.LeaseHeld, clew.LeaseHeld]
    assert len(thread.path()) == 1
    store.close()


def test_one_writers_failure_is_not_anothers(store: Store) -> None:
    thread = store.create()
    thread.append("event", "first", id="taken")
    outcomes: list[str] = []

    def good(n: int) -> None:
        for i in range(20):
            thread.append("event", [n, i])
            outcomes.append("written")

    def bad() -> None:
        for _ in range(20):
            with pytest.raises(clew.Conflict):
                thread.append([clew.draft("event", 1), clew.draft("event", "other", id="taken")])
            outcomes.append("refused")

    together(*(lambda n=n: good(n) for n in range(4)), bad, bad)
    assert (outcomes.count("written"), outcomes.count("refused")) == (80, 40)
    assert len(thread.path()) == 81
    assert store.verify() == []


def test_many_writers_share_transactions(tmp_path: Path) -> None:
    batches: list[int] = []
    gate = threading.Event()

    def transact(batch: list[Ticket[int]]) -> None:
        batches.append(len(batch))
        gate.wait(30)
        for ticket in batch:
            ticket.result = ticket.work(None)

    group = GroupCommit(transact)
    results: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: results.append(group.run(lambda _: n)))
        for n in range(9)
    ]
    for thread in threads:
        thread.start()
    while len(group._queue) < 8:
        threading.Event().wait(0.001)
    gate.set()
    for thread in threads:
        thread.join(30)
    assert sorted(results) == list(range(9))
    assert batches == [1, 8], "all who came while the first one worked were taken together"


@pytest.mark.parametrize("moment", ["_wait", "_lead", "_hand_on"])
def test_an_interrupted_writer_passes_the_lead_on(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in a writer, at any moment, must not leave the others waiting for ever."""
    group = GroupCommit(_commit_all)
    entered, gate = threading.Event(), threading.Event()

    def slow(_: object) -> str:
        entered.set()
        assert gate.wait(30)
        return "first"

    first = threading.Thread(target=lambda: group.run(slow))
    first.start()
    assert entered.wait(30)
    original = getattr(GroupCommit, moment)

    def interrupted(self: GroupCommit, *arguments: object) -> object:
        if threading.current_thread() is not threading.main_thread():
            return original(self, *arguments)
        gate.set()
        if moment == "_wait":  # the lead has come to it, or its work is done
            original(self, *arguments)
        monkeypatch.setattr(GroupCommit, moment, original)
        raise KeyboardInterrupt

    monkeypatch.setattr(GroupCommit, moment, interrupted)
    threading.Timer(0.05, gate.set).start()
    with pytest.raises(KeyboardInterrupt):
        group.run(lambda _: "second")
    first.join(30)
    assert group.run(lambda _: "third") == "third"


def _commit_all(batch: list[Ticket[str]]) -> None:
    for ticket in batch:
        ticket.result = ticket.work(None)


def test_readers_see_whole_batches_only(store: Store) -> None:
    thread = store.create()
    done = threading.Event()

    def write() -> None:
        for n in range(60):
            thread.append([clew.draft("event", [n, i]) for i in range(5)])
        done.set()

    def read() -> None:
        while not done.is_set():
            assert len(thread.path()) % 5 == 0
            assert len(list(thread.read())) % 5 == 0

    together(write, read, read)


def test_turns_of_many_threads_take_their_turn(store: Store) -> None:
    thread = store.create()

    def work(n: int) -> None:
        for _ in range(3):
            with thread.turn(owner=f"w{n}", wait_seconds=60) as turn:
                turn.append("event", n)

    together(*(lambda n=n: work(n) for n in range(4)))
    kinds = [e.kind for e in thread.path()]
    assert kinds == ["turn_marker", "event", "turn_marker"] * 12


def test_of_racers_for_one_thread_all_get_it(store: Store) -> None:
    got: list[clew.Thread] = []
    together(*(lambda: got.append(store.get_or_create("t")) for _ in range(8)))
    assert got == [store.get("t")] * 8
    assert store.stats().threads == 1


def test_of_racers_for_one_conversation_all_get_it(store: Store) -> None:
    got: list[str] = []
    talks = store.conversations
    together(*(lambda: got.append(talks.get_or_create("k").thread.id) for _ in range(8)))
    assert got == ["conversation:k"] * 8
    talks.delete("k")
    together(*(lambda: got.append(talks.get_or_create("k").thread.id) for _ in range(8)))
    assert len(got) == 16
    assert talks.get_history("k") == []


def test_racers_for_fork_ids_get_one_each(store: Store) -> None:
    store.create("abc")
    got: list[str] = []
    together(*(lambda: got.extend(store.fork_id("abc") for _ in range(5)) for _ in range(6)))
    assert sorted(got) == sorted(f"abc#fork-{n}" for n in range(1, 31))


def test_handles_that_make_the_index_of_one_store_at_once_share_it(tmp_path: Path) -> None:
    """One that is being made has a rollback journal, and must not be taken for a planted one."""
    for n in range(10):
        folder = tmp_path / str(n)
        folder.mkdir()
        indexes = [Index(f"{folder}/index.db") for _ in range(4)]
        together(*[partial(index.number, "a file") for index in indexes])
        wanted = indexes[0].number("another file")
        assert [index.key(wanted) for index in indexes] == ["another file"] * 4
        for index in indexes:
            index.close()
