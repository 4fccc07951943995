"""The tree of a thread, drawn; and going to another place of it: move, fork, rewind, undo."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from clew.core.errors import NotFound
from clew.core.model import Entry, ThreadInfo
from clew.server.cards import is_draft, preview
from clew.server.conversation import header
from clew.server.site import Ask, count, title_of, url
from clew.snapshots import intent as intents
from clew.snapshots.catalogue import is_snapshot
from clew.thread import Thread

ROW_PIXELS = 34
LANE_PIXELS = 18
FULL_MAX = 400  # a tree with more entries than this is drawn with its runs collapsed
ROWS_MAX = 3000
_SAID = {"user_message": "user", "compaction": "compaction", "run_failure": "bad"}


class Node(Struct, kw_only=True):
    """A row of the drawing: an entry, or `hidden` entries of a run without a branch."""

    entry: Entry
    lane: int
    sort: str
    text: str
    marks: list[tuple[str, str]]  # what is to be said about it, and where that leads
    is_current: bool
    hidden: int = 0
    y: int = 0

    @property
    def x(self) -> int:
        return LANE_PIXELS // 2 + self.lane * LANE_PIXELS


class Edge(Struct, frozen=True):
    path: str
    is_current: bool
    y: int  # where it ends


# --- pages ----------------------------------------------------------------------------------


def page(ask: Ask) -> Response:
    thread = ask.thread()
    info = thread.info
    found, drafts = without_drafts(list(thread.entries()), info.leaf)
    whole = ask.query.get("all") == "1" or len(found) <= FULL_MAX
    nodes, edges = draw(thread, info, found, whole)
    width = LANE_PIXELS * (1 + max((node.lane for node in nodes), default=0))
    return ask.page(
        "tree.html",
        tab="tree",
        **header(ask, thread, info),
        nodes=nodes[:ROWS_MAX],
        left_out=max(0, len(nodes) - ROWS_MAX),
        edges=edges,
        width=width,
        height=ROW_PIXELS * min(len(nodes), ROWS_MAX),
        entries=len(found),
        drafts=drafts,
        whole=whole,
        done=ask.query.get("done", ""),
        leaf=info.leaf,
        undoes=(intents.pending(info) or intents.last(info)) is not None,
        redoes=intents.undone(info) is not None,
    )


def without_drafts(found: list[Entry], leaf: str | None) -> tuple[list[Entry], int]:
    """The entries without what a streamed reply left behind while it came, and how many those were.

    Each is a branch of one entry, as many as there were seconds. One that has children stays.
    """
    used = {entry.parent for entry in found} | {leaf}
    kept = [entry for entry in found if entry.id in used or not is_draft(entry)]
    return kept, len(found) - len(kept)


def plan(ask: Ask) -> Response:
    """What a rewind to an entry would do: to the conversation, and to each file."""
    thread = ask.thread()
    entry = thread.get(ask.wanted("entry"))
    told: dict[str, Any] = {"entry": entry, "info": thread.info, "text": preview(entry)}
    try:
        done = _rewind(thread, entry, files=True, dry_run=True, force=False)
    except NotFound as error:
        return ask.page("plan.html", **told, plan=None, without=str(error))
    return ask.page("plan.html", **told, plan=done.files and done.files.plan)


# --- changing -------------------------------------------------------------------------------


def move(ask: Ask) -> Response:
    thread = ask.thread()
    # The leaf that the person saw: if an agent has gone on since, it is told, not overtaken.
    thread.move(ask.wanted("entry"), expect=ask.form.get("leaf") or None)
    return ask.go("/tree", id=thread.id, done="moved")


def fork(ask: Ask) -> Response:
    thread = ask.thread()
    title = f"Fork of {title_of(thread.info)}"
    made = thread.fork(at=ask.wanted("entry"), title=title)
    return ask.go("/thread", id=made.id)


def rewind(ask: Ask) -> Response:
    thread = ask.thread()
    entry = thread.get(ask.wanted("entry"))
    files = "with_files" in ask.form
    _rewind(thread, entry, files=files, dry_run=False, force="force" in ask.form)
    return ask.go("/tree", id=thread.id, done="rewound")


def undo(ask: Ask) -> Response:
    thread = ask.thread()
    thread.undo_rewind(force="force" in ask.form)
    return ask.go("/tree", id=thread.id, done="undone")


def redo(ask: Ask) -> Response:
    thread = ask.thread()
    thread.redo_rewind(force="force" in ask.form)
    return ask.go("/tree", id=thread.id, done="redone")


def _rewind(thread: Thread, entry: Entry, *, files: bool, dry_run: bool, force: bool) -> Any:
    """Before a message of the user, which is then said anew; at any other entry."""
    at = entry.kind != "user_message"
    return thread.rewind(entry.id, at=at, files=files, dry_run=dry_run, force=force)


# --- the drawing ----------------------------------------------------------------------------


def draw(
    thread: Thread, info: ThreadInfo, found: Sequence[Entry], whole: bool
) -> tuple[list[Node], list[Edge]]:
    """All entries; not `whole`, those at which something happens, with the runs between them."""
    marks = _marks(thread, info, found)
    return lay_out(found, info.leaf, marks, None if whole else telling(found, marks))


def lay_out(
    found: Sequence[Entry],
    leaf: str | None,
    marks: Mapping[str, list[tuple[str, str]]],
    shown: set[str] | None = None,
    *,
    gaps: bool = True,
) -> tuple[list[Node], list[Edge]]:
    """Nodes from top to bottom, and the lines between them.

    `shown` are the entries that are drawn if not all are; with `gaps` there is a node for those
    that are left out between two of them. Where branches part, all are drawn that part there.
    """
    current = _current(found, leaf)
    children = _children(found)
    nodes: list[Node] = []
    edges: list[Edge] = []
    # An entry to draw, its lane, and the node that it hangs on.
    todo = _stacked(children[None], 0, None, current)
    while todo:
        entry, lane, above = todo.pop()
        hidden = 0
        while shown is not None and entry.id not in shown and len(children[entry.id]) == 1:
            entry, hidden = children[entry.id][0], hidden + 1
        if hidden and gaps:
            above = _add(nodes, edges, _run(entry, lane, hidden, entry.id in current), above)
        node = Node(
            entry=entry,
            lane=lane,
            sort=_sort(entry),
            text=preview(entry),
            marks=marks.get(entry.id, []),
            is_current=entry.id in current,
        )
        above = _add(nodes, edges, node, above)
        todo += _stacked(children[entry.id], lane, above, current)
    return nodes, edges


def _run(entry: Entry, lane: int, hidden: int, is_current: bool) -> Node:
    text = count(hidden, "entry")
    return Node(
        entry=entry,
        lane=lane,
        sort="run",
        text=text,
        marks=[],
        is_current=is_current,
        hidden=hidden,
    )


def _add(nodes: list[Node], edges: list[Edge], node: Node, above: Node | None) -> Node:
    node.y = ROW_PIXELS // 2 + ROW_PIXELS * len(nodes)
    nodes.append(node)
    if above is not None:
        line = f"M{above.x} {above.y}"
        if node.x == above.x:
            line += f"V{node.y}"
        else:
            line += f"V{node.y - 12}Q{above.x} {node.y} {node.x} {node.y}"
        edges.append(Edge(line, node.is_current and above.is_current, node.y))
    return node


def _stacked(
    siblings: list[Entry], lane: int, above: Node | None, current: set[str]
) -> list[tuple[Entry, int, Node | None]]:
    """Siblings, the next one to draw last: branches in order, then the one that goes on."""
    if not siblings:
        return []
    onward = next((entry for entry in siblings if entry.id in current), siblings[-1])
    branches = [entry for entry in siblings if entry is not onward]
    return [(onward, lane, above), *((entry, lane + 1, above) for entry in reversed(branches))]


def _current(found: Sequence[Entry], leaf: str | None) -> set[str]:
    """Those of the entries that lie on the path to the leaf."""
    above = {entry.id: entry.parent for entry in found}
    current: set[str] = set()
    while leaf is not None and leaf in above:
        current.add(leaf)
        leaf = above[leaf]
    return current


def _children(found: Sequence[Entry]) -> dict[str | None, list[Entry]]:
    known = {entry.id for entry in found}
    children: dict[str | None, list[Entry]] = defaultdict(list)
    for entry in found:
        children[entry.parent if entry.parent in known else None].append(entry)
    return children


def telling(found: Sequence[Entry], marks: Mapping[str, list[Any]]) -> set[str]:
    """The entries that are drawn by themselves: where a run begins, parts, ends or is marked."""
    children = _children(found)
    shown = {entry.id for entry in found if marks.get(entry.id) or entry.kind == "run_failure"}
    for siblings in list(children.values()):
        if len(siblings) > 1:
            shown |= {entry.id for entry in siblings}
            shown |= {entry.parent for entry in siblings if entry.parent is not None}
    shown |= {entry.id for entry in children.get(None, [])}
    return shown | {entry.id for entry in found if not children.get(entry.id)}


def _marks(
    thread: Thread, info: ThreadInfo, found: Sequence[Entry]
) -> dict[str, list[tuple[str, str]]]:
    marks: dict[str, list[tuple[str, str]]] = defaultdict(list)
    if info.leaf is not None:
        marks[info.leaf].append(("leaf", ""))
    for id, name in info.labels.items():
        marks[id].append((name, ""))
    for entry in found:
        if is_snapshot(entry):
            marks[entry.id].append(("files", url("/files", id=thread.id, a=entry.id)))
        elif entry.kind == "compaction":
            marks[entry.id].append(("compaction", ""))
    if info.origin is not None and info.origin.entry is not None:
        there = url("/thread", id=info.origin.thread, at=info.origin.entry)
        marks[info.origin.entry].append(("forked here", there))
    for other in thread.store.list(origin=info.id, archived=None, limit=200).items:
        if other.origin is not None and other.origin.entry is not None:
            marks[other.origin.entry].append(
                (f"fork: {title_of(other)}", url("/thread", id=other.id))
            )
    return marks


def _sort(entry: Entry) -> str:
    return "snapshot" if is_snapshot(entry) else _SAID.get(entry.kind, "entry")
