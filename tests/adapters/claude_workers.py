"""What the processes of these tests do. Run as a script: `claude_workers.py ROLE ADDRESS …`."""

from __future__ import annotations

import os
import signal
import sys

import anyio
from claude_agent_sdk._internal.transcript_mirror_batcher import TranscriptMirrorBatcher
from claude_transcripts import SESSION, Transcript, call, text

import clew
from clew.adapters._ownership import Owner
from clew.adapters.claude_agent_sdk import ClewSessionStore

KEY = {"project_key": "project", "session_id": SESSION}


def tell(line: str) -> None:
    """One line to the parent, in one write, so that what arrives was really said."""
    os.write(1, (line + "\n").encode())


def turns(transcript: Transcript, count: int) -> list[list[dict[str, object]]]:
    """The records of each turn: a question, two calls with their results, an answer."""
    found = []
    for n in range(count):
        begin = len(transcript.records)
        transcript.user(f"question {n}")
        first = transcript.assistant(call(f"a{n}"), id=f"m{n}")
        second = transcript.assistant(call(f"b{n}"), id=f"m{n}")
        transcript.result(f"a{n}", "x" * 500, parentUuid=first)
        transcript.result(f"b{n}", "y" * 500, parentUuid=second)
        transcript.assistant(text(f"answer {n}"), id=f"n{n}")
        found.append(transcript.records[begin:])
    return found


class Telling(ClewSessionStore):
    """Tells the uuid of the last record of each batch when it is acknowledged."""

    async def append(self, key, entries):  # type: ignore[no-untyped-def]
        await super().append(key, entries)
        tell(entries[-1]["uuid"])


def mirror(address: str, backend: str) -> None:
    """Mirror turns with the SDK's own batcher, one frame for each record, until killed."""

    async def run() -> None:
        async def failed(key: object, message: str) -> None:
            tell(f"failed: {message}")

        batcher = TranscriptMirrorBatcher(Telling(address), "/projects", failed)
        for turn in turns(Transcript(), 3000):
            for n, record in enumerate(turn):
                batcher.enqueue(f"/projects/project/{SESSION}.jsonl", [record])
                if n % 2:
                    await batcher.flush()

    anyio.run(run, backend=backend)


def append_when_woken(address: str) -> None:
    """Append under a lease, stop, and append again when woken."""
    with clew.open(address) as store:
        sessions = ClewSessionStore(store, ownership="lease")
        sessions._owner = Owner(store, "lease", ttl_seconds=0.3)
        anyio.run(sessions.append, KEY, [{"type": "x", "uuid": "first"}])
        tell("appended")
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            anyio.run(sessions.append, KEY, [{"type": "x", "uuid": "late"}])
            tell("written")
        except clew.LeaseLost:
            tell("refused")


ROLES = {role.__name__: role for role in (append_when_woken, mirror)}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
