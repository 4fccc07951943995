"""Tokens and money: by day, model, workspace, agent or thread, as a chart with its table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from clew.core.errors import InvalidInput
from clew.server.site import Ask, short, url
from clew.usage.model import GROUPS, UsageRow, money
from clew.usage.model import short as few

ROWS_MAX = 200
_DAYS = 30
_WIDTH, _HEIGHT = 1000.0, 200.0


class Bar(Struct, frozen=True, kw_only=True):
    """A group in the chart: what was sent below, what was written above it."""

    x: float
    width: float
    sent: float
    written: float
    title: str


def page(ask: Ask) -> Response:
    by = ask.query.get("by") or "day"
    if by not in GROUPS:
        raise InvalidInput("by", f"must be one of {', '.join(GROUPS)}")
    days = ask.query.get("days", str(_DAYS))
    options: dict[str, Any] = {"by": by}
    if days:
        if not days.isdecimal() or len(days) > 5 or not int(days):
            raise InvalidInput("days", "must be a number of days")
        options["since"] = timedelta(days=int(days))
    for key in ("model", "workspace", "agent"):
        if value := ask.query.get(key):
            options[key] = value
    if not ask.site.counted.ready():
        return ask.page("counting.html", tab="usage", build=ask.site.counted)
    report = ask.store.usage(**options)
    rows = report.rows if by == "day" else _largest(report.rows)
    return ask.page(
        "usage.html",
        tab="usage",
        by=by,
        days=days,
        groups=GROUPS,
        report=report,
        rows=[(row, _link(by, row), money(row.used)) for row in rows[:ROWS_MAX]],
        total=money(report.total),
        left_out=max(0, len(rows) - ROWS_MAX),
        bars=bars(rows[-60:] if by == "day" else rows[:30]),
        few=few,
    )


def _largest(rows: Sequence[UsageRow]) -> list[UsageRow]:
    return sorted(
        rows, key=lambda row: (-(row.used.cost_microdollars or 0), -row.used.tokens.total)
    )


def _link(by: str, row: UsageRow) -> tuple[str, str]:
    """What a row is called, and where it leads."""
    if row.key is None:
        return "not known", ""
    if by == "thread":
        return short(row.key), url("/thread", id=row.key)
    if by == "workspace":
        return row.key, url("/", workspace=row.key)
    return row.key, url("/", **{by: row.key}) if by in ("agent", "model") else ""


def bars(rows: Sequence[UsageRow]) -> list[Bar]:
    highest = max((row.used.tokens.total for row in rows), default=0) or 1
    step = _WIDTH / max(8, len(rows))
    found = []
    for n, row in enumerate(rows):
        tokens = row.used.tokens
        title = f"{row.key or 'not known'}: {few(tokens.sent)} in, {few(tokens.written)} out"
        found.append(
            Bar(
                x=n * step + step * 0.1,
                width=step * 0.8,
                sent=tokens.sent * _HEIGHT / highest,
                written=tokens.written * _HEIGHT / highest,
                title=f"{title}, {money(row.used)}",
            )
        )
    return found
