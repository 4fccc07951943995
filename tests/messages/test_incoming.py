"""One door for messages: the same entry, or the same error, whichever way a message comes in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from messages.message_strategies import dialogues

import clew
from clew import InvalidInput, messages
from clew.core.model import Entry
from clew.facets.runs import Checkpoint
from clew.messages.incoming import kind_for, message_draft, message_drafts, result_body
from clew.messages.neutral import Text
from clew.store import Store

Door = Callable[[Store, list[Any], str | None], list[Entry]]


def through_thread(store: Store, bodies: list[Any], format: str | None) -> list[Entry]:
    thread = store.create()
    return [thread.append_message(body, format=format) for body in bodies]


def through_turn(store: Store, bodies: list[Any], format: str | None) -> list[Entry]:
    with store.create().turn(owner="me") as turn:
        return [turn.append_message(body, format=format) for body in bodies]


def through_conversation(store: Store, bodies: list[Any], format: str | None) -> list[Entry]:
    conversation = store.conversations.get("k")
    for body in bodies:
        conversation.add_message(body, format=format)
    return conversation.entries()


def through_history(store: Store, bodies: list[Any], format: str | None) -> list[Entry]:
    conversation = store.conversations.get("k")
    conversation.set_history(bodies, format=format)
    return conversation.entries()


def through_run(store: Store, bodies: list[Any], format: str | None) -> list[Entry]:
    store.runs.save(Checkpoint(run_id="r", messages=bodies), format=format)
    return store.get("run:r").path()


def through_session(store: Store, bodies: list[Any], format: str | None) -> list[Entry]:
    session = store.sessions.new(id="s")
    store.sessions.append_message(session, {"role": "user", "content": "hello"})
    for body in bodies:
        store.sessions.append_message(session, body, format=format)
    return store.sessions.thread("s").path()[1:]


def through_document(store: Store, bodies: list[Any], format: str | None) -> list[Entry]:
    session = store.sessions.new(id="s")
    store.sessions.append_message(session, {"role": "user", "content": "hello"})
    session.messages += bodies
    store.sessions.save(session, format=format)
    return store.sessions.thread("s").path()[1:]


DOORS: list[Door] = [
    through_thread,
    through_turn,
    through_conversation,
    through_history,
    through_run,
    through_session,
    through_document,
]
doors = pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)


def let_in(door: Door, body: Any, format: str | None = None) -> Entry:
    with clew.open("memory:") as store:
        return door(store, [body], format)[0]


class Block:
    """An object as the SDKs of Anthropic and OpenAI return it."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def model_dump(self, **options: Any) -> dict[str, Any]:
        return dict(self.fields)

    def to_dict(self) -> dict[str, Any]:
        return dict(self.fields)


CALL = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1},
}
CALLING = {"choices": [{"message": {"role": "assistant", "content": None, "tool_calls": [CALL]}}]}
ITEM = {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "fine"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]}


# --- every door gives the same entry ---


@settings(max_examples=25)
@given(dialogue=dialogues(), format=st.sampled_from(messages.FORMATS))
def test_the_same_message_has_the_same_kind_at_every_door(dialogue: Any, format: str) -> None:
    bodies = messages.write(format, dialogue).messages
    kinds = [kind_for(body, format) for body in bodies]
    assert set(kinds) <= {
        "user_message",
        "assistant_message",
        "tool_call",
        "tool_result",
        "system_message",
    }
    assert [kind_for(body) for body in bodies] == kinds, "it does not depend on being told"
    for door in DOORS:
        for named in (format, None):
            with clew.open("memory:") as store:
                entries = door(store, bodies, named)
            assert [entry.kind for entry in entries] == kinds
            assert [entry.body for entry in entries] == bodies
            assert {entry.format for entry in entries} == {named}


