"""A program in a process of its own: what it prints, and the most memory that it had.

What the bench itself has taken by then does not count, whichever groups came before.
"""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

# VmHWM and not ru_maxrss: on Linux that one begins with what the parent had when it forked.
_PEAK = """
try:
    with open("/proc/self/status") as file:
        print(int(file.read().partition("VmHWM:")[2].split()[0]) * 1024)
except OSError:
    import resource
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


class Child(NamedTuple):
    numbers: list[float]
    peak_megabytes: float


def run(program: str, *arguments: object) -> Child:
    """`program` is Python and prints numbers."""
    command = [sys.executable, "-c", program + _PEAK, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *numbers, peak = map(float, done.stdout.split())
    return Child(numbers, peak / 1e6)
