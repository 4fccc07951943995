"""Whether all is well: how much there is, who writes, what was slow, and is it whole."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from clew.core.model import Lease
from clew.server.growth import COUNTED_UNASKED
from clew.server.site import Ask
from clew.store import Store
from clew.upkeep.scrub import scrubbed

LOOKED_AT = 200  # threads, the last used ones, that are asked for their lease
LOOKED_BACK = timedelta(days=7)
PROBLEMS_MAX = 200
BARS_MAX = 62
_WIDTH, _HEIGHT = 1000.0, 120.0


class Step(Struct, frozen=True, kw_only=True):
    """A day, or a month where there are many days; `x`, `width` and `height` are its bar's."""

    name: str
    records: int
    bytes: int
    x: float
    width: float
    height: float


def page(ask: Ask) -> Response:
    store = ask.store
    stats = store.stats()
    return ask.page(
        "health.html",
        tab="health",
        stats=stats,
        **_growth(ask, asked=stats.records <= COUNTED_UNASKED),
        properties=store.properties,
        leases=_leases(store),
        operations=ask.site.operations,
        slow_pages=ask.site.pages.longest(),
        proof=ask.site.proof,
        scrubbed=scrubbed(store.properties.place),
        problems_max=PROBLEMS_MAX,
    )


def growth(ask: Ask) -> Response:
    """How the store grew, counted now if it was not before."""
    return ask.page("growth.html", **_growth(ask, asked=True))


def _growth(ask: Ask, *, asked: bool) -> dict[str, Any]:
    site = ask.site
    was_ready = site.grown.is_ready
    if not was_ready and not asked:
        return {"steps": None, "counting": None}
    if not site.grown.ready():
        return {"steps": None, "counting": site.grown}
    if was_ready:
        site.growth.count()
    return {"steps": steps(site.growth.days()), "counting": None}


def steps(days: Mapping[str, tuple[int, int]]) -> list[Step]:
    """The last days; the last months, if the days would be too many to be seen."""
    found = days
    if len(days) > BARS_MAX:
        months: dict[str, tuple[int, int]] = {}
        for day, (records, size) in days.items():
            before = months.get(day[:7], (0, 0))
            months[day[:7]] = (before[0] + records, before[1] + size)
        found = months
    last = list(found.items())[-BARS_MAX:]
    highest = max((size for _, (_, size) in last), default=0) or 1
    step = _WIDTH / max(8, len(last))
    return [
        Step(
            name=name,
            records=records,
            bytes=size,
            x=n * step + step * 0.1,
            width=step * 0.8,
            height=max(1.0, size * _HEIGHT / highest),
        )
        for n, (name, (records, size)) in enumerate(last)
    ]


def progress(ask: Ask) -> Response:
    return ask.page("proof.html", proof=ask.site.proof, problems_max=PROBLEMS_MAX)


def verify(ask: Ask) -> Response:
    """Begin to verify, unless it runs already."""
    proof = ask.site.proof
    proof.begin(ask.store, quick=ask.form.get("quick") == "1")
    return ask.page("proof.html", proof=proof, problems_max=PROBLEMS_MAX)


def _leases(store: Store) -> list[tuple[Lease, Any]]:
    """Who may write now, of the threads that were used lately."""
    after = store.now() - LOOKED_BACK
    found = []
    for info in store.list(order="updated", archived=None, after=after, limit=LOOKED_AT).items:
        lease = store.get(info.id).leases.active()
        if lease is not None:
            found.append((lease, info))
    return found
