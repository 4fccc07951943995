"""Inside of the virtual machine: the first program that the kernel starts.

It starts the server, if the store needs one, on what is left on the disk, and tells what the store
holds. Then several processes append to it, each to a thread of its own, and tell of each entry that
was acknowledged, until the power is cut. Every word goes through the console. What it shall do is
in /task.json (faults/places.py).
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import clew

DISK = "/dev/vda"
LOG = Path("/tmp/server.log")
Task = dict[str, Any]


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for name in ("proc", "sys", "dev", "disk", "tmp"):
        os.makedirs(f"/{name}", exist_ok=True)
    for kind, place in (("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")):
        libc.mount(kind.encode(), place.encode(), kind.encode(), 0, None)
    load(libc, Path("/modules.txt").read_text().split())
    words = Path("/proc/cmdline").read_text().split()
    asked = dict(word.split("=", 1) for word in words if "=" in word)
    if libc.mount(DISK.encode(), b"/disk", b"ext4", 0, b"data=ordered") != 0:
        tell(f"FAILED {DISK} cannot be mounted: {os.strerror(ctypes.get_errno())}")
        return
    os.chmod("/tmp", 0o1777)
    for name in ("dirty_expire_centisecs", "dirty_writeback_centisecs"):
        # What was written and is not synced is on its way to the disk at once, not in seconds.
        Path(f"/proc/sys/vm/{name}").write_text("5")
    sys.path.insert(0, "/site")
    task: Task = json.loads(Path("/task.json").read_text())
    number = int(asked["clew.round"])
    if task["server"]:
        start(task["server"], number)
    look(task, number)
    for writer in range(1, task["writers"]):
        if os.fork() == 0:
            write(task, number, writer)
    if task["server"] and os.fork() == 0:
        ask(task["address"], task["server"]["often"])
    write(task, number, 0)


def load(libc: ctypes.CDLL, modules: list[str]) -> None:
    """Which one needs which differs by kernel: those that were refused are tried once more."""
    refused = []
    for module in modules:
        descriptor = os.open(module, os.O_RDONLY)
        compressed = 0 if module.endswith(".ko") else 4
        if libc.syscall(313, descriptor, b"", compressed) != 0:  # finit_module
            refused.append(module)
        os.close(descriptor)
    if len(refused) < len(modules):
        load(libc, refused)


def start(server: dict[str, Any], number: int) -> None:
    """Start it as the owner of its data, who is not root; it takes clients on return."""
    owner = os.stat(server["data"])
    LOG.touch()
    process = os.fork()
    if process == 0:
        for descriptor in (1, 2):
            os.dup2(os.open(LOG, os.O_WRONLY | os.O_APPEND), descriptor)
        os.setgroups([])
        os.setgid(owner.st_gid)
        os.setuid(owner.st_uid)
        os.execv(server["command"][0], server["command"])
    while server["ready"] not in LOG.read_text(errors="replace"):
        if os.waitpid(process, os.WNOHANG) != (0, 0):
            raise RuntimeError(f"the server ended: {LOG.read_text(errors='replace')[-1000:]}")
        time.sleep(0.05)
    if number > 1 and server["recovered"] not in LOG.read_text(errors="replace"):
        tell("FAILED the server found nothing to recover from: the power was not cut")


def opened(task: Task) -> clew.Store:
    import clew

    store = clew.open(task["address"], **task["options"])
    found = store.properties.durability
    if found != task["durability"]:
        tell(f"FAILED the durability is {found} and should be {task['durability']}")
    return store


def look(task: Task, number: int) -> None:
    """How many entries each writer of each round has: all of them once, in order, with blobs."""
    with opened(task) as store:
        for problem in store.verify():
            tell(f"FAILED verify: {problem}")
        for writer in range(task["writers"]):
            found: dict[int, int] = {}
            thread = store.find(f"t{writer}")
            for entry in () if thread is None else thread.path():
                of, n = map(int, entry.id[1:].split("-"))
                if n != found.get(of, 0) + 1 or entry.body["n"] != n:
                    tell(f"FAILED entry {entry.id} comes after {found.get(of)} of its round")
                for blob in entry.blobs:
                    if store.blobs.get(blob) != b"%d-%d-%d" % (of, writer, n):
                        tell(f"FAILED the blob of {entry.id} is another one")
                found[of] = n
            for of in range(1, number):
                tell(f"FOUND {of}.{writer} {found.get(of, 0)}")


def write(task: Task, number: int, writer: int) -> None:
    with opened(task) as store:
        thread = store.get_or_create(f"t{writer}")
        for n in range(1, 1_000_000):
            body: object = {"n": n, "text": "x" * (70_000 if n % 9 == 0 else 10 * (n % 50))}
            blobs = [store.blobs.put(b"%d-%d-%d" % (number, writer, n))] if n % 5 == 0 else []
            thread.append("event", body, id=f"r{number}-{n}", blobs=blobs)
            tell(f"ACK {number}.{writer} {n}")
            if n % 7 == 0:
                store.create(f"fork-{number}-{writer}-{n}").append("event", n)
                thread.set_facts({"status": f"at {n}"})


def ask(address: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        while True:
            connection.execute(statement.encode())
            time.sleep(0.1)


def tell(text: str) -> None:
    os.write(1, f"\n@ {text} .\n".encode())


if __name__ == "__main__":
    try:
        main()
    except BaseException:
        tell("FAILED " + traceback.format_exc()[-1500:].replace("\n", " | "))
    tell("END")
    while True:  # the first program may not end; the host ends the machine
        os.read(0, 1)
