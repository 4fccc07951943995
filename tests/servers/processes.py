"""Processes that never outlive the tests, the account they run as, folders and ports for them."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import psutil

KEEPER = Path(__file__).with_name("keeper.py")

# Below what systems give to outgoing connections. A client that tries to reach a stopped server
# may otherwise be given the server's own port, connect to itself, and keep the server out.
PORT_MIN, PORT_MAX = 20_001, 29_999
# Writing to a disk, even without waiting for it, makes a fresh database ten times slower.
MEMORY, MEMORY_BYTES_MIN = Path("/dev/shm"), 2**30
_ports = itertools.count(os.getpid() * 17)


@dataclass(frozen=True)
class Account:
    uid: int
    gid: int


@cache
def account() -> Account | None:
    """Whom servers run as when we are root, which they refuse; None: as we are."""
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(found.pw_uid, found.pw_gid)
    raise RuntimeError("there is no unprivileged account: neither postgres nor nobody")


def can_enter(folder: Path) -> bool:
    """Whether the servers' account gets to this folder."""
    who = account()
    if who is None:
        return os.access(folder, os.X_OK)
    stats = [path.stat() for path in (folder, *folder.resolve().parents)]
    return all(s.st_mode & stat.S_IXOTH or s.st_uid == who.uid for s in stats)


def private_folder(name: str, *, memory: bool = False) -> Path:
    """A new folder of the servers' account, with a path short enough for unix sockets.

    It does not lie under pytest's folder, which is closed to other accounts, and which every
    other pytest on the machine closes again. `memory` asks for one that never meets a disk.
    """
    places = [Path(tempfile.gettempdir()), Path("/tmp"), Path("/var/tmp")]
    if memory and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN:
        places.insert(0, MEMORY)
    parent = next((path for path in places if path.is_dir() and can_enter(path)), None)
    if parent is None:
        raise RuntimeError(f"the servers' account can enter none of {places}")
    folder = Path(tempfile.mkdtemp(prefix=f"clew-{name}-", dir=parent)).resolve()
    hand_over(folder)
    return folder


def hand_over(path: Path) -> None:
    if (who := account()) is not None:
        os.chown(path, who.uid, who.gid)


def spawn(
    command: Sequence[str | Path],
    *,
    folder: Path,
    log: Path,
    remove: Path | None = None,
    enters_all: bool = False,
) -> subprocess.Popen[bytes]:
    """The keeper of a command that runs in this folder as the servers' account.

    It ends when the command and all its descendants have ended. If we die, they are killed,
    and the folder `remove` goes. `enters_all` is for Python programs: root's interpreter may lie
    where only root can enter, so the account is given that one right of root's.
    """
    who = account()
    if enters_all and who is not None:
        command, who = (*setpriv(who), *command), None
    keeper = [sys.executable, "-I", KEEPER, os.getpid(), f"{who.uid}:{who.gid}" if who else "-"]
    with log.open("ab") as out:
        return subprocess.Popen(
            [str(part) for part in (*keeper, remove or "-", *command)],
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def setpriv(who: Account) -> tuple[str, ...]:
    right = "+dac_read_search"
    return (
        "setpriv",
        f"--reuid={who.uid}",
        f"--regid={who.gid}",
        "--clear-groups",
        f"--inh-caps={right}",
        f"--ambient-caps={right}",
    )


def run(command: Sequence[str | Path], *, folder: Path, remove: Path | None = None) -> None:
    """Runs a command to its end; what it said is the error if it failed."""
    log = folder / f"{Path(command[0]).name}.log"
    if spawn(command, folder=folder, log=log, remove=remove).wait() != 0:
        raise RuntimeError(f"{command[0]} failed: {log.read_text(errors='replace')}")


def environment() -> dict[str, str]:
    """Ours, without what would lead servers and their tools to somebody else's database."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("PG", "PATRONI", "ETCD", "LC_"))
    }
    return kept | {"LANG": "C"}


def family(*pids: int) -> list[psutil.Process]:
    """Processes and all their descendants."""
    found: list[psutil.Process] = []
    for pid in pids:
        try:
            head = psutil.Process(pid)
            found += [head, *head.children(recursive=True)]
        except psutil.NoSuchProcess:
            pass
    return found


def kept_by(keeper: subprocess.Popen[bytes]) -> list[int]:
    """The processes that a keeper's command began with or left behind."""
    try:
        return [child.pid for child in psutil.Process(keeper.pid).children()]
    except psutil.NoSuchProcess:
        return []


def signal_all(processes: Sequence[psutil.Process], number: int) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            pass


def freeze(*pids: int) -> list[psutil.Process]:
    """Stops processes and all their descendants, parents first; all stand still on return."""
    frozen: list[psutil.Process] = []
    while found := [process for process in family(*pids) if process not in frozen]:
        for process in found:
            signal_all([process], signal.SIGSTOP)
            wait_until(partial(stands_still, process), "a process is frozen", every=0.0005)
        frozen += found
    return frozen


def stands_still(process: psutil.Process) -> bool:
    try:
        return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def thaw(*pids: int) -> None:
    signal_all(family(*pids), signal.SIGCONT)


def kill(*pids: int) -> None:
    """SIGKILL for processes and all their descendants at once, as if the machine had died."""
    victims = freeze(*pids)
    signal_all(victims, signal.SIGKILL)
    _, alive = psutil.wait_procs(victims, timeout=30)
    assert not alive, f"{alive} survived SIGKILL"


def end(keeper: subprocess.Popen[bytes] | None) -> None:
    """Kills all that a keeper keeps, after which it ends by itself."""
    if keeper is not None and keeper.poll() is None:
        kill(*kept_by(keeper))
        keeper.wait(60)


def free_port() -> int:
    """A port nobody listens on at the moment; another one each time."""
    for _ in range(PORT_MAX - PORT_MIN):
        port = PORT_MIN + next(_ports) % (PORT_MAX - PORT_MIN)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no port is free")


def wait_until(
    happened: Callable[[], bool], what: str, *, seconds: float = 60, every: float = 0.01
) -> None:
    """Asks until it happened; the time is for machines that are busy, not for the server."""
    deadline = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds:g} seconds: {what}")
        time.sleep(every)
