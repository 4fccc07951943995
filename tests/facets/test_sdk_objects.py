"""Messages of the SDKs: objects go in, what they would send is stored, once."""

from __future__ import annotations

from typing import Any

import pytest

from clew import InvalidInput
from clew.facets.conversations import Conversations
from clew.facets.runs import Checkpoint, Runs
from clew.facets.sessions import Sessions
from clew.store import Store


class Block:
    """An object as the SDKs of Anthropic and OpenAI return it."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def model_dump(self, **options: Any) -> dict[str, Any]:
        return dict(self.fields)

    def to_dict(self) -> dict[str, Any]:
        return dict(self.fields)


def answer(text: str) -> dict[str, Any]:
    """A response as it is usually sent back: a dict that holds objects."""
    return {"role": "assistant", "content": [Block(type="text", text=text)]}


def stored(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def test_a_conversation_takes_objects(store: Store) -> None:
    conversation = Conversations(store).get("k")
    conversation.add_message(answer("a"))
    conversation.add_message(Block(role="assistant", content="b"))
    conversation.add("assistant", [Block(type="text", text="c")], format="anthropic")
    assert conversation.history() == [
        stored("a"),
        {"role": "assistant", "content": "b"},
        stored("c"),
    ]
    conversation.set_history([answer("d")])
    assert conversation.history() == [stored("d")]


def test_a_run_writes_objects_once(store: Store) -> None:
    for runs in (Runs(store), Runs(store)):
        for count in (1, 2, 3):
            messages = [answer(str(n)) for n in range(count)]
            runs.save(Checkpoint(run_id="r", messages=messages))
            assert runs.load("r").messages == [stored(str(n)) for n in range(count)]
    kinds = [getattr(record, "kind", None) for record in store.get("run:r").read()]
    assert kinds.count("assistant_message") == 5, "3, and 2 after the second began with one"


def test_an_object_that_changes_is_noticed(store: Store) -> None:
    runs, block = Runs(store), Block(type="text", text="a")
    checkpoint = Checkpoint(run_id="r", messages=[{"role": "assistant", "content": [block]}])
    runs.save(checkpoint)
    block.fields["text"] = "b"
    runs.save(checkpoint)
    assert runs.load("r").messages == [stored("b")]


def test_a_session_takes_objects(store: Store) -> None:
    sessions = Sessions(store)
    session = sessions.new(id="s")
    session.messages.append({"role": "user", "content": "hello"})
    session.messages.append(answer("a"))
    sessions.save(session)
    sessions.append_message(session, answer("b"))
    assert session.messages[-1] == stored("b")
    sessions.append_message("s", answer("c"))
    sessions.save(session)
    assert sessions.load("s").messages[1:] == [stored("a"), stored("b"), stored("c")]
    sessions.append_checkpoint("s", [answer("summary")], 1)
    assert sessions.load("s").messages == [stored("summary")]


@pytest.mark.parametrize("thing", [object(), Block, {"role": "user", "content": [object()]}])
def test_what_is_no_message_is_refused(store: Store, thing: Any) -> None:
    with pytest.raises(InvalidInput):
        Conversations(store).get("k").add_message(thing)
    with pytest.raises(InvalidInput):
        Runs(store).save(Checkpoint(run_id="r", messages=[thing]))
    assert Conversations(store).get("k").history() == []
    assert not Runs(store).has("r")


def test_items_without_a_role_are_known_by_what_they_are(store: Store) -> None:
    items = [
        {"type": "function_call", "call_id": "c", "name": "read", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "fine"},
        {"type": "reasoning", "id": "r", "summary": []},
    ]
    conversation = Conversations(store).get("k")
    conversation.add("user", "go")
    for item in items[:2]:
        conversation.add_message(item)
        conversation.add_message(item, format="openai-responses")
    kinds = [entry.kind for entry in conversation.entries()]
    assert kinds == ["user_message", "tool_call", "tool_call", "tool_result", "tool_result"]
    conversation.set_history(items)
    conversation.truncate(2)
    assert conversation.history() == items, "the result keeps its call"


def test_contents_of_gemini_keep_their_pairs(store: Store) -> None:
    conversation = Conversations(store).get("k")
    history = [
        {"role": "user", "parts": [{"text": "go"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "read", "args": {}}}]},
        {
            "role": "user",
            "parts": [{"functionResponse": {"name": "read", "response": {"ok": True}}}],
        },
    ]
    conversation.set_history(history)
    conversation.truncate(1)
    assert conversation.history() == history[1:]
