"""Entries as people read them: who said what, a call and its result as one card, notes between.

Pure: entries in, cards out. A card has a name for the template that draws it, and no markup but
what `render` made. Text that is long is cut here; the page asks for the rest when it is wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup
from msgspec import Struct

from clew import messages
from clew.context.bodies import read_compaction
from clew.core.model import Entry
from clew.messages.gist import gist
from clew.messages.neutral import Media, Message, Part, Text, Thinking, ToolCall, ToolResult
from clew.server import render
from clew.server.render import Line
from clew.server.site import span
from clew.snapshots.catalogue import is_snapshot

OUTPUT_LINES = 14  # of a tool's output that are shown unasked
OUTPUT_CHARACTERS = 2_400
SAID_CHARACTERS = 16_000
DIFF_LINES = 40
SECONDS_MIN = 0.0001  # that a call took, to be told
SUMMARY_CHARACTERS = 110
SAFE_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_NOTES = frozenset(
    "thread_info model_change active_tools_change branch_summary context_edit label event "
    "custom turn_marker usage snapshot compaction run_failure".split()
)


class Said(Struct, kw_only=True):
    """A piece of text. `rest` is how many characters were left out; they are asked for by place."""

    html: Markup
    rest: int = 0
    place: int = 0


class Picture(Struct, kw_only=True):
    place: int
    kind: str
    mime: str
    name: str
    inline: bool
    url: str | None = None


class Call(Struct, kw_only=True):
    """A call of a tool with its result. `state`: done, failed, open (it has none yet)."""

    id: str
    name: str
    summary: str
    state: str = "open"
    seconds: float | None = None
    path: str = ""
    diff: list[Line] = []
    diff_rest: int = 0
    written: Markup | None = None
    arguments: Markup | None = None
    output: str | None = None
    output_html: Markup | None = None
    output_diff: list[Line] = []
    output_rest: int = 0
    output_lines: int = 0
    pictures: list[Picture] = []
    result_entry: str | None = None
    result_place: int = 0
    time_us: int = 0


class Card(Struct, kw_only=True):
    """One entry, drawn. `sort` chooses the template: user, assistant, system, note, …"""

    entry: Entry
    sort: str
    title: str = ""
    pieces: list[Any] = []  # Said, Thought, Call, Picture in the order they came
    note: str = ""
    detail: Markup | None = None
    tone: str = ""
    members: list[str] = []  # other entries that are drawn in this card
    usage: str = ""
    stream: str = ""  # of a reply that was stored while it came: the same for each time
    partial: str = ""  # why it is not whole; "streaming" while it comes
    unfinished: list[str] = []  # names of calls that were cut off

    @property
    def version(self) -> str:
        """Changes when the card does: a page that has it keeps what it has."""
        return f"{self.entry.hash[-12:]}.{len(self.members)}"


class Thought(Struct, kw_only=True):
    html: Markup
    words: int


def cards(entries: Sequence[Entry], *, whole: bool = False) -> list[Card]:
    """The cards of a run of entries. Results go to their calls, usage to its reply."""
    return _Deck(whole).deal(entries)


class _Deck:
    def __init__(self, whole: bool) -> None:
        self._whole = whole
        self._made: list[Card] = []
        self._open: dict[str, tuple[Call, Card]] = {}
        self._began: dict[str, int] = {}

    def deal(self, entries: Iterable[Entry]) -> list[Card]:
        for entry in entries:
            found = [] if entry.kind in _NOTES else messages.view(entry.format, entry.body)
            if found:
                self._message(entry, found)
            else:
                self._note(entry)
        return self._made

    # --- messages ---

    def _message(self, entry: Entry, found: list[Message]) -> None:
        card = Card(entry=entry, sort=_sort(entry, found), pieces=[])
        place = 0
        for message in found:
            for part in message.parts:
                self._part(card, part, place)
                place += 1
        if entry.meta_data is not None:
            _mark(card, entry.meta)
        if card.pieces or card.unfinished:
            card.title = next((m.model for m in found if m.model), "") or ""
            self._made.append(card)

    def _part(self, card: Card, part: Part, place: int) -> None:
        match part:
            case Text(text=text):
                if text.strip():
                    card.pieces.append(self._said(text, place))
            case Thinking(text=text):
                if text.strip():
                    words = len(text.split())
                    card.pieces.append(Thought(html=render.markdown(text), words=words))
            case ToolCall():
                call = self._call(part)
                call.time_us = card.entry.time_us
                self._open[part.id] = (call, card)
                card.pieces.append(call)
            case ToolResult():
                self._result(card, part, place)
            case Media():
                card.pieces.append(_picture(part, place))
            case _:
                card.pieces.append(Thought(html=render.data(part.raw), words=0))

    def _said(self, text: str, place: int) -> Said:
        rest = 0 if self._whole else max(0, len(text) - SAID_CHARACTERS)
        return Said(
            html=render.markdown(text[: len(text) - rest] if rest else text), rest=rest, place=place
        )

    def _call(self, part: ToolCall) -> Call:
        given = part.arguments if isinstance(part.arguments, dict) else {}
        call = Call(id=part.id, name=part.name, summary=_summary(part), pictures=[])
        call.path = next((given[key] for key in _PATHS if isinstance(given.get(key), str)), "")
        diff = edit_lines(given)
        call.diff = diff if self._whole else diff[:DIFF_LINES]
        call.diff_rest = len(diff) - len(call.diff)
        text = next((given[key] for key in _CONTENTS if isinstance(given.get(key), str)), None)
        if not diff and text is not None and call.path:
            call.written = render.code(text[:OUTPUT_CHARACTERS], path=call.path)
        if part.unparsed is not None:
            call.arguments = render.code(part.unparsed)
        elif given and not diff:
            call.arguments = _arguments(given, call.summary)
        return call

    def _result(self, card: Card, part: ToolResult, place: int) -> None:
        found = self._open.pop(part.call, None)
        if found is None:
            call = Call(id=part.call, name=part.name or "tool", summary="", pictures=[])
            card.pieces.append(call)
        else:
            call, owner = found
            if owner is not card:
                owner.members.append(card.entry.id)
            # Records that were written together lie some microseconds apart: no call is so short.
            seconds = (card.entry.time_us - call.time_us) / 1e6
            call.seconds = seconds if seconds >= SECONDS_MIN else None
        call.state = "failed" if part.is_error else "done"
        call.result_entry, call.result_place = card.entry.id, place
        text = "\n".join(inner.text for inner in part.content if isinstance(inner, Text))
        media = [inner for inner in part.content if isinstance(inner, Media)]
        call.pictures = [_picture(one, place * 100 + n) for n, one in enumerate(media)]
        self._output(call, text)

    def _output(self, call: Call, text: str) -> None:
        shown = text if self._whole else head(text)
        call.output = render.clean(shown)
        call.output_lines = text.count("\n") + 1 if text else 0
        call.output_rest = len(text) - len(shown)
        if render.looks_like_patch(text):
            call.output_diff = render.read_patch(shown)

    # --- everything else ---

    def _note(self, entry: Entry) -> None:
        body = entry.body if isinstance(entry.body, dict) else {}
        made = _NOTE_MAKERS.get(entry.kind, _other)(entry, body)
        if made is None:
            return
        if entry.kind == "usage" and self._made and self._made[-1].sort == "assistant":
            self._made[-1].usage = made.note
            self._made[-1].members.append(entry.id)
            return
        if entry.kind == "turn_marker":
            self._turn(entry, made, body)
            return
        self._made.append(made)

    def _turn(self, entry: Entry, card: Card, body: Mapping[str, Any]) -> None:
        """Only how a turn ended is shown, with how long it took."""
        if body.get("status") == "started" and entry.turn is not None:
            self._began[entry.turn] = entry.time_us
            return
        if body.get("status") == "save_point":
            return
        began = self._began.get(entry.turn or "")
        if began is not None:
            card.note += f" after {span((entry.time_us - began) / 1e6)}"
        self._made.append(card)


def _mark(card: Card, meta: Mapping[str, Any]) -> None:
    """What is known about a reply that came in pieces."""
    stream, partial, cut = meta.get("stream"), meta.get("partial"), meta.get("unfinished")
    card.stream = stream if isinstance(stream, str) else ""
    card.partial = one_line(str(partial), 300) if partial else ""
    calls = [one for one in cut if isinstance(one, dict)] if isinstance(cut, list) else []
    card.unfinished = [one_line(str(one.get("name") or "a tool"), 60) for one in calls]


def is_draft(entry: Entry) -> bool:
    """Whether this is a reply as it was while it came: the whole one stands beside it."""
    return entry.meta_data is not None and entry.meta.get("partial") == "streaming"


def head(text: str) -> str:
    """The beginning of an output: some lines, and not too long ones."""
    cut = text[:OUTPUT_CHARACTERS]
    lines = cut.split("\n", OUTPUT_LINES)
    if len(lines) > OUTPUT_LINES:
        return "\n".join(lines[:OUTPUT_LINES])
    return cut


def _sort(entry: Entry, found: Sequence[Message]) -> str:
    sorts = {"user_message": "user", "tool_result": "tool", "system_message": "system"}
    if entry.kind in sorts:
        return sorts[entry.kind]
    if entry.kind in ("assistant_message", "tool_call"):
        return "assistant"
    return str(found[0].role)


# --- calls ----------------------------------------------------------------------------------

_PATHS = ("file_path", "path", "filename", "file", "notebook_path", "target_file")
_CONTENTS = ("content", "contents", "file_text", "text", "new_source")
_PAIRS = (
    ("old_string", "new_string"),
    ("old_str", "new_str"),
    ("old_text", "new_text"),
    ("oldText", "newText"),
    ("search", "replace"),
    ("old", "new"),
)
_FIRST = "command cmd file_path path pattern query url prompt description code name script".split()


def edit_lines(given: Mapping[str, Any]) -> list[Line]:
    """What an edit changes, by the shape of its arguments: no tool is known by name."""
    found: list[Line] = []
    for old, new in _PAIRS:
        if isinstance(given.get(old), str) and isinstance(given.get(new), str):
            return render.compare(given[old], given[new])
    edits = given.get("edits")
    for edit in edits if isinstance(edits, list) else []:
        if isinstance(edit, dict):
            found += edit_lines(edit)
    if found:
        return found
    for key in ("patch", "diff", "input"):
        text = given.get(key)
        if isinstance(text, str) and render.looks_like_patch(text):
            return render.read_patch(text)
    return []


def _summary(call: ToolCall) -> str:
    """What a call is about, in a line: its most telling argument."""
    given = call.arguments
    if call.unparsed is not None:
        return one_line(call.unparsed)
    if not isinstance(given, dict):
        return "" if given is None else one_line(str(given))
    for key in _FIRST:
        value = given.get(key)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            value = " ".join(value)
        if isinstance(value, str) and value.strip():
            return one_line(value)
    return one_line(", ".join(f"{key}: {value}" for key, value in given.items()))


def one_line(text: str, limit: int = SUMMARY_CHARACTERS) -> str:
    flat = " ".join(render.clean(text[: limit * 4]).split())
    return flat if len(flat) <= limit and len(text) <= limit * 4 else flat[: limit - 1] + "…"


def _arguments(given: Mapping[str, Any], summary: str) -> Markup | None:
    """Arguments that the line above does not say already; a single text as it is."""
    if len(given) == 1 and isinstance(only := next(iter(given.values())), str):
        said = one_line(only) == summary and not summary.endswith("…") and "\n" not in only.strip()
        return None if said else render.code(only[:OUTPUT_CHARACTERS])
    return render.data(_without_long(given))


def _without_long(given: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value[:OUTPUT_CHARACTERS] + "…"
        if isinstance(value, str) and len(value) > OUTPUT_CHARACTERS
        else value
        for key, value in given.items()
    }


def _picture(part: Media, place: int) -> Picture:
    mime = part.mime or ""
    inline = part.kind == "image" and part.data is not None and mime in SAFE_IMAGES
    return Picture(
        place=place,
        kind=part.kind,
        mime=mime,
        name=part.name or part.file_id or "",
        inline=inline,
        url=part.url if part.data is None else None,
    )


# --- notes ----------------------------------------------------------------------------------


def _made(entry: Entry, title: str, note: str = "", tone: str = "", sort: str = "note") -> Card:
    return Card(entry=entry, sort=sort, title=title, note=note, tone=tone)


def _marker(entry: Entry, body: Mapping[str, Any]) -> Card:
    status = str(body.get("status", "turn"))
    words = [str(body[key]) for key in ("reason", "error") if body.get(key)]
    tone = {"failed": "bad", "aborted": "warn", "waiting": "warn"}.get(status, "")
    note = f"turn {status}" + (f": {one_line(' '.join(words))}" if words else "")
    return _made(entry, "", note, tone, "turn")


def _usage(entry: Entry, body: Mapping[str, Any]) -> Card:
    tokens = {key: body[key] for key in _TOKENS if type(body.get(key)) is int}
    words = [str(body["model"])] if body.get("model") else []
    words += [f"{number:,} {_TOKENS[key]}" for key, number in tokens.items() if number]
    return _made(entry, "usage", " · ".join(words)) if words else _other(entry, body)


_TOKENS = {
    "input_tokens": "in",
    "cache_read_tokens": "cached",
    "cache_write_tokens": "to the cache",
    "output_tokens": "out",
}


def _compaction(entry: Entry, body: Mapping[str, Any]) -> Card:
    summary = read_compaction(entry).summary
    card = _made(entry, "compacted", "A summary stands for what came before it", sort="compaction")
    card.detail = render.markdown(summary) if summary else None
    return card


def _snapshot(entry: Entry, body: Mapping[str, Any]) -> Card:
    if not is_snapshot(entry):
        return _other(entry, body)
    label = f"“{one_line(str(body['label']))}” · " if body.get("label") else ""
    return _made(entry, "snapshot", f"{label}{body.get('files')} files of {body.get('root')}")


def _failure(entry: Entry, body: Mapping[str, Any]) -> Card:
    said = next((str(body[key]) for key in ("error", "message", "reason") if body.get(key)), "")
    card = _made(entry, "failure", one_line(said, 400), "bad")
    card.detail = render.data(entry.body)
    return card


def _summed(entry: Entry, body: Mapping[str, Any]) -> Card:
    card = _made(entry, "branch summary", "What was found out on another branch")
    card.detail = render.markdown(str(body.get("summary") or ""))
    return card


def _other(entry: Entry, body: Mapping[str, Any]) -> Card:
    label = entry.meta.get("label")
    said = label if isinstance(label, str) else gist(body)
    card = _made(entry, entry.kind.replace("_", " "), one_line(said))
    card.detail = render.data(entry.body)
    return card


_NOTE_MAKERS: dict[str, Any] = {
    "turn_marker": _marker,
    "usage": _usage,
    "compaction": _compaction,
    "snapshot": _snapshot,
    "run_failure": _failure,
    "branch_summary": _summed,
}


# --- one line of an entry -------------------------------------------------------------------


def preview(entry: Entry, limit: int = SUMMARY_CHARACTERS) -> str:
    """How an entry begins, in a line, for lists of them."""
    body = entry.body
    if entry.kind in _NOTE_MAKERS:
        made = _NOTE_MAKERS[entry.kind](entry, body if isinstance(body, dict) else {})
        return str(made.note)
    found = [] if entry.kind in _NOTES else messages.view(entry.format, body)
    words = [_words(part) for message in found for part in message.parts]
    return one_line(" ".join(word for word in words if word) or gist(body), limit)


def _words(part: Part) -> str:
    match part:
        case Text(text=text):
            return text[:1000]
        case Thinking(text=text):
            return f"({text[:1000] or 'thinking'})"
        case ToolCall(name=name):
            return f"{name} {_summary(part)}"
        case ToolResult(content=content):
            return " ".join(map(_words, content))
        case Media(kind=kind):
            return f"[{kind}]"
        case _:
            return ""
