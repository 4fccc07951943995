"""Claude Agent SDK: the transcripts that it mirrors, as threads of a store.

    from claude_agent_sdk import ClaudeAgentOptions
    from clew.adapters.claude_agent_sdk import ClewSessionStore

    options = ClaudeAgentOptions(session_store=ClewSessionStore("threads.db"))

A session is a thread, `claude:<project key>/<session id>`, and each of its sub-agents is one, too:
`…/<subpath>`, with the session's as its parent. A record of the transcript is an entry, kept as it
is, under its uuid; the records of messages are messages to every other part of Clew.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from types import TracebackType
from typing import Any, Self

from msgspec import Struct, UnsetType

from clew.adapters._versions import require

require("claude-agent-sdk", extra="claude-agent-sdk", at_least="0.2.180", below="0.3")

from claude_agent_sdk import SessionStore, fold_session_summary

from clew.adapters._ownership import Owner, Ownership
from clew.adapters._stores import AnyStore, open_store
from clew.aio.hop import hop
from clew.context import project
from clew.context.window import MESSAGE_KINDS
from clew.core import drafts
from clew.core.codec import encode
from clew.core.errors import AlreadyExists, Conflict, InvalidInput, NotFound
from clew.core.model import (
    PAGE_MAX,
    Draft,
    Entry,
    EntryDraft,
    ThreadInfo,
    ThreadQuery,
    decode_cursor,
    rfc3339,
    to_time,
)
from clew.core.names import check_name, is_name
from clew.messages.claude_code import (
    NAME,
    PROVIDER,
    Beside,
    Chain,
    kind_of,
    time_of,
    title_of,
)
from clew.thread import Thread

__all__ = ["ClewSessionStore", "thread_id"]

ADAPTER = "claude-agent-sdk"

Record = dict[str, Any]
Key = Mapping[str, Any]
Named = tuple[str | None, Record]  # a record, and the id of its entry; None: a fresh one

_TAIL = 64  # entries that are read to know where a transcript ends
_KNOWN_MAX = 1000  # sessions whose ends are remembered
_TRIES = 100
_NAMESPACE = uuid.UUID("6b0f4f9e-52f5-4c1c-9d3a-3f6f0e6b8a11")  # of uuids for entries of others
# Backups of files that the source's own folder has; a fork cannot go back to them.
_NOT_FORKED = frozenset({"file-history-snapshot", "file-history-delta"})


def thread_id(key: Key) -> str:
    """The id of the thread of a session, or of a sub-agent's transcript.

    No two keys have the same: a project and a session cannot bring a slash of their own.
    """
    project, session, subpath = _parts(key)
    id = f"claude:{_escaped(project)}/{_escaped(session)}"
    return id if subpath is None else f"{id}/{subpath}"


def _escaped(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")


def _parts(key: Key) -> tuple[str, str, str | None]:
    if not isinstance(key, Mapping):
        raise InvalidInput("key", f"must be an object with project_key and session_id, not {key!r}")
    for name in ("project_key", "session_id"):
        check_name(key.get(name), name)
    subpath = key.get("subpath")
    if subpath is not None:
        check_name(subpath, "subpath")
    return key["project_key"], key["session_id"], subpath


class _End(Struct):
    """Where the transcript of a thread ends, as far as this process knows.

    An append says on which leaf it relies, so a process that knows too little is told so.
    """

    leaf: str | None
    chain: Chain
    summary: dict[str, Any] | None  # what the SDK folds the records into
    title_source: str | None  # "host": the user's own title, which no other replaces
    has_workspace: bool


class ClewSessionStore(SessionStore):
    """A session store of the Claude Agent SDK on a Clew store, for asyncio and trio.

    `store` is a store that is open, or the address of one, which is then closed by `aclose`. With
    `ownership="lease"` the first append to a session takes its lease: another process that appends
    to it is refused. `delete` puts a tombstone on threads, which `Store.restore` takes away and a
    cleanup makes final; with `purge=True` it removes them at once.
    """

    def __init__(
        self, store: AnyStore, *, ownership: Ownership = None, purge: bool = False
    ) -> None:
        self.store, self._opened_here = open_store(store)
        self._owner = Owner(self.store, ownership)
        self._purge = purge
        self._ends: OrderedDict[str, _End] = OrderedDict()
        self._locks = [threading.Lock() for _ in range(64)]  # of sessions, by their hashes
        self._mutex = threading.Lock()

    # --- the interface of the SDK ---

    async def append(self, key: Key, entries: list[Record]) -> None:
        """Add records to a transcript, as one durable step. Those that are there are passed over.

        They are told by their uuid; one without a uuid by its place beside one that has it. Of
        two records with one uuid the first stays.
        """
        await hop(self._append, key, entries)

    async def load(self, key: Key) -> list[Record] | None:
        """Every record in the order in which they were appended; None if there is none.

        A fork has the records up to where it began, with its own session id in them. Messages that
        came into the thread by another way than this adapter are told as records, too.
        """
        return await hop(self._load, key)

    async def list_sessions(self, project_key: str) -> list[Record]:
        """The sessions of a project, with the time of their last append. Reads an index."""
        return [
            {"session_id": info.facts["session_id"], "mtime": info.updated_us // 1000}
            for info in await hop(self._sessions, project_key)
        ]

    async def list_session_summaries(self, project_key: str) -> list[Record]:
        """What the SDK's listings show of each session. Reads an index, no transcript."""
        return [
            {
                "session_id": info.facts["session_id"],
                "mtime": info.updated_us // 1000,
                "data": info.facts["summary"],
            }
            for info in await hop(self._sessions, project_key)
        ]

    async def delete(self, key: Key) -> None:
        """Delete a session with all its sub-agents, or one sub-agent's transcript."""
        await hop(self._delete, key)

    async def list_subkeys(self, key: Key) -> list[str]:
        """The subpaths of the sub-agents of a session, in the order in which these began."""
        return await hop(self._list_subkeys, key)

    # --- beyond the interface ---

    async def fork(
        self,
        source: Key | str,
        *,
        project_key: str | None = None,
        session_id: str | None = None,
        at: str | None = None,
        title: str | None = None,
    ) -> dict[str, str]:
        """A new session that shares the history of another by reference, at any length.

        `at` is the uuid of the last record that it has, by default the last one there is. The
        source may also be the id of any thread, whoever wrote it; then say the `project_key`. The
        answer is the key of the new session, to resume it by.
        """
        return await hop(self._fork, source, project_key, session_id, at, title)

    async def aclose(self) -> None:
        """Give leases back, and close the store if it was opened here."""
        await hop(self.close)

    def close(self) -> None:
        """The same for those who are not in a task."""
        self._owner.release()
        if self._opened_here:
            self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    # --- appending ---

    def _append(self, key: Key, entries: Sequence[Record]) -> None:
        id = thread_id(key)
        if not isinstance(entries, list | tuple) or not all(isinstance(e, dict) for e in entries):
            raise InvalidInput("entries", "must be a list of records, which are JSON objects")
        named = list(_named(entries))
        sifted = False
        with self._locks[hash(id) % len(self._locks)]:  # one writer at a time folds the summary
            for tries in range(1, _TRIES + 1) if named else ():
                try:
                    self._write(key, id, named, sifted=sifted)
                    return
                except (Conflict, NotFound) as error:
                    # The thread was written to, deleted or purged by another process: look again.
                    # Or a record has the uuid of one that says something else: the first stays.
                    again = isinstance(error, NotFound) or error.field == "leaf"
                    if tries == _TRIES or (sifted and not again):
                        raise
                    sifted = not again

    def _write(self, key: Key, id: str, named: list[Named], *, sifted: bool) -> None:
        end = self._ends.pop(id, None) or self._open(key, id)
        if sifted or self._overlaps(id, named):
            # Not from memory: if the thread was deleted meanwhile, nothing that it has counts.
            end = self._open(key, id)
            named = [(name, record) for name, record in named if not self._has(id, name)]
        fence = self._owner.fence(id)
        now_us = self.store.clock()
        batch: dict[str, EntryDraft] = {}
        fresh: list[Record] = []
        for name, record in named:
            if name in batch:
                continue
            fresh.append(record)
            parent = end.chain.take(record, lambda uuid: uuid in batch or self._has(id, uuid))
            one = _draft(record, name, parent, now_us)
            batch[one.id] = one
        if batch:
            facts = drafts.facts(_facts(key, end, fresh), now_us)
            written: list[Draft] = [*batch.values(), *facts]
            leaf, last = next(reversed(batch.items()))
            if last.time_us != now_us:
                # Entries have the times of their records, but the SDK asks when they were stored:
                # a move that leads nowhere says that the thread was written to now.
                written.append(drafts.move(leaf, now_us))
            Thread(self.store, id).write(written, expect=end.leaf, fence=fence)
            end.leaf = leaf
        with self._mutex:
            self._ends[id] = end
            if len(self._ends) > _KNOWN_MAX:
                self._ends.popitem(last=False)

    def _overlaps(self, id: str, named: list[Named]) -> bool:
        """Whether records are stored already: a batch is repeated, or a file is read again.

        What overlaps does so at an end. So a batch that is new costs two looks, at any length.
        """
        names = [name for name, _ in named if name is not None]
        return any(self._has(id, name) for name in {*names[:1], *names[-1:]})

    def _has(self, id: str, name: str | None) -> bool:
        if name is None:
            return False
        try:
            return bool(self.store.engine.path(id, name, limit=1))
        except NotFound:
            return False

    def _open(self, key: Key, id: str) -> _End:
        """Where a transcript ends, as it is stored; its thread is made if there is none."""
        info = self._made(key, id)
        chain = Chain()
        path = [] if info.leaf is None else self.store.engine.path(id, info.leaf, limit=_TAIL)
        for entry in path:
            if entry.format == NAME:
                chain.take(entry.body)
        source = None if info.title is None else info.title.source
        has_workspace = info.workspace is not None
        return _End(info.leaf, chain, info.facts.get("summary"), source, has_workspace)

    def _made(self, key: Key, id: str) -> ThreadInfo:
        project, session, subpath = _parts(key)
        parent = None
        if subpath is not None:
            parent = self._made({"project_key": project, "session_id": session}, _main(key)).id
        info = self._find(id)
        if info is not None and _checked(info).deleted_at is not None:
            self._clear(id)
            info = self._find(id)
        if info is None:
            names = {"project_key": project, "session_id": session}
            facts = {"adapter": ADAPTER, **names} | ({"subpath": subpath} if subpath else {})
            with suppress(AlreadyExists):  # another process was first
                self.store.create(id, parent=parent, facts=facts)
            info = self.store.engine.thread(id)
        return _checked(info)

    def _clear(self, id: str) -> None:
        """Remove a deleted thread, which begins anew: what it has must not count as stored.

        Under its lease, or this could remove the new thread of another process that was first.
        """
        thread = Thread(self.store, id)
        with suppress(NotFound):
            lease = thread.leases.acquire(ADAPTER, ttl_seconds=30.0)
            if thread.info.deleted_at is None:
                thread.leases.release(lease)
            else:
                self.store.purge(id)

    def _find(self, id: str) -> ThreadInfo | None:
        """A thread as it is, also when it is deleted."""
        try:
            return self.store.engine.thread(id)
        except NotFound:
            return None

    # --- reading ---

    def _load(self, key: Key) -> list[Record] | None:
        id = thread_id(key)
        info = self._find(id)
        if info is None or info.deleted_at is not None or info.leaf is None:
            return None
        _checked(info)
        found: list[Record] = []
        entries = Thread(self.store, id).entries()
        for is_ours, run in groupby(entries, lambda entry: entry.format == NAME):
            if is_ours:
                found += [one for entry in run if (one := _record(entry, id, key)) is not None]
            else:
                found += _told(list(run), found, key["session_id"])
        return found or None

    def _sessions(self, project_key: str) -> list[ThreadInfo]:
        check_name(project_key, "project_key")
        prefix = f"claude:{_escaped(project_key)}/"
        # One slash more, and it is a sub-agent's.
        return [
            info
            for info in self._threads(prefix=prefix)
            if "/" not in info.id[len(prefix) :] and _is_session(info)
        ]

    def _list_subkeys(self, key: Key) -> list[str]:
        main = _main(key)
        found = [
            info.facts["subpath"]
            for info in self._threads(parent=main)  # the newest first
            if info.leaf is not None and info.id.startswith(f"{main}/") and _is_ours(info)
        ]
        return found[::-1]

    def _threads(self, **filters: Any) -> Iterator[ThreadInfo]:
        cursor = None
        while True:
            query = ThreadQuery(archived=None, limit=PAGE_MAX, cursor=cursor, **filters)
            page = self.store.engine.threads(query)
            yield from page.items
            if page.cursor is None:
                return
            cursor = decode_cursor(page.cursor)

    # --- deleting and forking ---

    def _delete(self, key: Key) -> None:
        id = thread_id(key)
        ids = [id]
        if key.get("subpath") is None:
            subs = self._threads(parent=id)
            ids += [info.id for info in subs if info.id.startswith(f"{id}/") and _is_ours(info)]
        for one in reversed(ids):  # the session last: if this is interrupted, it can be repeated
            self._owner.release(one)
            self._ends.pop(one, None)
            info = self._find(one)
            if info is not None and _checked(info):
                with suppress(NotFound):
                    (self.store.purge if self._purge else self.store.delete)(one)

    def _fork(
        self,
        source: Key | str,
        project_key: str | None,
        session_id: str | None,
        at: str | None,
        title: str | None,
    ) -> dict[str, str]:
        if isinstance(source, str):
            thread = source
            if project_key is None:
                raise InvalidInput("project_key", "is not known from the id of a thread")
        else:
            thread = _main(source)
            project_key = source["project_key"] if project_key is None else project_key
        key = {"project_key": project_key, "session_id": session_id or str(uuid.uuid4())}
        origin = self.store.get(thread).info
        facts = {"adapter": ADAPTER, **key, "summary": origin.facts.get("summary") or {}}
        self.store.fork(thread, at=at, id=thread_id(key), facts=facts)
        if title is None:
            title = f"{origin.title.text if origin.title else 'Forked session'} (fork)"
        record = {
            "type": "custom-title",
            "sessionId": key["session_id"],
            "customTitle": title,
            "uuid": str(uuid.uuid4()),
            "timestamp": rfc3339(to_time(self.store.clock())),
        }
        self._append(key, [record])
        return key


