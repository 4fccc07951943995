"""Writers that share a transaction while one of them is interrupted: no other one waits for ever.

An interrupt may come between any two steps, so here one comes where it would hurt most.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from clew.core.errors import Unavailable
from clew.engines.shared.group_commit import BATCH_MAX, GroupCommit, Ticket

SECONDS_MAX = 20  # a writer that is not done by then would wait for ever


class Crew:
    """Writers of one group commit, each in its own thread; a batch is committed when it is let."""

    def __init__(self) -> None:
        self.commits = GroupCommit(self._transact)
        self.batches: list[list[Any]] = []
        self.at_work = 0  # how many batches are being committed at this moment
        self.at_once = 0  # … and how many were, at most
        self._let = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self.outcomes: dict[str, Any] = {}

    def _transact(self, batch: list[Ticket[Any]]) -> None:
        self.at_work += 1
        self.at_once = max(self.at_once, self.at_work)
        assert self._let.acquire(timeout=SECONDS_MAX)
        self.batches.append([ticket.work(None) for ticket in batch])
        for ticket in batch:
            ticket.result = ticket.work(None)
        self.at_work -= 1

    def write(self, name: str) -> None:
        """Begin a write, and wait until it is at work or in the queue."""
        self._begin(name, lambda: self.commits.run(lambda _: name))

    def write_each(self, name: str, count: int) -> None:
        works = [lambda _, n=n: f"{name} {n}" for n in range(count)]
        self._begin(name, lambda: [one.outcome() for one in self.commits.run_each(works)])

    def _begin(self, name: str, write: Callable[[], Any]) -> None:
        before = len(self.commits._queue), self.at_work

        def work() -> None:
            try:
                self.outcomes[name] = write()
            except BaseException as error:
                self.outcomes[name] = error

        self._threads.append(threading.Thread(target=work, daemon=True))
        self._threads[-1].start()
        until(lambda: (len(self.commits._queue), self.at_work) != before)

    def let(self, batches: int = 1) -> None:
        self._let.release(batches)

    def end(self) -> None:
        for thread in self._threads:
            thread.join(SECONDS_MAX)
        assert not any(thread.is_alive() for thread in self._threads), self.outcomes


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS_MAX
    while not true():
        assert time.monotonic() < end
        time.sleep(0.001)


def interrupting(call: Callable[..., Any], *, at: int) -> Callable[..., Any]:
    """The same function; the n-th call ends in Ctrl-C, when it has done its work."""
    calls = 0

    def interrupted(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        done = call(*given)
        if calls == at:
            raise KeyboardInterrupt
        return done

    return interrupted


@pytest.mark.parametrize("others", [0, 1, 3])
def test_an_interrupt_after_the_commit_leaves_no_other_writer_asleep(
    monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    crew = Crew()
    names = ["first", "leader", *(f"other {n}" for n in range(others))]
    for name in names:
        crew.write(name)
    handing_on = interrupting(crew.commits._hand_on, at=2)
    monkeypatch.setattr(crew.commits, "_hand_on", handing_on)
    crew.let(2)
    crew.end()
    assert crew.batches == [["first"], names[1:]]
    assert isinstance(crew.outcomes.pop("leader"), KeyboardInterrupt)
    assert crew.outcomes == {name: name for name in names if name != "leader"}
    assert crew.commits.idle
    crew.let()
    assert crew.commits.run(lambda _: "afterwards") == "afterwards"


def test_an_interrupt_as_the_lead_is_handed_on_makes_no_second_leader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two at once would write into one transaction, or one file."""
    crew = Crew()
    crew.write("leader")
    crew.write("heir")
    handing_on = interrupting(crew.commits._hand_on, at=1)
    monkeypatch.setattr(crew.commits, "_hand_on", handing_on)
    crew.let()
    until(lambda: len(crew.outcomes) == 1 and crew.at_work == 1)
    assert isinstance(crew.outcomes["leader"], KeyboardInterrupt)
    crew.write("newcomer")
    crew.let(2)
    crew.end()
    assert crew.batches == [["leader"], ["heir"], ["newcomer"]]
    assert crew.at_once == 1
    assert (crew.outcomes["heir"], crew.outcomes["newcomer"]) == ("heir", "newcomer")


