"""The threads of a store, newest first: id, when, records, title.

The id is cut to what `clew show` needs to find the thread. Records count entries, moves of the
leaf and facts alike. A thread that is damaged is listed all the same, and what is wrong with it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice

from clew.cli import _exits
from clew.cli._arguments import add_json, add_store, count
from clew.cli._json import thread_value
from clew.cli._screen import Part, Screen
from clew.cli._stores import open_to_look, short_id
from clew.cli._text import ago, cells, one_line, pad, plural
from clew.core.model import ThreadInfo
from clew.store import Store


def arguments(parser: argparse.ArgumentParser) -> None:
    add_store(parser)
    parser.add_argument(
        "--order", choices=("created", "updated"), default="updated", help="default: updated"
    )
    parser.add_argument("--all", action="store_true", help="archived threads as well")
    parser.add_argument("--deleted", action="store_true", help="the deleted threads instead")
    parser.add_argument("--tag", metavar="T", help="only threads with this tag")
    parser.add_argument("--workspace", metavar="W", help="only threads of this workspace")
    parser.add_argument("--limit", type=count, default=50, metavar="N", help="default: 50")
    add_json(parser, "each thread")


def run(options: argparse.Namespace, screen: Screen) -> int:
    with open_to_look(options.store, options.namespace) as store:
        # One more than is shown, to know whether there are more.
        found = list(islice(_threads(store, options), options.limit + 1))
        shown = found[: options.limit]
        if options.json:
            for info in shown:
                screen.json(thread_value(info))
        else:
            draw_threads(screen, store, shown, order=options.order)
            _draw_rest(screen, shown, more=len(found) > len(shown))
    return _exits.OK


def _threads(store: Store, options: argparse.Namespace) -> Iterator[ThreadInfo]:
    return store.threads(
        order=options.order,
        archived=None if options.all else False,
        deleted=options.deleted,
        tag=options.tag,
        workspace=options.workspace,
    )


def draw_threads(
    screen: Screen, store: Store, threads: list[ThreadInfo], *, order: str = "updated"
) -> None:
    """One line a thread, in columns."""
    now = store.now()
    lines = [
        (
            one_line(short_id(store, info.id)),
            ago(info.created_at if order == "created" else info.updated_at, now),
            plural(info.seq, "record"),
        )
        for info in threads
    ]
    widths = [max(map(cells, column)) for column in zip(*lines, strict=True)]
    for info, (id, when, size) in zip(threads, lines, strict=True):
        screen.line(
            (pad(id, widths[0]), "yellow"),
            f"  {pad(when, widths[1])}  ",
            (f"{size:>{widths[2]}}  ", "dim"),
            *_title(info),
            *_notes(store, info),
        )


def _title(info: ThreadInfo) -> list[Part]:
    if info.title is None or not one_line(info.title.text):
        return [("(no title)", "dim")]
    return [(one_line(info.title.text), "bold")]


def _notes(store: Store, info: ThreadInfo) -> list[Part]:
    notes = [f"#{tag}" for tag in info.tags]
    if info.origin is not None:
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
