"""Clew keeps the threads of AI agents: durable, branching, resumable.

import clew

store = clew.open("threads.db")
thread = store.create(title="Fix the login")
thread.append("user_message", {"role": "user", "content": "The login is broken."})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from clew.drafts import draft
from clew.errors import (
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
from clew.model import Entry, Fact, Lease, Move, Page, Problem, Record, ThreadInfo
from clew.opening import open, open_engine
from clew.store import Store
from clew.thread import Thread
from clew.turn import Turn

if TYPE_CHECKING:
    from clew.aio import AsyncStore, AsyncThread, AsyncTurn, open_async

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "AsyncStore",
    "AsyncThread",
    "AsyncTurn",
    "ClewError",
    "Closed",
    "Conflict",
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
    "Store",
    "Thread",
    "ThreadInfo",
    "TooLarge",
    "Turn",
    "Unavailable",
    "Unsupported",
    "draft",
    "open",
    "open_async",
    "open_engine",
]

_ASYNC = frozenset({"AsyncStore", "AsyncThread", "AsyncTurn", "open_async"})


def __getattr__(name: str) -> Any:
    # The asynchronous side needs anyio and is loaded when it is asked for.
    if name in _ASYNC:
        try:
            from clew import aio
        except ModuleNotFoundError as error:
            if error.name != "anyio":
                raise
            raise ImportError(f"clew.{name} needs anyio: pip install 'clew[async]'") from error
        return getattr(aio, name)
    raise AttributeError(f"module 'clew' has no attribute {name!r}")
