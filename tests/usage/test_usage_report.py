"""Groups, filters and times: what a report is about is what was asked for."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replies_support import PRICES, anthropic

import clew
from clew import InvalidInput, NotFound
from clew.store import Store
from clew.usage.model import Tokens, Used, dollars, line_of, short

NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)


def say(store: Store, thread: str, id: str, time: datetime = NOON, **more: Any) -> None:
    store.get_or_create(thread).append_response(anthropic(id, **more), time=time)


def keys(store: Store, **options: Any) -> dict[str | None, int]:
    return {row.key: row.used.replies for row in store.usage(**options).rows}


def test_replies_are_in_the_group_that_they_belong_to(store: Store) -> None:
    store.create("a", workspace="/w", facts={"agent": "x"})
    store.create("b", workspace="/v", facts={"adapter": "y"})
    say(store, "a", "msg_1", model="m")
    say(store, "a", "msg_2", NOON + timedelta(days=1), model="n")
    say(store, "b", "msg_3", model="m")
    say(store, "c", "msg_4", model="m")
    assert keys(store) == {"2026-03-29": 3, "2026-03-30": 1}
    assert keys(store, by="model") == {"m": 3, "n": 1}
    assert keys(store, by="workspace") == {"/w": 2, "/v": 1, None: 1}
    assert keys(store, by="agent") == {"x": 2, "y": 1, None: 1}
    assert keys(store, by="thread") == {"a": 2, "b": 1, "c": 1}
    assert keys(store, by="thread", workspace="/w") == {"a": 2}
    assert keys(store, by="thread", agent="y") == {"b": 1}
    assert keys(store, by="thread", model="n") == {"a": 1}
    assert keys(store, by="thread", model="n", agent="y") == {}
    assert keys(store, thread="a") == {"m": 1, "n": 1}
    assert keys(store, thread=store.get("a"), by="day", model="m") == {"2026-03-29": 1}


def test_a_fact_that_was_changed_later_is_the_one_that_counts(store: Store) -> None:
    store.create("a", workspace="/w")
    say(store, "a", "msg_1")
    assert keys(store, by="workspace") == {"/w": 1}
    store.get("a").set(workspace="/v", agent="z")
    assert keys(store, by="workspace") == {"/v": 1}
    store.get("a").set(workspace=None)
    assert keys(store, by="workspace") == {None: 1}
    assert keys(store, by="agent") == {"z": 1}


def test_a_fork_is_of_the_agent_of_its_origin(store: Store) -> None:
    store.create("a", facts={"agent": "x"})
    fork = store.fork("a")
    say(store, fork.id, "msg_1")
    assert keys(store, by="agent") == {"x": 1}


def test_a_note_without_a_model_is_of_the_model_that_the_thread_is_with(store: Store) -> None:
    thread = store.create("a", facts={"model": "first"})
    note = {"input_tokens": 1, "output_tokens": 1}
    thread.append("usage", note)
    thread.append("model_change", {"model": "second"})
    store.usage()
    thread.append("usage", note)
    assert keys(store, by="model") == {"first": 1, "second": 1}


@pytest.mark.parametrize(
    ("zone", "days"),
    {
        "UTC": ["2026-03-28", "2026-03-29"],
        "Europe/Berlin": ["2026-03-29", "2026-03-30"],
        "America/Los_Angeles": ["2026-03-28", "2026-03-29"],
        "Asia/Kathmandu": ["2026-03-29", "2026-03-30"],  # a quarter of an hour beside the others
    }.items(),
)
def test_days_are_those_of_the_time_zone(store: Store, zone: str, days: list[str]) -> None:
    """Also over the change to summer time, which is on that day in Berlin."""
    say(store, "a", "msg_1", datetime(2026, 3, 28, 23, 30, tzinfo=UTC))
    say(store, "a", "msg_2", datetime(2026, 3, 29, 22, 30, tzinfo=UTC))
    assert list(keys(store, timezone=zone)) == days


times = st.integers(0, 4 * 3600)


@given(st.lists(times, max_size=15, unique=True), times, times, st.booleans())
def test_a_span_of_time_is_exact_to_the_microsecond(
    seconds: list[int], since: int, until: int, own_bands: bool
) -> None:
    """Though sums are kept by quarters of an hour, and some prices need every reply by itself."""
    prices: Any = {"m": {"input": [1, [50, 2]], "output": 0}} if own_bands else PRICES
    with clew.open("memory:") as store:
        store.create("a")
        for second in seconds:
            say(store, "a", f"msg_{second}", NOON + timedelta(seconds=second))
        ends = (NOON + timedelta(seconds=since), NOON + timedelta(seconds=until))
        found = store.usage("a", since=ends[0], until=ends[1], prices=prices).total
        assert found.replies == len([one for one in seconds if since <= one < until])


def test_a_span_back_from_now(store: Store) -> None:
    say(store, "a", "msg_1", store.now() - timedelta(hours=3))
    say(store, "a", "msg_2", store.now() - timedelta(hours=1))
    assert store.usage(since=timedelta(hours=2)).total.replies == 1


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("by", {"by": "week"}),
        ("timezone", {"timezone": "Mars/Olympus"}),
        ("timezone", {"timezone": "../../etc/passwd"}),
        ("since", {"since": datetime(2026, 1, 1)}),
        ("until", {"until": "2026"}),
        ("workspace", {"workspace": 5}),
    ],
)
def test_what_cannot_be_asked_for_is_refused(field: str, options: Any) -> None:
    with clew.open("memory:") as store, pytest.raises(InvalidInput) as refused:
        store.usage(**options)
    assert refused.value.fields["field"] == field


def test_a_thread_that_is_not_there_is_not_one_without_usage(store: Store) -> None:
    with pytest.raises(NotFound):
        store.usage("no such")


def test_a_store_without_replies_cost_nothing(store: Store) -> None:
    report = store.usage()
    assert (report.rows, report.total) == ([], Used())


def test_an_unknown_model_is_unknown_and_not_free(store: Store) -> None:
    say(store, "a", "msg_1", model="no-such-model")
    say(store, "a", "msg_2", model="m")
    rows = {row.key: row.used for row in store.usage(by="model", prices=PRICES).rows}
    assert rows["no-such-model"].cost_microdollars is None
    assert rows["no-such-model"].unknown_models == ("no-such-model",)
    total = store.usage(prices=PRICES).total
    assert (total.cost_microdollars, total.priced, total.unpriced) == (120, False, 1)
    assert total.unknown_models == ("no-such-model",)


def test_a_reply_without_a_token_is_no_unknown_cost(store: Store) -> None:
    """Agents write messages of their own in the model's place, under names that no price has."""
    say(store, "a", "msg_1", model="<synthetic>", input_tokens=0, output_tokens=0)
    total = store.usage().total
    assert (total.cost_microdollars, total.priced, total.unknown_models) == (0, True, ())


