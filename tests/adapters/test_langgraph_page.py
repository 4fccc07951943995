"""docs/howto/langgraph.md runs, and prints what it shows."""

from __future__ import annotations

import pytest

pytest.importorskip("langgraph.graph", reason="langgraph is not installed")

from docs._pages import DOCS, assert_outputs


def test_the_page() -> None:
    assert_outputs(DOCS / "howto" / "langgraph.md")
