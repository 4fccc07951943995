"""Transcripts of Claude Code that the API refuses, or that Claude Code cannot walk.

Where the transcript ends with an error of the API about images or thinking, these go, even if no
fault of theirs can be seen: nothing else has helped.
"""

from __future__ import annotations

from typing import Any

from clew.interchange.handover import uuid_of
from clew.interchange.mend import content
from clew.interchange.mend.model import Node, Record, Session, Tree
from clew.interchange.mend.pairs import INTERRUPTED, mend_pairs, rename_repeated

_THINKING = ("thinking", "redacted_thinking")


def mend(session: Session) -> None:
    tree = Tree(session, "uuid", "parentUuid")
    refused = _refusal(session)
    _Content(tree, refused).mend()
    for node, call in list(rename_repeated(tree, _Format())):
        _rename(tree, node, call)
    mend_pairs(tree, _Format())


def _message(record: Record) -> Record:
    message = record.get("message")
    is_said = record.get("type") in ("user", "assistant") and isinstance(message, dict)
    return message if is_said and isinstance(message, dict) else {}


def _blocks(record: Record) -> list[Record]:
    found = _message(record).get("content")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _with_blocks(record: Record, blocks: list[Any]) -> Record:
    return {**record, "message": {**_message(record), "content": blocks}}


def _refusal(session: Session) -> str:
    """What the API said last, if nothing was answered since."""
    for node in reversed(session.nodes):
        if node.record.get("type") == "assistant":
            if node.record.get("isApiErrorMessage") is not True:
                return ""
            texts = [block.get("text") for block in _blocks(node.record)]
            return " ".join([text for text in texts if isinstance(text, str)])
    return ""


class _Format:
    def calls(self, record: Record) -> dict[str, str]:
        return {
            block["id"]: str(block.get("name"))
            for block in _blocks(record)
            if block.get("type") == "tool_use" and isinstance(block.get("id"), str)
        }

    def results(self, record: Record) -> list[str]:
        return [
            block["tool_use_id"]
            for block in _blocks(record)
            if block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str)
        ]

    def is_prompt(self, record: Record) -> bool:
        return record.get("type") == "user" and bool(_message(record)) and not self.results(record)

    def answer(self, record: Record, call: str, tool: str) -> Record:
        block = {"tool_use_id": call, "type": "tool_result", "content": INTERRUPTED}
        kept = ("isSidechain", "userType", "cwd", "sessionId", "version", "gitBranch", "agentId")
        return {
            "parentUuid": None,
            **{key: record[key] for key in kept if key in record},
            "type": "user",
            "message": {"role": "user", "content": [{**block, "is_error": True}]},
            "uuid": str(uuid_of(f"mended\n{record['uuid']}\n{call}")),
            "timestamp": record.get("timestamp"),
            "toolUseResult": f"Error: {INTERRUPTED}",
            "sourceToolAssistantUUID": record["uuid"],
        }

    def told(self, record: Record, call: str) -> Record:
        blocks = list(_message(record)["content"])
        place = max(n for n, b in enumerate(blocks) if _is_result(b, call))
        blocks[place : place + 1] = _as_text(blocks[place], call)
        return _with_blocks(record, blocks)


def _is_result(block: Any, call: str) -> bool:
    return isinstance(block, dict) and block.get("tool_use_id") == call


def _as_text(block: Record, call: str) -> list[Record]:
    said = block.get("content")
    head = {"type": "text", "text": f"[result of call {call}, which is not in this session]"}
    if isinstance(said, str):
        return [head, {"type": "text", "text": said}] if said.strip() else [head]
    inner = said if isinstance(said, list) else []
    return [head, *[one for one in inner if isinstance(one, dict) and not content.is_blank(one)]]


def _rename(tree: Tree, node: Node, call: str) -> None:
    """Give a call another id, and the results that follow it."""
    new = f"{call}_{node.line}"
    tree.session.note("duplicate_call", node.line, f"two calls have the id {call}", f"now {new}")
    concerned = [one for one in tree.session.nodes if one is node or node in tree.up(one)]
    for one in concerned:
        if one is not node and call not in _Format().results(one.record):
            continue
        blocks = []
        for block in _message(one.record)["content"]:
            if isinstance(block, dict) and block.get("id") == call and one is node:
                block = {**block, "id": new}
            elif one is not node and _is_result(block, call):
                block = {**block, "tool_use_id": new}
            blocks.append(block)
        one.record = _with_blocks(one.record, blocks)


