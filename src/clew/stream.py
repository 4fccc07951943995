"""A reply that is stored while it is streamed: safe now and then, and whole at the end.

Entries never change, so every save writes what there is as a new entry with the same parent, which
the leaf moves to: a path has one of them. The last one is the whole reply. What is there when the
stream breaks is marked as `partial` in its meta, and is a message like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from msgspec.structs import replace

from clew import messages
from clew.core import drafts
from clew.core.drafts import check_fence, mint, seconds
from clew.core.errors import ClewError, Conflict, NotFound
from clew.core.model import Draft, Entry, EntryDraft
from clew.exchange import Reply, reply_drafts, reply_of
from clew.messages.neutral import text_of
from clew.messages.response import read_response
from clew.messages.shared.stream import Streamed

if TYPE_CHECKING:
    from clew.thread import Thread

SAVE_SECONDS = 1.0
# A reply of more bytes is saved less often, so that a second writes no more than this.
_SAVE_BYTES = 16 * 1024
_TRIES = 20


class StreamedReply:
    """A reply of a model that comes in events, for the length of a `with`.

    `feed` takes each event. What has come is saved at most every `save_seconds`, by the store's
    clock; a reply of more than 16 KB less often, so that saving it costs no more for that. Leaving
    the block stores the reply with its usage, as `Thread.append_response` does. If it is left
    before the reply has come to its end, what there is is stored, and its meta says why it is
    `partial`. Calls whose arguments were cut off are not part of a message: they stand under
    `unfinished` in the meta.
    """

    def __init__(
        self,
        thread: Thread,
        format: str,
        *,
        id: str | None = None,
        turn: str | None = None,
        meta: Mapping[str, Any] | None = None,
        save_seconds: float = SAVE_SECONDS,
        fence: int | None = None,
    ) -> None:
        self.thread = thread
        self.format = format
        self.id = mint(id)
        self._gathered = messages.accumulator(format)
        self._turn = turn
        self._meta = {} if meta is None else meta
        self._save_us = seconds(save_seconds, "save_seconds") * 1e6
        self._fence = check_fence(fence)
        self._parent: str | None = None
        self._leaf: str | None = None  # where the thread stands as far as we know
        self._saved: str | None = None
        self._saved_us = 0
        self._saved_bytes = 0
        self._result: Reply | None = None

    def __enter__(self) -> Self:
        self._parent = self._leaf = self.thread.leaf
        self._saved_us = self.thread.store.clock()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._end(error)
        except ClewError as lost:
            if error is None:
                raise
            # The caller's own error tells more than what could not be stored because of it.
            error.add_note(f"clew: what was streamed could not be stored: {lost}")

    # --- while it comes ---

    def feed(self, event: Any) -> None:
        """Take the next event: an object of the SDK, or JSON. Saves what there is if it is time.

        InvalidInput for an event of another provider, out of order or behind the end; then it has
        changed nothing.
        """
        if self.take(event):
            self.save()

    def take(self, event: Any) -> bool:
        """Like `feed`, but writes nothing: whether it is time to `save`."""
        self._gathered.add(event)
        passed = self.thread.store.clock() - self._saved_us
        stretch = max(1.0, self._saved_bytes / _SAVE_BYTES)
        return not 0 <= passed < self._save_us * stretch  # a clock may be set back

    def save(self) -> Entry | None:
        """Save what has come so far, now; None if the model has said nothing yet.

        If the store cannot do so for the moment, that is left to the next time.
        """
        self._saved_us = self.thread.store.clock()
        streamed = self._gathered.so_far()
        found = None if streamed is None else read_response(streamed.response, self.format)
        if streamed is None or found is None or found.message is None:
            return None
        made = reply_drafts(found, self.thread.store.clock, {"turn": self._turn})[0]
        batch = [self._marked(made, streamed, "streaming")]
        try:
            return self._append(batch)[0]
        except ClewError as error:
            if not error.retryable:
                raise
            return None

    @property
    def text(self) -> str:
        """The words that have come so far."""
        streamed = self._gathered.so_far()
        if streamed is None:
            return ""
        found = read_response(streamed.response, self.format)
        return "".join([text_of(one) for one in found.said])

    @property
    def result(self) -> Reply:
        """The reply as it was stored, when the block is left. RuntimeError if nothing was."""
        if self._result is None:
            raise RuntimeError("there is no reply: the block is not left, or no event came")
        return self._result

    # --- when it ends ---

    def _end(self, error: BaseException | None) -> None:
        streamed = self._gathered.so_far()
        if streamed is None:
            return
        found = read_response(streamed.response, self.format)
        about: Any = {"id": self.id, "turn": self._turn, "meta": self._meta}
        batch = reply_drafts(found, self.thread.store.clock, about)
        if not streamed.is_whole or streamed.unfinished:
            why = self._gathered.error or _told(error) or "the stream ended before the reply did"
            batch[0] = self._marked(batch[0], streamed, None if streamed.is_whole else why)
        written = self._append(batch)
        self._result = reply_of(found, written, is_partial=not streamed.is_whole)

    def _marked(self, made: EntryDraft, streamed: Streamed, why: str | None) -> EntryDraft:
        """The draft, with what there is to be known about a reply that is not whole."""
        meta = {**self._meta, "stream": self.id}
        if why is not None:
            meta["partial"] = why[:1000]
        if streamed.unfinished:
            meta["unfinished"] = list(streamed.unfinished[:8])
        marked = drafts.draft(made.kind, None, meta=meta)
        return replace(made, meta_data=marked.meta_data)

    # --- one after the other, in one place ---

    def _append(self, batch: list[EntryDraft]) -> list[Entry]:
        """Append in place of what was saved before. Gives the entries of the batch."""
        for _ in range(_TRIES):
            try:
                written = self._append_once(batch)
            except Conflict as error:
                if error.field != "leaf":
                    raise
                last = error
                continue
            self._saved = self._leaf = written[-1].id
            self._saved_bytes = len(batch[0].data)
            return written
        raise last

    def _append_once(self, batch: list[EntryDraft]) -> list[Entry]:
        thread, leaf = self.thread, self.thread.leaf
        if leaf == self._leaf:
            placed = [replace(batch[0], parent=self._parent), *batch[1:]]
            return thread.append(placed, expect=leaf, fence=self._fence)
        clock = thread.store.clock
        if self._saved is None and self._is_on_path(leaf):
            # Another entry was appended before anything was saved: the reply comes behind it.
            self._parent = self._leaf = leaf
            return self._append_once(batch)
        if self._is_on_path(leaf):
            # Entries hang on what was saved. They stay where they are, and the reply goes on
            # behind them: what was saved before is left out of contexts.
            edit = drafts.draft(
                "context_edit",
                {"edit": "remove", "target": self._saved},
                turn=self._turn,
                clock=clock,
            )
            written = thread.append([edit, *batch], expect=leaf, fence=self._fence)
            self._parent = written[0].id
            return written[1:]
        # The thread was moved away meanwhile: the reply is a branch beside it, where it belongs.
        placed = [replace(batch[0], parent=self._parent), *batch[1:]]
        back: list[Draft] = [*placed, drafts.move(leaf, clock())]
        records = thread.write(back, expect=leaf, fence=self._fence)
        return [record for record in records if isinstance(record, Entry)]

    def _is_on_path(self, leaf: str | None) -> bool:
        if self._leaf is None:
            return True
        try:
            self.thread.path(leaf, after=self._leaf)
        except NotFound:
            return False
        return True


def _told(error: BaseException | None) -> str | None:
    if error is None:
        return None
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
