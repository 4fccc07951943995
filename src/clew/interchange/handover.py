"""A thread on its way to an agent: as the records that this agent wrote itself, or as it has them.

A thread that was imported from the agent goes out with its records as they are. Of any other thread
the current path goes out: what stands in it of the agent's own records as they are, and the rest as
the dialogue in normal form that a context is made of. Records that an agent did not write itself
carry a mark, which names the thread and the entry. By that mark an import knows what it has, and
stores only what the agent has added, as a fork of the thread: see `intake`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

from blake3 import blake3
from msgspec import UNSET, Struct
from msgspec.structs import replace

from clew import messages
from clew.context.projection import read_dialogue
from clew.context.window import MESSAGE_KINDS, GivenPath, read_window
from clew.core.codec import encode
from clew.core.errors import InvalidInput
from clew.core.model import Entry, rfc3339, to_time
from clew.interchange.export import Writing
from clew.interchange.marks import Mark
from clew.interchange.reader import TEXT_FORMAT, Reader, Session, Stored
from clew.interchange.registry import format_of
from clew.interchange.values import Value
from clew.messages.neutral import Message, Text, text_of
from clew.thread import Thread

NO_PLACE = "entry_left_out"
_TELLING = frozenset({*MESSAGE_KINDS, "compaction"})
# What a session is called by its agent becomes a part of a path and of a command.
_SESSION = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?!\.)){0,127}")


class Helper(Struct, frozen=True, kw_only=True):
    """What is known of a sub-agent: whose session it works for, for which call, as what."""

    session: str
    call: str | None = None
    role: str | None = None
    depth: int = 1  # of one that works for a sub-agent, 2


class Seat(Struct, frozen=True, kw_only=True):
    """Where a thread sits at an agent: its session and folder there. `is_own`: it came from it.

    `helper` is there if the thread is that of a sub-agent and sits beside the session it works for.
    """

    thread: str
    leaf: str | None
    session: str
    workspace: str
    is_own: bool = False
    branch: str | None = None
    model: str | None = None
    title: str | None = None
    title_source: str = "host"
    time_us: int = 0  # when the thread was written last
    helper: Helper | None = None
    subpath: str | None = None  # where in the session's folder, if the agent has them there

    def mark(self, entry: str | None = None) -> dict[str, Any]:
        """What a record carries beside its own fields."""
        return Mark(thread=self.thread, leaf=self.leaf, entry=entry).as_json()


class Piece(Struct, frozen=True, kw_only=True):
    """Something that goes into the file. `mark` is the entry that what follows it hangs on.

    That is its own, or one behind it that is no message and has no place in the file.
    """

    entry: Entry
    mark: str


class Raw(Piece, frozen=True):
    """A record that the agent wrote itself."""


class Said(Piece, frozen=True, kw_only=True):
    """A message in normal form. `key` is its own among all of the thread, and stays the same."""

    key: str
    message: Message

    @property
    def is_aside(self) -> bool:
        """Whether an agent said it in the user's name, about the surroundings."""
        if self.message.role != "user":
            return False
        if self.entry.format == "claude-code":
            return self.entry.body.get("isMeta") is True
        if self.entry.format != "codex":
            return False
        return text_of(self.message).lstrip().startswith(("<", "# AGENTS.md"))

    @property
    def made_by(self) -> tuple[str, str]:
        """The format of the request that a reply answers, and the provider."""
        format = self.entry.format
        wrote = None if format is None else messages.request_format(format)
        told = None if wrote is None else messages.teller(str(format))(self.entry.body).provider
        named = told if isinstance(told, str) and told else None
        return wrote or "openai-chat", named or _PROVIDERS.get(wrote or "", "openai")


_PROVIDERS = {"anthropic": "anthropic", "gemini": "google"}


class Fold(Piece, frozen=True, kw_only=True):
    """What came before is summed up; what the summary keeps of it is said again behind this."""

    key: str
    text: str


