"""The screen: the only place that prints and that knows about colour and width.

Callers give parts of a line, plain or as (text, style). Everything that they give is cleaned
here, so no stored text reaches the terminal with its control sequences, even if a command forgot.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, TextIO

from clew.cli._text import cells, clean, cut, escape_json, one_line

Part = str | tuple[str, str]

WIDTH_UNKNOWN = 80
DELAY_SECONDS = 0.5  # what is done sooner needs no bar
REDRAW_SECONDS = 0.1
_BAR_CELLS = 24

_CODES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
# What we draw with, for terminals whose encoding does not have it.
_PLAIN = str.maketrans(
    {"│": "|", "├": "+", "─": "-", "●": "*", "○": "o", "◉": "@", "…": "...", "→": "->", "←": "<-"}
)


class Screen:
    """Standard output and standard error, with what the terminal can show."""

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        answers: TextIO | None = None,
        colour: bool = False,
        width: int = WIDTH_UNKNOWN,
    ) -> None:
        self.colour = colour
        self.width = width
        self._answers = answers
        self._out = out
        self._err = err
        self._unicode = _has_glyphs(out)

    @classmethod
    def for_terminal(cls, environ: Mapping[str, str] = os.environ) -> Screen:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # an old encoding is no reason to fail
        width = shutil.get_terminal_size((WIDTH_UNKNOWN, 24)).columns
        colour = wants_colour(environ, tty=sys.stdout.isatty())
        return cls(sys.stdout, sys.stderr, answers=sys.stdin, colour=colour, width=width)

    # --- printing ---

    def line(self, *parts: Part, fit: bool = True) -> None:
        """One line, cut at the width of the terminal unless `fit` is false."""
        pairs = [(part, "") if isinstance(part, str) else part for part in parts]
        # Cleaned here and not by the commands: the one that forgot would open the terminal to
        # whatever a tool has printed.
        pairs = [(_flat(text), style) for text, style in pairs]
        if fit:
            pairs = _fitted(pairs, self.width)
        self._write("".join(self._styled(*pair) for pair in pairs).rstrip(" "))

    def text(self, text: str, *, indent: str = "") -> None:
        """Text as it is, line by line, uncut: the terminal wraps it."""
        for line in clean(text).split("\n"):
            self.line(indent, line.expandtabs(4), fit=False)

    def prose(self, text: str, style: str = "") -> None:
        """A paragraph, wrapped at the width of the terminal."""
        for line in textwrap.wrap(one_line(text), max(20, self.width), break_on_hyphens=False):
            self.line((line, style))

    def json(self, value: Any) -> None:
        """One line of JSON: exact, and safe to print as it is."""
        text = json.dumps(value, ensure_ascii=not self._unicode, separators=(",", ":"))
        self._out.write(escape_json(text) + "\n")

    def error(self, message: str) -> None:
        # What was printed before comes first, also where both streams go to one terminal.
        try:
            self.flush()
        except BrokenPipeError:
            self.abandon()
        print(f"clew: {one_line(message)}", file=self._err)

    def ask(self, question: str) -> bool | None:
        """Whether the person at the terminal says yes; None if there is no terminal."""
        # A pipe must not say yes by accident, so only a terminal is asked.
        if self._answers is None or not self._answers.isatty():
            return None
        self.flush()
        print(f"{one_line(question)} [y/N] ", end="", file=self._err, flush=True)
        return self._answers.readline().strip().lower() in ("y", "yes")

    def bytes(self, data: bytes) -> None:
        """Bytes as they are, for a file or a pipe; a terminal gets clean text."""
        if self._out.isatty() or not hasattr(self._out, "buffer"):
            self.text(data.decode("utf-8", "backslashreplace").removesuffix("\n"))
            return
        self.flush()
        self._out.buffer.write(data)

    def bar(self, label: str) -> Bar:
        """Progress on standard error, where that is a terminal."""
        return Bar(self._err if self._err.isatty() else None, label, width=self.width)

    def flush(self) -> None:
        self._out.flush()

    def abandon(self) -> None:
        """The reader closed the pipe: keep Python from failing again when it flushes at exit."""
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), self._out.fileno())

    def _styled(self, text: str, style: str) -> str:
        if not (self.colour and style and text):
            return text
        codes = ";".join(_CODES[name] for name in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m"

    def _write(self, line: str) -> None:
        self._out.write((line if self._unicode else line.translate(_PLAIN)) + "\n")


def wants_colour(environ: Mapping[str, str], *, tty: bool) -> bool:
    """NO_COLOR comes before FORCE_COLOR, both before what the output is."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return environ["FORCE_COLOR"] != "0"
    return tty and environ.get("TERM") != "dumb"


def _has_glyphs(out: TextIO) -> bool:
    try:
        "│├─●○◉…→←".encode(out.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _flat(text: str) -> str:
    return clean(text).replace("\n", " ").replace("\t", " ")


def _fitted(pairs: list[tuple[str, str]], width: int) -> list[tuple[str, str]]:
    """The parts that fit, with the last of them cut."""
    left = width
    if sum(cells(text) for text, _ in pairs) <= width:
        return pairs
    kept: list[tuple[str, str]] = []
    for text, style in pairs:
        size = cells(text)
        if size >= left:  # also when it fills the line: something follows, which … stands for
            kept.append((cut(text + " ", left), style))
            break
        kept.append((text, style))
        left -= size
    return kept


class Bar:
    """A bar for work that takes its time; leaving its `with` block wipes it away.

    Call it with how much is done, and of how much. Without a stream it shows nothing.
    """

    def __init__(
        self,
        stream: TextIO | None,
        label: str,
        *,
        width: int = 80,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._label = label
        self._width = width
        self._clock = clock
        self._began = clock()
        self._drawn = self._began + DELAY_SECONDS - REDRAW_SECONDS
        self._shown = 0

    def __call__(self, done: int, total: int) -> None:
        now = self._clock()
        if self._stream is None or now - self._drawn < REDRAW_SECONDS:
            return
        self._drawn = now
        self._draw(bar_text(self._label, done, total, now - self._began)[: self._width - 1])

    def _draw(self, text: str) -> None:
        assert self._stream is not None
        self._stream.write("\r" + text.ljust(self._shown))
        self._stream.flush()
        self._shown = len(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._shown and self._stream is not None:
            self._draw("")
            self._stream.write("\r")
            self._stream.flush()


def bar_text(label: str, done: int, total: int, seconds: float) -> str:
    """`verify [####----] 1,234 of 5,000 (24 %), 12 s left`"""
    if total <= 0:
        return f"{label} {done:,}"
    share = min(done / total, 1.0)
    filled = int(share * _BAR_CELLS)
    bar = "#" * filled + "-" * (_BAR_CELLS - filled)
    text = f"{label} [{bar}] {done:,} of {total:,} ({int(share * 100)} %)"
    return f"{text}, {_span(seconds * (1 - share) / share)} left" if done else text


def _span(seconds: float) -> str:
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
