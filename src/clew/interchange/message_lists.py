"""The messages of a thread as a provider takes them: the body of a request, as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from clew.interchange.delivery import context_of, json_line, tools_of, written_tools
from clew.interchange.export import Writing
from clew.thread import Thread

# The format of each form, and how a request calls the messages and the system prompt, where that
# is not one of them.
_FORMATS = {
    "openai": ("openai-chat", "messages", ""),
    "openai-responses": ("openai-responses", "input", "instructions"),
    "anthropic": ("anthropic", "messages", "system"),
    "gemini": ("gemini", "contents", "systemInstruction"),
}


def write(thread: Thread, writing: Writing) -> Iterator[bytes]:
    """What a request at the thread's leaf would have; repairs are told as changes.

    Only that nothing is put into the user's mouth at the end, so that the model may go on.
    """
    format, messages, system = _FORMATS[writing.form]
    context = context_of(thread.path(), format, writing)
    body: dict[str, Any] = {}
    if context.system is not None:
        body[system] = context.system
    body[messages] = context.messages
    tools = written_tools(tools_of(context.tools, writing), format)
    if tools:
        body["tools"] = tools
    yield json_line(body)
