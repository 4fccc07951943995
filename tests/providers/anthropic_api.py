"""A strict fake of the request check of Anthropic's Messages API.

Written from the published documentation (platform.claude.com) and from error messages that the
API gives, not from Clew's own rules. The pages, by title:

    Create a Message (API reference)      roles, content, blocks by type, limits
    Handle tool calls                     results right after their calls, results first
    Parallel tool use                     all results in one user message
    Building with extended thinking       signatures, order, no change, no prefill with thinking
    Adaptive thinking                     turns need not begin with thinking in this mode
    Migration guide (Claude 4.6)          no prefill: a request ends with the user
    Mid-conversation system messages      role "system" among the messages, newer models only
    Prompt caching                        at most four marks, none on thinking or empty text
    Vision, PDF support, Files API        media types and sources
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from providers.refusal import (
    JSON,
    Refused,
    a_flag,
    a_list,
    a_text,
    an_object,
    base64_data,
    covers,
    matching,
    one_of,
    only_keys,
    read_stamp,
    refuse,
    sendable,
)

__all__ = ["Model", "Refused", "check"]


@dataclass(frozen=True)
class Model:
    """What differs between families of models.

    `prefill`: up to Claude 4.5 a request may end with the assistant, whose text is continued;
    from 4.6 on it is refused. `system_role`: from Opus 4.8 on a system message may stand right
    after a user's. Both are off by default, which is what a request has to reckon with.

    `mixed` looks away where signed content of two replies is in one message, for tests that are
    about something else.
    """

    prefill: bool = False
    system_role: bool = False
    mixed: bool = False


MESSAGES_MAX = 100_000
MARKS_MAX = 4
# The documentation has had 5 MB and larger figures; the smallest is what holds everywhere.
IMAGE_BYTES_MAX = 5 * 1024 * 1024
IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
# Of ids no length is published. Names had 64 characters, and have 128 by now.
TOOL_ID = r"[a-zA-Z0-9_-]+"
TOOL_NAME = r"[a-zA-Z0-9_-]{1,128}"

_SERVER_RESULTS = (
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "advisor_tool_result",
    "mcp_tool_result",
)
_SERVER_CALLS = ("server_tool_use", "mcp_tool_use")
# Which fields a block may have: others are refused as extra inputs.
_FIELDS: dict[str, set[str]] = {
    "text": {"text", "citations", "cache_control"},
    "image": {"source", "cache_control"},
    "document": {"source", "title", "context", "citations", "cache_control"},
    "search_result": {"source", "title", "content", "citations", "cache_control"},
    "container_upload": {"file_id", "cache_control"},
    "tool_result": {"tool_use_id", "content", "is_error", "cache_control"},
    "tool_use": {"id", "name", "input", "cache_control", "caller"},
    "server_tool_use": {"id", "name", "input", "cache_control", "caller"},
    "mcp_tool_use": {"id", "name", "input", "server_name", "cache_control"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
    **{
        kind: {"tool_use_id", "content", "is_error", "cache_control", "caller"}
        for kind in _SERVER_RESULTS
    },
}
# The reference has one union of blocks for both roles; which of them a role may use is what the
# pages on tools, thinking and vision say. Images of the assistant are in none of them.
_BY_ROLE = {
    "user": ("text", "image", "document", "search_result", "container_upload", "tool_result"),
    "assistant": (
        *("text", "thinking", "redacted_thinking", "tool_use"),
        *_SERVER_CALLS,
        *_SERVER_RESULTS,
    ),
    "system": ("text",),
}
_IN_RESULTS = ("text", "image", "document", "search_result")
_THOUGHT = ("thinking", "redacted_thinking")


def check(request: JSON, model: Model = Model()) -> None:
    """Raise Refused for the first fault of a request: messages, system, and thinking if set."""
    sendable(request)
    messages = a_list(request.get("messages"), "messages", least=1, most=MESSAGES_MAX)
    for index, message in enumerate(messages):
        _check_message(message, index, index == len(messages) - 1, model)
    _check_system(request.get("system"))
    _check_calls(messages)
    _check_order(messages, model)
    _check_marks(request, messages)
    thinking = an_object(request.get("thinking") or {"type": "disabled"}, "thinking")
    mode = one_of(thinking.get("type"), ("enabled", "adaptive", "disabled"), "thinking", "thinking")
    _check_thinking(messages, mode)
    if not model.mixed:
        _check_replies(messages)


# --- one message ------------------------------------------------------------------------------


def _check_message(message: Any, index: int, last: bool, model: Model) -> None:
    """Role and content (Create a Message; Mid-conversation system messages)."""
    path = f"messages.{index}"
    an_object(message, path)
    only_keys(message, {"role", "content"}, path)
    roles = ("user", "assistant", "system") if model.system_role else ("user", "assistant")
    role = one_of(message.get("role"), roles, f"{path}.role", "role")
    content = message.get("content")
    optional = last and role == "assistant"  # the one message that may be empty
    if isinstance(content, str):
        if not content and optional:
            return
        _check_text(content, f"{path}.content")
        return
    for place, block in enumerate(a_list(content, f"{path}.content", least=not optional)):
        _check_block(block, role, f"{path}.content.{place}")


def _check_text(text: Any, path: str) -> None:
    if not a_text(text, path).strip():
        refuse(path, "empty_text", "text must be more than white space")


def _check_block(block: Any, role: str, path: str) -> None:
    """A block by its type (Create a Message; for thinking: Building with extended thinking)."""
    an_object(block, path)
    kind = block.get("type")
    one_of(kind, tuple(_FIELDS), f"{path}.type", "block_type")
    one_of(kind, _BY_ROLE[role], f"{path}.type", "block_of_role")
    only_keys(block, {"type", *_FIELDS[kind]}, path)
    if kind == "text":
        _check_text(block.get("text"), f"{path}.text")
    elif kind == "image":
        _check_image(block.get("source"), f"{path}.source")
    elif kind == "document":
        _check_document(block.get("source"), f"{path}.source")
    elif kind == "container_upload":
        a_text(block.get("file_id"), f"{path}.file_id", least=1)
    elif kind == "tool_result":
        _check_result(block, path)
    elif kind in ("tool_use", *_SERVER_CALLS):
        matching(block.get("id"), TOOL_ID, f"{path}.id", "tool_id")
        matching(block.get("name"), TOOL_NAME, f"{path}.name", "tool_name")
        an_object(block.get("input"), f"{path}.input")
    elif kind == "thinking":
        # Newer models may leave the text out and give the signature alone.
        a_text(block.get("thinking"), f"{path}.thinking")
        a_text(block.get("signature"), f"{path}.signature", least=1)
    elif kind == "redacted_thinking":
        a_text(block.get("data"), f"{path}.data", least=1)
    elif kind in _SERVER_RESULTS:
        matching(block.get("tool_use_id"), TOOL_ID, f"{path}.tool_use_id", "tool_id")


def _check_result(block: JSON, path: str) -> None:
    """What a result may hold (Handle tool calls)."""
    matching(block.get("tool_use_id"), TOOL_ID, f"{path}.tool_use_id", "tool_id")
    if "is_error" in block:
        a_flag(block["is_error"], f"{path}.is_error")
    content = block.get("content", "")
    if isinstance(content, list):
        for place, inner in enumerate(content):
            inside = f"{path}.content.{place}"
            one_of(an_object(inner, inside).get("type"), _IN_RESULTS, inside, "block_in_result")
            _check_block(inner, "user", inside)
    else:
        a_text(content, f"{path}.content")
    if block.get("is_error") and not content:
        refuse(path, "empty_error", "a result that is an error says what went wrong")


def _check_image(source: Any, path: str) -> None:
    """Types, sources and size of a picture (Vision; Files API)."""
    kind = one_of(an_object(source, path).get("type"), ("base64", "url", "file"), path, "source")
    if kind == "base64":
        only_keys(source, {"type", "media_type", "data"}, path)
        one_of(source.get("media_type"), IMAGES, f"{path}.media_type", "media_type")
        base64_data(source.get("data"), f"{path}.data", bytes_max=IMAGE_BYTES_MAX)
    else:
        _check_reference(source, kind, path)


def _check_document(source: Any, path: str) -> None:
    """Types and sources of a document (PDF support; Files API; Create a Message)."""
    kinds = ("base64", "text", "content", "url", "file")
    kind = one_of(an_object(source, path).get("type"), kinds, path, "source")
    if kind == "base64":
        one_of(source.get("media_type"), ("application/pdf",), f"{path}.media_type", "media_type")
        base64_data(source.get("data"), f"{path}.data")
    elif kind == "text":
        one_of(source.get("media_type"), ("text/plain",), f"{path}.media_type", "media_type")
        a_text(source.get("data"), f"{path}.data", least=1)
    elif kind == "content":
        content = source.get("content")
        if not isinstance(content, str):
            for place, inner in enumerate(a_list(content, f"{path}.content")):
                inside = f"{path}.content.{place}"
                one_of(an_object(inner, inside).get("type"), ("text", "image"), inside, "source")
                _check_block(inner, "user", inside)
    else:
        _check_reference(source, kind, path)


def _check_reference(source: JSON, kind: str, path: str) -> None:
    if kind == "url":
        only_keys(source, {"type", "url"}, path)
        matching(source.get("url"), r"https?://\S+", f"{path}.url", "url")
    else:
        only_keys(source, {"type", "file_id"}, path)
        a_text(source.get("file_id"), f"{path}.file_id", least=1)


def _check_system(system: Any) -> None:
    if system is None or isinstance(system, str):
        return
    for place, block in enumerate(a_list(system, "system")):
        _check_block(block, "system", f"system.{place}")


# --- the order of messages --------------------------------------------------------------------


def _check_order(messages: list[JSON], model: Model) -> None:
    """Who begins and who ends (Create a Message; Migration guide).

    Neighbours of one role are allowed: the API takes them as one turn.
    """
    # The reference does not say it any more, the error message is still given.
    if messages[0]["role"] != "user":
        refuse("messages.0.role", "first_is_user", "the first message must be the user's")
    for index, (one, other) in enumerate(pairwise(messages), 1):
        if other["role"] == "system" and one["role"] != "user":
            refuse(f"messages.{index}.role", "system_place", "it may only follow a user's message")
    last, path = messages[-1], f"messages.{len(messages) - 1}"
    if last["role"] != "assistant":
        return
    if not model.prefill:
        refuse(path, "ends_with_user", "the model continues no text: the last must be the user's")
    text = _blocks(last)[-1].get("text") if _blocks(last) else None
    if isinstance(text, str) and text != text.rstrip():
        refuse(path, "trailing_space", "the last text of the assistant ends with white space")


def _check_calls(messages: list[JSON]) -> None:
    """Every call is answered in the message after it, once, before anything else is said.

    Handle tool calls; Parallel tool use.
    """
    known: set[str] = set()
    asked: list[str] = []  # by the message before
    for index, message in enumerate(messages):
        path = f"messages.{index}"
        found: list[str] = []
        before: str | None = None
        for place, block in enumerate(_blocks(message)):
            kind = block["type"]
            if kind == "tool_result":
                here, id = f"{path}.content.{place}", block["tool_use_id"]
                if id not in asked:
                    refuse(here, "result_without_call", f"no call {id} is in the message before")
                if id in found:
                    refuse(here, "result_twice", f"call {id} has more than one result")
                if before is not None:
                    refuse(here, "results_first", f"a result stands after a block of {before}")
                found.append(id)
            else:
                before = kind
        missing = [id for id in asked if id not in found]
        if missing:
            text = f"no results right after the calls {', '.join(missing)}"
            refuse(f"messages.{index - 1}", "call_without_result", text)
        asked = _calls(message, path, known)
    if asked:
        text = f"no results right after the calls {', '.join(asked)}"
        refuse(f"messages.{len(messages) - 1}", "call_without_result", text)


def _calls(message: JSON, path: str, known: set[str]) -> list[str]:
    """The ids of a message's calls, each of them new. Servers' tools answer themselves."""
    asked: list[str] = []
    served: set[str] = set()
    for place, block in enumerate(_blocks(message)):
        here = f"{path}.content.{place}"
        if block["type"] in ("tool_use", *_SERVER_CALLS):
            id = block["id"]
            if id in known:
                refuse(here, "unique_ids", f"the id {id} is used before")
            known.add(id)
            if block["type"] == "tool_use":
                asked.append(id)
            else:
                served.add(id)
        elif block["type"] in _SERVER_RESULTS and block["tool_use_id"] not in served:
            text = f"no call {block['tool_use_id']} of the server's stands before it"
            refuse(here, "result_without_call", text)
    return asked


# --- marks for the cache ----------------------------------------------------------------------


def _check_marks(request: JSON, messages: list[JSON]) -> None:
    """How many blocks may be marked, and with what (Prompt caching)."""
    marked = [request] if request.get("cache_control") else []
    for key in ("tools", "system"):
        value = request.get(key)
        marked += [b for b in value if b.get("cache_control")] if isinstance(value, list) else []
    for message in messages:
        for block in _blocks(message):
            inner = block.get("content") if block["type"] == "tool_result" else None
            blocks = [block, *(inner if isinstance(inner, list) else [])]
            marked += [found for found in blocks if found.get("cache_control")]
    for block in marked:
        mark = an_object(block["cache_control"], "cache_control")
        one_of(mark.get("type"), ("ephemeral",), "cache_control.type", "cache_control")
        one_of(mark.get("ttl", "5m"), ("5m", "1h"), "cache_control.ttl", "cache_control")
    if len(marked) > MARKS_MAX:
        refuse("cache_control", "cache_marks", f"at most {MARKS_MAX}, not {len(marked)}")


# --- thinking ---------------------------------------------------------------------------------


def _check_thinking(messages: list[JSON], mode: str) -> None:
    """Where thinking stands (Building with extended thinking; Adaptive thinking)."""
    for index, message in enumerate(messages):
        path = f"messages.{index}.content"
        blocks = _blocks(message)
        if blocks and blocks[-1]["type"] in _THOUGHT:
            text = "the last block of a message of the assistant must not be thinking"
            refuse(f"{path}.{len(blocks) - 1}", "thinking_last", text)
    if mode == "enabled":
        _check_begins_with_thinking(messages)


def _check_begins_with_thinking(messages: list[JSON]) -> None:
    """In a loop of tools that goes on, the assistant's turn begins with thinking.

    The turn begins after the last message of the user that is more than results, and only its
    beginning is held to it: without interleaving, later steps of a loop have no thinking.
    """
    if messages[-1]["role"] == "assistant":
        refuse(f"messages.{len(messages) - 1}", "prefill_with_thinking", "no prefill with thinking")
    if not _only_results(messages[-1]):
        return
    start = max(
        (n for n, found in enumerate(messages) if found["role"] == "user"),
        key=lambda n: (not _only_results(messages[n]), n),
    )
    turn = [n for n in range(start, len(messages)) if messages[n]["role"] == "assistant"]
    if turn and _blocks(messages[turn[0]])[0]["type"] not in _THOUGHT:
        text = "with thinking on, the turn must begin with a block of thinking"
        refuse(f"messages.{turn[0]}.content.0", "begins_with_thinking", text)


def _check_replies(messages: list[JSON]) -> None:
    """Signed thinking comes back as it was: unchanged, in its order, and not mixed.

    Building with extended thinking, on preserving the blocks.
    The API takes neighbouring messages of the assistant as one turn, so they count as one here.
    """
    last: tuple[str, int] | None = None
    for index, message in enumerate(messages):
        if message["role"] != "assistant":
            last = None
            continue
        called = False
        for place, block in enumerate(_blocks(message)):
            called = called or block["type"] == "tool_use"
            # A reply ends with its calls. Thinking after one comes from another reply.
            if called and block["type"] in _THOUGHT:
                path = f"messages.{index}.content.{place}"
                refuse(path, "thinking_first", "thinking stands before the calls")
            signed = block.get("thinking") if block["type"] == "thinking" else ""
            found = read_stamp(block.get("signature") or block.get("data"))
            if block["type"] not in _THOUGHT or found is None:
                continue
            path = f"messages.{index}.content.{place}"
            if not covers(found, signed):
                refuse(path, "thinking_modified", "it is not what the signature was given for")
            if last is not None and last[0] != found.reply:
                refuse(path, "thinking_modified", "thinking of two replies is in one turn")
            if last is not None and last[1] >= found.index:
                refuse(path, "thinking_modified", "thinking is not in the order it was given in")
            last = (found.reply, found.index)


def _only_results(message: JSON) -> bool:
    blocks = _blocks(message)
    return bool(blocks) and all(block["type"] == "tool_result" for block in blocks)


def _blocks(message: JSON) -> list[JSON]:
    content = message["content"]
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    found: list[JSON] = content
    return found