# --- threads --------------------------------------------------------------------------------


def _main(key: Key) -> str:
    """The thread of the session that a key is about, whether or not it names a sub-agent."""
    project, session, _ = _parts(key)
    return thread_id({"project_key": project, "session_id": session})


def _is_ours(info: ThreadInfo) -> bool:
    return info.facts.get("adapter") == ADAPTER


def _is_session(info: ThreadInfo) -> bool:
    """Whether a thread is a session with a record; one is also made for its sub-agents alone."""
    return _is_ours(info) and info.leaf is not None and "summary" in info.facts


def _checked(info: ThreadInfo) -> ThreadInfo:
    if not _is_ours(info):  # by hand, or by another program
        raise AlreadyExists("thread", info.id, deleted_at=info.deleted_at)
    return info


def _facts(key: Key, end: _End, records: list[Record]) -> dict[str, Any]:
    """What changes of the thread's facts with new records; the end is brought up to date."""
    if key.get("subpath") is not None:
        return {}
    facts: dict[str, Any] = {}
    before = None if end.summary is None else {"session_id": "", "mtime": 0, "data": end.summary}
    folded = fold_session_summary(before, key, records)["data"]
    if folded != end.summary:
        facts["summary"] = end.summary = folded
    for record in records:
        title = title_of(record)
        if title is not None and (title[1] == "host" or end.title_source != "host"):
            text, source = title
            facts["title"] = {"text": text, "status": "ready", "source": source}
            end.title_source = source
        if record.get("type") == "tag":
            tag = record.get("tag")
            facts["tags"] = [tag] if isinstance(tag, str) and is_name(tag) else []
        if not end.has_workspace and is_name(record.get("cwd")):
            facts["workspace"], end.has_workspace = record["cwd"], True
    return facts


