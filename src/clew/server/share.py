"""One thread for other people: as a file that needs nothing, or as a link that ends by itself.

Both are one page, which `clew export --as html` writes as well: all of the thread but its secrets,
and nothing else of the store. Everything is in it: style, pictures, one script of ours. Its policy
allows these by their hashes, no content is executed, nothing is loaded. Without the script it reads
as well: the script only searches, folds, switches the theme, and shows one path at a time. The
current path comes first, then every other branch, each with a link from where it parts; so the path
to any leaf reads from top to bottom once what is not on it is left out. At the side is the tree,
with what the user said as its stops. The browser draws what is looked at.
"""

from __future__ import annotations

import base64
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from functools import cache
from importlib import resources
from typing import Any

from markupsafe import Markup
from msgspec import Struct
from msgspec.structs import replace
from starlette.responses import HTMLResponse, Response

from clew import messages
from clew.core.codec import encode
from clew.core.errors import Corrupt, InvalidInput, TooLarge
from clew.core.model import Entry, ThreadInfo
from clew.interchange.export import Writing, start
from clew.messages.neutral import Media, ToolResult
from clew.server.cards import SAFE_IMAGES, Call, Card, cards, preview
from clew.server.render import clean
from clew.server.site import Ask, count, environment, title_of, url
from clew.server.tree import LANE_PIXELS, ROW_PIXELS, Node, lay_out, telling, without_drafts
from clew.thread import Thread

HOURS_MAX = 24 * 30
RECORDS_MAX = 40_000
OUTPUT_CHARACTERS_MAX = 200_000  # of one output; more is left out, and said
PICTURE_CHARACTERS_MAX = 4 * 1024 * 1024  # of one picture, in base64
PICTURES_CHARACTERS_MAX = 32 * 1024 * 1024  # of all
ROWS_MAX = 5_000  # of the tree at the side
NAME_CHARACTERS = 60
_PIECE = 400  # parts of a page that are written at once


def keep(ask: Ask) -> Response:
    """The thread as one file."""
    headers = {"content-disposition": 'attachment; filename="thread.html"', **_policy()}
    return HTMLResponse(draw(ask.thread()), headers=headers)


def make(ask: Ask) -> Response:
    """A link to a thread that ends after some hours, or with this viewer."""
    thread = ask.thread()
    text = ask.form.get("hours") or "24"
    if not text.isdecimal() or len(text) > 6 or not 0 < int(text) <= HOURS_MAX:
        raise InvalidInput("hours", f"must be a number from 1 to {HOURS_MAX}")
    until = ask.store.now() + timedelta(hours=int(text))
    key = ask.site.shares.add(thread.id, until)
    return ask.page("shared.html", link=url("/shared", key=key), until=until)


def show(ask: Ask) -> Response:
    """What such a link leads to. No token is asked for; the key is one."""
    id = ask.site.shares.find(ask.query.get("key") or "", ask.store.now())
    if id is None:
        return HTMLResponse("This link has ended.", 403)
    return HTMLResponse(draw(ask.store.get(id)), headers=_policy())


def draw(thread: Thread) -> bytes:
    """The page. It is made in memory here; the command line writes longer ones."""
    records = thread.info.seq
    if records > RECORDS_MAX:
        raise TooLarge("thread", size=records, limit=RECORDS_MAX)
    return b"".join(start(thread, "html")[1])


def _policy() -> dict[str, str]:
    # In a sandbox it has no part in this site, whose address it was loaded from.
    return {"content-security-policy": f"{policy()}; sandbox allow-scripts"}


# --- the page ----------------------------------------------------------------------------------


def write(thread: Thread, writing: Writing) -> Iterator[bytes]:
    """The page, piece by piece."""
    info = thread.info
    entries, drafts = without_drafts(
        [_readable(entry, writing) for entry in thread.entries()], info.leaf
    )
    if drafts:
        writing.change("draft", f"{count(drafts, 'saved draft')} of streamed replies: left out")
    runs = split(entries, info.leaf)
    bounds, used = _Bounds(writing), writing.used(thread)
    values: dict[str, Any] = {
        "info": info,
        "title": title_of(info),
        "entries": len(entries),
        "runs": runs,
        "cards_of": lambda run: bounds.cards(run.entries),
        "pictures": bounds.pictures,
        "ways": _ways(runs),
        "names": {run.number: _name(run) for run in runs[1:]},
        "tree": _tree(entries, info),
        "usage": used if used.replies else None,
        "secrets": sum(change.name == "secret" for change in writing.changes),
        "style": _style(),
        "script": _script(),
        "policy": policy(),
        "now": thread.store.now(),
        "shared": True,
    }
    stream = environment().get_template("document.html").stream(values)
    stream.enable_buffering(_PIECE)
    for piece in stream:
        yield clean(piece).encode()  # names and titles are not always rendered, only escaped


