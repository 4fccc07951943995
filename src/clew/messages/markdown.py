"""Texts as Markdown that stay content, whatever they say: nothing in them makes a heading of ours.

A text of a message is Markdown itself, so it is quoted, every line of it, with its own formatting
in the quote. HTML, pictures of other servers and definitions of links, which would reach beyond a
quote, are written so that they are text. An output is fenced, with a fence longer than any in it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from html import escape
from typing import Any

from clew.messages.neutral import Media, Text, ToolResult

_MARKUP = re.compile(r"([\\`*_\[\]<>&~|])")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_RUN = re.compile("`+")
_TICKS = re.compile(r"\\.|`+", re.DOTALL)
_REACHING = re.compile(r"<|\]:|!\[")
_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b\n]*(?:\x07|\x1b\\)")
_BREAKS = re.compile("\r\n?")
# What a reader does not see, or what turns the direction of reading around.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)


def clean(text: str) -> str:
    """Without what an editor or a terminal would act on, but for ends of lines and tabs."""
    if text.isascii() and text.isprintable():
        return text
    seen = _UNSEEN.sub("\ufffd", _BREAKS.sub("\n", _SEQUENCE.sub("", text)))
    return seen.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def in_line(text: str) -> str:
    """A text for a heading or a sentence of ours: one line without any markup."""
    return _MARKUP.sub(r"\\\1", " ".join(clean(text).split()))


def in_tag(text: str) -> str:
    """A text for a place between two tags of ours, in one line."""
    return escape(" ".join(clean(text).split()), quote=False)


def fenced(text: str, language: str = "") -> str:
    """A block of code. Nothing ends it early: its fence is longer than any run inside."""
    text = clean(text).removesuffix("\n")
    fence = "`" * max(3, longest_run(text) + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def longest_run(text: str) -> int:
    return max(map(len, _RUN.findall(text)), default=0)


def quoted(text: str) -> str:
    """A text of a message: quoted line by line, formatted as its author meant."""
    return "\n".join(f"> {line}" if line else ">" for line in _contained(clean(text).strip("\n")))


def _contained(text: str) -> Iterator[str]:
    """The lines of a text, so that what they open ends with them."""
    fence = ""
    even = True  # no line since the last empty one has left a run of backticks open
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence) and not found[2].strip():
                # Without what it was indented by: then it ends the block in every reading.
                yield found[1]
                fence, even = "", True
            else:
                yield line
        elif found and not (found[1][0] == "`" and "`" in found[2]):
            fence = found[1]
            yield fence + found[2]
        else:
            made, closed = _inert(line, even)
            even = not line.strip() or (even and closed)
            yield made
    if fence:
        yield fence


def _inert(line: str, even: bool) -> tuple[str, bool]:
    """A line with what would reach beyond a quote escaped, and whether its backticks are paired.

    In a code span nothing has to be escaped, and a backslash would show. But only where every
    reader sees the same span: not behind an open run of backticks, and not in a table.
    """
    made: list[str] = []
    place, paired = 0, True
    spans = even and "|" not in line
    runs = _Runs(line)
    while match := _TICKS.search(line, place):
        start, run = match.start(), match[0]
        made.append(_escaped(line[place:start]))
        if run[0] == "\\":
            made.append(run)  # its author has escaped it
            place = match.end()
            continue
        end = runs.closing(match.end(), len(run))
        if end is None:
            paired = False
            made.append(run)
            place = match.end()
        else:
            code = line[start:end]
            made.append(code if spans else _escaped(code))
            place = end
    made.append(_escaped(line[place:]))
    return "".join(made), paired


class _Runs:
    """The runs of backticks in a line, by their lengths."""

    def __init__(self, line: str) -> None:
        self._starts: dict[int, list[int]] = {}
        for found in _RUN.finditer(line):
            self._starts.setdefault(len(found[0]), []).append(found.start())

    def closing(self, place: int, length: int) -> int | None:
        """Where the code span ends that a run of so many backticks before a place has opened."""
        starts = self._starts.get(length, [])
        number = bisect_left(starts, place)
        return starts[number] + length if number < len(starts) else None


def _escaped(text: str) -> str:
    return _REACHING.sub(lambda found: _ESCAPES[found[0]], text)


_ESCAPES = {"<": "&lt;", "]:": "]&#58;", "![": "!&#91;"}


# --- parts ----------------------------------------------------------------------------------


def media_name(part: Media) -> str:
    return f"{part.kind}: {part.name or part.mime or 'without a name'}"


def result_text(result: ToolResult) -> str:
    """What a call gave, as text; media by name."""
    return "\n".join(map(_content, result.content))


def _content(part: Any) -> str:
    if isinstance(part, Text):
        return part.text
    return f"[{media_name(part)}]" if isinstance(part, Media) else as_json(part.raw)


def as_json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
