"""The clock that leases are measured with: one per host, which cannot be set.

Time since boot is the same for every process of a host, goes on while the machine sleeps, and
does not jump when the wall clock is corrected. The boot's id says which counting it was:
a lease from before a reboot is over, because its holder is.
"""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

from clew.core.lease_rules import Instant


def now() -> Instant:
    return Instant(_since_boot_ns(), _boot_id(), time.time_ns() // 1000)


def _since_boot_ns() -> int:
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic_ns() if clock is None else time.clock_gettime_ns(clock)


@cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        # Without an id, the time of boot to the minute will do: it moves only with a reboot
        # or a large correction of the wall clock, and then a lease merely ends early.
        return f"boot-{round((time.time_ns() - _since_boot_ns()) / 60e9)}"