def policy() -> str:
    """What the page may do: show its own style, pictures that are in it, and run its one script."""
    return (
        f"default-src 'none'; style-src '{_hash(_style())}'; script-src '{_hash(_script())}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


@cache
def _style() -> Markup:
    return Markup(_static("clew.css") + _static("document.css"))


@cache
def _script() -> Markup:
    return Markup(_static("document.js"))


def _static(name: str) -> str:
    return (resources.files("clew.server") / "static" / name).read_text("utf-8")


@cache
def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


# --- branches -------------------------------------------------------------------------------


class Run(Struct, frozen=True):
    """Entries that follow each other: the current path, or what another branch has of its own."""

    number: int  # 0 is the current path
    after: str | None  # the entry that it goes on from
    entries: list[Entry]
    origin: int | None = None  # the run that has that entry: one of those before this one


def split(entries: Sequence[Entry], leaf: str | None) -> list[Run]:
    """The current path, then every other branch, in the order of their ends; each entry once."""
    parents = {entry.id: entry.parent for entry in entries}
    by_id = {entry.id: entry for entry in entries}
    inner = set(parents.values())
    ends = [entry.id for entry in entries if entry.id not in inner and entry.id != leaf]
    runs: list[Run] = []
    seen: dict[str | None, int] = {}  # entries, and their runs
    for end in [leaf, *ends]:
        found: list[Entry] = []
        place = end
        while place is not None and place in by_id and place not in seen:
            seen[place] = len(runs)
            found.append(by_id[place])
            place = parents[place]
        if found or end == leaf:
            runs.append(Run(len(runs), place, found[::-1], seen.get(place)))
    return runs


def _ways(runs: Sequence[Run]) -> dict[str | None, list[Run]]:
    """By entry, the branches that go on from it."""
    ways: dict[str | None, list[Run]] = defaultdict(list)
    for run in runs[1:]:
        ways[run.after].append(run)
    return ways


def _name(run: Run) -> str:
    """What a branch begins with: what the user said first on it, or else its first entry."""
    asked = next((entry for entry in run.entries if entry.kind == "user_message"), run.entries[0])
    return preview(asked, NAME_CHARACTERS)


# --- the tree at the side -------------------------------------------------------------------


class Tree(Struct, frozen=True):
    """A drawing: rows of text, and the lines and dots before them, each sort of them as one path.

    A path for each would be thousands of elements that a browser has to lay out.
    """

    nodes: list[Node]
    left_out: int
    width: int
    height: int
    lines: dict[str, str]
    dots: dict[str, str]


def _tree(entries: Sequence[Entry], info: ThreadInfo) -> Tree:
    marks: dict[str, list[tuple[str, str]]] = defaultdict(list)
    if info.leaf is not None:
        marks[info.leaf].append(("now", ""))
    for id, label in info.labels.items():
        marks[id].append((label, ""))
    for entry in entries:
        if entry.kind == "compaction":
            marks[entry.id].append(("compacted", ""))
    shown = telling(entries, marks) | {e.id for e in entries if e.kind == "user_message"}
    nodes, edges = lay_out(entries, info.leaf, marks, shown, gaps=False)
    drawn = nodes[:ROWS_MAX]
    end = ROW_PIXELS * len(drawn)
    lines: dict[str, str] = defaultdict(str)
    dots: dict[str, str] = defaultdict(str)
    for edge in edges:
        if edge.y < end:
            lines["current" if edge.is_current else ""] += edge.path
    for node in drawn:
        sort = node.sort if node.sort in ("user", "bad") else "entry"
        dots[f"{sort} current" if node.is_current else sort] += f"M{node.x} {node.y}h0"
    width = LANE_PIXELS * (1 + max((node.lane for node in drawn), default=0))
    return Tree(drawn, len(nodes) - len(drawn), width, end, lines, dots)


# --- what is bounded ------------------------------------------------------------------------


def _readable(entry: Entry, writing: Writing) -> Entry:
    """The entry, or what can be said of one whose body cannot be read."""
    try:
        entry.body  # noqa: B018
        return entry
    except Corrupt as error:
        writing.change("damaged", str(error), entry.id)
        body = encode({"error": f"this entry is damaged: {error}"})
        return replace(entry, kind="run_failure", data=body, format=None, meta_data=None)


class _Bounds:
    """Cards, with outputs and pictures that are not larger than a page can bear."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._left = PICTURES_CHARACTERS_MAX
        self.pictures: dict[str, dict[int, str]] = {}

    def cards(self, entries: Sequence[Entry]) -> list[Card]:
        for entry in entries:
            if b"image/" in entry.data:
                self.pictures[entry.id] = dict(self._pictures(entry))
        made = cards(entries, whole=True)
        for card in made:
            for piece in card.pieces:
                if isinstance(piece, Call):
                    self._cut(card, piece)
        return made

    def _cut(self, card: Card, call: Call) -> None:
        rest = len(call.output or "") - OUTPUT_CHARACTERS_MAX
        if call.output is None or rest <= 0:
            return
        self._writing.change("cut", f"{rest:,} characters of an output", call.result_entry)
        call.output = f"{call.output[:OUTPUT_CHARACTERS_MAX]}\n… {rest:,} characters are left out"
        call.output_diff = []

    def _pictures(self, entry: Entry) -> Iterator[tuple[int, str]]:
        """The pictures of an entry that may be shown, by their places, as addresses of data."""
        found = messages.view(entry.format, entry.body)
        parts = [part for message in found for part in message.parts]
        for place, part in enumerate(parts):
            if isinstance(part, Media):
                yield from self._picture(entry, place, part)
            elif isinstance(part, ToolResult):
                media = [one for one in part.content if isinstance(one, Media)]
                for n, one in enumerate(media):
                    yield from self._picture(entry, place * 100 + n, one)

    def _picture(self, entry: Entry, place: int, part: Media) -> Iterable[tuple[int, str]]:
        if part.mime not in SAFE_IMAGES or not part.data:
            return
        size = len(part.data)
        if size > min(PICTURE_CHARACTERS_MAX, self._left):
            self._writing.change("picture", f"a picture of {size * 3 // 4:,} bytes", entry.id)
            return
        try:
            data = base64.b64decode(part.data, validate=False)
        except ValueError:
            return
        self._left -= size
        yield place, f"data:{part.mime};base64,{base64.b64encode(data).decode()}"
