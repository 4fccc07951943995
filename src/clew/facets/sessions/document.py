"""The session document: what it holds, its title and usage, and how it comes from a thread."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, takewhile
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, force_setattr

from clew.context.tokens import characters
from clew.core.codec import decode, encode, parse
from clew.core.errors import InvalidInput
from clew.core.model import Entry, ThreadInfo
from clew.facets import _base
from clew.messages import view
from clew.messages.neutral import Message, Part, Text, Thinking, ToolCall, ToolResult, Usage
from clew.store import Store
from clew.thread import Thread

FACET = "session"
TITLE_CHARACTERS = 60

UsageByModel = dict[str, dict[str, Any]]


class Event(Struct, frozen=True):
    """Something that a UI or a tunnel was told; `data` is any JSON value.

    `bytes` are taken as raw JSON text, and `data` is the value that they stand for.
    """

    event_id: str
    stream_id: str = ""
    type: str = ""
    data: Any = None

    def __post_init__(self) -> None:
        if isinstance(self.data, bytes):
            force_setattr(self, "data", decode(parse(self.data, field="data")))

    @property
    def raw(self) -> bytes:
        """The data as JSON text, as it is stored."""
        return encode(self.data, field="data")


class Sync(Struct):
    """What of a document is stored, as far as the document knows.

    It is true while the thread stands on `leaf`: each save expects that leaf, and looks again if
    another writer has moved it.
    """

    known: bool = False
    thread: str = ""
    leaf: str | None = None
    messages: list[Any] = []
    unseen: list[Any] = []  # messages of other writers, which the document does not have
    events: list[Event] = []
    facts: dict[str, bytes] = {}
    title: str = ""
    workspace: str = ""
    calls: list[dict[str, Any]] = []  # usage that is still to be written


@dataclass
class Session:
    """A session as a document: yours to change, stored by `Sessions.save` and the append calls.

    `usage` is summed by model. `events_complete` says that no event is missing. `cost` is any
    JSON value. `sync` is the store's own note of what is stored. A document is not meant to be
    shared by threads; each may load its own.
    """

    id: str
    created_at: datetime
    updated_at: datetime
    title: str = ""
    workspace: str = ""
    vendor: str = ""
    endpoint: str = ""
    model: str = ""
    messages: list[Any] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    events_complete: bool = False
    cost: Any = None
    usage: UsageByModel = field(default_factory=dict)
    sync: Sync = field(default_factory=Sync, repr=False, compare=False)

    def has_user_interaction(self) -> bool:
        """Whether a user has said or shown something; see the function of this name."""
        return has_user_interaction(self)


class SessionInfo(Struct, frozen=True, kw_only=True):
    """What a list knows about a session without reading its messages.

    `thread` is the id of the thread behind it. `damaged` says what of it cannot be read, and None
    that all can; fields that cannot be read are empty.
    """

    id: str
    created_at: datetime
    updated_at: datetime
    title: str
    title_source: str | None
    workspace: str
    workspace_id: str
    vendor: str
    endpoint: str
    model: str
    events_complete: bool
    cost: Any
    usage: UsageByModel
    thread: str
    damaged: str | None = None


def has_user_interaction(session: Session) -> bool:
    """Whether there is a user's message with text that is not blank, or with an image or a file.

    Results of tools do not count.
    """
    return any(_is_interaction(body) for body in session.messages)


def _is_interaction(body: Any) -> bool:
    found = view(None, body)
    if not found:  # it cannot be read: better one session too many than one lost
        return isinstance(body, dict) and body.get("role") == "user" and bool(body.get("content"))
    return any(
        bool(part.text.strip())
        if isinstance(part, Text)
        else not isinstance(part, ToolResult | ToolCall | Thinking)
        for part in _user_parts(found)
    )


def _user_parts(found: Iterable[Message]) -> list[Part]:
    return [part for message in found if message.role == "user" for part in message.parts]


def first_user_text(messages: Iterable[Any]) -> str:
    """The first text of a user that is not blank; empty if there is none."""
    for body in messages:
        for part in _user_parts(view(None, body)):
            if isinstance(part, Text) and part.text.strip():
                return part.text
    return ""


# --- from the facts of a thread -------------------------------------------------------------


# The first three are checked by their own shapes already.
_SHAPES: dict[str, Any] = {
    **dict.fromkeys(("title", "tags", "workspace"), Any),
    **dict.fromkeys(("workspace_path", "workspace_id", "vendor", "endpoint", "model"), str),
    **dict.fromkeys(("events_complete", "has_events"), bool),
    "cost": Any,
    "usage": dict[str, dict[str, int | float]],
}
_MADE = 2  # the records that a thread is made with: facet and key
# What a fork takes along beside what every fork does.
_FORKED = (
    *("workspace_path", "workspace_id", "vendor", "endpoint"),
    *("events_complete", "has_events", "cost", "usage"),
)


def info_of(info: ThreadInfo) -> SessionInfo:
    facts, damaged = _base.read_facts(info, _SHAPES)
    title = info.title
    return SessionInfo(
        id=_base.key_of(info),
        created_at=info.created_at,
        updated_at=info.updated_at,
        title="" if title is None else title.text,
        title_source=None if title is None else title.source,
        workspace=facts.get("workspace_path") or info.workspace or "",
        workspace_id=facts.get("workspace_id") or "",
        vendor=facts.get("vendor") or "",
        endpoint=facts.get("endpoint") or "",
        model=facts.get("model") or "",
        events_complete=bool(facts.get("events_complete")),
        cost=facts.get("cost"),
        usage=facts.get("usage") or {},
        thread=info.id,
        damaged=_base.damage_of(info, damaged),
    )


def is_stored(info: ThreadInfo) -> bool:
    """Whether a thread is a session yet: it was written to, or is a fork of one.

    A thread is made before the first write to it; a crash in between leaves one without anything.
    """
    return info.seq > _MADE or info.origin is not None or info.damaged is not None


def is_listed(info: ThreadInfo) -> bool:
    """Whether there is something to be seen in a session: in one that has only metadata, not."""
    return info.leaf is not None or info.origin is not None or info.damaged is not None


def check_whole(info: ThreadInfo) -> None:
    """Corrupt if a fact of a session is damaged."""
    _base.check_whole(
        f"session {_base.key_of(info)!r}",
        _base.read_facts(info, _SHAPES)[1],
        "`thread` gives its messages; to set the fact there (`set`) mends the session",
    )


def document_of(info: ThreadInfo, messages: list[Any], events: list[Event]) -> Session:
    """A document with the metadata of a thread; it knows that all of this is stored.

    Corrupt if some of it is damaged: a save would write over it what the document lacks.
    """
    check_whole(info)
    known = info_of(info)
    session = Session(
        id=known.id,
        created_at=known.created_at,
        updated_at=known.updated_at,
        title=known.title,
        workspace=known.workspace,
        vendor=known.vendor,
        endpoint=known.endpoint,
        model=known.model,
        messages=messages,
        events=events,
        events_complete=known.events_complete,
        cost=known.cost,
        usage=known.usage,
    )
    session.sync = Sync(
        known=True,
        thread=info.id,
        leaf=info.leaf,
        facts=dict(info.fact_data),
        title=known.title,
        workspace=known.workspace,
        events=list(events),
    )
    return session


def forked_facts(store: Store, info: ThreadInfo, entry: str | None, now_us: int) -> dict[str, Any]:
    """The metadata of a fork. Where it shares less than all, its usage is counted anew."""
    values, damaged = _base.read_facts(info, _SHAPES)
    facts = {key: info.facts[key] for key in _FORKED if key in values}
    if "usage" in damaged or (entry != info.leaf and "usage" in facts):
        facts["usage"] = usage_of(Thread(store, info.id).path(entry))
    return facts


# --- titles made of the first words -----------------------------------------------------------


def title_from(text: str, limit: int = TITLE_CHARACTERS) -> str:
    """The beginning of a text as one line: whole words where it can, whole characters always."""
    # The beginning may be mostly white space, so more is looked at than is kept; but not all of
    # it, because people paste whole files.
    points = valid_text(text[: limit * 20])
    printable = (p for p in points if p.isspace() or unicodedata.category(p) != "Cc")
    flat = " ".join("".join(printable).split())
    if len(flat) <= limit and len(text) <= limit * 20:
        return flat
    ends = accumulate(len(character) for character in characters(flat[: limit * 2]))
    kept = flat[: max(takewhile(lambda end: end < limit, ends), default=0)]
    words, space, _ = kept.rpartition(" ")
    if space and flat[len(kept) : len(kept) + 1] not in ("", " ") and len(words) * 2 >= limit:
        kept = words
    return kept.rstrip() + "…"


def valid_text(text: str) -> str:
    """Text that UTF-8 can carry: two halves of a character are joined, a single one is marked."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


