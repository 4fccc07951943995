"""What a report of usage says: tokens by class, replies, money; and one line of it for people."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal

from msgspec import Struct

By = Literal["day", "model", "workspace", "agent", "thread"]
GROUPS: tuple[By, ...] = ("day", "model", "workspace", "agent", "thread")


class Tokens(Struct, frozen=True, kw_only=True):
    """Tokens by class. No token is in two classes, whatever the provider counts in what.

    `input` is what was sent and neither read from nor written to the cache; the three together
    are the requests. `reasoning` is what the models thought, `output` the rest of what they wrote.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    @property
    def sent(self) -> int:
        """All tokens of the requests."""
        return self.input + self.cache_read + self.cache_write

    @property
    def written(self) -> int:
        """All tokens of the replies."""
        return self.output + self.reasoning

    @property
    def total(self) -> int:
        return self.sent + self.written


class Used(Struct, frozen=True, kw_only=True):
    """What some replies of models took and cost. Each reply is counted once.

    `cost_microdollars` is in millionths of a dollar, rounded once, at the end. It is of the
    replies whose price is known, and None if none is. `priced`: the price of all is known.
    `unpriced` is how many replies have none, `unknown_models` their models. `unreadable` is how
    many replies tell a usage that cannot be one: their tokens are in no sum.
    """

    replies: int = 0
    tokens: Tokens = Tokens()
    cost_microdollars: int | None = 0
    priced: bool = True
    unpriced: int = 0
    unreadable: int = 0
    unknown_models: tuple[str, ...] = ()


class UsageRow(Struct, frozen=True, kw_only=True):
    """One group of a report. `key` is its day, model, workspace, agent or thread; None: not known.

    `tree` is there in a report by thread that was asked for with `tree=True`: the thread together
    with all the threads below it.
    """

    key: str | None
    used: Used
    tree: Used | None = None


class UsageReport(Struct, frozen=True, kw_only=True):
    """What the replies of models in a store took and cost, in groups and in all.

    `prices` says which prices it was counted with, and of which day they are. `damaged` are the
    threads that could not be read to their end: there may be replies that are in no sum.
    """

    by: By
    rows: list[UsageRow]
    total: Used
    since: datetime | None
    until: datetime | None
    timezone: str
    prices: str
    damaged: tuple[str, ...] = ()


def line_of(used: Used) -> str:
    """A usage as one short line: `12.3k in, 1.2k out, $0.04`."""
    tokens = used.tokens
    return f"{short(tokens.sent)} in, {short(tokens.written)} out, {money(used)}"


def short(count: int) -> str:
    """A number of tokens in few characters: 999, 12.3k, 4.56M."""
    for unit, name in ((10**9, "G"), (10**6, "M"), (1000, "k")):
        # What would be shown as 1000k is shown as 1.00M.
        if count * 20_000 >= unit * 19_999 and count >= 1000:
            digits = 2 if count < unit * 10 and unit > 1000 else 1
            return f"{count / unit:.{digits}f}{name}"
    return str(count)


def money(used: Used) -> str:
    """The cost for people. `unknown` is not zero, and `+` says that there is more than is known."""
    cost = used.cost_microdollars
    if cost is None:
        return "unknown"
    return dollars(cost) + ("" if used.priced else "+")


def dollars(microdollars: int) -> str:
    """Rounded to cents; what is less than a cent shows that it is something."""
    if 0 < microdollars < 5_000:
        return "<$0.01"
    cents = (microdollars + 5_000) // 10_000
    return f"${cents // 100:,}.{cents % 100:02}"


class Sum:
    """Adds up replies; money exactly, in millionths of a microdollar."""

    __slots__ = ("cost", "counts", "models", "priced", "replies", "unreadable")

    def __init__(self) -> None:
        self.replies = self.priced = self.unreadable = self.cost = 0
        self.counts = [0, 0, 0, 0, 0]
        self.models: set[str] = set()

    def add(
        self,
        model: str | None,
        replies: int,
        unreadable: int,
        counts: Iterable[int],
        cost: int | None,
    ) -> None:
        """Some replies of a model that were summed up before. `cost` None: it has no price."""
        self.replies += replies
        self.unreadable += unreadable
        self.counts = [a + b for a, b in zip(self.counts, counts, strict=True)]
        if cost is not None:
            self.cost += cost
            self.priced += replies - unreadable
        elif replies > unreadable:
            self.models.add(model or "unknown")

    def merge(self, other: Sum) -> None:
        self.replies += other.replies
        self.unreadable += other.unreadable
        self.priced += other.priced
        self.cost += other.cost
        self.counts = [a + b for a, b in zip(self.counts, other.counts, strict=True)]
        self.models |= other.models

    def used(self) -> Used:
        names = ("input", "output", "cache_read", "cache_write", "reasoning")
        unpriced = self.replies - self.unreadable - self.priced
        is_known = bool(self.priced) or not self.replies
        return Used(
            replies=self.replies,
            tokens=Tokens(**dict(zip(names, self.counts, strict=True))),
            cost_microdollars=(self.cost + 500_000) // 1_000_000 if is_known else None,
            priced=not unpriced and not self.unreadable,
            unpriced=unpriced,
            unreadable=self.unreadable,
            unknown_models=tuple(sorted(self.models)),
        )
