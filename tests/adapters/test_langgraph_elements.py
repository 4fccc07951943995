"""Values by element: what a changed list costs, and that it comes back as it was."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="langgraph is not installed")

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint

import clew
from clew.adapters.langgraph import ClewSaver

CONFIG: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


class Chain:
    """Checkpoints of one channel, each the child of the one before."""

    def __init__(self, saver: ClewSaver, channel: str = "messages") -> None:
        self.saver = saver
        self.channel = channel
        self.config = CONFIG
        self.version = 0

    def put(self, value: Any) -> Any:
        self.version += 1
        checkpoint = empty_checkpoint()
        checkpoint["channel_values"] = {self.channel: value}
        checkpoint["channel_versions"] = {self.channel: self.version}
        metadata: Any = {"source": "loop", "step": self.version}
        versions = {self.channel: self.version}
        self.config = self.saver.put(self.config, checkpoint, metadata, versions)
        return self.config


def value_of(saver: ClewSaver, config: Any = CONFIG, channel: str = "messages") -> Any:
    found = saver.get_tuple(config)
    assert found is not None
    return found.checkpoint["channel_values"][channel]


def talk(count: int, first: int = 0) -> list[BaseMessage]:
    kinds = (HumanMessage, AIMessage)
    return [kinds[n % 2](f"message {n} " + "x" * 2000, id=f"m{n}") for n in range(first, count)]


def stored_bytes(store: clew.Store, thread: str, after: int) -> int:
    return sum(
        len(record.data)
        for record in store.get(thread).read(after=after)
        if isinstance(record, clew.Entry)
    )


def texts(store: clew.Store, thread: str = "t") -> list[str]:
    """What the thread says, as another provider would be told."""
    found = []
    for message in store.get(thread).context("plain").messages:
        content = message["content"]
        found += [content] if isinstance(content, str) else [block["text"] for block in content]
    return [text for text in found if not text.startswith("[")]


CHANGES: dict[str, Callable[[list[BaseMessage]], list[BaseMessage]]] = {
    "one more": lambda old: [*old, HumanMessage("new", id="new")],
    "the last replaced": lambda old: [*old[:-1], AIMessage("new", id=old[-1].id)],
    "one in the middle replaced": lambda old: [*old[:9], AIMessage("new", id="m9"), *old[10:]],
    "one in the middle removed": lambda old: [*old[:9], *old[10:]],
    "the oldest removed": lambda old: old[1:],
    "two apart changed": lambda old: [*old[1:9], AIMessage("new", id="m9"), *old[10:]],
    "all but two summed up": lambda old: [HumanMessage("summary", id="sum"), *old[-2:]],
    "all removed": lambda old: [],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_list_costs_the_change_alone(store: clew.Store, change: str) -> None:
    saver = ClewSaver(store)
    chain = Chain(saver)
    old = talk(20)
    chain.put(old)
    before = store.get("t").info.seq

    new = CHANGES[change](old)
    chain.put(new)

    assert stored_bytes(store, "t", before) < 3000  # and not 20 messages of 2 KB
    assert value_of(saver) == new
    assert value_of(ClewSaver(store)) == new
    assert texts(store) == [message.content for message in new]


@pytest.mark.parametrize("change", CHANGES)
def test_a_process_that_knows_nothing_by_heart_goes_on_as_cheaply(
    store: clew.Store, change: str
) -> None:
    chain = Chain(ClewSaver(store))
    chain.put(talk(20))
    before = store.get("t").info.seq
    chain.saver = ClewSaver(store)

    new = CHANGES[change](value_of(chain.saver))
    chain.put(new)

    assert stored_bytes(store, "t", before) < 3000
    assert value_of(ClewSaver(store)) == new


def test_more_messages_in_the_middle_than_went_are_told_in_order(store: clew.Store) -> None:
    chain = Chain(ClewSaver(store))
    old = talk(6)
    chain.put(old)
    new = [*old[:2], HumanMessage("a", id="a"), AIMessage("b", id="b"), *old[2:]]
    chain.put(new)
    assert value_of(chain.saver) == value_of(ClewSaver(store)) == new
    assert texts(store) == [message.content for message in new]


def test_a_message_that_is_changed_in_place_is_noticed(store: clew.Store) -> None:
    chain = Chain(ClewSaver(store))
    messages = [HumanMessage("a", id="1"), AIMessage("b", id="2", additional_kwargs={"deep": [1]})]
    chain.put(messages)
    messages[0].content = "changed"
    messages[1].additional_kwargs["deep"].append(2)
    chain.put([*messages])
    assert value_of(chain.saver) == value_of(ClewSaver(store)) == messages
    assert messages[1].additional_kwargs == {"deep": [1, 2]}


def test_what_a_reader_changes_does_not_reach_the_next_one(store: clew.Store) -> None:
    chain = Chain(ClewSaver(store))
    chain.put([HumanMessage("a", id="1")])
    for _ in range(3):
        first = value_of(chain.saver)[0]
        assert first.content == "a"
        assert first.additional_kwargs == {}
        first.content = "mine"
        first.additional_kwargs["mine"] = True


def test_random_changes_come_back_as_they_were(store: clew.Store) -> None:
    chance = random.Random(7)
    warm = ClewSaver(store)
    chain = Chain(warm)
    messages: list[BaseMessage] = []
    kept: list[tuple[Any, list[Any]]] = []
    for number in range(120):
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(messages) + 1)
            match chance.choice(("more", "more", "insert", "replace", "remove", "cut", "move")):
                case "more":
                    messages = [*messages, HumanMessage(f"{number} {chance.random()}")]
                case "insert":
                    messages = [*messages[:place], AIMessage(f"in {number}"), *messages[place:]]
                case "replace":
                    messages = [
                        *messages[:place],
                        AIMessage(f"for {number}"),
                        *messages[place + 1 :],
                    ]
                case "remove":
                    messages = [*messages[:place], *messages[place + 1 :]]
                case "cut":
                    messages = messages[chance.randrange(3) :]
                case "move" if messages:
                    messages = [messages[-1], *messages[:-1]]
        config = chain.put(messages)
        kept.append((config, [message.content for message in messages]))
        assert texts(store) == kept[-1][1]
        if number % 40 == 20:  # time travel: the next checkpoint is a child of an older one
            chain.config, before = kept[number // 2]
            messages = value_of(warm, chain.config)
            assert [message.content for message in messages] == before
    cold = ClewSaver(store)
    for config, expected in kept:
        assert [message.content for message in value_of(cold, config)] == expected
        assert [message.content for message in value_of(warm, config)] == expected
    assert store.verify() == []


def test_lists_and_dicts_of_other_things_are_stored_by_element_too(store: clew.Store) -> None:
    files = {f"file{n}.py": "x" * 1000 for n in range(50)}
    chain = Chain(ClewSaver(store), "files")
    chain.put(files)
    before = store.get("t").info.seq
    files = {**files, "file7.py": "changed", "new.py": "y"}
    del files["file9.py"]
    chain.put(files)
    assert stored_bytes(store, "t", before) < 2500
    for saver in (chain.saver, ClewSaver(store)):
        found = value_of(saver, channel="files")
        assert found == files
        assert list(found) == list(files)
    assert store.get("t").context("plain").messages == []


def test_a_list_in_a_hundred_pieces_is_told_by_a_table(store: clew.Store) -> None:
    chain = Chain(ClewSaver(store), "notes")
    notes = [f"note {n} " + "x" * 50 for n in range(300)]
    chain.put(notes)
    for place in range(0, 200, 2):
        notes = [*notes[:place], f"changed {place}", *notes[place + 1 :]]
        chain.put(notes)
    assert value_of(ClewSaver(store), channel="notes") == notes
    newest = store.get("t").get(str(store.get("t").leaf))
    assert len(newest.data) < 3000


def test_a_list_of_400_writes_no_400_ids(store: clew.Store) -> None:
    chain = Chain(ClewSaver(store))
    messages = talk(400)
    chain.put(messages)
    chain.put([*messages, HumanMessage("one more")])
    newest = store.get("t").get(str(store.get("t").leaf))
    assert len(newest.data) < 600


def test_messages_that_no_reader_knows_are_kept_as_data(store: clew.Store) -> None:
    chain = Chain(ClewSaver(store))
    odd = ToolMessage("x", tool_call_id="")  # answers no call: no provider could be told
    chain.put([HumanMessage("a"), odd])
    assert value_of(ClewSaver(store)) == [HumanMessage("a"), odd]
    assert texts(store) == ["a"]
