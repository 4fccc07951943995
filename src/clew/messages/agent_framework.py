"""Messages as Microsoft's Agent Framework stores them: what `Message.to_dict` gives.

    {"type": "message", "role": "user" | "assistant" | "tool" | "system", "contents": [content, …]}

A content is named by its type: text, text_reasoning, data, uri, function_call, function_result
and others, which are kept as they are. A tool message may answer several calls.
"""

from __future__ import annotations

from typing import Any

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
    Violation,
)
from clew.messages.shared.media import data_url, dump, kind_of, split_data_url
from clew.messages.shared.read import (
    Malformed,
    checked,
    each,
    elements,
    name,
    optional,
    role_of,
    split_results,
    string,
    tokens,
)
from clew.messages.shared.rules import Judge, Pairs
from clew.messages.shared.write import LEFT_OUT, NO_OUTPUT, Writing

__all__ = ["NAME", "Writer", "about", "read", "read_usage", "validate"]

NAME = "agent-framework"

Block = dict[str, Any]

_ROLES: dict[str, Role] = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "system": "system",
    "developer": "system",
}


# --- reading --------------------------------------------------------------------------------


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of a message; results in a user message are a tool message, too."""
    role = role_of(body, _ROLES)
    contents = body.get("contents")
    if not isinstance(contents, list):
        raise Malformed("contents is not a list", ".contents")
    parts = each(contents, _read_content, ".contents")
    extra = {key: value for key, value in body.items() if key not in ("contents", "type")}
    message = Message(
        role=role,
        parts=parts,
        format=NAME,
        extra=extra,
        usage=read_usage(about(body).usage),
    )
    return [message] if role in ("assistant", "system") else split_results(message)


def _read_content(block: Block) -> Part:
    match string(block, "type"):
        case "text":
            return Text(string(block, "text"), format=NAME, raw=block)
        case "text_reasoning":
            signature = optional(block, "protected_data")
            return Thinking(optional(block, "text") or "", signature, format=NAME, raw=block)
        case "data" | "uri":
            return _read_media(block)
        case "hosted_file":
            mime, file = optional(block, "media_type"), string(block, "file_id")
            return Media(kind=kind_of(mime), mime=mime, file_id=file, format=NAME, raw=block)
        case "function_call" if block.get("hosted") is not True:
            id, tool = name(block, "call_id"), name(block, "name")
            return ToolCall(id, tool, block.get("arguments"), format=NAME, raw=block)
        case "function_result":
            return _read_result(block)
    return Other(format=NAME, raw=block)


def _read_media(block: Block) -> Part:
    uri, mime = string(block, "uri"), optional(block, "media_type")
    found = split_data_url(uri)
    where = {"url": uri} if found is None else {"data": found[1]}
    mime = mime or (None if found is None else found[0])
    return Media(kind=kind_of(mime), mime=mime, **where, format=NAME, raw=block)


def _read_result(block: Block) -> Part:
    failure = optional(block, "exception")
    items = elements(block, "items")
    found = each(items, _read_content, ".items") if items else ()
    content = [part for part in found if not isinstance(part, Text) or part.text]
    result = block.get("result")
    if not content and result:
        content = [Text(result if isinstance(result, str) else dump(result))]
    if not content and failure:
        content = [Text(failure)]
    id = name(block, "call_id")
    tool = optional(block, "name")
    return ToolResult(id, tuple(content), tool, failure is not None, format=NAME, raw=block)


def about(body: Block) -> About:
    """What a message tells of its call: its last block of usage."""
    contents = body.get("contents")
    blocks = (
        [block for block in contents if isinstance(block, dict)]
        if isinstance(contents, list)
        else []
    )
    usages = [block.get("usage_details") for block in blocks if block.get("type") == "usage"]
    return About(usage=usages[-1] if usages else None, id=body.get("message_id"))


def read_usage(usage: Any) -> Usage | None:
    """The tokens of a response. What came from the cache is counted in the input, too."""
    if not isinstance(usage, dict):
        return None
    cached = tokens(usage, "cache_read_input_token_count")
    written = tokens(usage, "cache_creation_input_token_count")
    return Usage(
        input_tokens=max(0, tokens(usage, "input_token_count") - cached - written),
        output_tokens=tokens(usage, "output_token_count"),
        cache_read_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=tokens(usage, "reasoning_output_token_count"),
    )


# --- writing --------------------------------------------------------------------------------


class Writer(Writing):
    """A history, from messages in normal form."""

    NAME = NAME

    def take(self, message: Message) -> int | None:
        made = [self._content(part) for part in message.parts]
        contents = [block for block in made if block is not None]
        if not contents:
            if message.role == "assistant":
                return None
            contents = [{"type": "text", "text": LEFT_OUT}]
        extra = (message.extra or {}) if message.format == self.NAME else {}
        role = extra.get("role", message.role)
        role = role if _ROLES.get(role) == message.role else message.role
        self.messages.append({"type": "message", **extra, "role": role, "contents": contents})
        return len(self.messages) - 1

    def _content(self, part: Part) -> Block | None:
        own: Block | None = part.raw if self.owns(part) else None
        if isinstance(part, ToolCall):
            if own is not None:
                return own if own["call_id"] == part.id else {**own, "call_id": part.id}
            made = {"type": "function_call", "call_id": part.id, "name": part.name}
            return {**made, "arguments": self.arguments(part)}
        if isinstance(part, ToolResult):
            if own is not None:
                return own if own["call_id"] == part.call else {**own, "call_id": part.call}
            return self._result(part)
        if own is not None:
            return own
        if isinstance(part, Text):
            return {"type": "text", "text": part.text}
        if isinstance(part, Media):
            return self._media(part)
        self.drop(part)
        return None

    def _result(self, part: ToolResult) -> Block:
        made = [self._content(inner) for inner in part.content]
        items = [block for block in made if block is not None and block.get("text") != ""]
        if part.is_error and not items:
            items = [{"type": "text", "text": NO_OUTPUT}]
        text = "\n".join([block["text"] for block in items if block["type"] == "text"])
        result = {"type": "function_result", "call_id": part.call, "items": items, "result": text}
        # The framework names an error by its type, and tells the model what the items say.
        return {**result, "exception": "Error"} if part.is_error else result

    def _media(self, part: Media) -> Block:
        if part.data is not None:
            mime = part.mime or "application/octet-stream"
            uri = data_url(Media(kind=part.kind, mime=mime, data=part.data))
            return {"type": "data", "uri": uri, "media_type": mime}
        if part.url is None:
            return {"type": "text", "text": self.replace_media(part)}
        return {
            "type": "uri",
            "uri": part.url,
            "media_type": part.mime or "application/octet-stream",
        }


# --- rules ----------------------------------------------------------------------------------


def validate(messages: list[Any]) -> list[Violation]:
    """Every rule that a history breaks: of shape, and that calls and results pair up."""
    return _Judge(messages).judge(messages)


class _Judge(Judge):
    def judge(self, messages: list[Any]) -> list[Violation]:
        pairs = Pairs(self)
        for message in self.each(messages):
            role = message.get("role")
            if not self.known(role, _ROLES, "role", "role"):
                continue
            if role != "tool":
                pairs.close()
            for block in self.objects(message.get("contents"), "contents"):
                match self.text(block, "type"):
                    case "text":
                        self.text(block, "text")
                    case "function_call" if block.get("hosted") is not True:
                        fits = role == "assistant"
                        self.holds(fits, "block_place", f"a call stands in a {role} message")
                        self.text(block, "name")
                        pairs.call(block.get("call_id"))
                    case "function_result":
                        fits = role == "tool"
                        self.holds(fits, "block_place", f"a result stands in a {role} message")
                        pairs.result(block.get("call_id"))
        pairs.close()
        return self.found
