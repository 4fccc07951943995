"""What the processes of the ADK tests do. Run as a script: `google_adk_worker.py ROLE ADDRESS`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from google.adk.errors import StaleSessionError
from google_adk_support import WHO, ask, calls, changes, runner_of, says

from clew.adapters.google_adk import ClewSessionService


def tell(line: str) -> None:
    """One line to the parent, in one write."""
    os.write(1, (line + "\n").encode())


async def die_in_a_tool(address: str) -> None:
    """Run an agent whose tool ends the process, in the middle of the run."""

    def look_up(city: str) -> dict[str, str]:
        """Look a city up."""
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    service = ClewSessionService(address)
    runner, _ = runner_of(service, calls("Rome"), tool=look_up)
    await ask(runner, "Where is Rome?")


async def sleep_and_write(address: str) -> None:
    """Read the session, stop, and try to write when woken."""
    service = ClewSessionService(address)
    session = await service.get_session(**WHO, session_id="s")
    assert session is not None
    tell("read")
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        await service.append_event(session, says("written by a sleeper"))
        tell("written")
    except StaleSessionError:
        tell("refused")


async def write(address: str, name: str, count: str) -> None:
    """Append events to a session that others write to as well; read it again when refused."""
    service = ClewSessionService(address)
    written = 0
    while written < int(count):
        session = await service.get_session(**WHO, session_id="s")
        assert session is not None
        event = changes(**{f"{name}.{written}": len(session.events), f"app__{name}.{written}": 1})
        try:
            await service.append_event(session, event)
        except StaleSessionError:
            continue
        written += 1
    tell("done")


if __name__ == "__main__":
    role, *arguments = sys.argv[1:]
    asyncio.run(globals()[role](*arguments))
