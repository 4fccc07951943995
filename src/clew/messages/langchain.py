"""Messages of LangChain and LangGraph, by LangChain's own field names.

    {"type": "human" | "ai" | "system" | "tool" | "function" | "chat" | "AIMessageChunk" | …,
     "content": a text, or a list of texts and blocks,
     "tool_calls": [{"name", "args", "id"}], "invalid_tool_calls", "usage_metadata",   of an ai
     "tool_call_id", "name", "status",                                                 of a tool
     "role",                                                                           of a chat
     "id", "additional_kwargs", "response_metadata", …}

LangChain takes such objects wherever it takes messages. Reading also takes them as LangChain's
`message_to_dict` gives them, with all but the type under "data". Blocks are LangChain's own and
those of the providers, as its integrations pass them on.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from clew.messages.shared import openai
from clew.messages.shared.media import kind_of
from clew.messages.shared.read import (
    Malformed,
    checked,
    elements,
    fields,
    name,
    optional,
    string,
    text,
    tokens,
    tokens_in,
)
from clew.messages.shared.rules import Judge, Pairs
from clew.messages.shared.write import LEFT_OUT, Writing

__all__ = ["NAME", "Writer", "about", "read", "read_usage", "validate"]

NAME = "langchain"

Block = dict[str, Any]

_ROLES: dict[str, Role] = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
    "HumanMessageChunk": "user",
    "AIMessageChunk": "assistant",
    "SystemMessageChunk": "system",
    "ToolMessageChunk": "tool",
    "FunctionMessageChunk": "tool",
}
_CHAT_ROLES: dict[str, Role] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "system",
}
_WRITTEN: dict[str, str] = {"user": "human", "assistant": "ai", "system": "system"}
# Beside the content, what a message of this format may say again when it is sent again.
_EXTRA = ("id", "name", "additional_kwargs", "response_metadata", "usage_metadata")
_CALL_BLOCKS = frozenset(
    {"tool_use", "tool_call", "tool_call_chunk", "input_json_delta", "function_call"}
)


# --- reading --------------------------------------------------------------------------------


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of a message."""
    if not isinstance(body, dict):
        raise Malformed("a message is not an object")
    if isinstance(body.get("data"), dict) and "content" not in body:
        body = {**body["data"], "type": body.get("type")}
    role = _role(body)
    parts = _read_content(body)
    if role == "tool":
        return [Message(role=role, parts=(_read_result(body, parts),), format=NAME)]
    extra = {key: body[key] for key in _EXTRA if body.get(key)}
    if role != "assistant":
        return [Message(role=role, parts=parts, format=NAME, extra=extra or None)]
    said = about(body)
    return [
        Message(
            role=role,
            parts=_read_assistant(body, parts),
            format=NAME,
            extra=extra or None,
            usage=read_usage(said.usage),
            model=text(said.model),
        )
    ]


def _role(body: Block) -> Role:
    kind = body.get("type")
    if isinstance(kind, str) and kind in _ROLES:
        return _ROLES[kind]
    if kind in ("chat", "ChatMessageChunk"):
        # A role of the program's own ("critic") speaks to the model, as the user does.
        return _CHAT_ROLES.get(string(body, "role"), "user")
    if kind is None:
        raise Malformed("has no type", ".type")
    raise Malformed(f"type {kind!r} is not one of {', '.join(_ROLES)}, chat", ".type")


def _read_content(body: Block) -> tuple[Part, ...]:
    content = body.get("content")
    if isinstance(content, str):
        return (Text(content, format=NAME, raw=content),) if content else ()
    found: list[Part] = []
    for index, block in enumerate(elements(body, "content")):
        try:
            if isinstance(block, str):
                found.append(Text(block))
            elif not isinstance(block, dict):
                raise Malformed("a block is neither an object nor a text")
            elif str(block.get("type")) not in _CALL_BLOCKS:
                found.append(_read_block(block))
            elif not any(body.get(key) for key in ("tool_calls", "invalid_tool_calls")):
                found.append(_read_call(block, index))
            # Otherwise LangChain has the call among the calls of the message as well.
        except Malformed as error:
            raise error.under(f".content[{index}]") from None
    return tuple(found)


