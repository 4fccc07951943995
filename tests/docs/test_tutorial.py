"""The tutorial, the README and the other pages with code do what they say, top to bottom."""

from __future__ import annotations

import code
import contextlib
import io
import sys
from pathlib import Path

import pytest
from _pages import DOCS, ROOT, assert_outputs, pages, steps

# The reference shows signatures, not programs. Some pages need a server, or the SDKs of providers:
# test_postgres_page, test_loop_page. Those of the adapters need their frameworks: tests/adapters.
ELSEWHERE = {DOCS / "howto" / "postgres.md", DOCS / "howto" / "write-an-agent-loop.md"}
ELSEWHERE |= {DOCS / "howto" / "record-a-bare-loop.md"}
ELSEWHERE |= {DOCS / "howto" / "test-an-agent-with-a-recorded-thread.md"}
ELSEWHERE |= {page for page in pages() if "from clew.adapters" in page.read_text("utf-8")}
RUNNABLE = [
    page
    for page in pages()
    if page.parent.name != "reference" and page not in ELSEWHERE and any(steps(page))
]


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.name)
def test_page_runs_and_prints_what_it_shows(page: Path) -> None:
    assert_outputs(page)


def test_the_readme_and_the_tutorial_are_among_them() -> None:
    assert {ROOT / "README.md", DOCS / "tutorial.md"} <= set(RUNNABLE)
    assert len(list(steps(ROOT / "README.md"))) >= 1


def test_the_tutorial_can_be_pasted_into_an_interactive_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Line by line, as typed: a blank line ends a block there, and an indented one must not."""
    monkeypatch.setattr(sys, "displayhook", lambda value: None)
    session = code.InteractiveConsole({"__name__": "page"})
    for step in steps(DOCS / "tutorial.md"):
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            for line in [*step.code.splitlines(), ""]:
                session.push(line)
        assert errors.getvalue() == "", f"the block at line {step.line}"
        assert out.getvalue() == (step.shown or ""), f"the block at line {step.line}"
