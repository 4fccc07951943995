"""The table for people, and the file for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.figures import Figure
from bench.groups import GROUPS


def table(figures: Sequence[Figure], machine: dict[str, object]) -> str:
    head = ("figure", "value", "middle half", "bar", "")
    rows = [head, *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [_line(row, widths) for row in rows]
    rule = "-" * max(map(len, lines))
    return "\n".join(["", lines[0], rule, *_by_group(figures, lines[1:]), rule, *_foot(machine)])


def _row(figure: Figure) -> tuple[str, ...]:
    spread = figure.middle_half
    return (
        figure.name,
        f"{_number(figure.value)} {figure.unit}".ljust(0),
        "" if spread is None else f"{_number(spread[0])} – {_number(spread[1])}",
        "" if figure.bar is None else f"{figure.sense} {_number(figure.bar)}",
        "" if figure.bar is None else "holds" if figure.holds else "MISSED",
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _line(row: tuple[str, ...], widths: Sequence[int]) -> str:
    first, *rest = (
        text.ljust(width) if column == 0 else text.rjust(width)
        for column, (text, width) in enumerate(zip(row, widths, strict=True))
    )
    return "   ".join([first, *rest]).rstrip()


def _by_group(figures: Sequence[Figure], lines: Sequence[str]) -> Iterable[str]:
    """The lines, with an empty one between groups."""
    before = None
    for figure, line in zip(figures, lines, strict=True):
        if before not in (None, figure.group):
            yield ""
        before = figure.group
        yield line


def _foot(machine: dict[str, object]) -> Iterable[str]:
    known = (f"{name} {value}" for name, value in machine.items() if value is not None)
    yield "Ratios are medians over rounds of turns; the middle half of the rounds lies between."
    yield ", ".join(known)


def save(path: Path, group: str, figures: Sequence[Figure], machine: dict[str, object]) -> None:
    """Replace the figures of one group in the file; those of the others stay as they are."""
    kept = [item for item in _read(path) if _group(item) not in (group, None)]
    merged = kept + [figure.as_json() for figure in figures]
    order = list(GROUPS)
    merged.sort(key=lambda item: order.index(_group(item) or ""))
    text = json.dumps({"figures": merged, "machine": machine}, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", "utf-8")


def _read(path: Path) -> list[dict[str, object]]:
    try:
        return list(json.loads(path.read_text("utf-8"))["figures"])
    except (OSError, ValueError, KeyError):  # none yet, or not one of ours: begin anew
        return []


def _group(item: dict[str, object]) -> str | None:
    """The group of a figure in the file; None if it is not measured any more."""
    name = str(item["figure"]).partition(":")[0]
    return name if name in GROUPS else None
