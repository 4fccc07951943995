"""A copy has everything, is never half wrong, and knows what it could not do."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from amounts import amount
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from places import PLACES

import clew
from clew.core import drafts
from clew.core.engine import Engine
from clew.core.errors import ClewError, Corrupt, NotFound
from clew.core.model import Acquire, Entry, Origin, ThreadQuery
from clew.engines.memory import MemoryEngine
from clew.testing.cases.base import T0, entry, fork_of, grow, ids, move, thread, whole
from clew.upkeep.backup import backup
from clew.upkeep.copy import copy
from clew.upkeep.transfer import MARK, everything

PAIRS = list(itertools.product(PLACES, PLACES))


@pytest.fixture(params=PAIRS, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Engine, Engine]]:
    places = []
    for side, name in zip(("from", "to"), request.param, strict=True):
        (tmp_path / side).mkdir()
        for need in getattr(PLACES[name], "needs", ()):
            request.getfixturevalue(need)
        places.append(PLACES[name](tmp_path / side))
    yield places[0].open(), places[1].open()
    for place in places:
        place.close()


@pytest.fixture
def two() -> tuple[Engine, Engine]:
    return MemoryEngine(), MemoryEngine()


def fact(engine: Engine, name: str, **values: Any) -> None:
    engine.append(name, drafts.facts(values, T0))


def picture(engine: Engine) -> dict[str, Any]:
    """Everything that can be seen of an engine's threads."""
    found = {}
    for info in everything(engine):
        records = engine.read(info.id, limit=100_000)
        paths = {r.id: engine.path(info.id, r.id) for r in records if isinstance(r, Entry)}
        if info.origin is not None and info.origin.entry is not None:
            paths["origin"] = engine.path(info.id, info.origin.entry)
        found[info.id] = (info, records, paths, engine.path(info.id), engine.segments(info.id))
    return found


def outcomes(source: Engine, target: Engine) -> dict[str, str]:
    return {done.thread: done.outcome for done in copy(source, target).threads}


def a_story(engine: Engine) -> None:
    """Moves, branches, facts, forks of forks, deleted and archived threads, blobs, big bodies."""
    engine.create(thread("t", facts={"title": "one", "tags": ["a"]}, parent="p"))
    blob, other = engine.put_blobs([b"blob " * 50, b"x"])
    grow(engine, "t", "a", "b")
    engine.append("t", [entry("c", {"text": "z" * 20_000}, blobs=[blob, other], turn="u")])
    engine.append("t", [move("m1", "a"), entry("d", meta={"k": 1}, format="plain")])
    fork_of(engine, "t", "d", "f")
    fork_of(engine, "f", "a", "ff")
    grow(engine, "ff", "g")
    engine.create(thread("empty", origin=Origin("t", None, None)))
    fact(engine, "t", archived=True)
    fact(engine, "f", deleted_us=T0)
    engine.create(thread("back", at=T0 - 5))
    grow(engine, "back", "x")
    fact(engine, "back", deleted_us=T0)
    fact(engine, "back", deleted_us=None)
    grow(engine, "back", "y")
    engine.append("back", [move("m2", None)])


def test_a_copy_is_the_same_on_any_pair_of_engines(pair: tuple[Engine, Engine]) -> None:
    source, target = pair
    a_story(source)
    report = copy(source, target)
    assert report.complete
    assert {done.outcome for done in report.threads} == {"copied"}
    assert report.blobs == 2
    assert picture(target) == picture(source)
    whole(target)
    again = copy(source, target)
    assert (again.records, again.blobs) == (0, 0)
    assert {done.outcome for done in again.threads} == {"same"}


