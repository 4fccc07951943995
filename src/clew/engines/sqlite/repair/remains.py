"""One thread of a damaged SQLite store: what its row still says, and which records are good."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from clew.core.errors import ClewError
from clew.core.hashes import record_hash
from clew.core.maintenance import Lost, SalvagedThread, Sort
from clew.core.model import Entry, Origin, Record, ThreadDraft
from clew.core.names import check_namespace
from clew.engines.shared.tables import rows
from clew.engines.shared.tables.namespaces import DEFAULT
from clew.engines.shared.tables.rows import Row
from clew.engines.shared.thread_list import PURGED
from clew.engines.sqlite.errors import UNREADABLE

if TYPE_CHECKING:
    from clew.engines.sqlite.repair.salvage import SQLiteSalvage


# --- the namespaces of a damaged SQLite store: what they are called, and what belongs to each ---

UNKNOWN = 0  # the number of the namespace of a thread whose row is lost


class Names:
    """What namespaces are called: rows say it, and the hash of a thread proves it."""

    def __init__(self, rows: Iterable[Row], more: Iterable[Row]) -> None:
        self._candidates: dict[int, list[str]] = {DEFAULT.no: [DEFAULT.name]}
        self._proved: dict[int, str] = {}
        self._bearers: dict[str, int] | None = None
        self._add(rows)
        self.known = list(self._candidates)
        self._add(more)  # from where a damaged file may give out anything

    def _add(self, rows: Iterable[Row]) -> None:
        for no, name in rows:
            if isinstance(no, int) and no > DEFAULT.no and _is_name(name):
                self._candidates.setdefault(no, []).append(name)

    def candidates(self, no: int) -> Iterator[tuple[int, str]]:
        """What a thread may be in: what its row says comes first."""
        yield from ((no, name) for name in self._candidates.get(no, ()))
        for other, names in self._candidates.items():
            if other != no:
                yield from ((other, name) for name in names)

    def prove(self, no: int, name: str) -> None:
        self._proved.setdefault(no, name)
        self._bearers = None

    def of(self, no: int) -> str:
        name = self._proved.get(no) or self._candidates.get(no, [""])[0]
        if name and self._bearer(name) == no:
            return name
        name = "lost" if no == UNKNOWN else f"lost-namespace-{no}"
        while self._bearer(name) is not None:
            name += "-"
        return name

    def _bearer(self, name: str) -> int | None:
        """Whose name it is, if several claim it."""
        if self._bearers is None:
            claims = {(name, no) for no, names in self._candidates.items() for name in names}
            proofs = {(name, no) for no, name in self._proved.items()}
            # The least number has it; but one that is proved goes before all others.
            self._bearers = dict(sorted(claims, reverse=True))
            self._bearers |= dict(sorted(proofs, reverse=True))
        return self._bearers.get(name)

    @property
    def only(self) -> int | None:
        """The one that everything must be in, if there is only one."""
        return self.known[0] if len(self.known) == 1 else None


def _is_name(value: object) -> bool:
    try:
        return bool(check_namespace(value))
    except ClewError:
        return False


class NamespaceSalvage:
    """One namespace, as `clew.core.maintenance.Salvage` wants it."""

    def __init__(
        self,
        found: SQLiteSalvage,
        no: int,
        namespace: str,
        threads: list[RemainingThread],
        notes: list[str],
    ) -> None:
        self._found = found
        self._no = no
        self._threads = threads
        self.namespace = namespace
        self.notes = notes
        self.budget = found.budget

    @property
    def unverified(self) -> set[tuple[str, str]]:
        found = self._found.unverified
        return {(thread, entry) for no, thread, entry in found if no == self._no}

    def threads(self) -> list[SalvagedThread]:
        return list(self._threads)

    def blob(self, hash: str) -> bytes:
        return self._found.blob(self._no, hash)

    def loose_blobs(self) -> Iterator[str]:
        return self._found.loose_blobs(self._no)


_GUESSES_MAX = 4
_SORTS: dict[Any, Sort] = {rows.ENTRY: "entry", rows.MOVE: "move", rows.FACT: "fact"}


class Remains(Struct):
    """A thread's row, or what other places know of it."""

    no: int
    id: str
    created_us: int
    parent: str | None = None
    origin: str | None = None
    origin_entry: str | None = None
    origin_hash: str | None = None
    origin_no: int | None = None
    hash: str | None = None
    shelf: int = 0
    leaf: str | UnsetType | None = UNSET
    seq: int = 0
    space: int = UNKNOWN
    invented: bool = False  # nothing tells its id

    @property
    def begins_at(self) -> Origin | None:
        if self.origin is None:
            return None
        return Origin(self.origin, self.origin_entry, self.origin_hash)


