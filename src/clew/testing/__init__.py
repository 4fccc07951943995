"""What engines and agents are tested with.

`conformance` and `wrappers` are for engines, also those of third parties. `replay` makes a test of
a recorded thread. Neither needs a test framework; `fixtures` is for those who use pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clew.testing.recorded import RecordedFailure, Replay, ReplayMismatch, replay

__all__ = ["RecordedFailure", "Replay", "ReplayMismatch", "replay"]


def __getattr__(name: str) -> Any:
    # Engines are tested without what reads messages.
    if name in __all__:
        from clew.testing import recorded

        return getattr(recorded, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
