"""Other processes of a test: agents that are killed, and others that go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    """Run a script of this folder."""
    command = [sys.executable, "-W", "ignore", str(HERE / script), *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def said(process: subprocess.Popen[str]) -> list[str]:
    """What it said until its end, which was a good one."""
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return out.splitlines()


def told(process: subprocess.Popen[str], line: str) -> list[str]:
    """What it said after it was told a line, until its end."""
    out, errors = process.communicate(f"{line}\n", timeout=60)
    assert process.returncode == 0, errors
    return out.splitlines()


def killed(process: subprocess.Popen[str]) -> list[str]:
    """What it said until it was killed."""
    out, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, errors
    return out.splitlines()


def tell(line: str) -> None:
    """One line to the parent, in one write, so that what arrives was really said."""
    os.write(1, (line + "\n").encode())


def die() -> None:
    """What a crash of the machine looks like to what is written next."""
    os.kill(os.getpid(), signal.SIGKILL)