def test_a_fork_of_a_purged_thread_is_copied_with_what_it_needs(
    pair: tuple[Engine, Engine],
) -> None:
    source, target = pair
    source.create(thread("t"))
    (blob,) = source.put_blobs([b"needed"])
    source.append("t", [entry("a"), move("m", None), entry("b", blobs=[blob]), entry("c")])
    fork_of(source, "t", "c", "f")
    fork_of(source, "f", "b", "g")
    source.purge("t")
    source.create(thread("t", at=T0 + 1))
    grow(source, "t", "new")
    fork_of(source, "t", "new", "h")
    source.purge("t")
    fork_of(source, "h", "new", "t")
    grow(source, "t", "newer")
    assert copy(source, target).complete
    assert picture(target) == picture(source)
    assert not target.threads(ThreadQuery(parent=MARK)).items
    whole(target)
    assert copy(source, target).records == 0


def test_a_thread_below_an_earlier_one_of_its_own_id_is_copied(two: tuple[Engine, Engine]) -> None:
    source, target = two
    source.create(thread("x"))
    grow(source, "x", "a")
    fork_of(source, "x", "a", "y")
    source.purge("x")
    fork_of(source, "y", "a", "x")
    grow(source, "x", "b", "c")
    fork_of(source, "x", "c", "z")
    source.purge("x")
    source.purge("y")
    assert ids(source.path("z")) == ["a", "b", "c"]
    assert copy(source, target).complete
    assert picture(target) == picture(source)


def test_two_threads_that_each_need_the_id_of_the_other_are_copied(
    two: tuple[Engine, Engine],
) -> None:
    source, target = two
    source.create(thread("x"))
    grow(source, "x", "a")
    fork_of(source, "x", "a", "z")
    source.create(thread("y"))
    grow(source, "y", "b")
    source.purge("x")
    fork_of(source, "y", "b", "x")
    source.purge("y")
    fork_of(source, "z", "a", "y")
    source.purge("z")
    assert copy(source, target).complete
    assert picture(target) == picture(source)


def test_only_what_is_new_is_read_and_written(two: tuple[Engine, Engine]) -> None:
    source, target = two
    source.create(thread("t"))
    source.create(thread("u"))
    for name in ("t", "u"):
        grow(source, name, *(f"{name}{n}" for n in range(50)))
    copy(source, target)
    grow(source, "t", "new")
    reads = Counting(source)
    report = copy(reads, target)
    assert report.records == 1
    assert reads.records <= 3, "one comparison a thread, and the new record"
    assert picture(target) == picture(source)


def test_a_target_that_is_ahead_is_left_alone(two: tuple[Engine, Engine]) -> None:
    source, target = two
    source.create(thread("t"))
    grow(source, "t", "a")
    copy(source, target)
    grow(target, "t", "b")
    before = picture(target)
    assert outcomes(source, target) == {"t": "ahead"}
    assert picture(target) == before


def test_where_both_moved_on_both_branches_are_kept(pair: tuple[Engine, Engine]) -> None:
    source, target = pair
    source.create(thread("t", facts={"title": "old"}))
    grow(source, "t", "a", "b")
    copy(source, target)
    fact(source, "t", title="theirs")
    grow(source, "t", "s1", "s2")
    source.append("t", [move("m", "a"), entry("s3")])
    fact(target, "t", title="mine")
    grow(target, "t", "t1")
    (done,) = copy(source, target).threads
    assert (done.outcome, done.source_leaf, done.target_leaf) == ("diverged", "s3", "t1")
    assert ids(target.path("t")) == ["a", "b", "t1"]
    assert ids(target.path("t", "s2")) == ["a", "b", "s1", "s2"]
    assert [e.hash for e in target.path("t", "s3")] == [e.hash for e in source.path("t", "s3")]
    assert target.thread("t").title.text == "mine"  # type: ignore[union-attr]
    whole(target)
    before = picture(target)
    (again,) = copy(source, target).threads
    assert (again.outcome, again.records) == ("diverged", 0)
    assert picture(target) == before
    grow(source, "t", "s4")
    copy(source, target)
    assert ids(target.path("t", "s4")) == ["a", "s3", "s4"]
    assert target.thread("t").leaf == "t1"


