"""A path as a person reads it: who said what, each tool call with its result as one block.

On a terminal, thinking is folded and long results are shortened, with a line that says what was
left out. In a file or a pipe no message is cut, and Markdown stays as it was written. What is no
message is a line in both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from clew import messages
from clew.cli._screen import Part, Screen
from clew.cli._text import (
    arguments_of,
    clean,
    one_line,
    part_text,
    partial_of,
    plural,
    preview,
    size,
    text_of,
)
from clew.context.window import MESSAGE_KINDS
from clew.core.model import Entry
from clew.messages.edits import edit_lines, without_texts
from clew.messages.neutral import Media, Message, Text, Thinking, ToolCall, ToolResult
from clew.messages.neutral import Part as MessagePart

RESULT_LINES = 8
DIFF_LINES = 24
_SILENT_MARKERS = ("started", "save_point", "completed")
_WHO = {
    "user": ("you", "bold cyan"),
    "assistant": ("assistant", "bold green"),
    "system": ("system", "bold magenta"),
    "tool": ("tool", "bold yellow"),
}
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


class Transcript:
    """Draws entries of a path. `full` shows what a terminal gets folded and shortened."""

    def __init__(
        self, screen: Screen, path: Sequence[Entry], *, full: bool, labels: dict[str, str]
    ) -> None:
        self._screen = screen
        self._all = full  # markers and usage, which say nothing to most readers
        self._full = full or screen.width is None
        self._labels = labels
        self._views = {entry.id: _view(entry) for entry in path}
        self._results: dict[str, list[ToolResult]] = defaultdict(list)
        self._called: set[str] = set()
        for message in (message for found in self._views.values() for message in found):
            for part in message.parts:
                if isinstance(part, ToolCall):
                    self._called.add(part.id)
                elif isinstance(part, ToolResult):
                    self._results[part.call].append(part)

    def draw(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            self._entry(entry)

    def _entry(self, entry: Entry) -> None:
        found = self._views[entry.id]
        if not found:
            self._other(entry)
            return
        for message in found:
            parts = [part for part in message.parts if not self._is_told(part)]
            if parts or not message.parts:
                self._message(entry, message, parts)

    def _is_told(self, part: MessagePart) -> bool:
        """Whether a result was drawn below its call."""
        return isinstance(part, ToolResult) and part.call in self._called

    def _message(self, entry: Entry, message: Message, parts: list[MessagePart]) -> None:
        who, style = _WHO[message.role]
        head: list[Part] = [(f"{entry.seq:>4} ", "dim"), (who, style)]
        if partial_of(entry) is not None:
            head.append((" [partial]", "bold yellow"))
        if entry.erased_at is not None:
            head.append((f" [erased on {entry.erased_at:%Y-%m-%d %H:%M}]", "bold yellow"))
        told = [f"{entry.time:%Y-%m-%d %H:%M}"]
        told += [message.model] if message.model else []
        head.append((f"  {' · '.join(told)}", "dim"))
        if entry.id in self._labels:
            head.append((f"  [{one_line(self._labels[entry.id])}]", "bold magenta"))
        self._screen.line()
        self._screen.line(*head)
        if not parts:
            self._screen.line("     ", ("(nothing)", "dim"))
        for before, part in zip([None, *parts], parts, strict=False):
            if isinstance(part, ToolCall) and isinstance(before, Text):
                self._screen.line()
            self._part(part, message.role)
        self._cut_off(entry)

    def _cut_off(self, entry: Entry) -> None:
        """What is missing of a reply that was streamed: calls that came in part, and why."""
        calls = entry.meta.get("unfinished") if entry.kind == "assistant_message" else None
        for call in calls if isinstance(calls, list) else []:
            named = call.get("name") if isinstance(call, dict) else None
            words = f"{named or 'a call'}, cut off before its arguments were whole"
            self._screen.line(("   ● ", "yellow"), (one_line(words), "dim"), fit=not self._full)
        why = partial_of(entry)
        if why is not None:
            told = "saved while it was streamed" if why == "streaming" else f"broken off: {why}"
            self._screen.line("     ", (f"({one_line(told)})", "yellow"), fit=not self._full)

    def _part(self, part: MessagePart, role: str) -> None:
        match part:
            case Text(text=text):
                self._text(text, markdown=role == "assistant")
            case Thinking(text=text):
                self._thinking(text)
            case ToolCall():
                self._call(part)
            case ToolResult():
                self._result(part)
            case Media():
                self._screen.line("     ", (media_text(part), "magenta"), fit=False)
            case _:
                self._lines(part_text(part).split("\n"), style="dim", at_most=RESULT_LINES)

    def _text(self, text: str, *, markdown: bool) -> None:
        width = self._screen.width
        if not markdown or width is None:
            self._screen.text(text, indent="     ")
            return
        from clew.cli._markdown import rendered

        for line in rendered(text, max(20, width - 6)):
            self._screen.line("     ", *line, fit=False)

    def _thinking(self, text: str) -> None:
        if not text.strip():
            return
        if self._full:
            for line in clean(text).strip().split("\n"):
                self._screen.line("     ", (line, "dim italic"), fit=False)
            return
        lines = plural(len(text.strip().splitlines()), "line")
        self._screen.line("     ", (f"thinking, {lines}: {one_line(text[:200])}", "dim italic"))

    def _call(self, call: ToolCall) -> None:
        changed = [clean(line) for line in edit_lines(call.arguments)]
        shown = arguments_of(without_texts(call) if changed else call, short=not self._full)
        head: tuple[Part, ...] = (("   ● ", "yellow"), (call.name, "bold yellow"), f"({shown})")
        self._screen.line(*head, fit=not self._full)
        if changed:
            self._lines(changed, at_most=DIFF_LINES, styles=_DIFF_STYLES)
        results = self._results.get(call.id, [])
        if not results:
            self._screen.line("   └ ", ("no result", "dim"))
        for result in results:
            self._result(result)

    def _result(self, result: ToolResult) -> None:
        words = [
            media_text(part) if isinstance(part, Media) else part_text(part)
            for part in result.content
        ]
        text = ("error: " if result.is_error else "") + clean("\n".join(words)).strip("\n")
        style = "red" if result.is_error else ""
        if result.call not in self._called:
            self._screen.line(("   ● ", "yellow"), (f"result of {result.call}", "dim"))
        if not text:
            self._screen.line("   └ ", ("(empty)", "dim"))
            return
        self._lines(text.split("\n"), style=style, at_most=RESULT_LINES)

    def _lines(
        self,
        lines: list[str],
        *,
        at_most: int,
        style: str = "dim",
        styles: dict[str, str] | None = None,
    ) -> None:
        """Lines of a block; of a long one the first, and how many were left out."""
        # One line more than is shown costs no more than the line that would say so.
        kept = lines if self._full or len(lines) <= at_most + 1 else lines[:at_most]
        for line in kept:
            own = style if styles is None else styles.get(line[:1], "dim")
            self._screen.line(("   │ ", "dim"), (line.expandtabs(4), own), fit=not self._full)
        if len(kept) < len(lines):
            left = plural(len(lines) - len(kept), "more line")
            self._screen.line(("   └ ", "dim"), (f"… {left}, --full shows them", "dim italic"))

    def _other(self, entry: Entry) -> None:
        """What is no message: shown in a line, or not at all if it says nothing to a reader."""
        body = entry.body
        if entry.kind == "turn_marker" and isinstance(body, dict):
            if body.get("status") in _SILENT_MARKERS and not self._all:
                return
            style = "red" if body.get("status") in ("failed", "aborted") else "yellow"
            self._note(entry, f"turn {text_of(entry)}", style)
        elif entry.kind == "compaction" and isinstance(body, dict):
            self._compaction(entry, body)
        elif entry.kind == "usage" and not self._all:
            return
        else:
            style = "red" if entry.kind == "run_failure" else "dim"
            self._note(entry, f"{entry.kind}: {self._told(entry)}", style)

    def _told(self, entry: Entry) -> str:
        return text_of(entry, short=not self._all) if self._full else preview(entry)

    def _note(self, entry: Entry, text: str, style: str) -> None:
        label = self._labels.get(entry.id)
        mark: Part = ("" if label is None else f"[{one_line(label)}] ", "bold magenta")
        number: Part = (f"{entry.seq:>4} ", "dim")
        self._screen.line(number, mark, (one_line(text), style), fit=not self._full)

    def _compaction(self, entry: Entry, body: dict[str, Any]) -> None:
        summary = body.get("summary")
        self._screen.line()
        self._screen.line(
            (f"{entry.seq:>4} ", "dim"),
            ("compaction", "bold magenta"),
            ("  from here on, this summary stands for what came before", "dim"),
        )
        text = summary if isinstance(summary, str) else self._told(entry)
        self._lines(clean(text).split("\n"), at_most=RESULT_LINES, style="")


def _view(entry: Entry) -> Sequence[Message]:
    return messages.view(entry.format, entry.body) if entry.kind in MESSAGE_KINDS else ()


def media_text(part: Media) -> str:
    """An image, a sound or a file by its name: what kind, and how large."""
    named = part.name or part.url or part.file_id
    if named is not None and len(named) > 100:
        named = named[:100] + "…"
    known = [part.mime, named, None if part.data is None else size(len(part.data) * 3 // 4)]
    return f"[{', '.join([part.kind, *(one_line(text) for text in known if text)])}]"
