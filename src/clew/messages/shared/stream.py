"""What the accumulators of streams have in common: what they give, and how they refuse an event.

Each provider's `stream` module has a class `Accumulator`. It is told every event of one reply, as
an object of the SDK or as JSON, and gives the response that came so far, as JSON. An event that
does not belong where it stands is an InvalidInput, and changes nothing.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from msgspec import Struct

from clew.core.errors import InvalidInput
from clew.messages.sdk_objects import as_body

Block = dict[str, Any]

UNFINISHED_CHARACTERS = 1000  # of the arguments of a call that was broken off


class Streamed(Struct, frozen=True, kw_only=True):
    """What a stream has brought so far, as the JSON of a response.

    Calls whose arguments are not whole are not in it: `unfinished` tells of them. Nobody can run
    them, and no provider takes them back. `is_whole` says that the reply has come to its end.
    """

    response: Block
    unfinished: tuple[Block, ...]
    is_whole: bool


class Accumulator(Protocol):
    """`is_done` as soon as nothing more can come; some streams only end.

    `error` is what the provider said when it broke the stream off.
    """

    is_done: bool
    error: str | None

    def add(self, event: Any) -> None: ...

    def so_far(self) -> Streamed | None: ...


def field(value: Any, name: str) -> Any:
    """A field of an event: an object's attribute, or a value of JSON; None if it has none."""
    return value.get(name) if type(value) is dict else getattr(value, name, None)


def as_event(event: Any) -> Any:
    """The JSON of an event or of a piece of one."""
    try:
        return as_body(event)
    except InvalidInput as error:
        raise InvalidInput("event", error.fields["reason"]) from None


def refused(api: str, event: Any, reason: str) -> InvalidInput:
    """The error for an event that does not belong where it stands."""
    kind = field(event, "type") or field(event, "object")
    told = kind if isinstance(kind, str) else type(event).__name__
    return InvalidInput("event", f"{told[:80]!r} {reason} {api}; nothing was written of it")


def after_end(api: str, event: Any) -> InvalidInput:
    return refused(api, event, "came after the end of a stream of")


def foreign(api: str, event: Any) -> InvalidInput:
    return refused(api, event, "is no event of a stream of")


def misplaced(api: str, event: Any) -> InvalidInput:
    return refused(api, event, "is out of order, or lacks what it must have, in a stream of")


def told_error(error: Any) -> str:
    """What a provider says of the error that ended a stream."""
    error = as_event(error)
    if isinstance(error, dict):
        kind, text = error.get("type") or error.get("code"), error.get("message")
        return ": ".join([str(one) for one in (kind, text) if one]) or "error"
    return str(error)


def parsed(text: str) -> Any:
    """The arguments of a call, and None if their text is not whole."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def unfinished(id: Any, name: Any, arguments: str) -> Block:
    """What is kept of a call whose arguments are not whole."""
    return {"id": id, "name": name, "arguments": arguments[:UNFINISHED_CHARACTERS]}
