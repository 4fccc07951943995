"""Agent Framework's histories and checkpoints: one contract for its own stores and for ours."""

from __future__ import annotations

import base64
import pickle
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest
from children import killed, said, start
from everywhere import assert_readable

pytest.importorskip("agent_framework", reason="Agent Framework is not installed")

from agent_framework import (
    AgentSession,
    Content,
    FileCheckpointStorage,
    FileHistoryProvider,
    HistoryProvider,
    InMemoryCheckpointStorage,
    InMemoryHistoryProvider,
    Message,
    WorkflowCheckpoint,
)
from agent_framework.exceptions import WorkflowCheckpointException
from agent_framework_agent import ask, workflow

import clew
from clew import messages
from clew.adapters.agent_framework import ClewCheckpointStorage, ClewHistoryProvider


def run(steps: Callable[[], Awaitable[Any]]) -> Any:
    return anyio.run(steps)


def dumped(found: list[Message]) -> list[dict[str, Any]]:
    return [message.to_dict() for message in found]


class Histories:
    """A provider, and the states that sessions would keep for it."""

    def __init__(self, provider: HistoryProvider) -> None:
        self.provider = provider
        self._states: dict[str, dict[str, Any]] = defaultdict(dict)

    async def load(self, session: str) -> list[Message]:
        found: list[Message] = await self.provider.get_messages(
            session, state=self._states[session]
        )
        return found

    async def save(self, session: str, *given: Message) -> None:
        await self.provider.save_messages(session, given, state=self._states[session])


@pytest.fixture(params=["memory", "file", "sqlite", "postgres"])
def histories(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Histories]:
    """The providers that Agent Framework ships, and ours, under one contract."""
    if request.param == "memory":
        yield Histories(InMemoryHistoryProvider())
        return
    if request.param == "file":
        yield Histories(FileHistoryProvider(tmp_path / "histories"))
        return
    from places import ADDRESSES

    ours = ClewHistoryProvider(ADDRESSES[request.param](request))
    yield Histories(ours)
    assert ours.store.verify() == []
    ours.close()


# --- histories: the contract ------------------------------------------------------------------


def test_messages_are_saved_and_come_back_as_they_were(histories: Histories) -> None:
    given = [
        Message("system", ["be brief"], author_name="host", additional_properties={"n": 1}),
        Message(
            "user",
            [
                "look",
                Content.from_data(b"\x89PNG\xff", media_type="image/png"),
                Content.from_uri("https://example.org/a.pdf", media_type="application/pdf"),
            ],
            message_id="m-1",
        ),
        Message(
            "assistant",
            [
                Content.from_text_reasoning(text="hm", protected_data="sealed"),
                "one moment",
                Content.from_function_call("c1", "look_up", arguments='{"key": "ä"}'),
                Content.from_usage({"input_token_count": 7, "output_token_count": 3}),
            ],
        ),
        Message("tool", [Content.from_function_result("c1", result={"found": 42})]),
        Message("assistant", ["the answer is 42"]),
    ]

    async def steps() -> None:
        assert await histories.load("s") == []
        await histories.save("s", *given[:2])
        await histories.save("s", *given[2:])
        await histories.save("s")
        assert dumped(await histories.load("s")) == dumped(given)
        assert await histories.load("other") == []

    run(steps)


def test_what_is_there_already_is_not_saved_twice(histories: Histories) -> None:
    one, two, three = (Message(role, [role]) for role in ("user", "assistant", "user"))

    async def steps() -> None:
        await histories.save("s", one, two)
        await histories.save("s", one, two, three)
        assert len(await histories.load("s")) == 3
        four = Message("assistant", ["four"])
        await histories.save("s", two, three, four)
        await histories.save("s", four)
        assert len(await histories.load("s")) == 4
        again = Message("user", ["user"])
        await histories.save("s", again)
        assert len(await histories.load("s")) == 5, "the same words at another time are said again"

    run(steps)


def test_a_long_history_is_appended_to(histories: Histories) -> None:
    async def steps() -> None:
        for n in range(40):
            await histories.save("s", Message("user", [f"{n}?"]), Message("assistant", [f"{n}."]))
        found = await histories.load("s")
        assert [message.text for message in found][-2:] == ["39?", "39."]
        assert len(found) == 80

    run(steps)


