"""Carry on: a thread is written where an agent looks for its sessions, to be continued there.

A file of the agent that is there and says something else is never touched: then the thread gets a
session of its own. What the agent adds comes back with the next import, as a fork of the thread.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from clew.core.errors import InvalidInput
from clew.interchange.export import Change, Writing
from clew.interchange.handover import Seat
from clew.interchange.values import Lines, open_values
from clew.thread import Thread

AGENTS = {
    "claude-code": "claude_code_file",
    "codex": "codex_file",
    "pi": "pi_file",
    "opencode": "opencode_file",
}
_TRIES = 1000


class File(Protocol):
    """What a module has that writes the files of an agent."""

    def seat(
        self, thread: Thread, workspace: str | None = None, fresh: int | None = None
    ) -> Seat: ...

    def place(self, seat: Seat, home: Path, environ: Mapping[str, str]) -> Path:
        """Where the agent looks for the file of a session."""
        ...

    def compose(self, thread: Thread, seat: Seat, writing: Writing) -> Iterable[bytes]:
        """The file of a session."""
        ...

    def commands(self, seat: Seat, path: Path) -> list[list[str]]:
        """What continues a session: the last one does, those before it make it known."""
        ...


class Resumed(Struct, frozen=True, kw_only=True):
    """A session that an agent can continue: `command` does, once all of `before` were run.

    `is_new`: its file was written now; it was not there before.
    """

    agent: str
    session: str
    path: Path
    workspace: str
    command: list[str]
    before: list[list[str]]
    is_new: bool
    changes: list[Change]

    @property
    def line(self) -> str:
        """The command as one types it."""
        commands = [["cd", self.workspace], *self.before, self.command]
        return " && ".join(map(shlex.join, commands))


def resume(
    thread: Thread,
    agent: str,
    *,
    workspace: str | os.PathLike[str] | None = None,
    home: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Resumed:
    """Write a thread as a session of an agent, in the agent's own folder.

    `workspace` is the folder that the agent will work in, by default the thread's. `home` and
    `environ` say where the agent's folder is, by default in the home folder of this process.
    InvalidInput: the agent is not one of AGENTS, or nothing was said in the thread.
    """
    if agent not in AGENTS:
        raise InvalidInput("agent", f"{agent!r} is not one of {', '.join(AGENTS)}")
    file: File = import_module(f"clew.interchange.{AGENTS[agent]}")
    folder = None if workspace is None else os.path.abspath(workspace)
    if folder is None and not thread.info.workspace:
        raise InvalidInput("workspace", "the thread names none, so say in which folder to go on")
    for fresh in (None, *range(_TRIES)):
        writing = Writing(agent)
        seat = file.seat(thread, folder, fresh)
        data = b"".join(file.compose(thread, seat, writing))
        path = file.place(seat, home or Path.home(), environ or {})
        is_new = _put(path, data)
        if is_new is not None:
            *before, command = file.commands(seat, path)
            return Resumed(
                agent=agent,
                session=seat.session,
                path=path,
                workspace=seat.workspace,
                command=command,
                before=before,
                is_new=is_new,
                changes=writing.changes,
            )
    raise InvalidInput("thread", f"has been carried on {_TRIES:,} times from here; fork it")


def _put(path: Path, data: bytes) -> bool | None:
    """Write a file that is not there; False if it is there and says the same, None if not."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return False if _is_same(path, data) else None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except BaseException:
        path.unlink()
        raise
    return True


def _is_same(path: Path, data: bytes) -> bool:
    """Whether a file has the very lines, however they are spelled."""
    wanted = data.splitlines()
    with open_values(path) as file:
        found = [value.data for value in Lines(file, lambda name, place: None)]
    return found == wanted
