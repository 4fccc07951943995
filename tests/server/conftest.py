"""A viewer over a store that is filled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from server.viewer_client import client_of
from server.viewer_store import fill

import clew
from clew.server import build
from clew.store import Store


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages wait for what is built behind them: no test depends on how busy the machine is."""
    monkeypatch.setattr(build, "WAIT_SECONDS", 120.0)


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Store]:
    with clew.open(tmp_path / "threads.db", durability="relaxed") as store:
        fill(store, tmp_path)
        yield store


@pytest.fixture
def client(filled: Store) -> httpx.Client:
    return client_of(filled)
