"""The rules of Google's generateContent API about `contents`."""

from __future__ import annotations

import re
from typing import Any

from clew.messages.neutral import Violation
from clew.messages.shared.rules import Judge

Block = dict[str, Any]

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
# A part has exactly one of these. The protocol's own names are taken as well as JSON's.
DATA = {
    "text": "text",
    "inlineData": "inlineData",
    "inline_data": "inlineData",
    "fileData": "fileData",
    "file_data": "fileData",
    "functionCall": "functionCall",
    "function_call": "functionCall",
    "functionResponse": "functionResponse",
    "function_response": "functionResponse",
    "executableCode": "executableCode",
    "executable_code": "executableCode",
    "codeExecutionResult": "codeExecutionResult",
    "code_execution_result": "codeExecutionResult",
    "toolCall": "toolCall",
    "tool_call": "toolCall",
    "toolResponse": "toolResponse",
    "tool_response": "toolResponse",
}
PLACES = {"functionCall": "model", "functionResponse": "user"}


def validate(messages: list[Any]) -> list[Violation]:
    """Every rule that the contents of a request break."""
    return _Judge(messages).judge(messages)


class _Judge(Judge):
    def judge(self, messages: list[Any]) -> list[Violation]:
        self._calls: list[Block] = []  # of the content before, not answered yet
        self._called_at: int | None = None
        before, answering = None, False
        for content in self.each(messages):
            role = content.get("role")
            parts = self.objects(content.get("parts"), "parts")
            if self.known(role, ("user", "model"), "role", "role"):
                self._order(before, role, answering)
            found = [self._part(role, part) for part in parts]
            results = [data for kind, data in found if kind == "functionResponse"]
            self._answer(results)
            self._calls = [data for kind, data in found if kind == "functionCall"]
            self._called_at = self.index
            before, answering = role, bool(results)
        if before == "model" and not self._calls:
            text = "the last content is the model's"
            self.found.append(Violation("last_user", text, len(messages) - 1))
        self._answer([])
        return self.found

    def _order(self, before: Any, role: Any, answering: bool) -> None:
        """Turns alternate; a user may speak after the results of calls, which are a turn apart."""
        if self.index == 0:
            self.holds(role == "user", "first_user", "the first content is not the user's")
        else:
            apart = role == "user" and answering
            self.holds(role != before or apart, "alternation", f"two {role} contents in a row")

    def _part(self, role: Any, part: Block) -> tuple[str, Block]:
        """What kind of data a part has, and the data if it is an object."""
        keys = [key for key in part if key in DATA and part[key] is not None]
        self.holds(len(keys) <= 1, "one_field", f"a part has {' and '.join(keys)}")
        self.holds(bool(part), "one_field", "a part has no field")
        kind = DATA[keys[0]] if keys else ""
        if kind == "text":
            self._text(part)
            return kind, {}
        if not kind:
            return kind, {}  # a kind of part that came later is no fault
        data = part[keys[0]]
        if not self.holds(isinstance(data, dict), "shape", f"{kind} is not an object"):
            return "", {}
        self._data(kind, data)
        wanted = PLACES.get(kind, role)
        fits = self.holds(role == wanted, "block_place", f"a {kind} stands in a {role} content")
        return (kind, data) if fits else ("", {})

    def _text(self, part: Block) -> None:
        empty = self.text(part, "text") == ""
        signed = "thoughtSignature" in part or "thought_signature" in part
        self.holds(not empty or signed, "empty_text", "a text is empty")

    def _data(self, kind: str, data: Block) -> None:
        match kind:
            case "functionCall":
                self.matches(data.get("name"), NAME, "tool_name", "name")
                arguments = data.get("args")
                fits = arguments is None or isinstance(arguments, dict)
                self.holds(fits, "arguments", "args is not an object")
            case "functionResponse":
                self.matches(data.get("name"), NAME, "tool_name", "name")
                fits = isinstance(data.get("response"), dict)
                self.holds(fits, "response", "response is not an object")
            case "inlineData":
                fits = bool(data.get("mimeType") or data.get("mime_type"))
                self.holds(fits, "media_type", "inline data has no type")
                self.text(data, "data")
            case "fileData":
                fits = bool(data.get("fileUri") or data.get("file_uri"))
                self.holds(fits, "shape", "file data has no address")

    def _answer(self, results: list[Block]) -> None:
        """Every call is answered in the next content, by as many results of the same names."""
        calls, self._calls = self._calls, []
        if results and not calls:
            self.broken("orphan_result", "results do not follow a content with calls")
        elif len(results) < len(calls):
            text = f"{len(calls)} calls have {len(results)} results"
            self.found.append(Violation("unanswered_call", text, self._called_at))
        elif len(results) > len(calls):
            self.broken("duplicate_result", f"{len(calls)} calls have {len(results)} results")
        elif _names(calls) != _names(results):
            self.broken("result_name", "results have other names or ids than their calls")


def _names(values: list[Block]) -> list[tuple[str, str]]:
    return sorted((str(value.get("name")), str(value.get("id") or "")) for value in values)
