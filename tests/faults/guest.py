"""Inside of the virtual machine: the first program that the kernel starts.

It tells what the store on the disk holds, and then appends to it, and tells of each entry that was
acknowledged, until the power is cut. Every word goes through the console.
"""

from __future__ import annotations

import ctypes
import os
import sys
import traceback
from pathlib import Path

DISK = "/dev/vda"


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for name in ("proc", "sys", "dev", "disk", "tmp"):
        os.makedirs(f"/{name}", exist_ok=True)
    for kind, place in (("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")):
        libc.mount(kind.encode(), place.encode(), kind.encode(), 0, None)
    waiting = Path("/modules.txt").read_text().split()
    # Which one needs which other one is not the same in all kernels, so what refuses is tried again
    # behind the others; what is built in refuses for ever.
    while refused := [module for module in waiting if not load(libc, module)]:
        if len(refused) == len(waiting):
            break
        waiting = refused
    words = Path("/proc/cmdline").read_text().split()
    asked = dict(word.split("=", 1) for word in words if "=" in word)
    if libc.mount(DISK.encode(), b"/disk", b"ext4", 0, b"data=ordered") != 0:
        tell(f"FAILED {DISK} cannot be mounted: {os.strerror(ctypes.get_errno())}")
        return
    sys.path.insert(0, "/site")
    work(asked["clew.address"], asked["clew.durability"], int(asked["clew.round"]))


def load(libc: ctypes.CDLL, module: str) -> bool:
    descriptor = os.open(module, os.O_RDONLY)
    try:
        compressed = 0 if module.endswith(".ko") else 4
        return bool(libc.syscall(313, descriptor, b"", compressed) == 0)  # finit_module
    finally:
        os.close(descriptor)


def work(address: str, durability: str, number: int) -> None:
    import clew

    with clew.open(address, durability=durability) as store:
        for problem in store.verify():
            tell(f"FAILED verify: {problem}")
        if number > 1:
            look(store, number)
        thread = store.get_or_create("t")
        for n in range(1, 1_000_000):
            body: object = {"n": n, "text": "x" * (70_000 if n % 9 == 0 else 10 * (n % 50))}
            blobs = [store.blobs.put(b"%d-%d" % (number, n))] if n % 5 == 0 else []
            thread.append("event", body, id=f"r{number}-{n}", blobs=blobs)
            tell(f"ACK {n}")
            if n % 7 == 0:
                store.create(f"fork-{number}-{n}").append("event", n)
                thread.set_facts({"status": f"at {n}"})


def look(store: object, number: int) -> None:
    """How many entries each round has: all of them once, in order, with their blobs."""
    found: dict[int, int] = {}
    thread = store.find("t")  # type: ignore[attr-defined]
    for entry in () if thread is None else thread.path():
        of, n = map(int, entry.id[1:].split("-"))
        if n != found.get(of, 0) + 1 or entry.body["n"] != n:
            tell(f"FAILED entry {entry.id} comes after {found.get(of)} of its round")
        for blob in entry.blobs:
            if store.blobs.get(blob) != b"%d-%d" % (of, n):  # type: ignore[attr-defined]
                tell(f"FAILED the blob of {entry.id} is another one")
        found[of] = n
    for of in range(1, number):
        tell(f"FOUND {of} {found.get(of, 0)}")


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