def test_an_unrelated_thread_of_the_same_id_is_not_touched(two: tuple[Engine, Engine]) -> None:
    source, target = two
    source.create(thread("t"))
    source.create(thread("u"))
    fork_of(source, "t", None, "f")
    grow(source, "t", "a")
    fork_of(source, "t", "a", "g")
    target.create(thread("t", at=T0 + 7))
    grow(target, "t", "mine")
    before = picture(target)["t"]
    report = copy(source, target)
    found = {done.thread: done.outcome for done in report.threads}
    assert found == {"t": "unrelated", "u": "copied", "f": "copied", "g": "blocked"}
    assert not report.complete
    assert picture(target)["t"] == before
    assert "another thread" in (report.having("blocked")[0].reason or "")


def test_children_come_over_before_and_without_their_parents(pair: tuple[Engine, Engine]) -> None:
    source, target = pair
    source.create(thread("z-boss"))
    for name, parent in (("a-child", "z-boss"), ("orphan", "gone"), ("itself", "itself")):
        source.create(thread(name, parent=parent))
        grow(source, name, "a")
    assert copy(source, target).complete
    assert picture(target) == picture(source)
    whole(target)


@pytest.mark.parametrize("differing", [{"turn": "u"}, {"format": "plain"}, {"meta": {"k": 1}}])
def test_another_entry_under_the_same_id_is_noticed(
    two: tuple[Engine, Engine], differing: dict[str, Any]
) -> None:
    """A retry may leave out what it does not know; a copy has to be the same in everything."""
    source, target = two
    source.create(thread("t"))
    grow(source, "t", "a")
    copy(source, target)
    source.append("t", [entry("b", 1), entry("c", 2)])
    target.append("t", [entry("b", 1, **differing)])
    before = picture(target)
    (done,) = copy(source, target).threads
    assert done.outcome == "unrelated"
    assert next(iter(differing)) in str(done.reason)
    assert picture(target) == before


def test_an_empty_meta_that_is_stored_stays_as_it_is(pair: tuple[Engine, Engine]) -> None:
    source, target = pair
    source.create(thread("t"))
    source.append("t", [replace(entry("a", 1), meta_data=b"{}")])
    copy(source, target)
    assert picture(target) == picture(source)
    assert source.append("t", [entry("a", 1)]) == source.read("t"), "as a retry without meta"
    whole(target)


def test_a_held_thread_is_reported_and_the_rest_goes_on(two: tuple[Engine, Engine]) -> None:
    source, target = two
    for name in ("t", "u"):
        source.create(thread(name))
        grow(source, name, f"{name}1")
    copy(source, target)
    for name in ("t", "u"):
        grow(source, name, f"{name}2")
    target.lease("t", Acquire("somebody", 60.0))
    assert outcomes(source, target) == {"t": "held", "u": "extended"}
    assert ids(target.path("u")) == ["u1", "u2"]


def test_a_thread_that_was_deleted_in_the_target_meanwhile_is_reported(
    two: tuple[Engine, Engine],
) -> None:
    source, target = two
    source.create(thread("t"))
    grow(source, "t", "a")
    copy(source, target)
    fact(target, "t", deleted_us=T0)
    grow(source, "t", "b")
    (done,) = copy(source, target).threads
    assert done.outcome == "blocked"
    assert "restore" in (done.reason or "")


def test_damage_in_the_source_does_not_get_a_fresh_hash(two: tuple[Engine, Engine]) -> None:
    source, target = two
    source.create(thread("t"))
    source.create(thread("u"))
    grow(source, "t", "a", "b")
    grow(source, "u", "c")
    state = source._threads["t"]  # type: ignore[attr-defined]
    state.records[1] = replace(state.records[1], data=b"{}")
    found = {done.thread: done for done in copy(source, target).threads}
    assert (found["t"].outcome, found["u"].outcome) == ("damaged", "copied")
    assert "record 2" in (found["t"].reason or "")
    assert target.read("t") == [], "not even the part of the batch before it"


