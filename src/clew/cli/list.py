"""The threads of a store, newest first: id, age, agent, workspace, messages, tokens, cost, title.

The id is cut to what other commands need to find the thread; @1, @2, … are the threads in this
order. The number of messages is that of the current path; of a long thread it is an estimate from
its newest entries, marked with ~. Tokens and cost are those of the replies that were written in
the thread; a cost with a + is more than is known, and the first list of a store reads all of it for
them. A narrow terminal leaves columns out, a pipe has all of them. A
thread that is damaged is listed all the same, and what is wrong with it.

TIME is a span (7d, 12h, 2w) or a date (2026-01-31). --tree shows forks and sub-agents below the
thread that they come from, whether or not they fit the other filters.
"""

from __future__ import annotations

import argparse
import os
from itertools import islice
from typing import Any

from clew.cli import _exits
from clew.cli._arguments import add_json, add_store, count
from clew.cli._filters import add_filters, filtered
from clew.cli._json import json_value, thread_value
from clew.cli._screen import Part, Screen
from clew.cli._stores import open_to_look, short_id, short_ids
from clew.cli._text import ago, cells, cut, one_line, pad
from clew.core.errors import ClewError
from clew.core.model import ThreadInfo, encode_cursor
from clew.store import Store
from clew.usage.model import Used, money, short

COUNTED_MAX = 32  # entries that are read of a thread to count its messages
TITLE_CELLS = 24  # a terminal that has no more left for the title leaves a column out
_CELLS = {"agent": 14, "workspace": 24}
_NUMBERS = ("messages", "tokens", "cost")
_MESSAGES = ("user_message", "assistant_message", "tool_call")


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument(
        "--order", choices=("created", "updated"), default="updated", help="default: updated"
    )
    parser.add_argument("--all", action="store_true", help="archived threads as well")
    parser.add_argument("--deleted", action="store_true", help="the deleted threads instead")
    add_filters(parser)
    parser.add_argument("--tree", action="store_true", help="forks and sub-agents below theirs")
    parser.add_argument("--cursor", metavar="C", help="go on after a page, with what it printed")
    parser.add_argument("--limit", type=count, default=50, metavar="N", help="default: 50")
    add_json(parser, "each thread")


def run(options: argparse.Namespace, screen: Screen) -> int:
    with open_to_look(options.store, options.namespace) as store, screen.paged():
        # One more than is shown, to know whether there are more.
        options.roots = options.roots or options.tree
        threads = filtered(
            store,
            options,
            order=options.order,
            archived=None if options.all else False,
            deleted=options.deleted,
            cursor=options.cursor,
            limit=options.limit + 1,
        )
        found = list(islice(threads, options.limit + 1))
        shown = found[: options.limit]
        more = _cursor(shown[-1], options.order) if len(found) > options.limit else None
        leads: dict[str, str] = {}
        if options.tree:
            shown, leads = _with_relatives(store, shown)
        if options.json:
            used = used_by(screen, store, shown)
            for info in shown:
                told = {"usage": json_value(used[info.id])}
                screen.json(thread_value(info) | _counted(store, info) | told)
            if more is not None:
                screen.note(f"there are more: --cursor {more}")
        else:
            draw_threads(screen, store, shown, order=options.order, leads=leads)
            _draw_rest(screen, shown, more=more is not None)
    return _exits.OK


def _cursor(last: ThreadInfo, order: str) -> str:
    """Where the next page begins: a page of the store may have more than was shown."""
    return encode_cursor(last.created_us if order == "created" else last.updated_us, last.id)


def _with_relatives(
    store: Store, roots: list[ThreadInfo]
) -> tuple[list[ThreadInfo], dict[str, str]]:
    """The threads with what hangs on them, and what is drawn before the title of each."""
    found: list[ThreadInfo] = []
    leads: dict[str, str] = {}
    for root in roots:
        for one in store.tree(root.id):
            found.append(one.info)
            if one.depth:
                leads[one.info.id] = "  " * (one.depth - 1) + f"└ {one.relation} "
    return found, leads


# --- columns ---


