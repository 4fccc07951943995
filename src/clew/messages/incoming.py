"""The one door for messages: what a message is, which kind of entry it becomes, what is refused.

`Thread`, `Turn` and every facet bring their messages here, so the same message becomes the same
entry, or gets the same error, whichever way it comes in. A message is one of these:

- an object with a role, as the provider's API takes it or gives it;
- an object without a role that a format can read: an item of the Responses API, or a whole
  completion or response, which is stored as it is and read as its assistant message;
- a list of items of the Responses API: what one response gave is one entry;
- an object of a provider's SDK, or JSON that holds such objects: they become what they would send.

With a format, the format's reader decides whether a message is well-formed. Without one, the
reader is chosen by the message's shape, and a message that it cannot read is taken all the same if
it has a role and its content is text or blocks: `Thread.context` reports it as `unreadable`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from clew import messages
from clew.core import drafts
from clew.core.codec import render
from clew.core.errors import InvalidInput
from clew.core.model import EntryDraft
from clew.messages.neutral import Message, ToolCall, tool_ids
from clew.messages.sdk_objects import as_body

# Of the calls that a message answers: those that its thread does not know.
UnknownCalls = Callable[[frozenset[str]], Iterable[str]]


def message_draft(
    message: Any,
    format: str | None = None,
    *,
    unknown_calls: UnknownCalls | None = None,
    **fields: Any,
) -> EntryDraft:
    """A message as an entry to be appended, checked. `fields` are those of `clew.draft`.

    InvalidInput names the field and the place of what is wrong. `unknown_calls` is asked when the
    message names its format and holds results. Only a thread that takes one message at a time can
    tell; the histories that facets are given may have been cut between a call and its result.
    """
    try:
        return _draft(message, format, unknown_calls, fields)
    except InvalidInput as error:
        # Most messages are plain JSON, and a walk through them would cost as much as reading
        # them. So SDK objects are looked for only in what was refused as it stands.
        body = as_body(message)
        if body is message:
            raise _with_hint(error, body) from None
    try:
        return _draft(body, format, unknown_calls, fields)
    except InvalidInput as error:
        raise _with_hint(error, body) from None


def message_drafts(
    given: Iterable[Any], format: str | None = None, *, start: int = 0, **fields: Any
) -> list[EntryDraft]:
    """Several messages. An error names the place in the list, counted from `start`."""
    made: list[EntryDraft] = []
    for index, message in enumerate(given, start):
        try:
            made.append(message_draft(message, format, **fields))
        except InvalidInput as error:
            if error.field == "format":  # a mistake of the call, not of this message
                raise
            inner = "" if error.path is None else error.path.removeprefix("$")
            reason = error.fields["reason"]
            raise InvalidInput("messages", reason, path=f"$[{index}]{inner}") from None
    return made


def result_body(call: str, tool: str, output: Any) -> dict[str, Any]:
    """The output of a tool as a message that answers its call, in the plain format.

    An exception is an error; a text, and blocks of text and media, are what they are; so is what
    an MCP tool gave; any other JSON is written as text, and None as nothing.
    """
    body: dict[str, Any] = {"role": "tool", "tool_call_id": call, "name": tool}
    if isinstance(output, BaseException):
        text = f"{type(output).__name__}: {output}" if str(output) else type(output).__name__
        return {**body, "content": text, "is_error": True}
    output = as_body(output)
    if isinstance(output, dict) and isinstance(output.get("content"), list):
        failed = output.get("isError", output.get("is_error")) is True
        if failed or {"isError", "is_error", "structuredContent"} & output.keys():
            output = output["content"]
            body |= {"is_error": True} if failed else {}
    if isinstance(output, list) and output and all(map(_is_block, output)):
        return {**body, "content": [_plain_block(block) for block in output]}
    if output is None or isinstance(output, str):
        return {**body, "content": output or ""}
    return {**body, "content": render(output)}


def _is_block(block: Any) -> bool:
    return isinstance(block, dict) and (
        (block.get("type") == "text" and isinstance(block.get("text"), str))
        or (block.get("type") in ("image", "audio") and isinstance(block.get("data"), str))
        or (block.get("type") == "image" and isinstance(block.get("source"), dict))
    )


def _plain_block(block: dict[str, Any]) -> dict[str, Any]:
    """A block in the plain format; MCP and Anthropic spell media in their own ways."""
    source = block.get("source", block)
    mime = source.get("mime", source.get("mimeType", source.get("media_type")))
    if block["type"] == "text" or mime is None:
        return block
    return {"type": block["type"], "mime": mime, "data": source["data"]}


def message_list(given: object, field: str = "messages") -> list[Any]:
    """Several messages, not looked at one by one; InvalidInput for what is one, or none at all."""
    if not isinstance(given, Iterable) or isinstance(given, str | bytes | Mapping):
        raise InvalidInput(field, f"must be a list of messages, not {type(given).__name__}")
    return list(given)


def kind_for(body: Any, format: str | None = None) -> str:
    """The kind of entry that a message (as JSON) becomes. InvalidInput if it is no message.

    An assistant message with calls is a `tool_call`, one that holds nothing but results is a
    `tool_result`, every other message goes by its role, and an unknown role is `custom`.
    """
    return _kind(body, _read(body, format))


def _draft(
    body: Any, format: str | None, unknown_calls: UnknownCalls | None, fields: dict[str, Any]
) -> EntryDraft:
    kind = _obvious_kind(body) if format is None else None
    if kind is not None:
        return drafts.draft(kind, body, **fields)
    found = _read(body, format)
    if unknown_calls is not None and format is not None:
        answered = tool_ids(found)[1]
        for id in sorted(unknown_calls(answered)) if answered else ():
            reason = f"is a result for call {id!r}, which is not in the thread"
            raise InvalidInput("message", reason)
    return drafts.draft(_kind(body, found), body, format=format, **fields)


def _obvious_kind(body: Any) -> str | None:
    """The kind of what is said most often. It needs no reader, which could only confirm it."""
    if type(body) is not dict:
        return None
    keys, role, content = body.keys(), body.get("role"), body.get("content")
    if type(role) is not str or not (type(content) is str or content is None):
        return None
    if keys == _WORDS and content is not None:
        return _KINDS.get(role)  # a text, and who says it
    if keys == _RESULT and role == "tool":
        return "tool_result"
    if keys == _CALLING and role == "assistant":
        calls = body["tool_calls"]
        known = type(calls) is list and calls and type(calls[0]) is dict and "function" in calls[0]
        return "tool_call" if known else None
    return None


def _read(body: Any, format: str | None) -> list[Message]:
    """The neutral view; empty for a message of an unknown form, which only its role speaks for."""
    if isinstance(body, dict) and format not in messages.FRAMEWORKS:
        # Before the readers, so that one mistake has one error in every format: Gemini's reader,
        # for one, does not look at `content` at all. Frameworks have contents of their own.
        _check_content(body)
    try:
        found = messages.reader(messages.detect(body) if format is None else format)(body)
    except InvalidInput:
        if format is not None or not isinstance(body, dict) or body.get("role") is None:
            raise
        role = body["role"]
        if not isinstance(role, str) or not role:
            reason = "has no role" if not role else f"{role!r} is not a role"
            raise InvalidInput("message", reason, path="$.role") from None
        return []
    if not found:
        raise InvalidInput("message", "is a list without items")
    return found


def _check_content(body: dict[str, Any]) -> None:
    content = body.get("content")
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list):
        reason = f"must be text or a list of blocks, not {type(content).__name__}"
        raise InvalidInput("message", reason, path="$.content")
    for index, block in enumerate(content):
        if not isinstance(block, str | dict):
            reason = f"a block must be text or an object, not {type(block).__name__}"
            raise InvalidInput("message", reason, path=f"$.content[{index}]")


def _kind(body: Any, found: list[Message]) -> str:
    if not found:
        return _claimed_kind(body)
    # A user message with results and words of the user is read as two; it is the user's. So the
    # first one that is not a tool's decides, unless the assistant calls a tool in any of them.
    kind = "tool_result"
    for message in reversed(found):
        if message.role == "assistant":
            for part in message.parts:
                if type(part) is ToolCall:
                    return "tool_call"
        # A request of Pydantic AI begins with the system's words and goes on with the user's: it
        # is the user's, too.
        if message.role != "tool" and (message.role, kind) != ("system", "user_message"):
            kind = _KINDS[message.role]
    return kind


def _claimed_kind(body: dict[str, Any]) -> str:
    """What a message that cannot be read says it is: by its role, and the names of its blocks."""
    role, content = body["role"], body.get("content") or body.get("parts")
    blocks = content if isinstance(content, list) else []
    # Blocks are named by a type or, in Gemini's contents, by the field that holds them.
    names = {str(b.get("type") or next(iter(b), "")) for b in blocks if isinstance(b, dict)}
    if role in ("assistant", "model") and (body.get("tool_calls") or names & _CALLS):
        return "tool_call"
    if role == "user" and names and names <= _RESULTS:
        return "tool_result"
    return _KINDS.get(role, "custom")


def _with_hint(error: InvalidInput, body: Any) -> InvalidInput:
    """The error; for what is nearly a message, one that says where the message is."""
    hint = _hint(body)
    return error if hint is None else InvalidInput("message", hint, path="$")


def _hint(body: Any) -> str | None:
    if isinstance(body, str):
        return 'is a text; a message also says whose it is: {"role": "user", "content": …}'
    if isinstance(body, list):
        named = [item for item in body if isinstance(item, dict)]
        if named and all(isinstance(item.get("role"), str) for item in named):
            return "is a list of messages; append them one by one"
        if named and all("type" in item for item in named):
            return 'is a list of blocks; a message holds them: {"role": "assistant", "content": …}'
        if named and all({"text", "functionCall", "function_call"} & item.keys() for item in named):
            return 'is a list of parts; a content holds them: {"role": "model", "parts": …}'
    if not isinstance(body, dict) or isinstance(body.get("role"), str):
        return None
    if body.get("object") == "chat.completion.chunk":
        return "is one event of a stream; append the message when it is whole"
    if isinstance(body.get("message"), dict):
        return "is a choice of a chat completion: its message is .message"
    if isinstance(body.get("content"), dict):
        return "is a candidate of a Gemini response: its message is .content"
    if body.get("type") in ("text", "tool_use", "thinking", "tool_result", "image"):
        return 'is a block; a message holds it: {"role": …, "content": [block]}'
    return None


_WORDS = {"role", "content"}
_RESULT = {"role", "content", "tool_call_id"}
_CALLING = {"role", "content", "tool_calls"}
_CALLS = {"tool_use", "functionCall", "function_call"}
_RESULTS = {"tool_result", "functionResponse", "function_response"}
_KINDS = {
    "user": "user_message",
    "assistant": "assistant_message",
    "model": "assistant_message",
    "tool": "tool_result",
    "function": "tool_result",
    "system": "system_message",
    "developer": "system_message",
}
