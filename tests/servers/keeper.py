"""Runs a command, and ends all of it when the process that asked for it is gone.

    python keeper.py PARENT UID:GID FOLDER COMMAND...

A server must not outlive its tests, also not when they are killed with SIGKILL or the server
moved to a session of its own. So this small process stands between the two: it adopts what its
command leaves behind (on Linux), looks whether PARENT still is its parent, and if not kills
everything and removes FOLDER. `-` stands for "as I am" and "no folder".
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
LOOK_SECONDS = 0.25


def main(parent: int, account: str, folder: str, command: list[str]) -> int:
    adopt_orphans()
    woken = wake_on_child()
    child = subprocess.Popen(command, **credentials(account))
    code = 0
    while True:
        for pid, status in reaped():
            code = os.waitstatus_to_exitcode(status) if pid == child.pid else code
        if not has_children():
            return code if code >= 0 else 128 - code
        if os.getppid() != parent:
            end_everything()
            if folder != "-":
                shutil.rmtree(folder, ignore_errors=True)
            return 1
        if select.select([woken], [], [], LOOK_SECONDS)[0]:
            os.read(woken, 4096)


def adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def wake_on_child() -> int:
    """A descriptor that becomes readable when a child ends."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading


def credentials(account: str) -> dict[str, Any]:
    if account == "-":
        return {}
    uid, gid = account.split(":")
    return {"user": int(uid), "group": int(gid), "extra_groups": []}


def reaped() -> list[tuple[int, int]]:
    found = []
    while has_children():
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            break
        found.append((pid, status))
    return found


def has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def end_everything() -> None:
    """Whoever loses its parent becomes our child, so the rounds reach everybody."""
    import psutil  # only now: it takes longer to load than all the rest

    while has_children():
        for process in psutil.Process().children(recursive=True):
            try:
                process.kill()
            except psutil.NoSuchProcess:
                pass
        select.select([], [], [], 0.01)
        reaped()


if __name__ == "__main__":
    # Not sys.exit: there is nothing to clean up, and nobody waits for a slow interpreter.
    os._exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]))
