"""Erasing: a body goes for good, its entry stays, and everything that hangs on it."""

from __future__ import annotations

from typing import Any

from clew.core.codec import decode
from clew.core.engine import Engine
from clew.core.errors import Conflict, InvalidInput, NotFound
from clew.core.model import Acquire, Entry, EntryDraft, Fact, FactDraft
from clew.core.tombstones import PREFIX
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

SECRET = {"role": "user", "content": "the key is 1234"}
LARGE = {"role": "assistant", "content": "the key is 1234 " * 1_000}


def _fill(engine: Engine) -> list[str]:
    """A thread with a small and a large body in it; the hashes of its entries."""
    engine.create(thread())
    small = entry("a", SECRET, format="anthropic", meta={"user": "ada"}, turn="one")
    engine.append("t", [small, entry("b", LARGE, kind="assistant_message"), entry("c", {"n": 1})])
    return [found.hash for found in engine.path("t")]


def _entry(engine: Engine, id: str, name: str = "t") -> Entry:
    return engine.path(name, id, limit=1)[0]


@CASES
def what_is_erased_is_gone_and_its_place_stays(place: Place) -> None:
    engine = place.open()
    hashes = _fill(engine)
    before = engine.path("t")
    erased = engine.erase("t", ["a", "b"], time_us=T0 + 9, reason="a key")
    assert [one.entry for one in erased] == ["a", "b"]
    assert [one.body_hash for one in erased] == [one.body_hash for one in before[:2]]
    assert [one.hash for one in erased] == hashes[:2]
    assert (erased[0].meta_hash is None, erased[1].meta_hash) == (False, None)
    assert erased[1].size_bytes == len(before[1].data)
    engine = place.reopen(engine)
    found = engine.path("t")
    assert [one.hash for one in found] == hashes
    assert [one.body for one in found] == [
        {"role": "user", "content": "[erased]"},
        {"role": "assistant", "content": "[erased]"},
        {"n": 1},
    ]
    assert [(one.meta, one.format, one.turn) for one in found[:2]] == [
        ({}, None, "one"),
        ({}, None, None),
    ]
    assert found[0].tombstone is not None
    assert (found[0].tombstone.time_us, found[0].tombstone.format) == (T0 + 9, "anthropic")
    assert found[2].tombstone is None
    assert engine.read("t", limit=3) == found
    whole(engine)
    assert not list(engine.check(quick=True))


@CASES
def the_log_tells_of_an_erasure(place: Place) -> None:
    engine = place.open()
    _fill(engine)
    info = engine.thread("t")
    engine.erase("t", ["a"], time_us=T0 + 9, reason="a key")
    assert engine.wait("t", after=info.seq, timeout_seconds=0)
    (told,) = engine.read("t", after=info.seq)
    assert isinstance(told, Fact)
    assert told.key == PREFIX + "a"
    said = {key: told.value[key] for key in ("time_us", "reason", "body_hash")}
    body_hash = _entry(engine, "a").body_hash
    assert said == {"time_us": T0 + 9, "reason": "a key", "body_hash": body_hash}
    now = engine.thread("t")
    assert (now.seq, now.leaf, now.updated_us) == (info.seq + 1, info.leaf, info.updated_us)
    grow(engine, "t", "d")  # the thread goes on from where it stood
    engine = place.reopen(engine)
    assert ids(engine.path("t")) == ["a", "b", "c", "d"]
    assert decode(engine.thread("t").fact_data[PREFIX + "a"]) == told.value
    whole(engine)


@CASES
def erasing_again_changes_nothing(place: Place) -> None:
    engine = place.open()
    _fill(engine)
    first = engine.erase("t", ["a", "a", "b"], time_us=T0 + 1, reason="one")
    seq = engine.thread("t").seq
    assert [one.entry for one in first] == ["a", "b"]
    assert engine.erase("t", ["b", "a"], time_us=T0 + 2, reason="two") == first[::-1]
    assert engine.thread("t").seq == seq
    assert engine.erase("t", [], time_us=T0) == []
    whole(place.reopen(engine))


