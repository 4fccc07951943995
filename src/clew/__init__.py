"""Clew keeps the threads of AI agents: durable, branching, resumable.

import clew

store = clew.open("threads.db")
thread = store.create(title="Fix the login")
thread.append("user_message", {"role": "user", "content": "The login is broken."})
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from clew import store, thread
from clew.address import namespaces, open, open_engine
from clew.core.drafts import draft
from clew.core.errors import (
    AlreadyExists,
    ClewError,
    Closed,
    Conflict,
    Corrupt,
    FormatTooNew,
    InvalidInput,
    LeaseHeld,
    LeaseLost,
    NotFound,
    TooLarge,
    Unavailable,
    Unsupported,
)
from clew.core.model import Entry, Fact, Lease, Move, Page, Problem, Record, ThreadInfo
from clew.store import Store
from clew.thread import Thread
from clew.turn import Turn

if TYPE_CHECKING:
    from clew.aio.handles import AsyncStore, AsyncThread, AsyncTurn, open_async
    from clew.facets.conversations import Conversations
    from clew.facets.runs import Runs
    from clew.facets.sessions import Sessions
    from clew.upkeep.repair import repair

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "AsyncStore",
    "AsyncThread",
    "AsyncTurn",
    "ClewError",
    "Closed",
    "Conflict",
    "Conversations",
    "Corrupt",
    "Entry",
    "Fact",
    "FormatTooNew",
    "InvalidInput",
    "Lease",
    "LeaseHeld",
    "LeaseLost",
    "Move",
    "NotFound",
    "Page",
    "Problem",
    "Record",
    "Runs",
    "Sessions",
    "Store",
    "Thread",
    "ThreadInfo",
    "TooLarge",
    "Turn",
    "Unavailable",
    "Unsupported",
    "draft",
    "namespaces",
    "open",
    "open_async",
    "open_engine",
    "repair",
]


def _load(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def _later(module: str, name: str) -> Callable[..., Any]:
    """A function or class that is imported when it is first called."""
    return lambda *arguments, **options: _load(module, name)(*arguments, **options)


store.PARTS |= {
    "conversations": _later("clew.facets.conversations", "Conversations"),
    "runs": _later("clew.facets.runs", "Runs"),
    "sessions": _later("clew.facets.sessions", "Sessions"),
    "blobs_of_snapshots": _later("clew.snapshots.catalogue", "wanted"),
    "copy": _later("clew.upkeep.copy", "copy"),
    "cleanup": _later("clew.upkeep.cleanup", "cleanup"),
}
thread.PARTS |= {"snapshots": _later("clew.snapshots.facet", "Snapshots")}

_LOADED_ON_DEMAND = {
    "Conversations": "clew.facets.conversations",
    "Runs": "clew.facets.runs",
    "Sessions": "clew.facets.sessions",
    "repair": "clew.upkeep.repair",
    **dict.fromkeys(("AsyncStore", "AsyncThread", "AsyncTurn", "open_async"), "clew.aio.handles"),
}


def __getattr__(name: str) -> Any:
    module = _LOADED_ON_DEMAND.get(name)
    if module is None:
        raise AttributeError(f"module 'clew' has no attribute {name!r}")
    try:
        return _load(module, name)
    except ModuleNotFoundError as error:
        if error.name != "anyio":
            raise
        raise ImportError(f"clew.{name} needs anyio: pip install 'clew[async]'") from error