@doors
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize(
    ("body", "format", "kind"),
    [
        (COMPLETION, "openai-chat", "assistant_message"),
        (CALLING, "openai-chat", "tool_call"),
        ({"role": "assistant", "function_call": CALL["function"]}, "openai-chat", "tool_call"),
        (ITEM, "openai-responses", "tool_call"),
        (REASONING, "openai-responses", "assistant_message"),
        (SEARCH, "openai-responses", "assistant_message"),
        (SAID, "openai-responses", "assistant_message"),
        ([REASONING, ITEM], "openai-responses", "tool_call"),
        ([REASONING, SAID], "openai-responses", "assistant_message"),
        ({"object": "response", "output": [REASONING, ITEM]}, "openai-responses", "tool_call"),
        (
            {"candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}}]},
            "gemini",
            "assistant_message",
        ),
        (
            {
                "role": "model",
                "parts": [{"thoughtSignature": "s", "functionCall": {"name": "read", "args": {}}}],
            },
            "gemini",
            "tool_call",
        ),
    ],
)
def test_what_a_provider_gives_is_taken(
    door: Door, body: Any, format: str, kind: str, named: bool
) -> None:
    entry = let_in(door, body, format if named else None)
    assert (entry.kind, entry.body) == (kind, body)


@doors
@pytest.mark.parametrize("format", [None, "anthropic"])
def test_objects_of_an_sdk_inside_of_a_dict_become_json(door: Door, format: str | None) -> None:
    blocks = [Block(type="text", text="a"), Block(type="tool_use", id="t", name="n", input={})]
    entry = let_in(door, {"role": "assistant", "content": blocks}, format)
    assert entry.body["content"] == [block.fields for block in blocks]
    assert entry.kind == "tool_call"


@doors
def test_objects_of_an_sdk_may_stand_beside_the_content(door: Door) -> None:
    entry = let_in(door, {"role": "assistant", "content": "a", "usage": Block(output_tokens=1)})
    assert entry.body["usage"] == {"output_tokens": 1}


@doors
def test_a_whole_response_object_is_taken(door: Door) -> None:
    entry = let_in(door, Block(**COMPLETION), "openai-chat")
    assert (entry.kind, entry.body) == ("assistant_message", COMPLETION)
    (message,) = messages.view(entry.format, entry.body)
    assert message.usage is not None
    assert message.model == "m"


@doors
def test_what_a_response_gave_is_one_entry(door: Door) -> None:
    items = [Block(**REASONING), Block(**ITEM)]
    entry = let_in(door, items, "openai-responses")
    assert (entry.kind, entry.body) == ("tool_call", [REASONING, ITEM])


@doors
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"role": "narrator", "content": "once"}, "custom"),
        ({"role": "model", "content": "hi"}, "assistant_message"),
        ({"role": "tool", "content": "no id"}, "tool_result"),
        ({"role": "user", "content": [{"no": "type"}]}, "user_message"),
        ({"role": "assistant", "content": [{"type": "tool_use"}]}, "tool_call"),
        ({"role": "assistant", "tool_calls": [5]}, "tool_call"),
        ({"role": "user", "content": [{"type": "tool_result"}]}, "tool_result"),
    ],
)
def test_without_a_format_what_no_reader_knows_is_kept(door: Door, body: Any, kind: str) -> None:
    entry = let_in(door, body)
    assert (entry.kind, entry.body) == (kind, body)


def test_a_context_is_made_of_what_came_in(store: Store) -> None:
    thread = store.create()
    thread.append_message({"role": "user", "content": "go"})
    thread.append_message([REASONING, ITEM], format="openai-responses")
    thread.append_message(OUTPUT, format="openai-responses")
    thread.append_message(COMPLETION, format="openai-chat")
    context = thread.context("openai-chat")
    assert [message["role"] for message in context.messages] == [
        *("user", "assistant", "tool", "assistant")
    ]
    assert context.messages[-1]["content"] == "hi"


# --- every door refuses the same, with the place ---


def refusal(door: Door, body: Any, format: str | None) -> tuple[str, str | None]:
    with pytest.raises(InvalidInput) as caught:
        let_in(door, body, format)
    path = caught.value.path
    # A list of messages says where in it the message stands: after the greeting, in a session.
    for index in ("$[0]", "$[1]"):
        path = path and ("$" + path.removeprefix(index) if path.startswith(index) else path)
    return caught.value.fields["reason"], path


@pytest.mark.parametrize("format", [None, *messages.FORMATS])
@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"role": "user", "content": 5}, "$.content"),
        ({"role": "assistant", "content": {"type": "text", "text": "x"}}, "$.content"),
        ({"role": "user", "content": [5]}, "$.content[0]"),
        ({"role": "user", "content": ["fine", None]}, "$.content[1]"),
        ({"role": "user", "content": [{"type": "text", "text": object()}]}, "$.content[0].text"),
        ({"role": "user", "content": [Block]}, "$.content[0]"),
    ],
)
def test_content_that_is_none_is_refused_with_its_place(
    body: Any, where: str, format: str | None
) -> None:
    said = {refusal(door, body, format) for door in DOORS}
    assert {path for _, path in said} == {where}
    assert len(said) == 1, "one mistake, one error"


@pytest.mark.parametrize(
    "body",
    [
        {"content": "no role"},
        {"role": None, "content": "x"},
        {"role": "", "content": "x"},
        {"role": 5, "content": "x"},
        {"type": "function_call", "call_id": "c"},
        {"type": "function_call"},
        {"choices": []},
        "hello",
        5,
        None,
        [],
        ["hello"],
        [{"role": "user", "content": "a list, but not of items"}],
        object(),
        Block,
    ],
)
def test_what_is_no_message_is_refused_at_every_door(body: Any) -> None:
    assert len({refusal(door, body, None) for door in DOORS}) == 1


