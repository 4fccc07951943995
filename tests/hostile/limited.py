"""Commands under limits: of time, of memory and of written bytes.

One process has Clew loaded, and runs each command in a fork of itself: that costs a hundredth of
starting Python anew. The fork limits itself before it begins. Processor time is what counts, since
a machine may be busy; the clock on the wall only tells what waits for ever.
"""

from __future__ import annotations

import io
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIB = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """What one command may take. Memory is address space beyond what the process had before."""

    cpu_seconds: int = 10
    wall_seconds: int = 60
    memory_bytes: int = 640 * MIB
    written_bytes: int = 96 * MIB


@dataclass(frozen=True)
class Ended:
    """How a command ended, what it said, and what it took."""

    code: int
    said: str
    ended_by: str | None
    cpu_seconds: float
    written_bytes: int

    def failings(self, limits: Limits) -> list[str]:
        """What no store may bring about, whatever is in it."""
        found = []
        if self.ended_by is not None:
            found.append(f"it was ended by {self.ended_by}")
        if self.code == 70 or "mistake in Clew" in self.said:
            found.append("it calls that a mistake of Clew's")
        if "Traceback" in self.said:
            found.append("it shows a traceback")
        if self.written_bytes > limits.written_bytes:
            found.append(f"it wrote {self.written_bytes:,} bytes")
        if len(self.said) > 256 * 1024 and self.code:
            found.append(f"its error has {len(self.said):,} characters")
        return [f"{one}: …{self.said[-1500:]}" for one in found]


class Runner:
    """The process with Clew loaded. Use it as a context manager."""

    def __init__(self) -> None:
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), COLUMNS="120")
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(self, arguments: Sequence[str], folder: Path, limits: Limits | None = None) -> Ended:
        """Run `clew` with arguments, in a folder."""
        return self.run_all([arguments], folder, limits)

    def run_all(
        self, commands: Sequence[Sequence[str]], folder: Path, limits: Limits | None = None
    ) -> Ended:
        """Several commands, one after the other, in one process; the worst of their exit codes."""
        return self._ask({"commands": [list(one) for one in commands]}, folder, limits)

    def call(self, function: str, folder: Path, limits: Limits, *arguments: str) -> Ended:
        """Call a function, "module:name", with texts; an error that is not Clew's is code 70."""
        asked = {"function": function, "arguments": list(arguments)}
        return self._ask(asked, folder, limits)

    def _ask(self, asked: dict[str, Any], folder: Path, limits: Limits | None) -> Ended:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked |= {"folder": str(folder), "limits": vars(limits or Limits())}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))


# --- in the other process -------------------------------------------------------------------


def serve() -> None:
    from clew.cli import main

    _warm_up(main)
    for line in sys.stdin.buffer:
        asked = json.loads(line)
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as told:
            ended = _run(asked, Limits(**asked["limits"]), said, told)
        sys.stdout.buffer.write(json.dumps(ended).encode() + b"\n")
        sys.stdout.buffer.flush()


def _warm_up(main: Any) -> None:
    """Load what commands import when they run, once for all of them."""
    kept = os.dup(1)
    with tempfile.TemporaryDirectory() as folder, open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 1)
        for address in (f"{folder}/s.db", f"files:{folder}/s"):
            main(["new", address])
            for command in ("list", "verify", "doctor", "stats"):
                main([command, address])
            main(["search", "word", "--store", address])
    os.dup2(kept, 1)
    os.close(kept)


def _run(asked: dict[str, Any], limits: Limits, said: Any, told: Any) -> dict[str, Any]:
    child = os.fork()
    if child == 0:
        _work(asked, limits, said.fileno(), told.fileno())
    handle = os.pidfd_open(child)
    ready, _, _ = select.select([handle], [], [], limits.wall_seconds)
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    os.close(handle)
    by = None
    if os.WIFSIGNALED(status):
        by = signal.Signals(os.WTERMSIG(status)).name if ready else "waiting for ever"
    said.seek(0)
    told.seek(0)
    written = told.read()
    return {
        "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1,
        "said": said.read(2 * MIB).decode("utf-8", "replace"),
        "ended_by": by,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "written_bytes": int(written or 0),
    }


def _work(asked: dict[str, Any], limits: Limits, said: int, told: int) -> None:
    code = 70
    try:
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
        sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)
        os.close(0)
        os.open(os.devnull, os.O_RDONLY)
        os.chdir(asked["folder"])
        _limit(limits)
        code = _code(asked)
    except BaseException as error:
        print(f"mistake in Clew: {error!r:.500}", file=sys.stderr)
    finally:
        with open("/proc/self/io") as counters:
            written = next(line for line in counters if line.startswith("wchar"))
        os.write(told, str(int(written.split()[1]) - os.fstat(1).st_size).encode())
        os._exit(code)


def _limit(limits: Limits) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    memory = pages * os.sysconf("SC_PAGE_SIZE") + limits.memory_bytes
    for what, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_FSIZE, limits.written_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))


def _code(asked: dict[str, Any]) -> int:
    from clew.cli import main

    if "function" not in asked:
        codes = []
        for arguments in asked["commands"]:
            print(f"$ clew {' '.join(arguments)}"[:300], file=sys.stderr)
            try:
                codes.append(int(main(arguments) or 0))
            except SystemExit as end:
                codes.append(int(end.code or 0))
            if codes[-1] == 70:
                break  # what it said stands last
        return max(codes)
    from importlib import import_module

    from clew import ClewError

    module, _, name = asked["function"].partition(":")
    try:
        getattr(import_module(module), name)(*asked["arguments"])
    except ClewError as error:
        print(error)
        return 1
    return 0


if __name__ == "__main__":
    serve()
