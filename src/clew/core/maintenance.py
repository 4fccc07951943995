"""Looking after a store as a whole: what an engine offers to the tools in `clew.upkeep`.

The waist (`clew.core.engine`) works in one namespace of a store that can be opened. `Maintenance`
is for the rest: all namespaces together, and stores that cannot be opened any more. Behind it
stand the shapes that its methods take and give.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Literal, Protocol

from msgspec import UNSET, Struct, UnsetType, field

from clew.core.engine import Engine, Progress
from clew.core.errors import InvalidInput, Unsupported
from clew.core.model import (
    DEFAULT_NAMESPACE,
    Problem,
    Properties,
    Record,
    Stats,
    ThreadDraft,
)
from clew.core.names import check_name, check_namespace
from clew.core.parts import loading


class Maintenance(Protocol):
    """Looks after one store, with all its namespaces, whether or not it can be opened.

    An engine names the class that does this for its stores in `Properties.maintenance`, as
    "module:Class". It is made with one argument, where the store is: a path, or an address.
    Making it opens nothing. What a method needs is opened then, and stays open until `close`.

    NotFound: there is no store at that place. Corrupt: there was one, and it cannot be opened.
    A method that an engine cannot offer raises Unsupported and says what to do instead.
    """

    place: str
    repairs: bool  # whether `repair` can be offered

    def namespaces(self) -> list[str]:
        """Every namespace: the default one first, then by name."""
        ...

    def check(
        self,
        *,
        namespace: str | None = None,
        quick: bool = False,
        progress: Progress | None = None,
    ) -> Iterator[Problem]:
        """As `Engine.check`: of one namespace, or of the store itself and every namespace.

        A store that cannot be opened raises before the first problem. What is found damaged after
        that is a problem, and no error.
        """
        ...

    def stats(self, *, namespace: str | None = None) -> Stats:
        """As `Engine.stats`: of one namespace, or of all of them together."""
        ...

    @staticmethod
    def examine(engine: Engine) -> Examined:
        """What an open engine of this package tells of itself, its settings and its place.

        It takes the engine, because some settings belong to the handle and not to the place.
        Reads settings and counts; changes nothing, and reads no entry.
        """
        ...

    def migrate(
        self, *, dry_run: bool = False, rls: bool = False, grants: Sequence[Grant] = ()
    ) -> Migration:
        """Bring the format up to date. A store on a server that is not there yet is made.

        `dry_run` changes nothing and tells what would be done. `rls` also switches row-level
        security on, and `grants` lets roles use namespaces. InvalidInput: the engine has no roles.
        """
        ...

    def repair(self) -> AbstractContextManager[Workshop]:
        """A workshop for one repair, in which no other process has the store open.

        Unavailable: another process has it open, or the system refuses something; the error says
        in which state the store is left. Unsupported: see `repairs`.
        """
        ...

    def close(self) -> None:
        """Let go of the store. Closing twice is fine."""
        ...


def maintenance_class(properties: Properties) -> type[Maintenance]:
    """The class that an engine's properties name. Unsupported: they name none."""
    if properties.maintenance is None:
        raise Unsupported(f"the engine {properties.engine!r} offers no maintenance of its stores")
    module, _, name = properties.maintenance.partition(":")
    with loading(module):
        found: type[Maintenance] = getattr(import_module(module), name)
    return found


# --- doctor ---------------------------------------------------------------------------------


class Finding(Struct, frozen=True):
    """Something that is wrong, or a risk (`warning`), and what to do about it."""

    level: Literal["wrong", "warning"]
    what: str
    do: str


class Examined(Struct, kw_only=True):
    """What an engine tells of a store: versions, what was read, and what that means.

    `kind` says in words what sort of store it is: "a SQLite file".
    """

    kind: str | None = None
    format: int | None = None
    versions: dict[str, str] = field(default_factory=dict)
    read: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def warn(self, what: str, do: str) -> None:
        """Add a risk."""
        self.findings.append(Finding("warning", what, do))

    def complain(self, what: str, do: str) -> None:
        """Add something that is wrong."""
        self.findings.append(Finding("wrong", what, do))


# --- migrate --------------------------------------------------------------------------------

ROLE_BYTES_MAX = 63  # PostgreSQL cuts longer names off without a word


class Grant(Struct, frozen=True, order=True):
    """A role of a server, and a namespace that it may use."""

    role: str
    namespace: str

    @classmethod
    def parse(cls, text: str) -> Grant:
        """`ROLE=NAMESPACE`, cut at the first =."""
        role, _, namespace = text.partition("=")
        if not role or not namespace:
            raise InvalidInput("grant", f"must be ROLE=NAMESPACE, not {text!r}")
        return cls(check_name(role, "role", ROLE_BYTES_MAX), check_namespace(namespace))


class Migration(Struct, frozen=True, kw_only=True):
    """How a store's format stood, and what was done about it, or would be.

    `found`: the format that the store had, 0 if there was none yet. `known`: the one of this Clew.
    `rls`: whether row-level security is on, None where there is no such thing. `sql`: of a dry
    run, the statements that do it, empty if there is nothing to do; None where there are
    none to be run by hand. `grants` and `findings`: what holds now.
    """

    place: str
    found: int
    known: int
    rls: bool | None = None
    sql: str | None = None
    grants: tuple[Grant, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def current(self) -> bool:
        """Whether the format was up to date already."""
        return self.found == self.known


# --- repair ---------------------------------------------------------------------------------


class Budget:
    """How many records a repair may make up for what is missing, by the real size of the store.

    A seq or a number in a damaged store may be anything. Whatever is believed of it costs time and
    room, so that it must be in proportion to what is there: to what was written, that is, and not
    to the sizes that files say they have.
    """

    def __init__(self, size_bytes: int) -> None:
        self.left = _GRANTED_RECORDS + size_bytes // _RECORD_BYTES

    def take(self, records: int) -> bool:
        """Whether so many more may be made; if so, they are counted."""
        if not 0 <= records <= self.left:
            return False
        self.left -= records
        return True


_GRANTED_RECORDS = 20_000  # however small a store is
_RECORD_BYTES = 128  # a record takes more: so many a store of this size may have had


class Workshop(Protocol):
    """Where a store is repaired: alone with it, on copies, in a folder beside it.

    Closing it removes the folder, whatever happened, unless what is in it is still needed.
    """

    place: str
    finished: str | None  # an interrupted repair was brought to its end; where the old store is

    def open_copy(self) -> Maintenance:
        """A copy of the store."""
        ...

    def salvage(self) -> list[Salvage]:
        """Readers of that copy. Unsupported: there is nothing in it that Clew wrote."""
        ...

    def create(self, namespace: str) -> Engine:
        """A namespace, still empty, in a new store of the same engine."""
        ...

    def open_new(self) -> Maintenance:
        """The store that `create` has made."""
        ...

    def finish(self, ids: dict[tuple[str, str], str]) -> None:
        """Take over what is no record, such as leases: live threads by namespace and key."""
        ...

    def reindex(self) -> bool:
        """Make what is derived anew without a new store. False: the engine has no such way."""
        ...

    def swap(self) -> str:
        """Put the new store in the place of the old one; where the old one is now."""
        ...

    def keep(self) -> str:
        """Leave the folder, because what is in it is wanted; where it is."""
        ...

    def close(self) -> None: ...


class Salvage(Protocol):
    """A reader of one namespace of a damaged store. It steps over what it cannot read.

    It never works on the store itself but on a copy. `notes` says in words what it had to guess.
    """

    namespace: str
    notes: list[str]
    budget: Budget

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
