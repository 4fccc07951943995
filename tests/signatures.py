"""What the public classes have, and what their methods take: for the tests that compare them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cached_property
from typing import Any, get_overloads

from clew import store, stream, thread, turn
from clew.aio import facets, handles, snapshots
from clew.aio import turn as async_turn
from clew.core import options
from clew.facets.conversations import Conversation, Conversations
from clew.facets.runs import Run, Runs
from clew.facets.sessions import Sessions
from clew.snapshots.facet import Snapshots

PAIRS: list[tuple[type, type]] = [
    (store.Store, handles.AsyncStore),
    (store.Blobs, handles.AsyncBlobs),
    (thread.Thread, handles.AsyncThread),
    (turn.Leases, async_turn.AsyncLeases),
    (turn.Turn, async_turn.AsyncTurn),
    (stream.StreamedReply, async_turn.AsyncStreamedReply),
    (Conversations, facets.AsyncConversations),
    (Conversation, facets.AsyncConversation),
    (Runs, facets.AsyncRuns),
    (Run, facets.AsyncRun),
    (Sessions, facets.AsyncSessions),
    (Snapshots, snapshots.AsyncSnapshots),
]

# What the layers use among themselves, and the way from one side to the other.
INNER = {"engine", "clock", "derived", "recall", "renewer", "searcher", "snapshot_caches", "trees"}
SYNC = {"sync"}
# The file system, for tests that let it fail.
SEAMS = {"system"}


def public(kind: type) -> set[str]:
    """What a class defines, and what its objects are given when they are made."""
    source = inspect.getsource(kind.__init__)
    attributes = re.findall(r"^ +self\.(\w+)(?:: [^=]+)? = ", source, re.M)
    found = {name for name in (*vars(kind), *attributes) if not name.startswith("_")}
    return found - INNER - SYNC


def function(member: Any) -> Callable[..., Any]:
    if isinstance(member, property):
        assert member.fget is not None
        return member.fget
    found: Callable[..., Any] = member.func if isinstance(member, cached_property) else member
    return found


def overloads(call: Callable[..., Any]) -> list[Callable[..., Any]]:
    return list(get_overloads(call)) or [call]


def arguments(call: Callable[..., Any]) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Those by place, in their order, and those by name; sets of options are written out."""
    by_place: list[tuple[str, str]] = []
    by_name: dict[str, str] = {}
    for each in inspect.signature(call).parameters.values():
        if each.kind is each.VAR_KEYWORD:
            by_name |= written_out(each)
        elif each.kind is each.KEYWORD_ONLY:
            by_name[each.name] = plain(each.annotation)
        elif each.name != "self":
            by_place.append((each.name, plain(each.annotation)))
    return by_place, {name: type for name, type in by_name.items() if name not in SEAMS}


def written_out(given: inspect.Parameter) -> dict[str, str]:
    unpacked = re.fullmatch(r"Unpack\[(\w+)\]", given.annotation)
    if unpacked is None:
        return {f"**{given.name}": given.annotation}
    fields = getattr(options, unpacked[1]).__annotations__
    return {name: type.__forward_arg__ for name, type in fields.items()}


def returned(call: Callable[..., Any]) -> str:
    return str(inspect.signature(call).return_annotation)


def plain(annotation: str) -> str:
    """A type of the asynchronous side as its namesake; a summary may be awaited first."""
    annotation = annotation.replace("str | Awaitable[str]", "str")
    annotation = re.sub(r"^Awaitable\[(.+)\]$", r"\1", annotation)
    return re.sub(r"\bAsync([A-Z])", r"\1", annotation)
