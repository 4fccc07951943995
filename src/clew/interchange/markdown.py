"""A thread as Markdown: a transcript of its current path, for people to read.

Headings are ours alone: who spoke, and when. What was said is quoted, thinking is folded, a call
and its result are one block. Nothing that was said can look like a heading: `messages.markdown`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from clew import messages
from clew.context.bodies import read_compaction
from clew.context.window import MESSAGE_KINDS
from clew.core.errors import Corrupt
from clew.core.model import Entry, rfc3339
from clew.interchange.export import Writing
from clew.messages.edits import edit_lines, without_texts
from clew.messages.markdown import (
    as_json,
    fenced,
    in_line,
    in_tag,
    media_name,
    quoted,
    result_text,
)
from clew.messages.neutral import Media, Message, Part, Text, Thinking, ToolCall, ToolResult
from clew.thread import Thread

if TYPE_CHECKING:
    from clew.usage.model import Used

_WHO = {"user": "User", "assistant": "Assistant", "system": "System", "tool": "Tool"}
_SILENT = ("started", "save_point", "completed")
_NOTE_CHARACTERS = 200
_ABOUT = "command cmd file_path path pattern query url prompt description".split()


def write(thread: Thread, writing: Writing) -> Iterator[bytes]:
    """The title and what the thread is, then what was said on its current path."""
    path = thread.path()
    yield _encoded("\n".join(_head(thread, path, writing.used(thread))))
    others = len({entry.id for entry in thread.entries()} - {entry.id for entry in path})
    if others:
        writing.change("branch", f"{others:,} entries of other branches are not in the transcript")
        yield _encoded(f"*{others:,} entries lie on other branches; they are not in this file.*")
    transcript = _Transcript(path, writing)
    for entry in path:
        if text := "\n\n".join(transcript.entry(entry)):
            yield _encoded(text)


def _encoded(text: str) -> bytes:
    return f"{text}\n\n".encode()


def _head(thread: Thread, path: Sequence[Entry], used: Used) -> Iterator[str]:
    info = thread.info
    title = "" if info.title is None else info.title.text
    yield f"# {in_line(title) or 'Untitled thread'}"
    yield ""
    yield f"- **Thread:** {in_line(thread.id)}"
    if info.agent:
        yield f"- **Agent:** {in_line(info.agent)}"
    if info.workspace:
        yield f"- **Workspace:** {in_line(info.workspace)}"
    yield f"- **Created:** {rfc3339(info.created_at)}"
    yield f"- **Updated:** {rfc3339(info.updated_at)}"
    yield f"- **Entries:** {len(path):,}"
    if used.replies:
        yield f"- **Tokens:** {used.tokens.sent:,} sent, {used.tokens.written:,} written"
    if used.cost_microdollars:
        yield f"- **Cost:** ${used.cost_microdollars / 1e6:,.2f}"
    if info.damaged:
        yield f"- **Damaged:** {in_line(info.damaged)}"


class _Transcript:
    """Entries as Markdown. Results stand below their calls, so all entries are known first."""

    def __init__(self, path: Sequence[Entry], writing: Writing) -> None:
        self._views = {entry.id: _view(entry, writing) for entry in path}
        self._results: dict[str, list[ToolResult]] = {}
        self._called: set[str] = set()
        for found in self._views.values():
            for part in (part for message in found or () for part in message.parts):
                if isinstance(part, ToolCall):
                    self._called.add(part.id)
                elif isinstance(part, ToolResult):
                    self._results.setdefault(part.call, []).append(part)

    def entry(self, entry: Entry) -> Iterator[str]:
        found = self._views[entry.id]
        if found is None:
            yield f"*{in_line(entry.kind)}: it is damaged, and cannot be read*"
        elif not found:
            yield from _note(entry)
        for message in found or ():
            parts = [part for part in message.parts if not self._is_told(part)]
            said = [text for part in parts for text in self._part(part)]
            if said:
                model = f" · {in_line(message.model)}" if message.model else ""
                yield f"## {_WHO[message.role]} · {entry.time:%Y-%m-%d %H:%M:%S}{model}"
                yield from said

    def _is_told(self, part: Part) -> bool:
        """Whether a result was written below its call."""
        return isinstance(part, ToolResult) and part.call in self._called

    def _part(self, part: Part) -> Iterator[str]:
        match part:
            case Text(text=text):
                if text.strip():
                    yield quoted(text)
            case Thinking(text=text):
                if text.strip():
                    yield _folded(f"Thinking, {len(text.split()):,} words", quoted(text))
            case ToolCall():
                yield self._call(part)
            case ToolResult():
                yield _folded(f"Result of {part.name or part.call}", fenced(result_text(part)))
            case Media():
                yield f"*\\[{in_line(media_name(part))}\\]*"
            case _:
                yield _folded("Other content", fenced(as_json(part.raw), "json"))

    def _call(self, call: ToolCall) -> str:
        results = self._results.get(call.id, [])
        blocks: list[str] = []
        changed = edit_lines(call.arguments)
        given = without_texts(call).arguments if changed else call.arguments
        if call.unparsed is not None:
            blocks.append(fenced(call.unparsed))
        elif given:
            blocks.append(fenced(as_json(given), "json"))
        if changed:
            blocks.append(fenced("\n".join(changed), "diff"))
        for result in results:
            blocks.append(fenced(result_text(result)))
        state = "no result" if not results else "failed" if results[-1].is_error else "done"
        about = _about(call)
        told = f"{call.name}: {about}" if about else call.name
        return _folded(f"{told} · {state}", *blocks)


def _view(entry: Entry, writing: Writing) -> list[Message] | None:
    """The messages of an entry; None if it cannot be read."""
    try:
        return messages.view(entry.format, entry.body) if entry.kind in MESSAGE_KINDS else []
    except Corrupt as error:
        writing.change("damaged", str(error), entry.id)
        return None


def _folded(summary: str, *blocks: str) -> str:
    head = f"<details>\n<summary>{in_tag(summary)}</summary>"
    return "\n\n".join([head, *blocks, "</details>"])


def _about(call: ToolCall) -> str:
    """What a call is about, in a few words: its most telling argument."""
    given = call.arguments if isinstance(call.arguments, dict) else {}
    found = next((given[key] for key in _ABOUT if isinstance(given.get(key), str)), "")
    return _short(found)


def _short(text: str) -> str:
    flat = " ".join(text[: _NOTE_CHARACTERS * 4].split())
    return flat if len(flat) <= _NOTE_CHARACTERS else flat[:_NOTE_CHARACTERS] + "…"


def _note(entry: Entry) -> Iterator[str]:
    """What is no message: in a line, or not at all if it says nothing to a reader."""
    body = entry.body if isinstance(entry.body, dict) else {}
    if entry.kind == "usage" or (entry.kind == "turn_marker" and body.get("status") in _SILENT):
        return
    if entry.kind in ("compaction", "branch_summary"):
        summary = body.get("summary")
        if entry.kind == "compaction":
            summary = read_compaction(entry).summary
        yield f"*{entry.kind.replace('_', ' ')}: a summary of what came before, or elsewhere*"
        if isinstance(summary, str) and summary.strip():
            yield quoted(summary)
        return
    told = _short(_words(entry, body))
    yield f"*{in_line(entry.kind.replace('_', ' '))}: {in_line(told)}*"


def _words(entry: Entry, body: dict[str, Any]) -> str:
    if entry.kind == "snapshot":
        return f"{body.get('label') or 'without a name'}, {body.get('files')} files"
    keys = [key for key in ("error", "message", "reason", "text", "status", "type") if key in body]
    values = [body[key] for key in keys or body]
    return " ".join(value for value in values if isinstance(value, str)) or str(entry.body)
