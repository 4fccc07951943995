"""Carry on: a thread is written where an agent looks for its sessions, to be continued there.

A file of the agent that is there and says something else is never touched: then the thread gets a
session of its own. What the agent adds comes back with the next import, as a fork of the thread.
Threads of sub-agents go with the one that they work for, where the agent has a place for them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from clew import messages
from clew.core.errors import InvalidInput
from clew.interchange.export import Change, Writing
from clew.interchange.handover import Helper, Seat
from clew.interchange.values import Lines, open_values
from clew.messages.neutral import tool_ids
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

    # Where the agent has a place for sub-agents, there is also this:
    #
    #   sub_seat(thread, main, helper) -> Seat    beside the seat of the one that it works for
    #   sidecar(seat, path) -> (Path, bytes)      a file beside that of a sub-agent, if it has one


class Resumed(Struct, frozen=True, kw_only=True):
    """A session that an agent can continue: `command` does, once all of `before` were run.

    `is_new`: its file was written now; it was not there before. `helpers` are the files of its
    sub-agents.
    """

    agent: str
    session: str
    path: Path
    workspace: str
    command: list[str]
    before: list[list[str]]
    is_new: bool
    changes: list[Change]
    helpers: list[Path]

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
    # A sub-agent of Claude Code has the id of the session that it worked for. By itself it is
    # another session, or it would lie where that one belongs.
    own = () if "subpath" in thread.info.facts else (None,)
    for fresh in (*own, *range(_TRIES)):
        writing = Writing(agent)
        seat = file.seat(thread, folder, fresh)
        data = b"".join(file.compose(thread, seat, writing))
        path = file.place(seat, home or Path.home(), environ or {})
        is_new = _put(path, data)
        if is_new is not None:
            *before, command = file.commands(seat, path)
            beside = _Helpers(file, writing, home or Path.home(), environ or {})
            beside.write(thread, seat)
            return Resumed(
                agent=agent,
                session=seat.session,
                path=path,
                workspace=seat.workspace,
                command=command,
                before=[*before, *beside.before],
                is_new=is_new,
                changes=writing.changes,
                helpers=beside.paths,
            )
    raise InvalidInput("thread", f"has been carried on {_TRIES:,} times from here; fork it")


class _Helpers:
    """The files of sub-agents, written beside that of the session."""

    def __init__(
        self, file: File, writing: Writing, home: Path, environ: Mapping[str, str]
    ) -> None:
        self._file = file
        self._writing = writing
        self._home = home
        self._environ = environ
        self._seen: set[str] = set()
        self.paths: list[Path] = []
        self.before: list[list[str]] = []

    def write(self, thread: Thread, main: Seat) -> None:
        self._seen.add(thread.id)
        found = list(_helpers(thread))
        if found and not hasattr(self._file, "sub_seat"):
            text = f"{self._writing.form} has no place for sub-agents: {len(found)} of them"
            self._writing.change("subagents_left_out", f"{text}; carry them on by themselves")
            return
        depth = 1 if main.helper is None else main.helper.depth + 1
        for child, call in found:
            if child.id not in self._seen:  # threads may work for each other
                role = child.info.facts.get("agent_role")
                helper = Helper(
                    session=main.session,
                    call=call,
                    role=role if isinstance(role, str) else None,
                    depth=depth,
                )
                self._write_one(child, main, helper)

    def _write_one(self, child: Thread, main: Seat, helper: Helper) -> None:
        file: Any = self._file
        seat: Seat = file.sub_seat(child, main, helper)
        try:
            data = b"".join(file.compose(child, seat, self._writing))
        except InvalidInput as error:
            text = f"sub-agent {child.id!r}: {error.fields['reason']}"
            self._writing.change("subagents_left_out", text)
            return
        path: Path = file.place(seat, self._home, self._environ)
        if _put(path, data) is None:
            text = f"sub-agent {child.id!r} has gone on in {path}, which stays as it is"
            self._writing.change("subagent_kept", text)
        elif hasattr(file, "sidecar"):
            _put(*file.sidecar(seat, path))
        self.paths.append(path)
        self.before += file.commands(seat, path)[:-1]
        self.write(child, seat)


def _helpers(thread: Thread) -> Iterator[tuple[Thread, str | None]]:
    """The threads that work for one, the oldest first, each with the call that it works for.

    What worked for the origin of a fork, for a call that the fork shares, works for the fork, too.
    """
    store, info, calls = thread.store, thread.info, None
    while True:
        for child in reversed(list(store.threads(parent=info.id, archived=None))):
            told = child.facts.get("tool_call")
            call = told if isinstance(told, str) else None
            if calls is None or call in calls:
                yield Thread(store, child.id), call
        if info.origin is None:
            return
        if calls is None:
            seen = [view for e in thread.path() for view in messages.view(e.format, e.body)]
            calls = tool_ids(seen)[0]
        origin = store.find(info.origin.thread)
        if origin is None:
            return
        info = origin.info


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