def _read_block(block: Block) -> Part:
    match block.get("type"):
        case "text" | "text-plain" | "output_text" | "input_text":
            return Text(string(block, "text"), format=NAME, raw=block)
        case "thinking":
            signature = optional(block, "signature") or None
            return Thinking(string(block, "thinking"), signature, format=NAME, raw=block)
        case "reasoning":
            return Thinking(optional(block, "reasoning") or "", format=NAME, raw=block)
        case "image_url":
            image = block.get("image_url")
            url = image if isinstance(image, str) else string(fields(block, "image_url"), "url")
            return openai.media_at(url, "image", format=NAME, raw=block)
        case "image" | "audio" | "video" | "file" | "media" | "document":
            return _read_media(block)
    return Other(format=NAME, raw=block)


def _read_media(block: Block) -> Part:
    """Media as LangChain spells them now, as it did before, and as Anthropic and OpenAI do."""
    source = block.get("source")
    inner: Block = source if isinstance(source, dict) else block
    if isinstance(block.get("file"), dict):
        inner = block["file"]
        if isinstance(inner.get("file_data"), str):
            title = text(inner.get("filename"))
            return openai.media_at(inner["file_data"], "file", name=title, format=NAME, raw=block)
    found = {
        "mime": inner.get("mime_type", inner.get("media_type")),
        "data": inner.get("base64", inner.get("data")),
        "url": inner.get("url"),
        "file_id": inner.get("file_id", block.get("id") if "source_type" in block else None),
        "name": inner.get("filename"),
    }
    told = {key: value for key, value in found.items() if isinstance(value, str) and value}
    if not told.keys() & {"data", "url", "file_id"}:
        return Other(format=NAME, raw=block)
    kind: Any = block["type"] if block["type"] in ("image", "audio") else kind_of(told.get("mime"))
    return Media(kind=kind, **told, format=NAME, raw=block)


def _read_assistant(body: Block, content: tuple[Part, ...]) -> tuple[Part, ...]:
    parts: list[Part] = []
    more = body.get("additional_kwargs")
    reasoning = more.get("reasoning_content") if isinstance(more, dict) else None
    if isinstance(reasoning, str) and reasoning:
        parts.append(Thinking(reasoning, format=NAME))
    parts += content
    for key in ("tool_calls", "invalid_tool_calls"):
        for index, call in enumerate(elements(body, key)):
            try:
                parts.append(_read_call(call, index))
            except Malformed as error:
                raise error.under(f".{key}[{index}]") from None
    return tuple(parts)


def _read_call(block: Any, index: int) -> Part:
    if not isinstance(block, dict):
        raise Malformed("a call is not an object")
    tool = optional(block, "name") or "unknown"  # an invalid call may lack it
    id = optional(block, "id")
    made = id or f"call_{tool}_{index}"
    given = block.get("args", block.get("input"))
    return ToolCall(made, tool, given, not id, format=NAME, raw=block)


def _read_result(body: Block, content: tuple[Part, ...]) -> Part:
    if body["type"].startswith(("function", "Function")):
        tool = name(body, "name")
        return ToolResult(f"call_{tool}_0", content, tool, format=NAME, raw=body)
    failed = body.get("status") == "error"
    call = name(body, "tool_call_id")
    return ToolResult(call, content, optional(body, "name"), failed, format=NAME, raw=body)


def about(body: Block) -> About:
    """What a message tells of its call."""
    if isinstance(body.get("data"), dict) and "content" not in body:
        body = body["data"]
    more = body.get("response_metadata")
    more = more if isinstance(more, dict) else {}
    return About(
        usage=body.get("usage_metadata"),
        model=more.get("model_name") or more.get("model"),
        id=more.get("id") or body.get("id"),
        provider=more.get("model_provider"),
    )


