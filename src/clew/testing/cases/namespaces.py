"""Namespaces: two in one store see nothing of each other, whatever they do."""

from __future__ import annotations

from clew.core.codec import digest
from clew.core.engine import Engine
from clew.core.errors import Conflict, InvalidInput, LeaseHeld, NotFound, TooLarge
from clew.core.model import (
    DEFAULT_NAMESPACE,
    Acquire,
    Inspect,
    Origin,
    Release,
    ThreadDraft,
    ThreadInfo,
    ThreadQuery,
)
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

LARGE = {"text": "the same words in both " * 20_000}


def two(place: Place) -> tuple[Engine, Engine]:
    return place.open(), place.open(namespace="acme")


def listed(engine: Engine, **query: object) -> list[ThreadInfo]:
    """Every thread that a query gives, two a page."""
    found: list[ThreadInfo] = []
    cursor = None
    while True:
        page = engine.threads(ThreadQuery(limit=2, cursor=cursor, **query))  # type: ignore[arg-type]
        found += page.items
        if page.cursor is None:
            return found
        time_us, _, id = page.cursor.partition(".")
        cursor = int(time_us), id


@CASES
def a_namespace_is_there_again_under_its_name(place: Place) -> None:
    names = [DEFAULT_NAMESPACE, "acme", "Acme", "con", "../up", "a b/c", "Ü" * 64, "x" * 128]
    for name in names:
        engine = place.open(namespace=name)
        assert engine.properties.namespace == name
        engine.create(thread("t", facts={"title": name}))
        engine = place.reopen(engine)
        assert engine.properties.namespace == name
        assert [info.facts["title"]["text"] for info in listed(engine)] == [name]
        assert len(engine.read("t")) == 1
        whole(engine)
        engine.close()


@CASES
def a_name_that_cannot_be_one_is_refused(place: Place) -> None:
    for name in ("", "nul\0", "half \ud83d"):
        with refused(InvalidInput):
            place.open(namespace=name)
    with refused(TooLarge):
        place.open(namespace="x" * 129)


@CASES
def one_id_names_a_thread_in_each_namespace(place: Place) -> None:
    default, acme = two(place)
    for engine, word in ((default, "default"), (acme, "acme")):
        engine.create(thread("t", facts={"title": word}))
        engine.append("t", [entry("a", {"word": word}), entry("b")])
    grow(acme, "t", "c")
    assert default.thread("t").leaf == "b"
    assert acme.thread("t").leaf == "c"
    default, acme = place.reopen(default), place.reopen(acme)
    for engine, word, path in ((default, "default", ["a", "b"]), (acme, "acme", ["a", "b", "c"])):
        assert engine.thread("t").facts["title"]["text"] == word
        assert engine.path("t")[0].body == {"word": word}
        assert ids(engine.path("t")) == path
        assert engine.segments("t")[0].last == path[-1]
        assert engine.stats().entries == len(path)
        whole(engine)


@CASES
def what_another_namespace_has_is_not_there(place: Place) -> None:
    default, acme = two(place)
    default.create(thread("t"))
    grow(default, "t", "a")
    for call in (
        lambda: acme.thread("t"),
        lambda: acme.append("t", [entry("b")]),
        lambda: acme.read("t"),
        lambda: acme.path("t"),
        lambda: acme.path("t", "a"),
        lambda: acme.segments("t"),
        lambda: acme.lease("t", Inspect()),
        lambda: acme.lease("t", Acquire("me", 60.0)),
        lambda: acme.wait("t", after=0, timeout_seconds=0),
        lambda: acme.purge("t"),
    ):
        with refused(NotFound) as caught:
            call()
        assert (caught[0].what, caught[0].id) == ("thread", "t")
    acme.create(thread("t"))
    with refused(NotFound) as unseen:
        acme.path("t", "a")
    assert unseen[0].what == "entry"
    with refused(InvalidInput):
        acme.append("t", [entry("b", parent="a")])
    assert not acme.wait("t", after=0, timeout_seconds=0)
    assert ids(default.path("t")) == ["a"]


@CASES
def a_retry_resolves_in_its_own_namespace(place: Place) -> None:
    default, acme = two(place)
    for engine in (default, acme):
        for _ in range(2):
            engine.create(thread("t"))
            engine.append("t", [entry("a", 1)])
        assert len(engine.read("t")) == 1
    acme.append("t", [entry("b", 2)])
    default.append("t", [entry("b", 3)])
    with refused(Conflict):
        default.append("t", [entry("b", 2)])


@CASES
def a_fork_begins_in_its_own_namespace(place: Place) -> None:
    default, acme = two(place)
    default.create(thread("t"))
    grow(default, "t", "a", "b")
    hash = default.path("t", "a")[-1].hash
    for at in (Origin("t", "a", hash), Origin("t", None, None)):
        with refused(NotFound) as missing:
            acme.create(thread("f", origin=at))
        assert missing[0].what == "thread"
    acme.create(thread("t"))
    grow(acme, "t", "x")
    with refused(NotFound) as lost:
        acme.create(thread("f", origin=Origin("t", "a", hash)))
    assert lost[0].what == "entry"
    fork_of(default, "t", "a")
    fork_of(acme, "t", "x")
    grow(default, "f", "c")
    grow(acme, "f", "c")
    assert ids(place.reopen(default).path("f")) == ["a", "c"]
    assert ids(place.reopen(acme).path("f")) == ["x", "c"]


