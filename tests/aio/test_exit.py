"""A call that a worker has begun is ended before the interpreter is."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio, atexit, threading
from clew.aio.hop import hop

begun, leaving = threading.Event(), threading.Event()

def write():
    begun.set()
    leaving.wait()
    for _ in range(200_000):  # the interpreter has every chance to be gone before this is over
        pass
    print("written", flush=True)

async def main():
    asyncio.get_running_loop().create_task(hop(write))
    await asyncio.to_thread(begun.wait)

atexit.register(leaving.set)  # runs before what was registered by the import
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
"""


def test_a_write_on_its_way_is_ended_at_exit() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "written\n"
