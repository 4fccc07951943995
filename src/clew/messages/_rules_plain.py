"""The rules of plain messages: what the provider formats have in common."""

from __future__ import annotations

from typing import Any

from clew.messages._rules import Judge, Pairs
from clew.messages.neutral import Violation

Block = dict[str, Any]

ROLES = ("user", "assistant", "tool", "system", "developer")


def validate(messages: list[Any]) -> list[Violation]:
    """Every rule that plain messages break."""
    return _Judge(messages).judge(messages)


class _Judge(Judge):
    def judge(self, messages: list[Any]) -> list[Violation]:
        self._pairs = Pairs(self)
        for message in self.each(messages):
            role = message.get("role")
            if not self.known(role, ROLES, "role", "role"):
                continue
            if role == "tool":
                self._pairs.result(message.get("tool_call_id"))
            else:
                self._pairs.close()
            self._content(message)
            if message.get("tool_calls") is not None:
                self.holds(role == "assistant", "block_place", f"calls stand in a {role} message")
                for call in self.objects(message["tool_calls"], "tool_calls"):
                    self._call(call)
        self._pairs.close()
        return self.found

    def _content(self, message: Block) -> None:
        content = message.get("content")
        if content is None:
            said = bool(message.get("tool_calls") or message.get("reasoning"))
            self.holds(said, "no_content", "a message says nothing")
        elif not isinstance(content, str):
            for block in self.objects(content, "content"):
                if self.text(block, "type") == "text":
                    self.text(block, "text")

    def _call(self, call: Block) -> None:
        self._pairs.call(call.get("id"))
        tool = self.object(call.get("function", call), "function")
        named = isinstance(tool.get("name"), str) and bool(tool["name"])
        self.holds(named, "tool_name", "a call names no tool")
