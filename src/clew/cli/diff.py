"""Where two threads part, and what each has after that, side by side.

A and B are threads, or entries as THREAD:ENTRY. What both share by reference is counted; behind it,
entries of the same content stand beside each other. In a pipe or on a narrow terminal the two
sides come one below the other: < is A, > is B. Exit code 0, whether there are differences or not.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from difflib import SequenceMatcher

from msgspec import UNSET

from clew import tree
from clew.cli import _exits
from clew.cli._arguments import add_namespace, add_object, add_store_option
from clew.cli._json import record_value
from clew.cli._screen import Part, Screen
from clew.cli._stores import find_place, open_to_look
from clew.cli._text import one_line, pad, plural, preview
from clew.core.model import Entry
from clew.tree import Comparison

SIDE_BY_SIDE = 80  # columns; below that a side has no room for a sentence
MATCHED_MAX = 2000  # entries of a side that are matched by content; the time grows with the square

Row = tuple[Entry | None, Entry | None]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", nargs="?", metavar="STORE", help="default: your own store")
    for name in ("a", "b"):
        parser.add_argument(name, metavar=name.upper(), help="THREAD, or THREAD:ENTRY")
    add_store_option(parser)
    add_namespace(parser)
    add_object(parser)


def run(options: argparse.Namespace, screen: Screen) -> int:
    with open_to_look(options.store, options.namespace) as store, screen.paged():
        one, left = find_place(store, options.a)
        other, right = find_place(store, options.b)
        found = tree.compare(
            (one, UNSET if left is None else left.id), (other, UNSET if right is None else right.id)
        )
        if options.json:
            value = {
                "common": None if found.common is None else record_value(found.common),
                "left": [record_value(entry) for entry in found.left],
                "right": [record_value(entry) for entry in found.right],
            }
            screen.json({"a": one.id, "b": other.id, **value})
        else:
            _draw(screen, options, found)
    return _exits.OK


def _draw(screen: Screen, options: argparse.Namespace, found: Comparison) -> None:
    if found.common is None:
        screen.line("they share no entry")
    else:
        common = f"the same up to {found.common.seq}: "
        screen.line(common, (f"{one_line(found.common.kind)} {preview(found.common)}", "dim"))
    if not found.left and not found.right:
        screen.line(("no difference", "dim"))
        return
    for name, entries in ((options.a, found.left), (options.b, found.right)):
        screen.line((name, "bold"), f": {plural(len(entries), 'entry')} after that")
    screen.line()
    wide = screen.width is not None and screen.width >= SIDE_BY_SIDE
    for row in rows(found.left, found.right):
        if wide:
            _draw_row(screen, row)
        else:
            _draw_lines(screen, row)


def rows(left: list[Entry], right: list[Entry]) -> Iterator[Row]:
    """Both sides beside each other; what has the same content stands in one row."""
    if max(len(left), len(right)) > MATCHED_MAX:
        blocks = [("replace", 0, len(left), 0, len(right))]
    else:
        ours, theirs = ([f"{one.kind} {one.body_hash}" for one in side] for side in (left, right))
        blocks = list(SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes())
    for _, a, a_end, b, b_end in blocks:
        for n in range(max(a_end - a, b_end - b)):
            yield (
                left[a + n] if a + n < a_end else None,
                right[b + n] if b + n < b_end else None,
            )


def _is_same(row: Row) -> bool:
    one, other = row
    return one is not None and other is not None and one.body_hash == other.body_hash


def _draw_row(screen: Screen, row: Row) -> None:
    assert screen.width is not None
    width = (screen.width - 3) // 2
    same = _is_same(row)
    parts: list[Part] = []
    for entry, style in zip(row, ("red", "green"), strict=True):
        text = "" if entry is None else f"{entry.seq:>4} {_said(entry)}"
        parts += [(pad(text, width), "dim" if same else style), (" = " if same else " │ ", "dim")]
    screen.line(*parts[:-1])


def _draw_lines(screen: Screen, row: Row) -> None:
    if _is_same(row) and row[0] is not None:
        screen.line((f"= {row[0].seq:>4} {_said(row[0])}", "dim"))
        return
    for entry, sign, style in zip(row, "<>", ("red", "green"), strict=True):
        if entry is not None:
            screen.line((f"{sign} {entry.seq:>4} {_said(entry)}", style))


def _said(entry: Entry) -> str:
    return f"{one_line(entry.kind)}  {preview(entry)}"
