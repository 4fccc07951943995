"""A session as Markdown, for people to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clew import messages
from clew.core.model import rfc3339
from clew.facets.sessions.document import Session, valid_text
from clew.messages.markdown import (
    as_json,
    fenced,
    in_line,
    longest_run,
    media_name,
    quoted,
    result_text,
)
from clew.messages.neutral import (
    Media,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)

_HEADINGS = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}


def export_session_markdown(session: Session) -> str:
    """The session's metadata and messages. What was said is quoted: no text makes a heading."""
    parts = ["\n".join(_head(session)), *map(message_markdown, session.messages)]
    return valid_text("\n\n---\n\n".join(parts) + "\n")


def message_markdown(body: Any) -> str:
    """One message, with its role as a heading."""
    return valid_text("\n\n".join(_message(body)))


def _head(session: Session) -> Iterator[str]:
    yield f"# {in_line(session.title) or 'Untitled session'}"
    yield ""
    yield f"- **Session:** {in_line(session.id)}"
    yield f"- **Created:** {rfc3339(session.created_at)}"
    yield f"- **Updated:** {rfc3339(session.updated_at)}"
    vendor = " / ".join((session.vendor, session.endpoint, session.model))
    yield f"- **Vendor:** {in_line(vendor)}"
    yield f"- **Messages:** {len(session.messages)}"


def _message(body: Any) -> Iterator[str]:
    found = messages.view(None, body)
    if not found and isinstance(body, dict):  # a role that no format has
        found = messages.view(None, {**body, "role": "user"})
    role = body.get("role") if isinstance(body, dict) else None
    if not isinstance(role, str):  # an item, or a whole response
        role = found[0].role if found else "message"
    yield f"## {_HEADINGS.get(role) or in_line(role)}"
    if not found:
        yield fenced(as_json(body), "json")
    for message in found:
        for part in message.parts:
            yield from _part(part)


def _part(part: Part) -> Iterator[str]:
    if isinstance(part, Text):
        if part.text.strip():
            yield quoted(part.text)
    elif isinstance(part, Thinking):
        if part.text.strip():
            yield "**Thinking:**"
            yield quoted(part.text)
    elif isinstance(part, ToolCall):
        ticks = "`" * (longest_run(part.name) + 1)
        space = " " if "`" in part.name else ""
        yield f"**Tool Call:** {ticks}{space}{' '.join(part.name.split())}{space}{ticks}"
        given = part.arguments if part.unparsed is None else part.unparsed
        yield fenced(given if isinstance(given, str) else as_json(given), "json")
    elif isinstance(part, ToolResult):
        yield f"**Tool Result** (error={str(part.is_error).lower()}):"
        yield fenced(result_text(part))
    elif isinstance(part, Media):
        yield f"*\\[{in_line(media_name(part))}\\]*"
    else:
        yield fenced(as_json(part.raw), "json")
