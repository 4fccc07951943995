"""A store with a history, and the command line called in this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_support import Result, Run

import clew
from clew.cli import main


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nobody's own store, colours or width."""
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "CLEW_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PAGER", "cat")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> Result:
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return call


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "threads.db"


@pytest.fixture
def store(place: Path) -> Iterator[clew.Store]:
    with clew.open(place) as opened:
        yield opened
