"""How much is measured: everything in full, or what a day's work needs, in three minutes.

`make bench-quick` sets CLEW_BENCH_QUICK. Sizes are part of the names of figures, so they are
constants that hold for a whole run, and children of the bench see the same ones.
"""

from __future__ import annotations

import math
import os

QUICK = bool(os.environ.get("CLEW_BENCH_QUICK"))

# The length of a long thread, and the number of threads of a crowded store.
MANY = 10_000 if QUICK else 100_000

# One comparison stops when its rounds have taken this long, but not before it has a few.
COMPARISON_SECONDS = 2.5 if QUICK else math.inf
FEWEST_ROUNDS = 5

# A group with a figure next to its bar is measured again, so often and for so long at most.
MEASURED_AGAIN = 0 if QUICK else 2
AGAIN_SECONDS = 120.0

# What a change to the core is most likely to be felt in; none of them needs a peer or a server.
QUICK_GROUPS = ("append", "group", "flat", "fork", "load", "context", "runs", "list", "import")
