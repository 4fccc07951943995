"""The wrappers of the waist keep its contract, and do what each of them is for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from amounts import pairs
from msgspec.structs import replace
from places import PLACES

from clew.core.checked_reads import check_reads
from clew.core.engine import Engine, innermost
from clew.core.errors import Conflict, Corrupt, NotFound, ReadOnly, Unavailable, Unsupported
from clew.core.maintenance import maintenance_class
from clew.core.model import DEFAULT_NAMESPACE, Acquire, FactDraft, Inspect, ThreadQuery
from clew.engines.memory import MemoryEngine
from clew.store import Store
from clew.testing import conformance
from clew.testing.cases.base import entry, fork_of, grow, ids, move, thread
from clew.testing.wrappers import Fault, Trace, faulty, read_only, traced
from clew.upkeep.doctor import examine

TRANSPARENT: dict[str, Callable[[Engine], Engine]] = {
    "traced": lambda engine: traced(engine, lambda trace: None),
    "faulty, without faults": lambda engine: faulty(engine, []),
    "check_reads": check_reads,
    "one in the other": lambda engine: traced(check_reads(faulty(engine, [])), lambda trace: None),
}


class WrappedPlace:
    """A place whose engines are wrapped."""

    def __init__(self, place: conformance.Place, wrap: Callable[[Engine], Engine]) -> None:
        self._place, self._wrap = place, wrap

    def open(self, *, namespace: str = DEFAULT_NAMESPACE) -> Engine:
        return self._wrap(self._place.open(namespace=namespace))

    def reopen(self, engine: Engine) -> Engine:
        return self._wrap(self._place.reopen(innermost(engine)))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize(("name", "case"), pairs(tuple(TRANSPARENT), conformance.CASES, 3))
def test_a_wrapped_engine_keeps_the_contract(
    case: conformance.Case, kind: str, name: str, tmp_path: Path
) -> None:
    place = PLACES[kind](tmp_path)
    try:
        case(WrappedPlace(place, TRANSPARENT[name]))
    finally:
        place.close()


# --- read-only ---


def test_a_read_only_engine_refuses_every_write_and_says_so(place: conformance.Place) -> None:
    engine = place.open()
    engine.create(thread())
    grow(engine, "t", "a")
    (hash,) = engine.put_blobs([b"bytes"])
    lease = engine.lease("t", Acquire("me", 600.0))
    before = engine.stats()
    opened = read_only(engine)
    assert opened.properties.read_only
    assert not engine.properties.read_only
    assert opened.properties.place == engine.properties.place
    for write in (
        lambda: opened.create(thread("u")),
        lambda: opened.append("t", [entry("b")]),
        lambda: opened.lease("t", Acquire("you", 1.0)),
        lambda: opened.put_blobs([b"more"]),
        lambda: opened.purge("t"),
        lambda: opened.sweep(grace_seconds=0),
    ):
        with pytest.raises(ReadOnly, match="read-only"):
            write()
    assert opened.stats() == before
    assert opened.thread("t") == engine.thread("t")
    assert ids(opened.path("t")) == ids(opened.read("t")) == ["a"]
    assert opened.segments("t") == engine.segments("t")
    assert [info.id for info in opened.threads(ThreadQuery(order="updated")).items] == ["t"]
    assert opened.lease("t", Inspect()) == lease
    assert opened.get_blob(hash) == b"bytes"
    assert opened.has_blobs([hash]) == {hash}
    assert opened.wait("t", after=0, timeout_seconds=0)
    assert list(opened.check()) == []


def test_a_store_can_be_read_through_it() -> None:
    engine = MemoryEngine()
    Store(engine).create("t").append("user_message", "hello")
    store = Store(read_only(engine))
    assert [entry.kind for entry in store.get("t").path()] == ["user_message"]
    with pytest.raises(ReadOnly):
        store.get("t").append("user_message", "more")
    with pytest.raises(ReadOnly):
        store.delete("t")


# --- traced ---


def test_every_operation_is_told_with_its_thread_its_time_and_its_outcome() -> None:
    told: list[Trace] = []
    engine = traced(MemoryEngine(), told.append)
    engine.create(thread())
    grow(engine, "t", "a")
    fork_of(engine, "t", "a")
    engine.stats()
    with pytest.raises(NotFound):
        engine.purge(thread="u")
    assert [(trace.operation, trace.thread) for trace in told] == [
        ("create", "t"),
        ("append", "t"),
        ("path", "t"),
        ("create", "f"),
        ("stats", None),
        ("purge", "u"),
    ]
    assert all(trace.seconds >= 0 for trace in told)
    assert [type(trace.error) for trace in told[-2:]] == [type(None), NotFound]


def test_a_check_is_told_when_its_last_problem_was_asked_for() -> None:
    told: list[Trace] = []
    problems = traced(MemoryEngine(), told.append).check()
    assert told == []
    assert list(problems) == []
    assert [trace.operation for trace in told] == ["check"]


def test_operations_are_told_from_the_threads_that_made_them(place: conformance.Place) -> None:
    told: list[tuple[str, str]] = []
    engine = traced(
        place.open(), lambda t: told.append((threading.current_thread().name, t.operation))
    )
    engine.create(thread())
    worker = threading.Thread(target=lambda: grow(engine, "t", "a"), name="worker")
    worker.start()
    worker.join()
    assert told == [(threading.current_thread().name, "create"), ("worker", "append")]


# --- faulty ---


def test_a_fault_before_an_operation_leaves_it_undone() -> None:
    faults = [Fault("append", Unavailable("the disk is full"))]
    engine = faulty(MemoryEngine(), faults)
    engine.create(thread())
    with pytest.raises(Unavailable, match="full"):
        grow(engine, "t", "a")
    assert (engine.read("t"), faults) == ([], [])
    assert ids(grow(engine, "t", "a")) == ["a"], "it strikes once"


def test_a_fault_after_an_operation_loses_the_answer_and_a_retry_resolves() -> None:
    lost = Unavailable("no answer", committed=None)
    engine = faulty(MemoryEngine(), [Fault("append", lost, after=True)])
    engine.create(thread())
    with pytest.raises(Unavailable, match="no answer"):
        engine.append("t", [entry("a")], expect=None)
    assert ids(engine.read("t")) == ["a"]
    assert ids(engine.append("t", [entry("a")], expect=None)) == ["a"]
    with pytest.raises(Conflict):
        engine.append("t", [entry("b")], expect=None)


def test_faults_come_in_their_order_and_may_be_added() -> None:
    faults = [Fault("thread", Unavailable("one")), Fault("thread", Unavailable("two"))]
    engine = faulty(MemoryEngine(), faults)
    for text in ("one", "two"):
        with pytest.raises(Unavailable, match=text):
            engine.thread("t")
    faults.append(Fault("check", Unavailable("three")))
    with pytest.raises(Unavailable, match="three"):
        list(engine.check())


# --- check_reads ---


class Lying:
    """An engine that gives out something else than it holds: what a disk does that rots."""

    def __init__(self, engine: Engine) -> None:
        self.wrapped = engine
        self.lies: dict[str, Callable[[Any], Any]] = {}

    def __getattr__(self, name: str) -> Any:
        answer = getattr(self.wrapped, name)
        if name not in self.lies:
            return answer
        return lambda *given, **options: self.lies[name](answer(*given, **options))


def changed(n: int, **fields: Any) -> Callable[[list[Any]], list[Any]]:
    """The record of this seq, wherever it is in an answer, is not what was written."""
    return lambda records: [replace(r, **fields) if r.seq == n else r for r in records]


LIES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "a body of the path": ("path", changed(3, data=b'"x"')),
    "a body in the log": ("read", changed(3, data=b'"x"')),
    "a kind": ("path", changed(3, kind="event")),
    "a time": ("read", changed(3, time_us=5)),
    "a parent": ("path", changed(4, parent="e1")),
    "meta": ("path", changed(3, meta_data=b"{}")),
    "an empty turn": ("path", changed(3, turn="")),
    "a fact": ("read", changed(1, data=b'{"text":"x"}')),
    "a move": ("read", changed(6, leaf="e2")),
    "an entry too few": ("path", lambda path: path[:2] + path[3:]),
    "the root missing": ("path", lambda path: path[1:]),
    "the leaf missing": ("path", lambda path: path[:-1]),
    "no path at all": ("path", lambda path: []),
    "a record too few": ("read", lambda records: records[:2] + records[3:]),
    "the end of the log": ("read", lambda records: [r for r in records if r.seq < 7]),
    "a log that is longer": ("thread", lambda info: replace(info, seq=6)),
    "a log that is shorter": ("thread", lambda info: replace(info, seq=8)),
    "the leaf": ("thread", lambda info: replace(info, leaf="e2")),
    "no leaf": ("thread", lambda info: replace(info, leaf=None)),
}


@pytest.mark.parametrize("lie", LIES)
def test_with_check_reads_no_lie_of_an_engine_comes_out(lie: str) -> None:
    lying = Lying(MemoryEngine())
    store = Store(check_reads(cast(Engine, lying)))
    thread = store.create("t", title="a title")  # record 1
    for n in range(1, 5):
        thread.append("user_message", n, id=f"e{n}")
    thread.move("e3")
    thread.set(status="busy")
    assert [entry.id for entry in thread.path()] == ["e1", "e2", "e3"]
    assert len(list(thread.read())) == thread.info.seq == 7
    operation, answer = LIES[lie]
    lying.lies[operation] = answer
    asked = {"path": thread.path, "read": lambda: list(thread.read()), "thread": thread.path}
    with pytest.raises(Corrupt, match=r"thread 't'.*clew verify names"):
        asked[operation]()


def swapped(records: list[Any]) -> list[Any]:
    """Two entries have each other's place."""
    places = {3: 4, 4: 3}
    moved = [replace(r, seq=places.get(r.seq, r.seq)) for r in records]
    return sorted(moved, key=lambda r: r.seq)


