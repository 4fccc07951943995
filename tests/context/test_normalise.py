"""The normal form itself: what is sent of a dialogue, in which order, and what is told of the rest.

Given in the neutral view, so that no format's reader or writer hides a mistake.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from clew.context.normalise import (
    BEGINNING,
    CONTINUE,
    INTERRUPTED,
    Builder,
    Dialogue,
    Item,
    normalise,
)
from clew.messages.neutral import (
    Media,
    Message,
    Other,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)


def said(role: Role, *parts: Part | str, entry: str | None = None, **more: Any) -> Item:
    made = tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    return Item(entry, Message(role=role, parts=made), **more)


def call(id: str, name: str = "run", **more: Any) -> ToolCall:
    return ToolCall(id=id, name=name, given={}, **more)


def gave(id: str, text: str = "fine", **more: Any) -> ToolResult:
    return ToolResult(call=id, content=(Text(text=text),), **more)


def shown(dialogue: Dialogue) -> list[tuple[str, ...]]:
    """Each message: its role, then its parts in short."""
    return [(b.message.role, *map(_short, b.message.parts)) for b in dialogue.blocks]


def _short(part: Part) -> str:
    match part:
        case Text(text=text):
            return text
        case ToolCall(id=id):
            return f"call {id}"
        case ToolResult(call=id, content=content):
            return f"{id} gave {''.join(map(_short, content))}"
        case _:
            return type(part).__name__


def told(dialogue: Dialogue) -> list[tuple[str, str | None, str | None]]:
    return [(repair.code, repair.entry, repair.call) for repair in dialogue.repairs]


USER = said("user", "do it", entry="u")


def test_the_user_ends_a_reply_that_waits_for_nothing() -> None:
    """Not even a reply of the same turn that goes on under the same id swallows what was said."""
    turn = {"turn": "t", "reply": "r"}
    items = [
        said("assistant", call("c1"), **turn),
        said("tool", gave("c1"), turn="t"),
        said("user", "and?", turn="t"),
        said("assistant", "one", **turn),
        said("user", "and then?", turn="t"),
        said("assistant", "two", **turn),
    ]
    assert shown(normalise([USER, *items], "plain"))[1:] == [
        ("assistant", "call c1"),
        ("tool", "c1 gave fine"),
        ("user", "and?"),
        ("assistant", "one"),
        ("user", "and then?"),
        ("assistant", "two"),
    ]
    first = [said("assistant", "one", **turn), said("user", "?"), said("assistant", "two", **turn)]
    assert len(normalise([USER, *first], "plain").blocks) == 4


def test_what_a_turn_says_waits_behind_its_calls_until_the_last_has_its_result() -> None:
    items = [
        said("assistant", call("c1"), call("c2"), turn="t"),
        said("tool", gave("c2", "two"), turn="t"),
        said("user", "hurry", turn="t"),
        said("tool", gave("c1", "one"), turn="t"),
    ]
    dialogue = normalise([USER, *items], "plain")
    assert shown(dialogue)[2:] == [("tool", "c1 gave one", "c2 gave two"), ("user", "hurry")]
    assert (dialogue.next, dialogue.repairs) == ("model", [])
    half = normalise([USER, *items[:3]], "plain")
    assert (half.next, [waiting.id for waiting in half.calls]) == ("tools", ["c1"])
    of_another = normalise([USER, items[0], items[1], said("user", "stop", turn="t2")], "plain")
    assert shown(of_another)[2] == ("tool", f"c1 gave {INTERRUPTED}", "c2 gave two")
    assert (of_another.next, of_another.calls) == ("model", ())


def test_a_result_inside_the_reply_that_made_its_call_answers_it() -> None:
    """Some formats keep what a tool of the provider gave beside the call."""
    reply = said("assistant", "I look.", call("c1"), gave("c1"), "Done.", entry="a")
    dialogue = normalise([USER, reply], "plain")
    assert shown(dialogue)[1:] == [
        ("assistant", "I look.", "call c1", "Done."),
        ("tool", "c1 gave fine"),
    ]
    assert (told(dialogue), dialogue.calls) == ([], ())
    assert dialogue.blocks[-1].entries == ("a",)


def test_an_id_that_was_used_before_becomes_one_that_no_other_call_has() -> None:
    ids = ["c1", "c1-2", "c1", "c1", "c1-3"]
    items = [said("assistant", call(id, name=f"n{n}"), step=n) for n, id in enumerate(ids)]
    dialogue = normalise([USER, *items], "plain")
    sent = [p.id for b in dialogue.blocks for p in b.message.parts if isinstance(p, ToolCall)]
    assert sent == ["c1", "c1-2", "c1-3", "c1-4", "c1-3-2"]
    answered = [p.call for b in dialogue.blocks for p in b.message.parts if type(p) is ToolResult]
    assert answered == sent
    assert [code for code, _, _ in told(dialogue)].count("id_changed") == 3


@given(st.lists(st.sampled_from(["c", "c-2", "c-3", "c-2-2", "d"]), max_size=8))
def test_no_two_calls_are_sent_with_one_id_and_each_has_its_own_result(ids: list[str]) -> None:
    items = []
    for n, id in enumerate(ids):
        items += [said("assistant", call(id, name=f"n{n}"), step=n), said("tool", gave(id, f"{n}"))]
    dialogue = normalise([USER, *items], "plain")
    parts = [part for block in dialogue.blocks for part in block.message.parts]
    called = [part for part in parts if isinstance(part, ToolCall)]
    assert [part.name for part in called] == [f"n{n}" for n in range(len(ids))]
    assert len({part.id for part in called}) == len(ids)
    results = {part.call: part for part in parts if isinstance(part, ToolResult)}
    assert [_short(results[part.id].content[0]) for part in called] == [
        str(n) for n in range(len(ids))
    ]
    assert "interrupted_call" not in {code for code, _, _ in told(dialogue)}


def test_a_call_that_was_written_twice_is_told_from_two_calls_with_one_id() -> None:
    one, other = call("c1", raw={"n": 1}), call("c1", raw={"n": 2})
    twice = normalise([USER, said("assistant", one, one)], "plain")
    assert shown(twice)[1] == ("assistant", "call c1")
    assert ("duplicate_call", None, "c1") in told(twice)
    two = normalise([USER, said("assistant", one, other)], "plain")
    assert shown(two)[1] == ("assistant", "call c1", "call c1-2")
    # The second time it came, it had been given another id: only its block says that it is itself.
    again = [said("assistant", one), said("assistant", other, other, step=1)]
    assert shown(normalise([USER, *again], "plain"))[3] == ("assistant", "call c1-2")
    without = [said("assistant", call("c1", name="a"), call("c1", name="b"))]
    assert shown(normalise([USER, *without], "plain"))[1] == ("assistant", "call c1", "call c1-2")


def test_a_call_is_answered_by_the_first_of_the_results_that_stood_before_it() -> None:
    early = [gave("c1", "first"), gave("c2", "another"), gave("c1", "second")]
    dialogue = normalise([said("user", "do it", *early), said("assistant", call("c1"))], "plain")
    assert shown(dialogue)[-1] == ("tool", "c1 gave first")
    assert sorted(told(dialogue)) == [
        ("orphan_result", None, "c1"),
        ("orphan_result", None, "c2"),
        ("result_moved", None, "c1"),
    ]


@pytest.mark.parametrize(
    ("target", "part", "code"),
    [
        ("anthropic", Thinking(text="hm", signature="s", format="anthropic"), None),
        ("anthropic", Thinking(text="", signature="s", format="anthropic"), None),
        ("anthropic", Thinking(text="hm", format="anthropic"), "thinking_dropped"),
        ("converse", Thinking(text="hm", format="converse"), "thinking_dropped"),
        ("anthropic", Thinking(text="hm", signature="s", format="gemini"), "thinking_dropped"),
        ("openai-responses", Thinking(text="hm", format="openai-responses"), None),
        ("openai-responses", Thinking(text="", format="openai-responses"), "thinking_dropped"),
        ("plain", Thinking(text="hm", signature="s", format="gemini"), None),
        ("plain", Thinking(text="", format="gemini"), "thinking_dropped"),
        ("anthropic", Other(format="anthropic", raw={"type": "x"}), None),
        ("anthropic", Other(format="gemini", raw={"type": "x"}), "block_dropped"),
        ("anthropic", Media(kind="image", url="https://x.test/a.png", format="gemini"), None),
    ],
)
def test_what_a_provider_would_refuse_is_left_out_and_told_of(
    target: str, part: Part, code: str | None
) -> None:
    reply = said("assistant", part, "so", entry="a")
    dialogue = normalise([USER, reply, said("user", "go on")], target)
    kept = () if code else (type(part).__name__,)
    assert shown(dialogue)[1] == ("assistant", *kept, "so")
    assert told(dialogue) == ([(code, "a", None)] if code else [])
    of_user = normalise([said("user", part, "so", entry="a")], target)
    assert shown(of_user)[0] == ("user", *kept, "so")
    assert told(of_user) == ([(code, "a", None)] if code else [])


def test_a_call_that_is_not_the_assistants_is_left_out_and_told_of() -> None:
    dialogue = normalise([said("user", "do it", call("c1"), entry="u")], "plain")
    assert (shown(dialogue), told(dialogue)) == ([("user", "do it")], [("call_dropped", "u", "c1")])


@pytest.mark.parametrize("role", ["user", "assistant", "tool", "system"])
def test_blank_text_is_not_sent_and_a_message_of_nothing_else_is_told_of(role: Role) -> None:
    some = normalise([USER, said(role, "", "words", " \n"), said("user", "go on")], "plain")
    assert [parts for _, *parts in shown(some)] == [["do it"], ["words"], ["go on"]]
    assert told(some) == []
    for nothing in ([], ["", " \n"]):
        none = normalise([USER, said(role, *nothing, entry="e")], "plain")
        assert (shown(none), told(none)) == ([("user", "do it")], [("empty", "e", None)])


def test_what_a_tool_message_says_beside_its_results_are_words_of_the_user() -> None:
    items = [said("assistant", call("c1")), said("tool", gave("c1"), "by the way")]
    dialogue = normalise([USER, *items], "plain")
    assert shown(dialogue)[2:] == [("tool", "c1 gave fine"), ("user", "by the way")]


@pytest.mark.parametrize("is_error", [True, False])
def test_a_late_result_says_whether_it_is_an_error_and_brings_what_is_not_blank(
    is_error: bool,
) -> None:
    image = Media(kind="image", url="https://x.test/a.png")
    content = (Text(text=" "), Text(text="it broke"), image)
    late = ToolResult(call="c1", content=content, is_error=is_error)
    items = [said("assistant", call("c1")), said("user", "never mind"), said("tool", late)]
    dialogue = normalise([USER, *items], "plain")
    kind = "error" if is_error else "result"
    assert shown(dialogue)[-1] == ("user", f"[late {kind} of call c1 of run]", "it broke", "Media")


THOUGHT = Thinking(text="hm", signature="s", format="gemini")


@pytest.mark.parametrize(
    ("target", "parts", "kept"),
    [
        ("gemini", ("so", THOUGHT), ["so", "Thinking"]),  # it signs the text before it
        ("gemini", (THOUGHT, THOUGHT), None),
        ("gemini", (THOUGHT, "so"), ["Thinking", "so"]),
        ("anthropic", ("so", THOUGHT, THOUGHT), ["so"]),
        ("anthropic", (THOUGHT, THOUGHT), None),
        ("anthropic", (THOUGHT, "so"), ["Thinking", "so"]),
        ("plain", ("so", THOUGHT), ["so", "Thinking"]),
        ("plain", (THOUGHT,), ["Thinking"]),
    ],
)
def test_thinking_that_led_to_nothing_is_cut_from_the_end_alone(
    target: str, parts: tuple[Part | str, ...], kept: list[str] | None
) -> None:
    own = [
        Thinking(text="hm", signature="s", format=target) if part is THOUGHT else part
        for part in parts
    ]
    dialogue = normalise([USER, said("assistant", *own, entry="a")], target, to_be_sent=False)
    assert shown(dialogue)[1:] == ([] if kept is None else [("assistant", *kept)])
    dropped = len(parts) - len(kept or [])
    assert told(dialogue) == [("thinking_dropped", "a", None)] * dropped


@pytest.mark.parametrize(("target", "name"), [("gemini", "run"), ("anthropic", None)])
def test_a_result_gets_the_name_of_its_tool_where_the_provider_asks_for_it(
    target: str, name: str | None
) -> None:
    reply = said("assistant", call("c1"), call("c2"))
    answer = said("tool", gave("c1"), gave("c2", name="own"))
    results = normalise([USER, reply, answer], target).blocks[-1].message.parts
    assert [part.name for part in results if isinstance(part, ToolResult)] == [name, "own"]


@pytest.mark.parametrize("target", ["anthropic", "openai-chat"])
def test_a_dialogue_that_the_assistant_begins_or_ends_is_made_whole_and_told_of(
    target: str,
) -> None:
    dialogue = normalise([said("system", "be kind"), said("assistant", "hello", entry="a")], target)
    made = target == "anthropic"
    assert shown(dialogue) == [
        ("system", "be kind"),
        *([("user", BEGINNING)] * made),
        ("assistant", "hello"),
        *([("user", CONTINUE)] * made),
    ]
    assert told(dialogue) == [("user_added", "a", None)] * 2 * made
    assert dialogue.next == "user"
    unsent = normalise([USER, said("assistant", "hello")], target, to_be_sent=False)
    assert shown(unsent) == [("user", "do it"), ("assistant", "hello")]


def test_the_model_goes_on_with_a_reply_that_was_broken_off_and_with_no_other() -> None:
    whole, part = said("assistant", "I"), said("assistant", "I", is_partial=True)
    assert normalise([USER, whole], "plain").next == "user"
    assert normalise([USER, part], "plain").next == "model"
    assert normalise([USER, part, said("assistant", "am", step=1)], "plain").next == "user"
    assert normalise([], "plain").next == "user"
    assert normalise([USER], "plain").next == "model"


def test_what_is_settled_stays_as_it_is_whatever_comes() -> None:
    """A prompt cache hits only while a request begins with the one before it."""
    items = [
        USER,
        said("assistant", call("c1"), turn="t"),
        said("user", "hurry", turn="t"),
        said("tool", gave("c1"), turn="t"),
        said("assistant", "done", call("c2")),
        said("user", "stop"),
        said("tool", gave("c2")),
        said("assistant", "well"),
    ]
    builder, before = Builder("anthropic"), []
    for n, item in enumerate(items):
        builder.take([item])
        finished = builder.branch().finish(to_be_sent=True)
        assert shown(finished) == shown(normalise(items[: n + 1], "anthropic"))
        assert told(finished) == told(normalise(items[: n + 1], "anthropic"))
        assert shown(finished)[: len(before)] == before
        before = shown(finished)[: builder.settled]
    assert builder.settled == 8, "all but the last reply"
