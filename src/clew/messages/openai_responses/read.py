"""Items of OpenAI's Responses API.

A message here is one item or several: what the model made in one response is one assistant
message. The raw block of a part is the whole item that it was read from, because an item cannot
be sent in pieces; a message item of several blocks is the raw block of several parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from clew.messages.neutral import (
    About,
    Media,
    Message,
    Other,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
)
from clew.messages.shared import openai
from clew.messages.shared.media import as_given, dump
from clew.messages.shared.read import (
    Count,
    Malformed,
    checked,
    each,
    elements,
    fields,
    name,
    optional,
    role_of,
    string,
    text,
)

NAME = "openai-responses"

Block = dict[str, Any]
Parts = tuple[Part, ...]


# --- messages -------------------------------------------------------------------------------

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of an item, a list of items, or a response's output.

    Neighbouring items of the assistant become one message, neighbouring results another.
    """
    if isinstance(body, list):
        return _read_items(body, "")
    if not isinstance(body, dict):
        raise Malformed("neither an item nor a list of items")
    if "output" in body and "type" not in body:
        return _read_response(body)
    role, parts = _read_item(body)
    return [_message(role, parts, body)]


def _read_response(body: Block) -> list[Message]:
    found = _read_items(elements(body, "output"), ".output")
    said = about(body)
    # A response may hold several messages, but it was one call: the last one tells what it cost.
    last = found.pop() if found else Message(role="assistant", parts=(), format=NAME)
    last = replace(last, usage=read_usage(said.usage), model=text(said.model))
    return [*found, last]


def about(body: Block) -> About:
    """What a response tells of its call; items, alone or in a list, tell nothing."""
    if "output" not in body:
        return About()
    return About(usage=body.get("usage"), model=body.get("model"), id=body.get("id"))


class _Counts(Struct, gc=False, forbid_unknown_fields=True):
    input_tokens: Count
    output_tokens: Count
    total_tokens: Count | None = None
    input_tokens_details: openai.CountsIn | None = None
    output_tokens_details: openai.CountsOut | None = None


class Usual(Struct, gc=False):
    """What nearly every response tells of its call; see `clew.messages.usage.in_data`."""

    output: Raw
    usage: _Counts
    id: str | None = None
    model: str | None = None

    def tokens(self) -> Usage:
        usage = self.usage
        return openai.usual_usage(
            usage.input_tokens,
            usage.input_tokens_details,
            usage.output_tokens,
            usage.output_tokens_details,
        )


def read_usage(usage: Any) -> Usage | None:
    """The tokens of a response."""
    return openai.read_usage(usage, "input_tokens", "output_tokens")


def _read_items(items: list[Any], path: str) -> list[Message]:
    found: list[Message] = []
    for index, item in enumerate(items):
        try:
            if not isinstance(item, dict):
                raise Malformed("an item is not an object")
            role, parts = _read_item(item)
        except Malformed as error:
            raise error.under(f"{path}[{index}]") from None
        if found and found[-1].role == role and role in ("assistant", "tool"):
            parts = found.pop().parts + parts
        found.append(_message(role, parts, item))
    return found


def _message(role: Role, parts: Parts, item: Block) -> Message:
    extra = {"role": "developer"} if item.get("role") == "developer" else None
    return Message(role=role, parts=parts, format=NAME, extra=extra)


# --- items ----------------------------------------------------------------------------------


def _read_item(item: Block) -> tuple[Role, Parts]:
    kind = item.get("type")
    if kind is None and "role" in item:
        return _read_message_item(item)
    reader = _READERS.get(string(item, "type"))
    if reader is not None:
        return reader(item)
    if kind in _SPECIAL_CALLS:
        return _read_special_call(item)
    return _ROLES_OF_OTHERS.get(str(kind), "assistant"), (Other(format=NAME, raw=item),)


def _read_message_item(item: Block) -> tuple[Role, Parts]:
    role = role_of(item, _ROLES)
    content = item.get("content")
    if isinstance(content, str):
        return role, (Text(content, format=NAME, raw=item),)
    return role, each(elements(item, "content"), lambda block: read_block(block, item))


def _read_reasoning(item: Block) -> tuple[Role, Parts]:
    blocks = elements(item, "summary") or elements(item, "content")
    texts = [block.get("text") for block in blocks if isinstance(block, dict)]
    text = "\n\n".join([text for text in texts if isinstance(text, str)])
    part = Thinking(text, optional(item, "encrypted_content"), format=NAME, raw=item)
    return "assistant", (part,)


