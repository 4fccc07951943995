"""A strict fake of the request check of OpenAI's Responses API.

Written from the published documentation (platform.openai.com, developers.openai.com) and from
error messages that the API gives, not from Clew's own rules. The pages, by title:

    Create a model response (API reference)   items by type, content by role, lengths
    Function calling                          outputs answer calls by call_id
    Reasoning models                          reasoning goes back with the items after it
    Conversation state                        store, item references
    Encrypted reasoning items                 what replaces stored items with store=false
    Computer use, Local shell, Shell, Apply patch, Custom tools      their calls and outputs
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from providers.refusal import (
    JSON,
    Refused,
    a_list,
    a_text,
    an_object,
    covers,
    matching,
    one_of,
    only_keys,
    read_stamp,
    refuse,
    sendable,
)

__all__ = ["Model", "Refused", "check"]


@dataclass(frozen=True)
class Model:
    """What differs between models and servers that speak this API.

    `plain_reasoning`: open models take the text of their reasoning back; OpenAI's own refuse it.

    `mixed` looks away where items of two replies stand among each other, for tests that are
    about something else.
    """

    plain_reasoning: bool = False
    mixed: bool = False


ID_LENGTH_MAX = 64
TOOL_NAME = r"[a-zA-Z0-9_-]{1,128}"
IMAGE_URL = r"(https?://\S+|data:image/(png|jpe?g|gif|webp);base64,[A-Za-z0-9+/=]+)"

# How the id of an item begins, by its type; those of outputs are not published in full.
PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "computer_call": "cu",
    "local_shell_call": "lsh",
    "web_search_call": "ws",
    "file_search_call": "fs",
    "code_interpreter_call": "ci",
    "image_generation_call": "ig",
    "mcp_list_tools": "mcpl",
    "mcp_call": "mcp",
    "mcp_approval_request": "mcpr",
}
# Calls that the client answers, and what answers them.
OUTPUTS = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "local_shell_call": "local_shell_call_output",
    "shell_call": "shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
_CALL_OF = {output: call for call, output in OUTPUTS.items()}
# What servers do by themselves: they need no answer.
_SERVED = (
    *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call"),
    *("mcp_list_tools", "mcp_call", "mcp_approval_request", "tool_search_call"),
)
_OTHERS = ("mcp_approval_response", "item_reference", "compaction", "tool_search_output")
_MADE_BY_MODEL = (*OUTPUTS, *_SERVED)
_FIELDS: dict[str, set[str]] = {
    "message": {"id", "type", "role", "content", "status", "phase"},
    "reasoning": {"id", "type", "summary", "content", "encrypted_content", "status"},
    "function_call": {"id", "type", "call_id", "name", "arguments", "status", "namespace"},
    "function_call_output": {"id", "type", "call_id", "output", "status"},
    "custom_tool_call": {"id", "type", "call_id", "name", "input", "status", "namespace"},
    "custom_tool_call_output": {"id", "type", "call_id", "output", "status"},
}
_STATUS = ("in_progress", "completed", "incomplete")
# What the ids of the fakes say: the reply, the place in it, and "r" if reasoning goes before.
_ISSUED = re.compile(r"[a-z]+_fake(?P<reply>[a-z0-9]+)n(?P<index>\d+)(?P<needs>r?)")


def check(request: JSON, model: Model = Model()) -> None:
    """Raise Refused for the first fault of a request: input, and store if it is set."""
    sendable(request)
    given = request.get("input")
    if isinstance(given, str):
        return
    items = a_list(given, "input", least=1)
    stored = request.get("store", True) is not False
    for index, item in enumerate(items):
        _check_item(item, f"input[{index}]", stored, model)
    _check_ids(items)
    _check_calls(items)
    _check_reasoning(items, model)


def _kind(item: JSON) -> str:
    """A message need not say that it is one."""
    if item.get("type") is None and "role" in item:
        return "message"
    return str(item.get("type"))


# --- one item ---------------------------------------------------------------------------------


def _check_item(item: Any, path: str, stored: bool, model: Model) -> None:
    """Type, fields and id (Create a model response; Conversation state)."""
    an_object(item, path)
    kind = _kind(item)
    known = ("message", "reasoning", *OUTPUTS, *_CALL_OF, *_SERVED, *_OTHERS)
    one_of(kind, known, f"{path}.type", "item_type")
    if kind in _FIELDS:
        only_keys(item, _FIELDS[kind], path)
    if item.get("id") is not None:
        matching(item["id"], r"[a-zA-Z0-9_-]*[a-zA-Z0-9-]", f"{path}.id", "item_id")
        a_text(item["id"], f"{path}.id", most=ID_LENGTH_MAX)
        if kind in PREFIXES and not item["id"].startswith(PREFIXES[kind]):
            refuse(f"{path}.id", "item_id", f"an id that begins with {PREFIXES[kind]} is expected")
    if "status" in item and kind in _FIELDS:
        one_of(item["status"], _STATUS, f"{path}.status", "status")
    if kind == "message":
        _check_message(item, path)
    elif kind == "reasoning":
        _check_reasoning_item(item, path, stored, model)
    elif kind == "item_reference":
        a_text(item.get("id"), f"{path}.id", least=1)
        if not stored:
            refuse(path, "not_stored", "with store=false there is nothing to refer to")
    elif kind in OUTPUTS or kind in _CALL_OF:
        _check_tool_item(item, kind, path)


def _check_message(item: JSON, path: str) -> None:
    """Role, and the parts that it may use (Create a model response)."""
    roles = ("user", "assistant", "system", "developer")
    role = one_of(item.get("role"), roles, f"{path}.role", "role")
    content = item.get("content")
    if isinstance(content, str):
        return
    inputs = ("input_text", "input_image", "input_file")
    allowed = ("output_text", "refusal") if role == "assistant" else inputs
    # An assistant's message without any part is what an empty reply looks like.
    least = 0 if role == "assistant" else 1
    for place, part in enumerate(a_list(content, f"{path}.content", least=least)):
        here = f"{path}.content[{place}]"
        one_of(an_object(part, here).get("type"), allowed, f"{here}.type", "part_of_role")
        _check_part(part, here)


def _check_part(part: JSON, path: str) -> None:
    kind = part["type"]
    if kind in ("input_text", "output_text"):
        a_text(part.get("text"), f"{path}.text")
    elif kind == "refusal":
        a_text(part.get("refusal"), f"{path}.refusal")
    elif kind == "input_image":
        if part.get("file_id") is None:
            matching(part.get("image_url"), IMAGE_URL, f"{path}.image_url", "image_url")
    elif not any(part.get(key) for key in ("file_id", "file_data", "file_url")):
        refuse(path, "file", "an id, an address or the data of the file is missing")


def _check_reasoning_item(item: JSON, path: str, stored: bool, model: Model) -> None:
    """What a server can make of it (Reasoning models; Encrypted reasoning items)."""
    for place, part in enumerate(a_list(item.get("summary"), f"{path}.summary")):
        here = f"{path}.summary[{place}]"
        one_of(an_object(part, here).get("type"), ("summary_text",), here, "summary")
        a_text(part.get("text"), f"{here}.text")
    if "content" in item:
        a_list(item["content"], f"{path}.content")  # null is not taken for none
    if item.get("content") and not model.plain_reasoning:
        refuse(f"{path}.content", "plain_reasoning", "no plain text of reasoning is taken back")
    if item.get("encrypted_content") is not None:
        text = a_text(item["encrypted_content"], f"{path}.encrypted_content", least=1)
        found = read_stamp(text)
        if found is not None and not covers(found, item["summary"]):
            refuse(path, "reasoning_modified", "it is not what was encrypted")
    elif not stored:
        refuse(path, "not_stored", "with store=false only encrypted reasoning can be read")
    elif item.get("id") is None:
        refuse(path, "reasoning_unknown", "without an id nothing says which reasoning is meant")


def _check_tool_item(item: JSON, kind: str, path: str) -> None:
    """Calls and outputs by their kind (Function calling, and the pages of the tools)."""
    # The reference has the id of the call as `id` for this one output; servers take call_id too.
    key = "id" if kind == "local_shell_call_output" and "call_id" not in item else "call_id"
    # Only the length of a call_id is checked; any characters are taken.
    a_text(item.get(key), f"{path}.{key}", least=1, most=ID_LENGTH_MAX)
    if kind in ("function_call", "custom_tool_call"):
        matching(item.get("name"), TOOL_NAME, f"{path}.name", "tool_name")
        text = "arguments" if kind == "function_call" else "input"
        a_text(item.get(text), f"{path}.{text}")
    elif kind in ("function_call_output", "custom_tool_call_output"):
        _check_output(item.get("output"), f"{path}.output")
    elif kind == "computer_call":
        if not (item.get("action") or item.get("actions")):
            refuse(path, "computer_call", "a call to the computer has an action")
        if "pending_safety_checks" in item:
            a_list(item["pending_safety_checks"], f"{path}.pending_safety_checks")
    elif kind == "computer_call_output":
        shot = an_object(item.get("output"), f"{path}.output")
        one_of(shot.get("type"), ("computer_screenshot",), f"{path}.output.type", "screenshot")
        if not (shot.get("image_url") or shot.get("file_id")):
            refuse(f"{path}.output", "screenshot", "the picture is missing")
    elif kind == "local_shell_call":
        action = an_object(item.get("action"), f"{path}.action")
        one_of(action.get("type"), ("exec",), f"{path}.action.type", "local_shell")
        a_list(action.get("command"), f"{path}.action.command")
    elif kind == "local_shell_call_output":
        a_text(item.get("output"), f"{path}.output")


def _check_output(output: Any, path: str) -> None:
    if isinstance(output, str):
        return
    allowed = ("input_text", "input_image", "input_file")
    for place, part in enumerate(a_list(output, path, least=1)):
        here = f"{path}[{place}]"
        one_of(an_object(part, here).get("type"), allowed, f"{here}.type", "part_of_output")
        _check_part(part, here)


# --- ids --------------------------------------------------------------------------------------


def _check_ids(items: list[JSON]) -> None:
    seen: set[str] = set()
    for index, item in enumerate(items):
        id = item.get("id")
        if id is None or _kind(item) == "local_shell_call_output":
            continue
        if id in seen:
            refuse(f"input[{index}].id", "unique_items", f"an item with the id {id} was before")
        seen.add(id)


# --- calls and their outputs ------------------------------------------------------------------


def _check_calls(items: list[JSON]) -> None:
    """Every call has one output, of its own kind, somewhere after it (Function calling)."""
    asked: dict[str, str] = {}
    answered: set[str] = set()
    for index, item in enumerate(items):
        kind, path = _kind(item), f"input[{index}]"
        if kind in OUTPUTS:
            id = item["call_id"]
            if id in asked:
                refuse(path, "unique_calls", f"the call_id {id} was used before")
            asked[id] = kind
        elif kind in _CALL_OF:
            id = item["call_id"] if "call_id" in item else item["id"]
            # A function's output is taken for a local shell's call, as examples show.
            fits = asked.get(id) in (_CALL_OF[kind], "local_shell_call")
            if id not in asked or not fits:
                refuse(path, "result_without_call", f"no call with call_id {id} for it is there")
            if id in answered:
                refuse(path, "result_twice", f"the call {id} has an output already")
            answered.add(id)
    for index, item in enumerate(items):
        if _kind(item) in OUTPUTS and item["call_id"] not in answered:
            text = f"no tool output was found for the call {item['call_id']}"
            refuse(f"input[{index}]", "call_without_result", text)


# --- reasoning --------------------------------------------------------------------------------


def _check_reasoning(items: list[JSON], model: Model) -> None:
    """Reasoning is followed by what it led to, and what it led to goes after it.

    Reasoning models, on keeping reasoning items in context.
    By type alone: the next item that is no reasoning is one that the model made. The ids that a
    fake gave tell more, as stored ids do: which item it was.
    """
    for index, item in enumerate(items):
        path = f"input[{index}]"
        following = items[index + 1] if index + 1 < len(items) else None
        if _kind(item) == "reasoning":
            if following is None or not _made_by_model(following):
                text = "it was given without the item that has to follow it"
                refuse(path, "reasoning_alone", text)
            mine, next_ = (None, None) if model.mixed else (_issued(item), _issued(following))
            if mine is not None and next_ is not None and (mine[0], mine[1] + 1) != next_[:2]:
                refuse(path, "reasoning_alone", "another item follows it than the one it led to")
        found = None if model.mixed else _issued(item)
        if found is not None and found[2]:
            before = _issued(items[index - 1]) if index else None
            if before is None or before[:2] != (found[0], found[1] - 1):
                refuse(path, "reasoning_missing", "it was given without its reasoning before it")


def _made_by_model(item: JSON) -> bool:
    kind = _kind(item)
    said = kind == "message" and item.get("role") == "assistant"
    return said or kind in ("reasoning", "item_reference", *_MADE_BY_MODEL)


def _issued(item: JSON) -> tuple[str, int, bool] | None:
    found = _ISSUED.fullmatch(str(item.get("id")))
    if found is None:
        return None
    return found["reply"], int(found["index"]), bool(found["needs"])
