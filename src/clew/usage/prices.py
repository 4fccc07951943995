"""What tokens cost: the table that comes with Clew, and prices of the caller's own before it.

The table is data of genai-prices (MIT, see prices.LICENSE), made by tools/prices.py. A model is
found by the rules of the data: which provider a name belongs to, and which of its models. A model
may have several prices: the last whose time has come, or whose hours it is, counts. A price may
have tiers: the size of the whole request decides which one all its tokens are paid by.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping
from datetime import date, time
from decimal import Decimal, InvalidOperation
from functools import cache
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from clew.core.errors import ClewError, InvalidInput, NotFound

DAY_US = 86_400_000_000
CLASSES = ("input", "output", "cache_read", "cache_write", "cache_write_1h", "reasoning")
_FALLBACKS = {
    "cache_read": "input",
    "cache_write": "input",
    "cache_write_1h": "cache_write",
    "reasoning": "output",
}
# By which provider the models of a format are served, as far as nothing else says so.
_SERVED = {
    **dict.fromkeys(("anthropic", "claude-code"), "anthropic"),
    **dict.fromkeys(("gemini", "adk"), "google"),
    "openai-responses": "openai",
    "converse": "aws",
}
_DOLLAR_MAX = Decimal(1_000_000)

# Picodollars a token, which is microdollars a million tokens: one for each class.
Rates = tuple[int, ...]
Tiers = list[tuple[int, int]]  # from which size of a request on, which rate; the first from -1 on


class Price(Struct, frozen=True):
    """What a model costs in some time. `between` are hours of the day, in UTC."""

    rates: tuple[Tiers, ...]  # of each class
    from_us: int | None = None
    between: tuple[int, int] | None = None

    def is_active(self, time_us: int) -> bool:
        if self.from_us is not None:
            return time_us >= self.from_us
        if self.between is None:
            return True
        start, end = self.between
        now = time_us % DAY_US
        return start <= now < end if start <= end else now >= start or now < end

    def of_size(self, request: int) -> Rates:
        """The rates for a request of so many tokens."""
        found = []
        for tiers in self.rates:
            at = bisect_left(tiers, (request, -1)) - 1
            found.append(tiers[max(at, 0)][1])
        return tuple(found)


class _Provider(Struct, frozen=True):
    """Who sells models. They are read when one of them is asked for: most never are."""

    id: str
    models: msgspec.Raw
    names: dict[str, Any] | None = None
    match: dict[str, Any] | None = None
    fallback: tuple[str, ...] = ()


class _Table(Struct, frozen=True):
    """The bundled file."""

    source: str
    date: str
    providers: list[_Provider]
    tiers: list[int]


class Prices:
    """A table of prices: `find` a model's, then ask for the rates at a time."""

    def __init__(self, table: _Table, own: dict[str, list[Price]] | None = None) -> None:
        self._providers = {one.id: one for one in table.providers}
        self._models: dict[str, list[dict[str, Any]]] = {}
        self._own = own or {}
        self._found: dict[tuple[str | None, str | None], list[Price] | None] = {}
        self.name = f"{table.source} of {table.date}" + (" and prices of your own" if own else "")
        starts = {
            start
            for prices in self._own.values()
            for price in prices
            for tiers in price.rates
            for start, _ in tiers[1:]
        }
        self.bands = sorted({*table.tiers, *starts})

    def band_of(self, request: int) -> int:
        """Which requests cost alike: the number of tiers that this one is above."""
        return bisect_left(self.bands, request)

    def rates(
        self, model: str | None, provider: str | None, time_us: int, band: int
    ) -> Rates | None:
        """What a token of each class costs, in picodollars. None: the price is not known."""
        key = (model, provider)
        if key not in self._found:
            self._found[key] = self._find(model, provider)
        found = self._found[key]
        if found is None:
            return None
        price = next((one for one in reversed(found) if one.is_active(time_us)), found[0])
        return price.of_size(self.bands[band - 1] + 1 if band else 0)

    def _find(self, model: str | None, provider: str | None) -> list[Price] | None:
        if model is None:
            return None
        name = model.lower()
        own = self._find_own(name)
        if own is not None:
            return own
        for one in self._candidates(name, provider):
            for spelled in dict.fromkeys((name, _dashed(name))):
                found = self._model(one, spelled)
                if found is not None:  # without a price, if it is not paid by tokens
                    return [_price(each, "prices") for each in found["prices"]] or None
        return None

    def _find_own(self, name: str) -> list[Price] | None:
        """The caller's own price: of exactly this model, or of the longest beginning of it."""
        fitting = [key for key in self._own if key.endswith("*") and name.startswith(key[:-1])]
        key = name if name in self._own else max(fitting, key=len, default=None)
        return None if key is None else self._own[key]

    def _candidates(self, name: str, provider: str | None) -> list[_Provider]:
        """Where to look for a model, the most certain first."""
        said = None if provider is None else self._provider(_SERVED.get(provider, provider))
        by_name = [p for p in self._providers.values() if _fits(p.match, name)]
        first = name.partition("/")[0] if "/" in name else ""
        routed = [self._provider(first), self._providers.get("openrouter")] if first else []
        return [one for one in (said, *by_name, *routed) if one is not None]

    def _provider(self, name: str) -> _Provider | None:
        name = name.lower()
        if name in self._providers:
            return self._providers[name]
        fitting = [p for p in self._providers.values() if _fits(p.names, name)]
        return fitting[0] if fitting else None

    def _model(self, provider: _Provider, name: str) -> dict[str, Any] | None:
        places = [provider, *[self._providers[id] for id in provider.fallback]]
        everything = (model for place in places for model in self._models_of(place))
        return next((model for model in everything if _fits(model["match"], name)), None)

    def _models_of(self, provider: _Provider) -> list[dict[str, Any]]:
        if provider.id not in self._models:
            self._models[provider.id] = msgspec.json.decode(provider.models)
        return self._models[provider.id]


