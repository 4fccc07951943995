"""The store handle: an opened place that holds threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from msgspec import UNSET
from msgspec.structs import replace

from clew import tree
from clew.core import drafts
from clew.core.drafts import check_number, mint, seconds, several
from clew.core.engine import Engine, PackResult, Progress
from clew.core.errors import AlreadyExists, InvalidInput, NotFound
from clew.core.model import (
    PAGE_MAX,
    Entry,
    Order,
    Origin,
    Page,
    Problem,
    Properties,
    Stats,
    ThreadDraft,
    ThreadInfo,
    ThreadQuery,
    to_time,
    to_us,
)
from clew.core.names import check_name
from clew.core.parts import part
from clew.core.removal import Purged, Receipt, Swept
from clew.thread import Thread
from clew.tree import Comparison, Relative
from clew.turn import Renewer

if TYPE_CHECKING:
    from clew.context.recall import Recall
    from clew.core.options import (
        EraseOptions,
        PackOptions,
        SearchOptions,
        ThreadFields,
        ThreadFilters,
        UsageOptions,
    )
    from clew.facets.conversations import Conversations
    from clew.facets.runs import Runs
    from clew.facets.sessions import Sessions
    from clew.search.searcher import Searcher, SearchPage
    from clew.upkeep.cleanup import CleanupReport
    from clew.upkeep.copy import CopyReport
    from clew.usage.model import UsageReport

INHERITED_FACTS = ("workspace", "tags", "model", "agent")
SWEEP_GRACE_SECONDS = 3600.0

Problems = list[Problem]  # `list` means the method inside of Store
Relatives = list[Relative]


class Store:
    """Threads in one place. Open it with `clew.open`; close it, or use it in a `with`.

    A store may be used from any number of threads at once, and survives `os.fork`.
    """

    def __init__(self, engine: Engine, *, clock: Callable[[], int] = drafts.now_us) -> None:
        self.engine = engine
        self.clock = clock
        self.blobs = Blobs(engine)
        self.renewer = Renewer(engine)
        self.snapshot_caches: dict[str, Any] = {}  # trees that were read, by root; "" as stored
        self.derived: dict[str, Any] = {}  # what is made of records, where no file can keep it

    @cached_property
    def recall(self) -> Recall:
        """What the last contexts were made of, so that the next ones cost what is new."""
        made: Recall = part("Recall")(self.engine)
        return made

    @property
    def properties(self) -> Properties:
        """What the engine can do and what an acknowledgement means, as data."""
        return self.engine.properties

    # --- threads ---

    def create(
        self,
        id: str | None = None,
        *,
        title: str | None = None,
        tags: Iterable[str] = (),
        workspace: str | None = None,
        parent: str | None = None,
        facts: Mapping[str, Any] | None = None,
        time: datetime | None = None,
        updated_at: datetime | None = None,
    ) -> Thread:
        """Make a new thread. Without an id it gets a fresh one that sorts by time.

        Raises AlreadyExists, also when the thread with that id is deleted: restore it, purge
        it, or choose another id. `parent` is the thread this one works for (a sub-agent's); if it
        is not there, or is deleted, that is InvalidInput.

        `time` is when it was made, and `updated_at` when it was last written to, for a thread that
        comes from elsewhere. The latter is written as a move that leads nowhere, right after the
        thread is made; what is appended later sets it anew, to its own time.
        """
        created_us = self.clock() if time is None else to_us(time)
        updated_us = None if updated_at is None else to_us(updated_at, "updated_at")
        given = drafts.said_facts(facts, workspace=workspace, title=title)
        if tags := list(several(tags, "tags")):
            given["tags"] = tags
        if parent is not None:
            self._check_parent(check_name(parent, "parent"), id)
        draft = ThreadDraft(
            id=mint(id),
            created_us=created_us,
            parent=parent,
            facts=drafts.facts(given, created_us),
        )
        made = self.engine.create(draft)
        # A retry finds the thread; whether it was told its time shows in what it has.
        if updated_us is not None and made.seq == len(draft.facts):
            self.engine.append(made.id, [drafts.move(None, updated_us)])
        return Thread(self, made.id)

    def get_or_create(self, id: str, **fields: Unpack[ThreadFields]) -> Thread:
        """The thread with this id, made if there is none: of several callers at once all get it.

        The fields are those of `create`; they count only if it is made. AlreadyExists if it is
        deleted: restore it, purge it, or choose another id.
        """
        while True:
            try:
                return self.get(id)
            except NotFound as error:
                if error.deleted_at is not None:
                    raise AlreadyExists("thread", id, deleted_at=error.deleted_at) from None
            try:
                return self.create(id, **fields)
            except AlreadyExists:
                continue  # another caller was first, or the thread was purged between two looks

    def _create(self, draft: ThreadDraft) -> Thread:
        return Thread(self, self.engine.create(draft).id)

    def _check_parent(self, parent: str, id: str | None) -> None:
        """That a parent is there. The engine does not ask: copies bring children before parents."""
        try:
            self._info(parent)
        except NotFound as error:
            # A retry, perhaps: the parent may have gone since the child was made. If the thread
            # is there, the engine tells whether it is the same one.
            if id is None or not self._has(id):
                raise InvalidInput("parent", str(error), deleted_at=error.deleted_at) from None

    def _has(self, id: str) -> bool:
        """Whether a thread has this id; a deleted one still has it."""
        try:
            self._info(id, deleted=True)
        except NotFound:
            return False
        return True

    def get(self, id: str, *, deleted: bool = False) -> Thread:
        """The thread with this id. NotFound if there is none, or it is deleted (unless asked)."""
        return Thread(self, self._info(id, deleted).id)

    def _info(self, id: str, deleted: bool = False) -> ThreadInfo:
        info = self.engine.thread(check_name(id, "id"))
        if info.deleted_at is not None and not deleted:
            raise NotFound("thread", id, deleted_at=info.deleted_at)
        return info

    def find(self, id: str) -> Thread | None:
        """Like `get`, but None instead of NotFound."""
        try:
            return self.get(id)
        except NotFound:
            return None

    def resolve(self, prefix: str, *, deleted: bool = False) -> Thread:
        """The thread whose id is `prefix`, or the only one whose id begins with it.

        NotFound if there is none, InvalidInput with `candidates` if there are several.
        """
        try:
            return self.get(prefix, deleted=deleted)
        except NotFound as error:
            if error.deleted_at is not None:
                raise
        query = ThreadQuery(prefix=prefix, archived=None, limit=10)
        queries = [query, replace(query, deleted=True)] if deleted else [query]
        pages = [self.engine.threads(one) for one in queries]
        found = sorted(info.id for page in pages for info in page.items)
        if not found:
            raise NotFound("thread", prefix)
        if len(found) > 1:
            more = ", …" if any(page.cursor is not None for page in pages) else ""
            text = f"{prefix!r} begins the ids of several threads: {', '.join(found)}{more}"
            raise InvalidInput("id", text, candidates=found)
        return Thread(self, found[0])

    def list(
        self,
        *,
        order: Order = "created",
        archived: bool | None = False,
        deleted: bool = False,
        tag: str | None = None,
        workspace: str | None = None,
        status: str | None = None,
        parent: str | None = None,
        origin: str | None = None,
        roots: bool = False,
        after: datetime | None = None,
        before: datetime | None = None,
        limit: int = 50,
        cursor: str | ThreadInfo | None = None,
    ) -> Page[ThreadInfo]:
        """One page of threads, newest first by `order`. Reads an index, never an entry.

        `archived` None gives both kinds. `deleted` gives the deleted ones only. `after` and
        `before` bound the time that `order` names. `origin` gives the forks of a thread, `roots`
        the threads that are neither a fork nor a sub-agent's. One that is damaged is listed like
        all others, with what is wrong in `damaged`.
        Pass the page's `cursor` for the next page; it is None at the end. A thread's info does as
        well: the page begins behind that thread.
        """
        if order not in ("created", "updated"):
            raise InvalidInput("order", f"must be 'created' or 'updated', not {order!r}")
        check_number(limit, "limit", 1, PAGE_MAX)
        for name, value in (
            ("tag", tag),
            ("workspace", workspace),
            ("status", status),
            ("parent", parent),
            ("origin", origin),
        ):
            if value is not None:
                check_name(value, name)
        return self.engine.threads(
            ThreadQuery(
                order=order,
                archived=archived,
                deleted=deleted,
                tag=tag,
                workspace=workspace,
                status=status,
                parent=parent,
                origin=origin,
                roots=roots,
                after_us=None if after is None else to_us(after, "after"),
                before_us=None if before is None else to_us(before, "before"),
                limit=limit,
                cursor=drafts.page_start(cursor, order),
            )
        )

    def threads(self, **filters: Unpack[ThreadFilters]) -> Iterator[ThreadInfo]:
        """Every thread that `list` would give, page after page; `limit` is the size of a page."""
        filters.setdefault("limit", 500)
        cursor = None
        while True:
            page = self.list(**filters, cursor=cursor)
            yield from page.items
            cursor = page.cursor
            if cursor is None:
                return

    def delete(self, thread: str) -> None:
        """Put a tombstone on a thread: `get` and `list` pass it over, `restore` brings it back.

        Forks of it stay whole. Deleting twice is fine.
        """
        handle = self.get(thread, deleted=True)
        if handle.info.deleted_at is None:
            handle.set(deleted_us=self.clock())

    def restore(self, thread: str) -> Thread:
        """Take the tombstone away again."""
        handle = self.get(thread, deleted=True)
        if handle.info.deleted_at is not None:
            handle.set(deleted_us=None)
        return handle

    def purge(self, thread: str) -> Purged:
        """Remove a thread for good, deleted before or not. This cannot be undone.

        Entries that a fork shares stay for the fork; the answer says how many, and for whom.
        `children` of the answer are the threads that worked for it: they stay as they are, with a
        `parent` that is not there any more. Its `receipt` is yours to keep: the store forgets.
        """
        purged: Purged = part("purge")(self, check_name(thread, "id"))
        return purged

    def erase(
        self, thread: str, entries: Iterable[str], **options: Unpack[EraseOptions]
    ) -> Receipt:
        """Remove the bodies and metas of entries for good: a secret, a person's data.

        Each entry stays where it is, with its id and its hash, and says `[erased]`; the chain of
        hashes verifies on. It is erased for every fork that shares it, with the words, counts and
        blobs that nothing else needs. The log notes when, and the `reason`. Copies under other ids
        and in other stores stay. `shrink` writes the files anew: on PostgreSQL they have it until
        then. The receipt is yours to keep. Again: the same. NotFound.
        """
        return part("erase")(self, check_name(thread, "id"), entries, **options)  # type: ignore[no-any-return]

    def fork(
        self,
        thread: str,
        *,
        at: str | None = None,
        before: str | None = None,
        id: str | None = None,
        title: str | None = None,
        parent: str | None = None,
        facts: Mapping[str, Any] | None = None,
        time: datetime | None = None,
    ) -> Thread:
        """A new thread that shares the path to an entry, by reference: one row, at any length.

        `at` shares up to and including that entry (default: the leaf), `before` up to where the
        thread stood before it, and before the marker of its turn if the turn began with it; before
        the root gives an empty thread. Workspace, tags and model come along; title, status, parent
        and the rest do not. A fork of a conversation, a run or a session is one, too. `parent` is
        that of `create`: a sub-agent may begin as a fork. With an `id` and a `time` of yours a
        retry gives the fork that is there.
        """
        if at is not None and before is not None:
            raise InvalidInput("at", "give either at or before, not both")
        if parent is not None:
            self._check_parent(check_name(parent, "parent"), id)
        info = self._info(thread)
        created_us = self.clock() if time is None else to_us(time)
        origin = self._origin(info, at, before)
        given = {key: info.facts[key] for key in INHERITED_FACTS if key in info.facts}
        if "facet" in info.facts:
            of_facet = part("forked_facts")(self, info, origin.entry, created_us)
            given |= of_facet
            if id is None and of_facet:
                id = f"{of_facet['facet']}:{mint(None)}"  # so that the facet lists it
        given |= drafts.said_facts(facts, title=title)
        return self._create(
            ThreadDraft(
                id=mint(id),
                created_us=created_us,
                parent=parent,
                origin=origin,
                facts=drafts.facts(given, created_us),
            )
        )

    def clone(self, thread: str, *, id: str | None = None, time: datetime | None = None) -> Thread:
        """The thread once more: every entry, on all its branches, its facts and its snapshots.

        A fork shares one path; a clone can go back to everything that the thread can go back to.
        It is written in one step, and costs what the thread costs; large bodies are shared.
        """
        info = self._info(thread)
        made = mint(id)
        part("clone")(self, info, made, self.clock() if time is None else to_us(time))
        return Thread(self, made)

    def fork_id(self, base: str) -> str:
        """A readable id for a fork of a thread: `base#fork-1`, then `-2`, …; yours alone.

        It is reserved in the store, so that no other call gets it, in whatever process, and it
        does not come back when its fork is purged. NotFound if there is no thread `base`.
        """
        return tree.fork_id(self, check_name(base, "base"))

    def _origin(self, info: ThreadInfo, at: str | None, before: str | None) -> Origin:
        source = Thread(self, info.id)
        if before is not None:
            at = tree.before(source, before)
        elif at is None:
            at = info.leaf
        if at is None:
            return Origin(source.id, None, None)
        return Origin(source.id, at, source.get(at).hash)

    def compare(self, a: str | Thread, b: str | Thread) -> Comparison:
        """Where the paths that two threads stand on part: fork and origin, or two forks.

        `common` is the last entry that both share by reference, None if there is none; `left` is
        what `a` has after it, `right` what `b` has. Reads as far back as that, not further.
        """
        one, other = (one if isinstance(one, Thread) else self.get(one) for one in (a, b))
        return tree.compare((one, UNSET), (other, UNSET))

    def tree(self, thread: str) -> Relatives:
        """A thread with its forks and its sub-agents, and theirs: each before what hangs on it.

        Siblings come oldest first, archived ones too; deleted ones do not. Reads an index.
        """
        return tree.relatives(self, thread)

    def unfinished_turns(self) -> dict[str, Entry]:
        """The turns that were started and have not ended: their `started` markers, by thread id.

        The oldest first; each is what `Thread.unfinished_turn` tells. A turn that runs is one too:
        its thread has a lease. Archived threads count, deleted ones do not. The first call looks
        at the end of every thread, a later one at what was written since. What was seen is kept in
        the user's cache folder.
        """
        found: dict[str, Entry] = part("unfinished_turns")(self)
        return found

    # --- search: the index catches up when it is asked, and never slows an append ---

    @cached_property
    def searcher(self) -> Searcher:
        made: Searcher = part("Searcher")(self)
        return made

    def search(self, query: str, **options: Unpack[SearchOptions]) -> SearchPage:
        """Find what was said, called, answered or named a thread, in all threads: the best first.

        Words (all of them), "phrases", prefix*, OR, NOT or -word, parentheses; there is no wrong
        query. Where nothing has all the words, hits with some of them come, and `relaxed` says so.
        Without words: everything that the filters leave, newest first. `substring` looks for the
        text as it is, without regard to case, newest first; that may read much.

        `role` is user, assistant, system or tool; `kind` that of an entry, or "title". `path` finds
        tool calls that name a file or folder. `model` gives what was said in threads that used it,
        but not by another one. `since` is included, `until` is not. `context` is how many
        characters a snippet shows on both sides. An entry that forks share is found once, in the
        thread that it was written in. A page has 20 hits, or `limit`; pass its `cursor` for the
        next one.

        The first search reads the whole store, later ones what is new; `progress` is told of it.
        """
        return self.searcher.search(query, **options)

    def reindex(self, *, progress: Progress | None = None) -> int:
        """Make the search index anew; how many records were read for it."""
        return self.searcher.rebuild(progress)

    # --- facets: for those who want less; loaded when they are asked for ---

    @cached_property
    def conversations(self) -> Conversations:
        """Histories by key: `store.conversations.get("chat-1").add("user", "Hello")`."""
        facet: Conversations = part("Conversations")(self)
        return facet

    @cached_property
    def runs(self) -> Runs:
        """One resumable checkpoint for each run."""
        facet: Runs = part("Runs")(self)
        return facet

    @cached_property
    def sessions(self) -> Sessions:
        """The session documents of a coding agent."""
        facet: Sessions = part("Sessions")(self)
        return facet

    # --- the place itself ---

    def stats(self) -> Stats:
        """How much there is: threads, entries, records, blobs, bytes."""
        return self.engine.stats()

    def usage(
        self, thread: str | Thread | None = None, **options: Unpack[UsageOptions]
    ) -> UsageReport:
        """What the replies of models took and cost, each counted once: tokens by class, money.

        `by` is day, model, workspace, agent or thread; by default day, of a `thread` model. A
        thread is what was written in it: what a fork shares was paid in its origin. `tree` takes
        its forks and sub-agents in, and theirs; by thread, each row has its `tree` then. `since`
        may be a span back from now; `until` is no part of it. Days are those of `timezone`, which
        may be `local`. `prices` is a file, or a mapping, that comes before the prices of Clew.
        Deleted threads count, purged ones do not. What was counted is kept in the user's cache
        folder, so that only what is new is read; `progress` is told of threads.
        """
        report: UsageReport = part("usage")(self, thread, **options)
        return report

    def verify(self, *, quick: bool = False, progress: Progress | None = None) -> Problems:
        """Read everything and check every hash, chain, reference and index. Empty: all is whole.

        Of this namespace, and of what all of them share, such as a file.
        `quick` reads the structure but no body and no blob, so it does not see changes in them.
        `progress(done, total)` is called now and then.
        """
        return list(self.engine.check(quick=quick, progress=progress))

    def copy_to(self, other: Store, *, progress: Progress | None = None) -> CopyReport:
        """Copy every thread to another store: ids, hashes, times and order stay as they are.

        A copy that was interrupted goes on where it was, and a second one transfers only what
        is new. Where both sides moved on, both branches are kept. The report says what became
        of each thread; one that could not be copied does not keep the others from it.
        """
        report: CopyReport = part("copy")(self.engine, other.engine, progress=progress)
        return report

    def sweep(self, *, grace_seconds: float = SWEEP_GRACE_SECONDS) -> Swept:
        """Remove blobs that nothing refers to and that are older than the grace time.

        What a snapshot needs stays, as long as the snapshot is kept.
        """
        span = seconds(grace_seconds, "grace_seconds")
        # The engine sees which blobs entries name; what a snapshot's manifests name only the
        # snapshots know.
        return self.engine.sweep(grace_seconds=span, keep=lambda blobs: part("wanted")(self, blobs))

    def pack(self, **options: Unpack[PackOptions]) -> PackResult:
        """Compress what is cold, in place, while others write; it reads as before.

        Cold is all but the newest `tail` records of a thread, and in one that was not updated for
        `idle_seconds` all but the last. `shrink` writes the files anew, and writers wait for it.
        """
        return self.engine.pack(**drafts.pack_options(options))

    def cleanup(
        self,
        *,
        older_than: timedelta | datetime,
        keep: Callable[[ThreadInfo], bool] | None = None,
        deleted_only: bool = False,
        archived: bool = False,
        limit: int | None = None,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> CleanupReport:
        """Purge the threads last used before a time, the oldest first; then sweep blobs.

        One that is in use, was written to meanwhile, or for which `keep` is true, stays; archived
        ones too, unless asked for. A deleted one counts from its deletion. A sub-agent's goes
        with its parent. At most `limit` are purged. `dry_run` only tells.
        """
        report: CleanupReport = part("cleanup")(
            self,
            older_than=older_than,
            keep=keep,
            deleted_only=deleted_only,
            archived=archived,
            limit=limit,
            dry_run=dry_run,
            progress=progress,
        )
        return report

    def close(self) -> None:
        """Let go of everything. Running turns lose their lease when its time is over."""
        self.renewer.close()
        if "searcher" in self.__dict__:
            self.searcher.close()
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<clew.Store {self.properties.place}>"

    def now(self) -> datetime:
        """The time of the store's clock."""
        return to_time(self.clock())


class Blobs:
    """Bytes by their hash: stored once, however often they are put."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def put(self, data: bytes) -> str:
        """Store bytes; their hash. An entry that names it in `blobs` keeps it alive."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidInput("data", f"must be bytes, not {type(data).__name__}")
        return self._engine.put_blobs([bytes(data)])[0]

    def get(self, hash: str) -> bytes:
        """The bytes, checked against their hash. NotFound if they are not here."""
        return self._engine.get_blob(check_name(hash, "hash"))

    def has(self, hash: str) -> bool:
        """Whether they are here."""
        return bool(self._engine.has_blobs([check_name(hash, "hash")]))
