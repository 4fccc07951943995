"""Calls and their results: what a provider refuses if one of them is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from clew.interchange.mend.model import Node, Record, Session, Tree

INTERRUPTED = "The call was interrupted: what it gave is not known."


class Format(Protocol):
    """How an agent writes calls and results."""

    def calls(self, record: Record) -> dict[str, str]:
        """The ids of the calls that a record makes, and the tools."""
        ...

    def results(self, record: Record) -> list[str]:
        """The ids of the calls that a record has results of."""
        ...

    def is_prompt(self, record: Record) -> bool:
        """Whether something else is said, so that no result can follow a call any more."""
        ...

    def answer(self, record: Record, call: str, tool: str) -> Record:
        """A result that says that the call was interrupted, for a record that makes the call."""
        ...

    def told(self, record: Record, call: str) -> Record:
        """The record, with the last of its results of a call told as text."""
        ...


def mend_pairs(tree: Tree, format: Format) -> None:
    """Let every call have one result, right behind it, and every result a call."""
    answered: set[tuple[str | None, str]] = set()
    placed = [node for node in tree.session.nodes if node.id is not None]
    for node in placed:
        for call in format.results(node.record):
            maker, wrong = _maker(tree, format, node, call)
            if maker is not None and (maker.id, call) not in answered:
                answered.add((maker.id, call))
                continue
            name = "orphan_result" if maker is None else "duplicate_result"
            wrong = wrong or f"call {call} has a result already"
            tree.session.note(name, node.line, wrong, "it is told as text now")
            node.record = format.told(node.record, call)
    for node in placed:
        open_calls = {
            call: tool
            for call, tool in format.calls(node.record).items()
            if (node.id, call) not in answered
        }
        if open_calls:
            _answer(tree, format, node, open_calls)


def _maker(tree: Tree, format: Format, node: Node, call: str) -> tuple[Node | None, str | None]:
    for above in tree.up(node):
        if call in format.calls(above.record):
            return above, None
        if format.is_prompt(above.record):
            return None, f"the result of call {call} came after something else was said"
    return None, f"there is no call {call}, but a result of it"


def _answer(tree: Tree, format: Format, node: Node, calls: dict[str, str]) -> None:
    """Put results behind a record, and what hung on it behind them."""
    made = [format.answer(node.record, call, tool) for call, tool in calls.items()]
    own = format.calls(node.record).keys()
    moved = [
        child
        for child in tree.children(node)
        if not (own & set(format.results(child.record)))
        and not (format.calls(child.record) and _is_same_reply(node, child))
    ]
    tree.insert(node, made)
    last = tree.session.nodes[tree.session.nodes.index(node) + len(made)]
    for child in moved:
        tree.hang(child, last.id)
    for call, tool in calls.items():
        wrong = f"call {call} of {tool} has no result"
        tree.session.note("open_call", node.line, wrong, "a result says that it was interrupted")


def _is_same_reply(node: Node, child: Node) -> bool:
    one, other = node.record.get("message"), child.record.get("message")
    if not isinstance(one, dict) or not isinstance(other, dict):
        return False
    return one.get("id") is not None and one.get("id") == other.get("id")


def rename_repeated(tree: Tree, format: Format) -> Iterator[tuple[Node, str]]:
    """The calls whose id another call on the way to them has already."""
    makers: dict[str, list[Node]] = {}
    for node in tree.session.nodes:
        for call in format.calls(node.record):
            known = makers.setdefault(call, [])
            if known and any(above in known for above in tree.up(node)):
                yield node, call
            known.append(node)


def linear(session: Session) -> Tree:
    """A file without ids as a tree: every record hangs on the one before it."""
    for number, node in enumerate(session.nodes):
        before = str(number - 1) if number else None
        node.record = {"#id": str(number), "#parent": before, **node.record}
    return Tree(session, "#id", "#parent")
