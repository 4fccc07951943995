"""Messages that are objects of a provider's SDK, as the JSON that they stand for.

No SDK is imported: an object is known by its methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clew.core.errors import InvalidInput


def as_body(message: Any) -> Any:
    """The JSON value of a message; what is JSON already passes through as it is.

    Objects may stand anywhere in it: {"role": "assistant", "content": response.content} is how
    a response is usually sent back.
    """
    if message is None or isinstance(message, (str, int, float)):
        return message
    if isinstance(message, dict):
        found = {key: as_body(value) for key, value in message.items()}
        return message if all(found[key] is message[key] for key in found) else found
    if isinstance(message, (list, tuple)):
        items = [as_body(item) for item in message]
        same = all(a is b for a, b in zip(items, message, strict=True))
        return message if same and isinstance(message, list) else items
    return as_body(_dumped(message))


def _dumped(message: Any) -> Any:
    if isinstance(message, Mapping):
        return dict(message)
    if isinstance(message, type):
        raise InvalidInput("message", f"{message.__name__} is a class, not a message")
    dump, to_dict = getattr(message, "model_dump", None), getattr(message, "to_dict", None)
    found = None
    if callable(dump) and callable(to_dict):
        # Anthropic's and OpenAI's: what came over the wire, nothing that was not sent.
        found = dump(mode="json", by_alias=True, exclude_unset=True)
    elif callable(dump):
        # Google's, and any pydantic model. Which fields were set says little about a model that
        # somebody made by hand, so only those without a value are left out.
        found = dump(mode="json", by_alias=True, exclude_none=True)
    elif callable(to_dict):
        found = to_dict()
    if isinstance(found, (dict, list)):
        return found
    raise InvalidInput("message", f"a {type(message).__name__} is not a message")
