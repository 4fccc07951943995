"""Generated dialogues: neutral ones in normal form, and what reading them back should give."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from clew import messages
from clew.messages.neutral import (
    Media,
    Message,
    Other,
    Part,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    calls_of,
    results_of,
)

PROVIDERS = ("anthropic", "openai-chat", "openai-responses", "gemini")
# Those of frameworks in which requests are written, too.
REQUESTS = (*messages.FORMATS, "agent-framework", "converse", "llama-index", "pydantic-ai")
# Where system messages stay.
IN_PLACE = (
    *("openai-chat", "openai-responses", "plain"),
    *("agent-framework", "llama-index", "pydantic-ai"),
)

# Square brackets are what placeholders are known by.
_letters = st.characters(codec="utf-8", exclude_characters="[]")
texts = st.text(_letters, min_size=1, max_size=20).filter(lambda text: bool(text.strip()))
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(_letters, max_size=8)
)
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(_letters, max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
objects = st.dictionaries(st.text(_letters, max_size=8), json_values, max_size=3)
ids = st.one_of(
    st.from_regex(r"call_[a-z0-9]{4}", fullmatch=True),
    st.text(_letters, min_size=1, max_size=90),
    st.sampled_from(["toolu_01", "call 7|fc:9", "ünïcode", "x" * 64, "y" * 65, "z" * 41]),
)
names = st.one_of(
    st.from_regex(r"[a-z_]{1,12}", fullmatch=True),
    st.text(_letters, min_size=1, max_size=140),
    st.sampled_from(["mcp.server/read", "7zip", "a:b", "n" * 65, "m" * 129, "über"]),
)
_data = st.binary(min_size=1, max_size=12).map(lambda data: base64.b64encode(data).decode())


def _media(kind: Any, **fields: Any) -> st.SearchStrategy[Media]:
    return _data.map(
        lambda data: Media(kind=kind, **{k: data if v is ... else v for k, v in fields.items()})
    )


media = st.one_of(
    _media("image", mime="image/png", data=...),
    _media("image", mime="image/tiff", data=...),
    _media("image", url="https://example.org/cat.png"),
    _media("file", mime="application/pdf", data=..., name="report.pdf"),
    _media("file", mime="application/pdf", url="https://example.org/report.pdf"),
    _media("file", mime="application/zip", data=...),
    _media("audio", mime="audio/wav", data=...),
    _media("audio", mime="audio/ogg", data=...),
    _media("file", file_id="file-1"),
)
foreign = st.just(Other(format="elsewhere", raw={"type": "web_search"}))
thinking = st.builds(
    Thinking,
    text=texts,
    signature=st.sampled_from([None, "signature"]),
    format=st.sampled_from([None, "elsewhere"]),
)
plain_texts = st.builds(Text, text=texts)
results = st.lists(st.builds(Text, text=st.text(_letters, max_size=12)) | media, max_size=3)
thoughts = st.lists(st.one_of(plain_texts, thinking, media, foreign), max_size=3)
inputs = st.lists(st.one_of(plain_texts, media, foreign), min_size=1, max_size=3)


@st.composite
def calls(draw: Any, id: str) -> ToolCall:
    name = draw(names)
    if draw(st.integers(0, 3)):
        return ToolCall(id, name, draw(objects | st.just([1, "two"]) | st.just(None)))
    return ToolCall(id, name, "{" + draw(texts) + "{")  # no JSON, whatever is in it


@st.composite
def rounds(draw: Any, used: set[str]) -> list[Message]:
    """An assistant message and, if it calls, the results."""
    parts: list[Part] = draw(thoughts)
    fresh = draw(st.lists(ids.filter(lambda id: id not in used), max_size=3, unique=True))
    used.update(fresh)
    made = [draw(calls(id)) for id in fresh]
    parts = [*made, *parts] if draw(st.booleans()) else [*parts, *made]
    if not parts:
        parts = [Text(draw(texts))]
    found = [Message(role="assistant", parts=tuple(parts))]
    if made:
        answers = [
            ToolResult(call.id, tuple(draw(results)), call.name, draw(st.booleans()))
            for call in made
        ]
        found.append(Message(role="tool", parts=tuple(answers)))
    return found


@st.composite
def dialogues(draw: Any) -> list[Message]:
    """Messages in normal form, with everything that a format may not be able to carry."""
    used: set[str] = set()
    found: list[Message] = []
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.integers(0, 3)) == 0:
            extra = draw(st.sampled_from([None, {"role": "developer"}]))
            found.append(Message(role="system", parts=(Text(draw(texts)),), extra=extra))
        for _ in range(draw(st.integers(1, 2))):
            found.append(Message(role="user", parts=tuple(draw(inputs))))
        turn = draw(st.lists(rounds(used), max_size=3))
        for message in (message for one in turn for message in one):
            if message.role == "assistant" and found[-1].role == "assistant":
                found[-1] = replace(found[-1], parts=_joined(found[-1], message))
            else:
                found.append(message)
    found.append(Message(role="user", parts=(Text("and now?"),)))
    return found


def _joined(one: Message, other: Message) -> tuple[Part, ...]:
    return one.parts + other.parts


def boundaries(dialogue: Sequence[Message]) -> list[int]:
    """Where a dialogue may end: not between calls and their results."""
    return [
        n for n in range(1, len(dialogue) + 1) if n == len(dialogue) or dialogue[n].role != "tool"
    ]


# --- reading back ---------------------------------------------------------------------------


def read_all(format: str, written: Sequence[Any]) -> list[Message]:
    """Written messages, read and put into normal form again."""
    found: list[Message] = []
    for body in written:
        for message in messages.read(format, body):
            if found and message.role == found[-1].role and message.role in ("tool", "assistant"):
                found[-1] = replace(found[-1], parts=_joined(found[-1], message))
            elif message.parts:
                found.append(message)
    return found


def squashed(text: str) -> str:
    """A text without white space, placeholders and the prefix of errors."""
    text = re.sub(r"\[[^\]]*\]", "", text)
    return "".join(text.removeprefix("Error:").split())


def said(dialogue: Sequence[Message], role: str) -> list[str]:
    """What was said in a role, by turns of it, without placeholders."""
    turns: list[str] = []
    before = ""
    for message in dialogue:
        text = "".join([part.text for part in message.parts if isinstance(part, Text)])
        if message.role == role:
            turns[len(turns) - (before == role) :] = [(turns[-1] if before == role else "") + text]
        if message.role != "system":
            before = message.role
    return [found for turn in turns if (found := squashed(turn))]


def pairs(dialogue: Sequence[Message]) -> list[tuple[ToolCall, ToolResult]]:
    """Every call with its result."""
    answers = {part.call: part for message in dialogue for part in results_of(message)}
    return [(call, answers[call.id]) for message in dialogue for call in calls_of(message)]


def text_of_result(result: ToolResult) -> str:
    return squashed("".join([part.text for part in result.content if isinstance(part, Text)]))
