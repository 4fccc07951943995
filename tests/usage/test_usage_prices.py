"""Prices: the model that is meant, the price of that day, the tier of that request, exactly."""

from __future__ import annotations

import json
import tomllib
from datetime import UTC, datetime
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from replies_support import anthropic

import clew
from clew import InvalidInput, NotFound
from clew.core.model import to_us
from clew.usage.prices import CLASSES, bundled, load

NOW = to_us(datetime(2026, 11, 1, tzinfo=UTC))


def dollars(model: str, provider: str | None = None, time_us: int = NOW, size: int = 0) -> Any:
    """The price of input and output, in dollars for a million tokens."""
    prices = bundled()
    rates = prices.rates(model, provider, time_us, prices.band_of(size))
    return None if rates is None else tuple(Decimal(rate) / 10**6 for rate in rates[:2])


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("claude-sonnet-4-5-20250929", "anthropic"),
        ("claude-sonnet-4-5", "claude-code"),
        ("anthropic/claude-sonnet-4.5", "openai-chat"),
        ("claude-sonnet-4-5", None),
        ("CLAUDE-SONNET-4-5", "a provider that nobody knows"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "converse"),
    ],
)
def test_a_model_is_found_under_the_names_that_it_goes_by(model: str, provider: str | None) -> None:
    found = dollars(model, provider)
    assert found is not None
    assert Decimal("2.5") < found[0] < Decimal(4), found


@pytest.mark.parametrize(
    "model", ["my-local-model", "", "claude", "/", "openrouter/", "\0", "a" * 999]
)
def test_a_model_that_nobody_knows_has_no_price(model: str) -> None:
    assert dollars(model) is None
    assert bundled().rates(None, "anthropic", NOW, 0) is None


def test_the_table_says_of_which_day_it_is_and_whose() -> None:
    assert "genai-prices" in bundled().name
    assert "of 20" in bundled().name
    assert "MIT License" in files("clew.usage").joinpath("prices.LICENSE").read_text("utf-8")


def test_every_price_of_the_table_can_be_read() -> None:
    table = json.loads(files("clew.usage").joinpath("prices.json").read_bytes())
    prices = bundled()
    starts = set()
    for provider in table["providers"]:
        for model in provider["models"]:
            for price in model["prices"]:
                tiered = [price[name] for name in CLASSES if isinstance(price.get(name), list)]
                starts |= {start for tiers in tiered for start, _ in tiers[1:]}
            if model["prices"]:
                own = load({"models": {"m": model["prices"]}})  # the form is the same
                assert own.rates("m", None, NOW, 0) is not None, model["id"]
    assert starts == set(prices.bands)


OWN = {
    "models": {
        "m": [
            {"input": "1", "output": "2"},
            {"input": "3", "output": "4", "from": "2026-01-01"},
            {"input": "0.5", "output": "0.5", "between": ["22:00", "06:00"]},
        ],
        "tiered": {"input": ["1", [1000, "2"], [5000, "3"]], "output": "0"},
        "family-*": {"input": 1, "output": 1},
        "family-large-*": {"input": 0.1, "output": "0.000001"},
    }
}


@pytest.mark.parametrize(
    ("time", "rate"),
    [
        (datetime(2025, 12, 31, 12, tzinfo=UTC), 1),
        (datetime(2026, 1, 1, 12, tzinfo=UTC), 3),
        (datetime(2026, 1, 1, 23, tzinfo=UTC), Decimal("0.5")),
        (datetime(2026, 1, 1, 5, 59, tzinfo=UTC), Decimal("0.5")),
        (datetime(2026, 1, 1, 6, tzinfo=UTC), 3),
    ],
)
def test_the_price_is_that_of_the_time_of_the_reply(time: datetime, rate: Any) -> None:
    rates = load(OWN).rates("m", None, to_us(time), 0)
    assert rates is not None
    assert Decimal(rates[0]) / 10**6 == rate


@pytest.mark.parametrize(
    ("size", "rate"), [(0, 1), (1000, 1), (1001, 2), (5000, 2), (5001, 3), (10**9, 3)]
)
def test_the_size_of_the_request_decides_on_the_tier_of_all_its_tokens(
    size: int, rate: int
) -> None:
    prices = load(OWN)
    rates = prices.rates("tiered", None, NOW, prices.band_of(size))
    assert rates is not None
    assert rates[0] == rate * 10**6


