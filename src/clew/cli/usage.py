"""What the replies of models took and cost: by day, model, workspace, agent or thread.

Each reply counts once, however many forks and copies share it. TIME is a span (28d, 12h) or a
date; a date after --until is a part of it. Prices are those that come with Clew, of a day that is
said; a model without a price is unknown, and a cost with a + is more than is known.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
from datetime import date, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from clew.cli import _exits
from clew.cli._arguments import add_object, add_store, add_workspace
from clew.cli._json import json_value
from clew.cli._screen import Part, Screen
from clew.cli._stores import open_to_look, resolve, short_id
from clew.cli._text import cells, cut, one_line, pad, plural
from clew.core.errors import InvalidInput, NotFound
from clew.core.model import rfc3339
from clew.store import Store
from clew.usage.model import GROUPS, UsageReport, Used, money, short

_BAR_CELLS = 30
_TOKENS = ("input", "cache_read", "cache_write", "output", "reasoning")
# Where there is little room, the first of these goes first, and some go for a bar.
_DROPPED = ("reasoning", "cache write", "replies", "own", "cache read", "input", "output")
_FOR_BAR = ("reasoning", "cache write", "replies")


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument("--by", choices=GROUPS, help="default: day; of a thread: model")
    parser.add_argument("--since", type=moment, metavar="TIME", help="from then on")
    parser.add_argument("--until", type=moment, metavar="TIME", help="up to then")
    parser.add_argument(
        "--timezone", default="local", metavar="ZONE", help="of days, such as UTC; default: local"
    )
    parser.add_argument("--model", metavar="M", help="only this model")
    add_workspace(parser)
    parser.add_argument("--agent", metavar="A", help="only threads of this agent")
    parser.add_argument("--thread", metavar="ID", help="only this thread; its first letters do")
    parser.add_argument(
        "--tree", action="store_true", help="a thread with its forks and sub-agents"
    )
    parser.add_argument("--prices", metavar="FILE", help="JSON with prices of your own")
    parser.add_argument("--csv", action="store_true", help="print a table for other programs")
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    if options.csv and options.json:
        raise _exits.UsageError("--csv and --json exclude each other")
    with open_to_look(options.store, options.namespace) as store:
        report = _report(options, screen, store)
        if options.json:
            screen.json(_value(report))
        elif options.csv:
            screen.bytes(_table(report).encode())
        else:
            _draw(screen, store, report)
    return _exits.OK


def _report(options: argparse.Namespace, screen: Screen, store: Store) -> UsageReport:
    thread = None
    if options.thread is not None:
        thread = resolve(store, options.thread, deleted=True).id
    zone = _zone(options.timezone)
    try:
        with screen.bar("usage") as bar:
            return store.usage(
                thread,
                tree=options.tree,
                by=options.by,
                since=_since(options.since, store, zone),
                until=_until(options.until, store, zone),
                timezone=options.timezone,
                model=options.model,
                workspace=options.workspace,
                agent=options.agent,
                prices=options.prices,
                progress=bar,
            )
    except NotFound as error:
        if error.what != "file":
            raise
        raise _exits.UsageError(f"there is no file {error.id}") from None


# --- times ------------------------------------------------------------------------------------


def _zone(name: str) -> tzinfo | None:
    """None is that of this machine. One that is none is refused later, with a hint."""
    try:
        return None if name == "local" else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise InvalidInput("timezone", f"{name!r} is no time zone, such as Europe/Berlin") from None


Moment = timedelta | date | datetime


def moment(text: str) -> Moment:
    """The type of options that take a span, a date, or a time."""
    span = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if span is not None:
        return timedelta(hours=int(span[1]) * {"h": 1, "d": 24, "w": 168}[span[2]])
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a span (28d, 12h, 2w) nor a date (2026-01-31)"
        ) from None
    return found if "T" in text or " " in text else found.date()


def _since(given: Moment | None, store: Store, zone: tzinfo | None) -> datetime | None:
    if isinstance(given, timedelta):
        then = store.now() - given
        # A span of days begins with a day, as a date does.
        return then if given % timedelta(days=1) else _midnight(then.astimezone(zone), zone)
    return _at(given, zone)


def _until(given: Moment | None, store: Store, zone: tzinfo | None) -> datetime | None:
    if isinstance(given, timedelta):
        return store.now() - given
    is_day = given is not None and not isinstance(given, datetime)
    return _at(given + timedelta(days=1) if is_day and given is not None else given, zone)


def _at(given: date | datetime | None, zone: tzinfo | None) -> datetime | None:
    if given is None or (isinstance(given, datetime) and given.tzinfo is not None):
        return given
    return _in_zone(given, zone) if isinstance(given, datetime) else _midnight(given, zone)


def _midnight(day: date, zone: tzinfo | None) -> datetime:
    return _in_zone(datetime(day.year, day.month, day.day), zone)


def _in_zone(time: datetime, zone: tzinfo | None) -> datetime:
    return time.astimezone() if zone is None else time.replace(tzinfo=zone)


# --- for programs -----------------------------------------------------------------------------


def _value(report: UsageReport) -> dict[str, Any]:
    found: dict[str, Any] = json_value(report)
    for row in found["rows"]:
        row.update(row.pop("used"))
        if row["tree"] is None:
            del row["tree"]
    return found


def _table(report: UsageReport) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    money = ("cost_microdollars", "priced", "unpriced", "unreadable", "unknown_models")
    writer.writerow((report.by, "replies", *_TOKENS, *money))
    for row in report.rows:
        used = row.used
        writer.writerow(
            (
                _plain(row.key or ""),
                used.replies,
                *[getattr(used.tokens, name) for name in _TOKENS],
                "" if used.cost_microdollars is None else used.cost_microdollars,
                *(str(used.priced).lower(), used.unpriced, used.unreadable),
                _plain(" ".join(used.unknown_models)),
            )
        )
    return out.getvalue()


def _plain(text: str) -> str:
    """A stored text that a spreadsheet would take for a formula begins with an apostrophe."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


