"""What an entry that is no message says of itself, in words instead of JSON.

Agents write dozens of records beside their messages: hooks, listings of tools, titles, counts. For
a reader it is enough to know what one is, and what in it is a text.
"""

from __future__ import annotations

from typing import Any

from clew.core.codec import render

_TEXT_CHARACTERS_MAX = 1000


def gist(body: Any) -> str:
    """The types that a body names, and its texts; of one that has neither, all of it."""
    if not isinstance(body, dict):
        return render(body)
    values = [body, *body.values()]
    types = [value["type"] for value in values if isinstance(value, dict) and "type" in value]
    names = [name for name in types if isinstance(name, str)]
    texts = [
        value[:_TEXT_CHARACTERS_MAX]
        for value in body.values()
        if isinstance(value, str) and " " in value  # others are ids, times, paths and names
    ]
    return " · ".join([*names, *texts]) or render(body)
