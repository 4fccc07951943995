"""The right to write a thread: for a turn, as a `with` block, or by hand, as a lease.

A turn is the group of entries between a request and rest. It takes the lease, and a sleeping
thread renews it until the block is left.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from msgspec import UNSET, UnsetType, to_builtins
from msgspec.structs import replace

from clew.core.drafts import (
    ImpliedTurn,
    check_batch,
    check_folder,
    check_number,
    mint,
    seconds,
)
from clew.core.engine import Engine
from clew.core.errors import ClewError, Corrupt, InvalidInput, LeaseHeld, NotFound, Unavailable
from clew.core.model import (
    Acquire,
    ClearExpired,
    Entry,
    EntryDraft,
    Inspect,
    Lease,
    Move,
    Release,
    Renew,
    to_us,
)
from clew.core.names import check_name
from clew.messages.neutral import Usage
from clew.messages.usage import in_note

if TYPE_CHECKING:
    from clew.context.request import Context
    from clew.core.options import (
        AppendOptions,
        CompactOptions,
        ContextOptions,
        RestoreOptions,
        RewindOptions,
        SnapshotOptions,
        StreamOptions,
        UndoOptions,
    )
    from clew.exchange import Outputs, Reply
    from clew.snapshots.model import Restored, Rewound, Snapshot
    from clew.stream import StreamedReply
    from clew.thread import Thread

_RETRY_SECONDS = 0.05
CHANGES_MAX = 1000  # files that a marker names; more are counted


class Turn:
    """The right to write a thread for the length of a `with`.

    Entering takes the lease and writes a `started` marker. Leaving writes how it ended and
    gives the lease back: `completed`, or `waiting` or `aborted` if you said so, or `failed` with
    the text of an exception, which goes on its way (`aborted` if it is not an Exception, as
    with Ctrl-C or a cancelled task). In between the lease is renewed in the background.

    Raises LeaseHeld on entering while another owner is at work; `wait_seconds` waits for it.

    With `files`, a folder, a snapshot of it is taken before the first marker and before the last,
    unless it is as in the snapshot before; the markers name it. So what was changed meanwhile
    is known as the turn's own, and the last marker tells it: `changes`, with the hashes of each
    file before and after. If the last snapshot fails, the turn ends all the same, and Unavailable
    says so; its `committed` is True.

    The last marker also states what the replies of the turn took in all, as their usage entries
    tell it: `usage`, with how many there were.
    """

    def __init__(
        self,
        thread: Thread,
        *,
        owner: str,
        id: str | None = None,
        ttl_seconds: float = 30.0,
        wait_seconds: float = 0.0,
        files: str | os.PathLike[str] | None = None,
    ) -> None:
        self.thread = thread
        self.owner = check_name(owner, "owner")
        self.id = mint(id)
        self._implied = ImpliedTurn(self.id)  # for entries whose caller does not say a turn
        self._ttl_seconds = seconds(ttl_seconds, "ttl_seconds")
        self._wait_seconds = seconds(wait_seconds, "wait_seconds")
        # By its full name: the program may change its folder before the turn ends.
        self.files = None if files is None else os.path.abspath(check_folder(files, "files"))
        self._lease: Lease | None = None
        self._end: tuple[str, dict[str, Any]] = ("completed", {})
        self._began: str | None = None  # the snapshot of the files as they were
        self._used: dict[str, Usage] = {}  # by the entry that tells it: one may be written twice
        self._stream: StreamedReply | None = None  # the last one, which may not have ended

    @property
    def lease(self) -> Lease:
        """The lease as it was taken. Its fence goes with every append of the turn."""
        if self._lease is None:
            raise RuntimeError("the turn is not entered; use it in a with statement")
        return self._lease

    # --- entering and leaving ---

    def __enter__(self) -> Self:
        if self._lease is not None:
            raise RuntimeError("a turn is for one with statement; ask the thread for another one")
        self._lease = self._acquire()
        # Renewed from here on: to look at a large folder may take longer than the lease lasts.
        self.thread.store.renewer.add(self.lease, self._ttl_seconds, self)
        try:
            self._begin()
        except BaseException:
            # Without its marker a turn has not begun, so its lease must not keep others out.
            self.thread.store.renewer.remove(self.lease)
            self.thread.leases.release(self.lease)
            self._lease = None
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            status = "failed" if isinstance(error, Exception) else "aborted"
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            self._end = (status, {"error": text})
        status, more = self._end
        unseen: BaseException | None = None
        try:
            more = more | self._look_back()
        except BaseException as failed:
            unseen = failed  # whatever it is: the turn must end, and its lease go back
        self.thread.store.renewer.remove(self.lease)
        try:
            # Before the release: a marker needs the fence as well.
            self._mark(status, more | self._total())
            self.thread.leases.release(self.lease)
        except ClewError as lost:
            if error is None:
                raise
            # The caller's own error tells more than the lease that was lost because of it.
            error.add_note(f"clew: the end of the turn could not be written: {lost}")
            return
        if unseen is not None:
            self._tell(unseen, status, error)

    def _begin(self) -> None:
        seen = self._look()
        self._began = self._began or seen.get("snapshot")
        self._mark("started", {"owner": self.owner, **seen})

    def _look(self) -> dict[str, Any]:
        """What a marker says of the files: the snapshot that shows them as they are now."""
        if self.files is None:
            return {}
        taken = self.thread.snapshots.take_if_changed(self.files, fence=self.lease.fence)
        return {"snapshot": taken.id}

    def _look_back(self) -> dict[str, Any]:
        """What the last marker says of the files: how they are now, and what the turn did."""
        seen = self._look()
        began, ended = self._began, seen.get("snapshot")
        if began is None or ended is None or began == ended:
            return seen
        try:
            snapshots = self.thread.snapshots
            # No more than are told: their contents are read, and a turn may have unpacked a tree.
            told = [to_builtins(c) for c in snapshots.changes(began, ended, limit=CHANGES_MAX)]
            left = 0
            if len(told) == CHANGES_MAX:
                every = snapshots.diff(began, ended)
                left = sum((d.new_kind or d.old_kind) != "folder" for d in every) - CHANGES_MAX
        except (Corrupt, NotFound):
            return seen  # the first one was dropped, or is damaged, which is for `verify` to tell
        return {**seen, "changes": told, **({"changes_left_out": left} if left else {})}

    def _total(self) -> dict[str, Any]:
        """What the last marker says of the replies: the sum of what each of them took."""
        self._note_stream()
        if not self._used:
            return {}
        used = self._used.values()
        sums = {name: sum(getattr(one, name) for one in used) for name in Usage.__struct_fields__}
        return {"usage": {"replies": len(used), **sums}}

    def _note(self, *entries: Entry) -> None:
        """Note what usage entries of this turn tell."""
        for entry in entries:
            told = in_note(entry.format, entry.body).usage if entry.kind == "usage" else None
            if told is not None:
                self._used[entry.id] = told

    def _note_stream(self) -> None:
        if self._stream is not None:
            try:
                self._note(self._stream.result.usage)
            except RuntimeError:
                pass  # nothing came, or it has not ended

    def _tell(self, unseen: BaseException, status: str, error: BaseException | None) -> None:
        """That the last snapshot failed: by its own error, or by a note to the caller's."""
        text = (
            f"the turn has ended as {status} and its lease is given back, but there is no snapshot "
            f"of {self.files} at its end, so that what it changed will look like changes of others"
        )
        if error is not None:
            error.add_note(f"clew: {text}: {unseen}")
        elif isinstance(unseen, Exception):
            message = f"{text}: {unseen}"
            raise Unavailable(message, retryable=False, committed=True) from unseen
        else:
            unseen.add_note(f"clew: {text}")
            raise unseen

    def _acquire(self) -> Lease:
        deadline = time.monotonic() + self._wait_seconds
        while True:
            try:
                return self.thread.leases.acquire(
                    self.owner, ttl_seconds=self._ttl_seconds, turn=self.id
                )
            except LeaseHeld:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
                # A lease may end by its time alone, which no engine can wake a waiter for.
                time.sleep(min(left, _RETRY_SECONDS))

    # --- writing ---

    @overload
    def append(
        self,
        kind: str,
        body: Any = None,
        *,
        format: str | None = None,
        **options: Unpack[AppendOptions],
    ) -> Entry: ...

    @overload
    def append(
        self, kind: Iterable[EntryDraft], *, expect: str | UnsetType | None = UNSET
    ) -> list[Entry]: ...

    def append(
        self,
        kind: str | Iterable[EntryDraft],
        body: Any = None,
        *,
        format: str | None = None,
        **options: Unpack[AppendOptions],
    ) -> Entry | list[Entry]:
        """Append to the thread as part of this turn. LeaseLost if the lease is over."""
        fence = self.lease.fence
        if isinstance(kind, str):
            options.setdefault("turn", self._implied)
            entry = self.thread.append(kind, body, format=format, fence=fence, **options)
            self._note(entry)
            return entry
        given = check_batch(kind)
        mine = [
            d if d.turn is not None else replace(d, turn=self.id, implied_turn=True) for d in given
        ]
        # A body or fields beside drafts are passed on too, because the thread refuses them.
        written: list[Entry] = self.thread.append(  # type: ignore[call-overload]
            mine, body, format=format, fence=fence, **options
        )
        self._note(*written)
        return written

    def append_message(
        self, message: Any, *, format: str | None = None, **options: Unpack[AppendOptions]
    ) -> Entry:
        """Append a message as part of this turn; see `Thread.append_message`."""
        options.setdefault("turn", self._implied)
        return self.thread.append_message(message, format=format, fence=self.lease.fence, **options)

    def append_response(
        self, response: Any, *, format: str | None = None, **options: Unpack[AppendOptions]
    ) -> Reply:
        """Append a whole reply of a model as part of this turn; see `Thread.append_response`."""
        options.setdefault("turn", self._implied)
        reply = self.thread.append_response(
            response, format=format, fence=self.lease.fence, **options
        )
        self._note(reply.usage)
        return reply

    def streaming(self, format: str, **options: Unpack[StreamOptions]) -> StreamedReply:
        """A reply that comes in events, as part of this turn; see `Thread.streaming`."""
        self._note_stream()
        fence = self.lease.fence
        self._stream = self.thread.streaming(format, turn=self._implied, fence=fence, **options)
        return self._stream

    def append_results(self, outputs: Outputs, **options: Unpack[AppendOptions]) -> list[Entry]:
        """Append what tools gave as part of this turn; see `Thread.append_results`."""
        options.setdefault("turn", self._implied)
        return self.thread.append_results(outputs, fence=self.lease.fence, **options)

    def move(self, leaf: str | None) -> Move:
        """Stand on another entry, under this turn's lease."""
        return self.thread.move(leaf, fence=self.lease.fence)

    def context(self, format: str | None = None, **options: Unpack[ContextOptions]) -> Context:
        """The messages for a provider; see `Thread.context`."""
        return self.thread.context(format, **options)

    def compact(
        self,
        summarize: Callable[[list[Any]], str] | None = None,
        **options: Unpack[CompactOptions],
    ) -> Entry | None:
        """Let a summary stand for all but the newest turns; see `Thread.compact`."""
        return self.thread.compact(summarize, fence=self.lease.fence, **options)

    def uncompact(self) -> Entry | None:
        """Undo the compaction in force; see `Thread.uncompact`."""
        return self.thread.uncompact(fence=self.lease.fence)

    # --- files ---

    def snapshot(
        self, root: str | os.PathLike[str] | None = None, **options: Unpack[SnapshotOptions]
    ) -> Snapshot:
        """Store the files under `root`, or under the turn's `files`; see `Snapshots.take`."""
        folder = self.files if root is None else root
        if folder is None:
            raise InvalidInput("root", "say of which folder: the turn was begun without files")
        return self.thread.snapshots.take(folder, fence=self.lease.fence, **options)

    def restore(
        self,
        snapshot: Snapshot | str,
        root: str | os.PathLike[str] | None = None,
        paths: Sequence[str] | None = None,
        **options: Unpack[RestoreOptions],
    ) -> Restored:
        """Bring files back as a snapshot has them; see `Snapshots.restore`."""
        self._look()
        fence = self.lease.fence
        return self.thread.snapshots.restore(snapshot, root, paths, fence=fence, **options)

    def rewind(self, to: str, **options: Unpack[RewindOptions]) -> Rewound:
        """Go back to before a user message; see `Thread.rewind`.

        In a turn with `files` a snapshot is taken first, also for a `dry_run`: what was changed
        in the turn is its own, and does not stop it. Behind its first message, or one of an
        earlier turn, the turn begins anew: its marker follows.
        """
        self._look()
        done = self.thread.rewind(to, fence=self.lease.fence, **options)
        if done.moved and not done.dry_run:
            marker = self.thread.unfinished_turn()
            if marker is None or marker.turn != self.id:
                # It lies on the branch that was left: nothing would tell of a turn here.
                self._begin()
        return done

    def undo_rewind(self, **options: Unpack[UndoOptions]) -> Rewound:
        """Take the last rewind or restore back; see `Thread.undo_rewind`."""
        self._look()
        return self.thread.undo_rewind(fence=self.lease.fence, **options)

    def redo_rewind(self, **options: Unpack[UndoOptions]) -> Rewound:
        """Take the last undo back; see `Thread.redo_rewind`."""
        self._look()
        return self.thread.redo_rewind(fence=self.lease.fence, **options)

    # --- where one can go on ---

    def save_point(self, body: dict[str, Any] | None = None) -> Entry:
        """Mark a state that a resumed run can go on from."""
        return self._mark("save_point", body or {})

    # --- how it ends ---

    def wait_for(self, reason: str) -> None:
        """End as `waiting` (for an approval, an answer) when the block is left."""
        self._end = ("waiting", {"reason": reason})

    def abort(self, reason: str) -> None:
        """End as `aborted` when the block is left."""
        self._end = ("aborted", {"reason": reason})

    def _mark(self, status: str, more: dict[str, Any]) -> Entry:
        return self.append("turn_marker", {"status": status, **more})


