"""What the readers share: fields of a block, checked, and the place of what is wrong.

Readers run for every message of a thread, so the good case does nothing but look at types;
the place of a fault is put together only when there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

from msgspec import Meta

from clew.core.errors import InvalidInput
from clew.messages.neutral import Message, Part, Role, ToolResult

Read = Callable[[Any], list[Message]]

TOKENS_MAX = 1_000_000_000  # no reply is larger; a number beyond that is none
# A number of tokens in what is usual of a format (`Usual`); what is not so is looked at with care.
Count = Annotated[int, Meta(ge=0, le=TOKENS_MAX)]


class Malformed(Exception):
    """What cannot be read, and where inside of the block at hand."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path

    def under(self, path: str) -> Malformed:
        return Malformed(self.reason, path + self.path)


def checked(read: Read) -> Read:
    """A reader that raises InvalidInput."""

    @wraps(read)
    def reader(body: Any) -> list[Message]:
        try:
            return read(body)
        except Malformed as error:
            raise InvalidInput("message", error.reason, path=f"${error.path}") from None

    return reader


def string(block: dict[str, Any], key: str, within: str = "") -> str:
    """A string. `within` is the key of the block itself, where the block has no other name."""
    value = block.get(key)
    if isinstance(value, str):
        return value
    raise Malformed(f"{key} {_instead(value)} a string", _path(within, key))


def name(block: dict[str, Any], key: str, within: str = "") -> str:
    """A string that is not empty: what is paired or looked up by it needs one."""
    value = block.get(key)
    if isinstance(value, str) and value:
        return value
    string(block, key, within)
    raise Malformed(f"{key} is empty", _path(within, key))


def optional(block: dict[str, Any], key: str, within: str = "") -> str | None:
    value = block.get(key)
    if value is None or isinstance(value, str):
        return value
    raise Malformed(f"{key} {_instead(value)} a string", _path(within, key))


def fields(block: dict[str, Any], key: str) -> dict[str, Any]:
    value = block.get(key)
    if isinstance(value, dict):
        return value
    raise Malformed(f"{key} {_instead(value)} an object", f".{key}")


def elements(block: dict[str, Any], key: str) -> list[Any]:
    """A list, or nothing."""
    value = block.get(key)
    if value is None:
        return []
    if isinstance(value, list):
        return value
    raise Malformed(f"{key} {_instead(value)} a list", f".{key}")


def each(
    values: list[Any], read: Callable[[dict[str, Any]], Part], path: str = ".content"
) -> tuple[Part, ...]:
    """The parts of a list of blocks."""
    # No check of each block first: nearly all of them are good, and reading a thread is mostly
    # this loop. What is bad is not read again to find its place: blocks lie in blocks, and to read
    # twice at every level would double with each.
    parts: list[Part] = []
    try:
        for block in values:
            parts.append(read(block))
    except Malformed as error:
        raise error.under(f"{path}[{len(parts)}]") from None
    except (TypeError, AttributeError):
        bad = values[len(parts)]
        if isinstance(bad, dict):  # no test: a fault of the reader itself, and no bad block
            raise
        reason = f"a block {_instead(bad)} an object"
        raise Malformed(reason, f"{path}[{len(parts)}]") from None
    return tuple(parts)


def role_of(body: Any, roles: dict[str, Role]) -> Role:
    """The neutral role of a message, by the roles that its format knows."""
    try:
        return roles[body["role"]]
    except (KeyError, TypeError):
        pass
    if not isinstance(body, dict):
        raise Malformed(f"a message {_instead(body)} an object")
    role = body.get("role")
    if role is None:
        raise Malformed("has no role", ".role")
    raise Malformed(f"role {role!r} is not one of {', '.join(roles)}", ".role")


def split_results(message: Message) -> list[Message]:
    """A user message as a tool message with its results, and one with everything else.

    Some formats carry results in a user message, others give them a role of their own; the
    neutral view has one form for both, or every reader of it would need two rules.
    """
    parts = message.parts
    results = tuple([part for part in parts if isinstance(part, ToolResult)])
    if not results:
        return [message]
    answer = Message(role="tool", parts=results, format=message.format)
    if len(results) == len(parts):
        return [answer]
    rest = tuple([part for part in parts if not isinstance(part, ToolResult)])
    return [answer, Message(role="user", parts=rest, format=message.format)]


def text(value: Any) -> str | None:
    """A text that says something, or None: what is beside the content may be anything."""
    return value if isinstance(value, str) and value else None


def tokens(usage: dict[str, Any], key: str) -> int:
    """A number of tokens. Usage is bookkeeping: odd values count as none."""
    value = usage.get(key)
    return value if type(value) is int and value > 0 else 0


def tokens_in(usage: dict[str, Any], key: str, detail: str) -> int:
    """A number of tokens in an object of details, if there is one."""
    details = usage.get(key)
    return tokens(details, detail) if isinstance(details, dict) else 0


def _path(within: str, key: str) -> str:
    return f".{within}.{key}" if within else f".{key}"


def _instead(value: Any) -> str:
    if value is None:
        return "is missing, or null, instead of"
    return f"is a {_NAMES.get(type(value), type(value).__name__)} instead of"


_NAMES = {
    str: "string",
    dict: "object",
    list: "list",
    bool: "boolean",
    int: "number",
    float: "number",
}
