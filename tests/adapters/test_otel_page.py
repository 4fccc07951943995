"""docs/howto/opentelemetry.md does what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.sdk", reason="opentelemetry-sdk is not installed")

from docs._pages import DOCS, assert_outputs


def test_the_page_runs_and_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    left = assert_outputs(DOCS / "howto" / "opentelemetry.md")
    left["store"].close()
