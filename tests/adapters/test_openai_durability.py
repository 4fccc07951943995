"""Sessions under compaction, encryption, kill -9, other owners, and read by other programs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("agents", reason="the Agents SDK is not installed")

from agents import Agent, OpenAIResponsesCompactionSession, RunConfig, Runner
from agents.extensions.memory import EncryptedSession
from openai_scripts import ScriptedModel, assistant, call, output, says, user

import clew
from clew.adapters.openai_agents import ClewSession
from clew.cli import main as command_line

pytestmark = pytest.mark.anyio
TALK = [user("1 + 2?"), call("c1"), output("c1"), assistant("3")]
SUMMARY = {"type": "compaction", "id": "cmp_1", "encrypted_content": "all that was said"}
QUIET = RunConfig(tracing_disabled=True)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def session(store: clew.Store) -> ClewSession:
    return ClewSession("s", store=store)


# --- compaction ---


class Compactor:
    """The part of OpenAI's client that compacts: gives a summary, and does what it is told to."""

    def __init__(self, meanwhile: Callable[[], Any] | None = None) -> None:
        self.inputs: list[Any] = []
        self._meanwhile = meanwhile
        self.responses = self

    async def compact(self, **request: Any) -> Any:
        self.inputs.append(request.get("input"))
        if self._meanwhile is not None:
            await self._meanwhile()
        return SimpleNamespace(output=[SUMMARY], usage=None)


def compacting(session: Any, client: Compactor) -> OpenAIResponsesCompactionSession:
    return OpenAIResponsesCompactionSession(
        "s",
        session,
        client=client,  # type: ignore[arg-type]
        compaction_mode="input",
        should_trigger_compaction=lambda context: len(context["session_items"]) >= 4,
    )


async def run(session: Any, *texts: str) -> ScriptedModel:
    model = ScriptedModel(*[[says(f"reply to {text}", f"msg_{text}")] for text in texts])
    for text in texts:
        await Runner.run(Agent(name="a", model=model), text, session=session, run_config=QUIET)
    return model


async def test_a_run_compacts_and_the_next_one_begins_with_the_summary(
    session: ClewSession,
) -> None:
    client = Compactor()
    model = await run(compacting(session, client), "a", "b", "c")
    assert len(client.inputs) == 1
    assert [item.get("type", "user") for item in model.requests[2]] == ["compaction", "user"]
    assert (await session.get_items())[0] == SUMMARY
    # Nothing is gone: the thread has left it behind, and can go back.
    texts = [entry.body.get("content") for entry in session.thread.entries()]
    assert "a" in texts
    assert session.store.verify() == []


async def test_a_compaction_asked_for_replaces_all_of_it_in_one_step(session: ClewSession) -> None:
    await session.add_items(TALK)
    before = session.thread.info.seq
    await compacting(session, Compactor()).run_compaction({"force": True})
    assert await session.get_items() == [SUMMARY]
    assert session.thread.info.seq == before + 2  # a move and an item


async def test_what_is_said_during_the_compaction_is_not_lost(session: ClewSession) -> None:
    """Complaint of users of other stores: writes during the compact call were deleted."""
    other = ClewSession("s", store=session.store)
    client = Compactor(lambda: other.add_items([user("meanwhile")]))
    await run(compacting(session, client), "a", "b")
    assert len(client.inputs) == 1
    texts = [item.get("content") for item in await session.get_items()]
    assert len(texts) == 5
    assert texts[-1] == "meanwhile"


async def test_a_suffix_is_replaced_only_if_it_is_still_the_one_that_was_seen(
    session: ClewSession,
) -> None:
    await session.add_items([user("a"), *TALK])
    snapshot = await session._get_compaction_snapshot(4)
    assert snapshot is not None
    assert (snapshot.items, snapshot.complete) == (TALK, False)
    spent = SimpleNamespace(requests=1, input_tokens=1, output_tokens=1, total_tokens=2)
    await session.store_run_usage(SimpleNamespace(context_wrapper=SimpleNamespace(usage=spent)))
    assert await snapshot.replace_suffix(1, [SUMMARY]) is True, "usage is no item"
    assert await session.get_items() == [user("a"), TALK[0], SUMMARY]
    assert await snapshot.replace_suffix(1, [SUMMARY]) is False
    whole = await session._get_compaction_snapshot(9)
    assert whole is not None
    assert whole.complete
    await session.pop_item()
    assert await whole.replace_suffix(0, []) is False
    assert await whole.replace_suffix(3, []) is False


