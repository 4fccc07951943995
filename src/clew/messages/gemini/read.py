"""Contents of Google's generateContent API, in its JSON names or in those of its protocol.

System messages become `Written.system`. Results are a content of their own: other parts beside
them are counted as answers by some models. A call without an id gets one made from its name and
its position among the calls of that name, and so does its result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

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
from clew.messages.shared.media import as_given, dump, kind_of
from clew.messages.shared.read import (
    Malformed,
    checked,
    each,
    elements,
    fields,
    name,
    optional,
    role_of,
    split_results,
    string,
    text,
    tokens,
)

NAME = "gemini"

Block = dict[str, Any]


# --- reading --------------------------------------------------------------------------------

_ROLES: dict[str, Role] = {
    "user": "user",
    "model": "assistant",
    "function": "user",
    "system": "system",
}


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of a content; a response is read as the content of its first candidate.

    A content that holds results is read as a tool message and, if it holds anything else,
    a user message.
    """
    if isinstance(body, dict) and "candidates" in body:
        return [_read_response(body)]
    role = role_of(body, _ROLES)
    message = Message(role=role, parts=_read_parts(body), format=NAME)
    return split_results(message) if role == "user" else [message]


def _read_response(body: Block) -> Message:
    candidates = elements(body, "candidates")
    if not candidates or not isinstance(candidates[0], dict):
        raise Malformed("a response without a candidate", ".candidates")
    content = candidates[0].get("content") or {}  # none when the response was blocked
    if not isinstance(content, dict):
        raise Malformed("content is not an object", ".candidates[0].content")
    try:
        parts = _read_parts(content)
    except Malformed as error:
        raise error.under(".candidates[0].content") from None
    said = about(body)
    return Message(
        role="assistant",
        parts=parts,
        format=NAME,
        usage=read_usage(said.usage),
        model=text(said.model),
    )


def about(body: Block) -> About:
    """What a response tells of its call."""
    return About(
        usage=_either(body, "usageMetadata", "usage_metadata"),
        model=_either(body, "modelVersion", "model_version"),
        id=_either(body, "responseId", "response_id"),
    )


def _read_parts(content: Block) -> tuple[Part, ...]:
    parts = each(elements(content, "parts"), _read_part, ".parts")
    return _with_ids(parts) if any(map(_lacks_id, parts)) else parts


def _read_part(part: Block) -> Part:
    if not isinstance(part, dict) or not part:
        raise Malformed("a part without a field")
    # A part may have fields beside its data, a signature or a thought's mark, in any order.
    for key in part:
        if key in _READERS and part[key] is not None:
            return _READERS[key](part, key)
    return Other(format=NAME, raw=part)


def _read_text(part: Block, key: str) -> Part:
    text = string(part, key)
    signature = optional(part, "thoughtSignature") or optional(part, "thought_signature")
    # A signature may come alone, on an empty text; it is kept like thinking.
    if part.get("thought") or (signature and not text):
        return Thinking(text, signature, format=NAME, raw=part)
    return Text(text, format=NAME, raw=part)


def _read_call(part: Block, key: str) -> Part:
    call = fields(part, key)
    arguments = call.get("args")
    return ToolCall(
        optional(call, "id", key) or "",
        name(call, "name", key),
        None if arguments is None else as_given(arguments),
        format=NAME,
        raw=part,
    )


def _read_result(part: Block, key: str) -> Part:
    result = fields(part, key)
    content, failed = _read_output(result.get("response"))
    media = each(elements(result, "parts"), _read_part, f".{key}.parts")
    tool = name(result, "name", key)
    return ToolResult(
        optional(result, "id", key) or "", content + media, tool, failed, format=NAME, raw=part
    )


def _read_output(response: Any) -> tuple[tuple[Part, ...], bool]:
    """The text of a function's response, and whether it is an error."""
    failed = isinstance(response, dict) and "error" in response and "output" not in response
    if isinstance(response, dict) and len(response) == 1:
        key, value = next(iter(response.items()))
        if key in ("output", "result", "error"):
            response = value
    if response is None or response == {}:
        return (), failed
    text = response if isinstance(response, str) else dump(response)
    return ((Text(text),) if text else ()), failed


def _read_inline(part: Block, key: str) -> Part:
    blob = fields(part, key)
    mime = optional(blob, "mimeType", key) or optional(blob, "mime_type", key)
    label = optional(blob, "displayName", key) or optional(blob, "display_name", key)
    data = string(blob, "data", key)
    return Media(kind=kind_of(mime), mime=mime, data=data, name=label, format=NAME, raw=part)


def _read_file(part: Block, key: str) -> Part:
    file = fields(part, key)
    mime = optional(file, "mimeType", key) or optional(file, "mime_type", key)
    uri = optional(file, "fileUri", key) or string(file, "file_uri", key)
    kind = kind_of(mime)
    if uri.startswith("gs:") or "//generativelanguage.googleapis.com/" in uri:
        # Only this provider can open it.
        return Media(kind=kind, mime=mime, file_id=uri, format=NAME, raw=part)
    return Media(kind=kind, mime=mime, url=uri, format=NAME, raw=part)


_READERS: dict[str, Callable[[Block, str], Part]] = {
    "text": _read_text,
    "functionCall": _read_call,
    "function_call": _read_call,
    "functionResponse": _read_result,
    "function_response": _read_result,
    "inlineData": _read_inline,
    "inline_data": _read_inline,
    "fileData": _read_file,
    "file_data": _read_file,
}


def _lacks_id(part: Part) -> bool:
    if isinstance(part, ToolCall):
        return not part.id
    return isinstance(part, ToolResult) and not part.call


def _with_ids(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Calls and results without an id pair in their order, by name."""
    seen: Counter[tuple[type[Part], str]] = Counter()
    found: list[Part] = []
    for part in parts:
        if isinstance(part, (ToolCall, ToolResult)) and _lacks_id(part):
            id = f"call_{part.name}_{seen[type(part), part.name or '']}"
            seen[type(part), part.name or ""] += 1
            if isinstance(part, ToolCall):
                part = replace(part, id=id, made_id=True)
            else:
                part = replace(part, call=id)
        found.append(part)
    return tuple(found)


def read_usage(usage: Any) -> Usage | None:
    """The tokens of a response; thoughts are counted beside the candidates there."""
    if not isinstance(usage, dict):
        return None

    def either(camel: str, snake: str) -> int:
        return tokens(usage, camel) or tokens(usage, snake)

    cached = either("cachedContentTokenCount", "cached_content_token_count")
    sent = either("promptTokenCount", "prompt_token_count")
    used = either("toolUsePromptTokenCount", "tool_use_prompt_token_count")
    thought = either("thoughtsTokenCount", "thoughts_token_count")
    return Usage(
        input_tokens=max(sent + used - cached, 0),
        output_tokens=either("candidatesTokenCount", "candidates_token_count") + thought,
        cache_read_tokens=cached,
        reasoning_tokens=thought,
    )


def _either(block: Block, camel: str, snake: str) -> Any:
    return block.get(camel, block.get(snake))
