"""Making a thread: its file appears whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping

from clew.codec import new_id
from clew.engines.files.index import SPACE
from clew.engines.files.journal import Journal
from clew.engines.files.lines import Header, Source, header_line, record_line
from clew.engines.files.locks import EXCLUSIVE
from clew.engines.files.place import put_file
from clew.engines.files.shared import Shared
from clew.engines.sqlite import rows
from clew.errors import NotFound
from clew.model import Entry, Origin, ThreadDraft
from clew.state import Head, check_origin, check_recreated, plan


def create(shared: Shared, draft: ThreadDraft, spilled: Mapping[str, str]) -> None:
    journal = shared.journal(draft.id)
    source = None
    if draft.origin is not None and not os.path.lexists(journal.path):
        source = _source(shared, draft.origin)  # before we hold anything of our own
    with journal.mutex, journal.lock.held(EXCLUSIVE, shared.busy_seconds):
        if os.path.lexists(journal.path):
            journal.catch_up(exclusive=True)
            _check_recreated(shared, journal, draft)
            return
        if os.fstat(journal.lock.descriptor).st_size:
            shared.disk.truncate(journal.lock.descriptor, 0)  # the lease of a purged thread
        data = _contents(draft, source, spilled)
        put_file(shared.disk, shared.place.threads, os.path.basename(journal.path), data)
        shared.mark(shared.place.mark(draft.id))


def _source(shared: Shared, origin: Origin) -> Source | None:
    """Where the entry lies that a fork begins at: in its origin, or in what that inherited."""
    journal = shared.journal(origin.thread)
    with journal.mutex:
        journal.refresh_index()
        if origin.entry is None:
            return None
        where = shared.index.find(journal.no, origin.entry)
        entry = None if where is None else shared.records([where], journal)[0]
    if where is None or not isinstance(entry, Entry):
        raise NotFound("entry", origin.entry)
    check_origin(origin, entry)
    return Source(entry.thread, shared.index.key(where.no >> 32), entry.seq)


def _check_recreated(shared: Shared, journal: Journal, draft: ThreadDraft) -> None:
    with shared.index.lock:
        info = rows.thread_row(shared.index.db, SPACE, draft.id).info(shared.index.db)
    span = rows.everything_of(journal.no)
    first = journal.records(shared.index.places(span, limit=len(draft.facts)))
    check_recreated(info, first, draft)


def _contents(draft: ThreadDraft, source: Source | None, spilled: Mapping[str, str]) -> bytes:
    origin = draft.origin or Origin("", None, None)
    head = Head(draft.id, leaf=origin.entry, leaf_hash=origin.hash, updated_us=draft.created_us)
    facts = plan(head, draft.facts, lambda id: None).new
    thread = draft.id.encode("utf-8")
    of = len(facts)
    lines = [
        record_line(thread, fact, blob=spilled.get(fact.id), left=of - n, of=of)
        for n, fact in enumerate(facts, start=1)
    ]
    return b"".join([header_line(Header(new_id(), draft, source)), *lines])
