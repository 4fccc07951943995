"""Messages in the formats of the providers, and the neutral view of them.

A format is a name, two functions and a class: `read` gives the neutral view of a stored body,
`Writer` makes request messages from neutral ones in normal form, `validate` judges request
messages by the provider's rules. Each format is a folder with a module for each of them, loaded
when it is first asked for: `import clew` stays light, and most programs need one format. What
frameworks store is a format, too, in one module, which may have no more than `read`. `incoming`
is the door through which messages become entries.

Normal form: no message without parts and no blank text; an assistant message is one reply of the
model; every assistant message with calls is followed at once by one tool message with exactly one
result per call, in the order of the calls, and tool messages stand nowhere else; the ids of
calls are unique; the first message that is not a system message is the user's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from clew.core.errors import InvalidInput
from clew.core.parts import loading
from clew.messages.detection import detect
from clew.messages.neutral import About, Message, Usage, Violation, Written
from clew.messages.sdk_objects import as_body

if TYPE_CHECKING:
    from clew.messages.shared.stream import Accumulator
    from clew.messages.shared.write import Writing

__all__ = [
    "FORMATS",
    "FRAMEWORKS",
    "STREAMED",
    "accumulator",
    "as_body",
    "check_format",
    "counter",
    "detect",
    "known_format",
    "read",
    "read_usage",
    "reader",
    "request_format",
    "teller",
    "translator",
    "usual",
    "validate",
    "view",
    "write",
    "writer",
]

FORMATS = ("anthropic", "openai-chat", "openai-responses", "gemini", "plain")
STREAMED = ("anthropic", "openai-chat", "openai-responses", "gemini")
# How frameworks and agents store messages. All can be read; some have requests of their own, too.
FRAMEWORKS = (
    "adk",
    "agent-framework",
    "aider",
    "claude-code",
    "cline",
    "codex",
    "converse",
    "copilot",
    "gemini-cli",
    "langchain",
    "llama-index",
    "opencode",
    "openhands",
    "pi",
    "pydantic-ai",
)
_KNOWN = frozenset({*FORMATS, *FRAMEWORKS})


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


def reader(format: str) -> Callable[[Any], list[Message]]:
    """The function that reads a format, for those who read many messages."""
    found: Callable[[Any], list[Message]] = _part(check_format(format), "read").read
    return found


def read_usage(format: str, usage: Any) -> Usage | None:
    """What the usage of a response says, counted alike for every provider; None if it is none."""
    found: Usage | None = _part(check_format(format), "read").read_usage(usage)
    return found


@cache
def teller(format: str) -> Callable[[dict[str, Any]], About]:
    """The function that says what a body of a format tells of the call that made it."""
    module = _part(check_format(format), "read")
    found: Callable[[dict[str, Any]], About] = getattr(module, "about", _about)
    return found


def _about(body: dict[str, Any]) -> About:
    """Where a format has no place for it, programs use the name that most providers have."""
    return About(usage=body.get("usage"), model=body.get("model"), id=body.get("id"))


@cache
def counter(format: str) -> Callable[[Any], Usage | None] | None:
    """The function that reads the usage of a format; None if the format has no usage."""
    return getattr(_part(format, "read"), "read_usage", None) if format in _KNOWN else None


def usual(format: str | None) -> type[Any] | None:
    """The type of what nearly every response of a format tells of its call, if there is one."""
    return getattr(_part(format, "read"), "Usual", None) if format in _KNOWN else None


def accumulator(format: str) -> Accumulator:
    """What puts the events of a streamed reply together again: see `shared.stream`.

    InvalidInput for a format that is not streamed.
    """
    if format not in STREAMED:
        raise InvalidInput("format", f"{format!r} is not one of {', '.join(STREAMED)}")
    found: Accumulator = _part(format, "stream").Accumulator()
    return found


def write(format: str, messages: Sequence[Message], *, unicode: bool = False) -> Written:
    """Request messages, from neutral messages in normal form.

    Blocks that were read from this format are written as they were, except for what a request
    may not hold. What the format cannot carry is reported in `losses`. The result for a message
    does not depend on those after it, except that what follows may be appended to its last
    message where the provider wants that. Lone surrogates, which no request carries, are
    replaced; `unicode` says that there are none, which saves looking for them.
    """
    return writer(format).write(messages, unicode=unicode)


def writer(format: str) -> Writing:
    """What writes a format, for those who have more messages to write later."""
    module = _part(check_format(format), "write")
    if not hasattr(module, "Writer"):
        raise InvalidInput("format", f"no request is written in {format!r}; it can only be read")
    made: Writing = module.Writer()
    return made


def request_format(format: str) -> str | None:
    """The format for a request that goes on from messages in a format; None if it is unknown.

    Most often that is the same one. What only wraps the messages of a provider is read, and the
    request is the provider's.
    """
    if format in FORMATS:
        return format
    if format not in FRAMEWORKS:
        return None
    module = _part(format, "write")
    found: str | None = format if hasattr(module, "Writer") else getattr(module, "PROVIDER", None)
    return found


def translator(format: str, name: str) -> Callable[[Any, str | None], dict[str, Any]] | None:
    """What tells the body of a compaction or an edit of that format in our words; None: nothing.

    It is given the body, and the id of the entry that this one hangs on.
    """
    if format not in FRAMEWORKS:
        return None
    found: Callable[[Any, str | None], dict[str, Any]] | None
    found = getattr(_part(format, "read"), name, None)
    return found


def validate(format: str, messages: list[Any]) -> list[Violation]:
    """The rules of a provider that request messages break; none if it will accept them."""
    violations: list[Violation] = _part(check_format(format), "rules").validate(messages)
    return violations


def check_format(format: str) -> str:
    """The name of a format, or InvalidInput with the names that there are."""
    if format in FORMATS or format in FRAMEWORKS:
        return format
    raise InvalidInput("format", f"{format!r} is not one of {', '.join(FORMATS + FRAMEWORKS)}")


@cache
def _part(format: str, part: str) -> Any:
    """The module of a format that reads, writes or judges; small formats have one for all."""
    name = format.replace("-", "_")
    whole = format == "plain" or format in FRAMEWORKS
    with loading(f"clew.messages.{name}"):
        return import_module(f"clew.messages.{name}" + ("" if whole else f".{part}"))
