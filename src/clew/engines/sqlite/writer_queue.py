"""The queue in which the processes that write one store wait.

SQLite has a lock for writers, but no queue before it: a process that finds it taken sleeps, looks
again, and gets it if it looks at the right moment. With many processes most looks are in vain,
and some wait very long. So each process first takes a lock of ours: who has it is at the *front*,
and finds SQLite's lock free. The others leave word in a mailbox beside the store and sleep. The one
at the front writes what they ask for together with its own, in one transaction and with one sync,
wakes them, and calls one that came meanwhile to the front.

The queue is a courtesy: SQLite's lock is the one that counts, for us and for every other program.
A process that does not reach the front in time, because the one that is there was stopped for one,
goes to SQLite all the same, and so does one that cannot queue at all. The kernel takes the lock
from a process that dies, and those who wait look at it now and then by themselves.

The lock is one of an open file, on the first byte of the file of the host's lock. Only on Linux is
it apart from `flock`, which the host's lock is; elsewhere there is no queue.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from clew.core.patience import patience
from clew.engines.shared.group_commit import SLOW_COMMIT_SECONDS
from clew.engines.sqlite import place
from clew.engines.sqlite.mailbox import Guest, Mailbox

CROWD_WRITES = 64  # so long after somebody had to wait, others are expected to wait again
LOOK_SECONDS = 0.02  # between two looks of one who waits, if nobody rings
_SHARE = 0.25  # of a writer's patience; the rest is left for SQLite's lock


class WriterQueue:
    """The place of one handle in the queue. It serves one thread at a time.

    `synced`: what the handle acknowledges is on disk.
    """

    def __init__(self, path: str, patience_seconds: float, *, synced: bool) -> None:
        self.store: place.Id | None = None  # the file that the handle has open
        self._path = path
        self._seconds = patience_seconds
        self._synced = synced
        self._patience = patience(patience_seconds)
        self._waiting_since: float | None = None
        self._is_open = False  # it is when it is needed first
        self._mailbox: Mailbox | None = None  # None: there is no queue
        self._identity: place.Id | None = None  # of the lock's file
        self._moved = False  # its name leads to another file by now
        self._is_at_front = False
        self._is_stuck = False  # the one at the front did not leave in time
        self._yields = False  # another one could not come to the front for us
        self._crowd = 0
        self._guests: list[Guest] = []
        self.is_in_doubt = False  # another process may still write what we asked it for
        self.commit_seconds = 0.0  # that the last commit took

    @property
    def is_crowded(self) -> bool:
        """Whether this process met others in the queue not long ago."""
        return self._crowd > 0

    def run(
        self, work: Callable[[], object], ask: Callable[[], bytes | None] = lambda: None
    ) -> bytes | None:
        """Do `work` at the front of the queue, or elsewhere if it does not get there in time.

        If we have to wait, another process may do it, from the bytes that `ask` gives. Then its
        answer is returned; None: `work` was done.
        """
        self._crowd = max(0, self._crowd - 1)
        self.is_in_doubt = False
        if not self._is_open or self._moved:
            self._open()
        mailbox = self._mailbox
        if mailbox is None:
            work()
            return None
        try:
            try:
                answer = self._come(mailbox, ask)
                if answer is None:
                    work()
                return answer
            finally:
                self._waiting_since = None
                if self._is_at_front:
                    self._leave(mailbox)
        except BaseException:
            # Ctrl-C comes between any two steps, those of coming and of leaving too. This process
            # may never write again, and nobody is to wait for it.
            self._is_at_front, self._guests = False, []
            mailbox.leave(())
            raise

    def guests(self, most: int) -> list[Guest]:
        """What others wait for that can be written with our own; their answers are to be filled in.

        To be asked within the transaction: who waits in vain for one that was stopped at the front
        knows then that SQLite's lock is held by whoever has its errand.
        """
        if self._is_at_front and self._crowd and self._mailbox is not None:
            if self.commit_seconds > SLOW_COMMIT_SECONDS:
                self._mailbox.gather(self.commit_seconds)
            self._guests = self._mailbox.take(most)
        return self._guests

    def wipe(self) -> None:
        """What was asked for must not live on in the mailbox; who loses an answer asks again."""
        if self._mailbox is not None:  # one way: few systems have no queue
            self._mailbox.wipe()

    @contextmanager
    def one_at_a_time(self) -> Iterator[bool]:
        """For long work beside the front. False: another process is at it."""
        mailbox = self._mailbox
        try:
            yield mailbox is None or mailbox.begin_work()
        finally:
            if mailbox is not None:  # one way: few systems have no queue
                try:
                    mailbox.end_work()
                except BaseException:  # Ctrl-C in the middle of it
                    mailbox.end_work()
                    raise

    def _come(self, mailbox: Mailbox, ask: Callable[[], bytes | None]) -> bytes | None:
        """To the front, if that can be. Bytes: there is nothing left to do there."""
        if not self._yields and self._try(mailbox):
            return None
        if self._seconds <= 0 or self._mailbox is None:
            return None
        self._crowd = CROWD_WRITES
        self._waiting_since = began = time.monotonic()
        # We wait that long once, and then only until we would see that the queue moves again.
        share = self._seconds * _SHARE
        end = began + (min(share, LOOK_SECONDS) if self._is_stuck else share)
        try:
            mailbox.ask(ask())
            while self._yields or not self._try(mailbox):
                left = end - time.monotonic()
                if left <= 0:
                    self._is_stuck = True
                    break
                if not mailbox.wait(min(left, LOOK_SECONDS)):
                    mailbox.remind()
                self._yields = False
                answer = mailbox.answer()
                if answer is not None:
                    self._is_stuck = False
                    return answer
            # Another one may have done it while we looked, or be about to.
            self.is_in_doubt = not mailbox.withdraw()
            return mailbox.answer()
        except BaseException:
            mailbox.withdraw()
            raise

    def _try(self, mailbox: Mailbox) -> bool:
        try:
            self._is_at_front = mailbox.come_to_front()
        except OSError:  # a file system without such locks: there is no queue
            self._mailbox = None
            return False
        if self._is_at_front:
            self._is_stuck = False
        return self._is_at_front

    def _leave(self, mailbox: Mailbox) -> None:
        guests, self._guests = self._guests, []
        self._is_at_front = False
        if self._crowd:
            mailbox.reply(guests)
            mailbox.was_here()
        left = mailbox.leave(guests)
        if guests or left.is_wanted:
            self._crowd = CROWD_WRITES
        self._yields = left.yields and self._seconds > 0

    def ask_again(self, tries: int) -> bool:
        """The busy handler of the connection that writes: whether to ask SQLite once more."""
        if tries == 0:
            # The time in the queue counts: a writer waits no longer than it was told to.
            since = self._waiting_since
            waited = 0.0 if since is None else time.monotonic() - since
            self._patience = patience(self._seconds - waited)
            # That others write while we are at the front may mean that theirs is another queue.
            found = place.which(f"{self._path}-lock")
            self._moved = found is not None and found != self._identity
        return self._patience(tries)

    def _open(self) -> None:
        self.close()
        self._is_open = True
        path = f"{self._path}-lock"
        self._identity = place.which(path)
        if sys.platform == "linux" and self.store is not None:
            descriptor = place.open_lock(path, self._path, os.O_RDWR)
            if descriptor >= 0:
                found = os.fstat(descriptor)
                self._identity = found.st_dev, found.st_ino
                self._mailbox = Mailbox(descriptor, self.store, synced=self._synced)

    def close(self) -> None:
        """Leave the queue; the next work enters it again."""
        if self._mailbox is not None:
            self._mailbox.close()
        self._mailbox = None
        self._is_open = self._moved = self._is_stuck = False
