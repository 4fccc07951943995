"""The comparison at the heart of the failover harness sees what it is there to see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from failover.ledger import Ack, Contents, Ledger, compare, longest
from failover.worker import Log
from msgspec.structs import replace

import clew
from clew.core.model import Entry


@pytest.fixture
def store() -> Iterator[clew.Store]:
    with clew.open("memory:") as opened:
        opened.create("t")
        yield opened


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "w.0.log")


def append(store: clew.Store, item: int) -> Entry:
    return store.get("t").append("event", {"mark": f"w.0/{item}/0"})


def written(store: clew.Store, log: Log, item: int) -> None:
    log.say("try", item=item, thread="t", count=1)
    log.say("ack", item=item, thread="t", ids=[append(store, item).id])


def test_what_was_acknowledged_and_is_not_there_is_lost(
    store: clew.Store, log: Log, tmp_path: Path
) -> None:
    written(store, log, 1)
    log.say("try", item=2, thread="t", count=1)
    log.say("ack", item=2, thread="t", ids=["gone"])
    ledger = Ledger(tmp_path).catch_up()
    found = compare(ledger.acks, ledger, Contents.of(store, ["t"]))
    assert found.lost == {("t", "gone")}
    assert (found.doubled, found.problems) == ([], [])


def test_one_item_under_two_ids_is_doubled(store: clew.Store, log: Log, tmp_path: Path) -> None:
    written(store, log, 1)
    append(store, 1)
    ledger = Ledger(tmp_path).catch_up()
    found = compare(ledger.acks, ledger, Contents.of(store, ["t"]))
    assert found.doubled == ["w.0/1/0 is there 2 times"]


def test_what_nobody_tried_to_write_is_noticed(store: clew.Store, log: Log, tmp_path: Path) -> None:
    append(store, 9)
    ledger = Ledger(tmp_path).catch_up()
    found = compare([], ledger, Contents.of(store, ["t"]))
    assert found.problems == ["w.0/9/0 is there, and nobody wrote it"]


def test_unknown_outcomes_are_looked_up(store: clew.Store, log: Log, tmp_path: Path) -> None:
    for item in (1, 2, 3):
        log.say("try", item=item, thread="t", count=1)
        log.say("unknown", item=item, known=False, error="")
    append(store, 1)
    log.say("ack", item=3, thread="t", ids=[append(store, 3).id])
    ledger = Ledger(tmp_path).catch_up()
    found = compare(ledger.acks, ledger, Contents.of(store, ["t"]))
    assert (found.unknown_there, found.unknown_not_there) == (1, 1)


def test_a_gap_and_a_parent_that_is_not_there_are_noticed(
    store: clew.Store, log: Log, tmp_path: Path
) -> None:
    for item in (1, 2, 3):
        written(store, log, item)
    ledger = Ledger(tmp_path).catch_up()
    records = Contents.of(store, ["t"]).threads["t"]
    gap = compare([], ledger, Contents({"t": [records[0], records[2]]}))
    assert gap.problems == ["t: seq 3 is where 2 should be"]
    [problem] = compare([], ledger, Contents({"t": [replace(records[1], seq=1)]})).problems
    assert "hangs on nothing" in problem


def test_a_follower_that_heard_something_else_is_noticed(
    store: clew.Store, log: Log, tmp_path: Path
) -> None:
    written(store, log, 1)
    Log(tmp_path / "follower.follow").say("seen", seq=1, id="something else")
    ledger = Ledger(tmp_path).catch_up()
    assert len(compare([], ledger, Contents.of(store, ["t"])).misheard) == 1


def test_a_line_that_is_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "w.0.log"
    line = b'{"said": "ack", "time": 1.0, "item": 1, "thread": "t", "ids": ["a"]}\n'
    path.write_bytes(line + line[:20])
    ledger = Ledger(tmp_path).catch_up()
    assert ledger.acks == [Ack("w.0", 1, 1.0, "t", ("a",))]
    path.write_bytes(line + line)
    assert len(ledger.catch_up().acks) == 2


def test_the_longest_pause_is_found_also_when_it_lasts() -> None:
    assert longest([1.0, 2.0, 7.0, 8.0], since=3.0, until=9.0) == 5.0
    assert longest([1.0, 2.0], since=3.0, until=9.0) == 7.0
    assert longest([1.0, 6.0, 6.5], since=6.2, until=7.0) == 0.5
