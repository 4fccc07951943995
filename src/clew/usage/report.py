"""The report: which replies are meant, in which groups, and what they cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from os import PathLike
from typing import TYPE_CHECKING, Any

import apsw
import msgspec
from msgspec import Struct

from clew.core.drafts import before, several
from clew.core.engine import Progress
from clew.core.errors import InvalidInput
from clew.core.facts import TIME_US_MAX, TIME_US_MIN
from clew.core.model import to_time, to_us
from clew.core.names import check_name
from clew.thread import Thread
from clew.usage.cache import QUARTER_US, ask
from clew.usage.model import GROUPS, By, Sum, UsageReport, UsageRow, Used
from clew.usage.prices import Prices, bundled, load

if TYPE_CHECKING:
    from clew.store import Store


class _Asked(Struct, frozen=True):
    """What a report is about, checked."""

    by: By
    tree: bool
    thread: str | None
    threads: frozenset[str] | None
    filters: dict[str, str]
    since_us: int
    until_us: int
    day_of: Callable[[int], str]
    prices: Prices


class _Row(Struct, frozen=True):
    """A thread, as the report needs it."""

    id: str
    above: str | None
    workspace: str | None
    agent: str | None


def usage(
    store: Store,
    thread: str | Thread | None = None,
    *,
    tree: bool = False,
    by: By | None = None,
    since: datetime | timedelta | None = None,
    until: datetime | None = None,
    timezone: str = "UTC",
    model: str | None = None,
    workspace: str | None = None,
    agent: str | None = None,
    prices: str | PathLike[str] | Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> UsageReport:
    """See `Store.usage`."""
    id = thread.id if isinstance(thread, Thread) else thread
    if id is not None:
        store.engine.thread(check_name(id, "thread"))  # NotFound, rather than a report of nothing
    if isinstance(since, timedelta):
        since = before(store.now(), since, "since")
    given = {"model": model, "workspace": workspace, "agent": agent}
    asked = _Asked(
        by=_checked(by if by is not None else ("day" if id is None else "model")),
        tree=tree,
        thread=id,
        threads=None,
        filters={name: check_name(value, name) for name, value in given.items() if value},
        since_us=TIME_US_MIN if since is None else to_us(since, "since"),
        until_us=TIME_US_MAX if until is None else to_us(until, "until"),
        day_of=_days_in(timezone),
        prices=load(prices),
    )
    rows, total, damaged = ask(store, lambda db, damaged: _answer(db, asked, damaged), progress)
    return UsageReport(
        by=asked.by,
        rows=rows,
        total=total,
        since=since,
        until=until,
        timezone=timezone,
        prices=asked.prices.name,
        damaged=tuple(damaged),
    )


def usage_of(
    store: Store, threads: Iterable[str], *, progress: Progress | None = None
) -> dict[str, Used]:
    """What each of some threads took and cost by itself: a page of a list, for one.

    Reads from the store what is new, and then the sums of these threads alone. One without a
    reply has a `Used` of nothing.
    """
    wanted = frozenset(several(threads, "threads"))
    asked = _Asked(
        by="thread",
        tree=False,
        thread=None,
        threads=wanted,
        filters={},
        since_us=TIME_US_MIN,
        until_us=TIME_US_MAX,
        day_of=_days_in("UTC"),
        prices=bundled(),
    )
    rows, _, _ = ask(store, lambda db, damaged: _answer(db, asked, damaged), progress)
    found = {row.key: row.used for row in rows}
    return {id: found.get(id, Used()) for id in wanted}


def _checked(by: str) -> By:
    for group in GROUPS:
        if group == by:
            return group
    raise InvalidInput("by", f"must be one of {', '.join(GROUPS)}, not {by!r}")


def _days_in(name: str) -> Callable[[int], str]:
    """The day of a quarter of an hour, in a time zone; `local` is that of this machine."""
    zone: tzinfo | None = UTC if name == "UTC" else None
    if name not in ("local", "UTC"):
        from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # most reports need no zone

        try:
            zone = ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
            text = f"{name!r} is no time zone; such are UTC, Europe/Berlin and local"
            raise InvalidInput("timezone", text) from None

    @cache
    def day_of(quarter: int) -> str:
        time = to_time(max(quarter * QUARTER_US, TIME_US_MIN + 10**11))
        return (time if zone is UTC else time.astimezone(zone)).date().isoformat()

    return day_of


# --- from the tables --------------------------------------------------------------------------


def _answer(
    db: apsw.Connection, asked: _Asked, damaged: list[str]
) -> tuple[list[UsageRow], Used, list[str]]:
    names = {no: name or None for no, name in db.execute("SELECT no, name FROM names")}
    threads = _threads(db, asked)
    meant = _meant(threads, asked)
    groups: dict[Any, Sum] = defaultdict(Sum)
    key_of = _key_of(asked, threads, names)
    cost_of = _cost_of(asked.prices, names)
    only = asked.filters.get("model")
    for row in _sums(db, asked, meant):
        thread, quarter, model, _, _, replies, unreadable, *counts = row
        if only is not None and names[model] != only:
            continue
        one = groups[key_of(thread, quarter, model)]
        taken = (*counts[:4], counts[5])
        one.add(names[model], replies, unreadable, taken, cost_of(row))
    total = Sum()
    for one in groups.values():
        total.merge(one)
    trees = _rolled_up(groups, threads) if asked.tree and asked.by == "thread" else {}
    rows = [
        UsageRow(
            key=threads[key].id if asked.by == "thread" else key,
            used=groups[key].used() if key in groups else Used(),
            tree=trees[key].used() if key in trees else None,
        )
        for key in {**groups, **trees}
    ]
    rows.sort(key=_order(asked.by))
    if meant is not None:
        ids = {threads[no].id for no in meant}
        damaged = [id for id in damaged if id in ids]
    return rows, total.used(), damaged


def _order(by: By) -> Callable[[UsageRow], Any]:
    """Days as they come; all else by what it cost, and then by its size."""
    if by == "day":
        return lambda row: row.key

    def largest_first(row: UsageRow) -> tuple[int, int, str]:
        used = row.tree or row.used
        return -(used.cost_microdollars or 0), -used.tokens.total, row.key or ""

    return largest_first


def _threads(db: apsw.Connection, asked: _Asked) -> dict[int, _Row]:
    """What is known of the threads; of none of them, where it is not asked for."""
    filtered = asked.thread is not None or {"workspace", "agent"} & asked.filters.keys()
    if not filtered and asked.threads is None and asked.by in ("day", "model"):
        return {}
    sql = "SELECT no, id, above, workspace, agent FROM threads"
    some: tuple[Any, ...] = ()
    if asked.threads is not None:
        sql += " WHERE id IN (SELECT value FROM json_each(?))"
        some = (msgspec.json.encode(list(asked.threads)).decode(),)
    return {no: _Row(*rest) for no, *rest in db.execute(sql, some)}


def _meant(threads: dict[int, _Row], asked: _Asked) -> set[int] | None:
    """The threads that the report is about; None: all."""
    fields = {name: value for name, value in asked.filters.items() if name != "model"}
    if asked.thread is None and asked.threads is None and not fields:
        return None
    meant = set(threads)
    if asked.thread is not None:
        below = _below(threads, asked.thread) if asked.tree else set()
        meant = below | {no for no, row in threads.items() if row.id == asked.thread}
    return {
        no
        for no in meant
        if all(getattr(threads[no], name) == value for name, value in fields.items())
    }


def _below(threads: dict[int, _Row], id: str) -> set[int]:
    """The threads that hang on a thread: its forks, its sub-agents, and theirs."""
    children: dict[str, list[int]] = defaultdict(list)
    for no, row in threads.items():
        if row.above is not None:
            children[row.above].append(no)
    found: set[int] = set()
    waiting = [id]
    while waiting:
        for no in children[waiting.pop()]:
            if no not in found:
                found.add(no)
                waiting.append(threads[no].id)
    return found


def _key_of(
    asked: _Asked, threads: dict[int, _Row], names: dict[int, str | None]
) -> Callable[[int, int, int], Any]:
    match asked.by:
        case "day":
            return lambda thread, quarter, model: asked.day_of(quarter)
        case "model":
            return lambda thread, quarter, model: names[model]
        case "workspace":
            return lambda thread, quarter, model: threads[thread].workspace
        case "agent":
            return lambda thread, quarter, model: threads[thread].agent
        case _:
            return lambda thread, quarter, model: thread


_COUNTS = "input, output, cache_read, cache_write, cache_write_1h, reasoning"


def _sums(db: apsw.Connection, asked: _Asked, meant: set[int] | None) -> Iterator[tuple[Any, ...]]:
    """Replies added up: by thread, quarter of an hour, model, provider and band of prices.

    Quarters that lie in the time as a whole come from the sums; of those at its ends the replies
    are looked at one by one. So they all are where the bands are not those that sums are made for.
    """
    first, last = -(-asked.since_us // QUARTER_US), asked.until_us // QUARTER_US
    only = ""
    given: tuple[Any, ...] = ()
    ends: tuple[Any, ...] = ()
    if meant is not None:
        only = " AND thread IN (SELECT value FROM json_each(?))"
        given = (msgspec.json.encode(list(meant)).decode(),)
    if asked.prices.bands == bundled().bands:
        by_thread = asked.by not in ("day", "model")
        head = "thread" if by_thread else "0"
        each = ", ".join(f"sum({name})" for name in ("replies", "unreadable", *_COUNTS.split(", ")))
        sql = f"SELECT {head}, quarter, model, provider, band, {each} FROM sums "
        sql += f"WHERE quarter >= ? AND quarter < ?{only} GROUP BY 1, 2, 3, 4, 5"
        yield from db.execute(sql, (first, last, *given))
        start = asked.since_us // QUARTER_US
        places = "(SELECT thread, quarter FROM sums WHERE quarter IN (?, ?))"
        where, ends = f"(thread, quarter) IN {places}", (start if start < first else last, last)
    else:
        where = "1"
    sql = "SELECT thread, quarter, model, provider, input + cache_read + cache_write, 1, "
    sql += f"unreadable, {_COUNTS} FROM replies WHERE {where}{only} AND counted "
    sql += "AND time_us >= ? AND time_us < ?"
    for row in db.execute(sql, (*ends, *given, asked.since_us, asked.until_us)):
        yield (*row[:4], asked.prices.band_of(row[4]), *row[5:])


def _cost_of(
    prices: Prices, names: dict[int, str | None]
) -> Callable[[tuple[int, ...]], int | None]:
    """What replies that were added up cost, in millionths of a microdollar; None: not known."""

    @cache
    def rates(model: int, provider: int, quarter: int, band: int) -> tuple[int, ...] | None:
        return prices.rates(names[model], names[provider], quarter * QUARTER_US, band)

    def cost(row: tuple[int, ...]) -> int | None:
        _, quarter, model, provider, band, _, _, *counts = row
        if not any(counts):
            return 0  # nothing costs nothing, whatever the model
        found = rates(model, provider, quarter, band)
        if found is None:
            return None
        counts[3] -= counts[4]  # what is written for an hour has a price of its own
        return sum(count * rate for count, rate in zip(counts, found, strict=True))

    return cost


def _rolled_up(own: dict[int, Sum], threads: dict[int, _Row]) -> dict[int, Sum]:
    """Each thread with all that hang on it, from the bottom up."""
    number = {row.id: no for no, row in threads.items()}
    above = {no: number.get(row.above or "") for no, row in threads.items()}
    order: list[int] = []  # each thread after the one that it hangs on
    placed: set[int] = set()
    for start in own:
        chain: list[int] = []
        at: int | None = start
        while at is not None and at not in placed:
            placed.add(at)
            chain.append(at)
            at = above[at]
        order += reversed(chain)
    trees: dict[int, Sum] = defaultdict(Sum)
    place = {no: index for index, no in enumerate(order)}
    for no in reversed(order):
        if no in own:
            trees[no].merge(own[no])
        up = above[no]
        if up is not None and place[up] < place[no]:
            trees[up].merge(trees[no])
    return trees
