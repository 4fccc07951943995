"""What every page has at hand: the store, the templates, and the request it answers."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from msgspec import Struct
from starlette.responses import HTMLResponse, RedirectResponse, Response

import clew
from clew.core.errors import InvalidInput, ReadOnly
from clew.core.model import ThreadInfo, to_time
from clew.core.wrapper import wrap
from clew.server.build import Build, Proof
from clew.server.events import Watch
from clew.server.growth import Growth
from clew.server.outline import Outlines
from clew.server.stopwatch import Stopwatch
from clew.store import Store
from clew.thread import Thread
from clew.usage import usage_of

SHORT_ID = 12
# What the bars of links lead to: pages of the store, and views of one thread.
PAGES = (
    ("threads", "/"),
    ("search", "/search"),
    ("usage", "/usage"),
    ("health", "/health"),
)
VIEWS = (
    ("conversation", "/thread"),
    ("tree", "/tree"),
    ("context", "/context"),
    ("compare", "/compare"),
    ("files", "/files"),
    ("timeline", "/timeline"),
)
_UNITS = (("y", 31_556_952), ("mo", 2_629_746), ("d", 86_400), ("h", 3_600), ("min", 60))


class Shares:
    """Links that were given to others. They end with the viewer, or before it."""

    def __init__(self) -> None:
        self._given: dict[str, tuple[str, datetime]] = {}

    def add(self, thread: str, until: datetime) -> str:
        key = secrets.token_urlsafe(24)
        self._given[key] = (thread, until)
        return key

    def find(self, key: str, now: datetime) -> str | None:
        """The thread that a key leads to; None if there is no such key, or not any more."""
        thread, until = self._given.get(key, ("", now))
        if now >= until:
            self._given.pop(key, None)
            return None
        return thread


class Site:
    """One server: a store, those who watch it, and what was found out about it."""

    def __init__(self, store: Store) -> None:
        self.operations = Stopwatch()
        # The same engine, timed; its opener closes it. The clock may be set anew.
        engine = wrap(store.engine, self.operations.around)
        self.store = Store(engine, clock=lambda: store.clock())
        self.pages = Stopwatch()
        self.watch = Watch(self.store)
        self.outlines = Outlines()
        self.shares = Shares()
        self.proof = Proof()
        self.growth = Growth(self.store.engine)
        self.grown = Build(self.growth.count)
        self.counted = Build(lambda told: usage_of(self.store, [], progress=told))
        self.indexed = Build(lambda told: self.store.searcher.ready(told))

    @property
    def read_only(self) -> bool:
        return self.store.properties.read_only

    def close(self) -> None:
        """End the streams of open pages, and what is being built."""
        self.watch.close()
        for build in (self.grown, self.counted, self.indexed):
            build.close()
        if "searcher" in vars(self.store):
            self.store.searcher.close()


class Ask(Struct, frozen=True):
    """A request: its parameters, its form, and the means to answer it."""

    site: Site
    query: Mapping[str, str]
    form: Mapping[str, str]
    nonce: str
    is_partial: bool  # a script asks for a piece of a page

    @property
    def store(self) -> Store:
        return self.site.store

    def wanted(self, name: str) -> str:
        """A parameter that has to be there."""
        value = self.form.get(name) or self.query.get(name)
        if not value:
            raise InvalidInput(name, "is missing in this address")
        return value

    def number(self, name: str, default: int, low: int = 1, high: int = 1_000_000) -> int:
        text = self.query.get(name, "")
        if not text:
            return default
        # Python refuses to read a number of thousands of digits.
        if not text.isdecimal() or len(text) > 9 or not low <= int(text) <= high:
            raise InvalidInput(name, f"must be a number from {low} to {high}")
        return int(text)

    def thread(self) -> Thread:
        """The thread that the address names; a deleted one can be looked at as well."""
        return self.store.get(self.wanted("id"), deleted=True)

    def writable(self) -> None:
        if self.site.read_only:
            place = self.store.properties.place
            raise ReadOnly(place, operation="a change from the viewer")

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        properties = self.store.properties
        shown = {
            "nonce": self.nonce,
            "read_only": self.site.read_only,
            "place": properties.place,
            "store_kind": properties.engine,
            "version": clew.__version__,
            "now": self.store.now(),
            **values,
        }
        return HTMLResponse(environment().get_template(template).render(shown), status)

    def go(self, place: str, /, **query: Any) -> Response:
        return RedirectResponse(url(place, **query), 303)


def url(place: str, /, **query: Any) -> str:
    """An address of this site. Ids are any text, so they stand in the query, quoted."""
    given = {key: value for key, value in query.items() if value not in (None, "")}
    return f"{place}?{urlencode(given)}" if given else place


# --- words ----------------------------------------------------------------------------------


def title_of(info: ThreadInfo) -> str:
    text = "" if info.title is None else " ".join(info.title.text.split())
    return text or "Untitled thread"


def short(id: str) -> str:
    """An id as people compare it: the beginning."""
    return id if len(id) <= SHORT_ID + 2 else id[:SHORT_ID] + "…"


def ago(then: datetime, now: datetime) -> str:
    seconds = (now - then).total_seconds()
    if seconds < -60:
        return f"{then:%Y-%m-%d %H:%M}"
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return "just now"


def clock(time_us: int) -> str:
    return f"{to_time(time_us):%Y-%m-%d %H:%M:%S}"


def span(seconds: float) -> str:
    """How long something took."""
    if seconds < 0:
        return ""
    if seconds < 0.0095:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 0.95:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    if seconds < 86_400:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    return f"{int(seconds // 86_400)} d {int(seconds % 86_400 // 3600)} h"


def size(number: int) -> str:
    if number < 1024:
        return f"{number} B"
    amount = float(number)
    for unit in ("KB", "MB", "GB", "TB"):
        amount /= 1024
        if amount < 1000 or unit == "TB":
            break
    return f"{amount:.1f} {unit}" if amount < 10 else f"{amount:.0f} {unit}"


def count(number: int, noun: str) -> str:
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number:,} {noun if number == 1 else plural}"


@cache
def environment() -> Environment:
    """The templates. Everything that they print is escaped unless it was made by `render`."""
    made = Environment(
        loader=PackageLoader("clew.server"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(url=url, pages=PAGES, views=VIEWS, tab="", shared=False)
    made.filters.update(
        ago=ago, clock=clock, span=span, filesize=size, count=count, short=short, title_of=title_of
    )
    return made
