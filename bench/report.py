"""The table for people, and the file for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench.figures import Figure
from bench.groups import GROUPS

Row = tuple[str, ...]

_HEAD: Row = ("figure", "value", "", "rounds, middle half", "bar", "")
_LEFT_ALIGNED = (0, 2)  # figure and unit
_NOTES = (
    "A ratio is the median over rounds in which both sides took turns. No bar: for comparison.",
    "The middle half of the rounds decides whether a bar holds; where the bar lies within it, the",
    "group was measured again, up to three times, and if it still does nothing can be said.",
    "Processor time and bytes written are those of the measuring process, for each operation.",
    "Every peer syncs each append, as Clew does. openai-agents and langgraph ship in WAL mode,",
    "google-adk with a rollback journal, so it is measured in both.",
)


# --- the table ------------------------------------------------------------------------------


def table(figures: Sequence[Figure], machine: dict[str, object]) -> str:
    rows = [_HEAD, *(_row(figure) for figure in figures)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head, *lines = (_line(row, widths) for row in rows)
    rule = "-" * max(map(len, lines))
    foot = [*_NOTES, "; ".join(f"{name} {value}" for name, value in machine.items() if value)]
    return "\n".join([head, rule, *_spaced(figures, lines), rule, *foot])


def _row(figure: Figure) -> Row:
    spread = figure.middle_half
    return (
        figure.name,
        _number(figure.value),
        figure.unit,
        "" if spread is None else " – ".join(map(_number, spread)),
        "" if figure.bar is None else f"{figure.sense} {figure.bar:g}",
        "MISSED" if figure.verdict == "missed" else figure.verdict or "",
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _line(row: Row, widths: Sequence[int]) -> str:
    cells = [
        cell.ljust(width) if column in _LEFT_ALIGNED else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    figure, value, unit, *rest = cells
    return "   ".join([figure, f"{value} {unit}", *rest]).rstrip()


def _spaced(figures: Sequence[Figure], lines: Sequence[str]) -> Iterator[str]:
    """The lines, with an empty one between groups."""
    before = figures[0].group if figures else ""
    for figure, line in zip(figures, lines, strict=True):
        if figure.group != before:
            yield ""
        before = figure.group
        yield line


# --- the file -------------------------------------------------------------------------------


def save(path: Path, group: str, figures: Iterable[Figure], machine: dict[str, object]) -> None:
    """Replace the figures of one group in the file; those of the other groups stay."""
    order = [name for name in GROUPS if name != group]
    kept = [item for item in _read(path) if _group(item) in order]
    items = sorted(
        [*kept, *(figure.as_json() for figure in figures)],
        key=lambda item: list(GROUPS).index(_group(item)),
    )
    text = json.dumps({"figures": items, "machine": machine}, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", "utf-8")


def _read(path: Path) -> list[dict[str, object]]:
    try:
        return list(json.loads(path.read_text("utf-8"))["figures"])
    except (OSError, ValueError, KeyError):  # none yet, or not one of ours: begin anew
        return []


def _group(item: dict[str, object]) -> str:
    return str(item["figure"]).partition(":")[0]
