"""Power cuts on a real kernel: a small virtual machine writes to a store, and is killed.

QEMU runs a Linux kernel with nothing but Python and Clew in its memory; the store is on an ext4
file system, on a disk that forgets what was not flushed (faults/volatile.py), and that stops after
some write, in the middle of what is going on. To kill the machine drops its page cache. The next
one, on what is left of the disk, says what the store holds: every entry that was acknowledged must
be there, once, in order, and verify must be content.
"""

from __future__ import annotations

import importlib.util
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from faults.points import Outcome
from faults.volatile import Server, VolatileDisk

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
KERNELS = (Path("/"), HERE.parents[1] / ".venv" / "kernel")
WRITERS = 3  # processes: on SQLite the one at the front writes for those that wait
DISK_BYTES = 64 * 1024 * 1024
BOOT_SECONDS = 300.0
PACKAGES = ("apsw", "msgspec", "blake3", "pathspec", "backports", "typing_extensions")
# A kernel that has one built in lacks its file.
MODULES = (
    *("crc16", "crc32c_generic", "libcrc32c", "mbcache", "jbd2", "ext4"),
    *("virtio", "virtio_ring", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci"),
    "virtio_blk",
)
# In a machine that is virtual itself the host's own list of capabilities cannot be set.
CPUS = {"kvm": "host,arch-capabilities=off", "tcg": "max"}
_LEFT_OUT = ("site-packages", "test", "idlelib", "lib2to3", "ensurepip", "tkinter", "turtledemo")
_PLACES = {"sqlite": "/disk/s.db", "files": "files:/disk/store"}


@dataclass(frozen=True)
class Kernel:
    image: Path
    modules: Path


class Missing(Exception):
    """Why there can be no virtual machine here."""


def run(engine: str, folder: Path, cuts: int, outcome: Outcome, durability: str = "full") -> None:
    """Write, cut, look, as often as asked for; each machine looks at what the last one left."""
    kernel = find_kernel()
    folder.mkdir(parents=True, exist_ok=True)
    memory = folder / "initramfs"
    memory.write_bytes(initramfs(kernel))
    chance = random.Random(f"{engine} {durability}")
    disk = VolatileDisk(empty_disk(folder))
    acknowledged: dict[str, int] = {}  # by round and writer
    lost = 0
    with Server(disk, folder / "disk") as server:
        for number in range(1, cuts + 2):
            last = number > cuts  # only looks
            until = 1 if last else chance.randint(1, 120)
            options = {"address": _PLACES[engine], "durability": durability}
            options |= {"round": str(number), "writers": str(WRITERS)}
            with machine(kernel, memory, folder / "disk", options) as running:
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
            acknowledged |= found  # what is there stays there from now on
            if failures or last:
                break
            acknowledged |= acked
            lost += disk.cut(chance)
            outcome.points += 1
    total = sum(acknowledged.values())
    outcome.notes.append(
        f"{total:,} entries, {lost:,} unflushed sectors lost, {accelerator(kernel)}"
    )


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
def machine(kernel: Kernel, memory: Path, disk: Path, options: dict[str, str]) -> Iterator[Running]:
    words = " ".join(f"clew.{name}={value}" for name, value in options.items())
    command = [
        *("timeout", "--signal=KILL", str(BOOT_SECONDS), *qemu(kernel, accelerator(kernel))),
        *("-initrd", str(memory), "-append", f"console=ttyS0 quiet panic=-1 {words}"),
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


def missing() -> str | None:
    try:
        find_kernel()
    except Missing as reason:
        return str(reason)
    return None


def empty_disk(folder: Path) -> bytes:
    image = folder / "empty"
    with image.open("wb") as file:
        file.truncate(DISK_BYTES)
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    command = ["mke2fs", "-q", "-F", "-t", "ext4", str(image)]
    subprocess.run(command, check=True, env=os.environ | {"PATH": path})
    return image.read_bytes()


# --- what the machine has in its memory: an archive of files, in the kernel's own format ---


def initramfs(kernel: Kernel) -> bytes:
    """Python at the place where it is here, Clew and what it needs, and the kernel's modules."""
    archive = Archive()
    python = Path(os.path.realpath(sys.executable))
    library = Path(sysconfig.get_paths(vars={"base": sys.base_prefix})["stdlib"])
    archive.add_tree(library, library, _LEFT_OUT)
    archive.add_file(python, python)
    archive.add_tree(SOURCE / "clew", Path("/site/clew"))
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        for place in () if spec is None else spec.submodule_search_locations or ():
            archive.add_tree(Path(place), Path("/site") / name)
        if spec is not None and spec.submodule_search_locations is None:
            archive.add_file(Path(str(spec.origin)), Path("/site") / Path(str(spec.origin)).name)
    archive.add_libraries()
    modules = [path for name in MODULES for path in sorted(kernel.modules.rglob(f"{name}.ko*"))]
    for module in modules:
        archive.add_file(module, Path("/modules") / module.name)
    archive.add("/modules.txt", "\n".join(f"/modules/{one.name}" for one in modules).encode())
    script = f"#!{python} -I\n" + (HERE / "guest.py").read_text("utf-8")
    archive.add("/init", script.encode(), mode=0o755)
    return archive.bytes()


class Archive:
    """The format that the kernel unpacks into its memory: cpio, "newc"."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._names: set[str] = set()
        self._binaries: list[Path] = []
        self._entry("dev", stat.S_IFDIR | 0o755)
        self._entry("dev/console", stat.S_IFCHR | 0o600, device=(5, 1))

    def add_tree(self, folder: Path, target: Path, without: tuple[str, ...] = ()) -> None:
        for path in sorted(folder.rglob("*")):
            parts = path.relative_to(folder).parts
            if not set(parts) & {*without, "__pycache__"} and not parts[0].startswith("config-"):
                self.add_file(path, target / path.relative_to(folder))

    def add_file(self, path: Path, target: Path) -> None:
        if path.is_file():
            self.add(str(target), path.read_bytes(), mode=0o755)
            if ".so" in path.name or path.name.startswith("python"):
                self._binaries.append(path)

    def add_libraries(self) -> None:
        """Whatever the loader would look for, at the places where it is here."""
        command = ["ldd", *map(str, self._binaries)]
        done = subprocess.run(command, capture_output=True, text=True)
        for name in sorted(set(re.findall(r"(/\S+) \(0x", done.stdout))):
            self.add_file(Path(name), Path(name))

    def add(self, name: str, data: bytes, mode: int = 0o644) -> None:
        name = name.lstrip("/")
        for above in reversed(Path(name).parents[:-1]):
            self._entry(str(above), stat.S_IFDIR | 0o755)
        self._entry(name, stat.S_IFREG | mode, data)

    def bytes(self) -> bytes:
        self._entry("TRAILER!!!", 0)
        return b"".join(self._pieces)

    def _entry(
        self, name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)
    ) -> None:
        if name in self._names:
            return
        self._names.add(name)
        path = name.encode() + b"\0"
        links = 2 if stat.S_ISDIR(mode) else 1
        numbers = (len(self._names), mode, 0, 0, links, 0, len(data), 0, 0, *device, len(path), 0)
        head = b"070701" + b"".join(b"%08X" % number for number in numbers) + path
        for piece in (head, data):
            self._pieces += [piece, bytes(-len(piece) % 4)]