async def test_usage_outlives_a_compaction(session: ClewSession) -> None:
    await session.add_items(TALK)
    spent = SimpleNamespace(requests=1, input_tokens=1, output_tokens=1, total_tokens=2)
    await session.store_run_usage(SimpleNamespace(context_wrapper=SimpleNamespace(usage=spent)))
    snapshot = await session._get_compaction_snapshot(9)
    assert snapshot is not None
    await snapshot.replace_suffix(0, [SUMMARY])
    assert (await session.get_session_usage() or {})["total_tokens"] == 2


# --- encryption ---


async def test_under_encryption_nothing_readable_is_stored(session: ClewSession) -> None:
    pytest.importorskip("cryptography")
    encrypted = EncryptedSession("s", session, "a key of some length", ttl=3600)
    await run(encrypted, "secret")
    assert [item.get("role") for item in await encrypted.get_items()] == ["user", "assistant"]
    assert b"secret" not in b"".join(entry.data for entry in session.thread.entries())
    assert (await encrypted.get_items(1))[0]["role"] == "assistant"
    assert (await encrypted.pop_item())["role"] == "assistant"
    assert await encrypted.get_items() == [user("secret")]
    await encrypted.clear_session()
    assert await encrypted.get_items() == []
    assert session.thread.context("anthropic").messages == []


async def test_compaction_under_encryption(session: ClewSession) -> None:
    pytest.importorskip("cryptography")
    client = Compactor()
    encrypted = EncryptedSession("s", compacting(session, client), "a key of some length", ttl=3600)
    model = await run(encrypted, "a", "b", "c")
    assert len(client.inputs) == 1
    assert [item.get("type", "user") for item in model.requests[2]] == ["compaction", "user"]
    assert b"all that was said" not in b"".join(e.data for e in session.thread.entries())


# --- other programs ---


async def test_a_session_is_read_by_the_library_for_every_provider(session: ClewSession) -> None:
    await session.add_items(TALK)
    kinds = [entry.kind for entry in session.thread.path()]
    assert kinds == ["user_message", "tool_call", "tool_result", "assistant_message"]
    anthropic = session.thread.context("anthropic").messages
    roles = ["user", "assistant", "user", "assistant", "user"]  # who has to speak last
    assert [message["role"] for message in anthropic] == roles
    assert anthropic[1]["content"][0]["input"] == {"a": 1, "b": 2}
    chat = session.thread.context("openai-chat").messages
    assert [message["role"] for message in chat] == ["user", "assistant", "tool", "assistant"]
    assert session.thread.context("openai-responses").messages == TALK


def test_the_command_line_shows_a_session(
    address: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    session = ClewSession("s", store=address)
    asyncio.run(session.add_items(TALK))
    session.close()
    assert command_line(["show", address, "s"]) == 0
    shown = capsys.readouterr().out
    assert "1 + 2?" in shown
    assert "add" in shown
    assert command_line(["export", address, "s", "--out", str(tmp_path / "s.jsonl")]) == 0
    assert "1 + 2?" in (tmp_path / "s.jsonl").read_text()


async def test_a_thread_of_another_program_is_a_session(session: ClewSession) -> None:
    thread = session.store.create("s")
    thread.append_message({"role": "user", "content": "Say hello"}, format="anthropic")
    use = {"type": "tool_use", "id": "t1", "name": "greet", "input": {"who": "you"}}
    thread.append_message({"role": "assistant", "content": [use]}, format="anthropic")
    thread.append_results({"t1": "hello you"})
    found = await session.get_items()
    assert [item.get("type") for item in found] == [
        "message",
        "function_call",
        "function_call_output",
    ]
    model = await run(session, "Again")
    assert len(model.requests[0]) == 4
    assert len(await session.get_items()) == 5
    popped = [await session.pop_item() for _ in range(5)]
    assert [item.get("type") for item in popped[2:]] == [
        "function_call_output",
        "function_call",
        "message",
    ]
    assert await session.pop_item() is None


async def test_a_compaction_of_the_library_counts_for_the_session(session: ClewSession) -> None:
    for n in range(4):
        await session.add_items([user(f"question {n}"), assistant(f"answer {n}", f"m{n}")])
    session.thread.compact(summary="They talked.", keep_turns=1)
    found = await session.get_items()
    assert len(found) == 3
    assert "They talked." in str(found[0])
    assert found[1]["content"] == "question 3"
    assert found[2]["content"] == assistant("answer 3")["content"]
    await session.add_items([user("question 4")])
    assert (await session.get_items(1)) == [user("question 4")]


async def test_several_items_of_one_response_are_popped_one_by_one(session: ClewSession) -> None:
    session.store.create("s").append_message(TALK[:1] + TALK[1:2], format="openai-responses")
    assert await session.get_items() == TALK[:2]
    assert await session.pop_item() == TALK[1]
    assert await session.get_items() == TALK[:1]
    assert await session.pop_item() == TALK[0]
    assert await session.pop_item() is None


# --- places ---


async def test_sessions_in_memory_are_private() -> None:
    one, other = ClewSession("s"), ClewSession("s", ":memory:")
    await one.add_items(TALK)
    assert await other.get_items() == []
    one.close()
    with pytest.raises(clew.Closed):
        await one.get_items()


async def test_a_file_is_found_again(tmp_path: Path) -> None:
    for _ in range(2):
        session = ClewSession("s", tmp_path / "sessions.db")
        await session.add_items([user("again")])
        session.close()
    session = ClewSession("s", str(tmp_path / "sessions.db"))
    assert len(await session.get_items()) == 2
    session.close()


def test_mistakes_of_the_call(store: clew.Store, tmp_path: Path) -> None:
    for wrong in ("", None, 5, "x" * 600):
        with pytest.raises((clew.InvalidInput, clew.TooLarge)):
            ClewSession(wrong, store=store)  # type: ignore[arg-type]
    with pytest.raises(clew.InvalidInput, match="either db_path or store"):
        ClewSession("s", tmp_path / "x.db", store=store)
    with pytest.raises(clew.InvalidInput, match="ownership"):
        ClewSession("s", store=store, ownership="mine")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["a text", {"role": "user", "content": "one item"}, b"x", 5])
