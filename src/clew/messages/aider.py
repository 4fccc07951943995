"""Blocks of aider's chat history: a Markdown file in which a mark tells who speaks.

    {"role": "user" | "assistant" | "tool", "text": the lines as they stand, with their marks}

What the user said begins with "#### ", what aider itself said with "> ", and the rest is the model.
"""

from __future__ import annotations

from typing import Any

from clew.messages.neutral import Message, Text
from clew.messages.shared.read import Malformed, checked, string

NAME = "aider"
PROVIDER = "openai-chat"  # in whose format a request is written


@checked
def read(body: Any) -> list[Message]:
    """The neutral view of a block. What aider itself says is no message."""
    if not isinstance(body, dict) or body.get("role") not in ("user", "assistant"):
        raise Malformed("is not a block of a chat that the model took part in")
    lines = [line.removeprefix("#### ").rstrip() for line in string(body, "text").splitlines()]
    return [Message(role=body["role"], parts=(Text("\n".join(lines).strip()),))]
