"""The pages as data: their code blocks, their links, their headings.

The convention of every page: a `text` block that follows a `python` block is what it prints.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Block:
    """A fenced block of a page, with the line it begins at."""

    language: str
    text: str
    line: int


@dataclass
class Step:
    """A piece of code and the output that the page shows for it (None: it shows none)."""

    code: str
    line: int
    shown: str | None


def pages() -> list[Path]:
    """Everything that people read."""
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(match[1], match[2], text.count("\n", 0, match.start()) + 2)
        for match in _FENCE.finditer(text)
    ]


def steps(page: Path) -> Iterator[Step]:
    """The python blocks of a page, each with the text block that follows it directly."""
    found = blocks(page)
    for n, block in enumerate(found):
        if block.language == "python":
            shown = [after.text for after in found[n + 1 : n + 2] if after.language == "text"]
            yield Step(block.text, block.line, shown[0] if shown else None)


def run(page: Path, namespace: dict[str, Any]) -> list[tuple[int, str | None, str]]:
    """Run a page top to bottom in one namespace: (line, output shown, output found) a block."""
    outputs = []
    for step in steps(page):
        # Padded, so that a traceback names the line of the page.
        code = compile("\n" * (step.line - 1) + step.code, str(page), "exec")
        found = io.StringIO()
        with contextlib.redirect_stdout(found):
            exec(code, namespace)
        outputs.append((step.line, step.shown, found.getvalue()))
    return outputs


def assert_outputs(page: Path, namespace: dict[str, Any] | None = None) -> dict[str, Any]:
    """Run a page and compare what it prints with what it shows; the namespace it leaves."""
    namespace = {"__name__": "page"} if namespace is None else namespace
    for line, shown, found in run(page, namespace):
        assert found == (shown or ""), f"{page.name}, the block at line {line}"
    return namespace