def lost(path: list[Any]) -> list[Any]:
    raise NotFound("entry", "e1")


PARTS: dict[str, tuple[str, Callable[[Any], Any], Callable[[Engine], object]]] = {
    "no child of the one before": (
        "path",
        lambda path: path[1:],
        lambda engine: engine.path("t", after="e1"),
    ),
    "a child before its parent": ("read", swapped, lambda engine: engine.read("t")),
    "a parent that is gone": ("path", lost, lambda engine: engine.read("t", after=2, limit=1)),
    "a kind that no text can be": (
        "path",
        changed(3, kind="\ud800"),
        lambda engine: engine.path("t"),
    ),
    "records before many facts": (
        "read",
        lambda records: [r for r in records if r.seq > 20],
        lambda engine: engine.path("t"),
    ),
    "one of many facts": (
        "read",
        lambda records: [r for r in records if r.seq != 30],
        lambda engine: engine.read("t", limit=50),
    ),
    "a record of another thread": (
        "read",
        lambda records: [replace(r, thread="other") if r.seq == 3 else r for r in records],
        lambda engine: engine.read("t", after=2, limit=1),
    ),
    "the newest records of a page": (
        "read",
        lambda records: records[:-1] if len(records) > 2 else records,
        lambda engine: engine.read("t", after=70),
    ),
    "an entry that is no longer behind many facts": (
        "read",
        changed(5, data=b'"x"'),
        lambda engine: engine.thread("t"),
    ),
}


