"""Make src/clew/usage/prices.json from the data of the package genai-prices (MIT).

    pip install genai-prices
    python tools/prices.py 2026-11-09

The date is the day that the prices are of. Nothing of the package is needed to run Clew. What is
left out: descriptions, prices of anything but tokens of text, discounts for batches and the like.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

from genai_prices import types
from genai_prices.data import providers

TARGET = Path(__file__).parent.parent / "src" / "clew" / "usage" / "prices.json"
CLASSES = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write",
    "cache_write_1h_mtok": "cache_write_1h",
    "output_reasoning_mtok": "reasoning",
}
STARTS: set[int] = set()  # the sizes of requests that some price changes at
CLAUSES = ("starts_with", "ends_with", "contains", "regex", "equals")


def clause(given: Any) -> Any:
    for name in CLAUSES:
        if hasattr(given, name):
            return {name: getattr(given, name)}
    parts = given.or_ if isinstance(given, types.ClauseOr) else given.and_
    return {"or" if isinstance(given, types.ClauseOr) else "and": [clause(one) for one in parts]}


def price(given: Decimal | types.TieredPrices) -> Any:
    if isinstance(given, Decimal):
        # Clew counts in millionths of a millionth of a dollar for a token: six digits.
        return f"{given.quantize(Decimal('0.000001')).normalize():f}"
    STARTS.update(tier.start for tier in given.tiers)
    return [price(given.base), *[[tier.start, price(tier.price)] for tier in given.tiers]]


def prices(given: types.ModelPrice, constraint: Any = None) -> dict[str, Any]:
    found = {
        name: price(getattr(given, key))
        for key, name in CLASSES.items()
        if getattr(given, key, None) is not None
    }
    if isinstance(constraint, types.StartDateConstraint):
        found["from"] = constraint.start_date.isoformat()
    elif constraint is not None:
        times = (constraint.start_time, constraint.end_time)
        assert all(time.utcoffset() is None or not time.utcoffset() for time in times)
        found["between"] = [time.strftime("%H:%M") for time in times]
    return found


def model(given: types.ModelInfo) -> dict[str, Any]:
    told = given.prices
    every = (
        [prices(told)]
        if isinstance(told, types.ModelPrice)
        else [prices(one.prices, one.constraint) for one in told]
    )
    if not any({"input", "output"} & one.keys() for one in every):
        every = []  # it is not paid by tokens; the name must not lead to another provider's model
    return {"id": given.id, "match": clause(given.match), "prices": every}


def provider(given: types.Provider) -> dict[str, Any]:
    found: dict[str, Any] = {"id": given.id}
    if given.provider_match is not None:
        found["names"] = clause(given.provider_match)
    if given.model_match is not None:
        found["match"] = clause(given.model_match)
    if given.fallback_model_providers:
        found["fallback"] = given.fallback_model_providers
    return found | {"models": [model(one) for one in given.models]}


def main(date: str) -> None:
    table = {
        "source": f"genai-prices {importlib.metadata.version('genai-prices')}",
        "licence": "MIT; see prices.LICENSE",
        "date": date,
        "providers": [provider(one) for one in providers],
    }
    table["tiers"] = sorted(STARTS)
    lines = json.dumps(table, ensure_ascii=False, separators=(",", ":"))
    TARGET.write_text(lines.replace('{"id":', '\n{"id":') + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
