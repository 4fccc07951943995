"""How often a call goes to the server and back: on a network that is what it costs.

What a connection has run five times is prepared the next time, which is one more, once. So no test
asks the same so often.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from servers.proxy import Proxy

import clew
from clew.core import drafts
from clew.core.engine import Engine
from clew.core.model import Acquire, Inspect, MoveDraft, Release, Renew, ThreadQuery
from clew.upkeep.transfer import find_entry

LARGE = {"text": "large " * 5000}


def trips(proxy: Proxy, call: Callable[[], object]) -> int:
    with proxy.counting() as count:
        call()
    assert count.connections == 0
    return count.round_trips


@pytest.fixture
def thread(store: clew.Store) -> clew.Thread:
    """A thread whose head is known here, on a connection that is open."""
    made = store.create("t")
    made.append("event", "first")
    return made


APPENDS: dict[str, Callable[[clew.Thread], object]] = {
    "one entry": lambda t: t.append("event", 1),
    "an entry with an id of ours": lambda t: t.append("event", 1, id="mine"),
    "a large body": lambda t: t.append("event", LARGE),
    "with metadata": lambda t: t.append("event", 1, meta={"a": 1}, turn="x", format="plain"),
    "a batch": lambda t: t.append([clew.draft("event", n) for n in range(100)]),
    "a batch with large bodies": lambda t: t.append([clew.draft("event", LARGE)] * 1),
    "facts": lambda t: t.set(title="x", tags=["a", "b"]),
    "entries and facts": lambda t: t.store.engine.append(
        t.id, [clew.draft("event", 1), *drafts.facts({"status": "busy"}, 1)]
    ),
    "a second root": lambda t: t.append("event", 1, parent=None),
    "a move to before the root": lambda t: t.store.engine.append(
        t.id, [MoveDraft(id="m", leaf=None, time_us=1)]
    ),
}


@pytest.mark.parametrize("name", APPENDS)
def test_an_append_is_one(name: str, thread: clew.Thread, proxy: Proxy) -> None:
    assert trips(proxy, lambda: APPENDS[name](thread)) == 1


def test_an_append_that_expects_a_leaf_is_one(thread: clew.Thread, proxy: Proxy) -> None:
    leaf = thread.leaf
    assert trips(proxy, lambda: thread.append("event", 1, expect=leaf)) == 1


def test_an_append_under_a_lease_is_one(thread: clew.Thread, proxy: Proxy) -> None:
    fence = thread.leases.acquire("me", ttl_seconds=60).fence
    assert trips(proxy, lambda: thread.append("event", 1, fence=fence)) == 1
    assert trips(proxy, lambda: thread.append("event", LARGE, fence=fence)) == 1


def test_an_append_that_names_a_blob_is_one(
    store: clew.Store, thread: clew.Thread, proxy: Proxy
) -> None:
    hash = store.blobs.put(b"data")
    assert trips(proxy, lambda: thread.append("event", 1, blobs=[hash])) == 1


def test_an_append_to_a_new_thread_or_fork_is_one(
    store: clew.Store, thread: clew.Thread, proxy: Proxy
) -> None:
    fresh, fork = store.create("u"), store.fork("t", id="f")
    assert trips(proxy, lambda: fresh.append("event", 1)) == 1
    assert trips(proxy, lambda: fork.append("event", 1)) == 1


def test_an_append_to_a_thread_that_others_moved_is_three_and_then_one(
    store: clew.Store, beside: clew.Store, thread: clew.Thread, proxy: Proxy
) -> None:
    """The guess fails, the head is read, and the second try is right."""
    beside.get("t").append("event", "theirs")
    assert trips(proxy, lambda: thread.append("event", 1)) == 3
    assert trips(proxy, lambda: thread.append("event", 1)) == 1


def test_an_append_to_a_thread_that_was_never_seen_is_two(
    store: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    beside.create("seen by others").append("event", 0)
    store.stats()
    handle = clew.Thread(store, "seen by others")
    assert trips(proxy, lambda: handle.append("event", 1)) == 2


def test_other_writes(store: clew.Store, thread: clew.Thread, proxy: Proxy) -> None:
    engine = store.engine
    lease = engine.lease("t", Acquire("me", 60))
    assert lease is not None
    for call, count in (
        (lambda: engine.put_blobs([b"one", b"two"]), 1),
        (lambda: engine.lease("t", Renew(lease.fence, 60)), 2),
        (lambda: engine.lease("t", Release(lease.fence)), 2),
        (lambda: engine.lease("t", Acquire("me", 60)), 2),
        (lambda: store.create("u"), 1),
        (lambda: store.create("v", title="v", tags=["a", "b"], facts={"note": LARGE}), 1),
        (lambda: store.create("w", parent="v"), 2),
        # The function, and around it a transaction: its answer must be here before the commit.
        (lambda: engine.purge("u"), 3),
        # And the children, deleted and not; whether it has snapshots, whose cache is to forget it;
        # whether there is a search index that knows it; and for the receipt what it says, before,
        # and which of its bodies and blobs are left, after.
        (lambda: store.purge("v"), 15),
    ):
        assert trips(proxy, call) == count


@pytest.mark.parametrize(
    ("source", "options", "count"),
    [
        ("t", {}, 3),
        ("t", {"at": "a", "title": "x", "facts": {"note": LARGE}}, 3),
        ("t", {"before": "b"}, 4),
        ("t", {"before": "a"}, 3),
        ("f", {"at": "a"}, 3),
    ],
)
def test_a_fork_is_few(
    source: str, options: dict[str, Any], count: int, store: clew.Store, proxy: Proxy
) -> None:
    """The source, the entries that are named or shared one by one, and the fork."""
    store.create("t", tags=["inherited"]).append([clew.draft("event", id, id=id) for id in "ab"])
    store.fork("t", id="f")
    assert trips(proxy, lambda: store.fork(source, id="g", **options)) == count


def test_an_append_after_first_facts_is_one(
    store: clew.Store, thread: clew.Thread, proxy: Proxy
) -> None:
    fresh = store.create("u", title="u", facts={"note": LARGE})
    fork = store.fork("t", id="f", title="f")
    assert trips(proxy, lambda: fresh.append("event", 1)) == 1
    assert trips(proxy, lambda: fork.append("event", 1)) == 1
    assert store.verify() == []


def test_reads(store: clew.Store, thread: clew.Thread, proxy: Proxy) -> None:
    engine = store.engine
    for n in range(10):
        store.create(f"t{n}", tags=["x"])
    hash = store.blobs.put(b"data")
    for call, count in (
        (lambda: engine.threads(ThreadQuery(limit=5)), 1),
        (lambda: engine.threads(ThreadQuery(limit=5, tag="x", order="created")), 1),
        # First it looks whether many threads wait to be brought back into the index.
        (lambda: engine.threads(ThreadQuery(limit=5, order="updated")), 2),
        (lambda: engine.thread("t"), 1),
        (lambda: engine.read("t"), 1),
        (lambda: engine.path("t"), 1),
        (lambda: engine.segments("t"), 1),
        (lambda: engine.get_blob(hash), 1),
        (lambda: engine.has_blobs([hash, "b3:00"]), 1),
        (lambda: engine.lease("t", Inspect()), 1),
        (lambda: engine.wait("t", after=0, timeout_seconds=5), 1),
    ):
        assert trips(proxy, call) == count


PATHS: dict[str, Callable[[Engine], object]] = {
    "to an entry": lambda engine: engine.path("t", "a"),
    "before the root": lambda engine: engine.path("t", None),
    "after an entry": lambda engine: engine.path("t", after="a"),
    "between entries": lambda engine: engine.path("t", "b", after="a"),
    "one entry": lambda engine: engine.path("t", "a", limit=1),
    "one entry that a fork of a fork inherits": lambda engine: engine.path("g", "a", limit=1),
    "a missing entry": lambda engine: find_entry(engine, "g", "missing"),
    "an entry of a missing thread": lambda engine: find_entry(engine, "missing", "a"),
}


@pytest.mark.parametrize("name", PATHS)
def test_a_path_is_one(name: str, store: clew.Store, proxy: Proxy) -> None:
    store.create("t").append([clew.draft("event", id, id=id) for id in "abc"])
    store.fork("t", id="f", at="b").append("event", "d")
    store.fork("f", id="g").append("event", "e")
    assert trips(proxy, lambda: PATHS[name](store.engine)) == 1