class Leases:
    """The lease of one thread. While it is live, appending needs its `fence`."""

    def __init__(self, engine: Engine, thread: str) -> None:
        self._engine = engine
        self._thread = thread

    def acquire(self, owner: str, *, ttl_seconds: float = 30.0, turn: str | None = None) -> Lease:
        """Take the lease, or LeaseHeld with owner and until. Also for the same owner: renew it."""
        if turn is not None:
            check_name(turn, "turn")
        request = Acquire(check_name(owner, "owner"), seconds(ttl_seconds, "ttl_seconds"), turn)
        lease = self._engine.lease(self._thread, request)
        assert lease is not None
        return lease

    def renew(self, lease: Lease, *, ttl_seconds: float = 30.0) -> Lease:
        """Hold it longer, counted from now. LeaseLost if it is over, or another owner has it."""
        renewed = self._engine.lease(
            self._thread, Renew(_fence_of(lease), seconds(ttl_seconds, "ttl_seconds"))
        )
        assert renewed is not None
        return renewed

    def release(self, lease: Lease) -> None:
        """Give it back. Releasing one that is lost does nothing."""
        self._engine.lease(self._thread, Release(_fence_of(lease)))

    def active(self) -> Lease | None:
        """The live lease, of any owner."""
        return self._engine.lease(self._thread, Inspect())

    def clear_expired(self, cutoff: datetime | None = None) -> Lease | None:
        """Remove a lease that expired or, with a cutoff, one acquired before that; what it was.

        Its holder can write no more: the next lease has another fence.
        """
        cutoff_us = None if cutoff is None else to_us(cutoff, "cutoff")
        return self._engine.lease(self._thread, ClearExpired(cutoff_us))