# --- for people -------------------------------------------------------------------------------


def _draw(screen: Screen, store: Store, report: UsageReport) -> None:
    if not report.rows:
        screen.line(("no replies that tell their usage", "dim"))
    else:
        _draw_rows(screen, store, report)
    for note in _notes(report):
        screen.prose(note, "yellow")
    when = ""
    if report.since is not None or report.until is not None:
        ends = [("from", report.since), ("before", report.until)]
        when = "; ".join(f"{word} {rfc3339(end)}" for word, end in ends if end is not None) + "; "
    screen.prose(f"{when}prices: {report.prices}", "dim")


def _draw_rows(screen: Screen, store: Store, report: UsageReport) -> None:
    is_tree = any(row.tree is not None for row in report.rows)
    labels = [_label(store, report, row.key) for row in report.rows]
    lines = [_numbers(row.tree or row.used, row.used if is_tree else None) for row in report.rows]
    total = _numbers(report.total, report.total if is_tree else None)
    every = [*lines, total]
    columns = [name for name in total if any(line[name] not in ("0", "") for line in every)]
    widths = {name: max(len(name), *(len(line[name]) for line in every)) for name in columns}
    room = screen.width or 10_000
    key_width = max(map(cells, [*labels, report.by, "total"]))
    if screen.width is not None:  # nothing is cut in a pipe
        key_width = min(key_width, max(16, room // 3))
    for name in _DROPPED:
        wanted = key_width + sum(widths[one] + 2 for one in columns)
        if name in columns and wanted + (12 if name in _FOR_BAR else 0) >= room:
            columns.remove(name)
    key_width = max(min(key_width, room - sum(widths[one] + 2 for one in columns) - 1), 8)
    left = room - key_width - sum(widths[one] + 2 for one in columns) - 3
    shares = _shares(report, min(left, _BAR_CELLS) if screen.width is not None else 0)

    def draw(label: str, line: dict[str, str], bar: int, style: str) -> None:
        parts: list[Part] = [(pad(cut(label, key_width), key_width), style or "yellow")]
        parts += [(f"  {line[name]:>{widths[name]}}", style) for name in columns]
        screen.line(*parts, ("  " + "#" * bar, "cyan"))

    draw(report.by, {name: name for name in columns}, 0, "dim")
    for label, line, bar in zip(labels, lines, shares, strict=True):
        draw(label, line, bar, "")
    draw("total", total, 0, "bold")


def _label(store: Store, report: UsageReport, key: str | None) -> str:
    if key is None:
        return f"(no {report.by})"
    if report.by != "thread":
        return one_line(key)
    title = store.engine.thread(key).title
    return one_line(f"{short_id(store, key)}  {'' if title is None else title.text}").rstrip()


def _numbers(used: Used, own: Used | None) -> dict[str, str]:
    tokens = used.tokens
    return {
        "replies": f"{used.replies:,}",
        "input": short(tokens.input),
        "cache read": short(tokens.cache_read),
        "cache write": short(tokens.cache_write),
        "output": short(tokens.output),
        "reasoning": short(tokens.reasoning),
        "own": "" if own is None else money(own),
        "cost": money(used),
    }


def _shares(report: UsageReport, width: int) -> list[int]:
    """How long the bar of each row is: by cost, or by tokens where no cost is known."""
    used = [row.tree or row.used for row in report.rows]
    sizes = [one.cost_microdollars or 0 for one in used]
    if not any(sizes):
        sizes = [one.tokens.total for one in used]
    largest = max(sizes)
    if width < 5 or not largest:
        return [0] * len(sizes)
    return [-(-size * width // largest) for size in sizes]


def _notes(report: UsageReport) -> list[str]:
    """What the numbers do not say."""
    total, notes = report.total, []
    if total.unpriced:
        models = ", ".join(one_line(model) for model in total.unknown_models)
        notes.append(
            f"no price is known for {models} ({_replies(total.unpriced)}); --prices FILE tells it"
        )
    if total.unreadable:
        told = "with a usage that cannot be one: in no sum of tokens"
        notes.append(f"{_replies(total.unreadable)} {told}")
    if report.damaged:
        count = plural(len(report.damaged), "thread")
        notes.append(f"{count} could not be read to the end; clew verify says more")
    return notes


def _replies(count: int) -> str:
    return "1 reply" if count == 1 else f"{count:,} replies"
