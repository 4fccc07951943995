"""A thread's lease, in its lock file: two slots, written in turn.

The newest sound slot is the lease. A write that was torn leaves the other slot, which is what
was acknowledged before it, so a half-written lease neither blocks a thread nor lets the fence
fall back: where a slot is not sound, the fence skips a number, and where none is, it goes on
from the clock.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from clew.engines.files.disk import Disk
from clew.engines.files.lines import is_sound, summed
from clew.leasing import Instant, LeaseState
from clew.model import Lease

SLOT_BYTES = 8192  # an owner and a turn of 512 bytes each, escaped


class Slots(Struct, frozen=True):
    """What a lock file says. `generation` counts the writes."""

    state: LeaseState = LeaseState()
    generation: int = -1
    damaged: bool = False


class _Slot(Struct):
    generation: int
    fence: int
    owner: str | None
    turn: str | None
    created_us: int
    until_us: int
    until_ns: int
    era: str


_NAMES = LeaseState.__struct_fields__
_decoder = msgspec.json.Decoder(_Slot)


_NEVER_LEASED = Slots()


def live(descriptor: int, thread: str, clock: Callable[[], Instant]) -> Lease | None:
    """The lease that is in force. Most threads never had one, and pay one read of nothing."""
    data = os.pread(descriptor, 2 * SLOT_BYTES, 0)
    if not data:
        return None
    now = clock()
    return _judge(data, now).state.live(thread, now)


def read(descriptor: int, now: Instant) -> Slots:
    return _judge(os.pread(descriptor, 2 * SLOT_BYTES, 0), now)


def _judge(data: bytes, now: Instant) -> Slots:
    if not data:
        return _NEVER_LEASED
    halves = [data[:SLOT_BYTES], data[SLOT_BYTES:]]
    found = [slot for slot in map(_parse, halves) if slot is not None]
    damaged = len(found) < sum(map(_is_written, halves))
    if not found:
        return Slots(LeaseState(fence=now.wall_us), -1, damaged) if damaged else Slots()
    newest = max(found, key=lambda slot: slot.generation)
    state = LeaseState(*(getattr(newest, name) for name in _NAMES))
    if damaged:
        state = replace(state, fence=state.fence + 1, owner=None)
    return Slots(state, newest.generation, damaged)


def write(disk: Disk, descriptor: int, slots: Slots, state: LeaseState) -> None:
    """Put the state into the slot that is not the newest; into both if neither was sound."""
    _write(disk, descriptor, slots.generation + 1, state)
    if slots.damaged and slots.generation < 0:
        _write(disk, descriptor, slots.generation + 2, state)


def _write(disk: Disk, descriptor: int, generation: int, state: LeaseState) -> None:
    members = {"generation": generation, **dict(zip(_NAMES, astuple(state), strict=True))}
    line = summed(b"lease", msgspec.json.encode(members)[:-1])
    data = line[:-1].ljust(SLOT_BYTES - 1) + b"\n"
    offset = generation % 2 * SLOT_BYTES
    written = 0
    while written < SLOT_BYTES:
        written += disk.write_at(descriptor, data[written:], offset + written)


def _is_written(half: bytes) -> bool:
    return bool(half.strip(b"\0 \n"))


def _parse(half: bytes) -> _Slot | None:
    line = half.rstrip(b"\0 \n")
    if not line or not is_sound(b"lease", line):
        return None
    try:
        return _decoder.decode(line)
    except msgspec.MsgspecError:
        return None