def test_a_fork_of_a_damaged_thread_is_not_said_to_meet_another_thread(
    two: tuple[Engine, Engine],
) -> None:
    source, target = two
    source.create(thread("t"))
    source.create(thread("u"))
    grow(source, "t", "a", "b")
    grow(source, "u", "c")
    fork_of(source, "t", "a", "f")
    grow(source, "f", "d")
    fork_of(source, "f", "d", "g")
    state = source._threads["t"]  # type: ignore[attr-defined]
    state.records[1] = replace(state.records[1], data=b"{}")
    found = {done.thread: done for done in copy(source, target).threads}
    assert [found[id].outcome for id in "tufg"] == ["damaged", "copied", "blocked", "blocked"]
    reasons = {id: found[id].reason or "" for id in "tfg"}
    assert reasons["t"].endswith("0 of its 2 records were copied")
    for id in "fg":
        assert reasons[id].startswith("it was forked from 't', which was not copied to the end")
        assert "record 2: its body does not match its hash" in reasons[id]
        assert reasons[id].endswith("nothing of it was copied")


def test_a_thread_that_stops_half_way_is_said_to_be_there_in_part(
    two: tuple[Engine, Engine],
) -> None:
    source, target = two
    source.create(thread("t"))
    grow(source, "t", *(f"e{n}" for n in range(700)))
    state = source._threads["t"]  # type: ignore[attr-defined]
    state.records[600] = replace(state.records[600], data=b"{}")
    (done,) = copy(source, target).threads
    assert (done.outcome, done.records) == ("damaged", 500)
    assert (done.reason or "").endswith("500 of its 700 records were copied")
    (again,) = copy(source, target).threads
    assert (again.outcome, again.records) == ("damaged", 0)
    assert (again.reason or "").endswith("records added to what the target had: 0")


@pytest.mark.parametrize("what", ["no header", "nothing", "a bad first line", "a newer format"])
def test_a_thread_of_which_nothing_can_be_read_is_not_said_to_be_copied(
    what: str, tmp_path: Path
) -> None:
    """Without an index it is not known how much it had: that is not the same as nothing."""
    with clew.open(f"files:{tmp_path / 'from'}") as store:
        for id in ("lost", "kept"):
            store.create(id).append("event", "said")
    file = tmp_path / "from" / "threads" / "lost.jsonl"
    whole = file.read_bytes()
    damaged = {
        "no header": b"garbage\n",
        "nothing": b"",
        "a bad first line": whole.replace(b'"said"', b'"gone"'),
        "a newer format": whole.replace(b'"version":1', b'"version":9'),
    }
    file.write_bytes(damaged[what])
    shutil.rmtree(tmp_path / "from" / "index")
    target = MemoryEngine()
    with clew.open(f"files:{tmp_path / 'from'}") as store:
        found = {done.thread: done for done in copy(store.engine, target).threads}
        assert (found["lost"].outcome, found["kept"].outcome) == ("damaged", "copied")
        assert (found["lost"].reason or "").endswith("nothing of it was copied")
        with pytest.raises(NotFound):
            target.thread("lost")
    with pytest.raises(Corrupt, match="'lost'"):
        backup(f"files:{tmp_path / 'from'}", tmp_path / "backup.db")
    assert not (tmp_path / "backup.db").exists()
    file.write_bytes(whole)
    with clew.open(f"files:{tmp_path / 'from'}") as store:
        outcomes = {done.thread: done.outcome for done in copy(store.engine, target).threads}
    assert outcomes == {"lost": "copied", "kept": "same"}, "nothing is in its way"


def test_a_missing_origin_stops_its_forks_and_no_other_thread(tmp_path: Path) -> None:
    with clew.open(f"files:{tmp_path / 'from'}") as store:
        store.create("t").append("event", 1, id="a")
        store.get("t").fork(at="a", id="f").fork(at="a", id="g")
        store.create("u").append("event", 2)
    (tmp_path / "from" / "threads" / "t.jsonl").unlink()
    with clew.open(f"files:{tmp_path / 'from'}") as store, clew.open("memory:") as other:
        found = {done.thread: done for done in store.copy_to(other).threads}
        assert {id: done.outcome for id, done in found.items()} == {
            "u": "copied",
            "f": "damaged",
            "g": "damaged",
        }
        for id in "fg":
            assert "its file is not there; nothing of it was copied" in (found[id].reason or "")
        assert [info.id for info in other.threads()] == ["u"]


