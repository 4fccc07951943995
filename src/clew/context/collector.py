"""Python's garbage collector, which waits while much is made of which nothing is garbage.

It runs each time that so many objects are new, and at times looks through all that the process has.
The first context of a long thread makes enough of them to set that off, and all of them are kept.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

_paused = False


@contextmanager
def paused() -> Iterator[None]:
    """Within it nothing is collected. Only for what is short, and calls nobody else's code.

    Where it is off already it stays off: the program wants that, or another thread is in here and
    will switch it on again. That this one then goes on with it costs time and does no harm.
    """
    global _paused
    if not gc.isenabled():
        yield
        return
    _paused = True
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        _paused = False


def _after_fork_in_child() -> None:
    # The thread that would have switched it on again stayed with the parent.
    if _paused:
        gc.enable()


if hasattr(os, "register_at_fork"):  # one way: Windows has no fork
    os.register_at_fork(after_in_child=_after_fork_in_child)
