"""What can be found of a record: its texts, by who said them, and what it can be filtered by."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from clew import messages
from clew.core.errors import ClewError
from clew.core.facts import read_fact
from clew.core.model import Entry, Fact, Record
from clew.core.text_index import DOCUMENT_WORDS_MAX, EVERY, Document, split
from clew.messages.neutral import Media, Message, Text, Thinking, ToolCall, ToolResult
from clew.messages.neutral import Part as MessagePart
from clew.search.words import behind, prepared

USER, ASSISTANT, CALL, OTHER = range(4)  # the columns; the first weighs most
TEXT_MAX = 64 * 1024  # characters of a record that are read for the index
_TAIL = 16 * 1024  # of these, the last ones: errors stand at the end
_STRINGS_MAX = 10_000  # of a body that is not a message
_MESSAGES = frozenset("user_message assistant_message tool_call tool_result system_message".split())
_SILENT = frozenset(("turn_marker", "usage"))  # kinds that say nothing but in these fields:
_SAID = ("reason", "error", "message")
_SUMMARIES = frozenset(("compaction", "branch_summary"))
# Long strings that no reader looks at.
_OPAQUE = frozenset(
    ("data", "signature", "encrypted_content", "encrypted_index", "thoughtSignature")
)

# Colours, titles and links that programs print: no search is for these.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])")

Piece = tuple[int, str]


class Found(Struct, frozen=True):
    """The texts of a record in their order, each with its column; its role, tools and model."""

    pieces: list[Piece]
    role: str | None = None
    tools: tuple[str, ...] = ()
    model: str | None = None


def read_entry(entry: Entry) -> Found:
    """Everything of an entry that can be found. What cannot be read has nothing."""
    found = _read_entry(entry)
    if b"\\u001b" not in entry.data:  # how canonical JSON has the character
        return found
    return replace(found, pieces=[(column, plain(text)) for column, text in found.pieces])


def plain(text: str) -> str:
    """A text without what a terminal would act on."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def _read_entry(entry: Entry) -> Found:
    try:
        body = entry.body
    except ClewError:
        return Found([])
    if entry.kind in _MESSAGES:
        found = messages.view(entry.format, body)
        if found:
            return _read_messages(entry, found)
    if entry.kind in _SILENT:
        said = [body.get(key) for key in _SAID] if isinstance(body, dict) else []
        return Found([(OTHER, text) for text in said if isinstance(text, str)])
    column = ASSISTANT if entry.kind in _SUMMARIES else OTHER
    return Found([(column, text) for text in _strings(body)])


def read_title(fact: Fact) -> str | None:
    """The title that a fact sets; None if it sets none."""
    try:
        value = read_fact("title", fact.data)
    except ClewError:
        return None
    return None if value is None else plain(str(value["text"]))


def _read_messages(entry: Entry, found: list[Message]) -> Found:
    pieces: list[Piece] = []
    tools: list[str] = []
    model: str | None = None
    for message in found:
        model = message.model or model
        said = USER if message.role == "user" else ASSISTANT
        for part in message.parts:
            _read_part(part, said, pieces, tools)
    if model is None and entry.meta_data is not None and b'"model"' in entry.meta_data:
        given = entry.meta.get("model")
        model = given if isinstance(given, str) else None
    return Found(pieces, found[0].role, tuple(dict.fromkeys(tools)), model)


def _read_part(part: MessagePart, said: int, pieces: list[Piece], tools: list[str]) -> None:
    match part:
        case Text(text=text):
            pieces.append((said, text))
        case Thinking(text=text):
            pieces.append((OTHER, text))
        case ToolCall(name=name):
            arguments, unparsed = part.parse()
            tools.append(name)
            pieces.append((CALL, name))
            if unparsed is not None:
                pieces.append((CALL, unparsed))
            pieces += [(CALL, text) for text in _strings(arguments)]
        case ToolResult(content=content, name=name):
            if name is not None:
                tools.append(name)
            for inner in content:
                _read_part(inner, OTHER, pieces, tools)
        case Media(name=name):
            if name:
                pieces.append((said, name))
        case _:
            pieces += [(OTHER, text) for text in _strings(part.raw)]


def _strings(value: Any) -> Iterator[str]:
    """The texts and numbers in a JSON value, without the names of fields."""
    left = _STRINGS_MAX
    waiting = [value]
    while waiting and left:
        left -= 1
        match waiting.pop():
            case str(text):
                yield text
            case bool() | None:
                pass
            case int() | float() as number:
                yield str(number)
            case list(items):
                waiting += reversed(items)
            case dict(fields):
                kept = [item for key, item in fields.items() if key not in _OPAQUE]
                waiting += reversed(kept)


# --- for the index ---


def mark(key: str, value: str = "") -> str:
    """A word of a document that no text has: a filter is a query for it."""
    return f"{EVERY}{key}{blake2b(value.encode('utf-8', 'replace'), digest_size=6).hexdigest()}"


def marks(entry: Entry, found: Found, *, cut: bool) -> list[str]:
    made = [EVERY, mark("kind", entry.kind)]
    if found.role is not None:
        made.append(mark("role", found.role))
    if found.model is not None:
        made += [mark("model"), mark("model", found.model)]
    made += [mark("tool", tool) for tool in found.tools]
    return [*made, mark("cut")] if cut else made


def document(record: Record, found: Found) -> Document:
    """A record as the index takes it."""
    pieces, cut = _capped(found.pieces)
    columns = [""] * 4
    for column in range(4):
        texts = [text for own, text in pieces if own == column]
        if texts:
            text = "\n".join(texts)
            columns[column] = prepared(text) + behind(text)
    size = sum(map(len, columns))
    if size > DOCUMENT_WORDS_MAX:
        columns, shorter = _fewer_words(columns)
        cut = cut or shorter
    own = marks(record, found, cut=cut) if isinstance(record, Entry) else [EVERY, mark("title")]
    columns[OTHER] = f"{columns[OTHER]} {' '.join(own)}"
    return Document(
        record.seq,
        record.time_us,
        size,
        (columns[0], columns[1], columns[2], columns[3]),
        title=isinstance(record, Fact),
    )


def _capped(pieces: list[Piece]) -> tuple[list[Piece], bool]:
    """As much as is read for the index: of what is too long, the beginning and the end."""
    if sum(len(text) for _, text in pieces) <= TEXT_MAX:
        return pieces, False
    kept: list[Piece] = []
    left = TEXT_MAX
    for column, text in pieces:
        if len(text) > left:
            tail = min(_TAIL, left // 4)
            text = f"{text[: left - tail]}\n{text[len(text) - tail :]}"
        kept.append((column, text))
        left -= len(text)
        if left <= 0:
            break
    return kept, True


def _fewer_words(columns: list[str]) -> tuple[list[str], bool]:
    """No more words than every engine can tell the places of."""
    left = DOCUMENT_WORDS_MAX
    kept = []
    for column in columns:
        words = split(column)
        kept.append(column if len(words) <= left else " ".join(words[:left]))
        left = max(0, left - len(words))
    return kept, kept != columns
