"""Messages as Pydantic AI stores them: what `ModelMessagesTypeAdapter` dumps and validates.

    {"kind": "request", "parts": [{"part_kind": "system-prompt" | "user-prompt" | "tool-return" …}]}
    {"kind": "response", "parts": [{"part_kind": "text" | "thinking" | "tool-call" …}], "usage": …}

A request carries what the system, the user and the tools say, so it is read as a message for each
of them, and written as one again. Its instructions are those of one run, and no message.
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
from clew.messages.shared.media import dump, kind_of
from clew.messages.shared.read import (
    Malformed,
    checked,
    each,
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

NAME = "pydantic-ai"

Block = dict[str, Any]

_ADDRESSES = {"image-url": "image", "audio-url": "audio", "document-url": "file"}
_TO_URL_SAFE = str.maketrans("+/", "-_")


# --- reading --------------------------------------------------------------------------------


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of a request, as a message for each who speaks in it, or of a response."""
    if not isinstance(body, dict):
        raise Malformed("a message is not an object")
    extra = {key: value for key, value in body.items() if key not in ("parts", "kind")}
    parts = body.get("parts")
    if not isinstance(parts, list):
        raise Malformed("parts is not a list", ".parts")
    if body.get("kind") == "response":
        said = about(body)
        return [
            Message(
                role="assistant",
                parts=each(parts, _read_reply_part, ".parts"),
                format=NAME,
                extra=extra,
                usage=read_usage(said.usage),
                model=text(said.model),
            )
        ]
    if body.get("kind") != "request":
        raise Malformed("kind is neither request nor response", ".kind")
    return _read_request(parts, extra)


def _read_request(blocks: list[Any], extra: dict[str, Any]) -> list[Message]:
    """One message of the tools, first, and one for each run of parts of the system or the user."""
    results: list[Part] = []
    spoken: list[tuple[Role, list[Part]]] = []
    for index, block in enumerate(blocks):
        path = f".parts[{index}]"
        if not isinstance(block, dict):
            raise Malformed("a part is not an object", path)
        try:
            role, parts = _read_request_part(block)
        except Malformed as error:
            raise error.under(path) from None
        if role == "tool":
            results += parts
        elif spoken and spoken[-1][0] == role:
            spoken[-1][1].extend(parts)
        else:
            spoken.append((role, parts))
    if results:
        spoken.insert(0, ("tool", results))
    if not spoken:
        spoken.append(("user", []))
    return [
        Message(role=role, parts=tuple(parts), format=NAME, extra=extra) for role, parts in spoken
    ]


def _read_request_part(block: Block) -> tuple[Role, list[Part]]:
    match string(block, "part_kind"):
        case "system-prompt":
            return "system", [Text(string(block, "content"), format=NAME, raw=block)]
        case "user-prompt":
            return "user", _read_prompt(block)
        case "tool-return":
            return "tool", [_read_result(block, block.get("outcome") not in (None, "success"))]
        case "retry-prompt" if block.get("tool_name"):
            return "tool", [_read_result(block, True)]
        case "retry-prompt" | "retry-feedback":
            content = block.get("content")
            text = content if isinstance(content, str) else dump(content)
            return "user", [Text(text, format=NAME, raw=block)]
        case "speech" if isinstance(block.get("transcript"), str):
            return "user", [Text(block["transcript"], format=NAME, raw=block)]
    return "user", [Other(format=NAME, raw=block)]


def _read_prompt(block: Block) -> list[Part]:
    """What the user says. Items of a list remember the prompt that they are to be put into again.

    By identity: two prompts that say the same are still two.
    """
    content = block.get("content")
    if isinstance(content, str):
        return [Text(content, format=NAME, raw=block)]
    if not isinstance(content, list):
        raise Malformed("content is neither a text nor a list", ".content")
    head = {key: value for key, value in block.items() if key != "content"}
    parts: list[Part] = []
    for index, item in enumerate(content):
        raw = {"prompt": head, "item": item}
        try:
            parts.append(_read_item(item, raw))
        except Malformed as error:
            raise error.under(f".content[{index}]") from None
    return parts


def _read_item(item: Any, raw: Any) -> Part:
    """A text or a file, in what the user says or a tool gives; `raw` is None within a result."""
    known = None if raw is None else NAME
    if isinstance(item, str):
        return Text(item, format=known, raw=raw)
    if not isinstance(item, dict):
        raise Malformed("an item is neither a text nor an object")
    kind = optional(item, "kind")
    mime = optional(item, "media_type")
    if kind in ("text-content", "structured-content"):
        return Text(string(item, "content"), format=known, raw=raw)
    if kind == "binary":
        return Media(
            kind=kind_of(mime), mime=mime, data=string(item, "data"), format=known, raw=raw
        )
    if kind in _ADDRESSES or kind == "video-url":
        url: Any = _ADDRESSES.get(kind, "file")
        return Media(kind=url, mime=mime, url=string(item, "url"), format=known, raw=raw)
    if kind == "uploaded-file":
        file = string(item, "file_id")
        return Media(kind=kind_of(mime), mime=mime, file_id=file, format=known, raw=raw)
    return Other(format=NAME, raw=raw or item)


