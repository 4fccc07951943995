"""Markdown and code as parts of lines, by rich, which is loaded when something is to be rendered.

Only the text and the names of styles are taken from it: what is printed goes through the screen
like everything else, which cleans it and writes the codes itself. Colours are the terminal's own
sixteen, so that they can be read on a light and on a dark background.
"""

from __future__ import annotations

import io
from functools import cache
from typing import Any

from clew.cli._text import clean

Line = list[tuple[str, str]]

TEXT_MAX = 200_000  # characters; what is longer is shown as it is, or rendering would take long
_COLOURS = "black red green yellow blue magenta cyan white".split()
_NAMES = [*_COLOURS, *(f"bright_{name}" for name in _COLOURS)]


def rendered(text: str, width: int) -> list[Line]:
    """The lines of a text in Markdown, wrapped at a width."""
    text = clean(text).expandtabs(4)
    if len(text) > TEXT_MAX or not _has_markup(text):
        return _wrapped(text, width)
    console, markdown = _rich()
    options = console.options.update(width=width)
    lines = console.render_lines(markdown(text), options, pad=False)
    shown = [[(piece.text, _style(piece.style)) for piece in line] for line in lines]
    return _trimmed(shown)


def _has_markup(text: str) -> bool:
    """Whether there is anything to render; most short messages are plain, and need no rich."""
    return any(mark in text for mark in "*_`#>|[-+~") or any(
        line.lstrip()[:2].rstrip(".)").isdigit() for line in text.splitlines()
    )


def _wrapped(text: str, width: int) -> list[Line]:
    import textwrap

    lines: list[Line] = []
    for paragraph in text.split("\n"):
        lines += [[(line, "")] for line in textwrap.wrap(paragraph, width) or [""]]
    return lines


@cache
def _rich() -> tuple[Any, Any]:
    from rich.console import Console
    from rich.markdown import Heading, Markdown
    from rich.text import Text

    class Title(Heading):
        """A heading without the frame and the centring, which a narrow terminal has no room for."""

        def __rich_console__(self, console: Any, options: Any) -> Any:
            self.text.justify = "left"
            yield Text("")
            yield self.text

    class Plain(Markdown):
        elements = {**Markdown.elements, "heading_open": Title}  # noqa: RUF012 (as rich has it)

    console = Console(
        file=io.StringIO(), color_system="standard", force_terminal=True, legacy_windows=False
    )
    return console, lambda text: Plain(text, code_theme="ansi_dark", hyperlinks=False)


def _style(style: Any) -> str:
    """A style of rich by the names that the screen knows."""
    if style is None:
        return ""
    names = [name for name in ("bold", "dim", "italic", "underline") if getattr(style, name)]
    number = None if style.color is None else style.color.number
    if number is not None and number < len(_NAMES) and _NAMES[number] not in ("black", "white"):
        names.append(_NAMES[number])  # those two are the background of somebody
    return " ".join(names)


def _trimmed(lines: list[Line]) -> list[Line]:
    """Without empty lines at both ends, and never two of them: blocks bring one each."""
    kept: list[Line] = []
    for line in lines:
        empty = not "".join(text for text, _ in line).strip()
        if not empty:
            kept.append(line)
        elif kept and kept[-1]:
            kept.append([])
    return kept if not kept or kept[-1] else kept[:-1]
