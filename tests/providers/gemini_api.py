"""A strict fake of the request check of Google's generateContent API.

Written from the published documentation (ai.google.dev, cloud.google.com/vertex-ai) and from
error messages that the API gives, not from Clew's own rules. The pages, by title:

    Content, Part, FunctionCall, FunctionResponse (API reference)    shapes, roles, the union
    Function calling with the Gemini API     answers right after the calls, ids are sent back
    Thought signatures                       which calls must be signed, from Gemini 3 on
    Image understanding, Document processing, Audio, Video           media types
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from providers.refusal import (
    JSON,
    Refused,
    a_flag,
    a_list,
    a_text,
    an_object,
    base64_data,
    covers,
    matching,
    one_of,
    only_keys,
    read_stamp,
    refuse,
    sendable,
)

__all__ = ["SKIP", "Model", "Refused", "check"]


@dataclass(frozen=True)
class Model:
    """What differs between families of models.

    `signatures`: from Gemini 3 on, calls of the current turn must be signed; 2.5 takes them
    unsigned. `prefill`: up to Gemini 3.1 a request may end with the model's turn; newer ones
    refuse it. `function_role`: older ones took "function" as the role of results.

    `mixed` looks away where signed content of two replies is in one content, for tests that are
    about something else.
    """

    signatures: bool = True
    prefill: bool = False
    function_role: bool = False
    mixed: bool = False


# The documented values for calls that the model did not make, such as those of another provider.
SKIP = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
INLINE_BYTES_MAX = 20 * 1024 * 1024
# Published for declarations, with 64 characters at first; calls name what was declared.
NAME = r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}"

MIME_TYPES = (
    *(f"image/{kind}" for kind in ("png", "jpeg", "webp", "heic", "heif")),
    *(f"audio/{kind}" for kind in ("wav", "mp3", "mpeg", "aiff", "aac", "ogg", "flac", "x-wav")),
    *(f"video/{kind}" for kind in ("mp4", "mpeg", "mov", "quicktime", "avi", "x-flv", "mpg")),
    *(f"video/{kind}" for kind in ("webm", "wmv", "3gpp")),
    *("application/pdf", "application/json", "application/x-javascript", "application/rtf"),
)
_DATA = (
    *("text", "inlineData", "fileData", "functionCall", "functionResponse"),
    *("executableCode", "codeExecutionResult"),
)
_BESIDE = {"thought", "thoughtSignature", "videoMetadata", "partMetadata", "mediaResolution"}
_BY_ROLE = {
    "user": ("text", "inlineData", "fileData", "functionResponse"),
    "model": tuple(name for name in _DATA if name != "functionResponse"),
}
# SDKs of Python send these names; the API takes both spellings.
_SNAKE = {
    "inline_data": "inlineData",
    "file_data": "fileData",
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "executable_code": "executableCode",
    "code_execution_result": "codeExecutionResult",
    "thought_signature": "thoughtSignature",
    "mime_type": "mimeType",
    "file_uri": "fileUri",
}


def check(request: JSON, model: Model = Model()) -> None:
    """Raise Refused for the first fault of a request: contents, and systemInstruction."""
    sendable(request)
    contents = [
        _camel_content(content, f"contents[{index}]")
        for index, content in enumerate(a_list(request.get("contents"), "contents", least=1))
    ]
    for index, content in enumerate(contents):
        _check_content(content, f"contents[{index}]", model)
    _check_system(request.get("systemInstruction") or request.get("system_instruction"))
    _check_order(contents, model)
    _check_calls(contents)
    if model.signatures:
        _check_signatures(contents)
    if not model.mixed:
        _check_replies(contents)


# --- one content ------------------------------------------------------------------------------


def _camel_content(content: Any, path: str) -> JSON:
    """The content with the names of JSON, for what may be spelled in two ways."""
    an_object(content, path)
    only_keys(content, {"role", "parts"}, path)
    parts = []
    for place, part in enumerate(a_list(content.get("parts"), f"{path}.parts", least=1)):
        an_object(part, f"{path}.parts[{place}]")
        parts.append({_SNAKE.get(key, key): value for key, value in part.items()})
    return {**content, "parts": parts}


def _check_content(content: JSON, path: str, model: Model) -> None:
    """Role and parts (Content)."""
    # Without a role it is the user's, which is allowed for a single content only.
    roles = ("user", "model", "function") if model.function_role else ("user", "model")
    role = one_of(content.get("role", "user"), roles, f"{path}.role", "role")
    for place, part in enumerate(content["parts"]):
        _check_part(part, "user" if role == "function" else role, f"{path}.parts[{place}]")


def _check_part(part: JSON, role: str, path: str) -> None:
    """One kind of data in each part (Part)."""
    only_keys(part, {*_DATA, *_BESIDE}, path)
    data = [name for name in _DATA if part.get(name) is not None]
    if len(data) != 1:
        found = ", ".join(data) or "none"
        refuse(f"{path}.data", "one_of_data", f"exactly one kind of data is wanted, not {found}")
    kind = data[0]
    one_of(kind, _BY_ROLE[role], path, "part_of_role")
    if "thought" in part:
        a_flag(part["thought"], f"{path}.thought")
    if part.get("thoughtSignature") is not None:
        _check_signature(part["thoughtSignature"], f"{path}.thoughtSignature")
    if kind == "text":
        # Protobuf takes an empty text for no data; a signature may travel with one all the same.
        text = a_text(part["text"], f"{path}.text")
        if not text and not part.get("thoughtSignature"):
            refuse(f"{path}.data", "one_of_data", "an empty text counts as no data")
    elif kind in ("inlineData", "fileData"):
        _check_media(part[kind], kind, f"{path}.{kind}")
    elif kind in ("functionCall", "functionResponse"):
        _check_function(part[kind], kind, f"{path}.{kind}")


def _check_signature(signature: Any, path: str) -> None:
    """Bytes, so base64; the values that skip the check are taken as they stand."""
    if signature not in SKIP:
        base64_data(str(signature).replace("-", "+").replace("_", "/"), path)


def _check_media(data: Any, kind: str, path: str) -> None:
    """Types of media (Image understanding; Document processing; Audio; Video)."""
    found = {_SNAKE.get(key, key): value for key, value in an_object(data, path).items()}
    mime = found.get("mimeType")
    if kind == "fileData":
        a_text(found.get("fileUri"), f"{path}.fileUri", least=1)
        if mime is not None:
            a_text(mime, f"{path}.mimeType", least=1)
        return
    if not str(mime).startswith("text/"):
        one_of(mime, MIME_TYPES, f"{path}.mimeType", "mime_type")
    base64_data(found.get("data"), f"{path}.data", bytes_max=INLINE_BYTES_MAX)


def _check_function(value: Any, kind: str, path: str) -> None:
    """A call or an answer (FunctionCall; FunctionResponse)."""
    an_object(value, path)
    fields = {"functionCall": {"args"}, "functionResponse": {"response", "parts", "scheduling"}}
    only_keys(value, {"id", "name", "willContinue", *fields[kind]}, path)
    matching(value.get("name"), NAME, f"{path}.name", "function_name")
    if value.get("id") is not None:
        a_text(value["id"], f"{path}.id")
    if kind == "functionCall":
        if value.get("args") is not None:
            an_object(value["args"], f"{path}.args")
    else:
        an_object(value.get("response"), f"{path}.response")
        for place, part in enumerate(value.get("parts") or []):
            inside = f"{path}.parts[{place}]"
            data = {_SNAKE.get(k, k): v for k, v in an_object(part, inside).items()}
            if not ({"inlineData", "fileData"} & data.keys()):
                refuse(inside, "part_of_response", "the parts of an answer are media")


def _check_system(system: Any) -> None:
    if system is None or isinstance(system, str):  # SDKs make a content of a string
        return
    parts = an_object(system, "systemInstruction").get("parts")
    for place, part in enumerate(a_list(parts, "systemInstruction.parts", least=1)):
        path = f"systemInstruction.parts[{place}]"
        a_text(an_object(part, path).get("text"), f"{path}.text", least=1)


# --- the order of contents --------------------------------------------------------------------


def _check_order(contents: list[JSON], model: Model) -> None:
    """Neighbours of one role are let through: reports differ, and Google's own clients send them.

    What is refused among them are calls in the second one, see `_check_calls`.
    """
    if len(contents) > 1:
        for index, content in enumerate(contents):
            if "role" not in content:
                refuse(f"contents[{index}].role", "role", "with several contents each has a role")
    if _role(contents[0]) == "model":
        refuse("contents[0].role", "first_is_user", "the first content must be the user's")
    if _role(contents[-1]) == "model" and not model.prefill:
        text = "a request that ends with the model's turn is not supported"
        refuse(f"contents[{len(contents) - 1}]", "ends_with_user", text)


def _check_calls(contents: list[JSON]) -> None:
    """Calls come right after the user or after answers; their answers come right after them.

    Function calling with the Gemini API.
    """
    for index, content in enumerate(contents):
        path = f"contents[{index}]"
        before = contents[index - 1] if index else None
        if _found(content, "functionCall") and (before is None or _role(before) == "model"):
            text = "calls come right after the user's content or after answers"
            refuse(path, "call_after_user", text)
        answers = _found(content, "functionResponse")
        asked = _found(before, "functionCall") if before is not None else []
        if answers and not asked:
            refuse(path, "result_without_call", "answers come right after calls")
        if len(answers) != len(asked):
            text = f"{len(asked)} calls need as many answers, not {len(answers)}"
            refuse(path, "as_many_results", text)
        _check_pairs(asked, answers, path)
    if _found(contents[-1], "functionCall"):
        refuse(f"contents[{len(contents) - 1}]", "as_many_results", "calls have no answers")


def _check_pairs(asked: list[JSON], answers: list[JSON], path: str) -> None:
    """Ids are sent back where there were any, each once; without them, names pair up.

    An answer may have an id although its call has none: a client of Google's sent them so.
    """
    ids = [call["id"] for call in asked if call.get("id")]
    if len(set(ids)) < len(ids):
        refuse(path, "unique_ids", "two calls of one turn have the same id")
    given = [answer["id"] for answer in answers if answer.get("id")]
    if len(ids) == len(asked) and ids and sorted(given) != sorted(ids):
        refuse(path, "result_ids", "the ids of the answers are not those of the calls")
    names, said = (Counter(part["name"] for part in parts) for parts in (asked, answers))
    if names != said:
        refuse(path, "result_names", "the names of the answers are not those of the calls")


# --- thought signatures -----------------------------------------------------------------------


def _check_signatures(contents: list[JSON]) -> None:
    """In the current turn, the first call of each step is signed (Thought signatures).

    The turn begins with the last content of the user that is more than answers. Parallel calls
    are signed on the first one only; texts may come without.
    """
    said = [
        index
        for index, content in enumerate(contents)
        if _role(content) == "user" and len(_found(content, "functionResponse")) < _size(content)
    ]
    for index in range(said[-1] if said else 0, len(contents)):
        for place, part in enumerate(contents[index]["parts"]):
            if part.get("functionCall") is None:
                continue
            if not part.get("thoughtSignature"):
                path = f"contents[{index}].parts[{place}]"
                name = part["functionCall"]["name"]
                refuse(path, "unsigned_call", f"the call of {name} has no thought_signature")
            break


def _check_replies(contents: list[JSON]) -> None:
    """What was signed comes back as it was, and parts of two replies are not in one content."""
    for index, content in enumerate(contents):
        replies: set[str] = set()
        for place, part in enumerate(content["parts"]):
            found = read_stamp(part.get("thoughtSignature"))
            if found is None:
                continue
            path = f"contents[{index}].parts[{place}]"
            call = part.get("functionCall") or {}
            signed = [call.get("name"), call.get("args")] if call else part.get("text")
            if not covers(found, signed):
                refuse(path, "signature_moved", "it is not what the signature was given for")
            replies.add(found.reply)
            if len(replies) > 1:
                refuse(path, "signature_moved", "parts of two replies are in one content")


def _role(content: JSON) -> str:
    return "user" if content.get("role", "user") != "model" else "model"


def _found(content: JSON, kind: str) -> list[JSON]:
    return [part[kind] for part in content["parts"] if part.get(kind) is not None]


def _size(content: JSON) -> int:
    return len(content["parts"])
