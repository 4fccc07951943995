"""What a group of writers adds to a thread: planned one after the other, written at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UnsetType

from clew.engines.files import leases
from clew.engines.files.lines import record_line
from clew.engines.files.shared import Shared
from clew.errors import InvalidInput
from clew.model import Draft, Entry, Record
from clew.state import Find, Head, plan


class Batch:
    """The head as it moves through the appends of a group; a refused one leaves it as it was."""

    def __init__(self, head: Head, find: Find, shared: Shared, lock: int) -> None:
        self.head = head
        self.new: list[Record] = []
        self._find = find
        self._shared = shared
        self._ids: dict[str, Record] = {}
        self._spilled: dict[str, str] = {}
        self._lease = leases.live(lock, head.thread, shared.clock)

    def append(
        self,
        drafts: Sequence[Draft],
        spilled: Mapping[str, str],
        expect: str | UnsetType | None,
        fence: int | None,
    ) -> list[Record]:
        decided = plan(self.head, drafts, self.find, expect=expect, fence=fence, lease=self._lease)
        self._check_blobs(decided.new)
        self.head = decided.head
        self.new += decided.new
        self._ids.update((record.id, record) for record in decided.new)
        self._spilled.update(spilled)
        return decided.records

    def find(self, id: str) -> Record | None:
        return self._ids.get(id) or self._find(id)

    def _check_blobs(self, records: Sequence[Record]) -> None:
        for record in records:
            for hash in record.blobs if isinstance(record, Entry) else ():
                if self._shared.blobs.find(hash) is None:
                    raise InvalidInput("blobs", f"blob {hash!r} is not in the store; put it first")

    def lines(self, thread: bytes) -> list[bytes]:
        of = len(self.new)
        return [
            record_line(thread, record, blob=self._spilled.get(record.id), left=of - n, of=of)
            for n, record in enumerate(self.new, start=1)
        ]