def seat_of(
    thread: Thread,
    agent: str,
    *,
    workspace: str | None = None,
    fresh: int | None = None,
    helper: Helper | None = None,
    name: Callable[[str], str] = lambda seed: str(uuid_of(seed)),
) -> Seat:
    """A place for a thread at an agent.

    Its own session, if it came from there; else one whose id follows from the thread and its leaf,
    so that the same thread gives the same file. `fresh` counts sessions that differ from it all the
    same, `name` makes an id of a text.
    """
    info = thread.info
    facts = info.facts
    own = facts.get("session_id") if facts.get("agent") == agent else None
    is_own = (
        isinstance(own, str)
        and _SESSION.fullmatch(own) is not None
        and fresh is None
        and workspace in (None, info.workspace)
        and info.origin is None
    )
    seed = f"{agent}\n{thread.id}\n{info.leaf}\n{fresh or 0}"
    if helper is not None:
        seed += f"\n{helper.session}"
    session = str(own) if is_own else name(seed)
    title = info.title
    branch, model = facts.get("git_branch"), facts.get("model")
    return Seat(
        thread=thread.id,
        leaf=info.leaf,
        session=session,
        workspace=workspace or info.workspace or "/",
        is_own=is_own,
        branch=branch if isinstance(branch, str) else None,
        model=model if isinstance(model, str) else None,
        title=None if title is None or title.status != "ready" else title.text,
        title_source="host" if title is None else title.source,
        time_us=info.updated_us,
        helper=helper,
    )


def beside(main: Seat, thread: Thread) -> str | None:
    """The folder that the thread of a sub-agent names at the seat of the one that it works for."""
    return None if main.is_own and thread.info.workspace else main.workspace


def uuid_of(seed: str) -> UUID:
    """An id that follows from a text."""
    return UUID(bytes=blake3(seed.encode("utf-8", "surrogatepass")).digest(16), version=5)


def time_text(time_us: int) -> str:
    """A time as JavaScript writes it."""
    return rfc3339(to_time(time_us))[:23] + "Z"


def line(record: Any) -> bytes:
    return encode(record) + b"\n"


def raw_line(entry: Entry) -> bytes:
    """An entry as the line that it came from, whether that was JSON or not."""
    if entry.format == TEXT_FORMAT:
        return str(entry.body).encode("utf-8", "surrogateescape") + b"\n"
    return entry.data + b"\n"


# --- the pieces ------------------------------------------------------------------------------


def pieces(thread: Thread, agent: str, seat: Seat, writing: Writing, *, target: str) -> list[Piece]:
    """What goes into the file, in order. `target` is the format whose normal form is wanted."""
    format = format_of(agent).Reader.format
    path = thread.path()
    if not seat.is_own:
        found = _mixed(path, format, target, writing) if path else []
        # Messages of which nothing is left in a context, such as blank ones, are none.
        if not any(piece.entry.kind in _TELLING for piece in found):
            raise InvalidInput("thread", "has no messages that an agent could go on from")
        return found
    entries = list(thread.entries())
    if any(e.format not in (format, TEXT_FORMAT) for e in entries if e.kind in MESSAGE_KINDS):
        return _mixed(path, format, target, writing)
    own = [entry for entry in entries if entry.format in (format, TEXT_FORMAT)]
    if live_end(agent, own) != seat.leaf:
        # The agent would go on elsewhere: at the end of its file. So that is where the path ends.
        _say_left(writing, len(own) - len(path), "beside the current path")
        own = [entry for entry in path if entry.format in (format, TEXT_FORMAT)]
    _say_foreign(writing, entries, format)
    return [Raw(entry=entry, mark=entry.id) for entry in own]


def live_end(agent: str, entries: Sequence[Entry]) -> str | None:
    """The entry at which the agent itself would go on, given its records as entries."""
    reader: Reader = format_of(agent).Reader(
        Session(agent=agent, thread="", facts={"session_id": ""}), _Nothing(), fresh=True
    )
    names: dict[str | None, str] = {}
    reader.has = names.__contains__
    for number, entry in enumerate(entries):
        text = entry.format == TEXT_FORMAT
        draft = reader.take(Value(entry.body, entry.data, number, number, number + 1, text))
        names[draft.id] = entry.id
    leaf = reader.leaf()
    last = entries[-1].id if entries else None
    return last if leaf is UNSET else names.get(leaf if isinstance(leaf, str) else None)


