"""What the processes of these tests do. Run as a script: `workers.py ROLE ARGUMENTS…`."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
import time

import clew
from clew.engines.sqlite.mailbox import Guest
from clew.engines.sqlite.writer_queue import CROWD_WRITES


def tell(line: str) -> None:
    """One line to the parent, in one write, so that what arrives was really said."""
    os.write(1, (line + "\n").encode())


def append(path: str, name: str, threads: str, count: str) -> None:
    """Append to threads in turn; tell each id once it is acknowledged."""
    with clew.open(path) as store:
        handles = [store.get(thread) for thread in threads.split(",")]
        for n in range(int(count)):
            handle = handles[n % len(handles)]
            entry = handle.append("event", {"from": name, "n": n})
            tell(f"{handle.id} {entry.id} {entry.seq}")


def append_when_told(path: str, name: str, count: str) -> None:
    """Open, say so, and for each line that is read append some entries, and say "done"."""
    with clew.open(path) as store:
        thread = store.get("t")
        tell("ready")
        for _ in sys.stdin:
            for n in range(int(count)):
                entry = thread.append("event", {"from": name, "n": n})
                tell(f"{entry.id} {entry.seq}")
            tell("done")


def stop_at_front(path: str) -> None:
    """Stop at the front of the queue, before SQLite is asked for anything."""
    with clew.open(path) as store:
        store.get("t").append("event", "before")
        connections = store.engine._connections  # type: ignore[attr-defined]
        connections._queue.run(lambda: os.kill(os.getpid(), signal.SIGSTOP))
        tell("went on")
        sys.stdin.readline()


def create_when_told(path: str) -> None:
    """What nobody else can do: it waits for the front itself."""
    with clew.open(path) as store:
        tell("ready")
        sys.stdin.readline()
        store.create("made")
        tell("made")


def interrupt_in_queue(path: str) -> None:
    """Say what Ctrl-C did to an append that waits in the queue, and to the one after it."""
    with clew.open(path) as store:
        thread = store.get("t")
        tell("ready")
        try:
            thread.append("event", "interrupted")
            tell("not interrupted")
        except KeyboardInterrupt:
            tell("interrupted")
        thread.append("event", "after")
        tell("written")


def write_for_others(path: str, moment: str, signal_name: str) -> None:
    """Write with an append of its own what others ask for, and do something to itself meanwhile.

    At the front it says so, and goes on when told; then it says how many errands it has taken.
    """

    def strike(now: str) -> None:
        if now == moment:
            os.kill(os.getpid(), getattr(signal, signal_name))

    def guests(most: int) -> list[Guest]:
        tell("at front")
        sys.stdin.readline()
        strike("before")
        found = take(most)
        tell(f"took {len(found)}")
        strike("taken")
        return found

    def reply(guests: list[Guest]) -> None:
        strike("committed")
        answer(guests)

    with clew.open(path) as store:
        thread = store.get("t")
        thread.append("event", "opens the queue")
        connections = store.engine._connections  # type: ignore[attr-defined]
        queue = connections._queue
        queue._crowd = CROWD_WRITES
        take, connections.guests = connections.guests, guests
        answer, queue._mailbox.reply = queue._mailbox.reply, reply
        thread.append("event", "its own")
        tell("written")


def write_with_sqlite(path: str) -> None:
    """Another program: hold SQLite's lock by SQLite's own means until told to let go."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN IMMEDIATE")
    tell("holds it")
    sys.stdin.readline()
    db.execute("ROLLBACK")
    db.close()


def append_for_ever(path: str, name: str, begin: int) -> None:
    """Append, move and set facts until killed; say through `begin` when the first is written."""
    with clew.open(path) as store:
        thread = store.get("t")
        for n in range(1_000_000):
            body = {"n": n, "text": "x" * (20_000 if n % 7 == 0 else 300)}
            batch = [clew.draft("event", body) for _ in range(1 + n % 3)]
            for entry in thread.append(batch):
                tell(entry.id)
            if n == 0:
                os.write(begin, b"!")
            if n % 5 == 0:
                thread.move(batch[0].id)
            if n % 11 == 0:
                thread.set(title=f"{name} {n}")


def fork_ids(path: str, count: str) -> None:
    """Reserve ids for forks of one thread; fork with every other one, and purge the fork."""
    with clew.open(path) as store:
        for n in range(int(count)):
            id = store.fork_id("t")
            tell(id)
            if n % 2:
                store.fork("t", id=id)
                store.purge(id)


def get_or_create(path: str, count: str) -> None:
    """Ask for threads that other processes ask for as well, and write into each."""
    with clew.open(path) as store:
        for n in range(int(count)):
            store.get_or_create(f"t{n}").append("event")
            store.conversations.get_or_create(f"k{n}").thread.append("event")
    tell("done")


def hold_lease(path: str) -> None:
    """Take a short lease, stop, and try to write when woken."""
    with clew.open(path) as store:
        thread = store.get("t")
        lease = thread.leases.acquire("zombie", ttl_seconds=0.2)
        tell(f"acquired {lease.fence}")
        os.kill(os.getpid(), signal.SIGSTOP)
        try:
            thread.append("event", "written by a zombie", fence=lease.fence)
            tell("written")
        except clew.LeaseLost as error:
            tell(f"refused {error.fence} {error.current}")


def take_turn_and_hang(path: str) -> None:
    with clew.open(path) as store, store.get("t").turn(owner="worker", ttl_seconds=2) as turn:
        turn.append("tool_call", {"name": "sleep"})
        tell("in turn")
        time.sleep(600)


def take_steps_and_hang(path: str) -> None:
    """What an agent does that gives each step an id of its own, up to where it is killed."""
    with clew.open(path) as store, store.get("t").turn(owner="worker", ttl_seconds=2) as turn:
        turn.append_message({"role": "user", "content": "Renew it."}, id="step-1")
        turn.append("tool_call", {"name": "renew"}, id="step-2", meta={})
        turn.append([clew.draft("usage", {"tokens": 7}, id="step-3")])
        tell("in turn")
        time.sleep(600)


def crash_loop(path: str, cycles: str, seed: str) -> None:
    """Fork a writer, SIGKILL it at a random moment, again and again; it tells what it wrote.

    In every other cycle the moment is counted from the first acknowledgement, so that a busy
    machine does not kill all writers before they have written.
    """
    moments = random.Random(int(seed))
    clew.open(path).close()  # what is loaded here need not be loaded by every writer
    for cycle in range(int(cycles)):
        began, begin = os.pipe()
        child = os.fork()
        if child == 0:
            append_for_ever(path, f"cycle {cycle}", begin)
            os._exit(1)
        if cycle % 2:
            os.read(began, 1)
        time.sleep(moments.uniform(0.0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(began)
        os.close(begin)
    tell("done")


ROLES = {
    role.__name__: role
    for role in (
        append,
        append_when_told,
        crash_loop,
        create_when_told,
        fork_ids,
        get_or_create,
        hold_lease,
        interrupt_in_queue,
        stop_at_front,
        take_steps_and_hang,
        take_turn_and_hang,
        write_for_others,
        write_with_sqlite,
    )
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
