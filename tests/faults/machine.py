"""Power cuts on a real kernel: a small virtual machine writes to a store, and is killed.

QEMU runs a Linux kernel with nothing but Python, Clew and what its engine needs (faults/places.py)
in its memory; the store is on an ext4 file system, on a disk that forgets what was not flushed
(faults/volatile.py), and that stops after some write, in the middle of what is going on. To kill
the machine drops its page cache. The next one, on what is left of the disk, says what the store
holds: every entry that was acknowledged must be there, once, in order, and verify must be content.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from faults.archive import Archive
from faults.places import PLACES, Missing, Place, Prepared
from faults.points import Outcome
from faults.volatile import Server, VolatileDisk

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
KERNELS = (Path("/"), HERE.parents[1] / ".venv" / "kernel")
WRITERS = 3  # processes: on SQLite the one at the front writes for those that wait
BOOT_SECONDS = 300.0
# A kernel that has one built in lacks its file.
MODULES = (
    *("crc16", "crc32c_generic", "libcrc32c", "mbcache", "jbd2", "ext4"),
    *("virtio", "virtio_ring", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci"),
    "virtio_blk",
)
# In a machine that is virtual itself the host's own list of capabilities cannot be set.
CPUS = {"kvm": "host,arch-capabilities=off", "tcg": "max"}
_LEFT_OUT = ("site-packages", "test", "idlelib", "lib2to3", "ensurepip", "tkinter", "turtledemo")


@dataclass(frozen=True)
class Kernel:
    image: Path
    modules: Path


def run(engine: str, folder: Path, cuts: int, outcome: Outcome, durability: str = "full") -> None:
    """Write, cut, look, as often as asked for; each machine looks at what the last one left."""
    kernel = find_kernel()
    folder.mkdir(parents=True, exist_ok=True)
    memory = folder / "initramfs"
    place, archive = PLACES[engine], Archive()
    place.check()
    with place.prepare(archive) as prepared:
        disk = VolatileDisk(first_disk(folder, place, prepared))
    task = place.task(durability, WRITERS, prepared)
    memory.write_bytes(initramfs(archive, kernel, place, task))
    chance = random.Random(f"{engine} {durability}")
    acknowledged: dict[str, int] = {}  # by round and writer
    total = missing = lost = 0
    with Server(disk, folder / "disk") as server:
        for number in range(1, cuts + 2):
            last = number > cuts  # only looks
            until = 1 if last else chance.randint(1, 120)
            with machine(kernel, memory, folder / "disk", number) as running:
                found, failures, acked = listen(running.console, until)
                if not last and not failures:
                    disk.cut_after(chance.randint(0, 25))
                    if not disk.dead.wait(BOOT_SECONDS):
                        failures.append("the machine wrote no more")
                running.kill()
                acked |= listen(running.console)[2]  # what it had said until then, too
            server.idle.wait()
            where = f"{engine}, real kernel, cut {number - 1}"
            outcome.failures += [f"{where}: {failure}" for failure in failures]
            for before, count in acknowledged.items():
                if found.get(before, -1) < count:
                    text = f"{count} entries acknowledged to round and writer {before}"
                    outcome.failures.append(f"{where}: {text}, {found.get(before)} are there")
                    missing += count - found.get(before, 0)
            acknowledged |= found  # what is there stays there from now on
            if failures or last:
                break
            acknowledged |= acked
            total += sum(acked.values())
            lost += disk.cut(chance)
            outcome.points += 1
    outcome.notes += [
        f"{total:,} entries acknowledged, {missing:,} missing",
        f"{lost:,} unflushed sectors lost, {accelerator(kernel)}",
    ]


def listen(
    console: Iterable[str], until: int | None = None
) -> tuple[dict[str, int], list[str], dict[str, int]]:
    """What the machine says until so many entries were acknowledged: found, failures, how many."""
    found: dict[str, int] = {}
    failures: list[str] = []
    acked: dict[str, int] = {}
    for line in console:
        said = re.match(r"@ (\w+) ?(.*) \.\s*$", line)
        if said is None:
            continue
        word, rest = said.groups()
        if word == "FOUND":
            of, count = rest.split()
            found[of] = int(count)
        elif word == "ACK":
            of, count = rest.split()
            acked[of] = int(count)
        elif word == "FAILED":
            failures.append(rest)
        if word == "END" or (until is not None and sum(acked.values()) >= until):
            return found, failures, acked
    return found, [*failures, "the machine ended, or did not answer in time"], acked


class Running:
    """A machine that runs, and its console, line by line."""

    def __init__(self, command: list[str]) -> None:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(
            command, text=True, errors="replace", start_new_session=True, **pipes
        )
        assert self._process.stdout is not None
        self.console = self._process.stdout

    def kill(self) -> None:
        """No power: at once, with all that was in its memory."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, 9)
            self._process.wait()


