"""What writers that wait leave beside the store, for the one at the front to write with its own.

It lies in the file of the host's lock, and nothing in it matters when nobody waits. Each writer
that waits has a slot, and says that it is alive by a lock on it, which the kernel takes from a
process that dies. In the slot stands a *stamp*, the time since when it waits, and an *errand*: what
it would write, as bytes. Who is at the front takes the errands that it finds, and leaves *answers*:

    stamps     one a slot, by who waits; 0: nobody does
    answered   one a slot, by who is at the front: the stamp of what was answered last
    rooms      one a slot: the errand, by who waits; the answer, by who is at the front

It is read and written by plain calls, and not as shared memory: a file that others cut would end a
process that has it mapped. What is read may be anything, and is checked.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
import time
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from clew.engines.shared.group_commit import GATHER_SECONDS_MAX
from clew.engines.sqlite import place

if sys.platform == "linux":  # one way: elsewhere there is no queue
    import fcntl

SLOTS = 64
ERRAND_BYTES_MAX = ANSWER_BYTES_MAX = 16_000

# Bytes that are locked.
_FRONT, _TAKEN, _OWNED, _WORK = 0, 1, 128, 256

_STAMPS = 4096
_ANSWERED = _STAMPS + 8 * SLOTS
_ROOMS = 8192
_ROOM_BYTES = 32768
_ANSWER_AT = _ROOM_BYTES // 2
_MOST_BYTES = 2048  # that most errands and answers have, with what stands before them

_GATHER_NAP_SECONDS = 0.00005
_RECENT_COMMITS = 4
_YIELDS_MAX = 3

_NUMBER = struct.Struct("<Q")
_NUMBERS = struct.Struct(f"<{SLOTS}Q")
# stamp, device, inode, version, synced, length, checksum, bell
_ERRAND = struct.Struct("<QQQB?II8s")
_VERSION = 2  # of what errands and answers say: one of another version is left to its owner
_ANSWER = struct.Struct("<QII")  # stamp, length, checksum
_C_FLOCK = struct.Struct("hhqqi")


class Guest(Struct):
    """An errand of a writer that waits, and the answer that it will get."""

    slot: int
    stamp: int
    bell: bytes
    errand: bytes
    answer: bytes | None = None


class Left(NamedTuple):
    """How the front was left: whether somebody waits for it, whom we should let go first."""

    is_wanted: bool
    yields: bool


_LEFT_ALONE = Left(False, False)


class Mailbox:
    """The file, as one handle has it open, and closes it. `store` is the file that it writes.

    `synced`: what it acknowledges is on disk; so are its errands to be.
    """

    def __init__(self, descriptor: int, store: place.Id, *, synced: bool) -> None:
        self._file = descriptor
        self._store = store
        self._synced = synced
        self._slot: int | None = None
        self._stamp = 0
        self._bell: Bell | None = None
        self._called: dict[int, tuple[int, int]] = {}  # slot → the stamp that we called, how often

    def close(self) -> None:
        """With the file all its locks are given back."""
        if self._bell is not None:
            self._bell.close()
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def come_to_front(self) -> bool:
        """Whether we are there now; OSError: there are no such locks here."""
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _COME)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def begin_work(self) -> bool:
        """Whether no other process is at the work that only one needs to do."""
        return self._lock(_WORK)

    def end_work(self) -> None:
        self._unlock(_WORK)

    def _lock(self, byte: int) -> bool:
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, _locked(fcntl.F_WRLCK, byte))
        except OSError:
            return False
        return True

    def _unlock(self, byte: int) -> None:
        self._set(_locked(fcntl.F_UNLCK, byte))

    def _set(self, lock: bytes) -> None:
        try:
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, lock)
        except OSError:
            pass  # it was never had

    def _read(self, count: int, place: int) -> bytes:
        """So many bytes, or fewer: what cannot be read is not there."""
        try:
            return os.pread(self._file, count, place)
        except OSError:
            return b""

    # --- for who waits ---

    def ask(self, errand: bytes | None) -> None:
        """Say that we wait and, if another one can do it for us, for what.

        Without a slot, because all are in use or nothing can be written, we wait unseen.
        """
        if self._bell is None:
            self._bell = Bell()
        try:
            if self._slot is None:
                self._slot = self._claim()
            if self._slot is None:
                return
            self._stamp = _new_stamp(errand is None)
            head = _ERRAND.pack(
                *(self._stamp, *self._store, _VERSION, self._synced),
                *(0, 0) if errand is None else (len(errand), zlib.crc32(errand)),
                self._bell.name,
            )
            os.pwrite(self._file, head + (errand or b""), _room(self._slot))
            self._show(self._slot, self._stamp)
        except OSError:
            self._slot = None  # a full disk: whoever looks finds no errand that is whole

    def remind(self) -> None:
        """Say it once more: who wiped the file could not know that we wait."""
        if self._slot is not None:
            try:
                self._show(self._slot, self._stamp)
            except OSError:
                pass

    def wait(self, seconds: float) -> bool:
        """Until somebody rings; False: nobody did for that long."""
        assert self._bell is not None
        return self._bell.wait(seconds)

    def answer(self) -> bytes | None:
        """What the one at the front has left for us, if it has."""
        if self._slot is None:
            return None
        place = _room(self._slot) + _ANSWER_AT
        data = self._read(_MOST_BYTES, place)
        if len(data) < _ANSWER.size:
            return None
        stamp, length, checksum = _ANSWER.unpack_from(data)
        if stamp != self._stamp or not 0 < length <= ANSWER_BYTES_MAX:
            return None
        found = data[_ANSWER.size : _ANSWER.size + length]
        if len(found) < length:
            found = self._read(length, place + _ANSWER.size)
        return found if zlib.crc32(found) == checksum else None

    def withdraw(self) -> bool:
        """Wait no longer. False: what we asked for is about to be written, or may have been."""
        if self._slot is None:
            return True
        slot = self._slot
        try:
            self._show(slot, 0)
            # Who takes an errand locks it first, and looks at its stamp then.
            is_left = self._lock(_TAKEN + slot) and self.answer() is None
            # Behind the look for an answer: who wiped the file has wiped the answer, too.
            is_left &= self._read(_NUMBER.size, _room(slot)) == _NUMBER.pack(self._stamp)
            os.pwrite(self._file, _NUMBER.pack(0), _room(slot))
        except OSError:
            is_left = False
        self._unlock(_TAKEN + slot)
        return is_left or wants_front(self._stamp)

    def _claim(self) -> int | None:
        for slot in range(SLOTS):
            if self._lock(_OWNED + slot):
                # What the owner before us asked for must not be taken for ours.
                if self._lock(_TAKEN + slot):
                    os.pwrite(self._file, _NUMBER.pack(0), _room(slot))
                    self._show(slot, 0)
                    self._unlock(_TAKEN + slot)
                    return slot
                self._unlock(_OWNED + slot)
        return None

    def _show(self, slot: int, stamp: int) -> None:
        os.pwrite(self._file, _NUMBER.pack(stamp), _STAMPS + 8 * slot)

    # --- for who is at the front ---

    def take(self, most: int) -> list[Guest]:
        """The errands that can be written with ours, the oldest first: ours alone to answer."""
        found: list[Guest] = []
        for stamp, slot in self._waiting():
            if wants_front(stamp) or len(found) >= most:
                continue
            # One that was stopped at the front may still have it, if we are there without it.
            if self._is_alive(slot) and self._lock(_TAKEN + slot):
                guest = self._errand(slot, stamp)
                if guest is not None:
                    found.append(guest)
        return found

    def reply(self, guests: Iterable[Guest]) -> None:
        """Leave their answers. One that cannot be left is missed: then it does it by itself."""
        for guest in guests:
            answer = guest.answer
            if answer is None or len(answer) > ANSWER_BYTES_MAX:
                continue
            head = _ANSWER.pack(guest.stamp, len(answer), zlib.crc32(answer))
            try:
                os.pwrite(self._file, head + answer, _room(guest.slot) + _ANSWER_AT)
                os.pwrite(self._file, _NUMBER.pack(guest.stamp), _ANSWERED + 8 * guest.slot)
            except OSError:
                pass

    def was_here(self) -> None:
        """At the front: what we may have asked for needs no answer any more, and who comes next may
        `gather` us."""
        if self._slot is None:
            return
        self._stamp = _new_stamp(wants_front=True)
        try:
            os.pwrite(self._file, _NUMBER.pack(self._stamp), _ANSWERED + 8 * self._slot)
            self._show(self._slot, self._stamp)
        except OSError:
            pass

    def leave(self, guests: Iterable[Guest]) -> Left:
        """Give the front back, wake those who have their answers, and call the next one to it."""
        self._set(_LEAVE)
        for guest in guests:
            self._ring(guest.bell)
        # Behind the unlocking: who shows its stamp later than this look finds the front free.
        waiting = self._waiting()
        if not waiting:
            return _LEFT_ALONE
        # Who does not come when it is called, because it was stopped, is not called for ever.
        waiting.sort(key=lambda one: (self._calls(*one), not wants_front(one[0])))
        while waiting:
            stamp, slot = waiting[0]
            if self._is_alive(slot):
                calls = self._calls(stamp, slot) + 1
                self._called[slot] = stamp, calls
                head = self._read(_ERRAND.size, _room(slot))
                if len(head) == _ERRAND.size:
                    self._ring(_ERRAND.unpack(head)[-1])
                return Left(True, wants_front(stamp) and calls <= _YIELDS_MAX)
            del waiting[0]
        return _LEFT_ALONE

    def _calls(self, stamp: int, slot: int) -> int:
        """How often we have called the one who waits in a slot since then."""
        known, calls = self._called.get(slot, (0, 0))
        return calls if known == stamp else 0

    def wipe(self) -> None:
        """What anybody has asked for must not live on here."""
        try:
            os.ftruncate(self._file, 0)
        except OSError:
            pass

    def gather(self, commit_seconds: float) -> None:
        """Give those who were here not long ago a moment to come back: a commit takes that long."""
        now = time.monotonic_ns()
        since = now - round(_RECENT_COMMITS * commit_seconds * 1e9)
        end = time.monotonic() + min(commit_seconds / 2, GATHER_SECONDS_MAX)
        while time.monotonic() < end:
            stamps, answered = _numbers(self._read(2 * _NUMBERS.size, _STAMPS))
            # One from before the host was started anew may lie ahead.
            recent = [slot for slot in range(SLOTS) if since < stamps[slot] >> 1 < now]
            if all(stamps[slot] != answered[slot] for slot in recent if slot != self._slot):
                return
            time.sleep(_GATHER_NAP_SECONDS)

    def _waiting(self) -> list[tuple[int, int]]:
        """Stamp and slot of the others that wait, the oldest first."""
        data = self._read(2 * _NUMBERS.size, _STAMPS)
        if data[: _NUMBERS.size] == data[_NUMBERS.size :]:
            return []
        stamps, answered = _numbers(data)
        return sorted(
            (stamps[slot], slot)
            for slot in range(SLOTS)
            if stamps[slot] not in (0, answered[slot]) and slot != self._slot
        )

    def _is_alive(self, slot: int) -> bool:
        """Whether somebody has the slot. What a dead one waited for is crossed out."""
        try:
            found = fcntl.fcntl(
                self._file, fcntl.F_OFD_GETLK, _locked(fcntl.F_WRLCK, _OWNED + slot)
            )
            if _C_FLOCK.unpack(found)[0] != fcntl.F_UNLCK:
                return True
            if self._lock(_TAKEN + slot):  # one way: not while the next owner moves in
                self._show(slot, 0)
                self._unlock(_TAKEN + slot)
        except OSError:  # no test: it can be asked, and not crossed out
            pass
        return False

    def _errand(self, slot: int, stamp: int) -> Guest | None:
        """An errand, if it is whole, and for this very store."""
        data = self._read(_MOST_BYTES, _room(slot))
        if len(data) < _ERRAND.size:
            return None
        known, device, inode, version, synced, length, checksum, bell = _ERRAND.unpack_from(data)
        if (known, (device, inode), version) != (stamp, self._store, _VERSION):
            return None
        if synced and not self._synced:
            return None
        if not 0 < length <= ERRAND_BYTES_MAX:
            return None
        errand = data[_ERRAND.size : _ERRAND.size + length]
        if len(errand) < length:
            errand = self._read(length, _room(slot) + _ERRAND.size)
        if zlib.crc32(errand) != checksum:
            return None
        return Guest(slot, stamp, bell, errand)

    def _ring(self, name: bytes) -> None:
        if self._bell is None:
            self._bell = Bell()
        self._bell.ring(name)


class Bell:
    """What wakes a process that waits: a socket that only ever gets an empty message.

    Its name is the kernel's choice, and leads to nothing on disk. A ring that is lost, because the
    other one is in another network namespace for one, is a delay: who waits looks by itself too.
    """

    def __init__(self) -> None:
        self.name = b""
        self._socket: socket.socket | None = None
        try:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
            self._socket.bind("")
            self.name = self._socket.getsockname()
            self._poll = select.poll()
            self._poll.register(self._socket, select.POLLIN)
        except OSError:  # no more files may be open, or there are no sockets
            self.close()

    def wait(self, seconds: float) -> bool:
        if self._socket is None:
            time.sleep(min(seconds, 0.002))
            return False
        if not self._poll.poll(seconds * 1000):
            return False
        try:
            self._socket.recv(1)
        except OSError:  # no test: nobody else reads from it
            pass
        return True

    def ring(self, name: bytes) -> None:
        name = name.rstrip(b"\0")
        if self._socket is not None and name.startswith(b"\0"):
            try:
                self._socket.sendto(b"", name)
            except OSError:
                pass  # it is gone, or has been rung often enough

    def close(self) -> None:
        found, self._socket = self._socket, None
        if found is not None:
            found.close()


def _new_stamp(wants_front: bool) -> int:
    """The time, which makes the order; the last bit tells what is waited for."""
    return time.monotonic_ns() << 1 | wants_front


def wants_front(stamp: int) -> bool:
    """Whether no other process can do what is waited for."""
    return bool(stamp & 1)


def _room(slot: int) -> int:
    return _ROOMS + slot * _ROOM_BYTES


def _numbers(data: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """By slot, the newest stamp, and the newest that was answered."""
    data = data.ljust(2 * _NUMBERS.size, b"\0")
    return _NUMBERS.unpack_from(data), _NUMBERS.unpack_from(data, _NUMBERS.size)


def _locked(kind: int, byte: int, count: int = 1) -> bytes:
    return _C_FLOCK.pack(kind, os.SEEK_SET, byte, count, 0)


if sys.platform == "linux":  # one way: elsewhere there is no queue
    _COME = _locked(fcntl.F_WRLCK, _FRONT)
    _LEAVE = _locked(fcntl.F_UNLCK, _FRONT, _TAKEN + SLOTS)  # with all slots that were taken