def _fits(clause: dict[str, Any] | None, name: str) -> bool:
    """Whether a name is meant by a rule of the data."""
    if not clause:
        return False
    ((kind, value),) = clause.items()
    return _CLAUSES[kind](value, name)


_CLAUSES: dict[str, Callable[[Any, str], bool]] = {
    "starts_with": lambda value, name: name.startswith(value.lower()),
    "ends_with": lambda value, name: name.endswith(value.lower()),
    "contains": lambda value, name: value.lower() in name,
    "equals": lambda value, name: name == value.lower(),
    "regex": lambda value, name: re.search(value, name) is not None,
    "or": lambda value, name: any(_fits(one, name) for one in value),
    "and": lambda value, name: all(_fits(one, name) for one in value),
}


def _dashed(name: str) -> str:
    """Routers write a date in a name without dashes."""
    return re.sub(r"-(20\d\d)(0[1-9]|1[0-2])([0-3]\d)(?=-|:|$)", r"-\1-\2-\3", name)


# --- from JSON --------------------------------------------------------------------------------


@cache
def bundled() -> Prices:
    return Prices(_bundled_table())


@cache
def _bundled_table() -> _Table:
    data = Path(__file__).with_name("prices.json").read_bytes()
    return msgspec.json.decode(data, type=_Table)


def load(given: str | PathLike[str] | Mapping[str, Any] | None) -> Prices:
    """The bundled prices, with the caller's own before them: a file of JSON, or what is in one."""
    if given is None:
        return bundled()
    if isinstance(given, Mapping):
        return Prices(_bundled_table(), _own(given, "prices"))
    place = fspath(given)
    try:
        value = msgspec.json.decode(Path(place).read_bytes(), type=_File)
    except FileNotFoundError:
        raise NotFound("file", place) from None
    except (OSError, ValueError) as error:
        raise InvalidInput("prices", f"{place} cannot be read: {error}") from None
    return Prices(_bundled_table(), _own(value.models, place))


class _File(Struct):
    """A file of prices."""

    models: dict[str, Any]


def _own(given: Any, place: str) -> dict[str, list[Price]]:
    models = given.get("models", given) if isinstance(given, Mapping) else given
    if not isinstance(models, Mapping) or not all(isinstance(name, str) for name in models):
        raise InvalidInput("prices", f"{place}: must be an object with a price for each model")
    return {
        name.lower(): [
            _price(one, f"{place}: {name}")
            for one in (prices if isinstance(prices, list) else [prices])
        ]
        for name, prices in models.items()
    }


def _price(given: Any, place: str) -> Price:
    if not isinstance(given, Mapping) or not {"input", "output"} & given.keys():
        raise InvalidInput("prices", f"{place}: a price is an object with input and output")
    unknown = given.keys() - {*CLASSES, "from", "between"}
    if unknown:
        raise InvalidInput("prices", f"{place}: {sorted(unknown)[0]!r} is no part of a price")
    try:
        rates = {name: _tiers(given[name]) for name in CLASSES if name in given}
        for name in CLASSES:
            rates.setdefault(name, rates.get(_FALLBACKS.get(name, ""), [(-1, 0)]))
        since = given.get("from")
        from_us = None if since is None else _days(date.fromisoformat(since)) * DAY_US
        hours = given.get("between")
        between = None if hours is None else (_time_us(hours[0]), _time_us(hours[1]))
    except (ValueError, TypeError, IndexError, InvalidOperation, ClewError) as error:
        raise InvalidInput("prices", f"{place}: {error}") from None
    return Price(tuple(rates[name] for name in CLASSES), from_us, between)


def _tiers(given: Any) -> Tiers:
    """`"3"`, or `["3", [200000, "6"]]`: six dollars for requests of more than 200,000 tokens."""
    if not isinstance(given, list):
        return [(-1, _rate(given))]
    base, *more = given
    return [(-1, _rate(base)), *sorted((int(start), _rate(rate)) for start, rate in more)]


def _rate(given: Any) -> int:
    """Dollars a million tokens as picodollars a token. A float is what it is written as."""
    rate = Decimal(str(given)) if isinstance(given, int | float | str | Decimal) else None
    if rate is None or isinstance(given, bool) or not 0 <= rate <= _DOLLAR_MAX:
        raise ValueError(f"{given!r} is no price in dollars for a million tokens")
    return int((rate * 1_000_000).to_integral_value())


def _days(day: date) -> int:
    return day.toordinal() - date(1970, 1, 1).toordinal()


def _time_us(text: str) -> int:
    found = time.fromisoformat(text)
    return ((found.hour * 60 + found.minute) * 60 + found.second) * 1_000_000
