"""A strict fake of the request check of OpenAI's Chat Completions API.

Written from the published documentation (platform.openai.com, developers.openai.com) and from
error messages that the API gives, not from Clew's own rules. The pages, by title:

    Create chat completion (API reference)   roles, content by role, fields, lengths
    Function calling                         tool messages answer the calls before them
    Images and vision, Audio, File inputs    parts of a user's message
    Reasoning models                         "developer" in place of "system"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from providers.refusal import (
    JSON,
    Refused,
    a_list,
    a_text,
    an_object,
    base64_data,
    matching,
    one_of,
    only_keys,
    refuse,
    sendable,
)

__all__ = ["Model", "Refused", "check"]


@dataclass(frozen=True)
class Model:
    """What differs between models and servers that speak this API.

    `id_length_max`: 40 is what the API said when it refused ids that other providers had made;
    newer ones take longer ones. `functions`: the calls before tools, deprecated since 2023.
    """

    id_length_max: int = 40
    functions: bool = False


CALLS_MAX = 128
TOOL_NAME = r"[a-zA-Z0-9_-]{1,64}"
AUTHOR_NAME = r"[^\s<|\\/>]{1,64}"
IMAGE_URL = r"(https?://\S+|data:image/(png|jpe?g|gif|webp);base64,[A-Za-z0-9+/=]+)"

_PARTS = {
    "system": ("text",),
    "developer": ("text",),
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "tool": ("text",),
}
_FIELDS = {
    "system": {"role", "content", "name"},
    "developer": {"role", "content", "name"},
    "user": {"role", "content", "name"},
    # annotations come with every reply and are taken back.
    "assistant": {
        *("role", "content", "name", "refusal", "audio", "tool_calls", "function_call"),
        "annotations",
    },
    "tool": {"role", "content", "tool_call_id"},
    "function": {"role", "content", "name"},
}


def check(request: JSON, model: Model = Model()) -> None:
    """Raise Refused for the first fault of a request's messages."""
    sendable(request)
    messages = a_list(request.get("messages"), "messages", least=1)
    for index, message in enumerate(messages):
        _check_message(message, f"messages[{index}]", model)
    _check_calls(messages)


# --- one message ------------------------------------------------------------------------------


def _check_message(message: Any, path: str, model: Model) -> None:
    """Role, fields and content (Create chat completion; Reasoning models)."""
    an_object(message, path)
    roles = (*_PARTS, "function") if model.functions else tuple(_PARTS)
    role = one_of(message.get("role"), roles, f"{path}.role", "role")
    only_keys(message, _FIELDS[role], path)
    if message.get("name") is not None and role != "tool":
        matching(message["name"], AUTHOR_NAME, f"{path}.name", "name")
    if role == "assistant":
        _check_assistant(message, path, model)
    elif role == "function":
        matching(message.get("name"), TOOL_NAME, f"{path}.name", "tool_name")
        a_text(message.get("content"), f"{path}.content")
    else:
        _check_content(message.get("content"), role, f"{path}.content")
        if role == "tool":
            here = f"{path}.tool_call_id"
            a_text(message.get("tool_call_id"), here, least=1, most=model.id_length_max)


def _check_content(content: Any, role: str, path: str) -> None:
    """An empty string is taken; an empty array, or null where text is due, is not."""
    if isinstance(content, str):
        return
    if content is None:
        refuse(path, "null_content", "a string is expected, not null")
    for place, part in enumerate(a_list(content, path, least=1)):
        _check_part(part, role, f"{path}[{place}]")


