"""Processes that queue to write a SQLite file, as tests arrange them."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import clew

WORKERS = Path(__file__).with_name("workers.py")


def start(role: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(WORKERS), role, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def tell_all(workers: list[subprocess.Popen[str]]) -> None:
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()


def said(process: subprocess.Popen[str]) -> list[str]:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return out.splitlines()


def until(done: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def another_at_front(path: Path) -> Iterator[None]:
    """Stand at the front as docs/format.md says: with the first byte of the lock's file locked."""
    descriptor = os.open(f"{path}-lock", os.O_RDWR)
    fcntl.fcntl(
        descriptor,
        fcntl.F_OFD_SETLK,
        struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0),
    )
    try:
        yield
    finally:
        os.close(descriptor)


def waiting(path: Path) -> int:
    """How many have left word in the lock's file that they wait, as docs/format.md says."""
    with open(f"{path}-lock", "rb") as file:
        file.seek(4096)
        numbers = struct.unpack("<128Q", file.read(1024).ljust(1024, b"\0"))
    both = zip(numbers[:64], numbers[64:], strict=True)
    return sum(ticket not in (0, answered) for ticket, answered in both)


@contextmanager
def in_thread(work: Callable[[], object]) -> Iterator[None]:
    """It has ended, without an error, at the end of the block."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join(120)
    assert not thread.is_alive()
    assert failed == []


def in_queue(path: Path, work: Callable[[], object]) -> None:
    """Do something while another is at the front, who leaves as soon as this waits."""
    with ExitStack() as after, another_at_front(path):
        after.enter_context(in_thread(work))
        until(lambda: waiting(path) == 1)


def append_in_queue(thread: clew.Thread, path: Path, body: str) -> None:
    in_queue(path, lambda: thread.append("event", body))
