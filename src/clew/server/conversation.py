"""A thread as a conversation. A long one is read and drawn in runs, those that are looked at.

The page gets one empty place for every run of entries on the path, with the id of its last entry;
the browser asks for a run when its place comes into view. So opening costs the same at any length,
apart from one walk along the path that reads no body.
"""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import UNSET, Struct
from starlette.responses import PlainTextResponse, Response

from clew import messages
from clew.context.window import MESSAGE_KINDS
from clew.core.errors import Conflict, InvalidInput, NotFound
from clew.core.model import Entry, ThreadInfo
from clew.facets.sessions.markdown import message_markdown
from clew.messages.neutral import Media, Part, Text, ToolResult
from clew.server.cards import SAFE_IMAGES, Call, Card, Said, cards
from clew.server.outline import RUN_ENTRIES, RUN_ENTRIES_MAX, Run, split
from clew.server.site import Ask, title_of
from clew.store import Store
from clew.thread import Thread

TAIL_ENTRIES_MAX = 1000
BUCKETS = 240
RELATIVES_MAX = 50
_LANES_MAX = 4


def page(ask: Ask) -> Response:
    thread = ask.thread()
    info = thread.info
    at, leaf = ask.query.get("at"), ask.query.get("leaf")
    outline = ask.site.outlines.get(thread, leaf)
    is_branch = leaf is not None and leaf != info.leaf
    wanted = None
    if at is not None:
        if at not in outline.ids:
            # An entry of another branch: that branch is shown, up to it.
            outline, is_branch = ask.site.outlines.get(thread, at), True
        wanted = outline.ids.index(at)
    return ask.page(
        "thread.html",
        tab="conversation",
        **header(ask, thread, info),
        runs=outline.runs,
        drawn={n: _cards(thread, outline.runs[n]) for n in _shown_first(outline.runs, wanted)},
        entries=len(outline),
        at=at,
        branch=outline.ids[-1] if is_branch else None,
    )


def entries(ask: Ask) -> Response:
    """One run, by its last entry and how many there are."""
    thread = ask.thread()
    size = ask.number("n", RUN_ENTRIES, high=RUN_ENTRIES_MAX)
    path = thread.path(ask.wanted("to"), limit=size)
    return ask.page("entries.html", info=thread.info, cards=cards(path))


def tail(ask: Ask) -> Response:
    """Everything behind an entry, in runs: what the end of an open page is replaced by."""
    thread = ask.thread()
    info = thread.info
    after = ask.query.get("after") or None
    outline = ask.site.outlines.get(thread)
    if after is not None and after not in outline.ids[-TAIL_ENTRIES_MAX - 1 :]:
        raise Conflict("the thread stands elsewhere now", expected=after, actual=info.leaf)
    start = 0 if after is None else outline.ids.index(after) + 1
    runs = split(outline.ids, outline.kinds, outline.heights, start)
    if sum(run.size for run in runs) > TAIL_ENTRIES_MAX:
        raise Conflict("much came since; load the page again", expected=after, actual=info.leaf)
    return ask.page(
        "tail.html",
        info=info,
        runs=runs,
        drawn={n: _cards(thread, run) for n, run in enumerate(runs)},
        unfinished=is_running(thread),
    )


def _cards(thread: Thread, run: Run) -> list[Card]:
    return cards(thread.path(run.last, limit=run.size))


def header(ask: Ask, thread: Thread, info: ThreadInfo) -> dict[str, Any]:
    """What stands above every page of a thread."""
    return {
        "info": info,
        "title": title_of(info),
        "running": is_running(thread),
        "parent": _info(ask.store, info.parent),
        "origin": _info(ask.store, None if info.origin is None else info.origin.thread),
        "children": ask.store.list(parent=info.id, archived=None, limit=RELATIVES_MAX).items,
        "forks": ask.store.list(origin=info.id, archived=None, limit=RELATIVES_MAX).items,
    }


def is_running(thread: Thread) -> str | None:
    """Who works on the thread now."""
    lease = thread.leases.active()
    return None if lease is None else lease.owner


def _info(store: Store, id: str | None) -> ThreadInfo | None:
    try:
        return None if id is None else store.get(id, deleted=True).info
    except NotFound:
        return None


def _shown_first(runs: Sequence[Run], wanted: int | None) -> list[int]:
    """The runs that come with the page: around what is wanted, by default the end."""
    if not runs:
        return []
    last = len(runs) - 1
    if wanted is None:
        return [last - 1, last] if last and runs[last].size < RUN_ENTRIES // 2 else [last]
    found = bisect_left([run.start + run.size for run in runs], wanted + 1)
    is_late = wanted - runs[found].start > runs[found].size * 3 // 4  # little of it is below
    return [found, found + 1] if is_late and found != last else [found]


# --- single parts ---------------------------------------------------------------------------


def part(ask: Ask) -> Response:
    """The whole of something that was cut: a call with its result, or a text."""
    thread = ask.thread()
    found = [thread.get(ask.wanted("entry"))]
    if result := ask.query.get("result"):
        found.append(thread.get(result))
    made = cards(found, whole=True)
    pieces = [piece for card in made for piece in card.pieces]
    call, place = ask.query.get("call"), ask.query.get("place")
    for piece in pieces:
        if isinstance(piece, Call) and piece.id == call:
            return ask.page("part.html", info=thread.info, card=made[0], call=piece)
        if isinstance(piece, Said) and str(piece.place) == place:
            return ask.page("part.html", info=thread.info, card=made[0], call=None, said=piece)
    raise NotFound("part", call or place or "")


