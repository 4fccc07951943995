"""Writing contents of Google's generateContent API."""

from __future__ import annotations

import re
from typing import Any

from clew.messages.neutral import Media, Message, Text, ToolCall, ToolResult
from clew.messages.shared.media import standard_base64
from clew.messages.shared.write import LEFT_OUT, NO_OUTPUT, Limits, Writing

# The documented value for a call that the model did not make itself and that has no signature.
UNSIGNED = "skip_thought_signature_validator"
# Media that the result of a call may hold.
IN_RESULTS = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})
# Pictures that a content may hold. Of the other media new types come often, so none is refused.
IMAGES = frozenset(f"image/{kind}" for kind in ("png", "jpeg", "webp", "heic", "heif"))

Block = dict[str, Any]


class Writer(Writing):
    """Request contents, from messages in normal form."""

    NAME = "gemini"
    LIMITS = Limits(re.compile(r"[ -~]+"), re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}"), 128)

    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[str, tuple[str | None, str]] = {}  # id → id and name as written
        self._answering = False  # whether the last content holds results

    def take(self, message: Message) -> int | None:
        if message.role == "system":
            self.system = self.system or {"parts": []}
            self.system["parts"] += self._texts(message)
            return None
        if message.role == "tool":
            results = []
            for part in message.parts:
                if isinstance(part, ToolResult):
                    results.append(self._result(part))
                else:
                    self.drop(part)
            self.messages.append({"role": "user", "parts": results})
            self._answering = True
            return len(self.messages) - 1
        parts = self._parts(message)
        if message.role == "assistant":
            return self._place("model", parts) if parts else None
        return self._place("user", parts or [{"text": LEFT_OUT}])

    def _place(self, role: str, parts: list[Block]) -> int:
        # Results stand alone: some models count other parts beside them as answers, too.
        last = self.messages[-1] if self.messages else {}
        if last.get("role") == role and not self._answering:
            last["parts"] += parts
        else:
            self.messages.append({"role": role, "parts": parts})
        self._answering = False
        return len(self.messages) - 1

    # --- parts ------------------------------------------------------------------------------

    def _texts(self, message: Message) -> list[Block]:
        """System instructions are text only."""
        parts = []
        for part in message.parts:
            if isinstance(part, Text):
                parts.append(part.raw if self.owns(part) else {"text": part.text})
            elif isinstance(part, Media):
                parts.append({"text": self.replace_media(part)})
            else:
                self.drop(part)
        return parts

    def _parts(self, message: Message) -> list[Block]:
        parts: list[Block] = []
        called = False
        for part in message.parts:
            if isinstance(part, ToolCall):
                parts.append(self._call(part, first=not called))
                called = True
            elif self.owns(part) and not isinstance(part, ToolResult):
                parts.append(part.raw)
            elif isinstance(part, Text):
                parts.append({"text": part.text})
            elif isinstance(part, Media):
                parts.append(_media_part(part) or {"text": self.replace_media(part)})
            else:
                self.drop(part)
        return parts

    def _call(self, part: ToolCall, *, first: bool) -> Block:
        id, name, arguments = self.call_id(part.id), self.tool_name(part.name), self.arguments(part)
        self.note_changes(part, id, name)
        if not self.owns(part):
            self._calls[part.id] = id, name
            made = {"functionCall": {"id": id, "name": name, "args": arguments}}
            return {**made, "thoughtSignature": UNSIGNED} if first else made
        raw: Block = part.raw
        key = "functionCall" if "functionCall" in raw else "function_call"
        call: Block = raw[key]
        changed: Block = {}
        if call.get("id") and call["id"] != id:
            changed["id"] = id
        if call["name"] != name:
            changed["name"] = name
        if not isinstance(call.get("args") or {}, dict):
            changed["args"] = arguments
        self._calls[part.id] = id if call.get("id") else None, name
        return {**raw, key: {**call, **changed}} if changed else raw

    def _result(self, part: ToolResult) -> Block:
        made_up = self.call_id(part.call), self.tool_name(part.name or "")
        id, name = self._calls.get(part.call, made_up)
        if not self.owns(part):
            return {"functionResponse": self._response(part, id, name)}
        raw: Block = part.raw
        key = "functionResponse" if "functionResponse" in raw else "function_response"
        result: Block = raw[key]
        response = result.get("response")
        if not isinstance(response, dict):
            response = {} if response is None else {"output": response}
        fits = (result.get("id") or None, result["name"]) == (id, name)
        if fits and response is result.get("response"):
            return raw
        kept = {k: v for k, v in result.items() if k != "id"}
        changed = {**kept, "name": name, "response": response}
        return {**raw, key: changed if id is None else {"id": id, **changed}}

    def _response(self, part: ToolResult, id: str | None, name: str) -> Block:
        texts, media = [], []
        for inner in part.content:
            if isinstance(inner, Text):
                texts.append(inner.text)
            elif isinstance(inner, Media):
                block = _media_part(inner) if inner.mime in IN_RESULTS else None
                if block is not None and "inlineData" in block:
                    media.append(block)
                else:
                    texts.append(self.replace_media(inner))
            else:
                self.drop(inner)
        text = "\n".join(texts)
        response = {"error": text or NO_OUTPUT} if part.is_error else {"output": text}
        written: Block = {"id": id} if id is not None else {}
        written |= {"name": name, "response": response}
        return {**written, "parts": media} if media else written


def _media_part(part: Media) -> Block | None:
    """Media in a content, or None for what the API does not take."""
    if part.kind == "image" and part.mime is not None and part.mime not in IMAGES:
        return None
    if part.data is not None and part.mime is not None:
        data = standard_base64(part.data)
        return {"inlineData": {"mimeType": part.mime, "data": data}}
    if part.url is None:
        return None
    return {"fileData": ({"mimeType": part.mime} if part.mime else {}) | {"fileUri": part.url}}
