"""Projection: what a thread looks like to a provider, to a summary, or to a reader. Pure.

    window (entries) → items (messages read) → blocks (normal form, repaired) → messages (written)

The journal is not touched, and every difference between it and the result stands in the report.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import partial
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any, Literal, Unpack, get_args

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from clew import messages
from clew.context import budget, chunks, collector
from clew.context.bodies import ContextEdit, read_compaction, read_edit
from clew.context.normalise import Block, Builder, Dialogue, Item, Repair, normalise
from clew.context.request import Context, ContextReport, ContextSegment, Made, Settled
from clew.context.tokens import Count, count_message, estimate, shorten
from clew.context.window import MESSAGE_KINDS, GivenPath, Window, read_window
from clew.core.codec import REFUSALS, decode, decode_unicode, render
from clew.core.drafts import check_number
from clew.core.errors import ClewError, InvalidInput
from clew.core.model import Entry
from clew.messages.neutral import (
    Message,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Written,
    calls_of,
)

if TYPE_CHECKING:
    from clew.core.options import ProjectionOptions

Purpose = Literal["provider_request", "compaction", "display"]
PREVIEW_CHARACTERS = 240
_REPLIES = frozenset({"assistant_message", "tool_call"})
_RUN = 256  # entries
_ENTRY_BYTES = 1000  # what an entry takes beside its body, about
RESULT_CHARACTERS = 4000  # of a tool result in what is to be summed up

_ROLES: dict[str, Any] = {
    "user_message": "user",
    "assistant_message": "assistant",
    "tool_call": "assistant",
    "tool_result": "tool",
    "system_message": "system",
}


class Options(Struct, frozen=True, kw_only=True):
    """How to project; see `Thread.context`."""

    format: str | None = None
    purpose: Purpose = "provider_request"
    budget_tokens: int | None = None
    count: Count = estimate
    system: bool = True
    signal_tools: Collection[str] = ()
    segments: bool = False


def project(
    path: Sequence[Entry],
    format: str | None = None,
    *,
    compacted: bool = True,
    **options: Unpack[ProjectionOptions],
) -> Context:
    """The context of a path, from its first entry to its last: see `Thread.context`.

    For entries that you have already, from `Thread.path`, a page of a feed, or another store. The
    last compaction among them counts; what it names and is not there is taken as missing.
    """
    window = read_window(GivenPath(path), compacted=compacted)
    return project_window(window, Options(format=format, **options))


def project_window(window: Window, options: Options) -> Context:
    """The context of a window."""
    if options.purpose == "display":
        options = replace(options, format=options.format or "plain", segments=True)
    check_options(options)
    return Projection(window, options).context(options, [*window.carried, *window.entries])


def check_options(options: Options) -> None:
    if options.format is not None:
        messages.check_format(options.format)
    if options.purpose not in get_args(Purpose):
        known = ", ".join(get_args(Purpose))
        raise InvalidInput("purpose", f"{options.purpose!r} is not one of {known}")
    if options.budget_tokens is not None:
        check_number(options.budget_tokens, "budget_tokens", 1)


class Projection:
    """A window on its way to a request: at any time a context, and then more entries.

    Each stage takes what comes in order and settles it as soon as nothing that may follow can
    change it. A context ends a branch of each stage, so that the stages themselves go on: what
    was projected once is not projected again. It knows one format, one `system` and one set of
    `signal_tools`; the other options may differ from one context to the next.
    """

    def __init__(self, window: Window, options: Options) -> None:
        self.target = options.format or format_of(window.entries) or "plain"
        self._reader = _Reader(window.entries, options)
        self._builder = Builder(self.target)
        self._writer = messages.writer(self.target)
        self._settled = Settled()
        self._entries = 0
        self.size = 0  # in bytes, about: of the bodies, and some more for each entry
        # Others write a part of it, or what was cut, when it is known which.
        self._is_written_whole = (
            options.purpose == "provider_request" and options.budget_tokens is None
        )
        self._boundary = None if window.compaction is None else window.compaction.entry
        self._builder.take(self._reader.beginning(window))
        with collector.paused():
            self.take(window.entries)

    def take(self, entries: Sequence[Entry]) -> None:
        """Go on with the entries that follow: neither a compaction nor an edit."""
        # In runs: what one stage made of some is still near the processor when the next one asks
        # for it. Ten thousand at once would be fetched from memory again by each.
        for begin in range(0, len(entries), _RUN):
            run = entries[begin : begin + _RUN]
            self._builder.take(self._reader.items(run))
            if self._is_written_whole:
                self._write_settled()
            self.size += sum(map(len, map(_data_of, run))) + _ENTRY_BYTES * len(run)
        self._entries += len(entries)

    def context(self, options: Options, entries: Sequence[Entry] = ()) -> Context:
        """The context so far. `entries` are those that it was made of, if `segments` asks."""
        to_be_sent = options.purpose == "provider_request"
        dialogue = self._builder.branch().finish(to_be_sent=to_be_sent)
        blocks, repairs = dialogue.blocks, [*self._reader.repairs, *dialogue.repairs]
        if options.purpose == "compaction":
            blocks = budget.lean(blocks, RESULT_CHARACTERS)
        if options.budget_tokens is not None:
            blocks, cuts = self._fitted(blocks, options.budget_tokens, options.count)
            repairs += cuts
        if blocks is dialogue.blocks:
            written, settled = self._written(blocks)
        else:
            written, settled = messages.write(self.target, _messages(blocks), unicode=True), 0
        for loss in written.losses:
            found = blocks[loss.index].entries
            repairs.append(Repair(loss.code, loss.message, found[0] if found else None))
        boundary = self._boundary
        report = ContextReport(
            repairs=tuple(repairs),
            entries=self._entries,
            compaction=None if boundary is None else boundary.id,
        )
        # Counting may be a call of a tokenizer for each text, and most callers never ask.
        report.__dict__["measure"] = partial(_sizes, blocks, options.count)
        segments: tuple[ContextSegment, ...] = ()
        if options.segments:
            sources = entries if boundary is None else [*entries, boundary]
            segments = _segments(sources, boundary, blocks, written.places, options)
        # A caller may change what it gets, and the next context is made of the same.
        return Context(
            format=self.target,
            made=Made(written.messages, settled, self._settled),
            next=dialogue.next,
            calls=tuple([replace(c, arguments=to_builtins(c.arguments)) for c in dialogue.calls]),
            system=to_builtins(written.system),
            tools=to_builtins(self._reader.tools),
            model=to_builtins(self._reader.model),
            report=report,
            segments=segments,
        )

    def _write_settled(self) -> None:
        known = len(self._writer.places)
        self._writer.take_all(_messages(self._builder.since(known)), unicode=True)

    def _fitted(
        self, blocks: list[Block], budget_tokens: int, count: Count
    ) -> tuple[list[Block], list[Repair]]:
        # A summary is the first block, and comes from no entry of the window. It stays: what it
        # stands for is nowhere else in the context.
        pinned = int(self._boundary is not None and bool(blocks) and blocks[0].entries == (None,))
        return budget.fit(blocks, budget_tokens, count, pinned=pinned)

    def _written(self, blocks: list[Block]) -> tuple[Written, int]:
        """The request, and how many of its messages will be the same in every later one."""
        self._write_settled()
        ended = self._writer.branch()
        ended.take_all(_messages(blocks[self._builder.settled :]), unicode=True)
        written = ended.finished()
        # The last one may grow, and the end of a request may have changed any.
        count = max(len(self._writer.messages) - 1, 0)
        same = all(map(is_, written.messages[:count], self._writer.messages))
        return written, count if same else 0


_data_of = attrgetter("data")


def _messages(blocks: Sequence[Block]) -> list[Message]:
    return [block.message for block in blocks]


def project_pieces(window: Window, options: Options, max_tokens: int) -> list[list[Any]]:
    """The messages of a window in pieces of a bounded size, each a dialogue of its own."""
    target = options.format or format_of(window.entries) or "plain"
    reader = _Reader(window.entries, options)
    items = [*reader.beginning(window), *reader.items(window.entries)]
    blocks = budget.lean(
        normalise(items, target, to_be_sent=False).blocks,
        RESULT_CHARACTERS,
    )
    return [
        messages.write(target, _messages(piece), unicode=True).messages
        for piece in chunks.split(blocks, max_tokens, options.count)
    ]


def read_dialogue(window: Window, target: str) -> Dialogue:
    """The dialogue of a window in normal form, for those who write it down in a way of their own.

    Open calls at its end are answered as interrupted: what it is written for begins at rest.
    """
    reader = _Reader(window.entries, Options(format=target))
    items = [*reader.beginning(window), *reader.items(window.entries)]
    found = normalise(items, target, to_be_sent=False)
    return replace(found, repairs=[*reader.repairs, *found.repairs])


def format_of(entries: Sequence[Entry]) -> str | None:
    """The format of the newest message that names one, or that can be told by its shape."""
    for entry in reversed(entries):
        if entry.kind in MESSAGE_KINDS:
            written = None if entry.format is None else messages.request_format(entry.format)
            if written is not None:
                return written
            found = messages.detect(entry.body)
            if found != "plain":
                return found
    return None


# --- reading --------------------------------------------------------------------------------


class _Reader:
    """Entries to messages: applies edits, turns summaries into messages, notes the settings."""

    def __init__(self, entries: Sequence[Entry], options: Options) -> None:
        self.repairs: list[Repair] = []
        self.tools: Any = None
        self.model: Any = None
        self._options = options
        self._edits = _edits(entries)
        self._signals: set[str] = set()
        self._readers: dict[
            str | None, Callable[[Any], list[Message]]
        ] = {}  # by the format, once known
        # How often something came between two replies of the model, and the turn of the last one.
        self._step = 0
        self._turn: str | None = None

    def beginning(self, window: Window) -> list[Item]:
        """What stands before the entries of a window."""
        found: list[Item] = []
        if window.repaired:
            boundary = window.compaction
            text = "the first entry that the compaction kept was missing"
            self._report("boundary_repaired", text, boundary.entry.id if boundary else None)
        for entry in window.carried:
            found += self._message(entry) if entry.kind in MESSAGE_KINDS else self._aside(entry)
        return found + self._summary(window)

    def items(self, entries: Sequence[Entry]) -> list[Item]:
        found: list[Item] = []
        for entry in entries:
            kind = entry.kind
            if kind not in MESSAGE_KINDS:
                found += self._aside(entry)
                continue
            if kind not in _REPLIES:
                self._step += 1
            elif entry.turn != self._turn:
                self._step += 1
                self._turn = entry.turn
            found += self._message(entry)
        return found

    def _message(self, entry: Entry) -> list[Item]:
        if entry.kind == "system_message" and not self._options.system:
            return []
        edit = self._edits.get(entry.id) if self._edits else None
        if edit is not None:
            self._report("edited", f"the edit {edit.entry.id} applies", entry.id)
            if edit.edit != "replace":
                return []
            new = edit.message if edit.content is None else _with_content(entry.body, edit.content)
            return self._read(entry, _mended(new), edit.format or entry.format)
        if entry.tombstone is not None and entry.kind == "tool_result":
            # It does not say what it answers, so it is none: its call is answered as interrupted.
            self._report("erased", "the result of a tool was erased", entry.id)
            return []
        try:
            # To be told of lone surrogates by the decoder is much cheaper than a look at every
            # text of every message, and even than one at the bytes for how they are spelled.
            body = decode_unicode(entry.data)
        except REFUSALS:
            body = _mended(decode(entry.data))
            text = "half a character cannot be sent; it became U+FFFD"
            self._report("text_mended", text, entry.id)
        return self._read(entry, body, entry.format)

    def _read(self, entry: Entry, body: Any, format: str | None) -> list[Item]:
        read = self._readers.get(format)
        if read is None:
            format = messages.known_format(format, body)
            read = self._readers[format] = messages.reader(format)
        try:
            found = read(body)
        except ClewError as error:
            self._report("unreadable", str(error), entry.id)
            # A result that cannot be read names no call, so the user tells what it says.
            role: Any = "user" if entry.kind == "tool_result" else _ROLES.get(entry.kind, "user")
            found = [Message(role=role, parts=(Text(text=_as_text(body)),))]
        if self._options.signal_tools:
            found = [self._unsignalled(message) for message in found]
        reply = self._reply(body, format) if entry.kind in _REPLIES else None
        meta = entry.meta_data
        partial = meta is not None and b'"partial"' in meta and bool(entry.meta.get("partial"))
        if len(found) == 1:
            return [Item(entry.id, found[0], entry.turn, reply, self._step, partial)]
        return [
            Item(entry.id, message, entry.turn, reply, self._step, partial) for message in found
        ]

    def _reply(self, body: Any, format: str | None) -> str | None:
        """What the pieces of one reply have in common, if it may have been stored in pieces.

        Items of the Responses API do not tell which response they are of. Those that are stored
        one by one with nothing between them are taken for one; a list of them is one by itself.
        """
        if not isinstance(body, dict):
            return None
        if format == "codex" or (format == "openai-responses" and "output" not in body):
            return f"step {self._step}"
        if format in ("claude-code", "pi") and isinstance(body.get("message"), dict):
            body = body["message"]
        id = body.get("id") or body.get("responseId")  # pi has the latter, too
        return id if isinstance(id, str) else None

    def _unsignalled(self, message: Message) -> Message:
        """Calls that only tell the host something become words, and so do their answers."""
        for part in message.parts:
            if isinstance(part, ToolCall) and part.name in self._options.signal_tools:
                self._signals.add(part.id)
        if not any(_call_of(part) in self._signals for part in message.parts):
            return message
        parts: list[Part] = []
        for part in message.parts:
            if _call_of(part) not in self._signals:
                parts.append(part)
            elif isinstance(part, ToolCall):
                parts.append(Text(text=_as_text(part.arguments)))
            elif isinstance(part, ToolResult):  # one way: nothing else belongs to a call
                parts += part.content
        return replace(message, parts=tuple(parts))

    def _aside(self, entry: Entry) -> list[Item]:
        """Entries that are no messages of their own, but may speak in a context."""
        if entry.kind == "turn_marker":
            if _get(entry, "status") != "save_point":
                self._step += 1
        elif entry.kind == "usage":
            self._step += 1
        elif entry.kind == "active_tools_change":
            self.tools = entry.body
        elif entry.kind == "model_change":
            self.model = entry.body
        elif entry.kind == "branch_summary":
            text = _get(entry, "summary") or _as_text(entry.body)
            return [_said(entry.id, f"<branch_summary>\n{text}\n</branch_summary>")]
        return []

    def _summary(self, window: Window) -> list[Item]:
        """The compaction as messages: the ones it brings, or one that tells what it stands for."""
        compaction = window.compaction
        if compaction is None:
            return []
        if compaction.messages is not None:
            return [
                item
                for body in compaction.messages
                for item in self._read(compaction.entry, _mended(body), compaction.format)
            ]
        kept = [entry for entry in window.kept if entry.id not in self._edits]
        text = summary_text(compaction.summary, kept)
        return [] if text is None else [_said(None, text)]

    def _report(self, code: str, message: str, entry: str | None) -> None:
        self.repairs.append(Repair(code, message, entry))


def _mended(value: Any) -> Any:
    """The value with U+FFFD for every lone surrogate, which no request can carry."""
    if isinstance(value, str):
        return re.sub(_LONE, "\ufffd", value)
    if isinstance(value, list):
        return [_mended(item) for item in value]
    if isinstance(value, dict):
        return {re.sub(_LONE, "\ufffd", key): _mended(item) for key, item in value.items()}
    return value


_LONE = "[\ud800-\udfff]"  # compiled when it is first needed, which takes a while


def summary_text(summary: str, kept: Sequence[Entry]) -> str | None:
    """What a compaction says in a context; None if it has nothing to say."""
    parts = []
    if kept:
        inputs = render([_plain_text(entry) for entry in kept])
        parts.append(f"<preserved_user_inputs>\n{inputs}\n</preserved_user_inputs>")
    if summary.strip():
        parts.append(f"<summary>\n{summary}\n</summary>")
    if not parts:
        return None
    return "\n".join(["[The conversation before this point was summed up.]", *parts])


def _plain_text(entry: Entry) -> str:
    found = messages.view(entry.format, entry.body)
    if not found:
        return _as_text(entry.body)
    texts = [part.text for message in found for part in message.parts if isinstance(part, Text)]
    return "\n".join(texts)


def _said(entry: str | None, text: str) -> Item:
    return Item(entry, Message(role="user", parts=(Text(text=_mended(text)),)))


def edited(entries: Sequence[Entry]) -> set[str]:
    """The ids of the entries that are left out or replaced."""
    return set(_edits(entries))


def _edits(entries: Sequence[Entry]) -> dict[str, ContextEdit]:
    """The latest edit of each entry: to be left out, or replaced."""
    found: dict[str, ContextEdit] = {}
    for entry in entries:
        if entry.kind == "context_edit":
            edit = read_edit(entry)
            if edit.target is not None and edit.edit in ("remove", "replace", "restore"):
                found[edit.target] = edit
    return {target: edit for target, edit in found.items() if edit.edit != "restore"}


def _with_content(body: Any, content: Any) -> Any:
    """A message, or the record that holds one, with other content."""
    if not isinstance(body, dict):
        return body
    if isinstance(body.get("message"), dict):
        return {**body, "message": {**body["message"], "content": content}}
    return {**body, "content": content}


def _call_of(part: Part) -> str | None:
    if isinstance(part, ToolCall):
        return part.id
    return part.call if isinstance(part, ToolResult) else None


def _as_text(body: Any) -> str:
    if isinstance(body, str):
        return body
    if isinstance(body, dict) and len(body) == 1 and isinstance(next(iter(body.values())), str):
        return str(next(iter(body.values())))
    return render(body)


def _get(entry: Entry, name: str) -> Any:
    return entry.body.get(name) if isinstance(entry.body, dict) else None


# --- segments -------------------------------------------------------------------------------


def _sizes(blocks: Sequence[Block], count: Count) -> list[int]:
    return [count_message(block.message, count) for block in blocks]


def _segments(
    sources: Sequence[Entry],
    boundary: Entry | None,
    blocks: Sequence[Block],
    places: Sequence[int | None],
    options: Options,
) -> tuple[ContextSegment, ...]:
    sizes = _sizes(blocks, options.count)
    entries: dict[str | None, Entry] = {entry.id: entry for entry in sources}
    if boundary is not None:
        entries[None] = boundary  # its summary is a message that no entry was
    names = {call.id: call.name for block in blocks for call in calls_of(block.message)}
    found = []
    for block, place, size in zip(blocks, places, sizes, strict=True):
        for id in block.entries:
            share = size // len(block.entries)
            found.append(_segment(entries[id], block.message, place, share, names))
    return tuple(found)


def _segment(
    entry: Entry, message: Message, place: int | None, size: int, names: dict[str, str]
) -> ContextSegment:
    parts = [part for own in messages.view(entry.format, entry.body) for part in own.parts]
    call = next((part for part in parts if isinstance(part, ToolCall | ToolResult)), None)
    name = None if call is None else call.name or names.get(_call_of(call) or "")
    return ContextSegment(
        entry_id=entry.id,
        kind=entry.kind,
        message_index=place,
        role=message.role,
        tool_call_id=None if call is None else _call_of(call),
        tool_name=name,
        token_estimate=size,
        blobs=entry.blobs,
        artifacts=entry.artifacts,
        preview=shorten(_preview(entry, parts), PREVIEW_CHARACTERS),
    )


def _preview(entry: Entry, parts: Sequence[Part]) -> str:
    if entry.kind == "compaction":
        return read_compaction(entry).summary
    thoughts = [part.text for part in parts if isinstance(part, Thinking)]
    return _shown(parts) or "\n".join(thoughts) or _plain_text(entry)


def _shown(parts: Sequence[Part]) -> str:
    """What a reader would want to see of a message."""
    texts: list[str] = []
    for part in parts:
        if isinstance(part, Text):
            texts.append(part.text)
        elif isinstance(part, ToolCall):
            texts.append(f"{part.name}({render(part.arguments)})")
        elif isinstance(part, ToolResult):
            texts.append(_shown(part.content))
    return "\n".join(texts)