class RemainingThread:
    """One thread, as `clew.core.maintenance.SalvagedThread` wants it."""

    def __init__(self, salvage: SQLiteSalvage, row: Remains, last: int) -> None:
        self._salvage = salvage
        self._no = row.no
        self.space = row.space
        self._invented = row.invented
        self._last = self.size = last
        self.key = str(row.no)
        self.purged = row.shelf == PURGED
        self.leaf: str | UnsetType | None = UNSET
        if not self.purged:
            # Behind its row are entries, and it stands on the last one.
            behind = row.seq < last
            self.leaf = (salvage.id_of(rows.number(row.no, last)) or UNSET) if behind else row.leaf
        self.origin_key = None if row.origin_no is None else str(row.origin_no >> 32)
        self.draft = ThreadDraft(
            id=row.id, created_us=row.created_us, parent=row.parent, origin=row.begins_at
        )

    def records(self) -> Iterator[Record | Lost]:
        hashes: dict[str, tuple[str, ...]] = {}
        for seq, row in self._salvage.rows(self._no, self._last):
            if row is None:
                if not self.purged:
                    yield self._lost(seq, "it is missing")
            elif isinstance(row, Exception):
                yield self._lost(seq, f"it cannot be read: {row}")
            else:
                yield self._judge(seq, row, hashes)

    def _judge(self, seq: int, row: Row, hashes: dict[str, tuple[str, ...]]) -> Record | Lost:
        try:
            record = self._salvage.record(self.draft.id, row)
            good = self._is_good(record, hashes)
        except UNREADABLE as error:
            return self._lost(seq, f"it cannot be read: {error}", row)
        return record if good else self._lost(seq, "it does not match its hash", row)

    def _is_good(self, record: Record, hashes: dict[str, tuple[str, ...]]) -> bool:
        if not isinstance(record, Entry):
            # The hash of a move or a fact covers the thread's id, which may be lost.
            return self._invented or record_hash(record) == record.hash
        # By the body itself: if only the hash beside it is damaged, nothing is lost.
        entry = record
        if record.tombstone is None:
            entry = replace(record, noted_digest=None)
        above: tuple[str | None, ...] = (None,)
        if record.parent is not None:
            above = hashes.get(record.parent) or self._salvage.hashes_elsewhere(record.parent)
        right = [hash for parent in above if (hash := record_hash(entry, parent)) is not None]
        if record.hash in right:
            hashes[record.id] = (record.hash,)
            return True
        # If only its own hash is damaged, what hangs on it was made with the right one.
        hashes[record.id] = (record.hash, *right[:_GUESSES_MAX])
        if not above:
            self._salvage.unverified.add((self.space, self.draft.id, record.id))
        return not above

    def _lost(self, seq: int, reason: str, row: Row | None = None) -> Lost:
        no = rows.number(self._no, seq)
        id, parent, sort = self._salvage.id_of(no), UNSET, self._salvage.sort_of(no)
        if row is not None:
            sort = _SORTS.get(row[1], sort)
            id = row[2] if isinstance(row[2], str) and row[2] else id
            parent = row[5] if sort == "entry" else UNSET
        place = f"records row {no}"
        return Lost(place=place, reason=reason, seq=seq, id=id, sort=sort, parent=parent)