@CASES
def one_that_is_not_there_keeps_all_from_being_erased(place: Place) -> None:
    engine = place.open()
    _fill(engine)
    engine.append("t", [move("m", "a"), *_fact("status", b'"busy"')])
    for id in ("nobody", "m", "status"):
        with refused(NotFound) as caught:
            engine.erase("t", ["a", id], time_us=T0)
        assert (caught[0].what, caught[0].id) == ("entry", id)
    assert _entry(engine, "a").body == SECRET
    whole(engine)


def _fact(key: str, data: bytes) -> list[FactDraft]:
    return [FactDraft(id=key, key=key, data=data, time_us=T0)]


@CASES
def a_retry_finds_what_was_erased_by_its_hash(place: Place) -> None:
    engine = place.open()
    _fill(engine)
    small = entry("a", SECRET, format="anthropic", meta={"user": "ada"}, turn="one")
    engine.erase("t", ["a", "b"], time_us=T0)
    seq = engine.thread("t").seq
    (stored,) = engine.append("t", [small])
    assert isinstance(stored, Entry)
    assert stored.tombstone is not None
    assert engine.append("t", [entry("b", LARGE, kind="assistant_message")])[0].seq == 2
    assert engine.thread("t").seq == seq
    changed: list[tuple[str, dict[str, Any]]] = [
        ("body", {"body": {"role": "user", "content": "[erased]"}}),
        ("format", {"body": SECRET, "format": "gemini"}),
        ("meta", {"body": SECRET, "meta": {"user": "bob"}}),
    ]
    for field, fields in changed:
        with refused(Conflict) as caught:
            engine.append("t", [entry("a", **fields)])
        assert caught[0].field == field
    whole(place.reopen(engine))


@CASES
def what_was_erased_elsewhere_is_taken_over_as_such(place: Place) -> None:
    """A copy has no bodies to give, only what their hashes were, and the chain is the same."""
    engine = place.open()
    hashes = _fill(engine)
    engine.erase("t", ["a", "b"], time_us=T0 + 9)
    copied = [
        EntryDraft(
            id=one.id,
            kind=one.kind,
            data=one.data,
            time_us=one.time_us,
            parent=one.parent,
            turn=one.turn,
            whole=True,
            tombstone=one.tombstone,
            known_hash=one.body_hash,
        )
        for one in engine.path("t")
    ]
    engine.create(thread("copy"))
    engine.append("copy", copied)
    engine = place.reopen(engine)
    assert [one.hash for one in engine.path("copy")] == hashes
    assert [one.tombstone for one in engine.path("copy")] == [
        one.tombstone for one in engine.path("t")
    ]
    assert engine.append("copy", copied)[0].seq == 1  # a retry
    whole(engine)


@CASES
def what_forks_share_is_erased_for_all_of_them(place: Place) -> None:
    engine = place.open()
    hashes = _fill(engine)
    fork_of(engine, "t", "b", "f")
    fork_of(engine, "f", "b", "g")
    grow(engine, "g", "d")
    (erased,) = engine.erase("g", ["b"], time_us=T0 + 1)
    assert (erased.thread, erased.recorded) == ("t", True)
    assert [engine.thread(name).seq for name in "tfg"] == [4, 0, 1]
    engine = place.reopen(engine)
    for name in "tfg":
        assert _entry(engine, "b", name).tombstone is not None
    assert [one.hash for one in engine.path("f")] == hashes[:2]
    fork_of(engine, "t", "b", "h")
    whole(engine)


