"""A store as it is without its secrets: an engine around an engine, which can only be read.

So whatever is made of a thread, by whom and how, is made of what may be seen: no form of an export
can forget to look. Hashes stay those of what is stored, but for those of bodies that were changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack, cast

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from clew.core.engine import Engine
from clew.core.model import Entry, Fact, Page, Record, ThreadInfo, ThreadQuery
from clew.core.wrapper import read_only
from clew.interchange.redaction.redactor import Redactor
from clew.store import Store
from clew.thread import Thread

if TYPE_CHECKING:
    from clew.core.options import UsageOptions
    from clew.usage.model import UsageReport


def clean_thread(thread: Thread, redactor: Redactor) -> Thread:
    """The same thread, without what the redactor replaces."""
    return Thread(_CleanStore(thread.store, redactor), thread.id)


class _CleanStore(Store):
    def __init__(self, store: Store, redactor: Redactor) -> None:
        super().__init__(cast(Engine, _CleanEngine(store.engine, redactor)), clock=store.clock)
        self._store = store

    def usage(
        self, thread: str | Thread | None = None, **options: Unpack[UsageOptions]
    ) -> UsageReport:
        # It is kept in a cache of the user's, which is about the store as it is.
        return self._store.usage(thread.id if isinstance(thread, Thread) else thread, **options)


class _CleanEngine:
    def __init__(self, engine: Engine, redactor: Redactor) -> None:
        self._engine = read_only(engine)
        self._redactor = redactor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def thread(self, id: str) -> ThreadInfo:
        return self._info(self._engine.thread(id))

    def threads(self, query: ThreadQuery) -> Page[ThreadInfo]:
        page = self._engine.threads(query)
        return Page([self._info(info) for info in page.items], page.cursor)

    def read(self, thread: str, *, after: int = 0, limit: int = 1000) -> list[Record]:
        found = self._engine.read(thread, after=after, limit=limit)
        return [self._record(record) for record in found]

    def path(
        self,
        thread: str,
        leaf: str | UnsetType | None = UNSET,
        *,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        found = self._engine.path(thread, leaf, after=after, limit=limit)
        return [self._redactor.entry(entry) for entry in found]

    def _record(self, record: Record) -> Record:
        if isinstance(record, Entry):
            return self._redactor.entry(record)
        if isinstance(record, Fact):
            return replace(record, data=self._redactor.fact(record.key, record.data))
        return record

    def _info(self, info: ThreadInfo) -> ThreadInfo:
        facts = {key: self._redactor.fact(key, data) for key, data in info.fact_data.items()}
        return replace(info, fact_data=facts)
