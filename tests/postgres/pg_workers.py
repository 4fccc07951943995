"""What the processes of these tests do. Run as a script: `pg_workers.py ROLE ARGUMENTS…`."""

from __future__ import annotations

import os
import sys

import clew


def tell(line: str) -> None:
    """One line to the parent, in one write, so that what arrives was really said."""
    os.write(1, (line + "\n").encode())


def append(address: str, name: str, threads: str, count: str) -> None:
    """Append to threads in turn, when told to begin; tell each id once it is acknowledged."""
    with clew.open(address, busy_seconds=60) as store:
        handles = [store.get(thread) for thread in threads.split(",")]
        tell("ready")
        sys.stdin.read()
        for n in range(int(count)):
            handle = handles[n % len(handles)]
            body = {"from": name, "n": n, "text": "x" * (10_000 if n % 10 == 0 else 100)}
            entry = handle.append("event", body)
            tell(f"{handle.id} {entry.id} {entry.seq}")


ROLES = {role.__name__: role for role in (append,)}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
