"""Replies of every provider, as they are stored, and a price list that is easy to reckon with."""

from __future__ import annotations

from typing import Any

# A dollar a token of input, two for output, and so on: a cost says what was counted as what.
PRICES = {
    "m": {
        "input": 1,
        "output": 2,
        "cache_read": 4,
        "cache_write": 8,
        "cache_write_1h": 16,
        "reasoning": 32,
    }
}


def anthropic(id: str | None = None, model: str = "m", **usage: Any) -> dict[str, Any]:
    """A whole response, as append_message takes it."""
    body = {"role": "assistant", "content": [{"type": "text", "text": "Yes."}], "model": model}
    body |= {"type": "message", "stop_reason": "end_turn"}
    body["usage"] = {"input_tokens": 100, "output_tokens": 10, **usage}
    return body if id is None else {**body, "id": id}


def claude_code(id: str, uuid: str, output_tokens: int) -> dict[str, Any]:
    """One of the records that a reply is written as."""
    message = anthropic(id, output_tokens=output_tokens)
    return {"type": "assistant", "uuid": uuid, "message": message}
