"""Messages of Bedrock's Converse API, which is also how Strands keeps them.

    {"role": "user" | "assistant", "content": [{"text": …} | {"toolUse": …} | {"toolResult": …} …]}

A block is named by its only key. JSON has no bytes, so those of images and files are written as
Strands writes them, {"__bytes_encoded__": true, "data": base64}; base64 alone is read as well.
System messages become `Written.system`, a list of text blocks. Results come first in the user
message that follows their calls; neighbours of one role become one message.
"""

from __future__ import annotations

import re
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
from clew.messages.shared.media import dump, standard_base64
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
    tokens,
)
from clew.messages.shared.rules import Judge, Pairs
from clew.messages.shared.write import LEFT_OUT, NO_OUTPUT, Limits, Writing

__all__ = ["NAME", "Writer", "about", "read", "read_usage", "validate"]

NAME = "converse"

Block = dict[str, Any]

_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
_DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
_MIMES = {word: mime for mime, word in (_IMAGES | _DOCUMENTS).items()}
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


# --- reading --------------------------------------------------------------------------------


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of a message; results in a user message are read as a tool message."""
    role = role_of(body, _ROLES)
    content = body.get("content")
    if not isinstance(content, list):
        raise Malformed("content is not a list of blocks", ".content")
    parts = each(content, _read_block)
    if role == "user":
        return split_results(Message(role=role, parts=parts, format=NAME))
    return [Message(role=role, parts=parts, format=NAME, usage=read_usage(about(body).usage))]


def about(body: Block) -> About:
    """What a message tells of its call. Which model it was, only the request says."""
    metadata = body.get("metadata")
    return About(usage=metadata.get("usage")) if isinstance(metadata, dict) else About()


def _read_block(block: Block) -> Part:
    if "text" in block:
        return Text(string(block, "text"), format=NAME, raw=block)
    if "toolUse" in block:
        call = fields(block, "toolUse")
        id, tool = name(call, "toolUseId", "toolUse"), name(call, "name", "toolUse")
        return ToolCall(id, tool, call.get("input"), format=NAME, raw=block)
    if "toolResult" in block:
        return _read_result(block)
    if "reasoningContent" in block:
        return _read_reasoning(block)
    for kind in ("image", "document", "video", "audio"):
        if kind in block:
            return _read_media(block, kind)
    if not block:
        raise Malformed("a block is empty")
    return Other(format=NAME, raw=block)


def _read_result(block: Block) -> Part:
    result = fields(block, "toolResult")
    content: list[Part] = []
    for index, inner in enumerate(elements(result, "content")):
        if not isinstance(inner, dict):
            raise Malformed("a block is not an object", f".toolResult.content[{index}]")
        content.append(Text(dump(inner["json"])) if "json" in inner else _read_block(inner))
    return ToolResult(
        name(result, "toolUseId", "toolResult"),
        tuple([part for part in content if not isinstance(part, Text) or part.text]),
        is_error=result.get("status") == "error",
        format=NAME,
        raw=block,
    )


def _read_reasoning(block: Block) -> Part:
    reasoning = fields(block, "reasoningContent")
    if "reasoningText" in reasoning:
        said = fields(reasoning, "reasoningText")
        signature = optional(said, "signature", "reasoningText") or None
        return Thinking(optional(said, "text") or "", signature, format=NAME, raw=block)
    hidden = _bytes(reasoning.get("redactedContent"))
    if hidden is None:
        return Other(format=NAME, raw=block)
    return Thinking("", hidden, format=NAME, raw=block)


def _read_media(block: Block, kind: str) -> Part:
    file = fields(block, kind)
    word = optional(file, "format", kind) or ""
    mime = _MIMES.get(word, f"{kind}/{word}" if word and kind != "document" else None)
    source = file.get("source")
    data = _bytes(source.get("bytes")) if isinstance(source, dict) else None
    if data is None:
        return Other(format=NAME, raw=block)  # a place in S3 means nothing to others
    named: Any = {"image": "image", "audio": "audio"}.get(kind, "file")
    title = file.get("name")
    return Media(
        kind=named,
        mime=mime,
        data=data,
        name=title if isinstance(title, str) else None,
        format=NAME,
        raw=block,
    )


def _bytes(value: Any) -> str | None:
    """Base64, from the object that Strands makes of bytes, or as it is."""
    if isinstance(value, dict) and value.get("__bytes_encoded__") is True:
        value = value.get("data")
    return value if isinstance(value, str) else None


def read_usage(usage: Any) -> Usage | None:
    """The tokens of a response."""
    if not isinstance(usage, dict):
        return None
    return Usage(
        input_tokens=tokens(usage, "inputTokens"),
        output_tokens=tokens(usage, "outputTokens"),
        cache_read_tokens=tokens(usage, "cacheReadInputTokens"),
        cache_write_tokens=tokens(usage, "cacheWriteInputTokens"),
    )


# --- writing --------------------------------------------------------------------------------


class Writer(Writing):
    """Request messages, from messages in normal form."""

    NAME = NAME
    LIMITS = Limits(_ID, _ID, 64)

    def __init__(self) -> None:
        super().__init__()
        self._documents = 0

    def take(self, message: Message) -> int | None:
        if message.role == "system":
            texts = [self._words(part) for part in message.parts]
            self.system = (self.system or []) + [block for block in texts if block is not None]
            return None
        role = "assistant" if message.role == "assistant" else "user"
        made = [self._block(part, role) for part in message.parts]
        blocks = [block for block in made if block is not None]
        # The model has to say something after its thoughts, as with Anthropic.
        while role == "assistant" and blocks and "reasoningContent" in blocks[-1]:
            blocks.pop()
            self.lose("thinking_dropped", "thinking must not be the end of a message")
        if not blocks:
            if role == "assistant":
                return None
            blocks = [{"text": LEFT_OUT}]
        if not self.messages or self.messages[-1]["role"] != role:
            self.messages.append({"role": role, "content": []})
        self.messages[-1]["content"].extend(blocks)
        return len(self.messages) - 1

    def _words(self, part: Part) -> Block | None:
        if isinstance(part, Text):
            return {"text": part.text}
        if isinstance(part, Media):
            return {"text": self.replace_media(part)}
        self.drop(part)
        return None

    def _block(self, part: Part, role: str) -> Block | None:
        own: Block | None = part.raw if self.owns(part) else None
        if isinstance(part, ToolCall):
            return self._call(part, own)
        if isinstance(part, ToolResult):
            return self._result(part, own)
        if isinstance(part, Media) and own is None:
            return self._media(part, role)
        if own is not None and (not isinstance(part, Thinking) or part.signature):
            return own
        return self._words(part)

    def _call(self, part: ToolCall, own: Block | None) -> Block:
        id, tool, arguments = self.call_id(part.id), self.tool_name(part.name), self.arguments(part)
        self.note_changes(part, id, tool)
        call = {} if own is None else own["toolUse"]
        return {"toolUse": {**call, "toolUseId": id, "name": tool, "input": arguments}}

    def _result(self, part: ToolResult, own: Block | None) -> Block:
        id = self.call_id(part.call)
        if own is not None:
            result = own["toolResult"]
            content = [inner for inner in result.get("content") or () if not _is_blank(inner)]
        else:
            result = {"status": "error" if part.is_error else "success"}
            made = [self._block(inner, "user") for inner in part.content]
            content = [inner for inner in made if inner is not None and not _is_blank(inner)]
        return {
            "toolResult": {**result, "toolUseId": id, "content": content or [{"text": NO_OUTPUT}]}
        }

    def _media(self, part: Media, role: str) -> Block:
        mime = part.mime or ""
        if part.data is not None and role == "user":
            data = {"__bytes_encoded__": True, "data": standard_base64(part.data)}
            if mime in _IMAGES:
                return {"image": {"format": _IMAGES[mime], "source": {"bytes": data}}}
            if mime in _DOCUMENTS:
                # Names of documents have to be there, and to differ; few characters are taken.
                self._documents += 1
                given = re.sub(r"[^a-zA-Z0-9 \-()\[\]]+|(?<= ) +", " ", part.name or "").strip()
                title = f"{given[:180]} {self._documents}" if given else f"file {self._documents}"
                file = {"format": _DOCUMENTS[mime], "name": title, "source": {"bytes": data}}
                return {"document": file}
        return {"text": self.replace_media(part)}


def _is_blank(block: Block) -> bool:
    return isinstance(block.get("text"), str) and not block["text"].strip()


# --- rules ----------------------------------------------------------------------------------


def validate(messages: list[Any]) -> list[Violation]:
    """Every rule that the messages of a request break."""
    return _Judge(messages).judge(messages)


class _Judge(Judge):
    def judge(self, messages: list[Any]) -> list[Violation]:
        self._pairs = Pairs(self)
        role: Any = None
        for message in self.each(messages):
            before, role = role, message.get("role")
            if not self.known(role, _ROLES, "role", "role"):
                continue
            if self.index == 0:
                self.holds(role == "user", "first_user", "the first message is not the user's")
            else:
                self.holds(role != before, "alternation", f"two {role} messages in a row")
            if role == "assistant":
                self._pairs.close()
            for block in self.objects(message.get("content"), "content"):
                self._block(role, block)
            if role == "user":
                self._pairs.close()
        self._pairs.close()
        open_call = any(found.rule == "unanswered_call" for found in self.found)
        if role == "assistant" and not open_call:
            text = "the last message is the assistant's"
            self.found.append(Violation("last_user", text, len(messages) - 1))
        return self.found

    def _block(self, role: Any, block: Block) -> None:
        if "text" in block:
            text = self.text(block, "text")
            self.holds(text is None or bool(text.strip()), "empty_text", "a text block is blank")
        elif "toolUse" in block:
            call = self.object(block["toolUse"], "toolUse")
            self.holds(role == "assistant", "block_place", "a call stands in a user message")
            self.matches(call.get("toolUseId"), _ID, "call_id", "toolUseId")
            self.matches(call.get("name"), _ID, "tool_name", "name")
            self.holds(isinstance(call.get("input"), dict), "arguments", "input is not an object")
            self._pairs.call(call.get("toolUseId"))
        elif "toolResult" in block:
            result = self.object(block["toolResult"], "toolResult")
            self.holds(role == "user", "block_place", "a result stands in a reply")
            self._pairs.result(result.get("toolUseId"))
            for inner in self.objects(result.get("content"), "content of a result"):
                self.holds(not _is_blank(inner), "empty_text", "a text block is blank")
        elif "image" in block or "document" in block:
            self.holds(role == "user", "block_place", "a file stands in a reply")