def test_an_interrupted_commit_is_told_as_unknown_to_all_who_shared_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crew = Crew()
    for name in ("first", "leader", "other"):
        crew.write(name)
    monkeypatch.setattr(crew.commits, "_transact", interrupting(crew._transact, at=1))
    crew.let(2)
    crew.end()
    assert isinstance(crew.outcomes["leader"], KeyboardInterrupt)
    other = crew.outcomes["other"]
    assert isinstance(other, Unavailable)
    assert other.committed is None


def test_an_interrupt_while_others_are_waited_for_leaves_the_lead_to_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crew = Crew()
    for name in ("first", "leader", "other"):
        crew.write(name)
    monkeypatch.setattr(crew.commits, "_gather", interrupting(lambda: None, at=1))
    time.sleep(0.002)  # a slow commit makes the next leader wait for others
    crew.let(2)
    crew.end()
    assert crew.batches == [["first"], ["other"]]
    assert isinstance(crew.outcomes["leader"], KeyboardInterrupt)
    assert crew.outcomes["other"] == "other"
    assert crew.commits.idle


def test_an_interrupt_in_the_midst_of_waking_lets_no_one_sleep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crew = Crew()
    names = ["first", "leader", "other 1", "other 2"]
    for name in names:
        crew.write(name)
    until(lambda: len(crew.commits._queue) == 3)
    last = crew.commits._queue[-1]
    last.ready = InterruptedLock(last.ready)
    crew.let(2)
    crew.end()
    assert isinstance(crew.outcomes["leader"], KeyboardInterrupt)
    assert {crew.outcomes[name] for name in names[2:]} == set(names[2:])


class InterruptedLock:
    """A writer's lock, at which the one that wakes it is interrupted once."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self._interrupted = False

    def locked(self) -> bool:
        if not self._interrupted:
            self._interrupted = True
            raise KeyboardInterrupt
        return bool(self._lock.locked())

    def release(self) -> None:
        self._lock.release()


def test_an_interrupt_before_the_commit_acknowledges_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between taking the batch out of the queue and its commit: nobody else knows of it."""
    crew = Crew()
    for name in ("first", "leader", "other"):
        crew.write(name)
    mutex = Mutex(crew.commits._mutex)
    monkeypatch.setattr(crew.commits, "_mutex", mutex)
    mutex.interrupts = lambda: crew.outcomes.keys() >= {"first"} and not crew.commits._queue
    crew.let()
    crew.end()
    assert isinstance(crew.outcomes["leader"], KeyboardInterrupt)
    other = crew.outcomes["other"]
    assert isinstance(other, Unavailable)
    assert other.committed is None
    assert crew.batches == [["first"]]
    assert crew.commits.idle


class Mutex:
    """A mutex that is interrupted once, when it was given back."""

    def __init__(self, mutex: Any) -> None:
        self._mutex = mutex
        self.interrupts: Callable[[], bool] = lambda: False

    def __enter__(self) -> None:
        self._mutex.__enter__()

    def __exit__(self, *error: Any) -> None:
        interrupts = self.interrupts()
        self._mutex.__exit__(*error)
        if interrupts:
            self.interrupts = lambda: False
            raise KeyboardInterrupt


def test_each_of_several_works_has_an_outcome_of_its_own() -> None:
    sizes: list[int] = []

    def transact(batch: list[Ticket[Any]]) -> None:
        sizes.append(len(batch))
        for ticket in batch:
            try:
                ticket.result = ticket.work(None)
            except ValueError as error:
                ticket.error = error

    commits = GroupCommit(transact)
    works = [lambda _, n=n: int("no" if n == 5 else n) for n in range(BATCH_MAX + 6)]
    found = commits.run_each(works)
    assert sizes == [BATCH_MAX, 6]
    assert [ticket.result for ticket in found if ticket.error is None] == [
        n for n in range(BATCH_MAX + 6) if n != 5
    ]
    with pytest.raises(ValueError, match="'no'"):
        found[5].outcome()
    assert commits.run_each([]) == []


def test_what_one_writer_wants_is_never_split() -> None:
    """It sleeps until all of it is written, and would wake when the first part is."""
    crew = Crew()
    crew.write("first")
    crew.write("second")
    for name, count in (("many", BATCH_MAX - 1), ("more", 2)):
        crew.write_each(name, count)
    crew.let(3)
    crew.end()
    assert [len(batch) for batch in crew.batches] == [1, BATCH_MAX, 2]
    assert crew.outcomes["many"] == [f"many {n}" for n in range(BATCH_MAX - 1)]
    assert crew.outcomes["more"] == ["more 0", "more 1"]
    assert crew.commits.idle