class _Content:
    """Blocks that the API refuses."""

    def __init__(self, tree: Tree, refused: str) -> None:
        self._tree = tree
        self._session = tree.session
        self._no_images = "image" in refused.lower()
        self._no_thinking = tree.session.without_thinking or "thinking" in refused
        images = sum(self._count(block) for n in tree.session.nodes for block in _blocks(n.record))
        many = images > content.MANY_IMAGES
        self._side_max = content.SIDE_MAX_OF_MANY if many else content.SIDE_MAX

    def _count(self, block: Record) -> int:
        inner = block.get("content")
        within = inner if isinstance(inner, list) else []
        images = [one for one in (block, *within) if isinstance(one, dict)]
        return len([one for one in images if one.get("type") == "image"])

    def mend(self) -> None:
        for node in list(self._session.nodes):
            message = _message(node.record)
            said = message.get("content")
            if isinstance(said, str) and not said.strip():
                self._note(node, "empty_text", "a message is empty", f"it says {content.EMPTY}")
                node.record = {**node.record, "message": {**message, "content": content.EMPTY}}
            elif isinstance(said, list):
                self._mend_blocks(node, said)
        if self._no_thinking:
            return
        self._cut_thinking()

    def _mend_blocks(self, node: Node, said: list[Any]) -> None:
        blocks = [new for block in said for new in self._block(node, block)]
        if blocks == said:
            return
        if blocks:
            node.record = _with_blocks(node.record, blocks)
        elif node.record["type"] == "assistant":
            self._tree.remove(node)  # the other blocks of the reply have records of their own
        else:
            node.record = _with_blocks(node.record, [{"type": "text", "text": content.EMPTY}])

    def _block(self, node: Node, block: Any) -> list[Any]:
        if content.is_blank(block):
            self._note(node, "empty_text", "a block of text is empty", "left out")
            return []
        kind = block.get("type") if isinstance(block, dict) else None
        if kind in _THINKING:
            return self._thinking(node, block)
        if kind == "image":
            return [self._image(node, block)]
        if kind == "tool_result" and isinstance(block.get("content"), list):
            inner = [new for one in block["content"] for new in self._block(node, one)]
            if inner != block["content"]:
                return [{**block, "content": inner or content.EMPTY}]
        return [block]

    def _thinking(self, node: Node, block: Record) -> list[Record]:
        signed = block.get("signature") if block["type"] == "thinking" else block.get("data")
        if isinstance(signed, str) and signed and not self._no_thinking:
            return [block]
        wrong = "thinking that is refused" if self._no_thinking else "thinking without a signature"
        self._note(node, "thinking", wrong, "left out")
        return []

    def _image(self, node: Node, block: Record) -> Record:
        source = block.get("source")
        if not isinstance(source, dict) or source.get("type") != "base64":
            return block
        data = source.get("data")
        fault = content.image_fault(data, self._side_max)
        if fault is None and self._no_images:
            fault = "an image, in a session that is refused for its images"
        if fault is not None:
            self._note(node, "image", fault, "a text says that it was left out")
            return {"type": "text", "text": f"[left out: {fault}]"}
        mime = content.mime_of(str(data))
        if mime == source.get("media_type"):
            return block
        wrong = f"an image is said to be {source.get('media_type')}, and is {mime}"
        self._note(node, "image_type", wrong, "put right")
        return {**block, "source": {**source, "media_type": mime}}

    def _cut_thinking(self) -> None:
        """A reply that was broken off after it had thought says nothing, and is refused."""
        replies: dict[Any, list[Node]] = {}
        for node in self._session.nodes:
            if node.record.get("type") == "assistant" and _blocks(node.record):
                replies.setdefault(_message(node.record).get("id") or id(node), []).append(node)
        for nodes in replies.values():
            kinds = {block.get("type") for node in nodes for block in _blocks(node.record)}
            if kinds <= set(_THINKING):
                for node in nodes:
                    self._note(node, "thinking", "thinking that led to nothing", "left out")
                    self._tree.remove(node)

    def _note(self, node: Node, name: str, wrong: str, done: str) -> None:
        self._session.note(name, node.line, wrong, done)
