"""From a path to a provider's request. Pure but for two modules, which are given a thread.

`window` reads which entries still speak after the last compaction, `projection` makes the request
from them: `normalise` pairs calls with results, `budget` keeps the newest whole turns that fit,
`tokens` estimates. `cut` plans what a compaction sums up; `compaction` builds, appends and undoes
its entry; `bodies` reads the entries of compactions and edits, whoever wrote them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clew.context.projection import project

__all__ = ["project"]


def __getattr__(name: str) -> Any:
    """`project`, loaded when it is asked for: a program that only looks at threads needs none."""
    if name != "project":
        raise AttributeError(f"module 'clew.context' has no attribute {name!r}")
    from clew.context import projection

    return projection.project
