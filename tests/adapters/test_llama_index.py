"""LlamaIndex's chat stores: one contract for its own and for ours, and what ours adds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from children import killed, said, start
from everywhere import assert_readable

pytest.importorskip("llama_index.core", reason="LlamaIndex is not installed")

from llama_index.core.base.llms.types import (
    CachePoint,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.llms import ChatMessage
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.core.storage.chat_store.base import BaseChatStore
from llama_index_agent import ask, memory

import clew
from clew import messages
from clew.adapters.llama_index import ClewChatStore


def user(text: str) -> ChatMessage:
    return ChatMessage(role="user", content=text)


def texts(found: list[ChatMessage] | None) -> list[str | None] | None:
    return None if found is None else [message.content for message in found]


@pytest.fixture(params=["theirs", "sqlite", "postgres"])
def chats(request: pytest.FixtureRequest) -> Iterator[BaseChatStore]:
    """The store that LlamaIndex ships, and ours, under one contract."""
    if request.param == "theirs":
        yield SimpleChatStore()
        return
    from places import ADDRESSES

    ours = ClewChatStore(ADDRESSES[request.param](request))
    yield ours
    assert ours._store.verify() == []
    ours.close()


# --- the contract -----------------------------------------------------------------------------


def test_messages_are_added_and_come_back_as_they_were(chats: BaseChatStore) -> None:
    assert chats.get_messages("c") == []
    given = [
        ChatMessage(role="system", content="be brief"),
        ChatMessage(
            role="user",
            blocks=[
                TextBlock(text="look"),
                ImageBlock(image=b"\x89PNG\r\n\x1a\n\xff", image_mimetype="image/png"),
                CachePoint(cache_control={"type": "ephemeral"}),
            ],
        ),
        ChatMessage(
            role="assistant",
            blocks=[
                ThinkingBlock(content="hm", additional_information={"signature": "s"}),
                ToolCallBlock(tool_call_id="c1", tool_name="look_up", tool_kwargs={"key": "ä"}),
            ],
            additional_kwargs={"refusal": None},
        ),
        ChatMessage(role="tool", content="42", additional_kwargs={"tool_call_id": "c1"}),
        ChatMessage(role="assistant", content="the answer is 42"),
    ]
    for message in given:
        chats.add_message("c", message)
    assert chats.get_messages("c") == given
    assert chats.get_messages("other") == []
    assert chats.get_keys() == ["c"]


def test_messages_are_replaced_as_a_whole(chats: BaseChatStore) -> None:
    chats.set_messages("c", [user("one"), user("two"), user("three")])
    chats.set_messages("c", [user("one"), user("changed")])
    assert texts(chats.get_messages("c")) == ["one", "changed"]
    chats.set_messages("c", [user("zero"), user("one")])
    assert texts(chats.get_messages("c")) == ["zero", "one"]
    chats.set_messages("c", [])
    assert chats.get_messages("c") == []
    assert chats.get_keys() == ["c"]
    chats.add_message("c", user("on"))
    assert texts(chats.get_messages("c")) == ["on"]


def test_messages_are_taken_away_one_by_one(chats: BaseChatStore) -> None:
    assert chats.delete_message("c", 0) is None
    assert chats.delete_last_message("c") is None
    chats.set_messages("c", [user(f"{n}") for n in range(6)])
    assert chats.delete_message("c", 9) is None
    gone = chats.delete_message("c", 1)
    assert gone == user("1")
    assert texts(chats.get_messages("c")) == ["0", "2", "3", "4", "5"]
    assert chats.delete_last_message("c") == user("5")
    assert chats.delete_message("c", 3) == user("4")
    assert chats.delete_message("c", 0) == user("0")
    assert texts(chats.get_messages("c")) == ["2", "3"]
    chats.add_message("c", user("on"))
    assert texts(chats.get_messages("c")) == ["2", "3", "on"]


def test_a_key_is_deleted_and_begins_anew(chats: BaseChatStore) -> None:
    assert chats.delete_messages("c") is None
    chats.set_messages("c", [user("one"), user("two")])
    chats.set_messages("d", [user("other")])
    assert texts(chats.delete_messages("c")) == ["one", "two"]
    assert chats.get_messages("c") == []
    assert chats.get_keys() == ["d"]
    assert chats.delete_messages("c") is None
    chats.add_message("c", user("anew"))
    assert texts(chats.get_messages("c")) == ["anew"]
    assert sorted(chats.get_keys()) == ["c", "d"]


def test_a_message_is_put_between_others(chats: Any) -> None:
    chats.set_messages("c", [user("one"), user("three")])
    chats.add_message("c", user("two"), idx=1)
    chats.add_message("c", user("zero"), idx=0)
    assert texts(chats.get_messages("c")) == ["zero", "one", "two", "three"]


def test_the_same_words_twice_are_two_messages(chats: BaseChatStore) -> None:
    chats.set_messages("c", [user("same"), user("same"), user("same")])
    assert chats.delete_message("c", 1) == user("same")
    assert texts(chats.get_messages("c")) == ["same", "same"]


def test_all_of_it_works_from_a_task(chats: BaseChatStore) -> None:
    async def steps() -> None:
        await chats.aset_messages("c", [user("one"), user("two"), user("three")])
        await chats.async_add_message("c", user("four"))
        assert texts(await chats.aget_messages("c")) == ["one", "two", "three", "four"]
        assert await chats.adelete_message("c", 0) == user("one")
        assert await chats.adelete_last_message("c") == user("four")
        assert await chats.aget_keys() == ["c"]
        assert texts(await chats.adelete_messages("c")) == ["two", "three"]

    asyncio.run(steps())


def test_an_agent_remembers(chats: BaseChatStore) -> None:
    assert asyncio.run(ask("what is it?", chats)) == "the answer is 42"
    assert asyncio.run(ask("and now?", chats)) == "the answer is 42"
    roles = [message.role.value for message in chats.get_messages("c")]
    assert roles == ["user", "assistant", "tool", "assistant"] * 2
    buffer = memory(chats)
    assert len(buffer.get()) == 8
    buffer.reset()
    assert chats.get_messages("c") == []


# --- what ours adds ---------------------------------------------------------------------------


def test_a_chat_works_under_trio(store: clew.Store) -> None:
    ours = ClewChatStore(store)

    async def steps() -> None:
        await ours.async_add_message("c", user("one"))
        assert texts(await ours.aget_messages("c")) == ["one"]

    anyio.run(steps, backend="trio")


def test_what_was_replaced_or_taken_away_can_be_returned_to(store: clew.Store) -> None:
    ours = ClewChatStore(store)
    ours.set_messages("c", [user("one"), user("two")])
    before = store.get("c").leaf
    assert before is not None
    ours.set_messages("c", [user("one"), user("changed")])
    assert len(list(store.get("c").entries())) == 3, "what they share is not written again"
    ours.delete_messages("c")
    store.get("c").move(before)
    assert texts(ours.get_messages("c")) == ["one", "two"]


def test_a_set_beside_another_writer_is_refused(
    store: clew.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = ClewChatStore(store)
    ours.set_messages("c", [user("one")])
    read = ours._said

    def slow(*args: Any) -> Any:
        found = read(*args)
        store.get("c").append_message({"role": "user", "content": "meanwhile"})
        return found

    monkeypatch.setattr(ClewChatStore, "_said", lambda self, *args: slow(*args))
    with pytest.raises(clew.Conflict):
        ours.set_messages("c", [user("mine")])
    monkeypatch.undo()
    assert texts(ours.get_messages("c")) == ["one", "meanwhile"]


def test_a_chat_is_readable_everywhere(
    store: clew.Store, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = ClewChatStore(store)
    asyncio.run(ask("what is it?", ours))
    kinds = [entry.kind for entry in store.get("c").path()]
    assert kinds == ["user_message", "tool_call", "tool_result", "assistant_message"]
    assert_readable(store, address, "c", says="the answer is 42", folder=tmp_path, capsys=capsys)
    context = store.get("c").context("llama-index")
    assert messages.validate("llama-index", context.messages) == []
    assert [ChatMessage.model_validate(body) for body in context.messages] == ours.get_messages("c")


def test_a_thread_of_the_core_is_a_chat(store: clew.Store) -> None:
    thread = store.create("t")
    thread.append_message({"role": "user", "content": "what is it?"})
    call = {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"key": "x"}}
    thread.append_message({"role": "assistant", "content": [call]}, format="anthropic")
    thread.append_results({"c1": "7"})
    ours = ClewChatStore(store)
    found = ours.get_messages("t")
    assert [message.role.value for message in found] == ["user", "assistant", "tool"]
    assert ours.get_keys() == []
    ours.add_message("t", ChatMessage(role="assistant", content="seven"))
    assert ours.get_keys() == ["t"]
    assert ours.delete_last_message("t") is not None
    assert texts(ours.get_messages("t")) == ["what is it?", None, "7"]
    assert ours.delete_last_message("t") is not None
    assert texts(ours.get_messages("t"))[0] == "what is it?"  # type: ignore[index]
    assert ours.delete_message("t", 0) is not None
    assert thread.context("anthropic").messages, "and it is still a valid context"


def test_a_run_that_was_killed_goes_on_in_another_process(address: str) -> None:
    assert killed(start("llama_index_agent.py", "begin", address)) == ["the answer is 42"]
    # The agent keeps the calls of a run to itself until the run ends; the question is there.
    roles, output = said(start("llama_index_agent.py", "resume", address))
    assert roles == "user assistant tool assistant user"
    assert output == "the answer is 42"
    with clew.open(address) as store:
        assert store.get("c").context("plain").report.repairs == ()
        assert store.verify() == []


def test_wrong_input_is_refused_and_leaves_nothing(store: clew.Store) -> None:
    ours = ClewChatStore(store)
    for wrong in ("", "a\0b", "x" * 600):
        with pytest.raises(clew.ClewError):
            ours.add_message(wrong, user("one"))
    for odd in ("x') OR 1=1 --", "$[*]", "%", "../../etc/passwd"):
        assert ours.get_messages(odd) == []
        ours.add_message(odd, user(odd))
        assert texts(ours.get_messages(odd)) == [odd]
    with pytest.raises(ValueError, match="serialize"):
        ours.add_message("c", ChatMessage(content="x", additional_kwargs={"made": object()}))
    assert ours.get_messages("c") == []


def test_stored_bytes_make_messages_and_nothing_else(store: clew.Store) -> None:
    thread = store.create("c")
    thread.append(
        "user_message",
        {"role": "user", "blocks": [{"block_type": "os.system", "text": "true"}], "py/object": "x"},
        format="llama-index",
    )
    ours = ClewChatStore(store)
    with pytest.raises(ValueError, match="block_type"):
        ours.get_messages("c")
