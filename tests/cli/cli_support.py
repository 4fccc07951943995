"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import clew


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Result]


def say(thread: clew.Thread, text: str, role: str = "user") -> clew.Entry:
    return thread.append_message({"role": role, "content": text})
