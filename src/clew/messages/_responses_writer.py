"""Writing items of OpenAI's Responses API."""

from __future__ import annotations

import re
from typing import Any

from clew.messages import _openai
from clew.messages._json import dump
from clew.messages._writing import LEFT_OUT, Limits, Writing, error_text
from clew.messages.neutral import (
    Media,
    Message,
    Other,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

Block = dict[str, Any]

# What the id of an item must look like, where there is one.
_ITEM_IDS = {
    "reasoning": re.compile(r"rs[a-zA-Z0-9_-]{1,62}"),
    "function_call": re.compile(r"fc[a-zA-Z0-9_-]{1,62}"),
    "message": re.compile(r"msg[a-zA-Z0-9_-]{1,61}"),
}
# Fields of items in responses, and of SDKs' readings of them, that no request takes.
_RESPONSE_ONLY = frozenset({"parsed_arguments", "created_by"})
# A call, and the item that answers it. Other kinds of answers are not made up: see `_call`.
_OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "computer_call": "computer_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
}
_FREE = frozenset({"function_call", "custom_tool_call"})  # their results are text and media


class Writer(Writing):
    NAME = "openai-responses"
    LIMITS = Limits(re.compile(r"[ -~]{1,64}"), re.compile(r"[a-zA-Z0-9_-]{1,128}"), 128)

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[str, str] = {}  # the id of a call → the type of item it went into

    def write(self, messages: Any) -> Any:
        self._results = {
            part.call: part
            for message in messages
            if message.role == "tool"
            for part in message.parts
            if isinstance(part, ToolResult)
        }
        return super().write(messages)
