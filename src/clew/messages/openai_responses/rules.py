"""The rules of OpenAI's Responses API about `input`, as a list of items."""

from __future__ import annotations

import re
from typing import Any

from clew.messages.neutral import Violation
from clew.messages.shared.rules import Judge, Pairs

Block = dict[str, Any]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
ID_LENGTH_MAX = 64
ITEM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
INPUT = ("input_text", "input_image", "input_file")
CONTENT = {
    "user": INPUT,
    "system": INPUT,
    "developer": INPUT,
    "assistant": ("output_text", "refusal"),
}
BLOCKS = frozenset({*INPUT, "output_text", "refusal"})
CALLS = {
    "function_call": "function",
    "custom_tool_call": "custom",
    "local_shell_call": "function",  # answered by either kind of result
    "shell_call": "shell",
    "computer_call": "computer",
    "apply_patch_call": "apply_patch",
}
RESULTS = {f"{kind}_output": wanted for kind, wanted in CALLS.items()}


def validate(messages: list[Any]) -> list[Violation]:
    """Every rule that the items of a request break."""
    return _Judge(messages).judge(messages)


class _Judge(Judge):
    def judge(self, messages: list[Any]) -> list[Violation]:
        self._pairs = Pairs(self)
        thinking: int | None = None  # where reasoning stands that nothing follows yet
        for item in self.each(messages):
            bare = item.get("type") is None and "role" in item  # a message without its type
            kind = "message" if bare else self.text(item, "type") or ""
            self._item(kind, item)
            if thinking is not None and not _is_made(kind, item):
                self._leads_to_nothing(thinking)
            thinking = self.index if kind == "reasoning" else None
        if thinking is not None:
            self._leads_to_nothing(thinking)
        self._pairs.close()
        return self.found

    def _leads_to_nothing(self, index: int) -> None:
        text = "reasoning is not followed by an item of the same response"
        self.found.append(Violation("reasoning_last", text, index))

    def _item(self, kind: str, item: Block) -> None:
        id, prefix = item.get("id"), PREFIXES.get(kind)
        if id is not None and prefix and self.matches(id, ITEM_ID, "item_id", "id"):
            fits = id.startswith(prefix)
            self.holds(fits, "item_id", f"the id {id!r} of a {kind} does not begin with {prefix}")
        if kind == "message":
            self._message(item)
        elif kind == "reasoning":
            self._reasoning(item)
        elif kind in CALLS:
            self._call(kind, item)
        elif kind in RESULTS:
            self._result(kind, item)

    def _message(self, item: Block) -> None:
        role = item.get("role")
        if not self.known(role, CONTENT, "role", "role"):
            return
        content = item.get("content")
        if isinstance(content, str):
            return
        for block in self.objects(content, "content"):
            kind = self.text(block, "type") or ""
            fits = kind not in BLOCKS or kind in CONTENT[str(role)]  # a later type is no fault
            if self.holds(fits, "block_place", f"a {kind} block stands in a {role} message"):
                self._block(kind, block)

    def _block(self, kind: str, block: Block) -> None:
        match kind:
            case "input_text" | "output_text":
                self.text(block, "text")
            case "refusal":
                self.text(block, "refusal")
            case "input_image":
                url = block.get("image_url")
                given = isinstance(url, str) or isinstance(block.get("file_id"), str)
                self.holds(given, "shape", "an image has neither image_url nor file_id")
                if isinstance(url, str) and url.startswith("data:"):
                    known = re.match(r"data:image/(jpeg|png|gif|webp);base64,", url) is not None
                    self.holds(known, "media_type", "an image is not JPEG, PNG, GIF or WebP")
            case "input_file":
                given = any(block.get(key) for key in ("file_data", "file_id", "file_url"))
                self.holds(given, "shape", "a file has no data, id or address")

    def _reasoning(self, item: Block) -> None:
        self.holds(isinstance(item.get("summary"), list), "shape", "summary is not a list")
        fits = "content" not in item or isinstance(item["content"], list)
        self.holds(fits, "shape", "the content of reasoning is not a list")
        given = bool(item.get("id") or item.get("encrypted_content"))
        self.holds(given, "reasoning_unknown", "reasoning has neither an id nor its content")

    def _call(self, kind: str, item: Block) -> None:
        id = item.get("call_id")
        fits = isinstance(id, str) and 0 < len(id) <= ID_LENGTH_MAX
        self.holds(fits, "call_id", f"call_id {id!r} has not 1 to {ID_LENGTH_MAX} characters")
        self._pairs.call(id, CALLS[kind])
        if kind in ("function_call", "custom_tool_call"):
            self.matches(item.get("name"), NAME, "tool_name", "name")
            key = "arguments" if kind == "function_call" else "input"
            given = isinstance(item.get(key), str)
            self.holds(given, "arguments", f"the {key} of a call are not a string")

    def _result(self, kind: str, item: Block) -> None:
        id = item.get("call_id", item.get("id"))
        self._pairs.result(id, RESULTS[kind])
        output = item.get("output")
        if kind == "computer_call_output":
            self.object(output, "output")
        elif kind in ("function_call_output", "custom_tool_call_output"):
            if isinstance(output, str):
                return
            for block in self.objects(output, "output"):
                inner = self.text(block, "type") or ""
                fits = inner not in BLOCKS or inner in INPUT
                if self.holds(fits, "block_place", f"a {inner} block stands in a result"):
                    self._block(inner, block)


def _is_made(kind: str, item: Block) -> bool:
    """Whether an item is of the kinds that the model makes."""
    if kind == "message":
        return item.get("role") == "assistant"
    return kind not in RESULTS and kind not in ("mcp_approval_response", "additional_tools")
