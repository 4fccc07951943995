"""A process that streams a reply into a store until it is killed: `stream_worker.py PATH`.

Its clock goes on by 0.3 seconds with each event, so that it saves with every fourth.
"""

from __future__ import annotations

import itertools
import os
import sys

import clew
from clew.store import Store


def main(path: str) -> None:
    with clew.open(path) as opened:
        now = [1_700_000_000_000_000]
        store = Store(opened.engine, clock=lambda: now[0])
        thread = store.get("t")
        with thread.turn(owner="w") as turn, turn.streaming("openai-chat") as reply:
            for number in itertools.count():
                now[0] += 300_000
                delta = {"role": "assistant", "content": f"{number} "}
                reply.feed({"id": "c", "choices": [{"index": 0, "delta": delta}]})
                os.write(1, f"{number}\n".encode())


if __name__ == "__main__":
    main(sys.argv[1])