# --- usage: an entry for each call of a model, and the sums by model ---------------------------


def call_body(usage: Usage | Mapping[str, Any], model: str) -> dict[str, Any]:
    """The body of a usage entry: the model, and the provider's numbers as they are."""
    numbers = asdict(usage) if isinstance(usage, Usage) else usage
    if not isinstance(numbers, Mapping):
        raise InvalidInput("usage", f"must be an object of numbers, not {usage!r}")
    for name, value in numbers.items():
        if _is_number(value) and value < 0:
            raise InvalidInput("usage", f"must not be negative, but is {value}", path=f"$.{name}")
    return {**numbers, "model": model}


def add_call(totals: UsageByModel, call: Mapping[str, Any]) -> None:
    """Add a call's numbers to the sums of its model; what is no number is passed over."""
    total = totals.setdefault(call["model"], {})
    total["calls"] = total.get("calls", 0) + 1
    for name, value in call.items():
        if _is_number(value):
            total[name] = total.get(name, 0) + value


def usage_of(entries: Iterable[Entry]) -> UsageByModel:
    """The sums over the usage entries among entries."""
    totals: UsageByModel = {}
    for entry in entries:
        call = entry.body if entry.kind == "usage" else None
        if isinstance(call, dict) and isinstance(call.get("model"), str):
            add_call(totals, call)
    return totals


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
