"""The end of a thread's file: which writes are whole, and whether the rest is torn or damaged.

Every append is one write, and every line says how many lines its write has (`of`, if it is not
the only one) and how many are still to come (`left`).
What an interrupted write leaves at the end was never acknowledged, and is no damage:

- a beginning of it: a line without its newline, or whole lines whose last ones are missing;
- all of its length, with sectors that never reached the disk and read as NUL.

Anything else that does not match its checksum was changed after it was written. So is a hole
with a later write behind it: that write was acknowledged, and with it all that came before.
"""

from __future__ import annotations

import re

from msgspec import Struct

from clew.core.errors import Corrupt
from clew.core.lines import Line, is_sound, take_apart

SECTOR_BYTES = 512
_NULS = re.compile(rb"\0+")


class FoundLine(Struct, frozen=True):
    """A record's line and where it lies."""

    line: Line
    start: int
    length: int


class Scan(Struct):
    """The whole writes of a piece of a file."""

    found: list[FoundLine]
    end: int  # behind the last whole write
    seq: int


class Damage(Exception):
    """A line that is not as it was written: where it begins, and why."""

    def __init__(self, start: int, reason: str) -> None:
        super().__init__(reason)
        self.start = start
        self.reason = reason


def scan(thread: bytes, data: bytes, start: int, seq: int, *, gaps: bool = False) -> Scan:
    """Go through all whole writes. Stops at the first line that is not sound, without judging it.

    With `gaps` some records are missing, as in what is left of a purged thread.
    """
    result = Scan([], start, seq)
    pending: list[FoundLine] = []
    at = 0
    while (newline := data.find(b"\n", at)) >= 0:
        text = data[at:newline]
        if not is_sound(thread, text):
            break
        try:
            line = take_apart(text, "")
        except Corrupt as error:
            raise Damage(start + at, error.fields["reason"]) from error
        if line.seq <= seq or (line.seq != seq + 1 and not gaps):
            raise Damage(start + at, f"record {line.seq} follows record {seq}")
        if not follows(pending[-1].line if pending else None, line):
            raise Damage(start + at, "records that were written together are missing")
        seq = line.seq
        pending.append(FoundLine(line, start + at, newline - at))
        at = newline + 1
        # The lines of a write count when its last one is there: before, it was not acknowledged.
        if line.left == 0:
            result.found += pending
            result.end, result.seq = start + at, seq
            pending = []
    return result


def follows(before: Line | None, line: Line) -> bool:
    """Whether a line may come next: behind `before` of the same write, or (None) as a first one."""
    if before is None:
        return line.begins
    return (before.left, before.of) == (line.left + 1, line.of)


def judge(thread: bytes, rest: bytes, start: int) -> bool:
    """What lies behind the last whole write: torn, or Damage. True: only the newline is missing."""
    *ended, open_end = rest.split(b"\n")
    at = start
    bad = None
    for text in ended:
        if is_sound(thread, text):
            if bad is not None and take_apart(text, "").begins:
                raise Damage(bad, "it is damaged, and a later write follows it")
        elif not _has_hole(text, at, at == start):
            raise Damage(at, "the line does not match its checksum")
        elif bad is None:
            bad = at
        at += len(text) + 1
    last = open_end.rstrip(b"\0")
    # All of the line is there, and another byte in the place of its newline: changed, not torn.
    if last == open_end and is_sound(thread, open_end[:-1]):
        raise Damage(at, "the line does not end with a newline")
    return bad is None and is_sound(thread, last) and take_apart(last, "").left == 0


def _has_hole(text: bytes, start: int, first: bool) -> bool:
    """Whether sectors are missing in a line; the one that a write begins in may be half old."""
    for nuls in _NULS.finditer(text):
        begin, end = start + nuls.start(), start + nuls.end()
        begins = begin % SECTOR_BYTES == 0 or (first and nuls.start() == 0)
        if begins and end % SECTOR_BYTES == 0:
            return True
    return False
