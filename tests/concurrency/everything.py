"""A process that does everything with a store, in the order that a seed decides.

    everything.py ADDRESS FOLDER SEED COUNT

It says which entries it has appended, and whatever happened to it that may not happen, where other
processes do the same: any error but one that a caller has to expect, and any problem of a check.
"""

from __future__ import annotations

import json
import os
import random
import sys
import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import clew

# What somebody else may have done to a thread between two looks at it.
EXPECTED = (clew.NotFound, clew.AlreadyExists, clew.Conflict, clew.LeaseHeld, clew.LeaseLost)
TEXTS = ("a heron", "an okapi " * 40, "large " * 2000, "zebra " * 10)
SHARED, FORKS = 8, 20

Work = Callable[["Program"], object]
WORKS: list[tuple[int, Work]] = []  # how often each comes, beside the others


class Program:
    """What a program has that works with a store."""

    def __init__(self, address: str, folder: Path, seed: int) -> None:
        self.address = address
        self.folder = folder
        self.random = random.Random(seed)
        self.name = f"w{seed}"
        self.store = clew.open(address)

    def run(self, count: int) -> None:
        times, works = zip(*WORKS, strict=True)
        for work in self.random.choices(works, times, k=count):
            try:
                work(self)
            except EXPECTED:
                pass
            except Exception:
                say("wrong", f"{work.__name__}: {traceback.format_exc()}")
        self.store.close()

    @property
    def thread(self) -> clew.Thread:
        """One that all processes write, and nobody removes."""
        return self.store.get_or_create(f"t{self.random.randrange(SHARED)}")

    @property
    def fork_id(self) -> str:
        """One that may be there, and that anybody may remove."""
        return f"f{self.random.randrange(FORKS)}"

    @property
    def text(self) -> str:
        return self.random.choice(TEXTS)

    @property
    def message(self) -> dict[str, Any]:
        return {"role": self.random.choice(["user", "assistant"]), "content": self.text}


def often(times: int) -> Callable[[Work], Work]:
    def mark(work: Work) -> Work:
        WORKS.append((times, work))
        return work

    return mark


def say(what: str, text: str) -> None:
    """One line in one write, so that what arrives was really said."""
    os.write(1, (json.dumps([what, text]) + "\n").encode())


# --- writing ---


@often(40)
def append(own: Program) -> None:
    entry = own.thread.append_message(own.message)
    say("appended", f"{entry.thread} {entry.id}")


@often(8)
def append_several(own: Program) -> None:
    own.thread.append([clew.draft("note", own.text) for _ in range(own.random.randint(1, 9))])


@often(6)
def take_a_turn(own: Program) -> None:
    with own.thread.turn(owner=own.name) as turn:
        turn.append_message({"role": "user", "content": own.text})
        turn.append_message({"role": "assistant", "content": own.text})


@often(6)
def set_facts(own: Program) -> None:
    own.thread.set(title=own.text[:40], tags=[own.random.choice("abc")], note=own.text)


@often(3)
def move(own: Program) -> None:
    thread = own.thread
    thread.move(own.random.choice(thread.path(limit=10)).id if thread.leaf else None)


@often(2)
def compact(own: Program) -> None:
    thread = own.thread
    path = thread.path(limit=9)
    if not path:
        return
    body = {"summary": own.text, "compacted_through_entry_id": path[len(path) // 2].id}
    thread.append("compaction", body)


@often(5)
def fork(own: Program) -> None:
    thread = own.thread
    if path := thread.path(limit=20):
        thread.fork(at=own.random.choice(path).id, id=own.fork_id).append("note", own.text)


@often(6)
def go_on_in_a_fork(own: Program) -> None:
    own.store.get(own.fork_id).append_message(own.message)


@often(2)
def add_to_a_conversation(own: Program) -> None:
    talk = own.store.conversations.get_or_create(own.random.choice("xyz"))
    talk.add("user", own.text)
    assert talk.history()


@often(2)
def save_a_run(own: Program) -> None:
    with own.store.runs.resume_or_start(own.random.choice("xyz")) as run:
        run.messages.append(own.message)
        run.save()


@often(1)
def take_a_snapshot(own: Program) -> None:
    (own.folder / f"{own.random.randrange(9)}.txt").write_text(own.text)
    own.thread.snapshots.take(own.folder)


# --- looking ---


@often(8)
def read_the_path(own: Program) -> None:
    path = own.thread.path()
    assert all(entry.body is not None for entry in path)
    assert [entry.parent for entry in path[1:]] == [entry.id for entry in path[:-1]]


@often(8)
def make_a_context(own: Program) -> None:
    own.thread.context("anthropic").json()


@often(4)
def read_the_feed(own: Program) -> None:
    seqs = [record.seq for record in own.thread.read()]
    assert seqs == list(range(1, len(seqs) + 1))


@often(4)
def list_threads(own: Program) -> None:
    own.store.list(limit=own.random.choice([3, 50]), tag=own.random.choice([None, "a"]))


@often(2)
def search(own: Program) -> None:
    own.store.search(own.random.choice(["heron", "okapi", "zebra"]), limit=5)


@often(2)
def count_usage(own: Program) -> None:
    own.store.usage()


@often(2)
def verify(own: Program) -> None:
    for problem in own.store.verify(quick=own.random.random() < 0.7):
        say("wrong", f"verify: {problem}")


@often(1)
def copy_all(own: Program) -> None:
    with clew.open("memory:") as other:
        own.store.copy_to(other)
        for problem in other.verify():
            say("wrong", f"the copy: {problem}")


# --- removing ---


@often(3)
def erase(own: Program) -> None:
    fork = own.store.get(own.fork_id)
    fork.erase(own.random.choice(fork.path(limit=3)).id)


@often(2)
def delete(own: Program) -> None:
    own.store.delete(own.fork_id)


@often(1)
def restore(own: Program) -> None:
    own.store.restore(own.fork_id)


@often(3)
def purge(own: Program) -> None:
    own.store.purge(own.fork_id)


@often(1)
def clean_up(own: Program) -> None:
    own.store.cleanup(older_than=timedelta(days=9))


@often(1)
def sweep(own: Program) -> None:
    own.store.sweep()


@often(1)
def pack(own: Program) -> None:
    if own.store.properties.packs:
        own.store.pack(idle_seconds=0, tail=own.random.choice([1, 10]), max_seconds=0.1)


@often(1)
def open_again(own: Program) -> None:
    own.store.close()
    own.store = clew.open(own.address)


if __name__ == "__main__":
    address, folder, seed, count = sys.argv[1:]
    Program(address, Path(folder), int(seed)).run(int(count))
    say("done", datetime.now(UTC).isoformat())