def read_usage(usage: Any) -> Usage | None:
    """The tokens of a response. LangChain counts what came from the cache among the input."""
    if not isinstance(usage, dict):
        return None
    cached = tokens_in(usage, "input_token_details", "cache_read")
    written = tokens_in(usage, "input_token_details", "cache_creation")
    return Usage(
        input_tokens=max(tokens(usage, "input_tokens") - cached - written, 0),
        output_tokens=tokens(usage, "output_tokens"),
        cache_read_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=tokens_in(usage, "output_token_details", "reasoning"),
    )


# --- writing --------------------------------------------------------------------------------


class Writer(Writing):
    """LangChain's messages as JSON, from messages in normal form."""

    NAME = NAME

    def take(self, message: Message) -> int | None:
        place = len(self.messages)
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult):
                    self.messages.append(self._result(part))
                else:
                    self.drop(part)
        else:
            self.messages.append(self._message(message))
        return place

    def _message(self, message: Message) -> Block:
        extra = (message.extra or {}) if message.format == NAME else {}
        calls = [self._call(part) for part in message.parts if isinstance(part, ToolCall)]
        content = self._content(message.parts)
        if not content and not calls:
            content = LEFT_OUT
        written = {**extra, "type": _WRITTEN[message.role], "content": content}
        return {**written, "tool_calls": calls} if calls else written

    def _content(self, parts: Sequence[Part]) -> str | list[Any]:
        blocks: list[Any] = []
        for part in parts:
            if isinstance(part, ToolCall):
                continue
            if self.owns(part) and not isinstance(part, ToolResult):
                blocks.append(part.raw)
            elif isinstance(part, Text):
                blocks.append({"type": "text", "text": part.text})
            elif isinstance(part, Media) and not (part.file_id and part.format != NAME):
                blocks.append(_media_block(part))
            elif not (isinstance(part, Thinking) and part.format == NAME):
                # (Reasoning that lies beside the content goes along with `additional_kwargs`.)
                self.drop(part)
        plain = len(blocks) == 1 and blocks[0].keys() == {"type", "text"}
        return str(blocks[0]["text"]) if plain else blocks or ""

    def _call(self, part: ToolCall) -> Block:
        arguments = self.arguments(part)
        return {"name": part.name, "args": arguments, "id": part.id, "type": "tool_call"}

    def _result(self, part: ToolResult) -> Block:
        if self.owns(part) and part.raw["type"] in ("tool", "ToolMessageChunk"):
            return {**part.raw, "tool_call_id": part.call}
        written: Block = {"type": "tool", "content": self._content(part.content)}
        written["tool_call_id"] = part.call
        if part.name:
            written["name"] = part.name
        return {**written, "status": "error"} if part.is_error else written


def _media_block(part: Media) -> Block:
    named = {"mime_type": part.mime, "base64": part.data, "url": part.url, "file_id": part.file_id}
    block = {key: value for key, value in named.items() if value is not None}
    if part.name is not None:
        block["filename"] = part.name
    return {"type": part.kind, **block}


# --- rules ----------------------------------------------------------------------------------


def validate(messages: list[Any]) -> list[Violation]:
    """Every rule that messages break which LangChain's integrations would stumble over."""
    return _Judge(messages).judge(messages)


class _Judge(Judge):
    def judge(self, messages: list[Any]) -> list[Violation]:
        pairs = Pairs(self)
        for message in self.each(messages):
            kind = message.get("type")
            if not self.known(kind, {*_ROLES, "chat", "ChatMessageChunk"}, "type", "type"):
                continue
            if _ROLES.get(str(kind)) == "tool":
                pairs.result(message.get("tool_call_id"))
            else:
                pairs.close()
            content = message.get("content")
            if not isinstance(content, str) and content != []:
                for block in content if isinstance(content, list) else [content]:
                    if not isinstance(block, str):
                        self.text(self.object(block, "a block"), "type")
            if message.get("tool_calls"):
                told = _ROLES.get(str(kind)) == "assistant"
                self.holds(told, "block_place", f"calls stand in a message of type {kind}")
                for call in self.objects(message["tool_calls"], "tool_calls"):
                    pairs.call(call.get("id"))
                    named = isinstance(call.get("name"), str) and bool(call["name"])
                    self.holds(named, "tool_name", "a call names no tool")
                    self.object(call.get("args"), "args")
        pairs.close()
        return self.found
