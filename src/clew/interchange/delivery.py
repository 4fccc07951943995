"""What the forms of an export have in common: entries on their way out, and tools by provider."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from clew import messages
from clew.context.normalise import CONTINUE
from clew.context.projection import project
from clew.context.request import Context
from clew.core.codec import decode, encode
from clew.core.model import Entry
from clew.interchange.export import Writing
from clew.messages.neutral import text_of
from clew.thread import Thread


def path_of(thread: Thread, writing: Writing, leaf: str | UnsetType | None = UNSET) -> list[Entry]:
    """The path to a leaf, as the export may show it."""
    return [writing.clean(entry) for entry in thread.path(leaf)]


def clean_data(data: bytes, writing: Writing, thread: str, name: str) -> bytes:
    """JSON that is no body of an entry, such as a title, as the export may show it.

    It goes through the same door as the entries: as the body of one that nobody stores.
    """
    made = Entry(thread, 0, name, 0, b"", None, "custom", data, b"")
    return writing.clean(made).data


def clean_value(value: Any, writing: Writing, thread: str, name: str) -> Any:
    """The same for a value that was decoded already."""
    return decode(clean_data(encode(value), writing, thread, name))


def context_of(
    path: Sequence[Entry], format: str, writing: Writing, *, compacted: bool = True
) -> Context:
    """The context of a path, without the words that only let the model go on; tells its repairs."""
    context = project(path, format, compacted=compacted)
    repairs = list(context.report.repairs)
    last = messages.view(format, context.messages[-1]) if context.messages else []
    if context.next == "user" and last and (last[-1].role, text_of(last[-1])) == _GO_ON:
        context.messages.pop()
        added = [repair for repair in repairs if repair.code == "user_added"]
        repairs.remove(added[-1])
    for repair in repairs:
        writing.change(repair.code, repair.message, repair.entry)
    return context


_GO_ON = ("user", CONTINUE)


def json_line(value: Any) -> bytes:
    """A value as one line of JSON that every parser takes: half a character becomes U+FFFD."""
    try:
        return _encode(value) + b"\n"
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return whole.encode("utf-8") + b"\n"


_encode = msgspec.json.Encoder().encode


# --- tools ----------------------------------------------------------------------------------


class Tool(Struct, frozen=True):
    """A function that a model may call. `parameters` is a JSON schema."""

    name: str
    description: str | None
    parameters: dict[str, Any]


def tools_of(told: Any, writing: Writing) -> list[Tool]:
    """The functions in the body of an `active_tools_change`, of whichever provider it is.

    A tool that is only named, or one that the provider runs itself, is in no other's form.
    """
    if isinstance(told, dict) and isinstance(told.get("tools"), list):
        told = told["tools"]
    found: list[Tool] = []
    for given in _flat(told if isinstance(told, list) else []):
        tool = _tool(given)
        if tool is None:
            named = given.get("name", given.get("type")) if isinstance(given, dict) else given
            writing.change("tool", f"{str(named)[:80]!r} is not defined as a function: left out")
        else:
            found.append(tool)
    return found


def _flat(told: Iterable[Any]) -> Iterator[Any]:
    """One by one: Gemini has lists of them in a list."""
    for given in told:
        listed = None
        if isinstance(given, dict):
            listed = given.get("functionDeclarations", given.get("function_declarations"))
        if isinstance(listed, list):
            yield from listed
        else:
            yield given


_SCHEMAS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema")


def _tool(given: Any) -> Tool | None:
    if not isinstance(given, dict):
        return None
    inner = given.get("function")
    body = inner if isinstance(inner, dict) else given
    name, about = body.get("name"), body.get("description")
    schema = next((body[key] for key in _SCHEMAS if isinstance(body.get(key), dict)), None)
    if not isinstance(name, str) or schema is None:
        return None
    return Tool(name, about if isinstance(about, str) else None, schema)


def written_tools(tools: Iterable[Tool], format: str) -> list[Any]:
    """Tools as a request to a provider has them."""
    made = [_written(tool, format) for tool in tools]
    return [{"functionDeclarations": made}] if made and format == "gemini" else made


def _written(tool: Tool, format: str) -> dict[str, Any]:
    about = {} if tool.description is None else {"description": tool.description}
    if format == "anthropic":
        return {"name": tool.name, **about, "input_schema": tool.parameters}
    function = {"name": tool.name, **about, "parameters": tool.parameters}
    if format == "gemini":
        return function
    if format == "openai-responses":
        return {"type": "function", **function}
    return {"type": "function", "function": function}
