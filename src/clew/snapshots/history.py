"""Looking at what snapshots hold, and at what became of one file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from clew import messages
from clew.core.codec import render
from clew.core.errors import InvalidInput, NotFound
from clew.core.model import Entry
from clew.messages.neutral import calls_of
from clew.snapshots import catalogue
from clew.snapshots.diff import diff_trees
from clew.snapshots.manifest import Node, name_problem
from clew.snapshots.model import Difference, Snapshot, Version
from clew.snapshots.survey import Survey
from clew.snapshots.tree import Trees, WorkingTrees

if TYPE_CHECKING:
    from clew.thread import Thread

# What stands between messages and tells nothing about who changed a file.
_NOTES = frozenset(["snapshot", "turn_marker", "usage", "label", "thread_info", "custom", "event"])


def check_path(path: object) -> str:
    """A path inside of a tree: relative, with plain names. Slashes at the end do not count."""
    if not isinstance(path, str):
        raise InvalidInput("path", f"must be text, not {path!r}")
    plain = path.rstrip("/") if path != "/" else path
    for name in plain.split("/"):
        problem = name_problem(name)
        if problem is not None:
            raise InvalidInput("path", f"{path!r} is no path inside of a tree: {problem}")
    return plain


def files(trees: Trees, tree: str) -> list[tuple[str, Node]]:
    """Every file and link of a tree with its path, in order."""
    return [(path, node) for path, node in trees.walk(tree) if not node.is_folder]


def read(trees: Trees, snapshot: Snapshot, path: str) -> bytes:
    path = check_path(path)
    node = trees.find(snapshot.tree, path)
    if node is None:
        raise NotFound("file", path)
    if not node.is_file:
        what = "a folder" if node.is_folder else f"a link to {node.ref!r}"
        raise InvalidInput("path", f"{path!r} is {what}, and not a file")
    return trees.read(node)


def diff_working(trees: WorkingTrees, tree: str, survey: Survey) -> list[Difference]:
    """What has changed in a working tree since a tree was stored."""
    return diff_trees(trees, tree, survey.tree, trees.told)


def history(thread: Thread, path: str, root: str | None) -> list[Version]:
    path = check_path(path)
    newest_first = thread.snapshots.list()
    if root is None and newest_first:
        root = newest_first[0].root
    return list(_History(thread, path, [s for s in reversed(newest_first) if s.root == root]))


class _History:
    def __init__(self, thread: Thread, path: str, snapshots: list[Snapshot]) -> None:
        self._thread = thread
        self._trees = thread.snapshots.trees
        self._path = path
        self._snapshots = snapshots
        self._nodes: list[Node | None] = []

    def __iter__(self) -> Iterator[Version]:
        last: Node | None = None
        for n, snapshot in enumerate(self._snapshots):
            node = self._trees.find(snapshot.tree, self._path)
            self._nodes.append(node)
            if content(node) != content(last):
                entry, message = self._producer(n, snapshot, node)
                yield version_of(snapshot, node, entry, message)
            last = node

    def _producer(
        self, n: int, snapshot: Snapshot, node: Node | None
    ) -> tuple[str | None, str | None]:
        """The entry that made the change, and the user message that it worked for.

        The change lies between this snapshot and the last one before it on the same path. Was
        it the same there already, then a rewind brought it back, and no entry made it anew.
        """
        # On the same path: what was said on another branch did not lead to this snapshot.
        before = self._ancestor(n, snapshot)
        if before is None or content(self._nodes[before]) == content(node):
            return None, None
        return made_between(self._thread, self._path, self._snapshots[before], snapshot)

    def _ancestor(self, n: int, snapshot: Snapshot) -> int | None:
        """The newest snapshot before this one that lies on its path."""
        engine, id = self._thread.store.engine, self._thread.id
        for before in range(n - 1, -1, -1):
            if catalogue.is_on_path(engine, id, snapshot.id, self._snapshots[before].id):
                return before
        return None


def content(node: Node | None) -> tuple[str, str] | None:
    return None if node is None else (node.kind, node.ref)


def version_of(
    snapshot: Snapshot, node: Node | None, entry: str | None, message: str | None
) -> Version:
    return Version(
        snapshot=snapshot.id,
        entry=entry,
        message=message,
        time_us=snapshot.time_us,
        kind="none" if node is None else node.kind,
        ref=None if node is None else node.ref,
        size=0 if node is None else node.size,
    )


def made_between(
    thread: Thread, path: str, before: Snapshot, snapshot: Snapshot
) -> tuple[str | None, str | None]:
    """Which entry changed a file between two snapshots of one path, and for which message."""
    between = thread.path(snapshot.id, after=before.id)
    made = producer(between, path)
    if made is None:
        return None, None
    for entry in reversed(between[: between.index(made) + 1]):
        if entry.kind == "user_message":
            return made.id, entry.id
    return made.id, before.at


def producer(between: list[Entry], path: str) -> Entry | None:
    """Which of the entries between two snapshots changed a file, as far as one can tell.

    The last call of a tool that names the path; else the last that names the file; else the last
    call of any tool, for a shell command need not name what it changes; else the last answer;
    else the last message: then the user changed it by hand, and came back to say more.
    """
    told = [entry for entry in between if entry.kind not in _NOTES]
    name = path.rpartition("/")[2]
    calls = [(entry, text) for entry in told if (text := _calls(entry)) is not None]
    for wanted in (path, name, ""):
        found = [entry for entry, text in calls if wanted in text]
        if found:
            return found[-1]
    answers = [entry for entry in told if entry.kind != "user_message"]
    return next(reversed(answers or told), None)


def _calls(entry: Entry) -> str | None:
    """What an entry asks of tools, as text; None if it asks for nothing."""
    if entry.kind not in ("assistant_message", "tool_call"):
        return None
    calls = [
        call for message in messages.view(entry.format, entry.body) for call in calls_of(message)
    ]
    if calls:
        return "\n".join(call.unparsed or render(call.arguments) for call in calls)
    return render(entry.body) if entry.kind == "tool_call" else None
