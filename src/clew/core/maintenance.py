"""What can be read of a damaged store: the shapes that salvage readers give and repair takes.

A salvage reader is written for one engine. It never works on the store itself but on a copy,
and it steps over what it cannot read, telling what that was.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from clew.core.engine import Engine, Progress
from clew.core.model import DEFAULT_NAMESPACE, Problem, Record, Stats, ThreadDraft

Sort = Literal["entry", "move", "fact", "record"]


class Lost(Struct, frozen=True, kw_only=True):
    """A record that cannot be read, or is not what was written; all that is known of it.

    `sort` is "record" when it is not known whether it was an entry, a move or a fact.
    """

    place: str
    reason: str
    namespace: str = DEFAULT_NAMESPACE
    thread: str = ""
    seq: int | None = None
    id: str | None = None
    sort: Sort = "record"
    parent: str | UnsetType | None = UNSET


class SalvagedThread(Protocol):
    """A thread, with everything about it that is legible.

    `key` is unique even among purged threads of one id. The draft has no facts. `origin_key` is
    the thread that its origin was in. `leaf` is where it stood, if that is noted anywhere
    beside the records.
    """

    key: str
    draft: ThreadDraft
    origin_key: str | None
    purged: bool
    leaf: str | UnsetType | None
    size: int

    def records(self) -> Iterator[Record | Lost]:
        """What there is of its records, by seq; each call reads them anew.

        A purged thread has gaps, which are no loss: only what forks need is kept of it.
        """
        ...


class Salvage(Protocol):
    """A reader of one namespace of a damaged store.

    `notes` says what it had to guess, in words.
    """

    namespace: str
    notes: list[str]

    @property
    def unverified(self) -> set[tuple[str, str]]:
        """Thread and entry of what is kept although nothing vouches for it."""
        ...

    def threads(self) -> list[SalvagedThread]:
        """Every thread, also purged ones that forks hang on."""
        ...

    def blob(self, hash: str) -> bytes:
        """The bytes, checked against their hash, or any ClewError."""
        ...

    def loose_blobs(self) -> Iterator[str]:
        """The hashes of blobs that were put, whether or not an entry names them yet."""
        ...


class Workshop(Protocol):
    """Where a store is repaired: alone with it, on copies, in a folder beside it.

    Made for one store; leaving it removes the folder, whatever happened.
    """

    place: str
    finished: str | None  # an interrupted repair was brought to its end; where the old store is

    def open_copy(self) -> Whole:
        """A copy of the store, opened in the normal way; raises if that cannot be done."""
        ...

    def salvage(self) -> list[Salvage]:
        """Readers of that copy. Unsupported: there is nothing in it that Clew wrote."""
        ...

    def create(self, namespace: str) -> Engine:
        """A namespace, still empty, in a new store of the same engine."""
        ...

    def open_new(self) -> Whole:
        """What has been created."""
        ...

    def finish(self, ids: dict[tuple[str, str], str]) -> None:
        """Take over what is no record, such as leases: live threads by namespace and key."""
        ...

    def reindex(self) -> bool:
        """Make what is derived anew in a simpler way than by a new store, if there is one."""
        ...

    def swap(self) -> str:
        """The new store into the place of the old one; where the old one is now."""
        ...

    def keep(self) -> str:
        """Leave the folder, because what is in it is wanted; where it is."""
        ...

    def close(self) -> None: ...


class LostBlob(Struct, frozen=True, kw_only=True):
    """A blob that an entry names and that is not there, or not whole."""

    namespace: str = DEFAULT_NAMESPACE
    thread: str
    entry: str
    blob: str
    reason: str


class Tally(Struct):
    """What came of a repair, while it is being done."""

    threads: int = 0
    records: int = 0
    blobs: int = 0
    placeholders: int = 0
    rehashed: int = 0
    lost: list[Lost] = []
    lost_blobs: list[LostBlob] = []

    def add(self, namespace: str, other: Tally) -> None:
        """Count in what came of a namespace."""
        for name in ("threads", "records", "blobs", "placeholders", "rehashed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.lost += [replace(lost, namespace=namespace) for lost in other.lost]
        self.lost_blobs += [replace(lost, namespace=namespace) for lost in other.lost_blobs]


class RepairReport(Struct, frozen=True, kw_only=True):
    """What a repair found, saved and lost.

    `whole`: nothing was damaged. `original`: where the damaged store is now, None if nothing
    was changed. `rehashed` entries are as they were but have another hash, because something
    before them is lost. `unverified` ones are kept although what would vouch for them is lost.
    """

    place: str
    whole: bool
    original: str | None = None
    problems: tuple[Problem, ...] = ()
    threads: int = 0
    records: int = 0
    blobs: int = 0
    placeholders: int = 0
    rehashed: int = 0
    unverified: int = 0
    lost: tuple[Lost, ...] = ()
    lost_blobs: tuple[LostBlob, ...] = ()
    notes: tuple[str, ...] = ()


# --- a whole store, with all its namespaces: for the tools that look after it ---


class Whole(Protocol):
    """An opened place. `close` lets go of it."""

    place: str

    def namespaces(self) -> list[str]:
        """Every namespace: the default one first, then by name."""
        ...

    def check(self, *, quick: bool = False, progress: Progress | None = None) -> Iterator[Problem]:
        """As `Engine.check`, of the store itself and of every namespace."""
        ...

    def stats(self) -> Stats:
        """Of all namespaces together."""
        ...

    def close(self) -> None: ...


class Finding(Struct, frozen=True):
    """Something that is wrong, or a risk (`warning`), and what to do about it."""

    level: Literal["wrong", "warning"]
    what: str
    do: str


class Examined(Struct, kw_only=True):
    """What an engine's package tells: of versions, of what it has read, of what it makes of it."""

    format: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def warn(self, what: str, do: str) -> None:
        self.findings.append(Finding("warning", what, do))

    def complain(self, what: str, do: str) -> None:
        self.findings.append(Finding("wrong", what, do))