def _read_call(item: Block) -> tuple[Role, Parts]:
    id, tool = name(item, "call_id"), name(item, "name")
    return "assistant", (ToolCall(id, tool, item.get("arguments"), format=NAME, raw=item),)


def _read_custom_call(item: Block) -> tuple[Role, Parts]:
    """A tool whose input is free text."""
    arguments = {"input": string(item, "input")}
    call = ToolCall(name(item, "call_id"), name(item, "name"), arguments, format=NAME, raw=item)
    return "assistant", (call,)


# Calls of built-in tools that the client has to answer, and where their arguments are.
_SPECIAL_CALLS = {
    "local_shell_call": "action",
    "shell_call": "action",
    "computer_call": "action",
    "apply_patch_call": "operation",
    "tool_search_call": "arguments",
}


def _read_special_call(item: Block) -> tuple[Role, Parts]:
    kind = item["type"]
    if kind == "tool_search_call" and item.get("execution") != "client":
        return "assistant", (Other(format=NAME, raw=item),)
    arguments = item.get(_SPECIAL_CALLS[kind])
    if arguments is None and kind == "computer_call":
        arguments = {"actions": elements(item, "actions")}
    id, tool = name(item, "call_id"), kind.removesuffix("_call")
    return "assistant", (ToolCall(id, tool, as_given(arguments), format=NAME, raw=item),)


def _read_result(item: Block) -> tuple[Role, Parts]:
    if item["type"] == "tool_search_output" and item.get("execution") != "client":
        return "assistant", (Other(format=NAME, raw=item),)
    id = name(item, "call_id") if item.get("call_id") is not None else name(item, "id")
    content, failed = _read_output(item)
    part = ToolResult(id, content, optional(item, "name"), failed, format=NAME, raw=item)
    return "tool", (part,)


def _read_output(item: Block) -> tuple[Parts, bool]:
    """What a call gave, and whether the item says that it failed."""
    output = item.get("output")
    failed = item.get("status") == "failed"
    match item["type"]:
        case "computer_call_output":
            return (read_image(fields(item, "output")),), failed
        case "shell_call_output":
            return _read_shell_output(elements(item, "output")), failed
        case "tool_search_output":
            return (Text(dump(item.get("tools"))),), failed
    if isinstance(output, str):
        return ((Text(output),) if output else ()), failed
    if isinstance(output, dict):  # written by early clients: {"content": …, "success": …}
        content = output.get("content")
        text = content if isinstance(content, str) else dump(output)
        return (Text(text),), output.get("success") is False
    return each(elements(item, "output"), lambda block: read_block(block), ".output"), failed


def _read_shell_output(chunks: list[Any]) -> Parts:
    texts = []
    for chunk in chunks:
        if isinstance(chunk, dict):
            texts += [text for key in ("stdout", "stderr") if (text := optional(chunk, key))]
    return (Text("\n".join(texts)),) if texts else ()


_READERS: dict[str, Callable[[Block], tuple[Role, Parts]]] = {
    "message": _read_message_item,
    "reasoning": _read_reasoning,
    "function_call": _read_call,
    "custom_tool_call": _read_custom_call,
    "function_call_output": _read_result,
    "custom_tool_call_output": _read_result,
    "local_shell_call_output": _read_result,
    "shell_call_output": _read_result,
    "computer_call_output": _read_result,
    "apply_patch_call_output": _read_result,
    "tool_search_output": _read_result,
}
# Items that the model did not make.
_ROLES_OF_OTHERS: dict[str, Role] = {
    "mcp_approval_response": "user",
    "compaction_trigger": "user",
    "agent_message": "user",
    "additional_tools": "system",
    "configuration_update": "system",
}


# --- the content blocks of items ------------------------------------------------------------


def read_block(block: Block, item: Block | None = None) -> Part:
    """A block of a message item; or of a result, which keeps its blocks itself."""
    own: Any = {} if item is None else {"format": NAME, "raw": item}
    match string(block, "type"):
        case "input_text" | "output_text" | "text":
            return Text(string(block, "text"), **own)
        case "refusal":
            return Text(string(block, "refusal"), **own)
        case "input_image":
            return read_image(block, **own)
        case "input_file":
            filename = optional(block, "filename")
            url = optional(block, "file_url") or optional(block, "file_data")
            if url is not None:
                return openai.media_at(url, "file", name=filename, **own)
            return Media(kind="file", file_id=string(block, "file_id"), name=filename, **own)
    return Other(format=NAME, raw=item or block)


def read_image(block: Block, **own: Any) -> Part:
    url = optional(block, "image_url")
    if url is not None:
        return openai.media_at(url, "image", **own)
    return Media(kind="image", file_id=string(block, "file_id"), **own)
