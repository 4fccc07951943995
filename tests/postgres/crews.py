"""Writers in threads and processes, and what they were told."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from servers.processes import wait_until

import clew
from clew.core.model import Entry

WORKERS = Path(__file__).with_name("pg_workers.py")
Told = tuple[str, str, int]
Open = Callable[..., clew.Store]  # the fixture `opened`


class Crew:
    """Writers that append to some threads; `told` grows with each acknowledgement."""

    def __init__(self, address: str, threads: list[str], count: int) -> None:
        self._address, self._threads, self._count = address, threads, count
        self._processes: list[subprocess.Popen[str]] = []
        self._workers: list[threading.Thread] = []
        self._errors: list[BaseException] = []
        self._ready = 0
        self.told: list[Told] = []
        self.size = 0

    def add_process(self) -> None:
        """A worker in a process of its own. It opens the store and waits for `begin`."""
        arguments = (self._address, f"p{self.size}", ",".join(self._threads), self._count)
        process = subprocess.Popen(
            [sys.executable, str(WORKERS), "append", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._processes.append(process)
        self._start(lambda: self._hear(process))

    def add_thread(self, store: clew.Store) -> None:
        """A worker on a store of this process."""
        name = f"t{self.size}"
        self._start(lambda: self._append(store, name))

    def _start(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                self._errors.append(error)

        self.size += 1
        self._workers.append(threading.Thread(target=run))
        self._workers[-1].start()

    def _hear(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == "ready\n"
            self._ready += 1
            for line in process.stdout:
                thread, id, seq = line.split()
                self.told.append((thread, id, int(seq)))
        assert process.wait(60) == 0

    def _append(self, store: clew.Store, name: str) -> None:
        for n in range(self._count):
            thread = self._threads[n % len(self._threads)]
            entry = store.get(thread).append("event", {"from": name, "n": n})
            self.told.append((thread, entry.id, entry.seq))

    def begin(self) -> None:
        """Let the processes go, when all of them are there."""
        wait_until(
            lambda: self._ready == len(self._processes) or bool(self._errors),
            "all have opened the store",
            seconds=120,
        )
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()

    def wait_for(self, count: int) -> None:
        """Returns when so many more were acknowledged, or all are done."""
        goal = len(self.told) + count
        wait_until(lambda: len(self.told) >= goal or self.done, "the crew goes on", seconds=120)

    @property
    def done(self) -> bool:
        return not any(worker.is_alive() for worker in self._workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()  # it has ended, unless something failed
            process.wait()

    def finish(self) -> None:
        """Wait for all of them; the first error is raised here."""
        for worker in self._workers:
            worker.join(180)
        if self._errors:
            raise self._errors[0]
        assert self.done
        assert len(self.told) == self.size * self._count

    def check(self, store: clew.Store) -> None:
        """Nothing lost, nothing twice, no gap, and each worker's entries in its order."""
        for name in self._threads:
            entries = [r for r in store.get(name).read() if isinstance(r, Entry)]
            assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
            mine = {(id, seq) for thread, id, seq in self.told if thread == name}
            assert {(e.id, e.seq) for e in entries} == mine
            assert store.get(name).path() == entries, "one branch: each saw the leaf before it"
            assert all(numbers == sorted(numbers) for numbers in _by_worker(entries).values())
        assert max(Counter(id for _, id, _ in self.told).values()) == 1
        assert store.verify() == []


def _by_worker(entries: list[Entry]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for entry in entries:
        body: Any = entry.body
        found.setdefault(body["from"], []).append(body["n"])
    return found