def _check_part(part: Any, role: str, path: str) -> None:
    """A part by its type (Create chat completion; Images and vision; Audio; File inputs)."""
    kind = one_of(an_object(part, path).get("type"), _PARTS[role], f"{path}.type", "part_of_role")
    if kind in ("text", "refusal"):
        a_text(part.get(kind), f"{path}.{kind}")
    elif kind == "image_url":
        image = an_object(part.get("image_url"), f"{path}.image_url")
        matching(image.get("url"), IMAGE_URL, f"{path}.image_url.url", "image_url")
    elif kind == "input_audio":
        audio = an_object(part.get("input_audio"), f"{path}.input_audio")
        one_of(audio.get("format"), ("wav", "mp3"), f"{path}.input_audio.format", "audio_format")
        base64_data(audio.get("data"), f"{path}.input_audio.data")
    else:
        file = an_object(part.get("file"), f"{path}.file")
        if not (file.get("file_id") or file.get("file_data")):
            refuse(f"{path}.file", "file", "an id or the data of the file is missing")
        if file.get("file_data"):
            a_text(file.get("filename"), f"{path}.file.filename", least=1)


def _check_assistant(message: JSON, path: str, model: Model) -> None:
    """Content, or calls, or a refusal (Create chat completion; Function calling)."""
    calls = message.get("tool_calls")
    if calls is not None:
        for place, call in enumerate(a_list(calls, f"{path}.tool_calls", least=1, most=CALLS_MAX)):
            _check_call(call, f"{path}.tool_calls[{place}]", model)
    if message.get("function_call") is not None:
        _check_function_call(message["function_call"], f"{path}.function_call", model)
    content = message.get("content")
    if content is None and (calls or message.get("function_call")):
        return
    # A reply that refuses has null for content and the words beside it; so has one of sound.
    if content is None and (message.get("refusal") or message.get("audio")):
        return
    _check_content(content, "assistant", f"{path}.content")
    if isinstance(content, list):
        refusals = [part for part in content if part["type"] == "refusal"]
        if refusals and len(content) > 1:
            refuse(f"{path}.content", "refusal", "a refusal stands alone")


def _check_call(call: Any, path: str, model: Model) -> None:
    kind = one_of(an_object(call, path).get("type"), ("function", "custom"), path, "call_type")
    only_keys(call, {"id", "type", kind}, path)
    a_text(call.get("id"), f"{path}.id", least=1, most=model.id_length_max)
    tool = an_object(call.get(kind), f"{path}.{kind}")
    matching(tool.get("name"), TOOL_NAME, f"{path}.{kind}.name", "tool_name")
    key = "arguments" if kind == "function" else "input"
    # The reference says that arguments need not be valid JSON: the model made them.
    a_text(tool.get(key), f"{path}.{kind}.{key}")


def _check_function_call(call: Any, path: str, model: Model) -> None:
    if not model.functions:
        refuse(path, "function_call", "deprecated: tool_calls took its place")
    an_object(call, path)
    matching(call.get("name"), TOOL_NAME, f"{path}.name", "tool_name")
    a_text(call.get("arguments"), f"{path}.arguments")


# --- calls and their answers ------------------------------------------------------------------


def _check_calls(messages: list[JSON]) -> None:
    """The answers stand right after the calls, one for each, before anything else is said.

    Function calling.
    An id may come again in a later message: the pairs are local. Within one message it may not,
    because the answers could not be told apart.
    """
    asked: dict[str, str] = {}  # id → where, as long as it has no answer
    answered: set[str] = set()  # of the same message
    for index, message in enumerate(messages):
        path = f"messages[{index}]"
        if message["role"] == "tool":
            id = message["tool_call_id"]
            if id in answered:
                refuse(path, "result_twice", f"tool_call_id {id} has an answer already")
            if id not in asked:
                refuse(path, "result_without_call", f"no call {id} is in the message before it")
            del asked[id]
            answered.add(id)
            continue
        _refuse_open(asked)
        asked, answered = {}, set()
        for place, call in enumerate(message.get("tool_calls") or []):
            if call["id"] in asked:
                here = f"{path}.tool_calls[{place}].id"
                refuse(here, "unique_ids", f"the id {call['id']} is there twice")
            asked[call["id"]] = path
    _refuse_open(asked)


def _refuse_open(asked: dict[str, str]) -> None:
    for id, path in asked.items():
        refuse(path, "call_without_result", f"no tool message answers {id} right after it")
