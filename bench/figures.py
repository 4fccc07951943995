"""A figure: one number of the table and, if it is a promise, the bar it is held to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median, quantiles
from typing import Literal

from bench.timing import Spent

Sense = Literal["<=", ">="]
Verdict = Literal["holds", "missed", "too noisy to say"]


@dataclass(frozen=True)
class Figure:
    """`name` begins with the group: "fork: ...". Without a bar the figure is for comparison.

    `runs` are the values of each round, for each time that the group was measured.
    """

    name: str
    value: float
    unit: str
    bar: float | None = None
    sense: Sense = "<="
    runs: tuple[tuple[float, ...], ...] = ()

    @property
    def group(self) -> str:
        return self.name.partition(":")[0]

    @property
    def middle_half(self) -> tuple[float, float] | None:
        """How far the rounds lie apart.

        What was measured three times has rounds of three: those that follow each other in one
        run count as one long round. So noise within a run goes down the more often it is
        measured, and a difference between runs stays to be seen.
        """
        times = len(self.runs)
        rounds = [
            median(run[start : start + times])
            for run in self.runs
            for start in range(0, len(run), times)
        ]
        if len(rounds) < 3:
            return None
        lower, _, upper = quantiles(rounds, n=4, method="inclusive")
        return lower, upper

    @property
    def verdict(self) -> Verdict | None:
        """The middle half decides: it lies on one side of the bar, or nothing can be said."""
        if self.bar is None:
            return None
        ends = self.middle_half or (self.value, self.value)
        good = {end <= self.bar if self.sense == "<=" else end >= self.bar for end in ends}
        if len(good) == 2:
            return "too noisy to say"
        return "holds" if good == {True} else "missed"

    def measured_again(self, other: Figure) -> Figure:
        """One figure of both."""
        runs = (self.runs or ((self.value,),)) + (other.runs or ((other.value,),))
        return replace(self, value=median(value for run in runs for value in run), runs=runs)

    def as_json(self) -> dict[str, object]:
        spread = self.middle_half
        return {
            "figure": self.name,
            "value": round(self.value, 4),
            "unit": self.unit,
            "middle_half": None if spread is None else [round(end, 4) for end in spread],
            "bar": self.bar,
            "sense": self.sense,
            "verdict": self.verdict,
        }


def merged(first: Sequence[Figure], second: Iterable[Figure]) -> list[Figure]:
    """The figures of a group that was measured again."""
    again = {figure.name: figure for figure in second}
    return [
        figure.measured_again(again[figure.name]) if figure.name in again else figure
        for figure in first
    ]


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
    return _of(name, quotients, "x", bar, ">=" if at_most is None else "<=")


def rate(name: str, per_second: Sequence[float]) -> Figure:
    return _of(name, per_second, "/s", None, ">=")


def milliseconds(name: str, seconds: Sequence[float], *, at_most: float | None = None) -> Figure:
    return _of(name, [value * 1e3 for value in seconds], "ms", at_most)


def microseconds(name: str, seconds: Sequence[float], *, at_most: float | None = None) -> Figure:
    return _of(name, [value * 1e6 for value in seconds], "µs", at_most)


def kilobytes(name: str, sizes: Sequence[float], *, at_most: float | None = None) -> Figure:
    return _of(name, [size / 1e3 for size in sizes], "KB", at_most)


def megabytes(name: str, value: float, *, at_most: float | None = None) -> Figure:
    return Figure(name, value, "MB", at_most)


def costs(name: str, rounds: Sequence[Spent]) -> Iterable[Figure]:
    """A rate, and beside it what each operation took of the processor and wrote."""
    yield rate(name, [each.per_second for each in rounds])
    yield microseconds(f"{name}, processor time", [each.processor_seconds for each in rounds])
    written = [each.written_bytes for each in rounds if each.written_bytes is not None]
    if written:
        yield kilobytes(f"{name}, written", written)


def rates(rounds: Sequence[Spent]) -> list[float]:
    return [each.per_second for each in rounds]


def _of(
    name: str, values: Sequence[float], unit: str, bar: float | None, sense: Sense = "<="
) -> Figure:
    return Figure(name, median(values), unit, bar, sense, (tuple(values),))
