"""What an entry says, as text: messages of every format, all else as compact JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from clew import messages
from clew.cli._text import one_line, plural, size
from clew.codec import render
from clew.messages.neutral import Media, Part, Text, Thinking, ToolCall, ToolResult
from clew.model import Entry
from clew.snapshots.catalogue import is_snapshot

_PREVIEW_MAX = 1000  # characters that are looked at for one line
_JSON_MAX = 300


def preview(entry: Entry) -> str:
    """One clean line; as long as it comes, for the screen to cut."""
    return one_line(text_of(entry)[:_PREVIEW_MAX])


def text_of(entry: Entry) -> str:
    """The full text of a message, with its tool calls and results."""
    body = entry.body
    if entry.kind == "turn_marker" and isinstance(body, dict) and "status" in body:
        return _marker(body)
    if is_snapshot(entry):
        return _snapshot(body)
    found = messages.view(entry.format, body)
    if not found:
        return _compact(body)
    return _said([part for message in found for part in message.parts])


def _marker(body: dict[str, Any]) -> str:
    words = [str(body["status"])]
    words += [f"by {body['owner']}"] if "owner" in body else []
    words += [str(body[key]) for key in ("reason", "error") if key in body]
    return " ".join(words)


def _snapshot(body: dict[str, Any]) -> str:
    label = f"[{body['label']}] " if body.get("label") else ""
    files, held = body.get("files"), body.get("size_bytes")
    if not isinstance(files, int) or not isinstance(held, int):
        return _compact(body)
    return f"{label}{plural(files, 'file')}, {size(held)}, of {body.get('root')}"


def _said(parts: Sequence[Part]) -> str:
    return "\n".join(text for text in map(_part, parts) if text)


def _part(part: Part) -> str:
    match part:
        case Text(text=text):
            return text
        case Thinking(text=text):
            return f"({text})" if text else ""
        case ToolCall(name=name):
            return f"→ {name}({_arguments(part)})"
        case ToolResult(content=content, is_error=is_error):
            return f"← {'error: ' if is_error else ''}{_said(content)}"
        case Media(kind=kind, mime=mime):
            return f"[{kind} {mime}]" if mime else f"[{kind}]"
        case _:
            return _compact(part.raw)


def _arguments(call: ToolCall) -> str:
    if call.unparsed is not None:
        return call.unparsed
    if isinstance(call.arguments, dict):
        return ", ".join(f"{key}={_compact(value)}" for key, value in call.arguments.items())
    return "" if call.arguments is None else _compact(call.arguments)


def _compact(value: Any) -> str:
    text = render(value)
    return text if len(text) <= _JSON_MAX else text[:_JSON_MAX] + "…"