@contextmanager
def machine(kernel: Kernel, memory: Path, disk: Path, number: int) -> Iterator[Running]:
    command = [
        *("timeout", "--signal=KILL", str(BOOT_SECONDS), *qemu(kernel, accelerator(kernel))),
        *("-initrd", str(memory), "-append", f"console=ttyS0 quiet panic=-1 clew.round={number}"),
        *("-drive", f"file=nbd:unix:{disk},format=raw,if=virtio,cache=writeback"),
    ]
    running = Running(command)
    try:
        yield running
    finally:
        running.kill()
        running.console.close()


@cache
def accelerator(kernel: Kernel) -> str:
    """The processor itself, if it can: in a machine that is virtual itself it may only seem so."""
    if os.access("/dev/kvm", os.R_OK | os.W_OK):
        command = [
            "timeout",
            "--signal=KILL",
            "20",
            *qemu(kernel, "kvm"),
            "-append",
            "console=ttyS0",
        ]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
        if b"Linux version" in done.stdout:
            return "kvm"
    return "tcg"


def qemu(kernel: Kernel, accelerator: str) -> list[str]:
    return [
        *(
            "qemu-system-x86_64",
            "-nodefaults",
            "-no-reboot",
            "-display",
            "none",
            "-m",
            "1024",
            "-smp",
            "2",
        ),
        *("-accel", accelerator, "-cpu", CPUS[accelerator]),
        *("-kernel", str(kernel.image), "-serial", "stdio"),
    ]


def find_kernel() -> Kernel:
    """The machine's own kernel, or one that was fetched; Missing says what there is not."""
    for program in ("qemu-system-x86_64", "mke2fs", "ldd", "timeout"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            raise Missing(f"{program} is not installed")
    if os.uname().machine != "x86_64":
        raise Missing(f"QEMU is asked for x86_64 only, and this is {os.uname().machine}")
    for root in KERNELS:
        for image in sorted(root.glob("boot/vmlinuz-*"), reverse=True):
            version = image.name.removeprefix("vmlinuz-")
            modules = root / "lib" / "modules" / version
            if os.access(image, os.R_OK) and modules.is_dir():
                return Kernel(image, modules)
    raise Missing("there is no kernel in /boot, and none was fetched")


def missing(engine: str) -> str | None:
    try:
        find_kernel()
        PLACES[engine].check()
    except Missing as reason:
        return str(reason)
    return None


def first_disk(folder: Path, place: Place, prepared: Prepared) -> bytes:
    """An ext4 file system with what the engine's server has made, or empty."""
    image = folder / "first"
    with image.open("wb") as file:
        file.truncate(place.disk_bytes)
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    contents = ["-d", str(prepared.disk)] if prepared.disk else []
    # With checksums of its own ext4 refuses to mount once a superblock or a commit record is torn,
    # which it has two sectors for: it counts on disks that do not tear its blocks. This one does.
    features = ["-O", "^metadata_csum"]
    command = ["mke2fs", "-q", "-F", "-t", "ext4", *features, *contents, str(image)]
    subprocess.run(command, check=True, env=os.environ | {"PATH": path})
    data = image.read_bytes()
    image.unlink()
    return data


def initramfs(archive: Archive, kernel: Kernel, place: Place, task: dict[str, Any]) -> bytes:
    """Python at the place where it is here, Clew and what it needs, and the kernel's modules."""
    python = Path(os.path.realpath(sys.executable))
    library = Path(sysconfig.get_paths(vars={"base": sys.base_prefix})["stdlib"])
    archive.add_tree(library, library, _LEFT_OUT)
    archive.add_file(python, python)
    archive.add_tree(SOURCE / "clew", Path("/site/clew"))
    for name in place.packages:
        archive.add_package(name, Path("/site"))
    archive.add_libraries()
    modules = [path for name in MODULES for path in sorted(kernel.modules.rglob(f"{name}.ko*"))]
    for module in modules:
        archive.add_file(module, Path("/modules") / module.name)
    archive.add("/modules.txt", "\n".join(f"/modules/{one.name}" for one in modules).encode())
    archive.add("/task.json", json.dumps(task).encode())
    script = f"#!{python} -I\n" + (HERE / "guest.py").read_text("utf-8")
    archive.add("/init", script.encode(), mode=0o755)
    return archive.bytes()
