"""Verification, once for all engines: the rules that stored records keep, and what breaks them.

An engine reads its rows and hands them over as `ReadThread` and `ReadRecord`: hashes as text, and
places (where a record lies) as whatever the engine can compare. `Audit` goes through the records
of one thread in their order, recomputes every hash, and adds up what the engine keeps beside the
records: segments, facts, tags, the thread's head. The sentences of all problems stand here, so
that the same damage has the same name in every engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from clew.core.codec import decode, digest
from clew.core.engine import Progress
from clew.core.errors import Corrupt
from clew.core.hashes import record_hash, thread_hash
from clew.core.model import DEFAULT_NAMESPACE, Entry, Fact, Move, Origin, Problem, Record
from clew.engines.shared.thread_list import PURGED, shelf_of

TOLD_EVERY = 100
MISSING_BLOB = "it refers to blob {}, which is not there"

_NULL = b"null"  # the value of a fact that was removed


# --- what an engine hands over ---


class ReadThread(Struct, frozen=True, kw_only=True):
    """A thread's row as an engine has read it."""

    id: str
    created_us: int
    parent: str | None
    origin: Origin | None
    hash: str
    namespace: str | None  # None: it is not known, and so is the hash that covers it
    purged: bool = False
    flawed: bool = False  # its columns do not fit together, whatever the hash says
    source: tuple[str, str] | None = None  # id and hash of the entry that lies where it was forked
    source_place: Any = None
    # The head in `sums` may be that of an earlier record, with nothing but entries behind it.
    behind: bool = False
    # The columns that repeat what the records add up to: some of those of `Audit._head`.
    sums: Mapping[str, Any]


class ReadRecord(Struct, frozen=True):
    """A record as an engine has read it, and what the engine keeps beside it."""

    seq: int
    record: Record | None  # None: nothing of it can be relied on
    place: Any = None
    where: str = ""  # for people: the file and the line, where there are such
    flaw: str | None = None  # what is wrong with it, as far as reading it has shown
    body: str | None = None  # the digest of its body or value where it is known: a blob's name
    missing: Sequence[str] = ()  # blobs that it names, and that are not there
    uses_noted: bool = True  # the blobs that it uses are noted as used, and no others
    segments: Sequence[Any] = ()  # segments that are said to begin with it: what they hang on
    # Code and sentence for an entry's body that is not there, or cannot be read. Its record is
    # sound without it.
    body_flaw: tuple[str, str] | None = None


class Link(Struct, frozen=True):
    """An entry that a record hangs on: where it lies, and its hash."""

    place: Any
    hash: str


class Rest(Struct, frozen=True):
    """What an engine keeps beside a thread's records, when all of them were read."""

    facts: Mapping[str, int]  # the seq of each key's latest fact
    tags: set[Any]
    segments: int = 0  # rows that belong to no record
    uses: int = 0


class ThreadRows(Protocol):
    """What an engine has of one thread. Corrupt from any of these ends the thread's audit."""

    @property
    def thread(self) -> ReadThread: ...

    def pages(self) -> Iterable[list[ReadRecord]]:
        """The records in their order, some at a time."""
        ...

    def find(self, record: Entry | Move, id: str) -> Link | None:
        """An entry that the thread can see, and that was there before the record."""
        ...

    def rest(self) -> Rest | None:
        """Asked for last. None: this engine keeps nothing beside the records."""
        ...


# --- the audit of one thread ---


