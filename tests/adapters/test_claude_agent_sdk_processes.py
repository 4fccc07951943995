"""Claude Agent SDK: processes that are killed while they mirror, or wake up too late."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

pytest.importorskip("claude_agent_sdk", reason="needs clew[claude-agent-sdk]")

from claude_transcripts import SESSION, Transcript
from claude_workers import KEY, turns

import clew
from clew.adapters._ownership import Owner
from clew.adapters.claude_agent_sdk import ClewSessionStore, thread_id
from clew.messages import validate

WORKERS = Path(__file__).with_name("claude_workers.py")


def start(role: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKERS), role, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_mirror_that_is_killed_loses_nothing_and_the_session_goes_on(
    address: str, backend: str
) -> None:
    clew.open(address).close()
    with start("mirror", address, backend) as worker:
        told = [worker.stdout.readline().strip() for _ in range(40)]
        os.kill(worker.pid, signal.SIGKILL)
        told += worker.stdout.read().split()  # what was acknowledged before it died
    expected = [record for turn in turns(Transcript(), 3000) for record in turn]
    with clew.open(address) as store:
        sessions = ClewSessionStore(store)
        loaded = anyio.run(sessions.load, KEY)
        assert loaded == expected[: len(loaded)], "whole batches, in their order"
        assert told[-1] in {record["uuid"] for record in loaded}
        thread = store.get(thread_id(KEY))
        assert validate("anthropic", thread.context("anthropic").messages) == []
        # The CLI has its own file and mirrors from there on, beginning with what it is not sure of.
        anyio.run(sessions.append, KEY, expected[len(loaded) - 3 : len(loaded) + 9])
        assert anyio.run(sessions.load, KEY) == expected[: len(loaded) + 9]
        assert store.verify() == []


def test_what_is_resumed_in_a_new_process_is_the_conversation(address: str) -> None:
    with clew.open(address) as store:
        records = [record for turn in turns(Transcript(), 20) for record in turn]
        anyio.run(ClewSessionStore(store).append, KEY, records)
    code = (
        "import anyio, sys, clew.adapters.claude_agent_sdk as c\n"
        "async def main():\n"
        "    async with c.ClewSessionStore(sys.argv[1]) as sessions:\n"
        "        key = {'project_key': 'project', 'session_id': sys.argv[2]}\n"
        "        print(len(await sessions.load(key)))\n"
        "anyio.run(main)\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, address, SESSION], capture_output=True, text=True, check=True
    )
    assert int(out.stdout) == len(records)


def test_a_writer_that_slept_through_its_lease_is_refused(address: str) -> None:
    clew.open(address).close()
    with start("append_when_woken", address) as zombie, clew.open(address) as store:
        assert zombie.stdout.readline() == "appended\n"
        os.waitid(os.P_PID, zombie.pid, os.WSTOPPED | os.WNOWAIT)
        thread = store.get(thread_id(KEY))
        while thread.leases.active() is not None:
            pass
        sessions = ClewSessionStore(store, ownership="lease")
        sessions._owner = Owner(store, "lease", ttl_seconds=60)
        anyio.run(sessions.append, KEY, [{"type": "x", "uuid": "taken over"}])
        os.kill(zombie.pid, signal.SIGCONT)
        assert zombie.stdout.read() == "refused\n"
        assert zombie.wait() == 0
        assert [one["uuid"] for one in anyio.run(sessions.load, KEY)] == ["first", "taken over"]
        with pytest.raises(clew.LeaseHeld):
            anyio.run(ClewSessionStore(store).append, KEY, [{"type": "x", "uuid": "other"}])
        sessions.close()
        anyio.run(ClewSessionStore(store).append, KEY, [{"type": "x", "uuid": "free again"}])
