"""What is written in a framework's format is what the framework itself takes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

sys.path.insert(0, str(Path(__file__).parent.parent / "messages"))

from message_strategies import dialogues

from clew import messages
from clew.messages.neutral import Message

EXAMPLES = 40


@given(dialogue=dialogues())
@settings(max_examples=EXAMPLES, deadline=None)
def test_pydantic_ai_takes_what_is_written_for_it(dialogue: list[Message]) -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai.messages", reason="it is not installed")
    adapter: Any = pydantic_ai.ModelMessagesTypeAdapter
    written = messages.write("pydantic-ai", dialogue).messages
    found = adapter.validate_python(written)
    again = adapter.dump_python(found, mode="json")
    back = [message for body in again for message in messages.read("pydantic-ai", body)]
    first = [message for body in written for message in messages.read("pydantic-ai", body)]
    assert _shape(back) == _shape(first)


@given(dialogue=dialogues())
@settings(max_examples=EXAMPLES, deadline=None)
def test_agent_framework_takes_what_is_written_for_it(dialogue: list[Message]) -> None:
    framework = pytest.importorskip("agent_framework", reason="it is not installed")
    written = messages.write("agent-framework", dialogue).messages
    again = [framework.Message.from_dict(body).to_dict() for body in written]
    back = [message for body in again for message in messages.read("agent-framework", body)]
    first = [message for body in written for message in messages.read("agent-framework", body)]
    assert _shape(back) == _shape(first)


@given(dialogue=dialogues())
@settings(max_examples=EXAMPLES, deadline=None)
def test_llama_index_takes_what_is_written_for_it(dialogue: list[Message]) -> None:
    llms = pytest.importorskip("llama_index.core.llms", reason="it is not installed")
    written = messages.write("llama-index", dialogue).messages
    again = [llms.ChatMessage.model_validate(body).model_dump(mode="json") for body in written]
    back = [message for body in again for message in messages.read("llama-index", body)]
    first = [message for body in written for message in messages.read("llama-index", body)]
    assert _shape(back) == _shape(first)


def _shape(found: list[Message]) -> list[Any]:
    """What is said and called, without the blocks that it was read from."""
    return [
        (
            message.role,
            [
                (
                    type(part).__name__,
                    getattr(part, "text", None),
                    getattr(part, "id", None),
                    getattr(part, "arguments", None),
                    getattr(part, "call", None),
                    getattr(part, "is_error", None),
                    [getattr(inner, "text", None) for inner in getattr(part, "content", ())],
                )
                for part in message.parts
            ],
        )
        for message in found
    ]
