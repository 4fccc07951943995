"""Search as you type, in everything that was said: each hit leads to its entry."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from clew.core.errors import InvalidInput
from clew.search.searcher import Hit
from clew.server.render import clean
from clew.server.site import Ask, url

FILTERS = ("q", "role", "tool", "path", "agent", "workspace", "model", "tag", "days", "exact")
ROLES = ("user", "assistant", "tool", "system")
_FIELD_CHARACTERS_MAX = 500
_LIMIT = 15  # a screenful: each hit is read and cut out at each keystroke


class Found(Struct, frozen=True, kw_only=True):
    """A hit as it is drawn: its snippet in pieces, each with whether it is what was looked for."""

    hit: Hit
    pieces: list[tuple[str, bool]]
    place: str


def page(ask: Ask) -> Response:
    filters = _filters(ask.query)
    return ask.page(
        "search.html", tab="search", filters=filters, roles=ROLES, **_hits(ask, filters)
    )


def hits(ask: Ask) -> Response:
    """The hits alone: what is shown at each keystroke, and what comes after them."""
    filters = _filters(ask.query)
    return ask.page("hits.html", filters=filters, **_hits(ask, filters))


def _filters(query: Mapping[str, str]) -> dict[str, str]:
    return {name: query.get(name, "").strip()[:_FIELD_CHARACTERS_MAX] for name in FILTERS}


def _hits(ask: Ask, filters: Mapping[str, str]) -> dict[str, Any]:
    if not any(value for key, value in filters.items() if key != "exact"):
        return {"found": None, "page": None, "more": None, "build": None}
    if not ask.site.indexed.ready():
        # At each keystroke: each letter would wait for the index, and those that are past as well.
        again = url("/search/hits", **filters)
        return {"found": None, "page": None, "more": again, "build": ask.site.indexed}
    options: dict[str, Any] = {
        key: filters[key]
        for key in ("role", "tool", "path", "agent", "workspace", "model", "tag")
        if filters[key]
    }
    if filters["days"]:
        if not filters["days"].isdecimal() or len(filters["days"]) > 5 or not int(filters["days"]):
            raise InvalidInput("days", "must be a number of days")
        options["since"] = ask.store.now() - timedelta(days=int(filters["days"]))
    cursor = ask.query.get("cursor") or None
    found = ask.store.search(
        filters["q"], substring=filters["exact"] == "1", limit=_LIMIT, cursor=cursor, **options
    )
    more = None if found.cursor is None else url("/search/hits", **filters, cursor=found.cursor)
    return {
        "found": [_found(hit) for hit in found.items],
        "page": found,
        "more": more,
        "build": None,
    }


def _found(hit: Hit) -> Found:
    return Found(
        hit=hit,
        pieces=pieces_of(hit.snippet, hit.matches),
        place=url("/thread", id=hit.thread, at=hit.entry),
    )


def pieces_of(snippet: str, matches: list[tuple[int, int]]) -> list[tuple[str, bool]]:
    """A snippet cut at its matches. What terminals would act on is taken out of each piece."""
    pieces: list[tuple[str, bool]] = []
    end = 0
    for begin, stop in matches:
        pieces.append((clean(snippet[end:begin]), False))
        pieces.append((clean(snippet[begin:stop]), True))
        end = stop
    pieces.append((clean(snippet[end:]), False))
    return [piece for piece in pieces if piece[0]]
