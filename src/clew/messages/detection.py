"""Which format a stored message is in, by its shape alone."""

from __future__ import annotations

from typing import Any

_BLOCKS = {
    **dict.fromkeys(
        (
            "tool_use",
            "tool_result",
            "thinking",
            "redacted_thinking",
            "document",
            "server_tool_use",
            "web_search_tool_result",
            "mcp_tool_use",
            "mcp_tool_result",
            "search_result",
        ),
        "anthropic",
    ),
    **dict.fromkeys(("image_url", "input_audio", "refusal"), "openai-chat"),
    **dict.fromkeys(("input_text", "output_text", "input_image", "input_file"), "openai-responses"),
}

_ITEMS = frozenset(
    "reasoning item_reference compaction mcp_list_tools mcp_approval_request "
    "mcp_approval_response tool_search_output program program_output".split()
)


def detect(body: Any) -> str:
    """The format of a stored body, guessed by its shape; "plain" when in doubt."""
    if isinstance(body, list):  # only items come in lists
        found = any(detect(item) == "openai-responses" for item in body if isinstance(item, dict))
        return "openai-responses" if found else "plain"
    if not isinstance(body, dict):
        return "plain"
    return _by_fields(body) or _by_content(body) or "plain"


def _by_fields(body: dict[str, Any]) -> str | None:
    """By fields that only one format has."""
    if "candidates" in body or isinstance(body.get("parts"), list):
        return "gemini"
    if "role" not in body:
        if "choices" in body:
            return "openai-chat"
        response = body.get("object") == "response" or isinstance(body.get("output"), list)
        return "openai-responses" if response or _is_item(body) else None
    if "stop_reason" in body:
        return "anthropic"
    if body["role"] == "function" or "refusal" in body or "function_call" in body:
        return "openai-chat"
    calls = body.get("tool_calls")
    if isinstance(calls, list) and calls and isinstance(calls[0], dict):
        return "openai-chat" if {"function", "custom"} & calls[0].keys() else None
    return None


def _is_item(body: dict[str, Any]) -> bool:
    kind = body.get("type")
    if not isinstance(kind, str):
        return False
    # Types come and go with the provider's tools, so most are known by how they end. A caller's
    # own object may end like that, too; only an item also has an id.
    named = "id" in body or "call_id" in body
    return kind in _ITEMS or (named and kind.endswith(("_call", "_call_output")))


def _by_content(body: dict[str, Any]) -> str | None:
    """By the first block whose type only one format has."""
    content = body.get("content")
    # Most messages begin with text, which says nothing of the format; the others follow soon.
    for block in content if isinstance(content, list) else ():
        found = _by_block(block) if isinstance(block, dict) else None
        if found is not None:
            return found
    if body.get("type") == "message":  # both write it; Anthropic's has text blocks or none
        return "anthropic" if isinstance(content, list) else "openai-responses"
    return None


def _by_block(block: dict[str, Any]) -> str | None:
    kind = block.get("type")
    if kind in ("text", "image"):
        marks = ("cache_control", "citations", "source")
        return "anthropic" if any(key in block for key in marks) else None
    if kind == "file":
        return "openai-chat" if isinstance(block.get("file"), dict) else None
    return _BLOCKS.get(kind) if isinstance(kind, str) else None
