"""The rules of Anthropic's Messages API about `messages`."""

from __future__ import annotations

import re
from typing import Any

from clew.messages.neutral import Violation
from clew.messages.shared.rules import Judge, Pairs

Block = dict[str, Any]

ID = re.compile(r"[a-zA-Z0-9_-]+")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
CACHE_MARKS_MAX = 4
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
THINKING = ("thinking", "redacted_thinking")
# Types that are not named here, such as results of the server's tools, or types that came later,
# are no fault anywhere.
USER_ONLY = frozenset({"image", "document", "search_result", "tool_result"})
SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
ASSISTANT_ONLY = frozenset({"tool_use", *SERVER_CALLS, *THINKING})
NOT_IN_RESULTS = ASSISTANT_ONLY | {"tool_result"}


def validate(messages: list[Any]) -> list[Violation]:
    """Every rule that the messages of a request break."""
    return _Judge(messages).judge(messages)


class _Judge(Judge):
    def judge(self, messages: list[Any]) -> list[Violation]:
        self._pairs = Pairs(self)
        self._marks = 0
        message: Block = {}
        role: Any = None
        for message in self.each(messages):
            before, role = role, message.get("role")
            self._role(before, role)
            self._content(role, message)
        self._pairs.close()
        # A call without its result is reported as that; what follows from it is no second fault.
        open_call = any(found.rule == "unanswered_call" for found in self.found)
        if role == "assistant" and not open_call and not self._is_paused(message.get("content")):
            text = "the last message is the assistant's"
            self.found.append(Violation("last_user", text, len(messages) - 1))
        return self.found

    def _role(self, before: Any, role: Any) -> None:
        if not self.known(role, ("user", "assistant", "system"), "role", "role"):
            return
        if self.index == 0:
            self.holds(role == "user", "first_user", "the first message is not the user's")
        else:
            self.holds(role != before, "alternation", f"two {role} messages in a row")
        if role != "user":
            self._pairs.close()

    def _content(self, role: Any, message: Block) -> None:
        content = message.get("content")
        if isinstance(content, str):
            self.holds(bool(content.strip()), "empty_text", "content is blank")
            if role == "user":
                self._pairs.close()
            return
        blocks = self.objects(content, "content")
        results_over = False
        for block in blocks:
            if block.get("type") != "tool_result":
                results_over = True
            else:
                self.holds(not results_over, "results_first", "a result follows other content")
            self._place(role, block)
            self._block(block)
        if role == "user":
            self._pairs.close()
        if role == "assistant" and blocks:
            last = str(blocks[-1].get("type"))
            self.holds(last not in THINKING, "thinking_last", "a message ends with thinking")

    def _place(self, role: Any, block: Block) -> None:
        kind = str(block.get("type"))  # it may be anything, also what no set can be asked for
        if role == "user":
            fits = kind not in ASSISTANT_ONLY
        elif role == "assistant":
            fits = kind not in USER_ONLY
        else:
            fits = kind == "text"
        self.holds(fits, "block_place", f"a {kind} block stands in a message of role {role}")

    def _block(self, block: Block) -> None:
        if block.get("cache_control"):
            self._marks += 1
            if self._marks == CACHE_MARKS_MAX + 1:
                self.broken("cache_marks", f"more than {CACHE_MARKS_MAX} blocks are marked")
        match self.text(block, "type"):
            case "text":
                text = self.text(block, "text")
                blank = text is not None and not text.strip()
                self.holds(not blank, "empty_text", "a text block is blank")
            case "tool_use":
                self._call(block)
            case "tool_result":
                self._result(block)
            case "thinking":
                self.text(block, "thinking")
                signed = bool(block.get("signature"))
                self.holds(signed, "thinking_signature", "thinking has no signature")
            case "redacted_thinking":
                self.holds(bool(block.get("data")), "thinking_signature", "thinking has no data")
            case "image" | "document" as kind:
                self._source(kind, self.object(block.get("source"), "source"))

    def _call(self, block: Block) -> None:
        id = block.get("id")
        self.matches(id, ID, "call_id", "id")
        self.matches(block.get("name"), NAME, "tool_name", "name")
        self.holds(isinstance(block.get("input"), dict), "arguments", "input is not an object")
        self._pairs.call(id)

    def _result(self, block: Block) -> None:
        self._pairs.result(block.get("tool_use_id"))
        content = block.get("content")
        silent = not content or (isinstance(content, str) and not content.strip())
        failed = block.get("is_error") is True
        self.holds(not (failed and silent), "error_content", "an error without content")
        if content and not isinstance(content, str):
            for inner in self.objects(content, "content of a result"):
                kind = inner.get("type")
                fits = kind not in NOT_IN_RESULTS
                if self.holds(fits, "block_place", f"a {kind} block stands in a result"):
                    self._block(inner)

    def _source(self, kind: str, source: Block) -> None:
        match source.get("type"):
            case "base64":
                self.text(source, "data")
                types = IMAGES if kind == "image" else ("application/pdf",)
                self.known(source.get("media_type"), types, "media_type", "media_type")
            case "url":
                self.text(source, "url")
            case "file":
                self.text(source, "file_id")
            case "text" if kind == "document":
                self.text(source, "data")
            case "content" if kind == "document":
                pass
            case other:
                self.broken("shape", f"the source of an {kind} has the unknown type {other!r}")

    def _is_paused(self, content: Any) -> bool:
        """Whether a message ends with a tool that the server runs: the model goes on from there."""
        last = content[-1] if isinstance(content, list) and content else None
        return isinstance(last, dict) and last.get("type") in SERVER_CALLS
