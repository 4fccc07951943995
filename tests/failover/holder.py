"""A process that holds a thread's turn and writes under it, until its lease is lost.

    python holder.py ADDRESS THREAD TTL_SECONDS LOG

It renews its lease as every turn does. What it was told goes to its log, line by line.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
import traceback
from pathlib import Path

from failover.worker import Log

import clew
from clew.core.errors import LeaseLost, Unavailable

HOLDER = "holder"


def hold(address: str, thread: str, ttl_seconds: float, log: Log, busy_seconds: float) -> None:
    """Returns when the lease was lost; every acknowledged entry is in the log."""
    with clew.open(address, busy_seconds=busy_seconds) as store:
        try:
            with store.get(thread).turn(owner=HOLDER, ttl_seconds=ttl_seconds) as turn:
                log.say("holds", fence=turn.lease.fence)
                number = 0
                while True:
                    number += 1
                    write(turn, number, log)
        except LeaseLost as error:
            log.say("lost", fence=error.fence, current=error.current)


def write(turn: clew.Turn, number: int, log: Log) -> None:
    draft = clew.draft("event", {"number": number})
    while True:
        try:
            [entry] = turn.append([draft])
        except Unavailable as error:
            log.say("unavailable", committed=error.committed)
        else:
            log.say("ack", id=entry.id, seq=entry.seq)
            return


def main() -> None:
    logging.disable(logging.WARNING)
    address, thread, ttl_seconds, path = sys.argv[1:]
    log = Log(Path(path))

    def work() -> None:
        try:
            hold(address, thread, float(ttl_seconds), log, busy_seconds=30.0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    threading.Thread(target=work, daemon=True).start()
    sys.stdin.read()  # until whoever started us is gone: by then it has killed us otherwise
    shutil.rmtree(Path(path).parent, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    main()
