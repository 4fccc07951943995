"""A connection that dies in the middle of a call leaves one outcome, and the caller learns it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from crews import Open
from msgspec import UNSET
from msgspec.structs import replace
from servers.cluster import Cluster
from servers.processes import wait_until
from servers.proxy import Marker, Proxy

import clew
from clew.core import drafts
from clew.core.model import Acquire, ClearExpired, Draft, Release, Renew

LARGE = {"text": "large " * 4000}


def batches() -> dict[str, list[Draft]]:
    return {
        "an entry": [clew.draft("event", 1)],
        "an entry that is new by our word": [clew.draft("event", 1, once=True)],
        "a large body": [clew.draft("event", LARGE)],
        "several entries": [clew.draft("event", n, once=n % 2 == 0) for n in range(5)],
        "a fact": list(drafts.facts({"status": "busy"}, 1)),
        "a move and more": [drafts.move(None, 1), clew.draft("event", LARGE)],
    }


def only_once(store: clew.Store, written: list[Any]) -> None:
    """What was given back is stored, and nothing of it twice."""
    records = store.engine.read("t")
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert [r for r in records if r.id in {w.id for w in written}] == written


def cut_after(proxy: Proxy, marker: Marker) -> None:
    proxy.cut_after(marker)


def cut_before(proxy: Proxy, marker: Marker) -> None:
    proxy.cut_before(marker)


Cut = Callable[[Proxy, Marker], None]
either = pytest.mark.parametrize("cut", [cut_after, cut_before])


# --- appends --------------------------------------------------------------------------------


@either
@pytest.mark.parametrize("kind", batches())
@pytest.mark.parametrize("known", [False, True], ids=["new thread", "known thread"])
def test_an_append_is_done_once(
    cut: Cut, kind: str, known: bool, store: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    (store if known else beside).create("t")
    for n in range(7 if known else 1):  # until the statement is prepared, and only its name is sent
        (store if known else beside).get("t").append("event", n)
    batch = batches()[kind]
    cut(proxy, batch[-1].id.encode())
    written = store.engine.append("t", batch)
    assert [record.id for record in written] == [draft.id for draft in batch]
    assert proxy.cuts == 1
    only_once(beside, written)
    assert store.get("t").append("event", "and on").seq == written[-1].seq + 1


@pytest.mark.parametrize("leased", [False, True])
def test_an_append_that_was_done_stands_although_others_went_on(
    leased: bool, store: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    """Neither `expect` nor `fence` holds any more when the retry finds what it wrote."""
    thread = store.create("t")
    leaf = thread.append("event", "before").id
    fence = thread.leases.acquire("me", ttl_seconds=60).fence if leased else None
    draft = clew.draft("event", "mine")
    proxy.cut_after(draft.id.encode(), close=False)
    written: list[Any] = []
    writer = threading.Thread(
        target=lambda: written.extend(store.engine.append("t", [draft], expect=leaf, fence=fence))
    )
    writer.start()
    proxy.wait_for_cut()
    if fence is not None:
        beside.engine.lease("t", Release(fence))
    beside.get("t").append("event", "theirs")
    proxy.heal()
    proxy.cut()
    writer.join(60)
    assert [(record.id, record.seq) for record in written] == [(draft.id, 2)]
    assert [entry.body for entry in beside.get("t").path()] == ["before", "mine", "theirs"]


def test_whether_it_was_written_is_unknown_if_the_second_try_is_refused(
    store: clew.Store, beside: clew.Store, proxy: Proxy, postgres_cluster: Cluster, database: str
) -> None:
    """Of the second try nothing is left; of the first one there may be."""
    thread = store.create("t")
    proxy.cut_after(b"mine", close=False)
    errors: list[clew.ClewError] = []

    def write() -> None:
        with pytest.raises(clew.ClewError) as caught:
            thread.append("event", "mine")
        errors.append(caught.value)

    writer = threading.Thread(target=write)
    writer.start()
    proxy.wait_for_cut()
    postgres_cluster.sql("ALTER TABLE clew.threads RENAME TO away", database=database)
    proxy.heal()
    proxy.cut()
    writer.join(60)
    assert [(error.committed, error.fields["committed"]) for error in errors] == [(None, None)]
    postgres_cluster.sql("ALTER TABLE clew.away RENAME TO threads", database=database)
    assert [entry.body for entry in beside.get("t").path()] == ["mine"]


def test_an_append_that_was_not_done_is_judged_anew(
    store: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    """The first try never arrived, so the second one meets the thread as it is by then."""
    thread = store.create("t")
    leaf = thread.append("event", "before").id
    beside.get("t").append("event", "theirs")
    proxy.cut_before(b"mine")
    with pytest.raises(clew.Conflict):
        thread.append("event", "mine", expect=leaf)
    assert [entry.body for entry in beside.get("t").path()] == ["before", "theirs"]


def test_an_entry_that_was_promised_to_be_new_and_is_not_is_found(beside: clew.Store) -> None:
    thread = beside.create("t")
    draft = clew.draft("event", 1, once=True)
    for batch in ([draft], [draft, clew.draft("event", 2)]):
        assert thread.append(batch)[0].seq == 1
    with pytest.raises(clew.Conflict):
        thread.append([replace(draft, data=b"3")])
    assert [entry.body for entry in thread.path()] == [1, 2]


def test_many_replies_lost_in_a_row_are_survived(
    store: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    store.create("t")
    draft = clew.draft("event", 1)
    proxy.cut_after(draft.id.encode(), times=5)
    written = store.engine.append("t", [draft])
    assert proxy.cuts == 5
    only_once(beside, written)


def test_each_of_many_writers_is_told_its_own_outcome(
    store: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    store.create("t")
    written: list[Any] = []

    def write(n: int) -> None:
        for m in range(10):
            draft = clew.draft("event", [n, m])
            if m % 3 == 0:
                proxy.cut_after(draft.id.encode())
            written.extend(store.engine.append("t", [draft]))

    writers = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert proxy.cuts >= 8 * 4
    assert len(written) == 80
    only_once(beside, sorted(written, key=lambda record: record.seq))
    assert store.verify() == []


# --- everything else that writes ------------------------------------------------------------


@either
@pytest.mark.parametrize("facts", [{}, {"tags": ["a"], "note": LARGE}], ids=["bare", "facts"])
def test_a_thread_is_made_once(
    cut: Cut, facts: dict[str, Any], store: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    cut(proxy, b"the new thread")
    made = store.create("the new thread", facts=facts)
    assert made.info.facts == facts
    assert proxy.cuts == 1
    assert [info.id for info in beside.threads()] == ["the new thread"]
    with pytest.raises(clew.AlreadyExists):
        store.create("the new thread")


@pytest.mark.parametrize("facts", [{}, {"tags": ["a"]}], ids=["bare", "facts"])
def test_a_thread_is_made_once_though_its_commit_was_not_heard_of(
    facts: dict[str, Any], store: clew.Store, proxy: Proxy
) -> None:
    proxy.cut_after(b"create_thread")
    assert store.create("t", facts=facts).info.facts == facts
    assert proxy.cuts == 1


@either
def test_a_fork_is_made_once(cut: Cut, store: clew.Store, beside: clew.Store, proxy: Proxy) -> None:
    store.create("t").append("event", 1)
    cut(proxy, b"the fork")
    fork = store.fork("t", id="the fork")
    assert proxy.cuts == 1
    assert [entry.body for entry in fork.path()] == [1]
    assert len(list(beside.threads())) == 2


def test_a_fork_stands_although_its_source_was_purged_meanwhile(
    store: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    store.create("t").append("event", 1)
    proxy.cut_after(b"the fork", close=False)
    made: list[clew.Thread] = []
    maker = threading.Thread(target=lambda: made.append(store.fork("t", id="the fork")))
    maker.start()
    proxy.wait_for_cut()
    beside.purge("t")
    proxy.heal()
    proxy.cut()
    maker.join(60)
    assert [entry.body for entry in made[0].path()] == [1]


@either
def test_a_lease_is_acquired_renewed_and_released_once(
    cut: Cut, store: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    store.create("t")
    cut(proxy, b"the owner")
    lease = store.engine.lease("t", Acquire("the owner", 60))
    assert lease is not None
    assert lease.owner == "the owner"
    assert beside.get("t").leases.active() == lease
    cut(proxy, b"the owner")
    renewed = store.engine.lease("t", Renew(lease.fence, 600))
    assert renewed is not None
    assert renewed.fence == lease.fence
    assert renewed.until > lease.until
    assert beside.get("t").leases.active() == renewed
    cut(proxy, b"the owner")
    assert store.engine.lease("t", Release(lease.fence)) is None
    assert beside.get("t").leases.active() is None
    assert proxy.cuts == 3


@either
def test_whoever_clears_a_lease_is_told_which(cut: Cut, store: clew.Store, proxy: Proxy) -> None:
    store.create("t")
    lease = store.engine.lease("t", Acquire("the owner", 60))
    assert lease is not None
    cut(proxy, b"the owner")
    assert store.engine.lease("t", ClearExpired(lease.created_us + 1)) == lease
    assert proxy.cuts == 1


def test_a_lease_that_ran_out_before_its_answer_came_is_acquired_anew(
    store: clew.Store, beside: clew.Store, proxy: Proxy, postgres_cluster: Cluster, database: str
) -> None:
    store.create("t")
    proxy.cut_after(b"the owner", close=False)
    taken: list[Any] = []
    taker = threading.Thread(
        target=lambda: taken.append(store.engine.lease("t", Acquire("the owner", 0.05)))
    )
    taker.start()
    proxy.wait_for_cut()
    wait_until(lambda: beside.get("t").leases.active() is None, "it has run out")
    [(first,)] = postgres_cluster.sql("SELECT fence FROM clew.threads", database=database)
    proxy.heal()
    proxy.cut()
    taker.join(60)
    [lease] = taken
    assert lease.fence > first


@either
def test_blobs_are_put(cut: Cut, store: clew.Store, beside: clew.Store, proxy: Proxy) -> None:
    data = [b"one" * 100, b"two" * 10_000]
    name = clew.core.codec.digest(data[1])[3:]
    cut(proxy, lambda message: name.encode() in message or bytes.fromhex(name) in message)
    hashes = store.engine.put_blobs(data)
    assert proxy.cuts == 1
    assert [beside.blobs.get(hash) for hash in hashes] == data
    assert beside.stats().blobs == 2


@either
def test_a_purge_is_done_and_tells_what_it_did(
    cut: Cut, store: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    thread = store.create("t")
    thread.append([clew.draft("event", n) for n in range(3)])
    cut(proxy, b"COMMIT")
    purged = store.purge("t")
    assert proxy.cuts == 1
    assert (purged.records, purged.kept) == (3, 0)
    assert beside.find("t") is None
    with pytest.raises(clew.NotFound):
        store.purge("t")


def test_a_purge_spares_the_thread_that_was_made_in_place_of_the_purged_one(
    store: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    store.create("t").append("event", "old")
    proxy.cut_after(b"COMMIT", close=False)
    purged: list[Any] = []
    purger = threading.Thread(target=lambda: purged.append(store.purge("t")))
    purger.start()
    proxy.wait_for_cut()
    beside.create("t").append("event", "new")
    proxy.heal()
    proxy.cut()
    purger.join(60)
    assert [done.records for done in purged] == [1]
    assert [entry.body for entry in beside.get("t").path()] == ["new"]


@either
def test_a_sweep_is_done(cut: Cut, store: clew.Store, beside: clew.Store, proxy: Proxy) -> None:
    store.blobs.put(b"unused")
    cut(proxy, b"sweep_blobs")
    store.sweep(grace_seconds=0)
    assert proxy.cuts == 1
    assert beside.stats().blobs == 0


# --- reading --------------------------------------------------------------------------------

READS: dict[str, Callable[[clew.Store], Any]] = {
    "thread": lambda store: store.get("t").info,
    "list": lambda store: store.list(order="updated"),
    "read": lambda store: list(store.get("t").read()),
    "path": lambda store: store.get("t").path(),
    "part of a path": lambda store: store.engine.path("t", UNSET, after="a"),
    "segments": lambda store: store.get("t").segments(),
    "blob": lambda store: store.blobs.get(clew.core.codec.digest(b"data")),
    "wait": lambda store: store.engine.wait("t", after=0, timeout_seconds=5),
    "stats": lambda store: store.stats(),
}


@pytest.mark.parametrize("name", READS)
@either
def test_a_read_is_repeated(
    cut: Cut, name: str, store: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    thread = beside.create("t", tags=["x"])
    thread.append([clew.draft("event", n, id=id) for n, id in enumerate("ab")])
    beside.blobs.put(b"data")
    cut(proxy, b"clew.")
    assert READS[name](store) == READS[name](beside)
    assert proxy.cuts == 1


# --- nobody answers -------------------------------------------------------------------------


@pytest.fixture
def hasty(opened: Open, proxy: Proxy, database: str) -> clew.Store:
    """A store that gives up soon, with a connection that is there already."""
    store = opened(proxy.dsn(database), busy_seconds=1)
    store.create("t")
    return store


@either
def test_an_outcome_that_stays_unknown_is_said_to_be_unknown(
    cut: Cut, hasty: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    draft = clew.draft("event", LARGE)
    cut(proxy, draft.id.encode())
    proxy.refusing = True  # the connection that there is goes on, until it is cut
    with pytest.raises(clew.Unavailable, match="retry with the same ids") as caught:
        hasty.engine.append("t", [draft])
    assert (caught.value.committed, caught.value.retryable) == (None, True)
    stored = beside.engine.read("t")
    assert len(stored) == (cut is cut_after)
    proxy.heal()
    written = hasty.engine.append("t", [draft])
    only_once(beside, written)
    assert stored in ([], written)


def test_what_was_never_sent_is_said_not_to_be_written(
    hasty: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    proxy.refuse()
    with pytest.raises(clew.Unavailable):
        hasty.get("t")  # whoever comes first finds the connection cut
    with pytest.raises(clew.Unavailable, match="nothing was written") as caught:
        hasty.engine.append("t", [clew.draft("event", 1)])
    assert caught.value.committed is False
    proxy.heal()
    assert hasty.engine.read("t") == []
    assert beside.get("t").info.seq == 0


@pytest.mark.parametrize("late", [False, True], ids=["swallowed", "delivered late"])
def test_a_server_that_falls_silent_is_given_up_at_the_deadline(
    late: bool, hasty: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    draft = clew.draft("event", 1)
    proxy.black_hole()
    with pytest.raises(clew.Unavailable, match="no answer within 1 s") as caught:
        hasty.engine.append("t", [draft])
    assert caught.value.committed is None
    if not late:
        proxy.cut()
    proxy.heal()
    only_once(beside, hasty.engine.append("t", [draft]))


def test_an_answer_that_comes_in_pieces_is_heard_whole(
    store: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    first = store.create("t").append("event", 1)
    proxy.piece_bytes = 1
    written = [first, *store.engine.append("t", [clew.draft("event", 2, once=True)])]
    stored = clew.draft("event", 3, id=written[-1].id, once=True)
    with pytest.raises(clew.Conflict):  # the server's word for it comes in pieces as well
        store.engine.append("t", [stored])
    only_once(beside, written)


def test_after_an_append_that_was_interrupted_others_are_heard(
    store: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    written = [store.create("t").append("event", 1)]
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        proxy.black_hole()
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(KeyboardInterrupt):
            store.engine.append("t", [clew.draft("event", 2)])
    finally:
        signal.signal(signal.SIGALRM, before)
    proxy.cut()
    proxy.heal()
    written += [store.get("t").append("event", number) for number in (3, 4)]
    only_once(beside, written)


def test_every_call_ends_at_the_deadline(hasty: clew.Store, proxy: Proxy) -> None:
    engine = hasty.engine
    calls: list[Callable[[], object]] = [
        lambda: hasty.create("u"),
        lambda: hasty.purge("t"),
        lambda: engine.lease("t", Acquire("me", 60)),
        lambda: engine.put_blobs([b"x"]),
        lambda: hasty.sweep(grace_seconds=0),
        lambda: engine.path("t"),
        lambda: engine.wait("t", after=0, timeout_seconds=60),
    ]
    told: list[str] = []

    def run(call: Callable[[], object]) -> None:
        with pytest.raises(clew.Unavailable, match="no answer within 1 s") as caught:
            call()
        told.append(str(caught.value))

    proxy.black_hole()
    callers = [threading.Thread(target=run, args=(call,)) for call in calls]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert len(told) == len(calls)


def test_opening_ends_at_the_deadline(proxy: Proxy, database: str) -> None:
    proxy.black_hole()
    with pytest.raises(clew.Unavailable):
        clew.open(proxy.dsn(database, connect_timeout="2"), busy_seconds=1)
