"""Pydantic AI's conversations: one contract for its own store and for ours, and what ours adds."""

from __future__ import annotations

import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from children import killed, start, told
from children import said as ended
from everywhere import assert_readable

pytest.importorskip("pydantic_ai", reason="Pydantic AI is not installed")

from pydantic_ai import Agent, BinaryContent, DeferredToolRequests, ImageUrl
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import CallDeferred, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage

import clew
from clew.adapters.pydantic_ai import ClewConversationStore, append_messages, message_history


def run(steps: Callable[[], Awaitable[Any]]) -> Any:
    return anyio.run(steps)


def said(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text)])


def replied(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


def dialogue(turns: int) -> list[ModelMessage]:
    return [make(f"{n}") for n in range(turns) for make in (said, replied)]


def texts(found: list[ModelMessage]) -> list[str]:
    return [part.content for message in found for part in message.parts]


@pytest.fixture(params=["theirs", "sqlite", "postgres"])
def conversations(request: pytest.FixtureRequest) -> Iterator[ConversationStore]:
    """The store that Pydantic AI ships, and ours, under one contract."""
    if request.param == "theirs":
        yield InMemoryConversationStore()
        return
    from places import ADDRESSES

    ours = ClewConversationStore(ADDRESSES[request.param](request))
    yield ours
    assert ours.store.verify() == []
    ours.close()


# --- the contract -----------------------------------------------------------------------------


def test_a_conversation_comes_back_as_it_was_saved(conversations: ConversationStore) -> None:
    async def steps() -> None:
        assert await conversations.load("c") is None
        given = Conversation(conversation_id="c", messages=dialogue(2), usage=RunUsage(requests=2))
        entries = await conversations.save(given, scope="ada")
        found = await conversations.load("c")
        assert found is not None
        assert found.messages == given.messages
        assert found == given, "with the revision that the save has set"
        assert [entry.message for entry in entries] == given.messages
        assert await conversations.load_entries("c") == entries
        assert [entry.parent_id for entry in entries] == [None, *[e.id for e in entries[:-1]]]
        assert await conversations.read_entry(entries[1].id) == entries[1]

    run(steps)


def test_a_save_appends_what_is_new_only(conversations: ConversationStore) -> None:
    async def steps() -> None:
        given = Conversation(conversation_id="c", messages=dialogue(1))
        first = await conversations.save(given)
        given.messages += [said("more"), replied("yes")]
        second = await conversations.save(given)
        assert len(second) == 2
        assert second[0].parent_id == first[-1].id
        assert await conversations.save(given) == [], "nothing is new, but the usage might be"
        assert await conversations.load_entries("c") == first + second

    run(steps)


def test_of_two_saves_of_one_revision_one_is_refused(conversations: ConversationStore) -> None:
    async def steps() -> None:
        await conversations.save(Conversation(conversation_id="c", messages=dialogue(1)))
        one, other = await conversations.load("c"), await conversations.load("c")
        assert one is not None
        assert other is not None
        one.messages.append(said("one"))
        other.messages.append(said("other"))
        await conversations.save(one)
        with pytest.raises(ConversationConflict):
            await conversations.save(other)
        with pytest.raises(ConversationConflict):
            await conversations.branch("c", at=0, expected_revision=other.revision)
        found = await conversations.load("c")
        assert found is not None
        assert texts(found.messages) == ["0", "0", "one"]
        with pytest.raises(ConversationConflict):
            await conversations.save(Conversation(conversation_id="c", messages=dialogue(1)))

    run(steps)


def test_a_save_without_messages_is_a_revision_too(conversations: ConversationStore) -> None:
    async def steps() -> None:
        given = Conversation(conversation_id="c", messages=dialogue(1))
        await conversations.save(given)
        other = await conversations.load("c")
        assert other is not None
        given.usage = RunUsage(requests=7, input_tokens=3)
        await conversations.save(given)
        with pytest.raises(ConversationConflict):
            await conversations.save(other)
        found = await conversations.load("c")
        assert found is not None
        assert found.usage == RunUsage(requests=7, input_tokens=3)

    run(steps)


def test_of_many_tasks_that_save_one_revision_one_wins(conversations: ConversationStore) -> None:
    outcomes: list[str] = []

    async def save(conversation: Conversation) -> None:
        try:
            await conversations.save(conversation)
            outcomes.append("saved")
        except ConversationConflict:
            outcomes.append("refused")

    async def steps() -> None:
        await conversations.save(Conversation(conversation_id="c", messages=dialogue(1)))
        loaded = [await conversations.load("c") for _ in range(8)]
        async with anyio.create_task_group() as tasks:
            for n, known in enumerate(loaded):
                assert known is not None
                known.messages.append(said(f"{n}"))
                tasks.start_soon(save, known)
        async with anyio.create_task_group() as tasks:
            for n in range(8):
                tasks.start_soon(save, Conversation(conversation_id="new", messages=[said(f"{n}")]))
        for id, length in (("c", 3), ("new", 1)):
            found = await conversations.load(id)
            assert found is not None
            assert len(found.messages) == length

    run(steps)
    assert sorted(outcomes) == ["refused"] * 14 + ["saved"] * 2


def test_a_conversation_may_begin_inside_of_another(conversations: ConversationStore) -> None:
    """By the primitives alone; `fork` never brings messages of its own."""

    async def steps() -> None:
        entries = await conversations.save(Conversation(conversation_id="c", messages=dialogue(2)))
        new = ConversationEntry(parent_id=entries[1].id, message=said("aside"))
        record = ConversationRecord(conversation_id="d", head_id=new.id)
        await conversations.write_record(record, new_entries=[new], expected_revision=None)
        found = await conversations.load("d")
        assert found is not None
        assert texts(found.messages) == ["0", "0", "aside"]
        assert await conversations.read_history(new.id) == [*entries[:2], new]
        with pytest.raises(ConversationConflict):
            await conversations.write_record(record, new_entries=[new], expected_revision="old")

    run(steps)


def test_a_scope_keeps_a_conversation_to_its_owner(conversations: ConversationStore) -> None:
    async def steps() -> None:
        hers = Conversation(conversation_id="hers", messages=dialogue(1))
        await conversations.save(hers, scope="ada")
        await conversations.save(Conversation(conversation_id="his", messages=dialogue(1)))
        assert await conversations.load("hers", scope="ada") is not None
        for scope in ("bob", "", "ada ", "a%", "x') OR 1=1 --", "$[*]"):
            assert await conversations.load("hers", scope=scope) is None
            assert await conversations.list_conversations(scope=scope) == []
            with pytest.raises(ConversationConflict):
                await conversations.save(hers, scope=scope)
            with pytest.raises(UserError):
                await conversations.fork("hers", source_scope=scope)
            await conversations.delete("hers", scope=scope)
        listed = await conversations.list_conversations(scope="ada")
        assert [(record.conversation_id, record.scope) for record in listed] == [("hers", "ada")]
        assert len(await conversations.list_conversations()) == 2

    run(steps)


def test_lists_are_newest_first_and_end_at_the_limit(conversations: ConversationStore) -> None:
    async def steps() -> None:
        begin = datetime(2026, 1, 1, tzinfo=UTC)
        for n in (2, 0, 1):
            record = ConversationRecord(
                conversation_id=f"c{n}", head_id=None, updated_at=begin + timedelta(days=n)
            )
            await conversations.write_record(record, expected_revision=None)
        listed = await conversations.list_conversations()
        assert [record.conversation_id for record in listed] == ["c2", "c1", "c0"]
        assert [record.updated_at for record in listed] == [
            begin + timedelta(days=n) for n in (2, 1, 0)
        ]
        newest = await conversations.list_conversations(limit=2)
        assert [record.conversation_id for record in newest] == ["c2", "c1"]
        assert await conversations.list_conversations(limit=0) == []
        with pytest.raises(UserError):
            await conversations.list_conversations(limit=-1)
        found = await conversations.load("c0")
        assert found is not None
        found.messages += dialogue(1)
        await conversations.save(found)
        assert (await conversations.list_conversations())[0].conversation_id == "c0"

    run(steps)


def test_a_branch_leaves_what_can_be_returned_to(conversations: ConversationStore) -> None:
    async def steps() -> None:
        given = Conversation(conversation_id="c", messages=dialogue(2))
        entries = await conversations.save(given)
        left = entries[-1].id
        shorter = await conversations.branch("c", at=2, expected_revision=given.revision)
        assert texts(shorter.messages) == ["0", "0"]
        record = await conversations.read_record("c")
        assert record is not None
        assert record.branches == [left]
        shorter.messages.append(said("edited"))
        new = await conversations.save(shorter)
        assert new[0].parent_id == entries[1].id
        back = await conversations.branch("c", from_entry=left, expected_revision=shorter.revision)
        assert texts(back.messages) == ["0", "0", "1", "1"]
        record = await conversations.read_record("c")
        assert record is not None
        assert record.branches == [new[0].id]
        before_all = await conversations.branch("c", at=0, expected_revision=back.revision)
        assert before_all.messages == []
        before_all.messages.append(said("anew"))
        await conversations.save(before_all)
        found = await conversations.load("c")
        assert found is not None
        assert texts(found.messages) == ["anew"]

    run(steps)


def test_a_branch_that_was_left_stays_listed_while_the_history_goes_through_it(
    conversations: ConversationStore,
) -> None:
    async def steps() -> None:
        given = Conversation(conversation_id="c", messages=dialogue(2)[:3])
        _, second, third = await conversations.save(given)
        branch, at = conversations.branch, given.revision
        at = (await branch("c", at=2, expected_revision=at)).revision
        at = (await branch("c", at=0, expected_revision=at)).revision  # leaves the second
        back = await branch("c", from_entry=third.id, expected_revision=at)
        shorter = Conversation(
            conversation_id="c", messages=back.messages[:2], revision=back.revision
        )
        await conversations.save(shorter)  # leaves the third
        await branch("c", from_entry=third.id, expected_revision=shorter.revision)
        record = await conversations.read_record("c")
        assert record is not None
        assert (record.head_id, record.branches) == (third.id, [second.id])

    run(steps)


def test_a_rewritten_history_branches_where_it_differs(conversations: ConversationStore) -> None:
    async def steps() -> None:
        given = Conversation(conversation_id="c", messages=dialogue(3))
        entries = await conversations.save(given)
        given.messages = [*given.messages[:2], said("summary")]
        given.new_message_index = None
        new = await conversations.save(given)
        assert [entry.parent_id for entry in new] == [entries[1].id]
        record = await conversations.read_record("c")
        assert record is not None
        assert record.branches == [entries[-1].id]
        found = await conversations.load("c")
        assert found is not None
        assert texts(found.messages) == ["0", "0", "summary"]

    run(steps)


def test_a_fork_goes_its_own_way(conversations: ConversationStore) -> None:
    async def steps() -> None:
        given = Conversation(conversation_id="c", messages=dialogue(2), usage=RunUsage(requests=4))
        entries = await conversations.save(given, scope="ada")
        whole = await conversations.fork("c", new_conversation_id="whole")
        early = await conversations.fork("c", at=1, scope="bob", new_conversation_id="early")
        middle = await conversations.fork("c", from_entry=entries[2].id)
        assert texts(whole.messages) == ["0", "0", "1", "1"]
        assert whole.usage == RunUsage(requests=4)
        assert texts(early.messages) == ["0"]
        assert early.usage == RunUsage()
        assert texts(middle.messages) == ["0", "0", "1"]
        whole.messages.append(said("whole"))
        await conversations.save(whole)
        given.messages.append(said("given"))
        await conversations.save(given)
        forked = await conversations.load_entries("whole")
        assert forked is not None
        assert [entry.id for entry in forked[:4]] == [entry.id for entry in entries]
        assert texts([entry.message for entry in forked]) == ["0", "0", "1", "1", "whole"]
        record = await conversations.read_record("early")
        assert record is not None
        assert (record.forked_from, record.forked_at) == ("c", entries[0].id)
        assert record.scope == "bob"
        with pytest.raises(ConversationConflict):
            await conversations.fork("c", new_conversation_id="early")
        for wrong in ({"at": 6}, {"at": -1}, {"from_entry": "no"}, {"at": 1, "from_entry": "x"}):
            with pytest.raises(UserError):
                await conversations.fork("c", **wrong)
        with pytest.raises(UserError):
            await conversations.fork("nobody")

    run(steps)


def test_forks_outlive_what_they_were_forked_from(conversations: ConversationStore) -> None:
    async def steps() -> None:
        given = Conversation(conversation_id="c", messages=dialogue(2))
        entries = await conversations.save(given)
        await conversations.fork("c", at=2, new_conversation_id="fork")
        await conversations.delete("c")
        assert await conversations.load("c") is None
        assert [r.conversation_id for r in await conversations.list_conversations()] == ["fork"]
        found = await conversations.load("fork")
        assert found is not None
        assert texts(found.messages) == ["0", "0"]
        assert await conversations.read_entry(entries[1].id) == entries[1]
        with pytest.raises(LookupError):
            await conversations.read_entry(entries[3].id)
        with pytest.raises(ConversationConflict):
            await conversations.save(given)
        again = Conversation(conversation_id="c", messages=[said("again")])
        await conversations.save(again)
        assert again.revision != given.revision
        await conversations.delete("nobody")

    run(steps)


def test_a_delete_of_another_revision_is_refused(conversations: ConversationStore) -> None:
    async def steps() -> None:
        given = Conversation(conversation_id="c", messages=dialogue(1))
        await conversations.save(given)
        stale = given.revision
        assert stale is not None
        given.messages.append(said("more"))
        await conversations.save(given)
        for revision in (stale, "", "never"):
            with pytest.raises(ConversationConflict):
                await conversations.delete_record("c", expected_revision=revision)
        assert await conversations.load("c") is not None
        assert given.revision is not None
        await conversations.delete_record("c", expected_revision=given.revision)
        with pytest.raises(ConversationConflict):
            await conversations.delete_record("c", expected_revision=given.revision)

    run(steps)


def test_a_window_of_a_history_goes_on_from_the_whole(conversations: ConversationStore) -> None:
    async def steps() -> None:
        given = Conversation(conversation_id="c", messages=dialogue(30))
        entries = await conversations.save(given)
        window = await conversations.load("c", limit=3)
        assert window is not None
        assert texts(window.messages) == ["28", "29", "29"]
        assert await conversations.load_entries("c", limit=5) == entries[-5:]
        window.messages.append(said("on"))
        new = await conversations.save(window)
        assert new[0].parent_id == entries[-1].id
        none = await conversations.load("c", limit=0)
        assert none is not None
        assert none.messages == []
        none.messages.append(replied("and on"))
        await conversations.save(none)
        found = await conversations.load("c")
        assert found is not None
        assert len(found.messages) == 62
        # Serialized in between, the window no longer knows its messages by identity.
        window = await conversations.load("c", limit=2)
        assert window is not None
        window.messages = ModelMessagesTypeAdapter.validate_python(
            ModelMessagesTypeAdapter.dump_python(window.messages, mode="json")
        )
        window.messages.append(said("third"))
        assert len(await conversations.save(window)) == 1
        with pytest.raises(UserError):
            await conversations.load("c", limit=-1)

    run(steps)


def test_a_record_that_points_at_nothing_is_refused(conversations: ConversationStore) -> None:
    async def steps() -> None:
        record = ConversationRecord(conversation_id="c", head_id="gone")
        with pytest.raises(ConversationConflict):
            await conversations.write_record(record, expected_revision=None)
        assert await conversations.read_record("c") is None
        with pytest.raises(LookupError):
            await conversations.read_entry("gone")

    run(steps)


def test_everything_a_message_carries_is_kept(conversations: ConversationStore) -> None:
    picture = BinaryContent(b"\xff\xfe\xfb\x00", media_type="image/png")
    full: list[ModelMessage] = [
        ModelRequest(
            parts=[
                SystemPromptPart("be brief"),
                UserPromptPart(["look", picture, ImageUrl("https://example.org/a.png")]),
            ],
            instructions="today is Monday",
            metadata={"trace": 7},
        ),
        ModelResponse(
            parts=[
                ThinkingPart("hm", signature="s", provider_name="anthropic"),
                TextPart("one moment"),
                ToolCallPart("look_up", {"key": "ä"}, "call-1"),
            ],
            model_name="m-1",
        ),
        ModelRequest(parts=[ToolReturnPart("look_up", {"found": [1, None]}, "call-1")]),
    ]

    async def steps() -> None:
        given = Conversation(conversation_id="c", messages=full)
        await conversations.save(given)
        found = await conversations.load("c")
        assert found is not None
        dump = ModelMessagesTypeAdapter.dump_json
        assert dump(found.messages) == dump(full)

    run(steps)


def scripted(calls: list[str]) -> FunctionModel:
    """A model that calls the tool once and then tells what it gave."""

    def answer(history: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        last = history[-1].parts[-1]
        if isinstance(last, ToolReturnPart):
            return replied(f"it is {last.content}")
        calls.append(str(getattr(last, "content", "")))
        return ModelResponse(parts=[ToolCallPart("clock", {"zone": "UTC"}, f"call-{len(history)}")])

    return FunctionModel(answer)


def test_an_agent_carries_a_conversation_on(conversations: ConversationStore) -> None:
    agent = Agent(scripted([]), system_prompt="be brief")
    agent.tool_plain(lambda zone: f"noon {zone}", name="clock")

    async def steps() -> None:
        for n in range(3):
            known = await conversations.load("c") or Conversation(conversation_id="c")
            result = await agent.run(f"what time? {n}", conversation=known)
            assert result.output == "it is noon UTC"
            assert len(await conversations.save(result)) == 4
        found = await conversations.load("c")
        assert found is not None
        assert len(found.messages) == 12
        assert found.usage.requests == 6

    run(steps)


def test_calls_that_a_paused_run_waits_for_are_kept(conversations: ConversationStore) -> None:
    agent = Agent(TestModel(), output_type=[str, DeferredToolRequests])

    @agent.tool_plain
    def approve(what: str) -> str:
        raise CallDeferred(metadata={"what": what})

    async def steps() -> None:
        paused = await agent.run("go", conversation=Conversation(conversation_id="c"))
        await conversations.save(paused)
        found = await conversations.load("c")
        assert found is not None
        assert found.deferred_tool_requests is not None
        (call,) = found.deferred_tool_requests.calls
        results = found.deferred_tool_requests.build_results(calls={call.tool_call_id: "yes"})
        done = await agent.run(conversation=found, deferred_tool_results=results)
        await conversations.save(done)
        found = await conversations.load("c")
        assert found is not None
        assert found.deferred_tool_requests is None
        assert isinstance(done.output, str)

    run(steps)


# --- what ours adds ---------------------------------------------------------------------------


class Watched:
    """An engine that counts the entries it reads."""

    def __init__(self, engine: Any) -> None:
        self.wrapped, self.entries = engine, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def path(self, *args: Any, **options: Any) -> Any:
        found = self.wrapped.path(*args, **options)
        self.entries += len(found)
        return found


def test_a_fork_reads_no_history(store: clew.Store) -> None:
    ours = ClewConversationStore(store)
    given = Conversation(conversation_id="c", messages=dialogue(100))

    async def steps() -> None:
        entries = await ours.save(given)
        watched = Watched(store.engine)
        store.engine = watched  # type: ignore[assignment]
        fork = await ours.fork("c", limit=0)
        assert watched.entries <= 4, "the entry where it begins, and nothing before it"
        other = await ours.fork("c", from_entry=entries[50].id, limit=0)
        assert watched.entries <= 8
        moved = await ours.branch(
            "c", from_entry=entries[20].id, expected_revision=given.revision, limit=0
        )
        assert watched.entries <= 16
        for conversation, length in ((fork, 201), (other, 52), (moved, 22)):
            conversation.messages.append(said("on"))
            await ours.save(conversation)
            found = await ours.load(conversation.conversation_id)
            assert found is not None
            assert len(found.messages) == length

    run(steps)


def test_a_history_is_one_query_and_a_window_reads_no_more(store: clew.Store) -> None:
    ours = ClewConversationStore(store)

    async def steps() -> None:
        await ours.save(Conversation(conversation_id="c", messages=dialogue(200)))
        watched = Watched(store.engine)
        store.engine = watched  # type: ignore[assignment]
        await ours.load("c", limit=10)
        assert watched.entries < 40

    run(steps)


def test_a_thread_of_the_core_is_a_conversation(store: clew.Store) -> None:
    thread = store.create("t")
    thread.append_message({"role": "user", "content": "what time?"})
    call = {"type": "tool_use", "id": "c1", "name": "clock", "input": {"zone": "UTC"}}
    thread.append_message({"role": "assistant", "content": [call]}, format="anthropic")
    thread.append_results({"c1": "noon"})
    thread.append("usage", {"tokens": 3})
    ours = ClewConversationStore(store)

    async def steps() -> None:
        found = await ours.load("t")
        assert found is not None
        request, reply, result = found.messages
        assert texts([request]) == ["what time?"]
        assert reply.parts[0] == ToolCallPart("clock", {"zone": "UTC"}, "c1")
        assert isinstance(result.parts[0], ToolReturnPart)
        assert (result.parts[0].tool_name, result.parts[0].content) == ("clock", "noon")
        agent = Agent(scripted([]))
        agent.tool_plain(lambda zone: f"noon {zone}", name="clock")
        done = await agent.run("and now?", conversation=found)
        await ours.save(done)
        stale = await ours.load("t")
        assert stale is not None
        thread.append_message({"role": "user", "content": "from elsewhere"})
        with pytest.raises(ConversationConflict):
            await ours.save(stale)
        again = await ours.load("t")
        assert again is not None
        assert len(again.messages) == 8
        again.messages.append(replied("heard"))
        await ours.save(again)
        assert [r.conversation_id for r in await ours.list_conversations()] == ["t"]

    run(steps)
    assert [entry.kind for entry in thread.path()].count("usage") == 1, "nothing is cut off"


def test_a_message_from_elsewhere_in_the_moment_of_a_save_refuses_it(
    store: clew.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = ClewConversationStore(store)
    given = Conversation(conversation_id="c", messages=dialogue(1))
    made = ours._entries

    def meanwhile(*args: Any) -> Any:
        store.get("c").append_message({"role": "user", "content": "from elsewhere"})
        return made(*args)

    async def steps() -> None:
        await ours.save(given)
        given.messages.append(said("mine"))
        with monkeypatch.context() as patch:
            patch.setattr(ours, "_entries", meanwhile)
            with pytest.raises(ConversationConflict):
                await ours.save(given)
        found = await ours.load("c")
        assert found is not None
        assert texts(found.messages) == ["0", "0", "from elsewhere"]

    run(steps)


def test_a_conversation_is_readable_everywhere(
    store: clew.Store, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = ClewConversationStore(store)
    agent = Agent(scripted([]), system_prompt="be brief")
    agent.tool_plain(lambda zone: f"noon {zone}", name="clock")

    async def steps() -> None:
        result = await agent.run("what time?", conversation=Conversation(conversation_id="c"))
        await ours.save(result)

    run(steps)
    thread = store.get("c")
    assert [entry.kind for entry in thread.path()] == [
        "user_message",
        "tool_call",
        "tool_result",
        "assistant_message",
    ]
    assert_readable(store, address, "c", says="noon UTC", folder=tmp_path, capsys=capsys)
    assert thread.context("anthropic").system == "be brief"
    assert thread.context().format == "pydantic-ai"


def test_a_run_that_was_killed_goes_on_in_another_process(address: str) -> None:
    assert killed(start("pydantic_ai_agent.py", "begin", address))[-1] != "0"
    # The prompt and the call are there; the tool that never answered is run anew.
    kinds, output = ended(start("pydantic_ai_agent.py", "resume", address))
    assert kinds == "request response"
    assert output == "the answer is 42"
    with clew.open(address) as store:
        history = message_history(store.get("c"))
        assert [part.part_kind for message in history for part in message.parts] == [
            *("user-prompt", "tool-call", "tool-return", "text")
        ]
        assert store.verify() == []


def test_a_writer_that_was_stopped_is_refused_when_it_wakes(address: str) -> None:
    async def steps() -> None:
        async with ClewConversationStore(address) as ours:
            await ours.save(Conversation(conversation_id="c", messages=dialogue(1)))

    run(steps)
    sleeper, other = (start("pydantic_ai_agent.py", "race", address) for _ in range(2))
    for racer in (sleeper, other):
        assert racer.stdout is not None
        assert racer.stdout.readline() == "loaded\n"
    os.kill(sleeper.pid, signal.SIGSTOP)
    assert told(other, "go") == ["saved"]
    os.kill(sleeper.pid, signal.SIGCONT)
    assert told(sleeper, "go") == ["refused"]
    with clew.open(address) as store:
        assert len(store.get("c").path()) == 3
        assert store.verify() == []


def test_histories_go_into_any_thread_and_come_out_valid(store: clew.Store) -> None:
    thread = store.create("t")
    thread.append_message({"role": "system", "content": "be brief"})
    thread.append_message({"role": "user", "content": "one"})
    agent = Agent(scripted([]))
    agent.tool_plain(lambda zone: f"noon {zone}", name="clock")

    async def steps() -> None:
        result = await agent.run("two", message_history=message_history(thread))
        append_messages(thread, result.new_messages())

    run(steps)
    history = message_history(thread)
    parts = [part.part_kind for message in history for part in message.parts]
    assert parts == [
        *("system-prompt", "user-prompt", "user-prompt"),
        *("tool-call", "tool-return", "text"),
    ]
    assert append_messages(thread, []) == []
    # The call is not answered: what leaves the thread is valid all the same.
    append_messages(thread, [ModelResponse(parts=[ToolCallPart("clock", {}, "open")])])
    last = message_history(thread)[-1].parts[-1]
    assert isinstance(last, ToolReturnPart)
    assert (last.tool_call_id, last.outcome) == ("open", "failed")


def test_an_interrupted_delete_does_not_stand_in_the_way(
    store: clew.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = ClewConversationStore(store)

    async def steps() -> None:
        await ours.save(Conversation(conversation_id="c", messages=dialogue(1)))
        with monkeypatch.context() as patch:
            patch.setattr(store, "purge", lambda id: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                await ours.delete("c")
        assert await ours.load("c") is None
        await ours.save(Conversation(conversation_id="c", messages=[said("anew")]))
        found = await ours.load("c")
        assert found is not None
        assert texts(found.messages) == ["anew"]
        # What a person has deleted can be restored, so it is not written over.
        store.delete("c")
        with pytest.raises(ConversationConflict):
            await ours.save(Conversation(conversation_id="c", messages=dialogue(1)))
        store.restore("c")
        assert await ours.load("c") is not None

    run(steps)


def test_a_save_that_was_cut_off_after_making_the_thread_can_be_repeated(
    store: clew.Store,
) -> None:
    ours = ClewConversationStore(store)
    store.create("c", facts={"adapter": "pydantic-ai", "tags": ["pydantic-ai"]})

    async def steps() -> None:
        assert await ours.load("c") is None
        assert await ours.list_conversations() == []
        await ours.save(Conversation(conversation_id="c", messages=dialogue(1)))
        assert await ours.load("c") is not None

    run(steps)


def test_wrong_input_is_refused_and_leaves_nothing(store: clew.Store) -> None:
    ours = ClewConversationStore(store)

    async def steps() -> None:
        for id in ("", "a\0b", "x" * 600):
            with pytest.raises(clew.ClewError):
                await ours.save(Conversation(conversation_id=id, messages=dialogue(1)))
        for id in ("x') OR 1=1 --", "$[*]", "%", "../../etc/passwd"):
            assert await ours.load(id) is None
            with pytest.raises(LookupError):
                await ours.read_entry(id)
            await ours.save(Conversation(conversation_id=id, messages=dialogue(1)))
            assert await ours.load(id) is not None
        with pytest.raises(clew.InvalidInput):
            entry = ConversationEntry(id="x" * 10, parent_id=None, message=said("x"))
            record = ConversationRecord(conversation_id="n", head_id=entry.id)
            record.updated_at = datetime(2026, 1, 1)  # without a time zone
            await ours.write_record(record, new_entries=[entry], expected_revision=None)
        assert await ours.load("n") is None

    run(steps)


def test_stored_bytes_make_messages_and_nothing_else(store: clew.Store) -> None:
    thread = store.create("c", facts={"adapter": "pydantic-ai"})
    payload = {"py/object": "os.system", "__reduce__": ["os.system", ["true"]], "kind": "request"}
    thread.append("user_message", payload, format="pydantic-ai")
    ours = ClewConversationStore(store)

    async def steps() -> None:
        with pytest.raises(ValueError, match="parts"):
            await ours.load("c")

    run(steps)
    assert "os.system" in str(message_history(thread)), "as text, with a repair that says so"
    assert thread.context("pydantic-ai").report.repairs[0].code == "unreadable"


def test_an_address_is_opened_and_closed_again(address: str) -> None:
    async def steps() -> None:
        async with ClewConversationStore(address) as ours:
            await ours.save(Conversation(conversation_id="c", messages=dialogue(1)))
        with pytest.raises(clew.Closed):
            await ours.load("c")

    anyio.run(steps, backend="trio")
