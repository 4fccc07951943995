"""A process that appends, or follows, until it is told to stop. Servers come and go; it does not.

    python worker.py JOB

JOB is JSON, see `Job`. Every writer writes down what it is about to append and what became of it,
in a log of its own that is synced before it goes on. Its entries say in their bodies whose they
are, so that one that is there twice is seen, whatever its ids are.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import clew
from clew.core.errors import ClewError, Unavailable

PAUSE_SECONDS = 0.02  # after an error, so that the log of a long outage stays short
LARGE_BYTES = 20_000


@dataclass(frozen=True)
class Job:
    """What one process does. `busy_seconds` is how long the engine itself tries."""

    name: str
    address: str
    folder: str
    threads: list[str]
    writers: int = 1
    busy_seconds: float = 60.0
    follow: bool = False
    repeat_under_new_ids: bool = False  # what nobody should do: the control for duplicates

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Log:
    """Lines that were certainly written before the process went on."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def say(self, what: str, **more: Any) -> None:
        line = json.dumps({"said": what, "time": time.monotonic(), **more})
        os.write(self._descriptor, line.encode() + b"\n")
        os.fsync(self._descriptor)


class Writer:
    """One thread of a process: item after item, each in another way to another thread."""

    def __init__(self, job: Job, number: int, store: clew.Store, stop: threading.Event) -> None:
        self._job, self._store, self._stop = job, store, stop
        self._name = f"{job.name}.{number}"
        self._log = Log(Path(job.folder) / f"{self._name}.log")
        self._threads = [store.get(id) for id in job.threads]

    def run(self) -> None:
        item = 0
        while not self._stop.is_set():
            item += 1
            thread = self._threads[(item + len(self._name)) % len(self._threads)]
            try:
                self._write(thread, item)
                if item % 25 == 0:
                    self._set_fact(thread, item)
            except Exception as error:  # the harness reports it, and the load goes on
                self._log.say("error", item=item, error=f"{type(error).__name__}: {error}")
                self._stop.wait(PAUSE_SECONDS)

    def _write(self, thread: clew.Thread, item: int) -> None:
        bodies = self._bodies(item)
        drafts = [clew.draft("event", body) for body in bodies]
        known = len(drafts) > 1 or item % 2 == 0  # otherwise the id is minted inside
        self._log.say("try", item=item, thread=thread.id, count=len(drafts))
        while not self._stop.is_set():
            try:
                entries = thread.append(drafts) if known else [thread.append("event", bodies[0])]
            except Unavailable as error:
                if error.committed is None:
                    self._log.say("unknown", item=item, known=known, error=str(error))
                    if self._job.repeat_under_new_ids:
                        drafts = [clew.draft("event", body) for body in bodies]
                    elif not known:
                        return  # nobody can repeat it safely; what became of it is looked up later
                else:
                    self._log.say("refused", item=item, error=str(error))
                self._stop.wait(PAUSE_SECONDS)
            else:
                self._log.say("ack", item=item, thread=thread.id, ids=[e.id for e in entries])
                return

    def _bodies(self, item: int) -> list[dict[str, Any]]:
        """Mostly one small entry, now and then a batch, now and then one that becomes a blob."""
        count = 3 if item % 7 == 0 else 1
        text = os.urandom(LARGE_BYTES // 2).hex() if item % 31 == 0 else "x" * 200
        return [{"mark": f"{self._name}/{item}/{n}", "text": text} for n in range(count)]

    def _set_fact(self, thread: clew.Thread, item: int) -> None:
        try:
            thread.set(title=f"{self._name} {item}")
        except Unavailable:
            pass  # a title is nobody's loss


def follow(job: Job, store: clew.Store, stop: threading.Event) -> None:
    """Write down every record of the first thread as it comes, each of them once."""
    log = Log(Path(job.folder) / f"{job.name}.follow")
    thread, seq = store.get(job.threads[0]), 0
    while not stop.is_set():
        try:
            for record in thread.follow(after=seq, idle_seconds=0.5):
                log.say("seen", seq=record.seq, id=record.id)
                seq = record.seq
        except ClewError as error:
            log.say("lost", error=str(error))
            stop.wait(PAUSE_SECONDS)


def main() -> None:
    logging.disable(logging.WARNING)  # of connections that are lost, which is the point
    faulthandler.register(signal.SIGUSR1)
    job = Job(**json.loads(sys.argv[1]))
    stop = threading.Event()
    with clew.open(job.address, busy_seconds=job.busy_seconds) as store:
        if job.follow:
            works = [lambda: follow(job, store, stop)]
        else:
            works = [Writer(job, n, store, stop).run for n in range(job.writers)]
        threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        if not sys.stdin.read():  # until whoever started us has enough; or nothing: it is gone
            shutil.rmtree(Path(job.folder).parent, ignore_errors=True)
            os._exit(1)
        stop.set()
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main()