@pytest.mark.parametrize("lie", PARTS)
def test_a_part_of_a_thread_is_checked_against_what_lies_before_it(lie: str) -> None:
    lying = Lying(MemoryEngine())
    store = Store(check_reads(cast(Engine, lying)))
    thread = store.create("t", title="a title")
    for n in range(1, 5):
        thread.append("user_message", n, id=f"e{n}")
    for n in range(70):  # more than are looked at at once to find where it stands
        thread.set(status=f"step {n}")
    assert [entry.id for entry in thread.path(after="e1")] == ["e2", "e3", "e4"]
    operation, answer, ask = PARTS[lie]
    lying.lies[operation] = answer
    with pytest.raises(Corrupt, match=r"thread 't'.*clew verify names"):
        ask(store.engine)
    with pytest.raises(AttributeError):
        store.engine.no_operation  # type: ignore[attr-defined]  # noqa: B018


def test_a_thread_that_never_looks_the_same_twice_is_not_looked_at_for_ever() -> None:
    lying = Lying(MemoryEngine())
    engine = check_reads(cast(Engine, lying))
    engine.create(thread())
    grow(engine, "t", "a", "b")
    leaves = iter(range(100))
    lying.lies["thread"] = lambda info: replace(info, leaf=f"e{next(leaves)}")
    with pytest.raises(Corrupt, match="it does not stand on 'e4'"):
        engine.thread("t")


