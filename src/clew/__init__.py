"""Clew keeps the threads of AI agents: durable, branching, resumable.

import clew

store = clew.open("threads.db")
thread = store.create(title="Fix the login")
thread.append("user_message", {"role": "user", "content": "The login is broken."})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    ReadOnly,
    TooLarge,
    Unavailable,
    Unsupported,
)
from clew.core.hashes import stable_hash
from clew.core.model import Artifact, Entry, Fact, Lease, Move, Page, Problem, Record, ThreadInfo
from clew.core.parts import PARTS, part
from clew.store import Store
from clew.thread import Thread
from clew.turn import Turn

if TYPE_CHECKING:
    from clew.aio.facets import AsyncConversations, AsyncRuns, AsyncSessions
    from clew.aio.handles import AsyncStore, AsyncThread, open_async
    from clew.aio.turn import AsyncTurn
    from clew.facets.conversations import Conversations
    from clew.facets.runs import Runs
    from clew.facets.sessions import Sessions
    from clew.upkeep.repair import repair

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "Artifact",
    "AsyncConversations",
    "AsyncRuns",
    "AsyncSessions",
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
    "ReadOnly",
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
    "stable_hash",
]


# What many programs never need is loaded when it is first asked for: `import clew` stays light.
PARTS |= {
    "Conversations": "clew.facets.conversations",
    "Runs": "clew.facets.runs",
    "Sessions": "clew.facets.sessions",
    "forked_facts": "clew.facets.forks",
    "Snapshots": "clew.snapshots.facet",
    "wanted": "clew.snapshots.catalogue",
    "forget_caches": "clew.snapshots.take",
    "usage": "clew.usage.report",
    "Searcher": "clew.search.searcher",
    "StreamedReply": "clew.stream",
    "Recall": "clew.context.recall",
    "unfinished_turns": "clew.open_turns",
    "forget_usage": "clew.usage.cache",
    "forget_turns": "clew.open_turns",
    "cleanup": "clew.upkeep.cleanup",
    "erase": "clew.upkeep.erase",
    "purge": "clew.upkeep.receipt",
    "clone": "clew.upkeep.clone",
    "copy": "clew.upkeep.copy",
    "repair": "clew.upkeep.repair",
    "AsyncTurn": "clew.aio.turn",
    **dict.fromkeys(("AsyncStore", "AsyncThread", "open_async"), "clew.aio.handles"),
    **dict.fromkeys(("AsyncConversations", "AsyncRuns", "AsyncSessions"), "clew.aio.facets"),
}


def __getattr__(name: str) -> Any:
    """The public names that are not loaded yet: Python asks here for those it does not find."""
    if name not in PARTS or name not in __all__:
        raise AttributeError(f"module 'clew' has no attribute {name!r}")
    try:
        return part(name)
    except ModuleNotFoundError as error:
        if error.name != "anyio":
            raise
        raise ImportError(f"clew.{name} needs anyio: pip install 'clew[async]'") from error
