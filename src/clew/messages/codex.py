"""Records of OpenAI's Codex: the lines of its rollouts.

    {"timestamp": …, "type": "response_item", "payload": an item of the Responses API}

Such records are what the model sees, and are read as that item; so are the bare items of the first
versions. All other types are about the conversation: the session, the settings of a turn, what the
screen showed, compactions.
"""

from __future__ import annotations

import re
from typing import Any

from clew.core.codec import digest, encode
from clew.core.errors import InvalidInput
from clew.messages.neutral import About, Message, Usage
from clew.messages.openai_responses import read as responses
from clew.messages.shared.read import Malformed, checked, text, tokens

__all__ = ["NAME", "PROVIDER", "about", "item_of", "read", "read_compaction", "read_usage"]

NAME = "codex"
PROVIDER = "openai-responses"  # in whose format a request is written

_WRAPPERS = ("response_item", "request_item")
_ITEMS = frozenset(
    "message reasoning function_call function_call_output custom_tool_call custom_tool_call_output "
    "local_shell_call local_shell_call_output web_search_call image_generation_call "
    "tool_search_call tool_search_output agent_message compaction context_compaction".split()
)


def item_of(record: Any) -> dict[str, Any] | None:
    """The item of the Responses API that a record holds; None if it holds none."""
    if not isinstance(record, dict):
        return None
    item = record.get("payload") if record.get("type") in _WRAPPERS else record
    if not isinstance(item, dict):
        return None
    kind = item.get("type")
    bare = kind is None and item is not record and isinstance(item.get("role"), str)
    return item if text(kind) in _ITEMS or bare else None


# The fields of items that a request may hold; Codex writes down more.
_COMMON = frozenset({"type", "id", "call_id", "status", "name", "namespace"})
_FIELDS = {
    "message": frozenset({"type", "id", "status", "role", "content", "phase"}),
    "reasoning": frozenset({"type", "id", "status", "summary", "content", "encrypted_content"}),
    "function_call": _COMMON | {"arguments"},
    "function_call_output": frozenset({"type", "id", "call_id", "status", "output"}),
    "custom_tool_call": _COMMON | {"input"},
    "custom_tool_call_output": frozenset({"type", "id", "call_id", "output"}),
}
_NOTES = ("internal_chat_message_metadata_passthrough", "metadata")
_ID = re.compile("[A-Za-z0-9_-]{1,64}")
_DATA = re.compile("data:[^,]*,([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def _plain(item: dict[str, Any]) -> dict[str, Any]:
    """An item as a request may hold it. What another agent said is told by the user."""
    if item.get("type") == "agent_message":
        blocks = item.get("content")
        blocks = blocks if isinstance(blocks, list) else []
        texts = [block.get("text") for block in blocks if isinstance(block, dict)]
        said = "\n".join([one for one in texts if isinstance(one, str)])
        told = f"[message of {item.get('author')}]\n{said}"
        return {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": told}],
        }
    known = _FIELDS.get(str(item.get("type")))
    found = {
        key: value
        for key, value in item.items()
        if (key not in _NOTES if known is None else key in known)
    }
    id = found.get("id")
    if id is not None and not (isinstance(id, str) and _ID.fullmatch(id)):
        del found["id"]
    content = found.get("content")
    if item.get("type") == "message" and isinstance(content, list):
        found["content"] = [_seen(block) for block in content]
    return found


def _seen(block: Any) -> Any:
    """A block of content; an image whose data is damaged would make the request fail."""
    url = block.get("image_url") if isinstance(block, dict) else None
    if not isinstance(url, str) or not url.startswith("data:") or _DATA.fullmatch(url):
        return block
    return {"type": "input_text", "text": "[an image that cannot be read any more]"}


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of the item that a record holds."""
    item = item_of(body)
    if item is None:
        raise Malformed("is not a record of Codex that holds an item")
    try:
        return responses.read(_plain(item))
    except InvalidInput as error:
        within = "" if item is body else ".payload"
        raise Malformed(error.fields["reason"], within + (error.path or "$")[1:]) from None


def about(body: dict[str, Any]) -> About:
    """What a count of tokens tells. Codex repeats counts; what it counted in all tells which."""
    payload = body.get("payload")
    info = payload.get("info") if isinstance(payload, dict) else None
    if not isinstance(info, dict) or not isinstance(info.get("last_token_usage"), dict):
        return About()
    total = encode(info.get("total_token_usage"), field="total_token_usage")
    return About(usage=info["last_token_usage"], id=f"codex-{digest(total)}")


def read_usage(usage: Any) -> Usage | None:
    """The tokens of a response; what came from the cache is told within the input."""
    if not isinstance(usage, dict):
        return None
    cached, written = (
        tokens(usage, "cached_input_tokens"),
        tokens(usage, "cache_write_input_tokens"),
    )
    return Usage(
        input_tokens=max(0, tokens(usage, "input_tokens") - cached - written),
        output_tokens=tokens(usage, "output_tokens"),
        cache_read_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=tokens(usage, "reasoning_output_tokens"),
    )


def read_compaction(body: Any, parent: str | None) -> dict[str, Any]:
    """A compaction in our words: the items that replace the history or, of old, a summary."""
    payload = body.get("payload")
    payload = payload if isinstance(payload, dict) else {}
    found: dict[str, Any] = {
        "compaction_id": payload.get("window_id"),
        "compacted_through_entry_id": parent,
        "summary": payload.get("message"),
    }
    history = payload.get("replacement_history")
    if isinstance(history, list):
        # One body, so that what the model said in one go stays together.
        items = [_plain(item) for item in history if isinstance(item, dict)]
        found["details"] = {"messages": [items] if items else [], "format": responses.NAME}
    return found