def media(ask: Ask) -> Response:
    """A picture or a file of a message, or the whole output of a tool to keep."""
    entry = ask.thread().get(ask.wanted("entry"))
    place = ask.number("place", 0, low=0)
    found = _part_at(entry, place)
    if isinstance(found, ToolResult):
        text = "\n".join(inner.text for inner in found.content if isinstance(inner, Text))
        return download(text.encode("utf-8", "replace"), "output.txt")
    if not isinstance(found, Media) or found.data is None:
        raise NotFound("media", str(place))
    try:
        data = base64.b64decode(found.data, validate=False)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput("media", f"is not base64: {error}") from None
    if found.mime in SAFE_IMAGES:
        # As a picture inside of the page it is inert; opened by itself it may do nothing at all.
        headers = {"content-security-policy": "sandbox; default-src 'none'"}
        return Response(data, media_type=found.mime, headers=headers)
    return download(data, "media.bin")


def _part_at(entry: Entry, place: int) -> Part | None:
    parts = [part for message in messages.view(entry.format, entry.body) for part in message.parts]
    outer, inner = divmod(place, 100)
    if outer < len(parts) and isinstance(owner := parts[outer], ToolResult) and place >= 100:
        found = [one for one in owner.content if isinstance(one, Media)]
        return found[inner] if inner < len(found) else None
    return parts[place] if place < len(parts) else None


def download(data: bytes, name: str) -> Response:
    """Bytes that a browser keeps and never shows: what is stored may be a page with scripts."""
    headers = {
        "content-disposition": f'attachment; filename="{name}"',
        "content-security-policy": "sandbox; default-src 'none'",
    }
    return Response(data, media_type="application/octet-stream", headers=headers)


def blob(ask: Ask) -> Response:
    return download(ask.store.blobs.get(ask.wanted("hash")), "blob.bin")


def markdown(ask: Ask) -> Response:
    """The conversation, or one entry of it with its results, as Markdown."""
    thread = ask.thread()
    one = ask.query.get("entry")
    if one is None:
        path = thread.path(ask.query.get("leaf") or UNSET)
        return PlainTextResponse(f"# {title_of(thread.info)}\n\n{_to_markdown(path)}")
    found = [thread.get(one)]
    found += [thread.get(id) for id in ask.query.get("results", "").split("\n") if id]
    return PlainTextResponse(_to_markdown(found))


def _to_markdown(path: Sequence[Entry]) -> str:
    said = [entry.body for entry in path if entry.kind in MESSAGE_KINDS]
    return "\n\n".join(map(message_markdown, said)) + "\n"


# --- the minimap ----------------------------------------------------------------------------


class Mark(Struct, frozen=True):
    """A stretch of a lane, in per mille of the height."""

    top: float
    height: float
    sort: str
    lane: int = 0
    thread: str | None = None
    title: str = ""


_SORTS = {
    "user_message": "user",
    "tool_result": "tool",
    "tool_call": "tool",
    "compaction": "compaction",
    "run_failure": "bad",
    "snapshot": "snapshot",
}


def minimap(ask: Ask) -> Response:
    thread = ask.thread()
    outline = ask.site.outlines.get(thread, ask.query.get("leaf") or None)
    marks = list(_marks(outline.kinds))
    lanes = _lanes(ask.store, thread.id, outline.times)
    width = 14 + 8 * max((mark.lane for mark in lanes), default=0)
    return ask.page("minimap.html", marks=marks + lanes, width=width)


def _marks(kinds: Sequence[str]) -> Iterator[Mark]:
    """What a reader looks for, in as many stretches as the strip has lines."""
    per = max(1, -(-len(kinds) // BUCKETS))
    rank = ["bad", "compaction", "user", "snapshot", "tool", "other"]
    for begin in range(0, len(kinds), per):
        sorts = {_SORTS.get(kind, "other") for kind in kinds[begin : begin + per]}
        best = next(sort for sort in rank if sort in sorts)
        if best != "other":
            yield Mark(begin * 1000 / len(kinds), max(2.0, 1000 / len(kinds)), best)


def _lanes(store: Store, id: str, times: Sequence[int]) -> list[Mark]:
    """Where sub-agents worked, one lane beside another."""
    ends: list[float] = []
    found: list[Mark] = []
    children = store.list(parent=id, archived=None, limit=RELATIVES_MAX).items
    for info in sorted(children, key=lambda one: one.created_us):
        top = bisect_left(times, info.created_us) * 1000 / max(1, len(times))
        end = max(top + 8, bisect_left(times, info.updated_us) * 1000 / max(1, len(times)))
        lane = next((n for n, used in enumerate(ends) if used <= top), len(ends))
        lane = min(lane, _LANES_MAX - 1)
        ends[lane : lane + 1] = [end]
        found.append(Mark(top, end - top, "child", lane + 1, info.id, title_of(info)))
    return found
