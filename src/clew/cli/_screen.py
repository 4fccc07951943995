"""The screen: the only place that prints and that knows about colour and width.

Callers give parts of a line, plain or as (text, style). Everything that they give is cleaned
here, so no stored text reaches the terminal with its control sequences, even if a command forgot.
"""

from __future__ import annotations

import io
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import IO, Any, Self, TextIO, cast

from clew.cli._exits import OutputError
from clew.cli._text import cells, clean, cut, escape_json, one_line

Part = str | tuple[str, str]

SCHEMA_VERSION = 1  # of every JSON object that is printed; a field that is added does not raise it
PROSE_WIDTH = 80  # of paragraphs that go to a file or a pipe
DELAY_SECONDS = 0.5  # what is done sooner needs no bar
REDRAW_SECONDS = 0.1
_BAR_CELLS = 24

_CODES = {
    "bold": "1",
    "dim": "2",
    "italic": "3",
    "underline": "4",
    "reverse": "7",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
    "white": "37",
    "bright_black": "90",
    "bright_red": "91",
    "bright_green": "92",
    "bright_yellow": "93",
    "bright_blue": "94",
    "bright_magenta": "95",
    "bright_cyan": "96",
    "bright_white": "97",
}
# What we draw with, for terminals whose encoding does not have it.
_PLAIN = str.maketrans(
    {"│": "|", "├": "+", "─": "-", "●": "*", "○": "o", "◉": "@", "…": "...", "→": "->", "←": "<-"}
    | {"└": "+", "█": "#", "░": ".", "•": "*", "▌": "|", "·": "-", "━": "=", "≡": "="}
)


class Screen:
    """Standard output and standard error, with what the terminal can show.

    `width` is that of the terminal that lines are cut for, `rows` its height. A file and a pipe
    have none, and get every line whole.
    """

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        answers: TextIO | None = None,
        colour: bool = False,
        width: int | None = None,
        rows: int | None = None,
        closed: bool = False,
    ) -> None:
        self.colour = colour
        self.width = width
        self.rows = rows
        self.fields: Sequence[str] | None = None  # what is left of a line of JSON, if not all
        self._closed = closed
        self._answers = answers
        self._out = out
        self._err = err
        self._unicode = _has_glyphs(out)

    @classmethod
    def for_terminal(cls, environ: Mapping[str, str] = os.environ) -> Screen:
        _fill_standard_descriptors()
        # Python has None for a stream that was closed when it started.
        out: TextIO = sys.stdout or _nowhere()
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(errors="replace")  # an old encoding is no reason to fail
        return cls(
            out,
            sys.stderr or _nowhere(),
            answers=sys.stdin,
            colour=wants_colour(environ, tty=out.isatty()),
            width=_columns(out, environ),
            rows=_rows(out),
            closed=sys.stdout is None,
        )

    def refuse_closed(self) -> None:
        """Before a command begins: it could not say what it has done."""
        if self._closed:
            raise OutputError(
                "standard output is closed, so nothing was done; >/dev/null throws the output away"
            )

    # --- printing ---

    def line(self, *parts: Part, fit: bool = True) -> None:
        """One line, cut at the width of the terminal, if there is one, unless `fit` is false."""
        pairs = [(part, "") if isinstance(part, str) else part for part in parts]
        # Cleaned here and not by the commands: the one that forgot would open the terminal to
        # whatever a tool has printed.
        pairs = [(_flat(text), style) for text, style in pairs]
        if fit and self.width is not None:
            pairs = _fitted(pairs, self.width)
        self._write("".join(self._styled(*pair) for pair in pairs).rstrip(" "))

    def text(self, text: str, *, indent: str = "") -> None:
        """Text as it is, line by line, uncut: the terminal wraps it."""
        for line in clean(text).split("\n"):
            self.line(indent, line.expandtabs(4), fit=False)

    def prose(self, text: str, style: str = "") -> None:
        """A paragraph, wrapped at the width of the terminal."""
        width = PROSE_WIDTH if self.width is None else max(20, self.width)
        for line in textwrap.wrap(one_line(text), width, break_on_hyphens=False):
            self.line((line, style))

    def json(self, value: Mapping[str, Any]) -> None:
        """One line of JSON: exact, safe to print as it is, with the version of its shape."""
        if self.fields:
            value = {name: value.get(name) for name in self.fields}
        with _told():
            self._out.write(_json_line(value, ascii_only=not self._unicode))

    def raw(self, data: bytes) -> None:
        """One line of JSON as it is stored, safe to print."""
        text = data.decode("utf-8", "surrogatepass")
        if not self._unicode:
            import json

            text = json.dumps(json.loads(text), separators=(",", ":"))
        with _told():
            self._out.write(escape_json(text) + "\n")

    def error(self, message: str) -> None:
        # What was printed before comes first, also where both streams go to one terminal.
        self.end()
        try:
            print(f"clew: {one_line(message)}", file=self._err, flush=True)
        except OSError:
            _divert(self._err)  # the exit code is all that can still be said

    def error_json(self, value: Mapping[str, Any]) -> None:
        """An error for a program, on standard error: standard output has data only."""
        self.end()
        try:
            print(_json_line(value, ascii_only=True), end="", file=self._err, flush=True)
        except OSError:
            _divert(self._err)

    def note(self, message: str) -> None:
        """A line that is no data, such as what to do next: on standard error."""
        self.flush()
        with suppress(OSError):
            print(one_line(message), file=self._err, flush=True)

    @contextmanager
    def paged(self) -> Iterator[None]:
        """What is printed inside goes through a pager, if it is longer than the terminal."""
        command = None if self.rows is None else pager_command(os.environ)
        if command is None:
            yield
            return
        out, colour, pager = self._out, self.colour, Pager(self._out, command, self.rows or 0)
        # Others print the codes of colours as text.
        self.colour = colour and os.path.basename(command[0]) == "less"
        self._out = cast(TextIO, pager)
        try:
            with suppress(BrokenPipeError):  # the person at the pager has seen enough
                yield
        finally:
            self._out, self.colour = out, colour
            pager.close()

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
        with _told():
            self._out.buffer.write(data)

    def bar(self, label: str) -> Bar:
        """Progress on standard error, where that is a terminal."""
        width = _columns(self._err, os.environ)
        return Bar(None if width is None else self._err, label, width=width or 0)

    def flush(self) -> None:
        with _told():
            self._out.flush()

    def end(self) -> None:
        """The last flush of a command that has failed: its own error is the one to be told."""
        try:
            self._out.flush()
        except OSError:
            self.abandon()

    def abandon(self) -> None:
        """Keep Python from failing again when it flushes at exit."""
        _divert(self._out)

    def _styled(self, text: str, style: str) -> str:
        if not (self.colour and style and text):
            return text
        codes = ";".join(_CODES[name] for name in style.split())
        return f"\x1b[{codes}m{text}\x1b[0m"

    def _write(self, line: str) -> None:
        with _told():
            self._out.write((line if self._unicode else line.translate(_PLAIN)) + "\n")


