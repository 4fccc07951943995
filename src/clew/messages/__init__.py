"""Messages in the formats of the providers, and the neutral view of them.

A format is a name and three functions: `read` gives the neutral view of a stored body, `write`
makes request messages from neutral ones in normal form, `validate` judges request messages by
the provider's rules. Each format is a folder with a module for each of them, loaded when it is
first asked for: `import clew` stays light, and most programs need one format. `incoming` is the
door through which messages become entries.

Normal form: no message without parts and no blank text; an assistant message is one reply of the
model; every assistant message with calls is followed at once by one tool message with exactly one
result per call, in the order of the calls, and tool messages stand nowhere else; the ids of
calls are unique; the first message that is not a system message is the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from clew.core.errors import InvalidInput
from clew.messages.detection import detect
from clew.messages.neutral import Message, Usage, Violation, Written
from clew.messages.sdk_objects import as_body

__all__ = [
    "FORMATS",
    "as_body",
    "check_format",
    "detect",
    "known_format",
    "read",
    "read_usage",
    "reader",
    "validate",
    "view",
    "write",
]

FORMATS = ("anthropic", "openai-chat", "openai-responses", "gemini", "plain")
_KNOWN = frozenset(FORMATS)


def read(format: str, body: Any) -> list[Message]:
    """The neutral view of a stored body: most often one message.

    Raises InvalidInput, with the place, for what cannot be read.
    """
    return reader(format)(body)


def view(format: str | None, body: Any) -> list[Message]:
    """The neutral view of a stored body by its format or, without a known one, by its shape.

    For those who look at what is stored already: empty if it cannot be read.
    """
    try:
        return reader(known_format(format, body))(body)
    except InvalidInput:
        return []


def known_format(format: str | None, body: Any) -> str:
    """The format of a stored body: the one that it is said to be in, if we know that."""
    return format if format is not None and format in _KNOWN else detect(body)


@cache
def reader(format: str) -> Callable[[Any], list[Message]]:
    """The function that reads a format, for those who read many messages."""
    found: Callable[[Any], list[Message]] = _part(format, "read").read
    return found


def read_usage(format: str, usage: Any) -> Usage | None:
    """What the usage of a response says, counted alike for every provider; None if it is none."""
    found: Usage | None = _part(format, "read").read_usage(usage)
    return found


def write(format: str, messages: Sequence[Message], *, unicode: bool = False) -> Written:
    """Request messages, from neutral messages in normal form.

    Blocks that were read from this format are written as they were, except for what a request
    may not hold. What the format cannot carry is reported in `losses`. The result for a message
    does not depend on those after it, except that what follows may be appended to its last
    message where the provider wants that. Lone surrogates, which no request carries, are
    replaced; `unicode` says that there are none, which saves looking for them.
    """
    written: Written = _part(format, "write").write(messages, unicode=unicode)
    return written


def validate(format: str, messages: list[Any]) -> list[Violation]:
    """The rules of a provider that request messages break; none if it will accept them."""
    violations: list[Violation] = _part(format, "rules").validate(messages)
    return violations


def check_format(format: str) -> str:
    """The name of a format, or InvalidInput with the names that there are."""
    if format in FORMATS:
        return format
    raise InvalidInput("format", f"{format!r} is not one of {', '.join(FORMATS)}")


@cache
def _part(format: str, part: str) -> Any:
    """The module of a format that reads, writes or judges; plain messages have one for all."""
    name = check_format(format).replace("-", "_")
    return import_module(f"clew.messages.{name}" + ("" if name == "plain" else f".{part}"))