def _read_result(block: Block, failed: bool) -> Part:
    return ToolResult(
        name(block, "tool_call_id"),
        _read_output(block.get("content")),
        optional(block, "tool_name"),
        failed,
        format=NAME,
        raw=block,
    )


def _read_output(content: Any) -> tuple[Part, ...]:
    """What a tool gave: any JSON, in which files may stand by themselves or in a list."""
    if content is None or content == "":
        return ()
    if isinstance(content, str):
        return (Text(content),)
    if _is_file(content):
        return (_read_item(content, None),)
    if isinstance(content, list) and any(map(_is_file, content)):
        return tuple(
            _read_item(item, None) if _is_file(item) or isinstance(item, str) else Text(dump(item))
            for item in content
        )
    return (Text(dump(content)),)


def _is_file(item: Any) -> bool:
    if not isinstance(item, dict):
        return False
    if item.get("kind") == "binary":
        return isinstance(item.get("data"), str)
    return item.get("kind") in (*_ADDRESSES, "video-url") and isinstance(item.get("url"), str)


def _read_reply_part(block: Block) -> Part:
    match block.get("part_kind"):
        case "text":
            return Text(string(block, "content"), format=NAME, raw=block)
        case "thinking":
            signature = optional(block, "signature") or None
            return Thinking(string(block, "content"), signature, format=NAME, raw=block)
        case "tool-call":
            id, tool = name(block, "tool_call_id"), name(block, "tool_name")
            return ToolCall(id, tool, block.get("args"), format=NAME, raw=block)
        case "file":
            found = _read_item(fields(block, "content"), block)
            return found if isinstance(found, Media) else Other(format=NAME, raw=block)
        case "speech" if isinstance(block.get("transcript"), str):
            return Text(block["transcript"], format=NAME, raw=block)
    string(block, "part_kind")
    return Other(format=NAME, raw=block)


def about(body: Block) -> About:
    """What a response tells of its call."""
    return About(
        usage=body.get("usage"),
        model=body.get("model_name"),
        id=body.get("provider_response_id"),
        provider=body.get("provider_name"),
    )


def read_usage(usage: Any) -> Usage | None:
    """The tokens of a response. What came from the cache is counted in `input_tokens`, too."""
    if not isinstance(usage, dict):
        return None
    cached, written = tokens(usage, "cache_read_tokens"), tokens(usage, "cache_write_tokens")
    return Usage(
        input_tokens=max(0, tokens(usage, "input_tokens") - cached - written),
        output_tokens=tokens(usage, "output_tokens"),
        cache_read_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=tokens(usage, "output_reasoning_tokens")
        or tokens_in(usage, "details", "reasoning_tokens"),
    )


# --- writing --------------------------------------------------------------------------------


