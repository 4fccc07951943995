"""One thread as the tree of its entries: branches, the leaf, labels, forks, compactions.

THREAD is an id, as many of its first letters as tell it from all others, or @last, @2, …: see
clew help ids. Deleted threads are shown, too.

Each line of the tree is an entry: its number in the log, its kind, and how it begins.
● lies on the current path, ◉ is the leaf, ○ lies on a branch that was left.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from clew.cli import _exits
from clew.cli._arguments import add_json, add_thread
from clew.cli._json import record_value
from clew.cli._screen import Part, Screen
from clew.cli._stores import opened_thread, short_id
from clew.cli._text import ago, cells, one_line, pad, partial_of, plural, preview
from clew.core.model import Entry, Record, ThreadInfo
from clew.store import Store
from clew.thread import Thread

KIND_WIDTH_MAX = 20

STYLES = {
    "user_message": "cyan",
    "assistant_message": "green",
    "tool_call": "yellow",
    "tool_result": "yellow",
    "run_failure": "red",
    "compaction": "magenta",
    "snapshot": "blue",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    add_thread(parser)
    add_json(parser, "each record of the thread")


def run(options: argparse.Namespace, screen: Screen) -> int:
    with opened_thread("tree", options, look=True, deleted=True) as thread, screen.paged():
        if options.json:
            for record in _records(thread):
                screen.json(record_value(record))
        else:
            draw_tree(screen, thread)
    return _exits.OK


def _records(thread: Thread) -> Iterator[Record]:
    """The shared path of a fork, then the whole log, so that no entry lacks its parent."""
    origin = thread.info.origin
    if origin is not None and origin.entry is not None:
        yield from thread.path(origin.entry)
    yield from thread.read()


# --- the tree -------------------------------------------------------------------------------


def draw_tree(screen: Screen, thread: Thread) -> None:
    info = thread.info
    draw_head(screen, thread.store, info)
    current = {entry.id for entry in thread.path()}
    entries = list(thread.entries())
    marks = _marks(thread.store, info)
    width = kind_width(screen, entries)
    if info.leaf is None:
        screen.line("◉ ", ("leaf: before the root", "bold"))
    for row in rows(entries, current):
        draw_entry(
            screen,
            row.entry,
            lead=row.lead + _node(row.entry, info, current),
            width=width,
            mark=marks.get(row.entry.id, ""),
            faint=row.entry.id not in current or row.entry.thread != info.id,
        )


def draw_head(screen: Screen, store: Store, info: ThreadInfo) -> None:
    title = "(no title)" if info.title is None else info.title.text
    screen.line((one_line(title), "bold"))
    facts = [
        f"thread {info.id}",
        plural(info.seq, "record"),
        f"updated {ago(info.updated_at, store.now())}",
        *([] if info.workspace is None else [f"workspace {info.workspace}"]),
        *(f"#{tag}" for tag in info.tags),
    ]
    if info.deleted_at is not None:
        facts.append(f"deleted {ago(info.deleted_at, store.now())}")
    screen.line((", ".join(facts), "dim"))
    if info.damaged is not None:
        screen.line((f"damaged: {one_line(info.damaged)}", "red"))


def _node(entry: Entry, info: ThreadInfo, current: set[str]) -> str:
    if entry.id == info.leaf:
        return "◉"
    return "●" if entry.id in current else "○"


def _marks(store: Store, info: ThreadInfo) -> Mapping[str, str]:
    """What is to be said about single entries: the leaf, labels, where forks begin."""
    found: dict[str, list[str]] = defaultdict(list)
    if info.leaf is not None:
        found[info.leaf].append("leaf")
    for entry, name in info.labels.items():
        found[entry].append(f"label {name}")
    if info.origin is not None and info.origin.entry is not None:
        found[info.origin.entry].append(f"forked from {short_id(store, info.origin.thread)}")
    for fork in store.threads(origin=info.id, archived=None):
        if fork.origin is not None and fork.origin.entry is not None:
            found[fork.origin.entry].append(f"fork {short_id(store, fork.id)}")
    return {entry: ", ".join(marks) for entry, marks in found.items()}


def kind_width(screen: Screen, entries: list[Entry]) -> int:
    """How wide the column of kinds is; one long name must not take the terminal from the text."""
    widest = max((cells(one_line(entry.kind)) for entry in entries), default=0)
    return widest if screen.width is None else min(widest, KIND_WIDTH_MAX)


def draw_entry(
    screen: Screen,
    entry: Entry,
    *,
    lead: str = "",
    width: int = 0,
    mark: str = "",
    faint: bool = False,
) -> None:
    """One line: number, place in the tree, kind, what is to be said about it, how it begins."""
    style = "dim" if faint or entry.kind == "turn_marker" else STYLES.get(entry.kind, "")
    parts: list[Part] = [
        (f"{entry.seq:>4} ", "dim"),
        (f"{lead} " if lead else "", "dim" if faint else "bold"),
        (pad(one_line(entry.kind), width), style),
        "  ",
    ]
    if mark:
        parts.append((f"[{one_line(mark)}] ", "bold magenta"))
    if partial_of(entry) is not None:
        parts.append(("[partial] ", "bold yellow"))
    parts.append((preview(entry), "dim" if faint or entry.kind == "turn_marker" else ""))
    screen.line(*parts)


# --- the shape of the tree, as rows from top to bottom -------------------------------------


class Row(Struct, frozen=True):
    """An entry and what is drawn before its node."""

    entry: Entry
    lead: str


def rows(entries: Iterable[Entry], current: set[str]) -> Iterator[Row]:
    """Every entry once, parents before children. `current` are the ids of the current path."""
    children = _children(list(entries))
    # A stack of its own: a thread of 100,000 entries is as deep as it is long.
    todo = _stacked(children[None], "", current)
    while todo:
        row, below = todo.pop()
        yield row
        todo += _stacked(children[row.entry.id], below, current)


def _stacked(siblings: list[Entry], lead: str, current: set[str]) -> list[tuple[Row, str]]:
    """Rows for siblings, each with the lead of what comes below it; the next one to draw is last.

    Branches come in order, then the one that goes on.
    """
    if not siblings:
        return []
    # The branch that goes on is drawn below the others, so that the current path stays a line.
    onward = next((entry for entry in siblings if entry.id in current), siblings[-1])
    branches = [entry for entry in siblings if entry is not onward]
    stack = [(Row(onward, lead), lead)]
    stack += [(Row(entry, lead + "├─"), lead + "│ ") for entry in reversed(branches)]
    return stack


def _children(entries: list[Entry]) -> dict[str | None, list[Entry]]:
    """Entries by parent. One whose parent is not among them is shown as a root, not left out."""
    known = {entry.id for entry in entries}
    children: dict[str | None, list[Entry]] = defaultdict(list)
    for entry in entries:
        children[entry.parent if entry.parent in known else None].append(entry)
    return children
