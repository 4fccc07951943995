"""Packing in the background: everything cold in the end, a little at a time, beside a writer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from places import ADDRESSES

import clew
from clew.engines.sqlite import pack as packing
from clew.upkeep import pack as module
from clew.upkeep.pack import REST_SECONDS, Packer

LONG_AGO = datetime.now(UTC) - timedelta(days=9)
NAMESPACES = ("default", "acme")


class Time:
    """A clock on which a step takes a quarter of a second for each look, and rests pass at once."""

    def __init__(self, runs: int) -> None:
        self.now = 0.0
        self.rests: list[float] = []
        self._runs = runs

    def clock(self) -> float:
        self.now += 0.25
        return self.now

    def wait(self, seconds: float) -> bool:
        self.rests.append(seconds)
        return len(self.rests) > self._runs


def fill(address: str) -> None:
    """In each namespace a thread that rests, and one that goes on and has nothing cold."""
    for namespace in NAMESPACES:
        with clew.open(address, namespace=namespace) as store:
            resting = store.create("resting", time=LONG_AGO)
            for n in range(600):
                body = {"n": n, "text": "words that come again " * 5}
                resting.append("user_message", body, time=LONG_AGO)
            store.create("busy").append([clew.draft("event", [n, "words"]) for n in range(30)])


def cold(address: str) -> list[int]:
    """How many entries a pack would find in each namespace. It packs them."""
    found = []
    for namespace in NAMESPACES:
        with clew.open(address, namespace=namespace) as store:
            found.append(store.pack().entries)
    return found


def test_it_packs_a_step_at_a_time_and_rests_when_nothing_is_cold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "s.db")
    fill(path)
    monkeypatch.setattr(module, "STEP_SECONDS", 0)  # a run of entries a step
    time = Time(12)
    Packer(path, clock=time.clock, wait=time.wait).run()
    first, *rests = time.rests
    assert first == 0
    done = rests.index(REST_SECONDS)
    assert done >= 4, "each step packs a run alone"
    assert all(50 <= rest <= 200 for rest in rests[:done]), "a hundred times what the step took"
    monkeypatch.undo()
    assert Packer(path).step() == REST_SECONDS, "and then one step tells that nothing is cold"
    assert cold(path) == [0, 0]
    for namespace in NAMESPACES:
        with clew.open(path, namespace=namespace) as store:
            assert [one.body["n"] for one in store.get("resting").path()] == list(range(600))
            assert store.verify() == []


def test_each_step_goes_on_where_the_one_before_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a store of many packed threads is looked through from the first one at every step."""
    path = str(tmp_path / "s.db")
    for namespace in NAMESPACES:
        with clew.open(path, namespace=namespace) as store:
            for n in range(50):
                store.create(f"{n}", time=LONG_AGO).append("event", n, time=LONG_AGO)
    fill(path)
    looks: list[tuple[int, int]] = []
    next_run = packing.next_run

    def noted(db: apsw.Connection, thread: int, *rest: Any) -> Any:
        looks.append((thread, rest[-1]))
        return next_run(db, thread, *rest)

    monkeypatch.setattr(packing, "next_run", noted)
    monkeypatch.setattr(module, "STEP_SECONDS", 0)
    time = Time(1000)
    time.wait = lambda seconds: bool(time.rests.append(seconds)) or seconds == REST_SECONDS  # type: ignore[method-assign]
    Packer(path, clock=time.clock, wait=time.wait).run()
    assert len(time.rests) > 100, "a step is a thread or a run"
    assert len(looks) == len(set(looks)), "none of them is looked at twice"
    assert {thread for thread, _ in looks} == set(range(1, 105))
    assert cold(path) == [0, 0]


@pytest.mark.parametrize("name", ADDRESSES)
def test_every_kind_of_store_is_as_before(name: str, request: pytest.FixtureRequest) -> None:
    address = ADDRESSES[name](request)
    fill(address)
    with clew.open(address) as store:
        before = store.get("resting").path(), store.get("busy").path()
        time = Time(3)
        Packer(address, clock=time.clock, wait=time.wait).run()
        assert (store.get("resting").path(), store.get("busy").path()) == before
        assert store.verify() == []


def test_a_store_that_is_gone_does_not_end_it(tmp_path: Path) -> None:
    time = Time(3)
    Packer(tmp_path / "none.db", clock=time.clock, wait=time.wait).run()
    assert time.rests == [0.0, 60.0, 60.0, 60.0]
    assert not (tmp_path / "none.db").exists()


def test_it_ends_with_its_process(tmp_path: Path) -> None:
    fill(str(tmp_path / "s.db"))
    with Packer(tmp_path / "s.db") as packer:
        assert packer._thread.is_alive()
    assert not packer._thread.is_alive()
