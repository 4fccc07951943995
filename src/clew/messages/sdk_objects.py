"""Messages that are objects of a provider's SDK, as the JSON that they stand for.

No SDK is imported: an object is known by its methods. So a new version of an SDK, or one that is
not installed, cannot break a store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clew.core.errors import InvalidInput


def as_body(message: Any) -> Any:
    """The JSON value of a message; what is JSON already passes through as it is.

    Objects may stand anywhere in it: {"role": "assistant", "content": response.content} is how
    a response is usually sent back. InvalidInput names the place of an object that is no JSON.
    """
    try:
        return _as_json(message, None)
    except RecursionError:  # a list or an object that holds itself, most often
        raise InvalidInput("message", "is nested too deeply to be JSON") from None


def as_sent(response: Any) -> Any:
    """The response without what the SDK's `parse` has read out of it, which no API takes back."""
    body = as_body(response)
    if body is response or not isinstance(body, dict):
        return body  # JSON of the caller's, which no SDK has read
    said = [choice["message"] for choice in body.get("choices") or ()]
    calls = [call for message in said for call in message.get("tool_calls") or ()]
    pieces = [*said, *[call.get("function") or {} for call in calls], *(body.get("output") or ())]
    blocks = [block for one in [body, *pieces] for block in _blocks_of(one)]
    for piece in [*pieces, *blocks]:
        for key in ("parsed", "parsed_output", "parsed_arguments"):
            piece.pop(key, None)
    return body


def _blocks_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return content if isinstance(content, list) else []


# The way to a value, innermost step first, so that a step down costs no more than a pair.
_Way = tuple[Any, "str | int"] | None


def _as_json(value: Any, way: _Way) -> Any:
    if value is None or isinstance(value, (str, int, float)):
        return value
    if isinstance(value, dict):
        found = {key: _as_json(child, (way, key)) for key, child in value.items()}
        return value if all(found[key] is value[key] for key in found) else found
    if isinstance(value, (list, tuple)):
        items = [_as_json(item, (way, index)) for index, item in enumerate(value)]
        same = all(a is b for a, b in zip(items, value, strict=True))
        return value if same and isinstance(value, list) else items
    return _as_json(_dumped(value, way), way)


def _dumped(value: Any, way: _Way) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, type):  # it has the methods of its objects, but nothing to dump
        reason = f"{value.__name__} is a class, not a message"
        raise InvalidInput("message", reason, path=_path(way))
    dump, to_dict = getattr(value, "model_dump", None), getattr(value, "to_dict", None)
    found = None
    if callable(dump) and callable(to_dict):
        # Anthropic's and OpenAI's: what came over the wire, nothing that was not sent.
        found = dump(mode="json", by_alias=True, exclude_unset=True)
    elif callable(dump):
        # Google's, and any pydantic model. Which fields were set says little about a model that
        # the caller made by hand, so only those without a value are left out.
        found = dump(mode="json", by_alias=True, exclude_none=True)
    elif callable(to_dict):
        found = to_dict()
    if isinstance(found, (dict, list)):
        return found
    reason = f"{type(value).__name__!r} is neither JSON nor an object of an SDK"
    raise InvalidInput("message", reason, path=_path(way))


def _path(way: _Way) -> str:
    steps = []
    while way is not None:
        way, step = way
        steps.append(f"[{step}]" if isinstance(step, int) else f".{step}")
    return "$" + "".join(reversed(steps))
