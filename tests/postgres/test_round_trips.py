"""How often a call goes to the server and back: on a network that is what it costs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from servers.proxy import Proxy

import clew
from clew import drafts
from clew.model import Acquire, Inspect, MoveDraft, Release, Renew, ThreadQuery

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
        (lambda: store.create("u"), 2),
    ):
        assert trips(proxy, call) == count


def test_reads(store: clew.Store, thread: clew.Thread, proxy: Proxy) -> None:
    engine = store.engine
    for n in range(10):
        store.create(f"t{n}", tags=["x"])
    hash = store.blobs.put(b"data")
    leaf = thread.leaf
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
        # In one moment: begin, isolation level, thread, entry, path, end.
        (lambda: engine.path("t", leaf), 6),
    ):
        assert trips(proxy, call) == count
