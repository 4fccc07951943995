"""What comes in: text and JSON from a file, or from standard input, which is called -."""

from __future__ import annotations

import json
import sys
from typing import Any

from clew.cli._exits import UsageError
from clew.cli._screen import Screen
from clew.core.codec import parse_value
from clew.core.errors import InvalidInput

INPUT_BYTES_MAX = 256 * 1024 * 1024


def read_text(screen: Screen, name: str) -> str:
    """The text of a file. One that is no text, is empty or endless is a mistake."""
    try:
        if name == "-":
            if sys.stdin is None or sys.stdin.closed:
                raise UsageError("standard input is closed")
            if sys.stdin.isatty():
                screen.note("type the text; Ctrl-D at the beginning of a line ends it")
            data = sys.stdin.buffer.read(INPUT_BYTES_MAX + 1)
        else:
            with open(name, "rb") as file:
                data = file.read(INPUT_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{name} cannot be read: {error.strerror or error}") from None
    what = "standard input" if name == "-" else name
    if len(data) > INPUT_BYTES_MAX:
        raise UsageError(f"{what} is larger than {INPUT_BYTES_MAX // 1024**2} MB")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} is not UTF-8 text, from byte {error.start:,} on") from None
    if not text.strip():
        raise UsageError(f"{what} is empty, and nothing was written")
    return text


def read_json(screen: Screen, name: str) -> list[Any]:
    """JSON values: one a line, or one that fills the file; the values of a list one by one."""
    text = read_text(screen, name)
    try:
        json.loads(text)
    except (ValueError, RecursionError):  # not one value: then it is one a line
        return [_value(line, f"line {number:,}") for number, line in _lines(text)]
    whole = _value(text, "standard input" if name == "-" else name)
    return whole if isinstance(whole, list) else [whole]


def _lines(text: str) -> list[tuple[int, str]]:
    return [(n, line) for n, line in enumerate(text.split("\n"), 1) if line.strip()]


def _value(text: str, place: str) -> Any:
    """A value that can be stored as it was given: of a key that comes twice, one would be lost."""
    try:
        return parse_value(text, field=place, limit=INPUT_BYTES_MAX)[1]
    except InvalidInput as error:
        raise UsageError(f"{error}; nothing was written") from None