class Audit:
    """Goes through the records of one thread. `meter` counts them, except those of a purged one.

    The hash of an entry can be told without its body, and so can those of all that follow it. So
    the quick form, which reads no bodies, checks the whole chain.
    """

    def __init__(self, rows: ThreadRows, *, quick: bool, meter: Meter | None) -> None:
        self._rows = rows
        self._quick = quick
        self._thread = thread = rows.thread
        # How many records a purge has left is only known when they were read.
        self._meter = None if thread.purged else meter
        self._seq = 0
        self._whole = True  # every record could be read, so the sums can be told
        self._records = 0
        self._segments_fit = True
        self._tail: Entry | None = None  # the last entry
        self._tail_link: Link | None = None
        origin = thread.origin or Origin("", None, None)
        self._leaf, self._leaf_hash = origin.entry, origin.hash
        self._leaf_place = thread.source_place
        self._updated_us = thread.created_us
        self._facts: dict[str, Fact] = {}
        self._noted: dict[str, Any] | None = None  # the head at the record that the sums speak of
        self._note(None)

    def check(self) -> Iterator[Problem]:
        yield from self._check_thread()
        for page in self._rows.pages():
            for read in page:
                if self._meter is not None:
                    self._meter.step()
                self._records += 1
                if read.record is None:
                    self._whole = False
                    yield self._problem("damaged_record", read.flaw or "", read)
                else:
                    yield from self._check_record(read, read.record)
                self._seq = read.seq
                self._note(read.record)
        rest = self._rows.rest()
        # A record that cannot be read may have been anything: nothing is known of the sums then.
        if rest is not None and self._whole:
            yield from self._check_sums(rest)

    def _check_thread(self) -> Iterator[Problem]:
        thread, origin = self._thread, self._thread.origin
        if thread.namespace is not None:
            try:
                made = (thread.id, thread.created_us, thread.parent, origin)
                right = thread_hash(*made, thread.namespace)
            except UnicodeEncodeError:
                right = ""
            if thread.flawed or right != thread.hash:
                yield self._problem("damaged_thread", "its row does not match its hash")
        if thread.purged:
            return  # what is kept of it hangs on what is kept of others, if on anything
        wanted = None if origin is None or origin.entry is None else (origin.entry, origin.hash)
        if thread.source != wanted:
            entry = None if origin is None else origin.entry
            yield self._problem("broken_origin", f"the origin {entry!r} is not there")

    def _check_record(self, read: ReadRecord, record: Record) -> Iterator[Problem]:
        if read.seq != self._seq + 1 and not (self._thread.purged and read.seq > self._seq):
            text = f"records {self._seq + 1} to {read.seq - 1} are missing"
            if read.seq <= self._seq:
                text = f"record {read.seq} follows record {self._seq}"
            yield self._problem("gap", text, read)
        # What it hangs on: the parent of an entry, the leaf that a move goes to.
        above = link = None
        if isinstance(record, Entry | Move):
            above = record.parent if isinstance(record, Entry) else record.leaf
            if self._tail is not None and self._tail.id == above:
                link = self._tail_link  # as most do, on the entry right before them
            elif above is not None:
                link = self._rows.find(record, above)
        if above is not None and link is None:
            what = "leaf" if isinstance(record, Move) else "parent"
            yield self._problem("broken_chain", f"its {what} {above!r} is not there", read)
        if read.flaw is not None:
            yield self._problem("damaged_record", read.flaw, read)
        else:
            right = record_hash(record, None if link is None else link.hash, read.body)
            # Without its parent's hash that of an entry cannot be told; the chain was reported.
            untold = isinstance(record, Entry) and link is None and above is not None
            if right is None or (right != record.hash and not untold):
                yield self._problem("damaged_record", "it does not match its hash", read)
        if isinstance(record, Entry):
            erased = record.tombstone is not None
            held = read.body or (None if self._quick or erased else digest(record.data))
            if read.body_flaw is not None:
                yield self._problem(*read.body_flaw, read)
            elif held not in (None, record.body_hash):
                yield self._problem("damaged_body", "its body does not match its hash", read)
        for hash in read.missing:
            yield self._problem("missing_blob", MISSING_BLOB.format(hash), read, blob=hash)
        if not read.uses_noted:
            yield self._problem("wrong_sum", "the blobs that it uses are not noted", read)
        self._add(read, record, link)

    def _add(self, read: ReadRecord, record: Record, link: Link | None) -> None:
        """Add a record to the sums."""
        begun: list[Any] = []  # the segment that may begin here
        continues = False
        if isinstance(record, Entry):
            begun = [None if link is None else link.place]
            continues = self._tail is not None and record.parent == self._tail.id
            self._tail, self._tail_link = record, Link(read.place, record.hash)
            self._leaf, self._leaf_hash = record.id, record.hash
            self._leaf_place = read.place
            self._updated_us = record.time_us
        elif isinstance(record, Move):
            self._leaf = record.leaf
            self._leaf_hash = None if link is None else link.hash
            self._leaf_place = None if link is None else link.place
            self._updated_us = record.time_us
        else:
            assert isinstance(record, Fact)
            self._facts[record.key] = record
        # A segment begins with an entry that is no child of the entry before it, and only then.
        # Between the runs that forks kept of a purged thread nothing is left to tell that by, but
        # what a segment hangs on must be right all the same.
        stored = list(read.segments)
        if stored != ([] if continues else begun):
            self._segments_fit &= self._thread.purged and stored == begun

    # --- what the records add up to ---

    def _note(self, last: Record | None) -> None:
        """Keep the head that the sums speak of, as long as nothing but entries is behind it."""
        if self._thread.behind and self._seq == self._thread.sums["seq"]:
            self._noted = self._standing()
        elif not isinstance(last, Entry):
            self._noted = None

    def _standing(self) -> dict[str, Any]:
        return {
            "seq": self._seq,
            "leaf": self._leaf,
            "leaf_hash": self._leaf_hash,
            "leaf_place": self._leaf_place,
            "tail": None if self._tail is None else self._tail.id,
            "updated_us": self._updated_us,
        }

    def _check_sums(self, rest: Rest) -> Iterator[Problem]:
        if rest.segments or not self._segments_fit:
            yield self._problem("wrong_sum", "its segments are not those of its entries")
        if rest.uses:
            text = f"{rest.uses} rows of blob_uses refer to records that are not there"
            yield self._problem("orphans", text)
        latest = {key: fact.seq for key, fact in self._facts.items() if fact.data != _NULL}
        if self._thread.purged:
            yield from self._check_purged(bool(latest or rest.facts or rest.tags))
            return
        if rest.facts != latest:
            yield self._problem("wrong_sum", "its facts are not the latest ones")
        sums = self._thread.sums
        if sums["listed_us"] not in (None, sums["updated_us"]):
            yield self._problem("wrong_sum", "its place in the list by update is not its update")
        try:
            tags, head = self._tags(), self._head()
        except Corrupt:
            return  # the record of that fact was reported
        if rest.tags != tags:
            yield self._problem("wrong_sum", "its tags are not those of its facts")
        yield from self._compare(head)

    def _check_purged(self, has_facts: bool) -> Iterator[Problem]:
        """What is left of a purged thread are entries that forks share, and nothing else."""
        if has_facts:
            yield self._problem("wrong_sum", "it is purged, and has facts")
        if not self._records:
            yield self._problem("wrong_sum", "it is purged, and nothing of it is left to share")
        names = "leaf leaf_hash leaf_place tail deleted_us status workspace owner lease_turn"
        yield from self._compare(dict.fromkeys(names.split()) | {"shelf": PURGED})

    def _head(self) -> dict[str, Any]:
        """The columns that hold a sum, with what should be in them. No engine has all of them."""
        archived, deleted_us = bool(self._value("archived")), self._value("deleted_us")
        return {
            **(self._noted or self._standing()),
            "archived": archived,
            "deleted_us": deleted_us,
            "shelf": shelf_of(archived=archived, deleted=deleted_us is not None),
            "status": self._value("status"),
            "workspace": self._value("workspace"),
        }

    def _tags(self) -> set[str]:
        tags = self._value("tags") or []
        if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise Corrupt("the fact tags", "it is not a list of names")
        return set(tags)

    def _value(self, key: str) -> Any:
        fact = self._facts.get(key)
        return None if fact is None else decode(fact.data)

    def _compare(self, right: Mapping[str, Any]) -> Iterator[Problem]:
        stored = self._thread.sums
        for name, wanted in right.items():
            found = stored.get(name, wanted)
            # 1 and true are equal to Python, but not to an engine that stores them as they are.
            if type(found) is not type(wanted) or found != wanted:
                text = f"{name} is {found!r}, its records say {wanted!r}"
                yield self._problem("wrong_sum", text)

    def _problem(
        self, code: str, message: str, read: ReadRecord | None = None, blob: str | None = None
    ) -> Problem:
        thread, namespace = self._thread.id, self._thread.namespace
        if read is None:
            return problem(code, message, thread=thread, namespace=namespace)
        return problem(
            code,
            f"{read.where}: {message}" if read.where else message,
            thread=thread,
            namespace=namespace,
            seq=read.seq,
            entry=read.record.id if isinstance(read.record, Entry) else None,
            blob=blob,
        )