def test_a_thread_that_cannot_be_read_does_not_count_what_one_of_its_name_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store in the place of another one, whose counts are remembered."""
    address = f"files:{tmp_path / 'store'}"
    with clew.open(address) as store:
        say(store, "good", "msg_1")
        say(store, "bad", "msg_2")
        assert store.usage().total.replies == 2
    shutil.rmtree(tmp_path / "store")
    with clew.open(address) as store:
        say(store, "good", "msg_1")
        say(store, "bad", "msg_2")
        read = store.engine.read

        def failing(thread: str, **options: Any) -> Any:
            if thread == "bad":
                raise clew.Corrupt("thread 'bad'", "torn")
            return read(thread, **options)

        monkeypatch.setattr(store.engine, "read", failing)
        report = store.usage()
        assert (report.total.replies, report.damaged) == (1, ("bad",))


def test_a_damaged_thread_is_named_and_does_not_hide_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(store, "good", "msg_1")
    say(store, "bad", "msg_2")
    read = store.engine.read

    def failing(thread: str, **options: Any) -> Any:
        if thread == "bad":
            raise clew.Corrupt("thread 'bad'", "torn")
        return read(thread, **options)

    monkeypatch.setattr(store.engine, "read", failing)
    report = store.usage()
    assert (report.total.replies, report.damaged) == (1, ("bad",))
    monkeypatch.undo()
    report = store.usage()
    assert (report.total.replies, report.damaged) == (2, ())


def test_a_store_that_may_only_be_read_tells_its_usage(tmp_path: Path) -> None:
    with clew.open(tmp_path / "t.db") as store:
        say(store, "a", "msg_1")
    with clew.open(tmp_path / "t.db", readonly=True) as store:
        assert store.usage().total.replies == 1


def test_namespaces_do_not_see_the_usage_of_each_other(tmp_path: Path) -> None:
    with (
        clew.open(tmp_path / "t.db") as store,
        clew.open(tmp_path / "t.db", namespace="b") as other,
    ):
        say(store, "a", "msg_1")
        say(other, "a", "msg_2")
        say(other, "a", "msg_3")
        assert (store.usage().total.replies, other.usage().total.replies) == (1, 2)


@pytest.mark.parametrize(
    ("count", "text"),
    {
        0: "0",
        999: "999",
        1000: "1.0k",
        12_345: "12.3k",
        999_949: "999.9k",
        999_999: "1.00M",
        4_560_000: "4.56M",
        45_600_000: "45.6M",
        1_200_000_000: "1.20G",
    }.items(),
)
def test_a_number_of_tokens_in_few_characters(count: int, text: str) -> None:
    assert short(count) == text


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (0, "$0.00"),
        (1, "<$0.01"),
        (4_999, "<$0.01"),
        (5_000, "$0.01"),
        (1_234_567_890, "$1,234.57"),
    ],
)
def test_money_is_rounded_to_cents_and_something_is_not_nothing(cost: int, text: str) -> None:
    assert dollars(cost) == text


def test_usage_as_one_line() -> None:
    tokens = Tokens(input=300, cache_read=12_000, output=1000, reasoning=200)
    used = Used(replies=1, tokens=tokens, cost_microdollars=41_000)
    assert line_of(used) == "12.3k in, 1.2k out, $0.04"
    assert line_of(Used(replies=1, cost_microdollars=None, priced=False)).endswith("unknown")
