"""Paths and the shape of the tree."""

from __future__ import annotations

from clew.core import drafts
from clew.core.errors import InvalidInput, NotFound
from clew.core.model import Segment, ThreadQuery
from clew.testing.cases.base import (
    T0,
    Cases,
    Place,
    entry,
    fork_of,
    grow,
    ids,
    move,
    refused,
    thread,
)

CASES = Cases()


@CASES
def a_path_can_be_cut_at_both_ends(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    names = [f"e{n}" for n in range(20)]
    grow(engine, "t", *names[:8])
    engine.append("t", drafts.facts({"noise": 1}, T0))
    grow(engine, "t", *names[8:])
    engine = place.reopen(engine)
    assert ids(engine.path("t")) == names
    assert ids(engine.path("t", "e9")) == names[:10]
    assert ids(engine.path("t", limit=3)) == names[-3:]
    assert ids(engine.path("t", limit=99)) == names
    assert ids(engine.path("t", after="e15")) == names[16:]
    assert ids(engine.path("t", "e17", after="e5", limit=4)) == names[14:18]
    assert engine.path("t", "e3", after="e3") == []
    assert engine.path("t", None) == []


@CASES
def a_path_that_misses_its_ends_is_not_found(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    grow(engine, "t", "a", "b", "c")
    engine.append("t", [entry("side", parent="a")])
    for leaf, after in (("c", "side"), ("a", "b"), ("c", "nobody"), ("nobody", None), (None, "a")):
        with refused(NotFound):
            engine.path("t", leaf, after=after)
        with refused(NotFound):
            engine.path("t", leaf, after=after, limit=1)


@CASES
def a_limit_below_one_is_refused(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    grow(engine, "t", "a")
    for limit in (0, -1):
        for call in (
            lambda limit=limit: engine.path("t", limit=limit),
            lambda limit=limit: engine.read("t", limit=limit),
            lambda limit=limit: engine.threads(ThreadQuery(limit=limit)),
        ):
            with refused(InvalidInput) as caught:
                call()
            assert caught[0].field == "limit"
    huge = 2**70
    assert ids(engine.path("t", limit=huge)) == ids(engine.read("t", limit=huge)) == ["a"]


@CASES
def a_path_crosses_forks_with_both_ends_cut(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    grow(engine, "t", "a", "b", "c", "d")
    fork_of(engine, "t", "c", "f")
    grow(engine, "f", "x", "y")
    fork_of(engine, "f", "x", "g")
    grow(engine, "g", "z")
    engine = place.reopen(engine)
    assert ids(engine.path("g")) == ["a", "b", "c", "x", "z"]
    assert ids(engine.path("g", limit=3)) == ["c", "x", "z"]
    assert ids(engine.path("g", after="b")) == ["c", "x", "z"]
    assert ids(engine.path("g", "b")) == ["a", "b"]
    assert [e.thread for e in engine.path("g")] == ["t", "t", "t", "f", "g"]
    with refused(NotFound):
        engine.path("g", after="d")


@CASES
def segments_are_the_runs_of_the_tree(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    grow(engine, "t", "a", "b")
    engine.append("t", [move("m", "a"), entry("c"), entry("d")])
    engine.append("t", [entry("e", parent="b")])
    engine = place.reopen(engine)
    assert engine.segments("t") == [
        Segment(None, "a", "b", 1, 2),
        Segment("a", "c", "d", 4, 5),
        Segment("b", "e", "e", 6, 6),
    ]
    fork_of(engine, "t", "d")
    assert engine.segments("f") == []
    grow(engine, "f", "x", "y")
    assert place.reopen(engine).segments("f") == [Segment("d", "x", "y", 1, 2)]


@CASES
def many_small_branches_stay_readable(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    grow(engine, "t", "root")
    batch = []
    for n in range(200):  # a comb: every entry hangs on the one before the last
        parent = "root" if n < 2 else f"e{n - 2}"
        batch.append(entry(f"e{n}", n, parent=parent))
    engine.append("t", batch)
    engine = place.reopen(engine)
    assert ids(engine.path("t")) == ["root", *(f"e{n}" for n in range(1, 200, 2))]
    assert ids(engine.path("t", "e198", limit=2)) == ["e196", "e198"]
