"""Threads: made, found, listed, deleted, forked, purged."""

from __future__ import annotations

from clew.core import drafts
from clew.core.engine import Engine
from clew.core.errors import AlreadyExists, Conflict, NotFound
from clew.core.model import FactDraft, Origin, ThreadQuery
from clew.testing.cases.base import (
    T0,
    Cases,
    Place,
    entry,
    fork_of,
    grow,
    ids,
    refused,
    thread,
    whole,
)

CASES = Cases()


def fact(key: str, value: object, at: int = T0) -> tuple[FactDraft, ...]:
    return drafts.facts({key: value}, at)


def listed(engine: Engine, **query: object) -> list[str]:
    return [info.id for info in engine.threads(ThreadQuery(**query)).items]  # type: ignore[arg-type]


@CASES
def a_created_thread_survives_reopening(place: Place) -> None:
    engine = place.open()
    made = engine.create(thread("t", parent="p", facts={"title": "Hello", "tags": ["a", "b"]}))
    engine = place.reopen(engine)
    info = engine.thread("t")
    assert info == made
    assert (info.id, info.parent, info.leaf, info.origin) == ("t", "p", None, None)
    assert (info.created_us, info.updated_us, info.seq) == (T0, T0, 2)
    assert info.title is not None
    assert (info.title.text, info.tags) == ("Hello", ("a", "b"))
    whole(engine)


@CASES
def creating_again_returns_what_is_there(place: Place) -> None:
    engine = place.open()
    draft = thread("t", facts={"status": "open"})
    made = engine.create(draft)
    assert engine.create(draft) == made
    assert place.reopen(engine).create(draft) == made


@CASES
def creating_again_with_other_facts_is_refused(place: Place) -> None:
    engine = place.open()
    engine.create(thread("t", facts={"status": "open"}))
    grow(engine, "t", "a")
    assert engine.create(thread("t", facts={"status": "open"})).seq == 2, "the same facts anew"
    for facts in ({"status": "shut"}, {"status": "open", "more": 1}):
        with refused(AlreadyExists):
            engine.create(thread("t", facts=facts))
    assert place.reopen(engine).thread("t").status == "open"


@CASES
def creating_over_another_thread_is_refused(place: Place) -> None:
    engine = place.open()
    made = engine.create(thread("t"))
    with refused(AlreadyExists):
        engine.create(thread("t", at=T0 + 1))
    engine.append("t", fact("deleted_us", T0))
    with refused(AlreadyExists) as caught:
        engine.create(thread("t", at=T0 + 1))
    assert caught[0].deleted_at is not None
    assert engine.thread("t").created_us == made.created_us


@CASES
def what_is_not_there_is_not_found(place: Place) -> None:
    engine = place.open()
    engine.create(thread("t"))
    for call in (
        lambda: engine.thread("x"),
        lambda: engine.append("x", [entry("a")]),
        lambda: engine.read("x"),
        lambda: engine.path("x"),
        lambda: engine.segments("x"),
        lambda: engine.purge("x"),
        lambda: engine.erase("x", ["a"], time_us=T0),
        lambda: engine.erase("t", ["nobody"], time_us=T0),
        lambda: engine.wait("x", after=0, timeout_seconds=0),
        lambda: engine.path("t", "nobody"),
        lambda: engine.create(thread("f", origin=Origin("x", None, None))),
        lambda: engine.create(thread("f", origin=Origin("t", "nobody", "b3:0"))),
    ):
        with refused(NotFound):
            call()
    assert listed(place.reopen(engine)) == ["t"]


@CASES
def ids_that_look_alike_are_different_threads(place: Place) -> None:
    engine = place.open()
    names = [
        "a",
        "A",
        " a",
        "a ",
        "a/b",
        "a_b",
        "a:b",
        "../a",
        ".",
        "\u00e9",
        "e\u0301",
        "%",
        "x" * 512,
    ]
    for name in names:
        engine.create(thread(name))
        engine.append(name, [entry("e", {"in": name})])
    engine = place.reopen(engine)
    for name in names:
        assert [e.body for e in engine.path(name)] == [{"in": name}]
    assert sorted(listed(engine)) == sorted(names)
    whole(engine)


