"""The rows of docs/explain/coming-from.md, and the tests that claim them.

A row is claimed by a test with `@row(names…)`. A row that nobody claims, and a claim without a
row, are failures.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from _pages import DOCS

from clew.store import Store

PAGE = DOCS / "explain" / "coming-from.md"
ROW = re.compile(r"^\| `([\w.]+)` \|", re.MULTILINE)

Claim = Callable[[Store, str], None]

_PART_OF = {
    "A session tree (floret)": "tree",
    "Run checkpoints (ductwork)": "runs",
    "Conversations (picoclaw)": "conversations",
    "A rewinding manager (openrouter-agent-sdk)": "rewinding",
    "Session documents (ggcode)": "sessions",
}


def _parts() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {part: [] for part in (*_PART_OF.values(), "projection")}
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        part = _PART_OF[section.partition("\n")[0]]
        for table in section.split("\n### "):
            name = "projection" if table.startswith("Projection\n") else part
            found[name] += ROW.findall(table)
    return found


PARTS = _parts()


class Claims:
    """The tests of one part of the page."""

    def __init__(self, part: str) -> None:
        self._rows = PARTS[part]
        self._claims: dict[str, Claim] = {}

    def row(self, *names: str) -> Callable[[Claim], Claim]:
        def claim(test: Claim) -> Claim:
            for name in names:
                assert name not in self._claims, f"{name} is claimed twice"
                self._claims[name] = test
            return test

        return claim

    def check(self, store: Store, name: str) -> None:
        assert name in self._claims, f"the row {name!r} has no test"
        self._claims[name](store, name)

    def check_complete(self) -> None:
        assert sorted(self._rows) == sorted(self._claims)
