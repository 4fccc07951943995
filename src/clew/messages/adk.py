"""Events of Google's Agent Development Kit: a content of Gemini's API, and what happened with it.

    {"id", "timestamp", "author": "user" or the name of an agent, "invocation_id",
     "content": {"role", "parts"}, "usage_metadata", "model_version", "actions": {…}, …}

Names are those of ADK's own store or, as its servers send them, in camel case. An event without
parts says nothing: a change of state, a rewind, the end of an agent. Requests are written as
`gemini`: ADK makes its own from the events.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from clew.core.errors import InvalidInput
from clew.messages.gemini import read as gemini
from clew.messages.neutral import Message
from clew.messages.shared.read import Malformed, checked, text

__all__ = ["NAME", "PROVIDER", "about", "read", "read_usage"]

NAME = "adk"
PROVIDER = "gemini"  # in whose format a request is written

read_usage = gemini.read_usage


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of an event: that of its content; none if it has no parts."""
    if not isinstance(body, dict):
        raise Malformed("an event is not an object")
    content = body.get("content")
    if content is None:
        return []
    if not isinstance(content, dict):
        raise Malformed("content is not an object", ".content")
    if not content.get("parts"):
        return []
    if content.get("role") is None:  # then the author tells, as it does in ADK
        content = {**content, "role": "user" if body.get("author") == "user" else "model"}
    try:
        found = gemini.read(content)
    except InvalidInput as error:
        place = (error.path or "$").removeprefix("$")
        raise Malformed(error.fields["reason"], f".content{place}") from None
    said = about(body)
    usage, model = gemini.read_usage(said.usage), text(said.model)
    return [
        replace(one, usage=usage, model=model) if one.role == "assistant" else one for one in found
    ]


# An event tells of its call what a response of Gemini tells, under the same names.
about = gemini.about