# --- problems that are not of one thread's records ---


def problem(
    code: str,
    message: str,
    *,
    thread: str | None = None,
    namespace: str | None = None,
    seq: int | None = None,
    entry: str | None = None,
    blob: str | None = None,
) -> Problem:
    """A problem whose texts may be damaged themselves: they are made fit to be shown.

    A problem names its namespace only if that is not the default one.
    """
    clean = [
        None if text is None else text.encode("utf-8", "replace").decode("utf-8")
        for text in (message, thread, entry)
    ]
    return Problem(
        code=code,
        message=clean[0] or "",
        thread=clean[1],
        seq=seq,
        entry=clean[2],
        blob=blob,
        namespace=None if namespace == DEFAULT_NAMESPACE else namespace,
    )


def unreadable(
    what: str, error: Exception, *, thread: str | None = None, namespace: str | None = None
) -> Problem:
    text = f"{what} cannot be read further: {error}"
    return problem("unreadable", text, thread=thread, namespace=namespace)


def unlike_schema(kind: str, name: str, namespace: str | None = None) -> Problem:
    text = f"{kind} {name} is not defined as it should be"
    return problem("damaged_schema", text, namespace=namespace)


def strays(count: int, table: str, target: str, *, code: str = "orphans", **where: Any) -> Problem:
    """Rows that refer to something that is not there."""
    text = f"{count} rows of {table} refer to {target} that are not there"
    return problem(code, text, **where)


def damaged_blob(hash: str, error: Exception, namespace: str | None = None) -> Problem:
    return problem("damaged_blob", str(error), blob=hash, namespace=namespace)


def damaged_lease(thread: str, namespace: str | None = None, where: str = "") -> Problem:
    text = f"{where}its lease is not as it was written"
    return problem("damaged_lease", text, thread=thread, namespace=namespace)


# --- progress ---


class Meter:
    """Counts what was checked, and tells the caller now and then how far the check is."""

    def __init__(self, progress: Progress | None, total: int, every: int | None = None) -> None:
        self._progress = progress
        self._every = every
        self._done = 0
        self._total = total

    def step(self) -> None:
        self._done += 1
        if self._progress is not None and self._done % (self._every or TOLD_EVERY) == 0:
            # Others write meanwhile, so there may be more than were counted.
            self._progress(min(self._done, self._total), self._total)

    def end(self) -> None:
        if self._progress is not None:
            self._progress(self._total, self._total)
