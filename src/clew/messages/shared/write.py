"""What the writers share: where they are, what they left out, ids and names that had to change."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, Self

from blake3 import blake3
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from clew.messages.neutral import (
    Loss,
    Media,
    Message,
    Other,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Written,
)
from clew.messages.shared.media import dump, is_unicode, placeholder, with_unicode

LEFT_OUT = "[content left out]"
NO_OUTPUT = "[no output]"
UNPARSED = "_unparsed"


class Limits(Struct, frozen=True):
    """What a provider takes as the id of a call and as the name of a tool."""

    ids: re.Pattern[str]
    names: re.Pattern[str]
    name_length_max: int


class Writing:
    """A list of messages in the making. Formats subclass it and implement `take`.

    A writer that took some messages can take more later. What `take` writes is changed in one way
    only: more is appended to the last message, and to `system`.
    """

    NAME: str
    LIMITS: Limits

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.places: list[int | None] = []
        self.losses: list[Loss] = []
        self.system: Any = None
        self.index = 0  # of the neutral message at hand
        # Of calls whose result was not written yet, and of tools: as they are written.
        self._call_ids: dict[str, str] = {}
        self._tool_names: dict[str, str] = {}

    def write(self, messages: Sequence[Message], *, unicode: bool = False) -> Written:
        self.take_all(messages, unicode=unicode)
        return self.finished()

    def take_all(self, messages: Iterable[Message], *, unicode: bool) -> None:
        places = self.places
        for message in messages:
            self.index = len(places)
            if not unicode and not all(map(_is_unicode, message.parts)):
                # Lone surrogates: tools print them, and no request can carry them.
                self.lose("text_changed", "characters that are not Unicode were replaced")
                parts = [part if _is_unicode(part) else _repaired(part) for part in message.parts]
                message = replace(message, parts=tuple(parts))
            places.append(self.take(message))

    def branch(self) -> Self:
        """Another writer that goes on from here. What it takes, and its end, leave this one alone.

        The messages are shared but for the last, which may grow.
        """
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (list, dict, set)):
                setattr(other, name, value.copy())
        other.messages[-1:] = to_builtins(self.messages[-1:])
        other.system = to_builtins(self.system)
        return other

    def finished(self) -> Written:
        """What was written. Nothing can be taken after it."""
        self.finish()
        return Written(self.messages, self.places, self.system, tuple(self.losses))

    def take(self, message: Message) -> int | None:
        """Write one message; the index of the first message it went into, or None."""
        raise NotImplementedError  # no test: every format has its own

    def finish(self) -> None:
        """Called after the last message. Makes a new one in place of a message that it changes."""

    def owns(self, part: Part) -> bool:
        """Whether a part was read from a block of this very format."""
        return part.format == self.NAME and isinstance(part.raw, dict)

    # --- ids, names, arguments --------------------------------------------------------------

    def call_id(self, id: str) -> str:
        """The id, or one made from it that the provider takes: the same for call and result."""
        # By hash, not by number: the result is written without knowing what its call became,
        # and the same thread must give the same request, or the provider's cache is missed.
        # It is asked for twice: for the call, and for the result right behind it.
        found = self._call_ids.pop(id, None)
        if found is None:
            found = id if self.LIMITS.ids.fullmatch(id) else f"call_{_short_hash(id)}"
            self._call_ids[id] = found
        return found

    def tool_name(self, name: str) -> str:
        found = self._tool_names.get(name)
        if found is None:
            found = self._tool_names[name] = self._fitting(name)
        return found

    def _fitting(self, name: str) -> str:
        if self.LIMITS.names.fullmatch(name):
            return name
        fitting = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
        if not self.LIMITS.names.fullmatch(fitting[:1]):
            fitting = f"_{fitting}"  # empty, or a first letter that may only follow another
        if len(fitting) > self.LIMITS.name_length_max:
            fitting = f"{fitting[: self.LIMITS.name_length_max - 17]}_{_short_hash(name, 16)}"
        return fitting

    def note_changes(self, call: ToolCall, id: str, name: str) -> None:
        """Report that a call goes by another id or name; its result is changed alike."""
        if id != call.id:
            self.lose("id_changed", f"the id of call {call.id} became {id}")
        if name != call.name:
            self.lose("name_changed", f"the tool {call.name!r} became {name!r}")

    def arguments(self, call: ToolCall) -> dict[str, Any]:
        """The arguments as the object that every provider wants."""
        arguments, text = call.parse()
        if text is None:
            if isinstance(arguments, dict):
                return arguments
            if arguments is None:
                return {}
        # Cut off by a limit of tokens, most often. The text is kept, for the model to see what
        # it did; as a string in place of the object the request would be refused.
        text = dump(arguments) if text is None else text
        self.lose("arguments_unparsed", f"the arguments of call {call.id} are not an object")
        return {UNPARSED: text}

    # --- what cannot be carried -------------------------------------------------------------

    def lose(self, code: str, message: str) -> None:
        self.losses.append(Loss(code, message, self.index))

    def drop(self, part: Part) -> None:
        """Leave out a part that only its own format knows."""
        if isinstance(part, Thinking):
            self.lose("thinking_dropped", f"thinking in {part.format or 'no'} format was left out")
        elif isinstance(part, Other):
            kind = part.raw.get("type") if isinstance(part.raw, dict) else None
            block = f"a {kind} block" if isinstance(kind, str) else "a block"
            self.lose("block_dropped", f"{block} was left out")
        else:
            self.lose("block_dropped", f"a {type(part).__name__} was out of place and left out")

    def replace_media(self, media: Media) -> str:
        """Leave out media, with a text in its place."""
        text = placeholder(media)
        self.lose("media_dropped", text[1:-1])
        return text

    # --- results as text --------------------------------------------------------------------

    def result_text(self, result: ToolResult) -> str:
        """A result for formats whose results are text and cannot be marked as errors.

        An error then says so at its beginning, unless its text does already.
        """
        texts = []
        for part in result.content:
            if isinstance(part, Text):
                texts.append(part.text)
            elif isinstance(part, Media):
                texts.append(self.replace_media(part))
            else:
                self.drop(part)
        return error_text("\n".join(texts)) if result.is_error else "\n".join(texts)


def says_error(text: str) -> bool:
    return text[:5].lower() == "error"


def error_text(text: str) -> str:
    return text if says_error(text) else f"Error: {text or NO_OUTPUT}"


def _is_unicode(part: Part) -> bool:
    if isinstance(part, Text):
        return part.text.isascii() or is_unicode(part.text)
    if isinstance(part, ToolResult):
        return all(map(_is_unicode, part.content))
    return not isinstance(part, ToolCall) or is_unicode(part.arguments)


def _repaired(part: Part) -> Part:
    if isinstance(part, Text):
        return Text(with_unicode(part.text))
    if isinstance(part, ToolResult):
        content = tuple(
            [inner if _is_unicode(inner) else _repaired(inner) for inner in part.content]
        )
        return replace(part, content=content, format=None, raw=None)
    assert isinstance(part, ToolCall)  # nothing else is looked at
    return replace(part, given=with_unicode(part.arguments), format=None, raw=None)


def _short_hash(text: str, length: int = 24) -> str:
    return blake3(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]