def test_what_was_asked_for_alone_is_no_damage() -> None:
    """A path that begins behind its own end, and one of which only the end was asked for."""
    engine = check_reads(MemoryEngine())
    engine.create(thread())
    assert engine.path("t") == []
    grow(engine, "t", "a", "b", "c", "d")
    for n in range(70):  # the end of the log comes nearer to the entry, one by one
        engine.create(thread(f"t{n}"))
        grow(engine, f"t{n}", "a")
        facts = [FactDraft(id=f"f{i}", key="status", data=b'"busy"', time_us=i) for i in range(n)]
        if facts:
            engine.append(f"t{n}", facts)
        assert engine.thread(f"t{n}").leaf == "a"
    assert engine.path("t", "b", after="b") == []
    assert ids(engine.path("t", after="a", limit=1)) == ["d"]
    assert ids(engine.path("t", after="a", limit=3)) == ["b", "c", "d"]


def test_a_thread_that_another_one_replaces_between_two_looks_is_no_damage() -> None:
    lying = Lying(MemoryEngine())
    engine = check_reads(cast(Engine, lying))
    engine.create(thread())
    grow(engine, "t", "a", "b", "c")
    before = [engine.thread("t")]
    engine.purge("t")
    engine.create(thread())
    grow(engine, "t", "d")
    lying.lies["thread"] = lambda info: before.pop() if before else info
    assert engine.thread("t").leaf == "d"
    lying.lies["thread"] = lambda info: replace(info, seq=3, leaf="c")
    with pytest.raises(Corrupt, match="its log ends before record 3"):
        engine.thread("t")


@pytest.mark.parametrize("name", TRANSPARENT)
def test_a_wrapper_has_the_operations_of_the_waist_and_nothing_else(name: str) -> None:
    """What an engine has besides is its own affair: a wrapper would let it through unlooked at."""
    wrapped = TRANSPARENT[name](MemoryEngine())
    with pytest.raises(AttributeError, match="the waist has no operation '_threads'"):
        wrapped._threads  # type: ignore[attr-defined]  # noqa: B018


def test_a_reader_beside_writers_is_told_of_no_damage(place: conformance.Place) -> None:
    engine = place.open()
    engine.create(thread())
    reader, done = check_reads(engine), threading.Event()

    def write() -> None:
        for n in range(60):
            fact = FactDraft(id=f"f{n}", key="status", data=b'"busy"', time_us=n)
            engine.append("t", [entry(f"e{n}"), fact])
            if n % 7 == 0:
                engine.append("t", [move(f"m{n}", None)])
        done.set()

    worker = threading.Thread(target=write)
    worker.start()
    while not done.is_set():
        reader.path("t")
        reader.read("t", limit=10_000)
        reader.thread("t")
    worker.join()
    assert len(reader.read("t", limit=10_000)) == reader.thread("t").seq


# --- maintenance, through wrappers and without ---


def test_a_wrapped_store_is_examined_like_any_other(place: conformance.Place) -> None:
    engine = place.open()
    bare, wrapped = examine(Store(engine)), examine(Store(read_only(engine)))
    assert wrapped.properties.read_only
    assert (wrapped.kind, wrapped.format, wrapped.versions) == (
        bare.kind,
        bare.format,
        bare.versions,
    )
    assert wrapped.findings == bare.findings


def test_an_engine_without_maintenance_says_so() -> None:
    with pytest.raises(Unsupported, match="'memory' offers no maintenance"):
        maintenance_class(MemoryEngine().properties)
