"""The neutral view of a message: what every provider's format has in common.

A part keeps the block that it was read from (`raw`, in `format`), so that writing it back in its
own format gives the very same block, unknown fields and unknown block types included.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder

Role = Literal["system", "user", "assistant", "tool"]


class Part(Struct, frozen=True, gc=False, kw_only=True):
    """A piece of a message.

    Code that changes what a part says makes a new one without `raw`, or the old block would be
    written again. Ids and names may be replaced with `raw` in place: writers take them from the
    part.
    """

    format: str | None = None  # the format of `raw`; None: made here
    raw: Any = None


class Text(Part, frozen=True, gc=False):
    text: str


class Thinking(Part, frozen=True, gc=False):
    """Reasoning. A signature means something to its own provider only."""

    text: str
    signature: str | None = None


class ToolCall(Part, frozen=True, gc=False):
    """`given` are the arguments as they came: an object, or the text of one, as several providers
    write it. Text is parsed at each look, for most calls are only sent again.

    `made_id` says that the call came without an id and was given this one when it was read.
    """

    id: str
    name: str
    given: Any = None
    made_id: bool = False

    @property
    def arguments(self) -> Any:
        """The arguments as a value: an object. None if they are text that is not JSON."""
        return self.parse()[0]

    @property
    def unparsed(self) -> str | None:
        """The text of the arguments, if it is not JSON: a call that was cut off, most often."""
        return self.parse()[1]

    def parse(self) -> tuple[Any, str | None]:
        """`arguments` and `unparsed`, for those who look at both."""
        given = self.given
        if not isinstance(given, str):
            return ({} if given is None else given), None
        try:
            return _decode(given), None
        except (ValueError, RecursionError, MsgspecError):
            # Several models call a tool without any with "".
            return (None, given) if given.strip() else ({}, None)

    def __eq__(self, other: object) -> bool:
        """However the arguments were spelled."""
        return isinstance(other, ToolCall) and self._said() == other._said()

    __hash__ = None  # type: ignore[assignment]

    def _said(self) -> tuple[Any, ...]:
        return (self.id, self.name, self.made_id, self.format, self.raw, self.parse())


_decode = Decoder().decode


class ToolResult(Part, frozen=True, gc=False):
    """What a call gave: text and media. `call` is the call's id, `name` its tool if it is known."""

    call: str
    content: tuple[Part, ...] = ()
    name: str | None = None
    is_error: bool = False


class Media(Part, frozen=True, gc=False):
    """An image, a sound or a file: base64 data, an address, or an id at the provider."""

    kind: Literal["image", "audio", "file"]
    mime: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    name: str | None = None


class Other(Part, frozen=True, gc=False):
    """A block that only its own format knows."""


class Usage(Struct, frozen=True, gc=False, kw_only=True):
    """The tokens of a response, counted alike for every provider.

    What was read from or written to the cache is not in `input_tokens`: the three together are
    the request. `reasoning_tokens` is a part of `output_tokens`, and `cache_write_1h_tokens`, what
    the cache keeps for an hour at a higher price, a part of `cache_write_tokens`.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_1h_tokens: int = 0


class About(Struct, frozen=True, gc=False, kw_only=True):
    """What a body tells of the call that made it, as it stands there: hostile, perhaps.

    `usage` is in the form of the provider, `id` that of the response.
    """

    usage: Any = None
    model: Any = None
    id: Any = None
    provider: Any = None


class Message(Struct, frozen=True, gc=False, kw_only=True):
    """One message. `extra` are fields beside the content that its own format may send again."""

    role: Role
    parts: tuple[Part, ...]
    format: str | None = None
    extra: dict[str, Any] | None = None
    usage: Usage | None = None
    model: str | None = None


class Loss(Struct, frozen=True, gc=False):
    """Something that a format cannot carry: left out or changed, and in which message."""

    code: str
    message: str
    index: int  # of the neutral message


class Written(Struct, frozen=True, gc=False):
    """Messages in a provider's format.

    `places[i]` is the index of the first message that neutral message i went into, or None if it
    went into `system` or nowhere. `system` is what the provider takes beside the messages.
    """

    messages: list[Any]
    places: list[int | None]
    system: Any = None
    losses: tuple[Loss, ...] = ()


class Violation(Struct, frozen=True, gc=False):
    """A rule of a provider that messages break, and where."""

    rule: str
    message: str
    index: int | None = None


def text_of(message: Message) -> str:
    """The text of a message, without thinking, calls, results and media."""
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def calls_of(message: Message) -> list[ToolCall]:
    return [part for part in message.parts if isinstance(part, ToolCall)]


def results_of(message: Message) -> list[ToolResult]:
    return [part for part in message.parts if isinstance(part, ToolResult)]


def tool_ids(found: Iterable[Message]) -> tuple[frozenset[str], frozenset[str]]:
    """The ids of the calls that messages make, and of the calls that they have results of."""
    parts = [part for message in found for part in message.parts]
    return (
        frozenset([part.id for part in parts if isinstance(part, ToolCall)]),
        frozenset([part.call for part in parts if isinstance(part, ToolResult)]),
    )
