"""Sessions of ADK in several processes: nothing lost, no sleeper's write, runs that go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("google.adk", reason="google-adk is not installed")

from google_adk_support import WHO, runner_of, says, texts

import clew
from clew import messages
from clew.adapters.google_adk import ClewSessionService

pytestmark = pytest.mark.anyio
WORKER = Path(__file__).with_name("google_adk_worker.py")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def start(role: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-W", "ignore", str(WORKER), role, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def said(process: subprocess.Popen[str]) -> list[str]:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return out.splitlines()


async def test_a_run_that_was_killed_goes_on_in_another_process(address: str) -> None:
    service = ClewSessionService(address)
    await service.create_session(**WHO, session_id="s")
    killed = start("die_in_a_tool", address)
    killed.communicate(timeout=120)
    assert killed.returncode == -signal.SIGKILL
    left = await service.get_session(**WHO, session_id="s")
    assert [call.name for call in left.events[-1].get_function_calls()] == ["look_up"]
    thread = service.thread(**WHO, session_id="s")
    for format in ("anthropic", "openai-chat", "gemini"):
        assert messages.validate(format, thread.context(format).messages) == []

    runner, model = runner_of(service, "Rome is in Italy.")
    run = runner.run_async(
        user_id="ann", session_id="s", invocation_id=left.events[-1].invocation_id
    )
    assert [event async for event in run]
    (asked,) = model.asked
    contents = [content.model_dump(mode="json", exclude_none=True) for content in asked]
    assert messages.validate("gemini", contents) == []
    kept = await service.get_session(**WHO, session_id="s")
    assert kept.state["last"] == "Rome is in Italy."
    assert len([event for event in kept.events if event.get_function_responses()]) == 1
    assert service.store.verify() == []
    await service.close()


async def test_a_writer_that_slept_while_another_wrote_is_refused(address: str) -> None:
    service = ClewSessionService(address)
    await service.create_session(**WHO, session_id="s")
    sleeper = start("sleep_and_write", address)
    try:
        _, status = os.waitpid(sleeper.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        session = await service.get_session(**WHO, session_id="s")
        await service.append_event(session, says("taken over"))
    finally:
        os.kill(sleeper.pid, signal.SIGCONT)
    assert said(sleeper) == ["read", "refused"]
    kept = await service.get_session(**WHO, session_id="s")
    assert kept == session
    assert texts(kept.events) == ["taken over"]
    await service.close()


async def test_writers_in_several_processes_exclude_each_other(address: str) -> None:
    service = ClewSessionService(address)
    await service.create_session(**WHO, session_id="s")
    workers = [start("write", address, name, 6) for name in ("a", "b", "c")]
    assert [said(worker) for worker in workers] == [["done"]] * 3
    kept = await service.get_session(**WHO, session_id="s")
    names = [f"{name}.{n}" for name in ("a", "b", "c") for n in range(6)]
    assert kept.state == {f"app:{name}": 1 for name in names} | {
        key: number
        for number, event in enumerate(kept.events)
        for key in event.actions.state_delta
        if not key.startswith("app:")
    }, "each event was written by a process that had read all before it"
    assert {key for key in kept.state if not key.startswith("app:")} == set(names)
    with clew.open(address) as store:
        assert store.verify() == []
    await service.close()
