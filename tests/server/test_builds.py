"""What reads a whole store is done behind the pages, once: none of them waits for it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from httpx import Client
from server.viewer_client import HERE, client_of
from server.viewer_store import BEGAN, user

from clew.core.errors import Unavailable
from clew.core.wrapper import Call, wrap
from clew.server import build
from clew.server.build import Build
from clew.server.growth import Growth
from clew.server.health import BARS_MAX, steps
from clew.server.stopwatch import KEPT, Stopwatch
from clew.store import Store


def ask_used(client: Client, *ids: str) -> Any:
    headers = {"origin": HERE, "hx-request": "true"}
    return client.post("/threads/usage", data={"ids": json.dumps(ids)}, headers=headers)


def fill(store: Store, days: int = 1) -> None:
    for n in range(3):
        thread = store.create(f"t{n}")
        for day in range(days):
            time = BEGAN + timedelta(days=day)
            thread.append_message(user("Is the moon made of cheese?"), time=time)
    body = {"model": "claude-sonnet-4-5", "input_tokens": 100_000, "output_tokens": 10_000}
    store.get("t1").append("usage", body, format="anthropic", time=BEGAN)


class Gate:
    """An engine that reads nothing until it is opened."""

    def __init__(self) -> None:
        self.opened = threading.Event()

    @contextmanager
    def around(self, call: Call) -> Iterator[None]:
        if call.operation == "read":
            assert self.opened.wait(60)
        yield


@pytest.fixture
def gate(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Gate, Client]]:
    fill(store)
    monkeypatch.setattr(build, "WAIT_SECONDS", 0.0)
    made = Gate()
    yield made, client_of(Store(wrap(store.engine, made.around), clock=store.clock))
    made.opened.set()


def until(client: Client, place: str, words: str) -> str:
    while words not in (html := client.get(place).text):
        pass
    return html


def test_rows_get_their_tokens_and_cost(store: Store) -> None:
    fill(store)
    client = client_of(store)
    answer = ask_used(client, "t0", "t1", "missing").json()
    while "used" not in answer:
        answer = ask_used(client, "t0", "t1", "missing").json()
    assert answer == {"used": {"t1": ["$0.45", "110.0k tokens", "100.0k in, 10.0k out, $0.45"]}}
    assert ask_used(client).status_code == 200
    for wrong in ("x", "{}", "[1]"):
        headers = {"origin": HERE, "hx-request": "true"}
        refused = client.post("/threads/usage", data={"ids": wrong}, headers=headers)
        assert refused.status_code == 400
    assert 'class="used"' in client.get("/").text


def test_a_list_does_not_wait_for_the_first_count(gate: tuple[Gate, Client]) -> None:
    closed, client = gate
    assert "t1" in client.get("/").text
    assert "done" in ask_used(client, "t1").json()
    assert "done" in ask_used(client, "t1").json(), "nor do others that ask meanwhile"
    assert "data-again" in client.get("/usage?days=").text
    closed.opened.set()
    until(client, "/usage?days=", "$0.45")
    assert "t1" in ask_used(client, "t1").json()["used"]


def test_letters_that_are_typed_do_not_wait_for_the_index(gate: tuple[Gate, Client]) -> None:
    closed, client = gate
    assert "The first search reads" in client.get("/search/hits?q=ch").text
    assert "The first search reads" in client.get("/search?q=cheese").text
    closed.opened.set()
    assert "<mark>cheese</mark>" in until(client, "/search/hits?q=cheese", "3 hits")


def test_health_does_not_wait_until_the_growth_is_counted(gate: tuple[Gate, Client]) -> None:
    closed, client = gate
    assert "threads read" in client.get("/health").text
    closed.opened.set()
    assert "2026-03-02" in until(client, "/health/growth", "<svg")


def test_a_build_that_failed_says_so_once_and_is_tried_again() -> None:
    attempts: list[int] = []

    def work(told: Any) -> None:
        attempts.append(1)
        if len(attempts) == 1:
            raise Unavailable("the server is away")

    made = Build(work)
    with pytest.raises(Unavailable):
        while not made.ready(60):
            pass
    while not made.ready(60):
        pass
    assert len(attempts) == 2
    assert made.ready()


def test_a_viewer_that_ends_does_not_wait_for_a_long_build() -> None:
    began = threading.Event()

    def work(told: Any) -> None:
        while True:
            told(1, 10)
            began.set()

    made = Build(work)
    assert not made.ready(0)
    began.wait(60)
    made.close()
    assert not made.is_ready


def test_growth_is_told_by_day_and_reads_on(store: Store) -> None:
    fill(store, days=2)
    growth = Growth(store.engine)
    growth.count()
    days = {day: records for day, (records, _) in growth.days().items()}
    assert days["2026-03-02"] == 4
    assert days["2026-03-03"] == 3
    thread = store.get("t0")
    thread.append_message(user("More"), time=BEGAN + timedelta(days=1))
    store.purge("t2")
    growth.count()
    assert growth.days()["2026-03-03"][0] == 4


def test_many_days_become_months() -> None:
    from clew.engines.memory import MemoryEngine

    store = Store(MemoryEngine())
    fill(store, days=BARS_MAX * 2)
    growth = Growth(store.engine)
    growth.count()
    found = steps(growth.days())
    assert found[0].name == "2026-03"
    assert sum(step.records for step in found if step.name < "2027") >= 3 * BARS_MAX * 2
    assert all(0 < step.height <= 120 for step in found)


def test_a_large_store_is_only_counted_when_it_is_asked_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clew.server.health.COUNTED_UNASKED", 2)
    fill(store)
    client = client_of(store)
    assert "Count what was written" in client.get("/health").text
    until(client, "/health/growth", "<svg")
    assert "<svg" in client.get("/health").text


def test_operations_are_told_with_their_longest_first(store: Store) -> None:
    fill(store)
    client = client_of(store)
    client.get("/thread?id=t1")
    html = client.get("/health").text
    assert "<code>path</code>" in html
    assert "conversation page" in html
    watch = Stopwatch()
    for n in range(3 * KEPT):
        watch.note("read", f"t{n}", float(n))
        watch.note("append", "", 0.5)
    with watch.measure("wait"):
        pass
    assert [lap.thread for lap in watch.longest()][:2] == [f"t{3 * KEPT - 1}", f"t{3 * KEPT - 2}"]
    assert len(watch.longest()) == KEPT
    assert [(one.name, one.times) for one in watch.sums()] == [("read", 30), ("append", 30)]
    assert watch.sums()[1].mean == pytest.approx(0.5)