async def test_what_is_no_list_of_items_is_refused(session: ClewSession, wrong: Any) -> None:
    with pytest.raises(clew.InvalidInput, match="items"):
        await session.add_items(wrong)
    assert await session.get_items() == []


async def test_a_session_that_was_deleted_says_so(session: ClewSession) -> None:
    await session.add_items(TALK)
    session.store.delete("s")
    with pytest.raises(clew.ClewError, match="deleted"):
        await ClewSession("s", store=session.store).add_items(TALK)


# --- processes ---

WORKERS = Path(__file__).with_name("openai_workers.py")


def start(role: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKERS), role, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_runs_that_were_killed_go_on_in_a_new_process(address: str) -> None:
    """At their first, second and third request, each in a session of its own."""
    with clew.open(address):
        pass
    killed = [start("run_and_die", address, number) for number in (1, 2, 3)]
    for process in killed:
        assert process.communicate(timeout=120)[0] == "dying\n"
        assert process.returncode == -signal.SIGKILL
    resumed = start("resume", address, "s1", "s2", "s3")
    told = [json.loads(line) for line in resumed.communicate(timeout=120)[0].splitlines()]
    assert resumed.returncode == 0
    for given in told:
        called = [call for kind, call in given if kind == "function_call"]
        assert [call for kind, call in given if kind == "function_call_output"] == called
        assert (given[0][0], given[-1][0]) == ("user", "user")
    assert len(told) == 3
    with clew.open(address) as store:
        assert store.verify() == []
        for id in ("s1", "s2", "s3"):
            assert store.get(id).context("openai-chat").messages[-1]["content"] == "Here I am."


def test_a_stopped_owner_cannot_write_after_another_took_over(address: str) -> None:
    with clew.open(address) as store:
        zombie = start("own_and_stop", address)
        assert zombie.stdout is not None
        assert zombie.stdout.readline() == "written\n"
        session = ClewSession("s", store=store, ownership="lease")
        deadline = time.monotonic() + 30
        while True:
            try:
                asyncio.run(session.add_items([user("by the second")]))
                break
            except clew.LeaseHeld:
                assert time.monotonic() < deadline
        os.kill(zombie.pid, signal.SIGCONT)
        assert zombie.communicate(timeout=60)[0] == "refused\n"
        texts = [item["content"] for item in asyncio.run(session.get_items())]
        assert texts == ["by the first", "by the second"]
        session.close()


async def test_a_session_that_another_one_owns_is_refused(store: clew.Store) -> None:
    owner = ClewSession("s", store=store, ownership="lease")
    await owner.add_items(TALK)
    for other in (ClewSession("s", store=store), ClewSession("s", store=store, ownership="lease")):
        with pytest.raises((clew.LeaseHeld, clew.LeaseLost)):
            await other.add_items([user("intruding")])
        assert await other.get_items() == TALK
    owner.close()
    await other.add_items([user("now")])
    assert await other.get_items() == [*TALK, user("now")]


async def test_an_owner_may_delete_its_branches_and_clear(store: clew.Store) -> None:
    session = ClewSession("s", store=store, ownership="lease")
    await session.add_items(items=TALK)
    for name in ("a", "b"):
        await session.create_branch_from_item(branch_name=name)
        await session.add_items([user(name)])
    await session.delete_branch("b", force=True)
    await session.clear_session()
    assert await session.get_items() == []
    await session.add_items([user("anew")])
    session.close()
