"""For pytest: `pytest_plugins = ["clew.testing.fixtures"]` in a conftest gives `clew_replay`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clew.address import open
from clew.testing.recorded import Replay, replay
from clew.thread import Thread


@pytest.fixture
def clew_replay() -> Iterator[Callable[..., Replay]]:
    """`run = clew_replay("tests/runs.db", "the-login")`, or `clew_replay(thread)`.

    A store is opened for reading only, and closed again. When the test is over, all that was
    recorded must have been replayed.
    """
    made: list[Replay] = []
    with contextlib.ExitStack() as stack:

        def make(thread: Thread | str, id: str = "", **options: Any) -> Replay:
            if isinstance(thread, str):
                store = stack.enter_context(open(thread, create=False, readonly=True))
                thread = store.get(id)
            made.append(replay(thread, **options))
            return made[-1]

        yield make
        for run in made:
            run.check_done()