def test_excluded_messages_are_left_out_when_asked(histories: Histories) -> None:
    async def steps() -> None:
        gone = Message("user", ["old"], additional_properties={"_excluded": True})
        await histories.save("s", gone, Message("user", ["new"]))
        assert len(await histories.load("s")) == 2
        histories.provider.skip_excluded = True  # type: ignore[attr-defined]
        assert [message.text for message in await histories.load("s")] == ["new"]

    run(steps)


def test_an_agent_goes_on_with_its_session(histories: Histories) -> None:
    async def steps() -> None:
        session = AgentSession(session_id="s")
        for question in ("what is it?", "and now?"):
            answer = await ask(question, histories.provider, session)
            assert answer == "the answer is 42"
        state = session.state.get(histories.provider.source_id)
        found = await histories.provider.get_messages("s", state=state)
        assert [message.role for message in found] == ["user", "assistant", "tool", "assistant"] * 2

    run(steps)


# --- histories: what ours adds ----------------------------------------------------------------


def test_a_session_is_readable_everywhere(
    store: clew.Store, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = ClewHistoryProvider(store)
    run(lambda: ask("what is it?", ours, AgentSession(session_id="s")))
    thread = store.get("s")
    kinds = [entry.kind for entry in thread.path()]
    assert kinds == ["user_message", "tool_call", "tool_result", "assistant_message"]
    assert_readable(store, address, "s", says="the answer is 42", folder=tmp_path, capsys=capsys)
    context = thread.context()
    assert context.format == "agent-framework"
    assert messages.validate("agent-framework", context.messages) == []
    assert [info.id for info in store.list(tag="agent-framework").items] == ["s"]


def test_a_thread_of_the_core_is_a_session(store: clew.Store) -> None:
    thread = store.create("t")
    thread.append_message({"role": "user", "content": "what is it?"})
    call = {"type": "tool_use", "id": "c1", "name": "look_up", "input": {"key": "x"}}
    thread.append_message({"role": "assistant", "content": [call]}, format="anthropic")
    thread.append_results({"c1": "7"})
    thread.append_message({"role": "assistant", "content": "seven"})
    ours = ClewHistoryProvider(store)

    async def steps() -> None:
        found = await ours.get_messages("t")
        assert [message.role for message in found] == ["user", "assistant", "tool", "assistant"]
        assert found[2].contents[0].result == "7"
        assert await ask("and now?", ours, AgentSession(session_id="t")) == "the answer is 42"
        assert len(await ours.get_messages("t")) == 8

    run(steps)


def test_a_compaction_of_the_thread_is_what_the_agent_sees(store: clew.Store) -> None:
    ours = ClewHistoryProvider(store)

    async def steps() -> None:
        for n in range(6):
            await ours.save_messages("s", [Message("user", [f"{n}?"]), Message("assistant", ["!"])])
        store.get("s").compact(summary="five questions", keep_turns=1)
        found = await ours.get_messages("s")
        assert "five questions" in found[0].text
        assert [message.text for message in found[1:]] == ["5?", "!"]

    run(steps)


def test_a_run_that_was_killed_goes_on_in_another_process(address: str) -> None:
    killed(start("agent_framework_agent.py", "begin", address))
    # The call was never answered; in what is loaded it is, or providers would refuse it.
    roles, output = said(start("agent_framework_agent.py", "resume", address))
    assert roles == "user assistant tool"
    assert output == "the answer is 42"
    with clew.open(address) as store:
        assert messages.validate("anthropic", store.get("s").context("anthropic").messages) == []
        assert store.verify() == []


def test_histories_of_nobody_are_refused(store: clew.Store) -> None:
    ours = ClewHistoryProvider(store)

    async def steps() -> None:
        for wrong in (None, "", "a\0b", 7):
            with pytest.raises(clew.InvalidInput, match="session_id"):
                await ours.get_messages(wrong)  # type: ignore[arg-type]
            with pytest.raises(clew.InvalidInput, match="session_id"):
                await ours.save_messages(wrong, [Message("user", ["x"])])  # type: ignore[arg-type]
        for odd in ("x') OR 1=1 --", "$[*]", "%", "../../etc/passwd"):
            assert await ours.get_messages(odd) == []
            await ours.save_messages(odd, [Message("user", [odd])])
            assert [message.text for message in await ours.get_messages(odd)] == [odd]

    run(steps)
    assert store.stats().threads == 4


def test_stored_bytes_make_messages_and_nothing_else(store: clew.Store) -> None:
    thread = store.create("s")
    tagged = {"type": "os.system", "role": "user", "contents": [{"type": "subprocess.Popen"}]}
    thread.append("user_message", tagged, format="agent-framework")
    ours = ClewHistoryProvider(store)

    async def steps() -> None:
        (found,) = await ours.get_messages("s")
        assert type(found) is Message
        assert [type(content) for content in found.contents] == [Content]

    run(steps)


# --- checkpoints: the contract ----------------------------------------------------------------

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def checkpoint(n: int, workflow_name: str = "w", **fields: Any) -> WorkflowCheckpoint:
    return WorkflowCheckpoint(
        workflow_name=workflow_name,
        graph_signature_hash="h",
        checkpoint_id=f"{workflow_name}-{n}",
        timestamp=(BEGIN + timedelta(minutes=n)).isoformat(),
        iteration_count=n,
        **fields,
    )


@pytest.fixture(params=["memory", "file", "sqlite", "postgres"])
def checkpoints(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """The storages that Agent Framework ships, and ours, under one contract."""
    if request.param == "memory":
        yield InMemoryCheckpointStorage()
        return
    if request.param == "file":
        yield FileCheckpointStorage(tmp_path / "checkpoints")
        return
    from places import ADDRESSES

    ours = ClewCheckpointStorage(ADDRESSES[request.param](request))
    yield ours
    assert ours.store.verify() == []
    ours.close()


def test_a_checkpoint_comes_back_as_it_was_saved(checkpoints: Any) -> None:
    state = {"n": 1, "when": BEGIN, "both": (1, 2), "set": {3}, "text": "ä", "bytes": b"\x00\xff"}

    async def steps() -> None:
        given = checkpoint(1, state=state, metadata={"a": [None, 1.5]})
        assert await checkpoints.save(given) == "w-1"
        found = await checkpoints.load("w-1")
        assert found == given
        found.state["n"] = 2
        assert (await checkpoints.load("w-1")).state["n"] == 1, "what was loaded is a copy"
        for unknown in ("w-2", "", "w"):
            with pytest.raises(WorkflowCheckpointException):
                await checkpoints.load(unknown)

    run(steps)


def test_checkpoints_are_listed_by_their_workflow(checkpoints: Any) -> None:
    async def steps() -> None:
        assert await checkpoints.get_latest(workflow_name="w") is None
        for n in (2, 0, 1):
            await checkpoints.save(checkpoint(n))
        await checkpoints.save(checkpoint(9, "other"))
        listed = await checkpoints.list_checkpoints(workflow_name="w")
        assert sorted(one.checkpoint_id for one in listed) == ["w-0", "w-1", "w-2"]
        ids = await checkpoints.list_checkpoint_ids(workflow_name="w")
        assert sorted(ids) == ["w-0", "w-1", "w-2"]
        latest = await checkpoints.get_latest(workflow_name="w")
        assert latest is not None
        assert latest.checkpoint_id == "w-2", "by its timestamp, not by when it was saved"
        for hostile in ("w') OR 1=1 --", "$[*]", "%", "W", ""):
            assert await checkpoints.list_checkpoint_ids(workflow_name=hostile) == []
            assert await checkpoints.get_latest(workflow_name=hostile) is None

    run(steps)


def test_a_checkpoint_is_replaced_and_deleted(checkpoints: Any) -> None:
    async def steps() -> None:
        await checkpoints.save(checkpoint(1, state={"n": 1}))
        await checkpoints.save(checkpoint(1, state={"n": 2}))
        assert (await checkpoints.load("w-1")).state == {"n": 2}
        assert await checkpoints.list_checkpoint_ids(workflow_name="w") == ["w-1"]
        assert await checkpoints.delete("w-1") is True
        assert await checkpoints.delete("w-1") is False
        with pytest.raises(WorkflowCheckpointException):
            await checkpoints.load("w-1")
        assert await checkpoints.list_checkpoints(workflow_name="w") == []
        await checkpoints.save(checkpoint(1))

    run(steps)


def test_a_workflow_goes_on_from_any_checkpoint(checkpoints: Any) -> None:
    async def steps() -> None:
        done = await workflow(checkpoints).run(0)
        assert done.get_outputs() == [5]
        for one in await checkpoints.list_checkpoints(workflow_name="counting"):
            if one.iteration_count in (1, 3):
                again = await workflow(checkpoints).run(checkpoint_id=one.checkpoint_id)
                assert again.get_outputs() == [5]

    run(steps)


# --- checkpoints: what ours adds --------------------------------------------------------------


@dataclass
class Mine:
    number: int


class Trap:
    """What runs if it is unpickled."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("a pickle was run",)


def test_a_workflow_that_was_killed_goes_on_in_another_process(address: str) -> None:
    killed(start("agent_framework_agent.py", "begin_workflow", address))
    iteration, outputs = said(start("agent_framework_agent.py", "resume_workflow", address))
    assert iteration == "3"
    assert outputs == "[5]"
    with clew.open(address) as store:
        assert store.verify() == []


def test_types_that_nobody_has_named_are_not_made(store: clew.Store) -> None:
    ours = ClewCheckpointStorage(store)
    allowing = ClewCheckpointStorage(
        store, allowed_checkpoint_types=[f"{Mine.__module__}:{Mine.__qualname__}"]
    )

    async def steps() -> None:
        for forbidden in (Mine(1), Trap()):
            with pytest.raises(WorkflowCheckpointException):
                await ours.save(checkpoint(1, state={"it": forbidden}))
        assert await ours.list_checkpoint_ids(workflow_name="w") == []
        await allowing.save(checkpoint(1, state={"it": Mine(1)}))
        assert (await allowing.load("w-1")).state == {"it": Mine(1)}
        with pytest.raises(WorkflowCheckpointException, match="Mine"):
            await ours.load("w-1")

    run(steps)


def test_a_pickle_that_was_put_into_the_store_is_not_run(store: clew.Store) -> None:
    ours = ClewCheckpointStorage(store)

    async def steps() -> None:
        await ours.save(checkpoint(1))
        thread = store.get("checkpoint:w-1")
        body = thread.path()[-1].body
        data = base64.b64encode(pickle.dumps(Trap())).decode()
        body["state"] = {"it": {"__pickled__": data, "__type__": "builtins:str"}}
        thread.append("custom", body)
        for load in (
            ours.load("w-1"),
            ours.get_latest(workflow_name="w"),
            ours.list_checkpoints(workflow_name="w"),
        ):
            with pytest.raises(WorkflowCheckpointException, match="blocked"):
                await load

    run(steps)


def test_a_save_that_was_cut_off_leaves_no_checkpoint(store: clew.Store) -> None:
    ours = ClewCheckpointStorage(store)
    store.create("checkpoint:w-1", facts={"adapter": "agent-framework"})

    async def steps() -> None:
        with pytest.raises(WorkflowCheckpointException):
            await ours.load("w-1")
        assert await ours.list_checkpoint_ids(workflow_name="w") == []
        await ours.save(checkpoint(1))
        assert await ours.load("w-1") == checkpoint(1)

    run(steps)


def test_the_latest_is_found_without_reading_the_others(store: clew.Store) -> None:
    ours = ClewCheckpointStorage(store)
    read: list[str] = []

    async def steps() -> None:
        for n in range(20):
            await ours.save(checkpoint(n, state={"text": "x" * 1000}))
        path = store.engine.path

        def watched(thread: str, *args: Any, **options: Any) -> Any:
            read.append(thread)
            return path(thread, *args, **options)

        store.engine.path = watched  # type: ignore[method-assign]
        assert len(await ours.list_checkpoint_ids(workflow_name="w")) == 20
        assert read == []
        latest = await ours.get_latest(workflow_name="w")
        assert latest is not None
        assert read == ["checkpoint:w-19"]

    run(steps)


def test_a_checkpoint_of_another_time_zone_or_none_is_refused_or_told(store: clew.Store) -> None:
    ours = ClewCheckpointStorage(store)

    async def steps() -> None:
        broken = checkpoint(1)
        broken.timestamp = "yesterday"
        with pytest.raises(WorkflowCheckpointException, match="yesterday"):
            await ours.save(broken)
        broken.timestamp = "2026-01-01T10:00:00"
        await ours.save(broken)
        assert (await ours.load("w-1")).timestamp == "2026-01-01T10:00:00"

    run(steps)


def test_under_trio_as_well(address: str) -> None:
    async def steps() -> None:
        provider, storage = ClewHistoryProvider(address), ClewCheckpointStorage(address)
        await provider.save_messages("s", [Message("user", ["x"])])
        assert len(await provider.get_messages("s")) == 1
        await storage.save(checkpoint(1))
        assert await storage.load("w-1") == checkpoint(1)
        provider.close()
        storage.close()

    anyio.run(steps, backend="trio")