def _fence_of(lease: Lease) -> int:
    if not isinstance(lease, Lease):
        raise InvalidInput("lease", f"must be one that was acquired, not {lease!r}")
    return check_number(lease.fence, "fence")


class Renewer:
    """Keeps the leases of running turns alive: one sleeping thread for all turns of a store.

    It holds no turn itself. One that was thrown away without being left, with its task or its
    program, is no longer renewed, so that its lease ends by its time.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._changed = threading.Condition()
        # Lease → when it is due, for how long it is renewed, and the turn or run that holds it.
        self._due: dict[tuple[str, int], tuple[float, float, weakref.ref[object]]] = {}
        self._running: threading.Thread | None = None

    def add(self, lease: Lease, ttl_seconds: float, holder: object) -> None:
        if self._pid != os.getpid():  # a forked child: the thread stayed with the parent
            self._reset()
        with self._changed:
            key = (lease.thread, lease.fence)
            # After a third of its time: two attempts may fail before the lease is lost.
            due = time.monotonic() + ttl_seconds / 3
            self._due[key] = (due, ttl_seconds, weakref.ref(holder))
            if self._running is None:
                self._running = threading.Thread(target=self._run, name="clew-leases", daemon=True)
                self._running.start()
            self._changed.notify()

    def remove(self, lease: Lease) -> None:
        if self._pid == os.getpid():
            with self._changed:
                self._due.pop((lease.thread, lease.fence), None)

    def close(self) -> None:
        if self._pid == os.getpid():
            with self._changed:
                self._due.clear()
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._due and not self._changed.wait(timeout=5.0) and not self._due:
                    self._running = None  # nothing to do for a while: the next turn starts anew
                    return
                now = time.monotonic()
                ready = [key for key, (when, *_) in self._due.items() if when <= now]
                if not ready:
                    soonest = min((when for when, *_ in self._due.values()), default=now + 5.0)
                    self._changed.wait(timeout=max(0.0, soonest - now))
                    continue
            for key in ready:
                self._renew(key)

    def _renew(self, key: tuple[str, int]) -> None:
        thread, fence = key
        with self._changed:
            found = self._due.get(key)
            if found is None:
                return
            _, ttl_seconds, holder = found
            if holder() is None:
                del self._due[key]
                return
        try:
            self._engine.lease(thread, Renew(fence, ttl_seconds))
            pause = ttl_seconds / 3
        except ClewError as error:
            if not error.retryable:
                # Lost: the turn's next append is refused, which is how its owner learns of it.
                with self._changed:
                    self._due.pop(key, None)
                return
            pause = ttl_seconds / 10
        with self._changed:
            if key in self._due:
                self._due[key] = (time.monotonic() + pause, ttl_seconds, holder)