class Writer(Writing):
    """A message history, from messages in normal form. System messages stand within requests."""

    NAME = NAME

    def __init__(self) -> None:
        super().__init__()
        self._open: Any = None  # what the last request was read with; None: it was made here
        self._prompt: Any = None  # the prompt that the last item of the user belongs to

    def take(self, message: Message) -> int | None:
        if message.role == "assistant":
            return self._reply(message)
        own = message.extra if message.format == self.NAME else None
        last = self.messages[-1] if self.messages else {}
        if last.get("kind") != "request" or (own is not None and own is not self._open):
            # Requests that were two stay two. What other formats keep apart, the results and
            # the user's words, is one request here.
            self.messages.append({**(own or {}), "kind": "request", "parts": []})
            self._open, self._prompt = own, None
        parts: list[Block] = self.messages[-1]["parts"]
        before = len(parts)
        if message.role == "user":
            self._take_user(message, parts)
        else:
            for part in message.parts:
                self._take_part(part, parts)
        if len(parts) == before and self._prompt is None:
            parts.append({"part_kind": "user-prompt", "content": LEFT_OUT})
        return len(self.messages) - 1

    def _take_part(self, part: Part, parts: list[Block]) -> None:
        """A part of the system or of a tool."""
        self._prompt = None
        if isinstance(part, Text):
            made = {"part_kind": "system-prompt", "content": part.text}
            parts.append(part.raw if self.owns(part) else made)
        elif isinstance(part, ToolResult):
            parts.append(self._result(part))
        elif isinstance(part, Media):
            text = self.replace_media(part)
            parts.append({"part_kind": "system-prompt", "content": text})
        else:
            self.drop(part)

    def _take_user(self, message: Message, parts: list[Block]) -> None:
        made: list[Any] = []  # items that come from elsewhere: they become one prompt
        for part in message.parts:
            if self.owns(part) and not isinstance(part, Thinking | ToolCall | ToolResult):
                self._flush(made, parts)
                self._take_own(part, parts)
            elif isinstance(part, Text):
                made.append(part.text)
            elif isinstance(part, Media):
                made.append(self._file(part))
            else:
                self.drop(part)
        self._flush(made, parts)

    def _take_own(self, part: Part, parts: list[Block]) -> None:
        raw: Block = part.raw
        if "prompt" not in raw:
            self._prompt = None
            parts.append(raw)
        elif raw["prompt"] is self._prompt:
            parts[-1]["content"].append(raw["item"])
        else:
            self._prompt = raw["prompt"]
            parts.append({**raw["prompt"], "content": [raw["item"]]})

    def _flush(self, made: list[Any], parts: list[Block]) -> None:
        if not made:
            return
        self._prompt = None
        only = made[0] if len(made) == 1 and isinstance(made[0], str) else list(made)
        parts.append({"part_kind": "user-prompt", "content": only})
        made.clear()

    def _reply(self, message: Message) -> int | None:
        parts: list[Block] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                parts.append(self._call(part))
            elif self.owns(part):
                parts.append(part.raw)
            elif isinstance(part, Text):
                parts.append({"part_kind": "text", "content": part.text})
            elif isinstance(part, Media):
                file = self._file(part)
                whole = isinstance(file, dict) and file["kind"] == "binary"
                text = file if isinstance(file, str) else self.replace_media(part)
                said = {"part_kind": "text", "content": text}
                parts.append({"part_kind": "file", "content": file} if whole else said)
            else:
                self.drop(part)
        if not parts:
            return None
        extra: Block = (message.extra or {}) if message.format == self.NAME else {}
        if not extra and message.model is not None:
            extra = {"model_name": message.model}
        self.messages.append({**extra, "kind": "response", "parts": parts})
        return len(self.messages) - 1

    def _call(self, part: ToolCall) -> Block:
        if not self.owns(part):
            return {
                "part_kind": "tool-call",
                "tool_name": part.name,
                "args": self.arguments(part),
                "tool_call_id": part.id,
            }
        raw: Block = part.raw
        return raw if raw["tool_call_id"] == part.id else {**raw, "tool_call_id": part.id}

    def _result(self, part: ToolResult) -> Block:
        if self.owns(part):
            raw: Block = part.raw
            return raw if raw["tool_call_id"] == part.call else {**raw, "tool_call_id": part.call}
        content: list[Any] = []
        for inner in part.content:
            if isinstance(inner, Text):
                content.append(inner.text)
            elif isinstance(inner, Media):
                content.append(self._file(inner))
            else:
                self.drop(inner)
        texts = all(isinstance(item, str) for item in content)
        return {
            "part_kind": "tool-return",
            "tool_name": part.name or "",
            "content": "\n".join(content) if texts else content,
            "tool_call_id": part.call,
            "outcome": "failed" if part.is_error else "success",
        }

    def _file(self, part: Media) -> Block | str:
        """A file as an item, or a text in its place: ids of files mean nothing elsewhere."""
        if part.data is not None:
            # Pydantic decodes the alphabet for addresses only.
            data = part.data.translate(_TO_URL_SAFE)
            mime = part.mime or "application/octet-stream"
            return {"kind": "binary", "data": data, "media_type": mime}
        if part.url is None:
            return self.replace_media(part)
        kinds = {"image": "image-url", "audio": "audio-url", "file": "document-url"}
        kind = "video-url" if (part.mime or "").startswith("video/") else kinds[part.kind]
        return {"kind": kind, "url": part.url} | ({"media_type": part.mime} if part.mime else {})


# --- rules ----------------------------------------------------------------------------------


def validate(messages: list[Any]) -> list[Violation]:
    """Every rule that a message history breaks: of shape, and that calls and results pair up."""
    return _Judge(messages).judge(messages)


class _Judge(Judge):
    def judge(self, messages: list[Any]) -> list[Violation]:
        pairs = Pairs(self)
        for message in self.each(messages):
            kind = message.get("kind")
            if not self.known(kind, ("request", "response"), "role", "kind"):
                continue
            blocks = self.objects(message.get("parts"), "parts")
            if kind == "response":
                pairs.close()
            for block in blocks:
                self._block(kind, block, pairs)
            if kind == "request":
                pairs.close()
        pairs.close()
        return self.found

    def _block(self, kind: Any, block: Block, pairs: Pairs) -> None:
        of_reply = ("text", "thinking", "tool-call", "file", "builtin-tool-call")
        of_request = ("system-prompt", "user-prompt", "tool-return", "retry-prompt")
        match self.text(block, "part_kind"):
            case "tool-call":
                pairs.call(block.get("tool_call_id"))
                named = isinstance(block.get("tool_name"), str) and bool(block["tool_name"])
                self.holds(named, "tool_name", "a call names no tool")
            case "tool-return":
                self.text(block, "tool_name")
                pairs.result(block.get("tool_call_id"))
            case "retry-prompt" if block.get("tool_name"):
                pairs.result(block.get("tool_call_id"))
            case "text" | "thinking" | "system-prompt":
                self.text(block, "content")
            case "user-prompt":
                fits = isinstance(block.get("content"), str | list)
                self.holds(fits, "shape", "content is neither a text nor a list")
        part = block.get("part_kind")
        wrong = of_request if kind == "response" else of_reply
        self.holds(part not in wrong, "block_place", f"a {part} part stands in a {kind}")
