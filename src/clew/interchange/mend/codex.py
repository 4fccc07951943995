"""Rollouts of Codex that it cannot open, or that the Responses API refuses."""

from __future__ import annotations

import re
from typing import Any

from clew.interchange.mend import content
from clew.interchange.mend.model import Node, Record, Session
from clew.interchange.mend.pairs import INTERRUPTED, linear, mend_pairs
from clew.messages.codex import item_of

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
}


def mend(session: Session) -> None:
    _mend_header(session)
    _drop_repeated(session)
    _Content(session).mend()
    tree = linear(session)
    mend_pairs(tree, _Format())
    for node in session.nodes:
        node.record = {key: one for key, one in node.record.items() if not key.startswith("#")}


def _mend_header(session: Session) -> None:
    """Codex opens a rollout by its first record, which says what thread it is of."""
    wrapped = [node for node in session.nodes if "payload" in node.record]
    if not wrapped or any(node.record.get("type") == "session_meta" for node in session.nodes[:1]):
        return
    first = next((n for n in session.nodes if n.record.get("type") == "session_meta"), None)
    if first is not None:
        session.note("header", first.line, "the header is not the first record", "moved there")
        session.nodes.remove(first)
        session.nodes.insert(0, first)
        return
    named = _ID.search(session.path.name)
    if named is None:
        wrong = "the header is missing, and the name of the file tells no thread"
        session.note("header", 1, wrong, "nothing: give the file its name again")
        return
    time = wrapped[0].record.get("timestamp")
    cwds = [_payload(node.record).get("cwd") for node in wrapped]
    meta = {
        "id": named.group(),
        "timestamp": time,
        "cwd": next((cwd for cwd in cwds if isinstance(cwd, str)), "/"),
        "originator": "clew",
        "cli_version": "0.0.0",
        "source": "cli",
        "model_provider": "openai",
    }
    session.note("header", 1, "the header is missing", "made anew from the name of the file")
    session.nodes.insert(0, Node({"timestamp": time, "type": "session_meta", "payload": meta}, 1))


def _payload(record: Record) -> Record:
    payload = record.get("payload")
    return payload if isinstance(payload, dict) else {}


def _with_item(record: Record, item: Record) -> Record:
    return {**record, "payload": item} if "payload" in record else {**record, **item}


class _Format:
    def calls(self, record: Record) -> dict[str, str]:
        item = item_of(record) or {}
        call = item.get("call_id")
        if item.get("type") not in _OUTPUTS or not isinstance(call, str):
            return {}
        return {call: str(item.get("name") or item["type"])}

    def results(self, record: Record) -> list[str]:
        item = item_of(record) or {}
        call = item.get("call_id")
        is_output = item.get("type") in _OUTPUTS.values()
        return [call] if is_output and isinstance(call, str) else []

    def is_prompt(self, record: Record) -> bool:
        # A turn may say something while a call is under way; a compaction ends all of it.
        return record.get("type") == "compacted"

    def answer(self, record: Record, call: str, tool: str) -> Record:
        item = item_of(record) or {}
        output = {"type": _OUTPUTS[item["type"]], "call_id": call, "output": INTERRUPTED}
        if "payload" not in record:
            return {"#id": f"{record['#id']}+", **output}
        time = record.get("timestamp")
        wrapper = {"timestamp": time, "type": "response_item", "payload": output}
        return {"#id": f"{record['#id']}+", **wrapper}

    def told(self, record: Record, call: str) -> Record:
        item = item_of(record) or {}
        said = item.get("output")
        text = f"[result of call {call}, which is not in this session]\n{said}"
        blocks = [{"type": "input_text", "text": text}]
        message = {"type": "message", "role": "user", "content": blocks}
        if "payload" in record:
            return {**record, "payload": message}
        return {"#id": record["#id"], "#parent": record["#parent"], **message}


def _drop_repeated(session: Session) -> None:
    """Two items with one id are refused; the second one is the same again."""
    seen: set[str] = set()
    for node in list(session.nodes):
        if node.record.get("type") == "compacted":
            seen = set()
        item = item_of(node.record) or {}
        id = item.get("id")
        if not isinstance(id, str) or not id:
            continue
        if id in seen:
            session.note("duplicate_id", node.line, f"the item {id} is there already", "left out")
            session.nodes.remove(node)
        seen.add(id)


class _Content:
    def __init__(self, session: Session) -> None:
        self._session = session

    def mend(self) -> None:
        for node in list(self._session.nodes):
            item = item_of(node.record)
            if item is None:
                continue
            if item.get("type") == "reasoning" and self._session.without_thinking:
                self._session.note("thinking", node.line, "thinking that is refused", "left out")
                self._session.nodes.remove(node)
                continue
            for key in ("content", "output"):
                said = item.get(key)
                blocks = [self._block(node, b) for b in said] if isinstance(said, list) else said
                if blocks != said:
                    item = {**item, key: blocks}
                    node.record = _with_item(node.record, item)

    def _block(self, node: Node, block: Any) -> Any:
        url = block.get("image_url") if isinstance(block, dict) else None
        found = content.split_data_url(url) if isinstance(url, str) else None
        if found is None:
            return block
        # The API takes up to 50 MB and any number of pixels; what it cannot read, it refuses.
        fault = content.image_fault(found[1], 1 << 30)
        if fault is None:
            return block
        self._session.note("image", node.line, fault, "a text says that it was left out")
        return {"type": "input_text", "text": f"[left out: {fault}]"}
