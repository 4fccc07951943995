"""A model that says what it was told to say, and the items that the tests speak in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from agents import Model, ModelResponse, Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

Item = dict[str, Any]


def user(text: str) -> Item:
    return {"role": "user", "content": text}


def assistant(text: str, id: str = "msg_1") -> Item:
    block = {"type": "output_text", "text": text, "annotations": []}
    about = {"id": id, "type": "message", "status": "completed", "role": "assistant"}
    return {**about, "content": [block]}


def call(id: str, tool: str = "add", arguments: str = '{"a":1,"b":2}') -> Item:
    return {"type": "function_call", "call_id": id, "name": tool, "arguments": arguments}


def output(id: str, text: str = "3") -> Item:
    return {"type": "function_call_output", "call_id": id, "output": text}


def says(text: str, id: str = "msg_1") -> ResponseOutputMessage:
    block = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        id=id, type="message", role="assistant", status="completed", content=[block]
    )


def calls(id: str, tool: str, arguments: str) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(
        id=f"fc_{id}", call_id=id, type="function_call", name=tool, arguments=arguments
    )


@contextmanager
def default_loop() -> Iterator[None]:
    """The loop that `run_sync` finds and leaves open; here it is closed."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        loop.close()


class ScriptedModel(Model):
    """Answers each request with the next list of outputs, and remembers what it was asked."""

    def __init__(self, *replies: list[Any], before: Callable[[], None] | None = None) -> None:
        self.replies = list(replies)
        self.requests: list[list[Any]] = []
        self._before = before

    async def get_response(
        self, system_instructions: Any, input: Any, *rest: Any, **more: Any
    ) -> Any:
        self.requests.append([user(input)] if isinstance(input, str) else list(input))
        if self._before is not None:
            self._before()
        usage = Usage(requests=1, input_tokens=100, output_tokens=10, total_tokens=110)
        return ModelResponse(
            output=self.replies.pop(0), usage=usage, response_id=f"resp_{len(self.requests)}"
        )

    async def stream_response(
        self, system_instructions: Any, input: Any, *rest: Any, **more: Any
    ) -> AsyncIterator[Any]:
        given = await self.get_response(system_instructions, input)
        response = Response(
            id="resp_1",
            created_at=0,
            model="scripted",
            object="response",
            output=given.output,
            parallel_tool_calls=False,
            tool_choice="auto",
            tools=[],
        )
        yield ResponseCompletedEvent(
            response=response, sequence_number=0, type="response.completed"
        )