def test_a_writer_in_between_makes_it_a_branch(two: tuple[Engine, Engine]) -> None:
    source, target = two
    source.create(thread("t"))
    grow(source, "t", *(f"e{n}" for n in range(3)))
    copy(source, target)
    grow(source, "t", "s")
    meddler = Meddling(target, lambda: grow(target, "t", "mine"))
    (done,) = copy(source, meddler).threads
    assert done.outcome == "diverged"
    assert target.thread("t").leaf == "mine"
    assert ids(target.path("t", "s")) == ["e0", "e1", "e2", "s"]
    whole(target)


# --- interrupted at every write ---


class Interrupted(Exception):
    pass


class Wrapper:
    def __init__(self, inner: Engine) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Counting(Wrapper):
    records = 0

    def read(self, *args: Any, **options: Any) -> Any:
        found = self._inner.read(*args, **options)
        self.records += len(found)
        return found


class Meddling(Wrapper):
    """Somebody else writes, once, just before the first append."""

    def __init__(self, inner: Engine, meddle: Any) -> None:
        super().__init__(inner)
        self._meddle = meddle

    def append(self, *args: Any, **options: Any) -> Any:
        meddle, self._meddle = self._meddle, lambda: None
        meddle()
        return self._inner.append(*args, **options)


class Failing(Wrapper):
    """Stops at the n-th write: before it, or after it has happened."""

    def __init__(self, inner: Engine, n: int, *, before: bool) -> None:
        super().__init__(inner)
        self._left = n
        self._before = before

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if name not in ("append", "create", "purge", "put_blobs"):
            return found

        def call(*args: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left == 0 and self._before:
                raise Interrupted
            answer = found(*args, **options)
            if self._left == 0:
                raise Interrupted
            if self._left < 0:
                raise Interrupted  # a dead process does not clean up either
            return answer

        return call


@pytest.mark.parametrize("before", [True, False])
def test_a_copy_that_stopped_at_any_write_goes_on(
    before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clew.upkeep.transfer.BATCH_RECORDS", 2)
    source = MemoryEngine()
    a_story(source)
    source.create(thread("gone"))
    grow(source, "gone", "p", "q", "r")
    source.append("gone", [move("mm", "p"), entry("s")])
    fork_of(source, "gone", "s", "orphan")
    fork_of(source, "orphan", "p", "orphan2")
    source.purge("gone")
    expected = picture(source)
    for n in itertools.count(1):
        target = MemoryEngine()
        try:
            copy(source, Failing(target, n, before=before))
            break
        except Interrupted:
            pass
        assert copy(source, target).complete
        assert picture(target) == expected, f"stopped at write {n}"
        assert not target.threads(ThreadQuery(parent=MARK)).items
    assert n > 20


# --- random histories ---


class Historian:
    """Does random things to an engine, from a fixed seed."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self.engine = engine
        self._random = random.Random(seed)
        self._names = itertools.count()

    def _new(self, what: str) -> str:
        return f"{what}{next(self._names)}"

    def step(self) -> None:
        threads = list(everything(self.engine))
        act = self._random.choice(
            [
                "create",
                "append",
                "append",
                "append",
                "move",
                "fact",
                "fork",
                "fork",
                "delete",
                "purge",
                "again",
            ]
        )
        if not threads or act == "create":
            time_us = T0 + next(self._names)
            self.engine.create(thread(self._new("t"), at=time_us, facts={"status": "new"}))
            return
        info = self._random.choice(threads)
        try:
            getattr(self, f"_{act}")(info.id)
        except ClewError:
            pass  # deleted, or nothing there to move to

    def _visible(self, name: str) -> list[str | None]:
        own = [r.id for r in self.engine.read(name) if isinstance(r, Entry)]
        return [None, *own, *ids(self.engine.path(name))]

    def _append(self, name: str) -> None:
        count = self._random.randint(1, 3)
        self.engine.append(name, [entry(self._new("e"), {"n": n}) for n in range(count)])

    def _move(self, name: str) -> None:
        leaf = self._random.choice(self._visible(name))
        self.engine.append(name, [move(self._new("m"), leaf)])

    def _fact(self, name: str) -> None:
        key = self._random.choice(["title", "archived", "own"])
        value = {"title": "x", "archived": self._random.random() < 0.5, "own": {"k": 1}}[key]
        self.engine.append(name, drafts.facts({key: value}, T0))

    def _fork(self, name: str) -> None:
        at = self._random.choice(self._visible(name))
        self._fork_at(name, at, self._new("f"))

    def _fork_at(self, source: str, at: str | None, id: str) -> None:
        hash = None if at is None else self.engine.path(source, at, limit=1)[0].hash
        time_us = T0 + next(self._names)
        self.engine.create(thread(id, at=time_us, origin=Origin(source, at, hash)))

    def _delete(self, name: str) -> None:
        deleted = self.engine.thread(name).deleted_at is not None
        self.engine.append(name, drafts.facts({"deleted_us": None if deleted else T0}, T0))

    def _purge(self, name: str) -> None:
        self.engine.purge(name)

    def _again(self, name: str) -> None:
        """Purge it, and give its id to another thread, perhaps a fork of its own fork."""
        self.engine.purge(name)
        others = [info.id for info in everything(self.engine)]
        if others and self._random.random() < 0.7:
            other = self._random.choice(others)
            self._fork_at(other, self._random.choice(self._visible(other)), name)
        else:
            self.engine.create(thread(name, at=T0 + next(self._names)))


@settings(max_examples=amount(50, 150))
@given(seed=st.integers(0, 2**32), length=st.integers(5, 60), more=st.integers(0, 20))
def test_any_history_is_copied_and_continued(seed: int, length: int, more: int) -> None:
    source, target = MemoryEngine(), MemoryEngine()
    historian = Historian(source, seed)
    for _ in range(length):
        historian.step()
    assert copy(source, target).complete
    assert picture(target) == picture(source)
    assert copy(source, target).records == 0
    onward = MemoryEngine()
    assert copy(target, onward).complete
    assert picture(onward) == picture(source)
    for _ in range(more):
        historian.step()
    report = copy(source, target)
    expected = picture(source)
    found = picture(target)
    for done in report.threads:
        if done.complete:
            assert found[done.thread] == expected[done.thread]
        else:
            assert done.outcome in ("unrelated", "blocked")
    assert copy(source, target).records == 0


@pytest.mark.usefixtures("postgres_places")
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32), length=st.integers(20, 60))
def test_any_history_goes_through_a_durable_engine_and_back(
    tmp_path_factory: pytest.TempPathFactory, seed: int, length: int
) -> None:
    source = MemoryEngine()
    historian = Historian(source, seed)
    for _ in range(length):
        historian.step()
    for name in PLACES:
        place = PLACES[name](tmp_path_factory.mktemp(name))
        there, back = place.open(), MemoryEngine()
        assert copy(source, there).complete
        assert picture(there) == picture(source)
        whole(there)
        assert copy(there, back).complete
        assert picture(back) == picture(source)
        place.close()


def test_progress_ends_where_it_said_it_would(two: tuple[Engine, Engine]) -> None:
    source, target = two
    a_story(source)
    told: list[tuple[int, int]] = []
    copy(source, target, progress=lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    total = sum(info.seq for info in everything(source))
    assert told[-1] == (total, total)


def test_the_asynchronous_side_copies_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            await clew.open_async(tmp_path / "a.db") as source,
            await clew.open_async(tmp_path / "b.db") as target,
        ):
            await (await source.create("t")).append("event", 1)
            assert (await source.copy_to(target)).records == 1
            assert await target.verify(quick=True) == []

    anyio.run(story)
