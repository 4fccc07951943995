"""What an entry says, as text: messages in the common formats, all else as compact JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from clew.cli._text import one_line
from clew.model import Entry

_PREVIEW_MAX = 1000  # characters that are looked at for one line
_JSON_MAX = 300


def preview(entry: Entry) -> str:
    """One clean line; as long as it comes, for the screen to cut."""
    return one_line(text_of(entry)[:_PREVIEW_MAX])


def text_of(entry: Entry) -> str:
    """The full text of a message, with its tool calls and results."""
    body = entry.body
    if not isinstance(body, dict):
        return _compact(body)
    if entry.kind == "turn_marker" and isinstance(body.get("status"), str):
        return _marker(body)
    if "role" in body:
        return "\n".join(part for part in _message(body) if part)
    return _compact(body)


def _marker(body: dict[str, Any]) -> str:
    words = [body["status"]]
    words += [f"by {body['owner']}"] if "owner" in body else []
    words += [str(body[key]) for key in ("reason", "error") if key in body]
    return " ".join(words)


def _message(body: dict[str, Any]) -> Iterator[str]:
    yield from _content(body.get("content"))
    calls = body.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            yield _call(function.get("name"), function.get("arguments"))
        else:
            yield _compact(call)


def _content(content: Any) -> Iterator[str]:
    if content is None:
        return
    if isinstance(content, list):
        for block in content:
            yield _block(block)
    else:
        yield content if isinstance(content, str) else _compact(content)


def _block(block: Any) -> str:
    if isinstance(block, str):
        return block
    match block:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "tool_use"}:
            return _call(block.get("name"), block.get("input"))
        case {"type": "tool_result"}:
            return "← " + "\n".join(_content(block.get("content")))
        case _:
            return _compact(block)


def _call(name: Any, arguments: Any) -> str:
    return f"→ {name}({_arguments(arguments)})"


def _arguments(value: Any) -> str:
    if isinstance(value, str):  # JSON in a string, as the model wrote it: perhaps not JSON at all
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return str(value)
    if isinstance(value, dict):
        return ", ".join(f"{key}={_compact(each)}" for key, each in value.items())
    return "" if value is None else _compact(value)


def _compact(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= _JSON_MAX else text[:_JSON_MAX] + "…"
