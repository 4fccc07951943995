"""Appending: atomic, idempotent, in order, compared and set."""

from __future__ import annotations

import threading
from typing import Any

from msgspec.structs import replace

from clew.core import drafts
from clew.core.engine import PAGE_BYTES, pages
from clew.core.errors import Conflict, InvalidInput, NotFound
from clew.core.model import Draft, Entry, Fact, Move
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
    whole,
)

CASES = Cases()


@CASES
def an_append_survives_reopening(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    draft = entry("a", {"x": 1}, turn="turn-1", format="plain", meta={"model": "m"}, at=T0 + 7)
    written = engine.append("t", [draft])[0]
    engine = place.reopen(engine)
    found = engine.path("t")[0]
    assert found == written
    assert isinstance(found, Entry)
    assert (found.id, found.thread, found.parent, found.seq) == ("a", "t", None, 1)
    assert (found.kind, found.body, found.meta) == ("user_message", {"x": 1}, {"model": "m"})
    assert (found.turn, found.format, found.time_us) == ("turn-1", "plain", T0 + 7)
    info = engine.thread("t")
    assert (info.leaf, info.seq, info.updated_us) == ("a", 1, T0 + 7)
    whole(engine)


@CASES
def hashes_are_chained_to_the_parent(place: Place) -> None:
    engine = place.open()
    for name in ("t", "u"):
        engine.create(thread(name))
    grow(engine, "t", "a", "b")
    engine.append("u", [entry("a", {"n": "other"}), entry("b", {"n": "b"})])
    t, u = engine.path("t"), engine.path("u")
    assert t[1].data == u[1].data
    assert t[1].hash != u[1].hash, "the same entry on another history has another hash"
    assert all(e.hash.startswith("b3:") for e in t + u)


@CASES
def a_batch_is_all_or_nothing(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    grow(engine, "t", "a")
    before = engine.thread("t")
    with refused(InvalidInput):
        engine.append("t", [entry("b"), entry("c"), entry("d", parent="nobody")])
    with refused(Conflict):
        engine.append("t", [entry("b"), entry("a", {"n": "changed"})])
    with refused(Conflict):
        engine.append("t", [entry("b", 1), entry("b", 2)])
    engine = place.reopen(engine)
    assert engine.thread("t") == before
    assert ids(engine.read("t")) == ["a"]
    written = engine.append("t", [entry("b"), entry("c")])
    assert [(r.seq, r.id) for r in written] == [(2, "b"), (3, "c")]
    whole(engine)


@CASES
def an_empty_batch_is_nothing(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    assert engine.append("t", []) == []
    assert engine.thread("t").seq == 0


@CASES
def a_retry_writes_nothing_twice(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    batch: list[Draft] = [entry("a", 1), entry("b", 2), *drafts.facts({"k": 1}, T0), move("m", "a")]
    first = engine.append("t", batch, expect=None)
    engine = place.reopen(engine)
    assert engine.append("t", batch, expect=None) == first, "although the leaf is elsewhere now"
    later = entry("a", 1, at=T0 + 999)
    assert engine.append("t", [later]) == first[:1], "the time of a retry does not count"
    assert engine.thread("t").seq == 4


@CASES
def a_retry_in_another_turn_gives_what_is_stored(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    first = engine.append("t", [entry("a", 1, turn=drafts.ImpliedTurn("one")), entry("b", 2)])
    assert isinstance(first[0], Entry)
    assert (first[0].turn, type(first[0].turn)) == ("one", str)
    engine = place.reopen(engine)
    assert engine.append("t", [entry("a", 1, turn=drafts.ImpliedTurn("two"))]) == first[:1]
    assert engine.append("t", [entry("b", 2, turn=drafts.ImpliedTurn("two"))]) == first[1:]
    assert engine.append("t", [entry("a", 1)]) == first[:1], "without any turn"
    assert engine.append("t", [entry("a", 1, turn="one")]) == first[:1], "with the same one, said"
    with refused(Conflict) as caught:
        engine.append("t", [entry("a", 1, turn="two")])
    assert caught[0].field == "turn", "a turn that the caller says counts"
    assert engine.thread("t").seq == 2
    assert place.reopen(engine).path("t") == first


@CASES
def a_retry_is_compared_by_what_its_caller_says(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    (blob,) = engine.put_blobs([b"bytes"])
    said: dict[str, Any] = {
        "turn": "one",
        "format": "plain",
        "meta": {"model": "m"},
        "blobs": [blob],
    }
    first = engine.append("t", [entry("a", 1, parent=None, **said), entry("bare", 2)])
    engine = place.reopen(engine)
    less: list[dict[str, Any]] = [{}, {"meta": {}}, {"blobs": []}]
    for fields in (*less, said, *({key: said[key]} for key in said)):
        assert engine.append("t", [entry("a", 1, **fields)]) == first[:1], fields
    for key, value in said.items():
        with refused(Conflict) as caught:
            engine.append("t", [entry("bare", 2, **{key: value})])
        assert caught[0].field == key
    assert engine.thread("t").seq == 2


@CASES
def an_empty_meta_is_none(place: Place) -> None:
    engine = place.open()
    for name, meta in (("none", None), ("empty", {})):
        engine.create(thread(name))
        engine.append(name, [entry("a", 1, meta=meta)])
    engine = place.reopen(engine)
    none, empty = engine.path("none")[0], engine.path("empty")[0]
    assert (none.hash, none.meta_data, none.meta) == (empty.hash, empty.meta_data, empty.meta)
    whole(engine)


@CASES
def a_whole_record_is_compared_in_everything(place: Place) -> None:
    """A copy says all that a record has, and what it lacks: it must notice another record."""
    engine = place.open()
    engine.create(thread())
    (blob,) = engine.put_blobs([b"bytes"])
    said: dict[str, Any] = {
        "turn": "one",
        "format": "plain",
        "meta": {"model": "m"},
        "blobs": [blob],
    }
    stored = engine.append("t", [entry("a", 1, **said), entry("b", 2, turn="one")])
    engine = place.reopen(engine)
    exact = [replace(entry("a", 1, parent=None, **said), whole=True)]
    assert engine.append("t", exact) == stored[:1]
    for key in said:
        less = {other: value for other, value in said.items() if other != key}
        with refused(Conflict) as caught:
            engine.append("t", [replace(entry("a", 1, **less), whole=True), entry("new")])
        assert caught[0].field == key
    assert engine.thread("t").seq == 2, "nothing of a refused batch is written"


@CASES
def the_same_id_with_other_content_is_a_conflict(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    (blob,) = engine.put_blobs([b"bytes"])
    grow(engine, "t", "root", "a")
    fact = drafts.facts({"k": 1}, T0)[0]
    engine.append("t", [fact, move("m", "a")])
    for field, other in (
        ("body", entry("a", {"n": "x"})),
        ("kind", entry("a", {"n": "a"}, kind="assistant_message")),
        ("turn", entry("a", {"n": "a"}, turn="other")),
        ("format", entry("a", {"n": "a"}, format="other")),
        ("meta", entry("a", {"n": "a"}, meta={"x": 1})),
        ("blobs", entry("a", {"n": "a"}, blobs=[blob])),
        ("parent", entry("a", {"n": "a"}, parent=None)),
        ("type", entry("m")),
        ("leaf", move("m", "root")),
        ("type", move("a", "root")),
        ("type", entry(fact.id)),
        ("value", replace(fact, data=b"2")),
        ("key", replace(fact, key="other")),
    ):
        with refused(Conflict) as caught:
            engine.append("t", [other])
        assert caught[0].field == field, other
        assert field in str(caught[0])
        assert caught[0].expected == other
        assert caught[0].actual.id == other.id
    assert engine.append("t", [entry("a", {"n": "a"}, parent="root")])[0].seq == 2
    assert place.reopen(engine).thread("t").seq == 4


@CASES
def a_mixed_batch_goes_on_from_what_is_stored(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    grow(engine, "t", "a", "b")
    engine.append("t", [entry("a", {"n": "a"}), entry("c")])
    engine = place.reopen(engine)
    assert ids(engine.path("t")) == ["a", "c"]
    assert engine.thread("t").leaf == "c"
    whole(engine)


@CASES
def a_fork_knows_the_ids_that_it_inherited(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    grow(engine, "t", "a", "b")
    fork_of(engine, "t", "a")
    assert engine.append("f", [entry("a", {"n": "a"})])[0].thread == "t"
    with refused(Conflict):
        engine.append("f", [entry("a", {"n": "changed"})])
    assert engine.append("f", [entry("b", {"n": "mine"})])[0].thread == "f", "not on its path"
    engine = place.reopen(engine)
    assert [e.body for e in engine.path("f")] == [{"n": "a"}, {"n": "mine"}]
    whole(engine)


@CASES
def expect_lets_one_of_two_writers_win(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    engine.append("t", [entry("a")], expect=None)
    with refused(Conflict) as caught:
        engine.append("t", [entry("b")], expect=None)
    assert (caught[0].field, caught[0].expected, caught[0].actual) == ("leaf", None, "a")
    engine.append("t", [entry("c")], expect="a")
    with refused(Conflict):
        engine.append("t", [move("m", None)], expect="a")
    assert ids(place.reopen(engine).path("t")) == ["a", "c"]


@CASES
def concurrent_writers_with_expect_lose_nothing(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    won: list[str] = []

    def write(id: str) -> None:
        try:
            engine.append("t", [entry(id)], expect=None)
            won.append(id)
        except Conflict:
            pass

    writers = [threading.Thread(target=write, args=(f"w{n}",)) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert ids(place.reopen(engine).path("t")) == won
    assert len(won) == 1


@CASES
def a_parent_may_be_chosen(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    grow(engine, "t", "a", "b")
    engine.append("t", [entry("c", parent="a"), entry("d")])
    engine.append("t", [entry("second root", parent=None)])
    engine = place.reopen(engine)
    assert ids(engine.path("t", "d")) == ["a", "c", "d"]
    assert ids(engine.path("t")) == ["second root"]
    for parent in ("nobody", "m"):
        with refused(InvalidInput):
            engine.append("t", [entry("x", parent=parent)])
    whole(engine)


@CASES
def moving_the_leaf_keeps_the_old_branch(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    grow(engine, "t", "a", "b", "c")
    moved = engine.append("t", [move("m", "a", at=T0 + 5)])[0]
    assert isinstance(moved, Move)
    engine = place.reopen(engine)
    assert (engine.thread("t").leaf, engine.thread("t").updated_us) == ("a", T0 + 5)
    grow(engine, "t", "d")
    engine.append("t", [move("m2", None)])
    engine = place.reopen(engine)
    assert (engine.path("t"), engine.thread("t").leaf) == ([], None)
    grow(engine, "t", "root2")
    assert ids(engine.path("t", "c")) == ["a", "b", "c"]
    assert ids(engine.path("t", "d")) == ["a", "d"]
    assert ids(engine.path("t")) == ["root2"]
    for nowhere in ("nobody", "m"):
        with refused(NotFound):
            engine.append("t", [move("m3", nowhere)])
    whole(engine)


@CASES
def a_fork_can_move_along_what_it_inherited(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    grow(engine, "t", "a", "b", "c")
    fork_of(engine, "t", "b")
    engine.append("f", [move("m", "a")])
    grow(engine, "f", "d")
    with refused(NotFound):
        engine.append("f", [move("m2", "c")])
    engine = place.reopen(engine)
    assert ids(engine.path("f")) == ["a", "d"]
    whole(engine)


@CASES
def a_page_is_full_by_its_bytes_however_many_are_asked_for(place: Place) -> None:
    engine = place.open()
    engine.create(thread("t"))
    half = {"text": "a" * (PAGE_BYTES // 2)}
    for id in "abcde":
        engine.append("t", [entry(id, half)])
    engine.append("t", [entry("small")])
    found = [ids(page) for page in pages(engine, "t")]
    assert found == [["a", "b"], ["c", "d"], ["e", "small"]]
    assert ids(engine.read("t", after=4, limit=1)) == ["e"]
    assert engine.read("t", after=6) == []


@CASES
def the_feed_is_complete_and_without_gaps(place: Place) -> None:
    engine = place.open()
    engine.create(thread("t", facts={"status": "new"}))
    grow(engine, "t", "a", "b")
    engine.append("t", [move("m", "a"), *drafts.facts({"status": None}, T0), entry("c")])
    engine = place.reopen(engine)
    feed = engine.read("t")
    assert [r.seq for r in feed] == [1, 2, 3, 4, 5, 6]
    assert [type(r) for r in feed] == [Fact, Entry, Entry, Move, Fact, Entry]
    assert engine.read("t", after=2, limit=3) == feed[2:5]
    assert engine.read("t", after=6) == []


@CASES
def the_feed_has_a_beginning_and_an_end_and_nothing_of_its_neighbours(place: Place) -> None:
    engine = place.open()
    for name in ("before", "t", "behind"):
        engine.create(thread(name))
        grow(engine, name, f"{name}1", f"{name}2")
    engine = place.reopen(engine)
    for after in (0, -1, -2, -(2**33), -(2**70)):
        assert ids(engine.read("t", after=after)) == ["t1", "t2"], after
        assert ids(engine.read("t", after=after, limit=1)) == ["t1"], after
    for after in (2, 3, 2**33, 2**70):
        assert engine.read("t", after=after) == [], after
    with refused(NotFound):
        engine.read("u")


@CASES
def unknown_kinds_are_kept(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    engine.append("t", [entry("a", [1], kind="of.tomorrow"), entry("b", None, kind="Ünïcode kind")])
    assert [e.kind for e in place.reopen(engine).path("t")] == ["of.tomorrow", "Ünïcode kind"]