def draw_threads(
    screen: Screen,
    store: Store,
    threads: list[ThreadInfo],
    *,
    order: str = "updated",
    leads: dict[str, str] | None = None,
) -> None:
    """One line a thread, in columns."""
    now = store.now()
    used = used_by(screen, store, threads)
    names = short_ids(store, [info.id for info in threads])
    columns: dict[str, list[str]] = {
        "id": [one_line(names[info.id]) for info in threads],
        "when": [
            ago(info.created_at if order == "created" else info.updated_at, now) for info in threads
        ],
        "agent": [one_line(info.agent or "") for info in threads],
        "workspace": [_folder(info, screen.width) for info in threads],
        "messages": [_messages(store, info) for info in threads],
        "tokens": [_tokens(used[info.id]) for info in threads],
        "cost": [_cost(used[info.id]) for info in threads],
    }
    widths = _widths(screen, columns)
    for row, info in enumerate(threads):
        parts: list[Part] = []
        for name, width in widths.items():
            text = columns[name][row]
            shown = f"{text:>{width}}" if name in _NUMBERS else pad(text, width)
            parts.append((shown, {"id": "yellow", "when": ""}.get(name, "dim")))
            parts.append("  ")
        lead: Part = ((leads or {}).get(info.id, ""), "dim")
        screen.line(*parts, lead, *_title(info), *_notes(store, info, told=bool(leads)))


def _widths(screen: Screen, columns: dict[str, list[str]]) -> dict[str, int]:
    """How wide each column is; those for which a terminal has no room are left out."""
    widths = {name: max(map(cells, texts), default=0) for name, texts in columns.items()}
    widths = {name: width for name, width in widths.items() if width}
    if screen.width is None:
        return widths
    widths = {name: min(width, _CELLS.get(name, width)) for name, width in widths.items()}
    for name in ("tokens", "workspace", "agent", "messages", "cost", "when"):
        if sum(width + 2 for width in widths.values()) + TITLE_CELLS > screen.width:
            widths.pop(name, None)
    return widths


def _folder(info: ThreadInfo, columns: int | None) -> str:
    """A workspace as people name it: below their home with ~; on a terminal its end will do."""
    text = one_line(info.workspace or "")
    home = os.path.expanduser("~")
    if home != "/" and (text == home or text.startswith(home + "/")):
        text = "~" + text[len(home) :]
    width = _CELLS["workspace"]
    if columns is None or cells(text) <= width:
        return text
    return "…" + cut(text[::-1], width)[:-1][::-1]  # the end of a path says more


def _messages(store: Store, info: ThreadInfo) -> str:
    counted = _counted(store, info)
    if counted["messages"] is not None:
        number = f"{counted['messages']:,}"
    else:
        estimate = counted["messages_estimate"]
        number = "?" if estimate is None else f"~{estimate:,}"
    return f"{number} msg"


def _counted(store: Store, info: ThreadInfo) -> dict[str, Any]:
    """How many messages lie on the path: counted, or of a long thread estimated from its end.

    A list must cost what its page costs, and not what its threads do.
    """
    known: dict[str, int | None] = {"messages": None, "messages_estimate": None}
    if info.leaf is None:
        return known | {"messages": 0}
    try:
        newest = store.engine.path(info.id, info.leaf, limit=COUNTED_MAX)
    except ClewError:
        return known  # a damaged thread is listed like all others
    found = sum(entry.kind in _MESSAGES for entry in newest)
    if newest[0].parent is None:
        return known | {"messages": found}
    # What a fork shares with its origin is not in its own records, but its last number is.
    behind = max(newest[0].seq, 1)
    return known | {"messages_estimate": found + behind * found // len(newest)}


def used_by(screen: Screen, store: Store, threads: list[ThreadInfo]) -> dict[str, Used]:
    """What the threads took and cost; the first time in a store, that reads all of it."""
    from clew.usage import usage_of

    with screen.bar("usage") as bar:
        return usage_of(store, [info.id for info in threads], progress=bar)


def _tokens(used: Used) -> str:
    return f"{short(used.tokens.total)} tok" if used.replies else ""


def _cost(used: Used) -> str:
    return money(used) if used.replies else ""


def _title(info: ThreadInfo) -> list[Part]:
    if info.title is None or not one_line(info.title.text):
        return [("(no title)", "dim")]
    return [(one_line(info.title.text), "bold")]


def _notes(store: Store, info: ThreadInfo, *, told: bool) -> list[Part]:
    notes = [f"#{tag}" for tag in info.tags]
    notes += [info.status] if info.status else []
    if info.origin is not None and not told:
        notes.append(f"fork of {short_id(store, info.origin.thread)}")
    if info.archived:
        notes.append("archived")
    parts: list[Part] = [(f"  {one_line(note)}", "dim") for note in notes]
    if info.damaged is not None:
        parts.append((f"  damaged: {one_line(info.damaged)}", "red"))
    return parts


def _draw_rest(screen: Screen, shown: list[ThreadInfo], *, more: bool) -> None:
    if not shown:
        screen.line(("no threads", "dim"))
    elif more:
        screen.line((f"… and more: --limit {len(shown) * 4} shows further back", "dim"))
