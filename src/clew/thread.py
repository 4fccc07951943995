"""The thread handle: one conversation or run, a tree of entries with one current leaf."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack, overload

from msgspec import UNSET, UnsetType

from clew import exchange, tree
from clew.context.tokens import KEEP_USER_TOKENS, Count, estimate
from clew.core import drafts
from clew.core.drafts import check_fence, check_number, check_place, seconds
from clew.core.engine import pages
from clew.core.errors import InvalidInput
from clew.core.model import (
    Draft,
    Entry,
    EntryDraft,
    Fact,
    Move,
    Record,
    Segment,
    ThreadInfo,
    to_us,
)
from clew.core.names import check_name
from clew.core.parts import loading, part
from clew.core.removal import Receipt
from clew.exchange import Outputs, Reply
from clew.messages.incoming import message_draft
from clew.tree import Comparison
from clew.turn import Leases, Turn

if TYPE_CHECKING:
    from clew.context.compaction import Compacted
    from clew.context.projection import Purpose
    from clew.context.request import Context
    from clew.core.options import (
        CompactionNotes,
        EntryFields,
        FencedRewindOptions,
        FencedStreamOptions,
        FencedUndoOptions,
        ForkOptions,
        UsageOptions,
    )
    from clew.snapshots.facet import Snapshots
    from clew.snapshots.model import Rewound
    from clew.store import Store
    from clew.stream import StreamedReply
    from clew.usage.model import UsageReport

_PAGE = 1000


class Thread:
    """A thread of a store. Handles are cheap, hold no state, and may be used by many at once."""

    def __init__(self, store: Store, id: str) -> None:
        self.store = store
        self.id = id
        self.leases = Leases(store.engine, id)

    # --- looking ---

    @property
    def info(self) -> ThreadInfo:
        """The thread's metadata as it is now: one read."""
        return self.store.engine.thread(self.id)

    @property
    def leaf(self) -> str | None:
        """The entry that the thread stands on; None before the root."""
        return self.info.leaf

    def get(self, entry: str) -> Entry:
        """An entry of this thread, or of the path that it shares with its origin. NotFound."""
        return self.store.engine.path(self.id, check_name(entry, "entry"), limit=1)[0]

    def path(
        self,
        leaf: str | UnsetType | None = UNSET,
        *,
        after: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """The entries from the root to `leaf` (default: where the thread stands), oldest first.

        `after` leaves out everything up to that entry, `limit` all but the newest. What is left
        out is not read.
        """
        if limit is not None:
            check_number(limit, "limit", 1)
        if after is not None:
            check_name(after, "after")
        check_place(leaf, "leaf")
        return self.store.engine.path(self.id, leaf, after=after, limit=limit)

    def entries(self) -> Iterator[Entry]:
        """Every entry: first the path shared with the origin, then the thread's own by seq."""
        origin = self.info.origin
        if origin is not None and origin.entry is not None:
            yield from self.path(origin.entry)
        yield from (record for record in self.read() if isinstance(record, Entry))

    def read(self, *, after: int = 0) -> Iterator[Record]:
        """The complete change feed: entries, moves and facts with seq > after, without a gap."""
        check_number(after, "after")
        for page in pages(self.store.engine, self.id, after=after, limit=_PAGE):
            yield from page

    def follow(
        self, *, after: int | None = None, idle_seconds: float | None = None
    ) -> Iterator[Record]:
        """Records as they are committed, by any process, from `after` (default: from now) on.

        Ends when nothing came for `idle_seconds`; by default it waits for ever.
        """
        seen = self.info.seq if after is None else after
        # An engine waits for a bounded time; for ever is round after round of it.
        wait_seconds = 60.0 if idle_seconds is None else seconds(idle_seconds, "idle_seconds")
        while True:
            for record in self.read(after=seen):
                yield record
                seen = record.seq
            woken = self.store.engine.wait(self.id, after=seen, timeout_seconds=wait_seconds)
            if not woken and idle_seconds is not None:
                return

    # --- the shape of the tree ---

    def segments(self) -> list[Segment]:
        """The runs of consecutive entries that the thread's own tree is made of."""
        return self.store.engine.segments(self.id)

    def leaves(self) -> list[str]:
        """The entries without children, in the order they were written."""
        return tree.leaves(self)

    def children(self, entry: str | None) -> list[str]:
        """The entries whose parent is `entry`, oldest first; None asks for the roots."""
        return tree.children(self, entry)

    def compare(self, left: str, right: str, *, thread: str | Thread | None = None) -> Comparison:
        """Where the paths to two entries part. Reads as far back as that, not further.

        `thread` says whose entry `right` is, if it is not one of this thread: a fork's, the
        origin's. `Store.compare` compares two threads as they stand.
        """
        given = self if thread is None else thread
        other = given if isinstance(given, Thread) else self.store.get(given)
        return tree.compare((self, left), (other, right))

    def adopt(
        self, fork: str | Thread, *, force: bool = False, fence: int | None = None
    ) -> list[Entry]:
        """Bring what a fork has added to this thread, and stand where the fork stands.

        They become entries of this thread behind the one that both share, with the ids and times
        that they have, labels too; `adopted` in the meta names the thread and the entry that each
        comes from. Gives them. What was adopted before is not brought again. InvalidInput if it is
        no fork of this thread. If the thread has moved on since, that is a Conflict, and nothing is
        written; with `force` what it has of its own stays as a branch. A `move` takes it back.
        """
        other = fork if isinstance(fork, Thread) else self.store.get(fork)
        return tree.adopt(self, other, force=force, fence=fence)

    # --- appending ---

    @overload
    def append(
        self,
        kind: str,
        body: Any = None,
        *,
        id: str | None = None,
        parent: str | UnsetType | None = UNSET,
        turn: str | None = None,
        format: str | None = None,
        meta: Mapping[str, Any] | None = None,
        blobs: Iterable[str] = (),
        time: datetime | None = None,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> Entry: ...

    @overload
    def append(
        self,
        kind: Iterable[EntryDraft],
        *,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> list[Entry]: ...

    def append(
        self,
        kind: str | Iterable[EntryDraft],
        body: Any = None,
        *,
        format: str | None = None,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
        **fields: Unpack[EntryFields],
    ) -> Entry | list[Entry]:
        """Append one entry, or several drafts as one atomic step; durable when it returns.

        The first becomes a child of the leaf, or of `parent`; the leaf moves to the last.
        `expect` is the leaf you know of: Conflict if the thread stands elsewhere. `fence` is
        that of your lease. An `id` that is stored already with the same content gives the
        stored entry, so a retry is harmless; with other content it is a Conflict. What you do not
        say (turn, format, meta, blobs, parent) is not compared, nor is the turn of `Turn.append`.
        """
        entries = self._append(self._drafts(kind, body, format, fields), expect, fence)
        return entries[0] if isinstance(kind, str) else entries

    def _drafts(
        self, kind: str | Iterable[EntryDraft], body: Any, format: str | None, fields: EntryFields
    ) -> list[EntryDraft]:
        """What `append` was given, checked."""
        if isinstance(kind, str):
            # `once`: with an id that was minted here, the engine need not look for a retry.
            clock = self.store.clock
            return [drafts.draft(kind, body, format=format, clock=clock, once=True, **fields)]
        if fields or format is not None or body is not None:
            raise InvalidInput("append", "give the drafts themselves what each of them should have")
        return drafts.check_batch(kind)

    def _append(
        self, batch: Sequence[Draft], expect: str | UnsetType | None, fence: int | None
    ) -> list[Any]:
        """The only way to the engine for what is written: a record for each draft."""
        return self.store.engine.append(
            self.id, batch, expect=check_place(expect, "expect"), fence=check_fence(fence)
        )

    def append_message(
        self,
        message: Any,
        *,
        format: str | None = None,
        id: str | None = None,
        parent: str | UnsetType | None = UNSET,
        turn: str | None = None,
        meta: Mapping[str, Any] | None = None,
        blobs: Iterable[str] = (),
        time: datetime | None = None,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> Entry:
        """Append a message as the provider gave it: a dict, an object of its SDK, or a response.

        Its kind follows from what it says. InvalidInput, with the place, if it has no role and no
        format can read it, or if its content is neither text nor blocks. With `format` it must be
        a message of that format, and a result must answer a call on the path that it goes to.
        """
        one = message_draft(
            message,
            format,
            unknown_calls=lambda calls: calls - tree.calls(self, calls, parent).keys(),
            id=id,
            parent=parent,
            turn=turn,
            meta=meta,
            blobs=blobs,
            time=time,
            clock=self.store.clock,
            once=True,
        )
        entry: Entry = self._append([one], expect, fence)[0]
        return entry

    def append_response(
        self,
        response: Any,
        *,
        format: str | None = None,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
        **fields: Unpack[EntryFields],
    ) -> Reply:
        """Append a whole reply of a model: an object of a provider's SDK, or the JSON of it.

        Of Anthropic, of OpenAI (Chat Completions or Responses) or of Gemini. What it said becomes
        one message, with every block or item in order; the model, the response's id, why it
        stopped and what it cost become a usage entry. Both are one step. The answer has the calls
        that wait for their results. With an `id`, the usage entry's is `<id>.usage`.
        """
        return exchange.append_response(
            self, response, format, expect=expect, fence=fence, fields=fields
        )

    def streaming(self, format: str, **options: Unpack[FencedStreamOptions]) -> StreamedReply:
        """A reply that comes in events: `with thread.streaming("anthropic") as reply`, and then
        `reply.feed(event)` for each. What came is safe every `save_seconds` (1.0); see there."""
        reply: StreamedReply = part("StreamedReply")(self, format, **options)
        return reply

    def append_results(
        self,
        outputs: Outputs,
        *,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
        **fields: Unpack[EntryFields],
    ) -> list[Entry]:
        """Append what tools gave, by the calls' ids, as one step: `{call.id: output, …}`.

        An output is a text, an exception (then it is an error), a list of blocks of text and media,
        what an MCP tool gave, or any JSON. Pairs of a call and its output do as well. InvalidInput
        for a call that is not on the path. With an `id`, the entries' are `<id>.1` and so on.
        """
        return exchange.append_results(self, outputs, expect=expect, fence=fence, fields=fields)

    def write(
        self,
        batch: Iterable[Draft],
        *,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> list[Record]:
        """Write entries, moves and facts as one atomic step, in the order given; a record each.

        What facets are built on, where `append`, `move` and `set` one after another would leave
        a gap for a crash or another process. The drafts come from `clew.core.drafts`: `draft`,
        `move` and `facts`. `expect` and `fence` are those of `append`.
        """
        return self._append(drafts.check_drafts(batch), expect, fence)

    def move(
        self,
        leaf: str | None,
        *,
        id: str | None = None,
        time: datetime | None = None,
        expect: str | UnsetType | None = UNSET,
        fence: int | None = None,
    ) -> Move:
        """Stand on another entry, or with None before the root. What was after it stays.

        With an `id` of yours a retry moves nothing twice. A move sets `updated_at` to its `time`,
        by default now.
        """
        draft = drafts.move(leaf, self.store.clock() if time is None else to_us(time), id)
        record = self._append([draft], expect, fence)[0]
        assert isinstance(record, Move)
        return record

    # --- facts ---

    def set(self, **facts: Any) -> list[Fact]:
        """Set facts, latest wins, all in one step: `thread.set(title="…", archived=True)`.

        None removes a fact. title, tags, archived, status and workspace have a meaning for
        lists; any other key is yours. Setting facts does not change `updated_at`.
        """
        return self.set_facts(facts)

    def set_facts(self, facts: Mapping[str, Any]) -> list[Fact]:
        """Like `set`, for keys that are not names in Python."""
        batch = drafts.facts(facts, self.store.clock())
        return self._append(batch, UNSET, None)

    def set_title(
        self, text: str, *, status: str = "ready", source: str = "host", error: str | None = None
    ) -> None:
        """Set the title with its history: who made it, and whether it is ready."""
        title = {"text": text, "status": status, "source": source, "error": error}
        self.set(title={**title, "time_us": self.store.clock()})

    def viewed(self, time: datetime | None = None) -> None:
        """Note when a person has last looked at the thread."""
        self.set(last_viewed_us=self.store.clock() if time is None else to_us(time))

    def label(self, entry: str, name: str | None) -> None:
        """Give an entry a name that people can find it by; None takes it away."""
        self.get(entry)
        self.set_facts({f"label.{entry}": name})

    def erase(self, *entries: str, reason: str | None = None, shrink: bool = False) -> Receipt:
        """Remove the bodies and metas of entries for good: see `Store.erase`."""
        return self.store.erase(self.id, entries, reason=reason, shrink=shrink)

    @property
    def facts(self) -> dict[str, Any]:
        """The latest value of every fact."""
        return self.info.facts

    @property
    def labels(self) -> dict[str, str]:
        """Entry id → the name it was given."""
        return self.info.labels

    # --- projections ---

    def context(
        self,
        format: str | None = None,
        *,
        leaf: str | UnsetType | None = UNSET,
        purpose: Purpose = "provider_request",
        compacted: bool = True,
        budget_tokens: int | None = None,
        count: Count = estimate,
        system: bool = True,
        signal_tools: Collection[str] = (),
        segments: bool = False,
    ) -> Context:
        """The messages for a provider, valid whatever happened to the thread.

        `format` is anthropic, openai-chat, openai-responses, gemini or plain; by default the one
        that the thread's newest message is in. Unanswered calls, orphan results, duplicates and
        the like are repaired on the way out; `report` lists each repair with its entry, the
        journal is not touched. `budget_tokens` keeps the newest whole turns, `count` is a token
        counter of yours for a text. `compacted=False` shows what compactions stand for.
        `signal_tools` are tools whose calls only tell the host something. `segments=True` says
        where each entry went.
        """
        with loading("clew.context"):  # with all that makes a context of a path
            from clew.context.projection import Options

        options = Options(
            format=format,
            purpose=purpose,
            budget_tokens=budget_tokens,
            count=count,
            system=system,
            signal_tools=signal_tools,
            segments=segments,
        )
        return self.store.recall.context(self, options, leaf, compacted=compacted)

    def compact(
        self,
        summarize: Callable[[list[Any]], str] | None = None,
        *,
        summary: str | None = None,
        keep_turns: int | None = None,
        keep_tokens: int | None = None,
        keep_user_tokens: int = KEEP_USER_TOKENS,
        through: str | None = None,
        max_tokens: int | None = None,
        format: str | None = None,
        fence: int | None = None,
        **notes: Unpack[CompactionNotes],
    ) -> Entry | None:
        """Let a summary stand for all but the newest turns; None if there is nothing before them.

        `summarize` gets the messages to be summed up and returns the text; or give the `summary`
        itself. With `max_tokens` it is asked in pieces of at most that many, and then to sum up the
        summaries. `through` is the last entry that it stands for, if you choose that. Entries
        appended meanwhile survive; if the thread was moved away or compacted meanwhile, it is a
        Conflict. Nothing is deleted. `notes`: trigger, reason, phase, usage_before, usage_after,
        details.
        """
        with loading("clew.context"):
            from clew.context import compaction

        return compaction.compact(
            self,
            summarize,
            summary,
            through=through,
            fence=fence,
            notes={**notes},
            keep_turns=keep_turns,
            keep_tokens=keep_tokens,
            keep_user_tokens=keep_user_tokens,
            max_tokens=max_tokens,
            format=format,
        )

    def uncompact(self, *, fence: int | None = None) -> Entry | None:
        """Undo the compaction in force; the entry that it was, or None. Loses nothing."""
        with loading("clew.context"):
            from clew.context import compaction

        return compaction.uncompact(self, fence=fence)

    def compaction(self) -> Compacted | None:
        """What the summary that is in force stands for: the entries that it replaces."""
        with loading("clew.context"):
            from clew.context import compaction

        return compaction.explain(self)

    def usage(self, **options: Unpack[UsageOptions]) -> UsageReport:
        """What the replies in this thread took and cost, by model; see `Store.usage`.

        `tree=True` takes its forks and sub-agents in.
        """
        return self.store.usage(self.id, **options)

    # --- turns ---

    def turn(
        self,
        *,
        owner: str,
        id: str | None = None,
        ttl_seconds: float = 30.0,
        wait_seconds: float = 0.0,
        files: str | os.PathLike[str] | None = None,
    ) -> Turn:
        """The right to write for the length of a `with`; see `Turn`.

        With `files`, a folder, it begins and ends with a snapshot of it, so that what is changed
        in between is known as the turn's own, and can be rewound.
        """
        return Turn(
            self,
            owner=owner,
            id=id,
            ttl_seconds=ttl_seconds,
            wait_seconds=wait_seconds,
            files=files,
        )

    def unfinished_turn(self) -> Entry | None:
        """The marker of a turn on the current path that was started and never ended.

        That is what a crash leaves behind, as well as what a running turn looks like; the
        lease (`thread.leases.active()`) tells them apart.
        """
        return tree.unfinished_turn(self)

    @property
    def snapshots(self) -> Snapshots:
        """Trees of files, pinned to entries: take, look, go back."""
        facet: Snapshots = part("Snapshots")(self)
        return facet

    def rewind(self, to: str, **options: Unpack[FencedRewindOptions]) -> Rewound:
        """Go back to before a user message, by its id or its label, with the files as they were.

        The files of a point are those of the nearest snapshot with no work between the two: for a
        user message, at it or before it, the first that was taken for it; elsewhere the last one
        up to the point, or else the first one after it. NotFound if there is none.

        `conversation=False` or `files=False` leaves the one or the other as it is, `at` stops at
        the message itself, `root` is the folder if it is not the one of the snapshot. `dry_run`
        only tells, `progress` is told how many files are done, of how many. Changed files that no
        snapshot has are a Conflict with their names, unless `force`; with it, what others added
        since goes as well. Undo brings all of it back.
        """
        return self.snapshots.rewind(to, **options)

    def undo_rewind(self, **options: Unpack[FencedUndoOptions]) -> Rewound:
        """Take the last rewind or restore back: files and leaf. InvalidInput if there is none.

        The next undo takes the one before that back. `root` says where the folder is now if it
        was moved; the other options are those of `rewind`.
        """
        return self.snapshots.undo_rewind(**options)

    def redo_rewind(self, **options: Unpack[FencedUndoOptions]) -> Rewound:
        """Take the last undo back: the rewind or restore is done again, files and leaf.

        InvalidInput if there is none, or no longer: a rewind, a restore, and every entry but
        markers and snapshots that comes after an undo end what could be redone.
        """
        return self.snapshots.redo_rewind(**options)

    def count_user_messages(self) -> int:
        """How many user messages lie on the current path."""
        return sum(entry.kind == "user_message" for entry in self.path())

    def fork(
        self,
        *,
        files_to: str | os.PathLike[str] | None = None,
        root: str | os.PathLike[str] | None = None,
        **options: Unpack[ForkOptions],
    ) -> Thread:
        """A new thread from this one: see `Store.fork`.

        With `files_to` it gets the files that belong to the point where it begins, in that new
        folder: see `rewind`. `root` says whose, if there are snapshots of several folders.
        """
        if files_to is None:
            if root is not None:
                raise InvalidInput("root", "is about the files that files_to asks for")
            return self.store.fork(self.id, **options)
        return self.snapshots.fork(files_to, root=root, **options)

    def __repr__(self) -> str:
        return f"<clew.Thread {self.id!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Thread) and (other.store, other.id) == (self.store, self.id)

    def __hash__(self) -> int:
        return hash(self.id)