@doors
@pytest.mark.parametrize("format", messages.FORMATS)
def test_with_a_format_it_must_be_a_message_of_that_format(door: Door, format: str) -> None:
    refusal(door, {"role": "narrator", "content": "once"}, format)
    refusal(door, [], format)


@doors
def test_a_format_that_is_not_known_is_refused(door: Door) -> None:
    with pytest.raises(InvalidInput, match="is not one of") as caught:
        let_in(door, {"role": "user", "content": "x"}, "telegraph")
    assert caught.value.field == "format"


@doors
def test_a_message_that_holds_itself_is_refused(door: Door) -> None:
    body: dict[str, Any] = {"role": "user", "content": "x"}
    body["self"] = [body]
    with pytest.raises(InvalidInput):
        let_in(door, body)


def test_what_an_sdks_object_says_wrongly_is_refused_as_well() -> None:
    class Made:
        def to_dict(self) -> dict[str, Any]:
            return {"role": "nobody", "content": [{"type": "image", "source": 7}]}

    with pytest.raises(InvalidInput) as caught:
        message_draft(Made(), "anthropic")
    assert caught.value.path == "$.role"


def test_what_a_tool_gave_under_the_name_content_is_not_taken_for_mcps() -> None:
    block = {"type": "text", "text": "x"}
    (named,) = messages.read("plain", result_body("c", "f", {"content": [block], "title": "t"}))
    (bare,) = messages.read("plain", result_body("c", "f", {"content": [block], "isError": False}))
    said = [part.content[0] for one in (named, bare) for part in one.parts if part.content]  # type: ignore[union-attr]
    whole = '{"content":[{"type":"text","text":"x"}],"title":"t"}'
    assert [part.text for part in said if isinstance(part, Text)] == [whole, "x"]


def test_the_place_in_a_list_is_named() -> None:
    with pytest.raises(InvalidInput) as caught:
        message_drafts([{"role": "user", "content": 5}], start=7)
    assert (caught.value.field, caught.value.path) == ("messages", "$[7].content")


# --- results and the calls that they answer ---

ANSWER = {"role": "tool", "tool_call_id": "c", "content": "fine"}
ASKED = {"role": "assistant", "content": None, "tool_calls": [CALL]}


def test_a_result_of_a_known_format_must_answer_a_call() -> None:
    asked: list[frozenset[str]] = []

    def unknown(calls: frozenset[str]) -> frozenset[str]:
        asked.append(calls)
        return calls

    with pytest.raises(InvalidInput, match="call 'c', which is not in the thread"):
        message_draft(ANSWER, "openai-chat", unknown_calls=unknown)
    message_draft(ASKED, "openai-chat", unknown_calls=unknown)
    message_draft(ANSWER, unknown_calls=unknown)
    assert asked == [frozenset("c")], "only results are asked about, and only with a format"


def test_a_result_is_looked_for_on_the_path_that_it_goes_to(store: Store) -> None:
    thread = store.create()
    root = thread.append_message({"role": "user", "content": "go"})
    call = thread.append_message(ASKED, format="openai-chat")
    thread.move(root.id)
    with pytest.raises(InvalidInput, match="not in the thread"):
        thread.append_message(ANSWER, format="openai-chat")
    assert thread.append_message(ANSWER, format="openai-chat", parent=call.id).parent == call.id
    with pytest.raises(InvalidInput, match="not in the thread"):
        thread.append_message(ANSWER, format="openai-chat", parent=root.id)


def test_a_call_far_back_is_found(store: Store) -> None:
    thread = store.create()
    thread.append_message(ASKED)
    thread.append([clew.draft("event", {"n": n}) for n in range(40)])
    thread.append_message(ANSWER, format="openai-chat")


# --- what needs no reader ---

_odd = st.sampled_from([None, "", "x", 1, [], {}, ["x"], [{}], [{"type": "text", "text": "x"}]])
_calls = st.lists(
    st.sampled_from(
        [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "not JSON"}},
            {"id": "c", "function": None},
            {"id": "c", "custom": {"name": "f", "input": "x"}},
            {"id": "c", "name": "f", "arguments": {}},
            {},
            "x",
        ]
    ),
    max_size=2,
)
_bodies = st.fixed_dictionaries(
    {
        "role": st.sampled_from(
            ["user", "assistant", "model", "tool", "system", "else", "", 1, None]
        )
    },
    optional={"content": _odd, "tool_call_id": _odd, "tool_calls": _calls | _odd, "name": _odd},
)


@given(_bodies)
def test_the_kind_is_the_readers_also_where_it_is_not_asked(body: dict[str, Any]) -> None:
    try:
        expected = kind_for(body)
    except InvalidInput:
        with pytest.raises(InvalidInput):
            message_draft(body)
        return
    assert message_draft(body).kind == expected
