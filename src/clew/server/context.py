"""What a provider would get at a place of the thread, and what two places do not share."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType
from starlette.responses import JSONResponse, Response

from clew.context import compaction
from clew.context.request import Context, ContextSegment
from clew.core.errors import NotFound
from clew.core.model import Entry
from clew.messages import FORMATS, FRAMEWORKS, request_format
from clew.server import render
from clew.server.cards import cards, is_draft, one_line, preview
from clew.server.conversation import header
from clew.server.site import Ask, title_of
from clew.snapshots.model import Difference
from clew.thread import Thread
from clew.tree import Comparison

SHOWN_MAX = 400  # parts of a context in the list; the newest
COMPARED_MAX = 120  # entries on each side
SHARES_MAX = 300
LEAVES_MAX = 50
_LEAVES_LOOKED_AT = 500
_BAR = 1000.0


class Share(Struct, frozen=True):
    """A stretch of the bar of tokens, in per mille."""

    x: float
    width: float
    sort: str
    title: str


def page(ask: Ask) -> Response:
    thread = ask.thread()
    info = thread.info
    wanted = _project(ask, thread)
    tokens = max(1, sum(one.token_estimate for one in wanted.segments))
    repairs = {repair.entry for repair in wanted.report.repairs}
    return ask.page(
        "context.html",
        tab="context",
        **header(ask, thread, info),
        context=wanted,
        formats=_formats(),
        chosen=ask.query.get("format") or "",
        compacted=ask.query.get("compacted") != "0",
        budget=ask.query.get("budget") or "",
        leaf=ask.query.get("leaf") or "",
        tokens=tokens,
        shares=_shares(wanted, tokens),
        sums=_sums(wanted),
        segments=[
            (one, _said(thread, one), one.entry_id in repairs, one.token_estimate / tokens)
            for one in wanted.segments[-SHOWN_MAX:]
        ],
        left_out=max(0, len(wanted.segments) - SHOWN_MAX),
        stands_for=_stands_for(ask, thread, wanted),
        system=None if wanted.system is None else render.data(wanted.system),
    )


def raw(ask: Ask) -> Response:
    """The request itself."""
    wanted = _project(ask, ask.thread())
    body = {"system": wanted.system, "messages": wanted.messages, "tools": wanted.tools}
    return JSONResponse({key: value for key, value in body.items() if value is not None})


def message(ask: Ask) -> Response:
    """One message of the request, as it is sent."""
    wanted = _project(ask, ask.thread())
    index = ask.number("index", 0, low=0)
    if index >= len(wanted.messages):
        raise NotFound("message", str(index))
    return ask.page("message.html", data=render.data(wanted.messages[index]))


def _project(ask: Ask, thread: Thread) -> Context:
    return thread.context(
        ask.query.get("format") or None,
        leaf=_leaf(ask),
        compacted=ask.query.get("compacted") != "0",
        budget_tokens=ask.number("budget", 0, high=100_000_000) or None,
        segments=True,
    )


def _leaf(ask: Ask) -> str | UnsetType:
    return ask.query.get("leaf") or UNSET


def _formats() -> list[str]:
    return [*FORMATS, *(name for name in FRAMEWORKS if request_format(name) == name)]


def _shares(context: Context, tokens: int) -> list[Share]:
    """In the order of the messages; of a long context only how much each role has of it."""
    parts = [(_sort(one), one.token_estimate) for one in context.segments]
    if len(parts) > SHARES_MAX:
        parts = _sums(context)
    found: list[Share] = []
    x = 0.0
    for sort, number in parts:
        width = number * _BAR / tokens
        found.append(Share(x, width, sort, f"{sort}: {number:,} tokens"))
        x += width
    return found


def _sort(one: ContextSegment) -> str:
    return "compaction" if one.kind == "compaction" else one.role


def _sums(context: Context) -> list[tuple[str, int]]:
    sums: dict[str, int] = {}
    for one in context.segments:
        sort = _sort(one)
        sums[sort] = sums.get(sort, 0) + one.token_estimate
    return sorted(sums.items(), key=lambda pair: -pair[1])


def _said(thread: Thread, one: ContextSegment) -> str:
    """How it begins; where there is no text, such as thinking that is hidden, what it is."""
    return one_line(one.preview, 200) or preview(thread.get(one.entry_id), 200)


def _stands_for(ask: Ask, thread: Thread, context: Context) -> int:
    """How many entries the summary in force replaces."""
    if context.report.compaction is None:
        return 0
    found = compaction.explain(thread, _leaf(ask))
    return 0 if found is None else len(found.stands_for)


# --- comparing ------------------------------------------------------------------------------


def compare(ask: Ask) -> Response:
    thread = ask.thread()
    info = thread.info
    other = ask.query.get("other") or ""
    left, right = ask.query.get("left") or "", ask.query.get("right") or ""
    found: Comparison | None = None
    second = thread
    if left and right:
        second = ask.store.get(other, deleted=True) if other else thread
        found = thread.compare(left, right, thread=second)
    elif other:
        second = ask.store.get(other, deleted=True)
        found = ask.store.compare(thread, second)
    shown: dict[str, Any] = {"found": None, "files": None}
    if found is not None:
        shown = _compared(found, thread, second)
    return ask.page(
        "compare.html",
        tab="compare",
        **header(ask, thread, info),
        **shown,
        other=other,
        second=second.info,
        second_title=title_of(second.info),
        left=left,
        right=right,
        leaves=_leaves(thread),
    )


def _leaves(thread: Thread) -> list[tuple[str, str]]:
    """The ends of this thread's own branches, to choose from."""
    found = [thread.get(id) for id in reversed(thread.leaves()[-_LEAVES_LOOKED_AT:])]
    leaf = thread.leaf
    ends = [entry for entry in found if entry.id == leaf or not is_draft(entry)]
    return [(entry.id, preview(entry, 80)) for entry in ends[:LEAVES_MAX]]


def _compared(found: Comparison, thread: Thread, second: Thread) -> dict[str, Any]:
    return {
        "found": found,
        "common": None if found.common is None else preview(found.common, 160),
        "sides": [
            (thread.info, len(found.left), cards(found.left[:COMPARED_MAX])),
            (second.info, len(found.right), cards(found.right[:COMPARED_MAX])),
        ],
        "files": _files(found, thread, second),
    }


def _files(found: Comparison, thread: Thread, second: Thread) -> list[Difference] | None:
    """What differs between the files at both ends; None if one of them has no snapshot."""
    ours, theirs = _last_snapshot(found.left), _last_snapshot(found.right)
    shared = next((one.id for one in thread.snapshots.list() if _is_shared(one.id, second)), None)
    a, b = ours or shared, theirs or shared
    if a is None or b is None or a == b:
        return None
    owner = second if theirs else thread
    try:
        return owner.snapshots.diff(a, b)
    except NotFound:
        return None


def _last_snapshot(entries: list[Entry]) -> str | None:
    return next((entry.id for entry in reversed(entries) if entry.kind == "snapshot"), None)


def _is_shared(id: str, other: Thread) -> bool:
    return any(one.id == id for one in other.snapshots.list())
