"""What messages say, compared across formats: by it a recorder knows what was stored already."""

from __future__ import annotations

import pytest

from clew import messages
from clew.messages.likeness import describe, key, spoken
from clew.messages.neutral import Media, Message, Other, Part, Text, Thinking, ToolCall, ToolResult

CALL = ToolCall(id="c", name="run", given={"a": 1})
RESULT = ToolResult(call="c", content=(Text(text="42"),))
IMAGE = Media(kind="image", mime="image/png", data="aGk=")
DIALOGUE = [
    Message(role="user", parts=(Text(text="Look"), IMAGE)),
    Message(role="assistant", parts=(Text(text="So."), CALL)),
    Message(role="tool", parts=(RESULT,)),
]


def said(found: list[Message]) -> list[str]:
    return [key(message.role, part) for message in found for part in spoken(message)]


@pytest.mark.parametrize("format", messages.FORMATS)
def test_the_same_is_said_in_every_format(format: str) -> None:
    written = messages.write(format, DIALOGUE).messages
    read = [message for body in written for message in messages.read(format, body)]
    assert said(read) == said(DIALOGUE)


def test_thinking_and_blank_texts_are_not_said() -> None:
    parts = (Thinking(text="hm"), Text(text=" \n"), Text(text="x"))
    assert list(spoken(Message(role="assistant", parts=parts))) == [Text(text="x")]


def test_an_id_that_reading_made_makes_no_other_call() -> None:
    made = [ToolCall(id=id, name="run", given={}, made_id=True) for id in ("a", "b")]
    assert key("assistant", made[0]) == key("assistant", made[1])
    given = [ToolCall(id=id, name="run", given={}) for id in ("a", "b")]
    assert key("assistant", given[0]) != key("assistant", given[1])


@pytest.mark.parametrize(
    ("part", "told"),
    [
        (Text(text="x"), "user: x"),
        (CALL, 'user: call of run({"a": 1})'),
        (ToolCall(id="c", name="run", given="{"), 'user: call of run("{")'),
        (RESULT, "user: result: 42"),
        (IMAGE, "user: image"),
        (Other(format="plain", raw={"n": 1}), 'user: {"n": 1}'),
        (Thinking(text="hm", raw={"t": 1}), 'user: {"t": 1}'),
    ],
)
def test_every_part_is_told_to_people_and_is_like_no_other(part: Part, told: str) -> None:
    assert describe("user", part) == told
    others = [one for one in (Text(text="y"), IMAGE, CALL, RESULT) if one != part]
    assert key("user", part) not in {key("user", one) for one in others}
    assert key("user", part) != key("assistant", part)
