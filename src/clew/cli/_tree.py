"""The shape of a thread's tree, as lines to be drawn from top to bottom.

The current path runs straight down the left edge. What branches off it hangs to the right and
comes before the path goes on, so depth grows with branches of branches only, not with length:

    ●       user_message
    ●       assistant_message
    ├─○     user_message        a branch that was left
    │ ○     assistant_message
    ●       user_message
    ◉       assistant_message   the leaf
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct

from clew.model import Entry


class Row(Struct, frozen=True):
    """An entry and what is drawn before its node."""

    entry: Entry
    lead: str


def rows(entries: Iterable[Entry], current: set[str]) -> Iterator[Row]:
    """Every entry once, parents before children. `current` are the ids of the current path."""
    children = _children(list(entries))
    todo = _steps(children[None], "", current)
    while todo:
        row, below = todo.pop()
        yield row
        todo += _steps(children[row.entry.id], below, current)


Step = tuple[Row, str]  # a row, and the lead of what comes below it


def _steps(siblings: list[Entry], lead: str, current: set[str]) -> list[Step]:
    """The siblings as steps, the next one last: branches in order, then the one that goes on."""
    if not siblings:
        return []
    onward = next((entry for entry in siblings if entry.id in current), siblings[-1])
    branches = [entry for entry in siblings if entry is not onward]
    steps = [(Row(onward, lead), lead)]
    steps += [(Row(entry, lead + "├─"), lead + "│ ") for entry in reversed(branches)]
    return steps


def _children(entries: list[Entry]) -> dict[str | None, list[Entry]]:
    """Entries by parent. One whose parent is not among them is shown as a root, not left out."""
    known = {entry.id for entry in entries}
    children: dict[str | None, list[Entry]] = defaultdict(list)
    for entry in entries:
        children[entry.parent if entry.parent in known else None].append(entry)
    return children
