"""A thread's lease, in its lock file: two slots, written in turn.

The newest sound slot is the lease. A slot says its generation at both ends: where they differ, a
write was torn, and the other slot is what was acknowledged before it. So a half-written lease
cannot block a thread. Where a slot is damaged, the lease is over and the fence skips a number, and
where both are, the fence goes on from the clock: it never falls back.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from clew.core.lease_rules import Instant, LeaseState
from clew.core.lines import is_sound, summed
from clew.core.model import Lease
from clew.engines.files.disk import Disk

SLOT_BYTES = 8192  # an owner and a turn of 512 bytes each, escaped
END_BYTES = 64


class LeaseSlots(Struct, frozen=True):
    """What a lock file says. `generation` counts the writes."""

    state: LeaseState = LeaseState()
    generation: int = -1
    damaged: bool = False


class _LeaseSlot(Struct):
    generation: int
    fence: int
    owner: str | None
    turn: str | None
    created_us: int
    until_us: int
    until_ns: int
    era: str


_NAMES = LeaseState.__struct_fields__
_decoder = msgspec.json.Decoder(_LeaseSlot)
_NEVER_LEASED = LeaseSlots()


def live(descriptor: int, thread: str, clock: Callable[[], Instant]) -> Lease | None:
    """The lease that is in force. Most threads never had one, and pay one read of nothing."""
    data = os.pread(descriptor, 2 * SLOT_BYTES, 0)
    if not data:
        return None
    now = clock()
    return _judge(data, now).state.live(thread, now)


def read(descriptor: int, now: Instant) -> LeaseSlots:
    """What a lock file says; without one, -1, the thread was never leased."""
    if descriptor < 0:
        return _NEVER_LEASED
    return _judge(os.pread(descriptor, 2 * SLOT_BYTES, 0), now)


def _judge(data: bytes, now: Instant) -> LeaseSlots:
    if not data:
        return _NEVER_LEASED
    halves = [data[:SLOT_BYTES], data[SLOT_BYTES:]]
    found: list[_LeaseSlot] = []
    damaged = False
    for half in halves:
        try:
            slot = _parse(half)
            found += [] if slot is None else [slot]
        except ValueError:
            damaged = True
    if not found:
        return LeaseSlots(LeaseState(fence=now.wall_us), -1, damaged) if damaged else LeaseSlots()
    newest = max(found, key=lambda slot: slot.generation)
    state = LeaseState(*(getattr(newest, name) for name in _NAMES))
    if damaged:
        state = replace(state, fence=state.fence + 1, owner=None)
    return LeaseSlots(state, newest.generation, damaged)


def write(disk: Disk, descriptor: int, slots: LeaseSlots, state: LeaseState) -> None:
    """Put the state into the slot that is not the newest; into both if neither was sound."""
    _write(disk, descriptor, slots.generation + 1, state)
    if slots.damaged and slots.generation < 0:
        _write(disk, descriptor, slots.generation + 2, state)


def _write(disk: Disk, descriptor: int, generation: int, state: LeaseState) -> None:
    members = {"generation": generation, **dict(zip(_NAMES, astuple(state), strict=True))}
    line = summed(b"lease", msgspec.json.encode(members)[:-1])
    # Padded to the whole slot, so that nothing of an older, longer lease is left behind it.
    data = line[:-1].ljust(SLOT_BYTES - END_BYTES) + _end(generation)
    offset = generation % 2 * SLOT_BYTES
    before = os.pread(descriptor, SLOT_BYTES, offset)
    try:
        _write_all(disk, descriptor, data, offset)
    except OSError:
        # This process goes on, and so do others: they must not find half a slot.
        _write_all(disk, descriptor, before, offset)
        raise


def _write_all(disk: Disk, descriptor: int, data: bytes, offset: int) -> None:
    written = 0
    while written < len(data):
        written += disk.write_at(descriptor, data[written:], offset + written)


def _end(generation: int) -> bytes:
    """The end of a slot, checked on its own: it may be older or newer than the rest."""
    return b" " + summed(b"lease", b"%d" % generation).rjust(END_BYTES - 1)


def _parse(half: bytes) -> _LeaseSlot | None:
    """What a slot says; None if nothing, or a torn write. ValueError if it was damaged."""
    line = half[:-END_BYTES].rstrip(b" ") if len(half) == SLOT_BYTES else half.rstrip(b" \0")
    end = half[-END_BYTES:] if len(half) == SLOT_BYTES else b""
    slot = None
    if line.strip(b"\0"):
        if len(half) < SLOT_BYTES:
            return None  # the file ends inside of it: the first write of all was torn
        if not is_sound(b"lease", line):
            raise ValueError("the slot does not match its checksum")
        slot = _decoder.decode(line)
    elif not end.strip(b"\0"):
        return None  # never written
    # Two slots take turns, so a torn write leaves the ends of a slot two generations apart.
    near = [slot.generation] if slot is not None else [0, 1]
    if slot is not None and end == _end(slot.generation):
        return slot
    if any(end in (_end(n - 2), _end(n), _end(n + 2)) for n in near) or not end.strip(b"\0"):
        return None
    raise ValueError("the end of the slot does not match its checksum")
