"""What a call to a model has used: an entry each, and the sums by model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict

from clew.errors import InvalidInput
from clew.messages.neutral import Usage


def call_body(usage: Usage | Mapping[str, Any], model: str) -> dict[str, Any]:
    """The body of a usage entry: the model, and the provider's numbers as they are."""
    numbers = asdict(usage) if isinstance(usage, Usage) else usage
    if not isinstance(numbers, Mapping):
        raise InvalidInput("usage", f"must be an object of numbers, not {usage!r}")
    for name, value in numbers.items():
        if _is_number(value) and value < 0:
            raise InvalidInput("usage", f"must not be negative, but is {value}", path=f"$.{name}")
    return {**numbers, "model": model}


def add_call(totals: dict[str, dict[str, Any]], call: Mapping[str, Any]) -> None:
    """Add a call's numbers to the sums of its model; what is no number is passed over."""
    total = totals.setdefault(call["model"], {"calls": 0})
    total["calls"] += 1
    for name, value in call.items():
        if _is_number(value):
            total[name] = total.get(name, 0) + value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