def test_tiers_of_the_table_count_what_came_from_the_cache_as_well() -> None:
    """A request of 250,000 tokens, of which most were in the cache, is a large one."""
    cheap, dear = dollars("gemini-2.5-pro", size=100_000), dollars("gemini-2.5-pro", size=250_000)
    assert dear[0] > cheap[0]
    usage = {"input_tokens": 1000, "cache_read_input_tokens": 249_000}
    with clew.open("memory:") as store:
        thread = store.create("t")
        thread.append_message(anthropic("msg_1", "gemini-2.5-pro", **usage), format="anthropic")
        large = store.usage().total.cost_microdollars
        own = {"gemini-2.5-pro": {"input": dear[0], "cache_read": dear[0] / 10, "output": dear[1]}}
        assert store.usage(prices=own).total.cost_microdollars == large


def test_own_tiers_are_counted_reply_by_reply() -> None:
    """The sums that are kept know nothing of them."""
    with clew.open("memory:") as store:
        for number, size in enumerate([1000, 1001, 6000]):
            body = anthropic(f"msg_{number}", "tiered", input_tokens=size, output_tokens=0)
            store.create().append_message(body, format="anthropic")
        assert store.usage(prices=OWN).total.cost_microdollars == 1000 + 2 * 1001 + 3 * 6000


def test_the_longest_beginning_of_a_name_wins_and_a_name_itself_before_all() -> None:
    prices = load(OWN)
    small, large = (prices.rates(f"family-{name}", None, NOW, 0) for name in ("x", "large-x"))
    assert small is not None
    assert large is not None
    assert (small[0], large[0], large[1]) == (1_000_000, 100_000, 1)


def test_prices_of_ones_own_come_before_those_of_clew() -> None:
    rates = load({"claude-sonnet-4-5": {"input": 7, "output": 7}}).rates(
        "claude-sonnet-4-5", "anthropic", NOW, 0
    )
    assert rates is not None
    assert rates[0] == 7_000_000


def test_a_price_that_is_not_given_is_that_of_the_class_around_it() -> None:
    rates = load({"m": {"input": 3, "output": 5}}).rates("m", None, NOW, 0)
    assert rates == tuple(n * 10**6 for n in (3, 5, 3, 3, 3, 5))


def test_cents_do_not_get_lost_in_many_small_replies() -> None:
    """A third of a microdollar, three thousand times over: floats and early rounding lose it."""
    with clew.open("memory:") as store:
        thread = store.create("t")
        for number in range(300):
            body = anthropic(f"msg_{number}", input_tokens=1, output_tokens=0)
            thread.append_message(body, format="anthropic")
        own = {"m": {"input": "0.333333", "output": 0}}
        assert store.usage(prices=own).total.cost_microdollars == 100


@pytest.mark.parametrize(
    "prices",
    [
        {"m": {"input": -1, "output": 1}},
        {"m": {"input": "NaN", "output": 1}},
        {"m": {"input": "Infinity", "output": 1}},
        {"m": {"input": "three", "output": 1}},
        {"m": {"input": True, "output": 1}},
        {"m": {"input": [], "output": 1}},
        {"m": {"input": ["1", [5]], "output": 1}},
        {"m": {"input": None, "output": 1}},
        {"m": {"inputs": 1, "output": 1}},
        {"m": {}},
        {"m": 3},
        {"m": [1]},
        {"m": {"input": 1, "output": 1, "from": "soon"}},
        {"m": {"input": 1, "output": 1, "from": 5}},
        {"m": {"input": 1, "output": 1, "between": ["25:00", "1"]}},
        {"m": {"input": 1, "output": 1, "between": "x"}},
        {"models": 5},
        {5: {"input": 1, "output": 1}},
    ],
    ids=str,
)
def test_prices_that_cannot_be_are_refused_with_their_place(prices: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        load(prices)
    assert refused.value.fields["field"] == "prices"


def test_a_file_of_prices(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    with pytest.raises(NotFound):
        load(file)
    for text in ("", "[]", "{", '{"models": []}', "\xff"):
        file.write_text(text, "latin-1")
        with pytest.raises(InvalidInput):
            load(file)
    with pytest.raises(InvalidInput):
        load(tmp_path)
    file.write_text(json.dumps(OWN))
    assert load(str(file)).rates("family-x", None, NOW, 0) is not None


def test_the_prices_go_into_the_wheel() -> None:
    root = Path(__file__).parent.parent.parent
    built = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert built["targets"]["wheel"]["packages"] == ["src/clew"]
    assert (root / "src" / "clew" / "usage" / "prices.json").is_file()
