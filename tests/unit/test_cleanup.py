"""A cleanup removes what is old and nothing else, whoever writes meanwhile, on every engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from places import PLACES

import clew
from clew.core.errors import Closed, Corrupt, InvalidInput, LeaseHeld, NotFound, Unavailable
from clew.core.model import ClearExpired, ThreadDraft, ThreadInfo
from clew.store import Store
from clew.thread import Thread
from clew.upkeep import cleanup
from clew.upkeep.cleanup import CleanupReport, keeping
from clew.upkeep.transfer import MARK

NOW = datetime(2026, 6, 1, tzinfo=UTC)
MONTH = timedelta(days=30)


@pytest.fixture
def store(place: Any) -> Iterator[Store]:
    """A store on each engine, whose clock stands still."""
    opened = Store(place.open(), clock=lambda: round(NOW.timestamp() * 1e6))
    yield opened
    opened.close()


class Meddling:
    """An engine at which others do something just before a call of it."""

    def __init__(self, engine: Any, **before: Callable[..., object]) -> None:
        self._engine, self._before = engine, before

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._engine, name)
        meddle = self._before.get(name)
        if meddle is None:
            return call

        def both(*args: Any, **options: Any) -> Any:
            meddle(*args)
            return call(*args, **options)

        return both


def meddled(store: Store, **before: Callable[..., object]) -> Store:
    return Store(Meddling(store.engine, **before), clock=store.clock)


def used(store: Store, id: str, days_ago: float, **options: Any) -> Thread:
    """A thread with one entry that is so many days old."""
    time = NOW - timedelta(days=days_ago)
    thread = store.create(id, time=time, **options)
    thread.append("user_message", id, time=time)
    return thread


def ids(store: Store) -> list[str]:
    return sorted(info.id for info in store.threads(archived=None))


def why(report: CleanupReport) -> dict[str, str]:
    return {skipped.thread: skipped.reason for skipped in report.skipped}


# --- which ---


def test_what_was_used_before_the_time_goes_and_nothing_else(store: Store) -> None:
    for id, days_ago in (("a", 31), ("b", 29), ("c", 90), ("d", 0)):
        used(store, id, days_ago)
    report = store.cleanup(older_than=MONTH)
    assert (report.purged, report.skipped, report.records) == (("c", "a"), (), 2)
    assert report.cutoff == NOW - MONTH
    assert ids(store) == ["b", "d"]
    assert store.cleanup(older_than=NOW - timedelta(days=10)).purged == ("b",)
    assert store.verify() == []


def test_a_limit_takes_the_oldest(store: Store) -> None:
    for id, days_ago in (("a", 50), ("b", 70), ("c", 60)):
        used(store, id, days_ago)
    first = store.cleanup(older_than=MONTH, limit=2)
    assert (first.purged, first.more) == (("b", "c"), True)
    second = store.cleanup(older_than=MONTH, limit=1)
    assert (second.purged, second.more) == (("a",), False)


def test_no_page_is_left_out_and_no_thread_is_looked_at_twice(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cleanup, "_PAGE", 3)
    for n in range(11):
        used(store, f"t{n:02}", 40 + n // 2)  # two of each age: their order is the id's
    seen: list[str] = []

    def keep(info: ThreadInfo) -> bool:
        seen.append(info.id)
        if info.id == "t09":  # another one leaves its page, so that the page shows older ones
            store.get("t02").append("user_message", "late")
        return info.id in ("t03", "t05", "t10")

    told: list[tuple[int, int]] = []
    report = store.cleanup(
        older_than=MONTH, keep=keep, progress=lambda done, total: told.append((done, total))
    )
    assert sorted(set(seen)) == sorted(seen)
    assert [int(id[1:]) // 2 for id in seen] == sorted(
        (int(i[1:]) // 2 for i in seen), reverse=True
    )
    assert ids(store) == ["t02", "t03", "t05", "t10"]
    assert sorted(report.purged) == ["t00", "t01", "t04", "t06", "t07", "t08", "t09"]
    assert told[0] == (0, 11)
    assert told[-1] == (11, 11)


def test_keep_names_what_stays(store: Store) -> None:
    used(store, "pinned", 40, tags=["pinned"])
    used(store, "running", 40).set(status="running")
    used(store, "plain", 40, tags=["other"])
    report = store.cleanup(
        older_than=MONTH, keep=keeping(tags=["pinned"], statuses=["running", "waiting"])
    )
    assert report.purged == ("plain",)
    assert why(report) == {"pinned": "kept", "running": "kept"}
    assert store.cleanup(older_than=MONTH, keep=lambda info: "pinned" in info.tags).purged == (
        "running",
    )


def test_archived_threads_stay_unless_they_are_asked_for(store: Store) -> None:
    used(store, "a", 40).set(archived=True)
    assert store.cleanup(older_than=MONTH).purged == ()
    assert store.cleanup(older_than=MONTH, archived=True).purged == ("a",)


def test_a_deleted_thread_can_be_restored_for_as_long_as_others_are_kept(store: Store) -> None:
    used(store, "long-gone", 400).set(
        deleted_us=round((NOW - timedelta(days=31)).timestamp() * 1e6)
    )
    used(store, "just-gone", 400)
    store.delete("just-gone")
    used(store, "there", 400)
    trash = store.cleanup(older_than=MONTH, deleted_only=True)
    assert trash.purged == ("long-gone",)
    assert store.cleanup(older_than=MONTH).purged == ("there",)
    assert store.restore("just-gone").path()[0].body == "just-gone"


def test_a_copy_that_is_under_way_keeps_its_scaffolds(store: Store) -> None:
    long_ago_us = round((NOW - timedelta(days=400)).timestamp() * 1e6)
    store.engine.create(ThreadDraft(id="a", created_us=long_ago_us, parent=MARK))
    assert store.cleanup(older_than=MONTH).purged == ()


@pytest.mark.parametrize(
    "options",
    [
        {"older_than": NOW + timedelta(days=1)},
        {"older_than": timedelta(days=-1)},
        {"older_than": datetime(2020, 1, 1)},
        {"older_than": 30},
        {"older_than": MONTH, "limit": 0},
    ],
    ids=str,
)
def test_a_mistake_removes_nothing(store: Store, options: dict[str, Any]) -> None:
    used(store, "a", 40)
    with pytest.raises(InvalidInput):
        store.cleanup(**options)
    with pytest.raises(InvalidInput):
        keeping(tags="pinned")
    assert ids(store) == ["a"]


def test_a_dry_run_tells_and_changes_nothing(store: Store) -> None:
    used(store, "a", 40)
    used(store, "b", 50)
    lease = used(store, "busy", 60).leases.acquire("worker")
    before = store.stats()
    report = store.cleanup(older_than=MONTH, dry_run=True)
    assert (report.purged, report.records, report.dry_run) == (("b", "a"), 2, True)
    assert why(report) == {"busy": "in_use"}
    assert store.stats() == before
    assert store.get("a").leases.active() is None
    assert store.get("busy").leases.active() == lease


# --- families ---


def test_a_fork_keeps_what_it_shares_with_a_thread_that_goes(store: Store) -> None:
    thread = used(store, "a", 40)
    thread.append("user_message", "not shared", time=NOW - timedelta(days=39))
    fork = thread.fork(at=thread.path()[0].id, id="fork")
    fork.append("user_message", "mine")
    report = store.cleanup(older_than=MONTH)
    assert (report.purged, report.records, report.kept) == (("a",), 1, 1)
    assert [entry.body for entry in fork.path()] == ["a", "mine"]
    assert store.verify() == []


def test_a_sub_agents_thread_stays_with_the_thread_that_it_works_for(store: Store) -> None:
    used(store, "parent", 1)
    used(store, "child", 40, parent="parent")
    used(store, "grandchild", 50, parent="child")
    report = store.cleanup(older_than=MONTH)
    assert why(report) == {"child": "family", "grandchild": "family"}
    assert "'parent'" in report.skipped[0].text


def test_a_family_goes_together(store: Store) -> None:
    used(store, "parent", 31)
    used(store, "child", 40, parent="parent")
    used(store, "gone", 40)
    used(store, "orphan", 40, parent="gone")
    store.purge("gone")
    for one, other in (("one", "two"), ("two", "one")):  # as a copy can bring them
        old_us = round((NOW - timedelta(days=40)).timestamp() * 1e6)
        store.engine.create(ThreadDraft(id=one, created_us=old_us, parent=other))
    planned = store.cleanup(older_than=MONTH, dry_run=True)
    report = store.cleanup(older_than=MONTH)
    assert sorted(report.purged) == ["child", "one", "orphan", "parent", "two"]
    assert planned.children == report.children == (), "all of them go"


def test_a_cleanup_names_the_children_that_it_leaves_behind(store: Store) -> None:
    used(store, "parent", 40)
    used(store, "child", 1, parent="parent")
    used(store, "gone", 40, parent="parent")
    for id in ("parent", "gone"):
        store.get(id).set(deleted_us=round((NOW - timedelta(days=35)).timestamp() * 1e6))
    planned = store.cleanup(older_than=MONTH, dry_run=True)
    report = store.cleanup(older_than=MONTH)
    assert planned.children == report.children == ("child",)
    assert sorted(report.purged) == ["gone", "parent"]
    assert store.get("child").info.parent == "parent"


def test_a_thread_stays_while_somebody_works_for_it(store: Store) -> None:
    used(store, "parent", 40)
    used(store, "child", 1, parent="parent")
    report = store.cleanup(older_than=MONTH)
    assert why(report) == {"parent": "family"}
    assert "'child'" in report.skipped[0].text


def test_a_child_of_a_kept_thread_is_kept_but_not_if_somebody_deleted_it(store: Store) -> None:
    used(store, "parent", 40, tags=["pinned"])
    used(store, "child", 40, parent="parent")
    used(store, "gone", 40, parent="parent")
    store.get("gone").set(deleted_us=round((NOW - timedelta(days=35)).timestamp() * 1e6))
    report = store.cleanup(older_than=MONTH, keep=keeping(tags=["pinned"]))
    assert report.purged == ("gone",)
    assert why(report) == {"parent": "kept", "child": "family"}


# --- races ---


def test_an_append_between_the_listing_and_the_purge_survives(store: Store) -> None:
    used(store, "a", 40)
    used(store, "b", 50)

    def keep(info: ThreadInfo) -> bool:
        if info.id == "a":  # it is on the list: what comes now comes late
            store.get("a").append("user_message", "late", time=NOW - timedelta(days=39))
        return False

    report = store.cleanup(older_than=MONTH, keep=keep)
    assert (report.purged, why(report)) == (("b",), {"a": "changed"})
    assert [entry.body for entry in store.get("a").path()] == ["a", "late"]
    assert store.get("a").leases.active() is None
    assert store.get("a").append("user_message", "and on").parent is not None


def test_a_thread_that_is_being_written_is_skipped_and_named(store: Store) -> None:
    thread = used(store, "a", 40)
    used(store, "b", 40)
    lease = thread.leases.acquire("worker-1")
    report = store.cleanup(older_than=MONTH)
    assert report.purged == ("b",)
    assert why(report) == {"a": "in_use"}
    assert "worker-1" in report.skipped[0].text
    thread.append("user_message", "still mine", fence=lease.fence)
    assert [entry.body for entry in thread.path()] == ["a", "still mine"]


def test_a_fact_that_is_set_at_the_last_moment_keeps_the_thread(store: Store) -> None:
    thread = used(store, "a", 40)

    def pin(name: str, drafts: Any) -> None:
        if drafts[0].key == "deleted_us" and not thread.info.tags:
            thread.set(tags=["pinned"])

    report = meddled(store, append=pin).cleanup(older_than=MONTH)
    assert (report.purged, why(report)) == ((), {"a": "changed"})
    assert store.get("a").info.tags == ("pinned",), "and it is not deleted either"
    assert thread.leases.active() is None


def test_a_writer_at_the_last_moment_is_told(store: Store) -> None:
    thread = used(store, "a", 40)
    errors: list[Exception] = []

    def write(name: str) -> None:
        try:
            thread.append("user_message", "too late")
        except (LeaseHeld, NotFound) as error:
            errors.append(error)

    assert meddled(store, purge=write).cleanup(older_than=MONTH).purged == ("a",)
    assert len(errors) == 1


def test_a_cleanup_whose_lease_has_run_out_destroys_no_append(store: Store) -> None:
    """It may have been stopped for an hour, just before the purge."""
    thread = used(store, "a", 40)

    def stop(name: str) -> None:
        store.engine.lease("a", ClearExpired(cutoff_us=10**18))
        with pytest.raises(NotFound):
            thread.append("user_message", "an hour later")

    assert meddled(store, purge=stop).cleanup(older_than=MONTH).purged == ("a",)


@pytest.mark.parametrize("failure", [Unavailable("no answer"), Corrupt("a", "damaged")], ids=repr)
def test_a_purge_that_fails_leaves_the_thread_as_it_was(store: Store, failure: Exception) -> None:
    thread = used(store, "a", 40)
    used(store, "b", 31)

    def fail(name: str) -> None:
        if name == "a":
            raise failure

    failing = meddled(store, purge=fail)
    if isinstance(failure, Corrupt):
        report = failing.cleanup(older_than=MONTH)
        assert (report.purged, why(report)) == (("b",), {"a": "damaged"})
    else:
        with pytest.raises(Unavailable):
            failing.cleanup(older_than=MONTH)
        assert ids(store) == ["a", "b"]
    assert thread.leases.active() is None
    assert thread.append("user_message", "next").seq > 1


def test_a_cleanup_that_dies_leaves_a_tombstone_at_most(store: Store) -> None:
    used(store, "a", 40)
    dead: list[str] = []

    def die(name: str, *rest: Any) -> None:
        if dead or not rest:  # at the purge, which has the name alone
            dead.append(name)
            raise Closed("killed")

    dying = meddled(store, purge=die, thread=lambda name: die(name, 1), lease=die, append=die)
    with pytest.raises(Closed):
        dying.cleanup(older_than=MONTH)
    assert store.find("a") is None
    store.engine.lease("a", ClearExpired(cutoff_us=10**18))  # what time does by itself
    assert [entry.body for entry in store.restore("a").path()] == ["a"]
    assert store.get("a").append("user_message", "next").seq > 1


def test_a_thread_that_somebody_else_removed_is_passed_over(store: Store) -> None:
    used(store, "a", 40)
    used(store, "b", 31)
    gone = [store.purge]

    def first(name: str, *rest: Any) -> None:
        if name == "a" and gone:
            gone.pop()(name)

    report = meddled(store, lease=first).cleanup(older_than=MONTH)
    assert (report.purged, report.skipped) == (("b",), ())


@pytest.mark.parametrize("cleaners", [1, 2])
def test_no_acknowledged_append_is_lost_to_a_cleanup(store: Store, cleaners: int) -> None:
    """Writers and cleaners at once, on the same threads: each append is there, or was refused."""
    names = [f"t{n}" for n in range(24)]
    for name in names:
        used(store, name, 40)
    kept: dict[str, list[str]] = {}
    failures: list[BaseException] = []
    begin = threading.Barrier(cleaners + 2)
    numbers = count()

    def write(mine: list[str]) -> None:
        begin.wait()
        for name in mine:
            try:
                entry = Thread(store, name).append("user_message", next(numbers))
                kept.setdefault(name, []).append(entry.id)
            except (LeaseHeld, NotFound):
                pass

    def clean() -> None:
        begin.wait()
        store.cleanup(older_than=MONTH)

    def guarded(work: Callable[..., None], *args: Any) -> None:
        try:
            work(*args)
        except BaseException as error:
            failures.append(error)

    works = [(write, names[::2]), (write, names[::-1]), *[(clean,)] * cleaners]
    threads = [threading.Thread(target=guarded, args=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for name, entries in kept.items():
        there = {entry.id for entry in store.get(name).path()}
        assert set(entries) <= there
    assert set(ids(store)) == set(kept)
    assert store.verify() == []


# --- blobs ---


def test_blobs_go_with_the_threads_that_used_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "sweep", lambda: Store.sweep(store, grace_seconds=0))
    gone, stays = store.blobs.put(b"x" * 1000), store.blobs.put(b"y" * 10)
    used(store, "a", 40).append("event", blobs=[gone, stays], time=NOW - timedelta(days=40))
    used(store, "b", 1).append("event", blobs=[stays])
    report = store.cleanup(older_than=MONTH)
    assert (report.blobs, report.size_bytes) == (1, 1000)
    assert (store.blobs.has(gone), store.blobs.has(stays)) == (False, True)


def test_every_engine_is_among_them() -> None:
    assert {"memory", "sqlite", "files", "postgres"} <= set(PLACES)
    assert clew.Store.cleanup.__doc__