@CASES
def a_tombstone_outlives_the_thread(place: Place) -> None:
    engine = place.open()
    hashes = _fill(engine)
    fork_of(engine, "t", "c", "f")
    engine.erase("t", ["a"], time_us=T0 + 1)
    engine.purge("t")
    assert _entry(engine, "a", "f").tombstone is not None
    whole(engine)
    # What is left of a purged thread can be erased as well, though there is no log to tell of it.
    (erased,) = engine.erase("f", ["b"], time_us=T0 + 2)
    assert (erased.thread, erased.recorded) == ("t", False)
    engine = place.reopen(engine)
    assert [one.tombstone is None for one in engine.path("f")] == [False, False, True]
    assert [one.hash for one in engine.path("f")] == hashes
    assert engine.thread("f").seq == 0
    whole(engine)
    engine.create(thread("t"))  # another one of that id has nothing to do with it
    engine.erase("f", ["c"], time_us=T0 + 3)
    assert engine.thread("t").seq == 0
    engine.purge("f")
    assert engine.stats().records == 0
    whole(engine)


@CASES
def neither_a_lease_nor_a_deletion_is_in_the_way(place: Place) -> None:
    engine = place.open()
    _fill(engine)
    lease = engine.lease("t", Acquire("other", 600.0))
    assert lease is not None
    engine.erase("t", ["a"], time_us=T0)
    engine.append("t", [entry("d")], expect="c", fence=lease.fence)
    engine.append("t", _fact("deleted_us", b"1"))
    engine.erase("t", ["b"], time_us=T0)
    engine = place.reopen(engine)
    assert [one.tombstone is None for one in engine.path("t")] == [False, False, True, True]
    assert engine.thread("t").deleted_at is not None
    whole(engine)


@CASES
def a_large_body_stays_for_others_that_have_it(place: Place) -> None:
    engine = place.open()
    _fill(engine)
    engine.create(thread("u"))
    engine.append("u", [entry("x", LARGE, kind="assistant_message")])
    hash = _entry(engine, "b").body_hash
    engine.erase("t", ["b"], time_us=T0)
    assert _entry(engine, "x", "u").body == LARGE
    engine.erase("u", ["x"], time_us=T0)
    engine = place.reopen(engine)
    assert not engine.has_blobs([hash])
    whole(engine)


@CASES
def blobs_that_it_names_are_left_to_the_sweep(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    mine, shared = engine.put_blobs([b"mine", b"shared"])
    engine.append("t", [entry("a", SECRET, blobs=[mine, shared]), entry("b", blobs=[shared])])
    (erased,) = engine.erase("t", ["a"], time_us=T0)
    assert erased.blobs == (mine, shared)
    assert engine.sweep(grace_seconds=0).blobs == 1
    assert engine.has_blobs([mine, shared]) == {shared}
    engine = place.reopen(engine)
    assert _entry(engine, "a").blobs == (mine, shared)
    whole(engine)


@CASES
def only_an_erasure_may_say_that_something_was_erased(place: Place) -> None:
    engine = place.open()
    _fill(engine)
    with refused(InvalidInput):
        engine.append("t", [*_fact(PREFIX + "a", b"true")])
    engine.erase("t", ["a"], time_us=T0)
    engine.append("t", [*_fact(PREFIX + "a", b"true")])
    with refused(InvalidInput):
        engine.append("t", [FactDraft(id="x", key=PREFIX + "b", data=b"null", time_us=T0)])
    whole(engine)


@CASES
def what_holds_a_thread_together_stays(place: Place) -> None:
    engine = place.open()
    engine.create(thread())
    marker = {"status": "completed", "usage": {"replies": 1}, "changes": ["/home/ada"]}
    summary = {"summary": "ada said", "first_kept_entry_id": "a", "generation": 2}
    engine.append(
        "t",
        [
            entry("a", SECRET),
            entry("m", marker, kind="turn_marker"),
            entry("s", summary, kind="compaction"),
            entry("x", {"call_id": "1", "output": "ada"}, kind="tool_result"),
        ],
    )
    engine.erase("t", ["m", "s", "x"], time_us=T0)
    engine = place.reopen(engine)
    assert [one.body for one in engine.path("t", after="a")] == [
        {"status": "completed", "erased": True},
        {"generation": 2, "first_kept_entry_id": "a", "summary": "[erased]", "erased": True},
        {"erased": True},
    ]
    whole(engine)
