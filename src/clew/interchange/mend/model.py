"""What mending works on: the records of a file as nodes of a tree, and what was found wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct, field

Record = dict[str, Any]


class Finding(Struct, frozen=True, kw_only=True):
    """Something that was wrong, where it stands in the file, and what was done in the copy."""

    name: str
    line: int
    wrong: str
    done: str


class Mended(Struct, frozen=True, kw_only=True):
    """A session that was looked at. `out` is its copy; None if only a look was wanted."""

    path: Path
    out: Path | None
    agent: str
    records: int
    findings: list[Finding]


class Node(Struct, eq=False):
    """A record at its place. `id` and `parent` are None where it stands in no tree."""

    record: Record
    line: int
    id: str | None = None
    parent: str | None = None


class Session(Struct, kw_only=True):
    """The records of a file in their order."""

    path: Path
    without_thinking: bool = False
    nodes: list[Node] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def add(self, record: Record, line: int) -> None:
        self.nodes.append(Node(record, line))

    def note(self, name: str, line: int, wrong: str, done: str) -> None:
        self.findings.append(Finding(name=name, line=line, wrong=wrong, done=done))


class Tree:
    """The nodes of a session by their ids, as the agent walks them.

    `id_key` and `parent_key` are the fields that name a record and the one that it hangs on.
    """

    def __init__(self, session: Session, id_key: str, parent_key: str) -> None:
        self.session = session
        self._id_key = id_key
        self._parent_key = parent_key
        for node in session.nodes:
            id, parent = node.record.get(id_key), node.record.get(parent_key)
            if isinstance(id, str) and parent_key in node.record:
                node.id = id
                node.parent = parent if isinstance(parent, str) else None
        self._drop_repeated()
        self.by_id = {node.id: node for node in session.nodes if node.id is not None}
        self._link()
        self._cut_loops()

    def hang(self, node: Node, parent: str | None) -> None:
        """Let a record hang on another one."""
        node.parent = parent
        node.record = {**node.record, self._parent_key: parent}

    def children(self, node: Node) -> list[Node]:
        return [one for one in self.session.nodes if one.parent == node.id and one is not node]

    def up(self, node: Node) -> Iterator[Node]:
        """The nodes that a node hangs on, nearest first."""
        parent = node.parent
        while parent is not None:
            above = self.by_id[parent]
            yield above
            parent = above.parent

    def insert(self, after: Node, records: Iterable[Record]) -> None:
        """Add records behind a node, each of which hangs on the one before it."""
        place, last = self.session.nodes.index(after) + 1, after
        for record in records:
            id = str(record[self._id_key])
            node = Node({**record, self._parent_key: last.id}, after.line, id, last.id)
            self.by_id[id] = node
            self.session.nodes.insert(place, node)
            place, last = place + 1, node

    def remove(self, node: Node) -> None:
        """Take a node out; what hangs on it hangs on what it hung on."""
        for child in self.children(node):
            self.hang(child, node.parent)
        self.session.nodes.remove(node)
        if node.id is not None:
            del self.by_id[node.id]

    # --- what may be wrong with a tree ---

    def _drop_repeated(self) -> None:
        """An agent knows one record of a name, and that is the last one."""
        last = {node.id: node for node in self.session.nodes if node.id is not None}
        kept: dict[str | None, Node] = {}
        found: list[Node] = []
        for node in self.session.nodes:
            if node.id is None:
                found.append(node)
            elif node.id not in kept:
                # The last one counts, at the place where its name comes first: what hangs on it
                # stands behind it then.
                kept[node.id] = last[node.id]
                found.append(last[node.id])
            else:
                same = node.record == kept[node.id].record and node is not last[node.id]
                what = "stands there twice" if same else "has the id of another one"
                self.session.note(
                    "duplicate_id", node.line, f"the record {node.id} {what}", "the last one stays"
                )
        self.session.nodes[:] = found

    def _link(self) -> None:
        before: str | None = None
        for node in self.session.nodes:
            if node.parent is not None and node.parent not in self.by_id:
                wrong = f"the record {node.id} hangs on {node.parent}, which is not there"
                self.session.note("dangling_parent", node.line, wrong, _hung(before))
                self.hang(node, before)
            before = node.id or before

    def _cut_loops(self) -> None:
        places = {node.id: place for place, node in enumerate(self.session.nodes)}
        done: set[str | None] = {None}
        for node in self.session.nodes:
            way: dict[str | None, Node] = {}
            at: Node | None = node
            while at is not None and at.id not in done and at.id not in way:
                way[at.id] = at
                at = None if at.parent is None else self.by_id[at.parent]
            if at is not None and at.id in way:
                ids = list(way)
                loop = [way[id] for id in ids[ids.index(at.id) :]]
                first = min(loop, key=lambda one: places[one.id])
                before = self._before(places[first.id], {one.id for one in loop})
                wrong = f"the record {first.id} hangs on itself, through {len(loop)}"
                self.session.note("loop", first.line, wrong, _hung(before))
                self.hang(first, before)
            done.update(way)

    def _before(self, place: int, loop: set[str | None]) -> str | None:
        """The nearest record before a place that does not hang on a loop itself."""
        for node in reversed(self.session.nodes[:place]):
            if node.id is not None and not self._reaches(node, loop):
                return node.id
        return None

    def _reaches(self, node: Node, loop: set[str | None]) -> bool:
        passed: set[str | None] = set()
        at: Node | None = node
        while at is not None and at.id not in passed and at.id not in loop:
            passed.add(at.id)
            at = None if at.parent is None else self.by_id[at.parent]
        return at is not None  # in this loop, or in another one


def _hung(parent: str | None) -> str:
    return "it begins the session" if parent is None else f"it hangs on {parent} now"
