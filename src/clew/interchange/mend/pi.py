"""Sessions of pi whose tree is broken, or that the provider refuses.

pi itself answers calls that are open when it sends them. But it passes over replies that ended with
an error, and not over the results of their calls; then the provider refuses the session for ever.
"""

from __future__ import annotations

from typing import Any

from clew.interchange.handover import uuid_of
from clew.interchange.mend import content
from clew.interchange.mend.model import Node, Record, Session, Tree
from clew.interchange.mend.pairs import INTERRUPTED, mend_pairs

_PASSED_OVER = ("error", "aborted")


def mend(session: Session) -> None:
    _mend_header(session)
    tree = Tree(session, "id", "parentId")
    _Content(tree).mend()
    mend_pairs(tree, _Format())


def _mend_header(session: Session) -> None:
    """The first line is the header, and there is one."""
    headers = [node for node in session.nodes if node.record.get("type") == "session"]
    first, *others = headers
    for node in others:
        session.note("header", node.line, "there is one more header", "left out")
        session.nodes.remove(node)
    if session.nodes[0] is not first:
        session.note("header", first.line, "the header is not the first record", "moved there")
        session.nodes.remove(first)
        session.nodes.insert(0, first)


def _message(record: Record) -> Record:
    message = record.get("message")
    return message if record.get("type") == "message" and isinstance(message, dict) else {}


def _with(record: Record, **fields: Any) -> Record:
    return {**record, "message": {**_message(record), **fields}}


class _Format:
    def calls(self, record: Record) -> dict[str, str]:
        message = _message(record)
        said = message.get("content")
        if message.get("role") != "assistant" or not isinstance(said, list):
            return {}
        if message.get("stopReason") in _PASSED_OVER:
            return {}
        return {
            block["id"]: str(block.get("name"))
            for block in said
            if isinstance(block, dict)
            and block.get("type") == "toolCall"
            and isinstance(block.get("id"), str)
        }

    def results(self, record: Record) -> list[str]:
        message = _message(record)
        call = message.get("toolCallId")
        return [call] if message.get("role") == "toolResult" and isinstance(call, str) else []

    def is_prompt(self, record: Record) -> bool:
        return _message(record).get("role") == "user"

    def answer(self, record: Record, call: str, tool: str) -> Record:
        message = {
            "role": "toolResult",
            "toolCallId": call,
            "toolName": tool,
            "content": [{"type": "text", "text": INTERRUPTED}],
            "isError": True,
            "timestamp": _message(record).get("timestamp"),
        }
        return {
            "type": "message",
            "id": uuid_of(f"mended\n{record['id']}\n{call}").hex[:8],
            "parentId": None,
            "timestamp": record.get("timestamp"),
            "message": message,
        }

    def told(self, record: Record, call: str) -> Record:
        message = _message(record)
        head = {"type": "text", "text": f"[result of call {call}, which is not in this session]"}
        said = message.get("content")
        blocks = said if isinstance(said, list) else [{"type": "text", "text": str(said or "")}]
        told = {"role": "user", "content": [head, *blocks], "timestamp": message.get("timestamp")}
        return {**record, "message": told}


class _Content:
    """Blocks that providers refuse."""

    def __init__(self, tree: Tree) -> None:
        self._session = tree.session
        images = sum(str(node.record).count("'mimeType'") for node in tree.session.nodes)
        many = images > content.MANY_IMAGES
        self._side_max = content.SIDE_MAX_OF_MANY if many else content.SIDE_MAX

    def mend(self) -> None:
        for node in self._session.nodes:
            said = _message(node.record).get("content")
            if not isinstance(said, list):
                continue
            blocks = [new for block in said for new in self._block(node, block)]
            if blocks != said:
                empty = [{"type": "text", "text": content.EMPTY}] if said else []
                node.record = _with(node.record, content=blocks or empty)

    def _block(self, node: Node, block: Any) -> list[Any]:
        if content.is_blank(block):
            self._session.note("empty_text", node.line, "a block of text is empty", "left out")
            return []
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "thinking" and self._session.without_thinking:
            self._session.note("thinking", node.line, "thinking that is refused", "left out")
            return []
        fault = content.image_fault(block.get("data"), self._side_max) if kind == "image" else None
        if fault is None:
            return [block]
        self._session.note("image", node.line, fault, "a text says that it was left out")
        return [{"type": "text", "text": f"[left out: {fault}]"}]
