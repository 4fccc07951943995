"""`python -m bench.plot`: measure the curves, and draw them for docs/explain/performance.md.

    make bench-plot                     measure and draw
    make bench-plot ARGS=--redraw       draw once more what was measured last

The picture carries its own style for light and dark pages. Lines differ in colour, in dash and in
the shape of their points.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

import msgspec

from bench.__main__ import RESULTS
from bench.curves import Curve, Panel, measure
from bench.machine import describe
from bench.workshop import Workshop

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "costs.svg"
_MEASURED = RESULTS / "curves.json"

_WIDTH, _HEIGHT = 960, 380
_LEFT, _TOP, _BOTTOM = 50, 92, 56  # of a panel: room for its labels
_GAP = 26
_STYLE = """
svg { color-scheme: light dark; font: 13px system-ui, sans-serif; }
.page { fill: #ffffff; } .ink { fill: #1f2328; } .faint { fill: #59636e; }
.grid { stroke: #d8dee4; } .axis { stroke: #59636e; }
.line { fill: none; stroke-width: 2.5; } .dot { stroke: none; }
.s0 { color: #0b5fce; } .s1 { color: #b3400f; } .s2 { color: #1a7f37; } .s3 { color: #8250df; }
.s4 { color: #7a5d00; } .line { stroke: currentColor; } .dot { fill: currentColor; }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; } .ink { fill: #e6edf3; } .faint { fill: #9198a1; }
  .grid { stroke: #2b323b; } .axis { stroke: #9198a1; }
  .s0 { color: #6cb0ff; } .s1 { color: #ff9a66; } .s2 { color: #56d364; } .s3 { color: #c5a3ff; }
  .s4 { color: #e3c15a; }
}
"""
_DASHES = ("", "7 4", "2 4", "10 3 2 3", "4 2")
_MARKS = ("M-4-4h8v8h-8z", "M0-5L5 4H-5z", "M0-5L5 0L0 5L-5 0z", "M-5-3H5L0 5z", "M-4-2h8v4h-8z")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.plot", description="Draw the costs.")
    parser.add_argument("--redraw", action="store_true", help="draw what was measured last")
    if not parser.parse_args(arguments).redraw:
        RESULTS.mkdir(exist_ok=True)
        with (
            tempfile.TemporaryDirectory(prefix="stores-", dir=RESULTS) as folder,
            Workshop(Path(folder)) as workshop,
        ):
            found = {"machine": describe(Path(folder)), "panels": list(measure(workshop))}
        _MEASURED.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
    panels = msgspec.json.decode(_MEASURED.read_bytes(), type=dict[str, msgspec.Raw])["panels"]
    drawn = msgspec.json.decode(panels, type=list[Panel])
    PICTURE.write_text(draw(drawn), "utf-8")
    print(table(drawn))


def table(panels: Sequence[Panel]) -> str:
    """The same in numbers, in Markdown, with Clew's first point as the measure of each panel."""
    lines = []
    for panel in panels:
        sizes = [f"{size:,}" for size, _ in panel.curves[0].points]
        lines += [f"\n{panel.title}, ms, by {panel.axis}:\n", f"| | {' | '.join(sizes)} |"]
        lines.append("|---" * (len(sizes) + 1) + "|")
        for curve in panel.curves:
            cells = [f"{value:.2f}" for _, value in curve.points]
            lines.append(f"| {curve.label} | {' | '.join(cells)} |")
    return "\n".join(lines)


# --- the picture ----------------------------------------------------------------------------


def draw(panels: Sequence[Panel]) -> str:
    width = (_WIDTH - _GAP * (len(panels) + 1)) / len(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
        f' aria-labelledby="title"><title id="title">{escape(_summary(panels))}</title>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>',
        *_legend([curve.label for curve in panels[0].curves]),
    ]
    for number, panel in enumerate(panels):
        left = _GAP + number * (width + _GAP)
        parts += _Frame(panel, left + _LEFT, left + width).draw()
    return "\n".join([*parts, "</svg>", ""])


def _summary(panels: Sequence[Panel]) -> str:
    """The picture for those who cannot see it: how much each line rises."""
    rises = [
        f"{curve.label} {curve.points[-1][1] / curve.points[0][1]:.2g} times"
        for panel in panels[:1]
        for curve in panel.curves
    ]
    return f"Costs by size. From first to last point an append grows: {', '.join(rises)}."


def _legend(labels: Sequence[str]) -> Iterator[str]:
    left = _GAP
    for number, label in enumerate(labels):
        yield f'<g class="s{number}">{_line(number, f"M{left} 26h34")}'
        yield f"{_mark(number, left + 17, 26)}</g>"
        yield f'<text class="ink" x="{left + 42}" y="30">{escape(label)}</text>'
        left += 66 + round(len(label) * 6.9)


def _line(number: int, path: str) -> str:
    dash = f' stroke-dasharray="{_DASHES[number]}"' if _DASHES[number] else ""
    return f'<path class="line"{dash} d="{path}"/>'


def _mark(number: int, x: float, y: float, tip: str = "") -> str:
    inside = f"<title>{escape(tip)}</title>" if tip else ""
    place = f'transform="translate({x:.1f} {y:.1f})"'
    return f'<path class="dot" {place} d="{_MARKS[number]}">{inside}</path>'


class _Frame:
    """One panel: both axes go by powers of ten."""

    def __init__(self, panel: Panel, left: float, right: float) -> None:
        self._panel = panel
        self._left, self._right = left, right
        points = [point for curve in panel.curves for point in curve.points]
        self._sizes = sorted({size for size, _ in points})
        times = [time for _, time in points]
        self._low = math.floor(math.log10(min(times)))
        self._high = math.ceil(math.log10(max(times)))

    def draw(self) -> Iterator[str]:
        title = f"{self._panel.title}, ms"
        yield f'<text class="ink" font-weight="600" x="{self._left}" y="68">{escape(title)}</text>'
        bottom = _HEIGHT - _BOTTOM
        for power in range(self._low, self._high + 1):
            y = self._y(10**power)
            yield f'<path class="grid" d="M{self._left:.1f} {y:.1f}H{self._right:.1f}"/>'
            yield (
                f'<text class="faint" text-anchor="end" x="{self._left - 7:.1f}" y="{y + 4:.1f}">'
                f"{10**power:g}</text>"
            )
        yield f'<path class="axis" d="M{self._left:.1f} {bottom}H{self._right:.1f}"/>'
        for size in self._sizes:
            yield (
                f'<text class="faint" text-anchor="middle" x="{self._x(size):.1f}"'
                f' y="{bottom + 18}">{size:,}</text>'
            )
        middle = (self._left + self._right) / 2
        yield (
            f'<text class="faint" text-anchor="middle" x="{middle:.1f}" y="{bottom + 40}">'
            f"{escape(self._panel.axis)}</text>"
        )
        for number, curve in enumerate(self._panel.curves):
            yield from self._curve(number, curve)

    def _curve(self, number: int, curve: Curve) -> Iterator[str]:
        places = [(self._x(size), self._y(time)) for size, time in curve.points]
        yield f'<g class="s{number}">'
        yield _line(number, "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places))
        for (x, y), (size, time) in zip(places, curve.points, strict=True):
            yield _mark(number, x, y, f"{curve.label}, {size:,}: {time:.2f} ms")
        yield "</g>"

    def _x(self, size: int) -> float:
        first, last = math.log10(self._sizes[0]), math.log10(self._sizes[-1])
        share = (math.log10(size) - first) / (last - first)
        return self._left + 12 + share * (self._right - self._left - 32)

    def _y(self, time: float) -> float:
        share = (math.log10(time) - self._low) / (self._high - self._low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)


if __name__ == "__main__":
    main()
