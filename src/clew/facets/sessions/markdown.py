"""A session as Markdown, for people to read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from clew import messages
from clew.core.model import rfc3339
from clew.facets.sessions.document import Session, valid_text
from clew.messages.neutral import (
    Media,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

_HEADINGS = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}
_MARKUP = re.compile(r"([\\`*_\[\]<>])")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


def export_session_markdown(session: Session) -> str:
    """The session's metadata and messages. What a message says cannot break out of its place."""
    parts = ["\n".join(_head(session))]
    parts += ["\n\n".join(_message(body)) for body in session.messages]
    return valid_text("\n\n---\n\n".join(parts) + "\n")


def _head(session: Session) -> Iterator[str]:
    title = " ".join(session.title.split()) or "Untitled session"
    yield f"# {_escaped(title)}"
    yield ""
    yield f"- **Session:** {_escaped(session.id)}"
    yield f"- **Created:** {rfc3339(session.created_at)}"
    yield f"- **Updated:** {rfc3339(session.updated_at)}"
    vendor = " / ".join((session.vendor, session.endpoint, session.model))
    yield f"- **Vendor:** {_escaped(vendor)}"
    yield f"- **Messages:** {len(session.messages)}"


def _message(body: Any) -> Iterator[str]:
    found = messages.view(None, body)
    if not found and isinstance(body, dict):  # a role that no format has
        found = messages.view(None, {**body, "role": "user"})
    role = body.get("role") if isinstance(body, dict) else None
    if not isinstance(role, str):  # an item, or a whole response
        role = found[0].role if found else "message"
    yield f"## {_HEADINGS.get(role) or _escaped(' '.join(role.split()))}"
    if not found:
        yield _fenced(_as_json(body), "json")
    for message in found:
        for part in message.parts:
            yield from _part(part)


def _part(part: Part) -> Iterator[str]:
    if isinstance(part, Text):
        if part.text.strip():
            yield _closed(part.text)
    elif isinstance(part, Thinking):
        if part.text.strip():
            yield "\n".join(f"> {line}" for line in _closed(part.text).splitlines())
    elif isinstance(part, ToolCall):
        ticks = "`" * (_longest_run(part.name) + 1)
        space = " " if "`" in part.name else ""
        yield f"**Tool Call:** {ticks}{space}{' '.join(part.name.split())}{space}{ticks}"
        given = part.arguments if part.unparsed is None else part.unparsed
        yield _fenced(given if isinstance(given, str) else _as_json(given), "json")
    elif isinstance(part, ToolResult):
        yield f"**Tool Result** (error={str(part.is_error).lower()}):"
        yield _fenced("\n".join(_result(part)), "")
    elif isinstance(part, Media):
        yield f"*[{part.kind}: {_escaped(part.name or part.mime or 'without a name')}]*"
    else:
        yield _fenced(_as_json(part.raw), "json")


def _result(result: ToolResult) -> Iterator[str]:
    for part in result.content:
        if isinstance(part, Text):
            yield part.text
        elif isinstance(part, Media):
            yield f"[{part.kind}: {part.name or part.mime or 'without a name'}]"
        else:
            yield _as_json(part.raw)


# --- keeping what is written in its place ---------------------------------------------------


def _escaped(text: str) -> str:
    return _MARKUP.sub(r"\\\1", text)


def _fenced(text: str, language: str) -> str:
    # A fence is closed by one that is as long, so it must be longer than any inside.
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall(r"`+", text)), default=0)


def _closed(text: str) -> str:
    """The text with its last code block ended, so that it does not swallow what follows."""
    fence = ""
    for line in text.splitlines():
        found = _FENCE.match(line)
        if not found:
            continue
        if not fence:
            in_line = found[1][0] == "`" and "`" in found[2]
            fence = "" if in_line else found[1]
        elif found[1].startswith(fence) and not found[2].strip():
            fence = ""
    return f"{text}\n{fence}" if fence else text


def _as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
