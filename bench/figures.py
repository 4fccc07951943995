"""A figure: one number of the table and, if it is a promise, the bar it is held to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Literal

Sense = Literal["<=", ">="]


@dataclass(frozen=True)
class Figure:
    """`name` begins with the group: "fork: ...". Without a bar the figure is for comparison."""

    name: str
    value: float
    unit: str
    bar: float | None = None
    sense: Sense = "<="
    middle_half: tuple[float, float] | None = None  # how far the rounds lie apart

    @property
    def group(self) -> str:
        return self.name.partition(":")[0]

    @property
    def holds(self) -> bool:
        if self.bar is None:
            return True
        return self.value <= self.bar if self.sense == "<=" else self.value >= self.bar

    def as_json(self) -> dict[str, object]:
        return {
            "figure": self.name,
            "value": round(self.value, 4),
            "unit": self.unit,
            "bar": self.bar,
            "sense": self.sense,
            "holds": self.holds,
        }


def ratio(
    name: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Figure:
    """The median of the ratios of each round: what disturbs a whole round cancels out."""
    quotients = [our / their for our, their in zip(ours, theirs, strict=True)]
    bar = at_least if at_most is None else at_most
    sense: Sense = ">=" if at_most is None else "<="
    return Figure(name, median(quotients), "x", bar, sense, _middle_half(quotients))


def rate(name: str, per_second: Sequence[float]) -> Figure:
    return Figure(name, median(per_second), "/s", None, ">=", _middle_half(per_second))


def milliseconds(name: str, seconds: Sequence[float], *, at_most: float | None = None) -> Figure:
    values = [value * 1e3 for value in seconds]
    return Figure(name, median(values), "ms", at_most, middle_half=_middle_half(values))


def microseconds(name: str, seconds: Sequence[float], *, at_most: float | None = None) -> Figure:
    values = [value * 1e6 for value in seconds]
    return Figure(name, median(values), "µs", at_most, middle_half=_middle_half(values))


def megabytes(name: str, value: float, *, at_most: float | None = None) -> Figure:
    return Figure(name, value, "MB", at_most)


def _middle_half(values: Sequence[float]) -> tuple[float, float] | None:
    if len(values) < 3:
        return None
    lower, _, upper = quantiles(values, n=4)
    return lower, upper
