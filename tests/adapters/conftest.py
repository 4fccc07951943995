"""Where the adapters' stores lie, and what their frameworks may complain of."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from places import ADDRESSES

import clew


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Frameworks warn of their own and each other's ways, which is not for these tests to judge."""
    for item in items:
        if item.path.parent.name == "adapters":
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest) -> str:
    """A store's address, on each engine that adapters are tried on."""
    return ADDRESSES[request.param](request)


@pytest.fixture
def store(address: str) -> Iterator[clew.Store]:
    with clew.open(address) as opened:
        yield opened
