"""One thread of a damaged SQLite store: what its row still says, and which records are good."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, UnsetType

from clew.engines.sqlite import rows
from clew.engines.sqlite.errors import UNREADABLE
from clew.engines.sqlite.journal import PURGED
from clew.engines.sqlite.query import Row
from clew.engines.sqlite.salvaged import UNKNOWN
from clew.hashes import entry_hash, fact_hash, move_hash
from clew.model import Entry, Fact, Move, Origin, Record, ThreadDraft
from clew.salvage import Lost, Sort

if TYPE_CHECKING:
    from clew.engines.sqlite.salvage import SQLiteSalvage

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
    """One thread, as `clew.salvage.SalvagedThread` wants it."""

    def __init__(self, salvage: SQLiteSalvage, row: Remains, last: int) -> None:
        self._salvage = salvage
        self._no = row.no
        self.space = row.space
        self._invented = row.invented
        self._last = self.size = last
        self.key = str(row.no)
        self.purged = row.shelf == PURGED
        self.leaf: str | UnsetType | None = UNSET if self.purged else row.leaf
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
        if self._invented and not isinstance(record, Entry):
            return True  # its hash covers the thread's id, which nobody knows
        if isinstance(record, Move):
            return move_hash(self.draft.id, record.seq, record) == record.hash
        if isinstance(record, Fact):
            return fact_hash(self.draft.id, record.seq, record) == record.hash
        assert isinstance(record, Entry)
        above: tuple[str | None, ...] = (None,)
        if record.parent is not None:
            above = hashes.get(record.parent) or self._salvage.hashes_elsewhere(record.parent)
        right = [entry_hash(record, record.parent, parent) for parent in above]
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
            sort = _SORTS.get(row[12], sort)
            id = row[1] if isinstance(row[1], str) and row[1] else id
            parent = row[4] if sort == "entry" else UNSET
        place = f"records row {no}"
        return Lost(place=place, reason=reason, seq=seq, id=id, sort=sort, parent=parent)