# --- records --------------------------------------------------------------------------------


def _named(records: Iterable[Record]) -> Iterator[Named]:
    """Records and the ids of their entries: the uuid, or a place beside a record that has one.

    What has no uuid and is alone in its batch gets a fresh id: it cannot be told from another.
    """
    anchor: str | None = None
    beside = Beside()
    waiting: list[Record] = []
    for record in records:
        name = record.get("uuid")
        if is_name(name):
            for early in waiting:
                yield beside.name(f"{name}-", encode(early)), early
            waiting, anchor = [], name
            yield name, record
        elif anchor is None:
            waiting.append(record)
        else:
            yield beside.name(f"{anchor}+", encode(record)), record
    for record in waiting:
        yield None, record


def _draft(
    record: Record, name: str | None, parent: str | UnsetType | None, now_us: int
) -> EntryDraft:
    time = time_of(record) or to_time(now_us)
    return drafts.draft(kind_of(record), record, format=NAME, id=name, parent=parent, time=time)


def _record(entry: Entry, id: str, key: Key) -> Record | None:
    """An entry as the SDK gets it back; None for what a fork does not have of its origin."""
    record: Record = entry.body
    if entry.thread == id:
        return record
    if record.get("type") in _NOT_FORKED:
        return None
    if "sessionId" in record:
        forked = {"sessionId": record["sessionId"], "messageUuid": record.get("uuid")}
        record = {**record, "sessionId": key["session_id"]}
        record |= {"forkedFrom": forked} if "uuid" in record else {}
    return record


def _told(entries: list[Entry], before: list[Record], session: str) -> list[Record]:
    """Messages that came by another way than the SDK, as records that go on from those before."""
    if not any(entry.kind in MESSAGE_KINDS or entry.kind == "compaction" for entry in entries):
        return []
    linked = (one["uuid"] for one in reversed(before) if {"uuid", "parentUuid"} <= one.keys())
    parent = next(linked, None)
    records = []
    for index, message in enumerate(project(entries, PROVIDER, purpose="display").messages):
        # By the first one, so that they stay the same when more are said behind them.
        name = str(uuid.uuid5(_NAMESPACE, f"{entries[0].hash}/{index}"))
        records.append(
            {
                "parentUuid": parent,
                "isSidechain": False,
                "type": message["role"],
                "message": message,
                "uuid": name,
                "timestamp": rfc3339(entries[0].time),
                "sessionId": session,
            }
        )
        parent = name
    return records
