"""What is imported when it is first asked for: parts that most programs never need.

What sits on top of the handles is found here by name. The package fills the names in: a layer knows
nothing of those above it, yet `store.runs` has to find them.
"""

from __future__ import annotations

import errno
import os
from importlib import import_module
from typing import Any

from clew.core.errors import Unavailable

PARTS: dict[str, str] = {}  # the module that has it

# What the dynamic linker says of a library is all that an ImportError tells.
_PASSING = tuple(os.strerror(code) for code in (errno.EMFILE, errno.ENFILE, errno.ENOMEM))


class loading:
    """Around an import that comes late: Unavailable if its files cannot be read just now."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        passing = isinstance(error, ImportError) and str(error).endswith(_PASSING)
        if isinstance(error, OSError) or passing:
            text = f"{self._what} cannot be loaded now, nothing was done: {error}"
            raise Unavailable(text) from error


def part(name: str) -> Any:
    """A function or class from a layer above."""
    with loading(PARTS[name]):
        return getattr(import_module(PARTS[name]), name)