@CASES
def lists_are_ordered_and_paged_without_loss(place: Place) -> None:
    engine = place.open()
    for n in range(10):
        engine.create(thread(f"t{n}", at=T0 + n // 2))  # pairs of the same time: the id decides
    for n in (3, 7):
        engine.append(f"t{n}", [entry("e", at=T0 + 100 + n)])
    engine = place.reopen(engine)
    created = ["t8", "t9", "t6", "t7", "t4", "t5", "t2", "t3", "t0", "t1"]
    assert listed(engine) == created
    assert listed(engine, order="updated")[:3] == ["t7", "t3", "t8"]
    seen: list[str] = []
    cursor = None
    while True:
        page = engine.threads(ThreadQuery(limit=3, cursor=cursor))
        seen += [info.id for info in page.items]
        if page.cursor is None:
            break
        last = page.items[-1]
        cursor = (last.created_us, last.id)
        # New threads between two pages neither shift nor repeat the rest.
        engine.create(thread(f"new{len(seen)}", at=T0 + 1000))
    assert seen == created


@CASES
def listing_changes_nothing_that_can_be_read(place: Place) -> None:
    """An engine may put its index in order meanwhile."""
    engine = place.open()
    for n in range(5):
        engine.create(thread(f"t{n}", at=T0 + n))
        engine.append(f"t{n}", [entry("a", at=T0 + 10 - n)])
    before = [engine.thread(f"t{n}") for n in range(5)]
    counted = engine.stats().records
    for _ in range(2):
        assert listed(engine, order="updated") == [f"t{n}" for n in range(5)]
    assert [engine.thread(f"t{n}") for n in range(5)] == before
    assert engine.stats().records == counted
    assert not engine.wait("t0", after=1, timeout_seconds=0)


@CASES
def lists_filter(place: Place) -> None:
    engine = place.open()
    engine.create(thread("plain", at=T0))
    engine.create(thread("filed", at=T0 + 1, facts={"archived": True, "tags": ["x"]}))
    engine.create(thread("tagged", at=T0 + 2, facts={"tags": ["x", "y"], "status": "busy"}))
    engine.create(thread("child", at=T0 + 3, parent="plain", facts={"workspace": "/w"}))
    engine.create(thread("gone", at=T0 + 4, facts={"tags": ["x"]}))
    engine.append("gone", fact("deleted_us", T0))
    fork_of(engine, "plain", None, "fork")
    engine = place.reopen(engine)
    assert listed(engine) == ["child", "tagged", "fork", "plain"]
    assert listed(engine, archived=True) == ["filed"]
    assert listed(engine, archived=None) == ["child", "tagged", "filed", "fork", "plain"]
    assert listed(engine, deleted=True) == ["gone"]
    assert listed(engine, tag="x") == ["tagged"]
    assert listed(engine, tag="x", archived=None) == ["tagged", "filed"]
    assert listed(engine, workspace="/w") == ["child"]
    assert listed(engine, status="busy") == ["tagged"]
    assert listed(engine, parent="plain") == ["child"]
    assert listed(engine, origin="plain") == ["fork"]
    assert listed(engine, roots=True) == ["tagged", "plain"]
    assert listed(engine, roots=True, archived=None) == ["tagged", "filed", "plain"]
    assert listed(engine, roots=True, limit=1) == ["tagged"]
    assert listed(engine, prefix="t") == ["tagged"]
    assert listed(engine, after_us=T0, before_us=T0 + 3) == ["tagged"]
    assert listed(engine, tag="nobody") == []


@CASES
def the_latest_fact_wins_and_null_removes(place: Place) -> None:
    engine = place.open()
    engine.create(thread("t", facts={"tags": ["old"], "mine": {"deep": [1]}}))
    grow(engine, "t", "a")
    engine.append("t", fact("tags", ["new", "new"], T0 + 5))
    engine.append("t", fact("mine", None, T0 + 6))
    engine.append("t", fact("title", "T", T0 + 7))
    engine = place.reopen(engine)
    info = engine.thread("t")
    assert (info.tags, "mine" in info.facts) == (("new", "new"), False)
    assert info.updated_us == T0, "facts must not touch updated_at"
    assert (listed(engine, tag="old"), listed(engine, tag="new")) == ([], ["t"])
    whole(engine)


@CASES
def a_deleted_thread_takes_nothing_until_it_is_restored(place: Place) -> None:
    engine = place.open()
    engine.create(thread("t", facts={"archived": True}))
    grow(engine, "t", "a")
    engine.append("t", fact("deleted_us", T0 + 1))
    engine = place.reopen(engine)
    with refused(NotFound) as caught:
        grow(engine, "t", "b")
    assert caught[0].deleted_at is not None
    with refused(NotFound):
        engine.append("t", fact("title", "no"))
    assert (ids(engine.path("t")), listed(engine)) == (["a"], [])
    engine.append("t", fact("deleted_us", None))
    grow(engine, "t", "b")
    engine = place.reopen(engine)
    assert ids(engine.path("t")) == ["a", "b"]
    assert listed(engine, archived=True) == ["t"], "it comes back where it was"
    whole(engine)


@CASES
def a_fork_shares_its_path_and_goes_its_own_way(place: Place) -> None:
    engine = place.open()
    engine.create(thread("t"))
    shared = grow(engine, "t", "a", "b", "c")
    fork = fork_of(engine, "t", "b")
    assert (fork.leaf, fork.seq) == ("b", 0)
    grow(engine, "f", "d")
    grow(engine, "t", "e")
    engine = place.reopen(engine)
    assert ids(engine.path("f")) == ["a", "b", "d"]
    assert ids(engine.path("t")) == ["a", "b", "c", "e"]
    assert engine.path("f")[:2] == shared[:2], "shared entries keep id, hash, time and thread"
    assert ids(engine.read("f")) == ["d"]
    with refused(NotFound):
        engine.path("f", "c")
    whole(engine)


@CASES
def forks_of_forks_reach_the_root(place: Place) -> None:
    engine = place.open()
    engine.create(thread("f0"))
    grow(engine, "f0", "e0")
    for n in range(1, 12):
        fork_of(engine, f"f{n - 1}", f"e{n - 1}", f"f{n}")
        grow(engine, f"f{n}", f"e{n}")
    fork_of(engine, "f11", "e3", "side")  # an entry that f11 itself inherited
    engine = place.reopen(engine)
    assert ids(engine.path("f11")) == [f"e{n}" for n in range(12)]
    assert ids(engine.path("side")) == ["e0", "e1", "e2", "e3"]
    whole(engine)


@CASES
def a_fork_from_before_the_root_is_empty(place: Place) -> None:
    engine = place.open()
    engine.create(thread("t"))
    grow(engine, "t", "a")
    fork = fork_of(engine, "t", None)
    assert fork.origin == Origin("t", None, None)
    engine = place.reopen(engine)
    assert (engine.path("f"), engine.thread("f").leaf) == ([], None)
    grow(engine, "f", "a")  # the id is free: nothing is shared
    assert engine.path("f")[0].thread == "f"
    whole(engine)


@CASES
def a_fork_of_another_hash_is_refused(place: Place) -> None:
    engine = place.open()
    engine.create(thread("t"))
    grow(engine, "t", "a")
    with refused(Conflict):
        engine.create(thread("f", origin=Origin("t", "a", "b3:00")))
    with refused(NotFound):
        place.reopen(engine).thread("f")


@CASES
def deleting_the_source_leaves_the_fork_whole(place: Place) -> None:
    engine = place.open()
    engine.create(thread("t"))
    grow(engine, "t", "a", "b", "c")
    fork_of(engine, "t", "b")
    engine.append("t", fact("deleted_us", T0))
    engine = place.reopen(engine)
    grow(engine, "f", "d")
    assert ids(engine.path("f")) == ["a", "b", "d"]


@CASES
def purging_keeps_what_forks_need_and_nothing_else(place: Place) -> None:
    engine = place.open()
    engine.create(thread("t", facts={"title": "secret"}))
    grow(engine, "t", "a", "b", "c")
    fork_of(engine, "t", "b")
    fork_of(engine, "f", "a", "g")
    purged = engine.purge("t")
    assert (purged.records, purged.kept, purged.kept_for) == (2, 2, ("f", "g"))
    engine = place.reopen(engine)
    with refused(NotFound):
        engine.thread("t")
    assert ids(engine.path("f")) == ["a", "b"]
    grow(engine, "f", "d")
    assert engine.stats().entries >= 1
    whole(engine)
    engine.purge("f")
    assert ids(engine.path("g")) == ["a"]
    engine.purge("g")
    engine = place.reopen(engine)
    assert (engine.stats().records, engine.stats().threads) == (0, 0)
    whole(engine)


@CASES
def a_purged_id_is_free_again(place: Place) -> None:
    engine = place.open()
    engine.create(thread("t"))
    grow(engine, "t", "a")
    fork_of(engine, "t", "a")
    engine.purge("t")
    engine.create(thread("t", at=T0 + 9))
    grow(engine, "t", "x")
    engine = place.reopen(engine)
    assert (ids(engine.path("t")), ids(engine.path("f"))) == (["x"], ["a"])
    whole(engine)


@CASES
def heads_tell_how_far_each_thread_has_come(place: Place) -> None:
    engine = place.open()
    for id in ("a", "deleted", "purged"):
        engine.create(thread(id))
        grow(engine, id, f"{id}-1", f"{id}-2")
    engine.append("deleted", fact("deleted_us", T0))
    fork_of(engine, "purged", "purged-2", "fork")
    engine.purge("purged")
    before = {head.thread: head for head in engine.heads()}
    assert {id: head.seq for id, head in before.items()} == {"a": 2, "deleted": 3, "fork": 0}
    grow(engine, "a", "a-3")
    engine = place.reopen(engine)
    after = {head.thread: head for head in engine.heads()}
    assert after["a"].seq == 3
    assert after["deleted"] == before["deleted"]


@CASES
def a_thread_that_takes_the_id_of_a_purged_one_has_another_birth(place: Place) -> None:
    engine = place.open()
    engine.create(thread("t"))
    engine.create(thread("other"))
    [before] = [head for head in engine.heads() if head.thread == "t"]
    engine.purge("t")
    engine.create(thread("t"))
    [after] = [head for head in engine.heads() if head.thread == "t"]
    assert (after.thread, after.seq) == (before.thread, before.seq)
    assert after.birth != before.birth
