"""The engines that every shared test runs on."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from amounts import amount
from hypothesis import HealthCheck, settings
from places import PLACES, MemoryPlace, PostgresPlace, SQLitePlace
from servers.cluster import Cluster
from servers.fixtures import postgres_cluster, postgres_dsn  # noqa: F401

from clew.engines.shared import migrations
from clew.store import Store

# A shell that starts the tests in the background has Ctrl-C ignored, and their children with it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Deadlines measure the machine, not the code, as does what is too slow to be generated; examples
# are derived from the test itself.
settings.register_profile(
    "clew",
    max_examples=amount(40, 200),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("clew")


@pytest.fixture(scope="session", autouse=True)
def caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What snapshots in a store on a server remember of a tree is not kept in a person's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("caches")))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def postgres_places(postgres_cluster: Cluster) -> None:  # noqa: F811
    PostgresPlace.begin(postgres_cluster)


# What is tested there is pure, or about files, and a server would only make it slower.
WITHOUT_SERVERS = ("context", "snapshots")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    folder = metafunc.definition.path.parent.name
    if "place" in metafunc.fixturenames and folder != "cli":  # which has a place of its own
        servers = folder not in WITHOUT_SERVERS
        kinds = [name for name, kind in PLACES.items() if servers or not hasattr(kind, "needs")]
        metafunc.parametrize("place", kinds, indirect=True)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryPlace | SQLitePlace]:
    kind = PLACES[request.param]
    for name in getattr(kind, "needs", ()):
        request.getfixturevalue(name)
    made = kind(tmp_path)
    yield made
    made.close()


@pytest.fixture
def store(place: MemoryPlace | SQLitePlace) -> Iterator[Store]:
    """A store on each engine, with a clock that ticks a second with every look."""
    ticks = itertools.count(1_700_000_000_000_000, 1_000_000)
    opened = Store(place.open(), clock=lambda: next(ticks))
    yield opened
    opened.close()


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Clew that knows a third format: the folder of its schema and migrations."""
    folder = tmp_path / "sql"
    (folder / "sqlite").mkdir(parents=True)
    first, second = migrations.migrations("sqlite")
    (folder / "sqlite" / "0001_journal.sql").write_text(first.sql, "utf-8")
    (folder / "sqlite" / "0002_packs.sql").write_text(second.sql, "utf-8")
    third = (Path(__file__).parent / "migrations" / "made_up_3.sql").read_text("utf-8")
    (folder / "sqlite" / "0003_made_up.sql").write_text(third, "utf-8")
    (folder / "sqlite.sql").write_text(first.sql + second.sql + third, "utf-8")
    monkeypatch.setattr(migrations, "_FOLDER", folder)
    return folder