@CASES
def a_purge_takes_nothing_from_another_namespace(place: Place) -> None:
    default, acme = two(place)
    for engine in (default, acme):
        engine.create(thread("t", facts={"tags": ["x"]}))
        engine.append("t", [entry("a", LARGE), entry("b")])
        fork_of(engine, "t", "a")
        grow(engine, "f", "c")
    purged = default.purge("t")
    assert (purged.kept, purged.kept_for) == (1, ("f",))
    default.purge("f")
    assert default.stats().records == 0
    default, acme = place.reopen(default), place.reopen(acme)
    assert listed(default) == []
    assert [info.id for info in listed(acme, tag="x")] == ["t"]
    assert ids(acme.path("t")) == ["a", "b"]
    assert ids(acme.path("f")) == ["a", "c"]
    assert acme.path("t")[0].body == LARGE, "a large body is stored for each of them"
    whole(default)
    whole(acme)


@CASES
def a_lease_holds_in_its_own_namespace(place: Place) -> None:
    default, acme = two(place)
    for engine in (default, acme):
        engine.create(thread("t"))
    held = default.lease("t", Acquire("me", 600.0))
    assert held is not None
    assert acme.lease("t", Inspect()) is None
    grow(acme, "t", "a")
    other = acme.lease("t", Acquire("you", 600.0))
    assert other is not None
    acme.lease("t", Release(held.fence))  # that of another thread, which has the same name
    assert (default.lease("t", Inspect()), acme.lease("t", Inspect())) == (held, other)
    default.append("t", [entry("a")], fence=held.fence)
    with refused(LeaseHeld) as caught:
        acme.append("t", [entry("b")])
    assert caught[0].owner == "you"


@CASES
def a_blob_is_there_for_the_namespace_that_put_it(place: Place) -> None:
    default, acme = two(place)
    default.create(thread("t"))
    acme.create(thread("t"))
    data = b"a secret" * 3000
    (hash,) = default.put_blobs([data])
    assert acme.has_blobs([hash]) == set()
    with refused(NotFound):
        acme.get_blob(hash)
    with refused(InvalidInput):
        acme.append("t", [entry("a", blobs=[hash])])
    assert acme.stats().blobs == 0
    assert acme.put_blobs([data]) == [hash]
    assert (acme.stats().blobs, acme.stats().blob_bytes) == (1, len(data))
    acme.append("t", [entry("a", blobs=[hash])])
    assert default.sweep(grace_seconds=0).blobs == 1
    default, acme = place.reopen(default), place.reopen(acme)
    assert default.has_blobs([hash]) == set()
    assert acme.get_blob(hash) == data
    assert acme.sweep(grace_seconds=0).blobs == 0
    whole(default)
    whole(acme)


@CASES
def a_sweep_asks_about_its_own_blobs(place: Place) -> None:
    default, acme = two(place)
    for engine, names in ((default, b"ab"), (acme, b"bc")):
        engine.put_blobs([bytes([name]) for name in names])
    asked: list[set[str]] = []

    def keep(candidates: set[str]) -> set[str]:
        asked.append(candidates)
        return candidates

    acme.sweep(grace_seconds=0, keep=keep)
    assert asked == [{digest(b"b"), digest(b"c")}]
    assert default.stats().blobs == acme.stats().blobs == 2


@CASES
def a_list_shows_its_own_namespace(place: Place) -> None:
    default, acme = two(place)
    for engine, own, numbers in ((default, "d", range(9)), (acme, "a", range(4, 13))):
        engine.create(thread("root", at=T0 - 1))
        grow(engine, "root", "e")
        for n in numbers:
            engine.create(_thread(engine, f"t{n}", n))
        engine.append("root", [entry("late", at=T0 + 99)])
        facts = {"archived": True} if own == "d" else {"deleted_us": 1}
        engine.create(thread("put away", at=T0, facts=facts))
    default, acme = place.reopen(default), place.reopen(acme)
    for engine, numbers in ((default, range(9)), (acme, range(4, 13))):
        every = [f"t{n}" for n in reversed(numbers)]
        for query in (
            {"tag": "x"},
            {"workspace": "/w"},
            {"status": "busy"},
            {"parent": "root"},
            {"origin": "root"},
            {"prefix": "t"},
            {"after_us": T0 - 1, "archived": False},
        ):
            assert [info.id for info in listed(engine, **query)] == every, query
        assert [info.id for info in listed(engine)] == [*every, "root"]
        assert [info.id for info in listed(engine, order="updated")] == ["root", *every]
    assert [info.id for info in listed(default, archived=True)] == ["put away"]
    assert listed(default, deleted=True) == listed(acme, archived=True) == []
    assert [info.id for info in listed(acme, deleted=True)] == ["put away"]


def _thread(engine: Engine, id: str, n: int) -> ThreadDraft:
    """One that every filter finds."""
    hash = engine.path("root")[0].hash
    facts = {"tags": ["x", id], "workspace": "/w", "status": "busy"}
    origin = Origin("root", "e", hash)
    return thread(id, at=T0 + n, facts=facts, parent="root", origin=origin)


@CASES
def nothing_of_another_namespace_is_counted(place: Place) -> None:
    default, acme = two(place)
    acme.create(thread("t"))
    grow(acme, "t", "a")
    before = acme.stats()
    default.create(thread("t"))
    default.append("t", [entry(f"e{n}", LARGE | {"n": n}) for n in range(20)])
    default.put_blobs([b"x" * 100_000])
    assert acme.stats() == before
    assert default.stats().entries == 20