class _Nothing(Stored):
    """A thread that is not there yet."""

    def __init__(self) -> None:
        self.info = None


def _mixed(path: list[Entry], format: str, target: str, writing: Writing) -> list[Piece]:
    window = read_window(GivenPath(path))
    boundary = window.compaction
    if boundary is None or boundary.entry.format == format:
        _say_foreign(writing, path, format)
        return list(_said(path, format, target, writing))
    at = next(i for i, entry in enumerate(path) if entry.id == boundary.entry.id)
    found = list(_said(path[:at], format, target, writing))
    _say_foreign(writing, path, format)
    known = {entry.id: entry for entry in path}
    dialogue = read_dialogue(window, target)
    texts, rest = [], list(dialogue.blocks)
    while rest and set(rest[0].entries) <= {None, boundary.entry.id}:
        texts += [part.text for part in rest.pop(0).message.parts if isinstance(part, Text)]
    fold = boundary.entry
    text = "\n\n".join(texts) or "(no summary)"
    found.append(Fold(key=fold.id, text=text, entry=fold, mark=fold.id))
    for number, block in enumerate(rest):
        last = next((known[id] for id in reversed(block.entries) if id in known), fold)
        key = f"{fold.id}/{number}"
        found.append(Said(key=key, message=block.message, entry=last, mark=last.id))
    return [*found[:-1], replace(found[-1], mark=path[-1].id)]


def _said(path: list[Entry], format: str, target: str, writing: Writing) -> Iterator[Piece]:
    """The agent's own records as they are, and what others said between them."""
    places = {entry.id: index for index, entry in enumerate(path)}
    own = {entry.id for entry in path if entry.format == format}
    dialogue = read_dialogue(read_window(GivenPath(path), compacted=False), target)
    for repair in dialogue.repairs:
        if repair.entry not in own:
            writing.change(repair.code, repair.message, repair.entry)
    found: list[tuple[int, int, Piece]] = [
        (index, 0, Raw(entry=entry, mark=entry.id))
        for index, entry in enumerate(path)
        if entry.format == format
    ]
    counts: dict[str, int] = {}
    place, foreign = 0, not own
    for order, block in enumerate(dialogue.blocks, 1):
        ids = [id for id in block.entries if id in places]
        if ids:
            place, foreign = places[str(ids[0])], not own.issuperset(ids)
        if foreign:
            entry = path[places[str(ids[-1])] if ids else place]
            number = counts[entry.id] = counts.get(entry.id, 0) + 1
            key = entry.id if number == 1 else f"{entry.id}.{number}"
            made = Said(key=key, message=block.message, entry=entry, mark=entry.id)
            found.append((place, order, made))
    found.sort(key=lambda item: item[:2])
    if not found:
        return
    ends = [place for place, _, _ in found[1:]] + [len(path)]
    for (place, _, piece), end in zip(found, ends, strict=True):
        yield replace(piece, mark=path[end - 1].id) if end > place else piece


def _say_foreign(writing: Writing, entries: Sequence[Entry], format: str) -> None:
    """Say what is no message and has no place in the agent's file."""
    kinds: dict[str, int] = {}
    for entry in entries:
        aside = entry.kind not in (*MESSAGE_KINDS, "compaction")
        if aside and entry.format not in (format, TEXT_FORMAT):
            kinds[entry.kind] = kinds.get(entry.kind, 0) + 1
    for kind, count in kinds.items():
        _say_left(writing, count, f"of kind {kind}, which is no message")


def _say_left(writing: Writing, count: int, why: str) -> None:
    if count > 0:
        writing.change(NO_PLACE, f"left out: {count:,} {why}")
