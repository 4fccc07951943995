"""What sits on top of the handles, by name, and is imported when it is first asked for.

The package fills the names in: a layer knows nothing of those above it, yet `store.runs` has to
find them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from clew.core.errors import Unavailable

PARTS: dict[str, str] = {}  # the module that has it


def part(name: str) -> Any:
    """A function or class from a layer above."""
    try:
        return getattr(import_module(PARTS[name]), name)
    except OSError as error:  # too many files are open, for one
        raise Unavailable(
            f"{PARTS[name]} cannot be loaded now, nothing was done: {error}"
        ) from error