def print_plain(text: str) -> None:
    """Text of our own that needs no screen, such as a command's help."""
    with _told():
        sys.stdout.write(text)


@contextmanager
def _told() -> Iterator[None]:
    """What the system says to our output, told from what it says to the store's files."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(
            f"standard output cannot be written: {error.strerror or error}"
        ) from error


def _divert(stream: TextIO) -> None:
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), stream.fileno())


def _nowhere() -> TextIO:
    return open(os.devnull, "w")


def _fill_standard_descriptors() -> None:
    """Put nothing in the place of a standard stream that is closed.

    The next file that is opened would lie there, and a child process would print into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _columns(stream: TextIO, environ: Mapping[str, str]) -> int | None:
    """The width of the terminal that a stream goes to; None if it goes to none."""
    if not stream.isatty():
        return None
    given = environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or PROSE_WIDTH
    except OSError:
        return PROSE_WIDTH


def help_width() -> int:
    """The width of a help text: as COLUMNS says, even in a pipe, or as the terminal has it."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given) - 2
    return (_columns(sys.stdout, os.environ) or 80) - 2


def _rows(stream: TextIO) -> int | None:
    """The height of the terminal that a stream goes to; None if it goes to none, or to a file."""
    try:
        return os.get_terminal_size(stream.fileno()).lines or None if stream.isatty() else None
    except (OSError, ValueError):
        return None


def _json_line(value: Mapping[str, Any], *, ascii_only: bool) -> str:
    import json  # loaded when it is asked for: most look at a table

    whole = {"schema_version": SCHEMA_VERSION, **value}
    return escape_json(json.dumps(whole, ensure_ascii=ascii_only, separators=(",", ":"))) + "\n"


def wants_colour(environ: Mapping[str, str], *, tty: bool) -> bool:
    """NO_COLOR comes before FORCE_COLOR, both before what the output is."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return environ["FORCE_COLOR"] != "0"
    return tty and environ.get("TERM") != "dumb"


def _has_glyphs(out: TextIO) -> bool:
    try:
        "│├─●○◉…→←└█░•▌·".encode(out.encoding or "utf-8")
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


class Pager:
    """What is written is kept until it is longer than the screen; then a pager gets it.

    So a short answer stays on the screen, and no process is started for it.
    """

    def __init__(self, out: TextIO, command: list[str], rows: int) -> None:
        self.encoding = out.encoding
        self._out = out
        self._command = command
        self._left = rows - 1
        self._kept: list[str] = []
        self._process: Any = None
        self._to: IO[str] | None = None  # the pager, or the terminal if there is none

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._to is not None:
            return self._to.write(text)
        self._kept.append(text)
        self._left -= text.count("\n")
        if self._left < 0:
            self._start()
        return len(text)

    def flush(self) -> None:
        if self._to is not None:
            self._to.flush()

    def close(self) -> None:
        """Let go of what was kept, or wait for the person at the pager."""
        if self._process is None:
            self._out.write("".join(self._kept))
            return
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        while True:
            try:
                self._process.wait()
                return
            except KeyboardInterrupt:  # meant for the pager, which is still there
                continue

    def _start(self) -> None:
        import subprocess

        self._out.flush()
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=self._out.fileno(),
                encoding=self.encoding or "utf-8",
                errors="replace",
            )
        except OSError:  # it cannot be started: the terminal scrolls
            self._to = self._out
        else:
            self._to = self._process.stdin
        kept, self._kept = "".join(self._kept), []
        self._to.write(kept)


def pager_command(environ: Mapping[str, str]) -> list[str] | None:
    """What `PAGER` says, without a shell; None: `cat`, an empty one, or none is installed."""
    import shlex
    import shutil

    try:
        command = shlex.split(environ.get("PAGER", "less -FRX"))
    except ValueError:
        return None
    if not command or command[0] == "cat" or shutil.which(command[0]) is None:
        return None
    if os.path.basename(command[0]) == "less" and len(command) == 1 and "LESS" not in environ:
        command.append("-FRX")
    return command


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
