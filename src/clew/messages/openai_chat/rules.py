"""The rules of OpenAI's Chat Completions API about `messages`."""

from __future__ import annotations

import re
from typing import Any

from clew.messages.neutral import Violation
from clew.messages.shared.rules import Judge, Pairs

Block = dict[str, Any]

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
ID_LENGTH_MAX = 40
SPEAKER = re.compile(r"[^\s<|\\/>]{1,64}")
CONTENT = {
    "system": ("text",),
    "developer": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text",),
}
BLOCKS = frozenset(kind for kinds in CONTENT.values() for kind in kinds)


def validate(messages: list[Any]) -> list[Violation]:
    """Every rule that the messages of a request break."""
    return _Judge(messages).judge(messages)


class _Judge(Judge):
    def judge(self, messages: list[Any]) -> list[Violation]:
        self._pairs = Pairs(self)
        for message in self.each(messages):
            role = message.get("role")
            if not self.known(role, CONTENT, "role", "role"):
                continue
            if role == "tool":
                self._pairs.result(message.get("tool_call_id"))
            else:
                self._pairs.close()
            self._content(str(role), message)
            if "name" in message:
                self.matches(message["name"], SPEAKER, "speaker", "name")
            if "tool_calls" in message:
                self._calls(message, role)
        self._pairs.close()
        return self.found

    def _content(self, role: str, message: Block) -> None:
        content = message.get("content")
        if content is None:
            calls = role == "assistant" and any(
                message.get(key) for key in ("tool_calls", "refusal", "audio")
            )
            self.holds(calls, "no_content", f"a {role} message has no content")
        elif not isinstance(content, str):
            for block in self.objects(content, "content"):
                self._block(role, block)

    def _block(self, role: str, block: Block) -> None:
        kind = self.text(block, "type")
        fits = kind not in BLOCKS or kind in CONTENT[role]  # a type that came later is no fault
        if not self.holds(fits, "block_place", f"a {kind} block stands in a {role} message"):
            return
        match kind:
            case "text" | "refusal":
                self.text(block, kind)
            case "image_url":
                self._image(self.object(block.get("image_url"), "image_url"))
            case "input_audio":
                audio = self.object(block.get("input_audio"), "input_audio")
                self.text(audio, "data")
                self.known(audio.get("format"), ("wav", "mp3"), "media_type", "format")
            case "file":
                file = self.object(block.get("file"), "file")
                given = bool(file.get("file_data") or file.get("file_id"))
                self.holds(given, "shape", "a file has neither file_data nor file_id")

    def _image(self, image: Block) -> None:
        url = self.text(image, "url") or ""
        if url.startswith("data:"):
            known = re.match(r"data:image/(jpeg|png|gif|webp);base64,", url) is not None
            self.holds(known, "media_type", "an image is not JPEG, PNG, GIF or WebP")

    def _calls(self, message: Block, role: Any) -> None:
        self.holds(role == "assistant", "block_place", f"calls stand in a {role} message")
        for call in self.objects(message["tool_calls"], "tool_calls"):
            id = call.get("id")
            fits = isinstance(id, str) and 0 < len(id) <= ID_LENGTH_MAX
            self.holds(fits, "call_id", f"id {id!r} has not 1 to {ID_LENGTH_MAX} characters")
            self._pairs.call(id)
            kind = call.get("type")
            if not self.known(kind, ("function", "custom"), "shape", "the type of a call"):
                continue
            tool = self.object(call.get(str(kind)), str(kind))
            self.matches(tool.get("name"), NAME, "tool_name", "name")
            key = "arguments" if kind == "function" else "input"
            given = isinstance(tool.get(key), str)
            self.holds(given, "arguments", f"the {key} of a call are not a string")
