"""The agents whose sessions can be brought: whose a file is, and where they keep theirs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Protocol

from clew.core.errors import InvalidInput
from clew.interchange.reader import Head, Reader, Session, Source

# In the order in which they are asked whose a file is: those that are surest come first.
AGENTS = {
    "claude-code": "claude_code",
    "codex": "codex",
    "pi": "pi",
    "copilot": "copilot",
    "gemini-cli": "gemini_cli",
    "qwen-code": "qwen_code",
    "opencode": "opencode",
    "openhands": "openhands",
    "cline": "cline",
    "aider": "aider",
    "messages": "message_files",
}


class Format(Protocol):
    """What a module of this folder has."""

    Reader: type[Reader]
    ENDINGS: tuple[str, ...]  # of the names of its files

    def identify(self, head: Head) -> Session | None:
        """Whose session a file holds; None if it is no file of this agent."""
        ...

    def places(self, home: Path, environ: Mapping[str, str]) -> Iterator[Path]:
        """The folders where the agent keeps its sessions, whether they exist or not."""
        ...


@cache
def format_of(agent: str) -> Format:
    if agent not in AGENTS:
        raise InvalidInput("agent", f"{agent!r} is not one of {', '.join(AGENTS)}")
    found: Format = import_module(f"clew.interchange.{AGENTS[agent]}")
    return found


def detect(head: Head, agent: str | None = None) -> tuple[Format, Session] | None:
    """Whose session a file holds, among all agents or for one of them."""
    for name in AGENTS if agent is None else [agent]:
        format = format_of(name)
        session = format.identify(head)
        if session is not None:
            return format, session
    return None


def sources_in(path: Path, agent: str | None = None) -> list[Source] | None:
    """The sessions of a file that holds many; None if it is no such file."""
    for name in AGENTS if agent is None else [agent]:
        format = format_of(name)
        if hasattr(format, "sources") and path.name.endswith(format.ENDINGS):
            found: list[Source] | None = format.sources(path)
            if found is not None:
                return found
    return None


def is_candidate(path: Path, agent: str | None = None) -> bool:
    """Whether a file is worth opening, by its name."""
    names = AGENTS if agent is None else [agent]
    return any(path.name.endswith(format_of(name).ENDINGS) for name in names)


def places(home: Path, environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Where sessions are on this machine: agents, and folders that exist."""
    for name in AGENTS:
        for place in format_of(name).places(home, environ):
            if place.exists():
                yield name, place
