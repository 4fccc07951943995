"""The groups of figures, in the order of the table. Each is a function of the workshop.

A group is loaded when it is measured: most need peers that need not be installed for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module

from bench.figures import Figure
from bench.workshop import Workshop

Measure = Callable[[Workshop], Iterable[Figure]]


def _of(module: str) -> Measure:
    def measure(workshop: Workshop) -> Iterable[Figure]:
        found: Iterable[Figure] = import_module(f"bench.groups.{module}").measure(workshop)
        return found

    return measure


GROUPS: dict[str, Measure] = {
    "append": _of("append"),
    "group": _of("group_commit"),
    "processes": _of("processes"),
    "flat": _of("flat"),
    "files": _of("files"),
    "fork": _of("fork"),
    "load": _of("load"),
    "context": _of("context"),
    "runs": _of("runs"),
    "list": _of("listing"),
    "size": _of("size"),
    "import": _of("importing"),
    "interchange": _of("interchange"),
    "snapshots": _of("snapshots"),
    "streams": _of("streams"),
    "sweep": _of("sweep"),
    "search": _of("search"),
    "usage": _of("usage"),
    "viewer": _of("viewer"),
    "peers": _of("peers"),
    "langgraph": _of("langgraph"),
    "postgres": _of("postgres"),
    "claude": _of("claude"),
    "adk": _of("adk"),
    "openai": _of("openai"),
}
