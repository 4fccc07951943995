"""Text for a terminal: cleaned of control sequences, measured in cells, cut between characters.

Stored text is untrusted. A tool's output may hold sequences that move the cursor, rewrite what
was printed before, set the window's title, or turn the direction of reading around.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any

from clew import messages
from clew.context.tokens import characters, is_flag_half
from clew.core.codec import render
from clew.core.model import Entry
from clew.core.removal import Receipt
from clew.messages.gist import gist
from clew.messages.neutral import Media, Part, Text, Thinking, ToolCall, ToolResult

_LINE_ENDS = "\x0b\x0c\r\x85\u2028\u2029"
_ELLIPSIS = "…"
_PREVIEW_CHARACTERS_MAX = 1000  # that are looked at for one line
_JSON_CHARACTERS_MAX = 300


# --- cleaning -------------------------------------------------------------------------------


def clean(text: str) -> str:
    """The text without anything that a terminal would act on, but for newlines and tabs."""
    if text.isascii() and text.isprintable():
        return text
    return _unsafe().sub(_replacement, _sequence().sub("", text.replace("\r\n", "\n")))


def one_line(text: str) -> str:
    """The clean text with every run of white space as one space."""
    return " ".join(clean(text).split())


def escape_json(text: str) -> str:
    """JSON text that is safe to print: unsafe characters, only ever in strings, as \\uXXXX."""
    return _unsafe().sub(lambda match: _escaped(match[0]), text)


# Compiled when they are first needed: for most commands that is never, and it takes its time.


@cache
def _sequence() -> re.Pattern[str]:
    """Sequences go as a whole.

    What is not well-formed loses its control characters only, so that an unfinished one cannot
    swallow the text behind it. No part may run over another control character: that keeps the time
    linear, whatever the text.
    """
    return re.compile(
        r"""
          (?: \x1b\[ | \x9b ) [0-?]* [ -/]* [@-~]                   # CSI: colours, cursor
        | (?: \x1b[\]PX^_] | [\x90\x98\x9d-\x9f] )                  # OSC, DCS, SOS, PM, APC:
          [^\x00-\x1f\x7f-\x9f]* (?: \x07 | \x1b\\ | \x9c )         # titles, links, the clipboard
        | \x1b [ -/]* [0-~]                                         # all other escapes
        """,
        re.VERBOSE,
    )


@cache
def _unsafe() -> re.Pattern[str]:
    return re.compile(
        "["
        "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but for tab and newline
        "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction of reading
        "\u00ad\u180e\u200b\u2060-\u2065\u206a-\u206f\ufeff\ufff9-\ufffb"  # invisible
        "\u2028\u2029"  # line ends that some terminals obey
        "\U000e0000-\U000e007f"  # tags: invisible letters
        "\ud800-\udfff"  # lone surrogates, which no encoding carries
        "]"
    )


def _replacement(match: re.Match[str]) -> str:
    if match[0] in _LINE_ENDS:
        return "\n"
    return "\ufffd" if "\ud800" <= match[0] <= "\udfff" else ""


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


# --- measuring and cutting ------------------------------------------------------------------


def cells(text: str) -> int:
    """How many columns of a terminal the clean text takes."""
    return len(text) if text.isascii() else sum(map(_cells, characters(text)))


def _cells(character: str) -> int:
    if unicodedata.category(character[0]) in ("Mn", "Me", "Cf"):
        return 0
    wide = unicodedata.east_asian_width(character[0]) in ("W", "F")
    flag = len(character) == 2 and is_flag_half(character[0])
    return 2 if wide or flag or "\ufe0f" in character else 1


def cut(text: str, width: int) -> str:
    """As many whole characters as fit, with … in place of the rest."""
    if cells(text) <= width:
        return text
    kept, used = "", 0
    for character in characters(text):
        used += _cells(character)
        if used > width - 1:
            break
        kept += character
    return kept + _ELLIPSIS if width > 0 else ""


def pad(text: str, width: int) -> str:
    """Exactly so many columns: cut, or filled up with spaces."""
    text = cut(text, width)
    return text + " " * (width - cells(text))


# --- words ----------------------------------------------------------------------------------

_UNITS = (
    ("year", 31_556_952),
    ("month", 2_629_746),
    ("day", 86_400),
    ("hour", 3_600),
    ("minute", 60),
)
_PLURALS = {"entry": "entries", "reply": "replies"}


def ago(then: datetime, now: datetime) -> str:
    """How long ago, in words; the time itself for what lies in the future."""
    seconds = (now - then).total_seconds()
    if seconds < -60:
        return f"{then:%Y-%m-%d %H:%M}"
    for unit, size in _UNITS:
        if seconds >= size:
            return f"{plural(int(seconds // size), unit)} ago"
    return "just now"


def plural(number: int, noun: str) -> str:
    return f"{number:,} {noun if number == 1 else _PLURALS.get(noun, noun + 's')}"


def size(number: int) -> str:
    """Bytes in words: 512 bytes, 14 KB, 3.2 MB."""
    if number < 1024:
        return plural(number, "byte")
    amount = float(number)
    for unit in ("KB", "MB", "GB", "TB"):
        amount /= 1024
        if amount < 1000 or unit == "TB":
            break
    return f"{amount:.0f} {unit}" if amount >= 10 else f"{amount:.1f} {unit}"


# --- entries as text: messages of every format, all else as compact JSON -------------------


def preview(entry: Entry) -> str:
    """One clean line of how it begins, for the screen to cut; … where there is more."""
    text = text_of(entry, short=True)
    more = _ELLIPSIS if len(text) > _PREVIEW_CHARACTERS_MAX else ""
    return one_line(text[:_PREVIEW_CHARACTERS_MAX]) + more


def text_of(entry: Entry, *, short: bool = False) -> str:
    """The full text of a message, with its tool calls and results.

    `short`: long JSON is cut, and of what is no message only the gist is told.
    """
    body = entry.body
    if entry.erased_at is not None:
        return f"[erased on {entry.erased_at:%Y-%m-%d %H:%M}]"
    if entry.kind == "turn_marker" and isinstance(body, dict) and "status" in body:
        return _marker(body)
    if entry.kind == "snapshot" and isinstance(body, dict) and "tree" in body:
        return _snapshot(body)
    if entry.kind == "compaction" and isinstance(body, dict) and "summary" in body:
        return f"summary: {body['summary']}"
    if entry.kind == "usage" and (line := _usage(entry)) is not None:
        return line
    if entry.kind == "custom" and isinstance(label := entry.meta.get("label"), str):
        return label  # of an adapter's own, whose body says nothing to people
    found = messages.view(entry.format, body)
    if not found:
        return gist(body) if short else _json(body, short)
    return _said([part for message in found for part in message.parts], short)


def remainders(receipt: Receipt | None) -> list[str]:
    """Where something was left of what was removed, or where that cannot be told."""
    found = []
    for checked in () if receipt is None else receipt.left:
        left = "cannot be told" if checked.left is None else f"{checked.left} left"
        found.append(f"{checked.place}: {left}" + (f" ({checked.note})" if checked.note else ""))
    return found


def partial_of(entry: Entry) -> str | None:
    """Why a streamed reply is not whole; None if it is, and for all else."""
    why = entry.meta.get("partial") if entry.kind == "assistant_message" else None
    return why if isinstance(why, str) else None


def _usage(entry: Entry) -> str | None:
    """What a reply took, in a few words; None if the entry tells no such thing."""
    from clew.messages.usage import in_note

    told = in_note(entry.format, entry.body)
    if told.usage is None:
        return None
    used = told.usage
    sent = used.input_tokens + used.cache_read_tokens + used.cache_write_tokens
    model = "" if told.model is None else f", {told.model}"
    return f"{sent:,} tokens in, {used.output_tokens:,} out{model}"


def _marker(body: dict[str, Any]) -> str:
    words = [str(body["status"])]
    words += [f"by {body['owner']}"] if "owner" in body else []
    words += [str(body[key]) for key in ("reason", "error") if key in body]
    return " ".join(words)


def _snapshot(body: dict[str, Any]) -> str:
    label = f"[{body['label']}] " if body.get("label") else ""
    files, held = body.get("files"), body.get("size_bytes")
    if not isinstance(files, int) or not isinstance(held, int):
        return _json(body, True)
    return f"{label}{plural(files, 'file')}, {size(held)}, of {body.get('root')}"


def _said(parts: Sequence[Part], short: bool) -> str:
    return "\n".join(text for part in parts if (text := part_text(part, short=short)))


def part_text(part: Part, *, short: bool = False) -> str:
    """A piece of a message as text."""
    match part:
        case Text(text=text):
            return text
        case Thinking(text=text):
            return f"({text})" if text else ""
        case ToolCall(name=name):
            return f"→ {name}({arguments_of(part, short=short)})"
        case ToolResult(content=content, is_error=is_error):
            return f"← {'error: ' if is_error else ''}{_said(content, short)}"
        case Media(kind=kind, mime=mime):
            return f"[{kind} {mime}]" if mime else f"[{kind}]"
        case _:
            return _json(part.raw, short)


def arguments_of(call: ToolCall, *, short: bool = False) -> str:
    """What a tool is called with, as in `read(path="a.py")`."""
    if call.unparsed is not None:
        return call.unparsed
    if isinstance(call.arguments, dict):
        pairs = call.arguments.items()
        return ", ".join(f"{key}={_json(value, short)}" for key, value in pairs)
    return "" if call.arguments is None else _json(call.arguments, short)


def _json(value: Any, short: bool) -> str:
    text = render(value)
    if not short or len(text) <= _JSON_CHARACTERS_MAX:
        return text
    return text[:_JSON_CHARACTERS_MAX] + _ELLIPSIS
