"""The usage that a stored body tells: the one place where tokens are read out of entries.

Where a body has its usage, and what the numbers mean, each format says itself (`about` and
`read_usage`). Here they are put together, and what can be no count is told from what is none.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from msgspec import MsgspecError, Struct
from msgspec.json import Decoder

from clew import messages
from clew.core.codec import decode
from clew.core.errors import Corrupt
from clew.messages.neutral import Usage
from clew.messages.shared.read import TOKENS_MAX, text


class Told(Struct, frozen=True, gc=False):
    """What an entry tells of one reply of a model.

    `usage` is None if there are numbers that can be no counts. `response` is the provider's id of
    the reply. `provider` is who served the model, where the entry says so.
    """

    usage: Usage | None
    model: str | None = None
    response: str | None = None
    provider: str | None = None
    turn_entry: str | None = None


def in_data(format: str | None, data: bytes) -> Told | None:
    """What a message tells of the reply that it is, by its stored bytes; None if it has no usage.

    A body that is damaged tells nothing, which is for `verify` to say.
    """
    # Nearly all replies of a provider look alike. Its format may have a type for what they tell of
    # their calls, `Usual`: then that is all that is decoded. What is no `Usual` is read in full.
    usual = _usual(format)
    if usual is not None:
        try:
            found = usual(data)
        except (MsgspecError, UnicodeDecodeError, RecursionError):
            pass
        else:
            return Told(found.tokens(), found.model or None, found.id or None)
    try:
        return in_message(format, decode(data))
    except Corrupt:
        return None


@cache
def _usual(format: str | None) -> Callable[[bytes], Any] | None:
    found = messages.usual(format)
    return None if found is None else Decoder(found).decode


def in_message(format: str | None, body: Any) -> Told | None:
    """What a message tells of the reply that it is; None if it has no usage."""
    if not isinstance(body, dict):
        return None
    found = messages.known_format(format, body)
    about = messages.teller(found)(body)
    if about.usage is None:
        return None
    return Told(
        usage=_read(found, about.usage),
        model=text(about.model),
        response=text(about.id),
        provider=text(about.provider),
    )


def in_note(format: str | None, body: Any) -> Told:
    """What the body of a usage entry tells: as Clew writes it, or in the form of a provider."""
    if not isinstance(body, dict):
        return Told(usage=None)
    if isinstance(body.get("usage"), dict):  # as the provider gave it: no version of ours between
        usage = _read(text(body.get("format")) or format, body["usage"])
    elif format is not None and (found := in_message(format, body)) is not None:
        return found  # a record of an agent's own, such as a count of tokens
    elif _OWN.isdisjoint(body) or shape_of(body) == "pydantic-ai":
        usage = _read(format, body)
    else:
        usage = None if _is_odd(body) else Usage(**_counts(body))
    return Told(
        usage=usage,
        model=text(body.get("model")),
        response=text(body.get("response_id")),
        provider=text(body.get("provider")),
        turn_entry=text(body.get("turn_entry")),
    )


# The names of Clew's own. Of all others only Pydantic AI has some of them, for other numbers.
_OWN = frozenset({"cache_read_tokens", "cache_write_tokens", "reasoning_tokens"})


def _counts(body: dict[str, Any]) -> dict[str, int]:
    return {name: body.get(name) or 0 for name in Usage.__struct_fields__}


def _read(format: str | None, usage: Any) -> Usage | None:
    """The usage by its format or, where that is unknown, by its shape."""
    if not isinstance(usage, dict) or _is_odd(usage):
        return None
    read = None if format is None else messages.counter(format)
    if read is None:
        shape = shape_of(usage)
        read = None if shape is None else messages.counter(shape)
    found = None if read is None else read(usage)
    # Nothing at all is what a reply may have taken, but also what is read where no name is known.
    if found == _NOTHING and shape_of(usage) is None:
        return None
    return found


_NOTHING = Usage()


def shape_of(usage: dict[str, Any]) -> str | None:
    """The format whose names the numbers have; None if no number has a name that we know."""
    return next((format for format, names in _NAMES.items() if not names.isdisjoint(usage)), None)


# In this order: Anthropic's names are those that the others have as well.
_NAMES = {
    "openai-chat": frozenset({"prompt_tokens", "completion_tokens"}),
    "gemini": frozenset(
        {
            *("promptTokenCount", "candidatesTokenCount", "totalTokenCount"),
            *("prompt_token_count", "candidates_token_count", "total_token_count"),
        }
    ),
    "converse": frozenset({"inputTokens", "outputTokens"}),
    "agent-framework": frozenset({"input_token_count", "output_token_count"}),
    "langchain": frozenset({"input_token_details", "output_token_details"}),
    "pydantic-ai": frozenset({"requests", "input_audio_tokens", "output_audio_tokens"}),
    "openai-responses": frozenset({"input_tokens_details"}),
    "anthropic": frozenset({"input_tokens", "output_tokens"}),
}


def _is_odd(usage: dict[str, Any]) -> bool:
    """Whether it has a number of tokens that can be none: negative, a text, far too large.

    A part of them may be right. But a reply that is counted in part looks like one that was cheap.
    """
    for key, value in usage.items():
        # Nearly all are good numbers, so that is looked at first.
        if (type(value) is not int or not 0 <= value <= TOKENS_MAX) and _is_odd_value(key, value):
            return True
    return False


def _is_odd_value(key: str, value: Any) -> bool:
    if type(value) is int:
        return not 0 <= value <= TOKENS_MAX and "token" in key.lower()
    if value is None or isinstance(value, list):  # a list has counts by modality, which are parts
        return False
    if isinstance(value, dict) and key.endswith(_PARTS):
        return any(_is_odd_value(f"tokens {name}", part) for name, part in value.items())
    return "token" in key.lower()


_PARTS = ("details", "Details", "cache_creation")
