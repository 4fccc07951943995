"""Random lives of stores: what was removed is in no byte, and what was not is still there."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from amounts import amount
from lives import Life
from markers import anywhere
from places import packed_eagerly
from servers.cluster import Cluster

ROUNDS, STEPS = 6, 14


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Of the store, and of all that is remembered beside it."""
    found = [tmp_path / name for name in ("store", "cache", "state")]
    for folder in found:
        folder.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return found


@pytest.mark.parametrize("seed", range(amount(3, 150)))
@pytest.mark.parametrize("kind", ["sqlite:{}/store/s.db", "files:{}/store", "memory:"])
def test_what_was_removed_is_nowhere_and_the_rest_is_there(
    kind: str, seed: int, tmp_path: Path, folders: list[Path]
) -> None:
    with ExitStack() as stack:
        if seed % 2:
            stack.enter_context(packed_eagerly())
        life = Life(kind.format(tmp_path), tmp_path, seed)
        stack.callback(lambda: life.close())
        for _ in range(ROUNDS):
            life.run(STEPS)
            life.check(folders)


@pytest.mark.parametrize("seed", range(amount(1, 30)))
def test_a_server_says_nothing_of_it_and_keeps_nothing_after_shrinking(
    seed: int, tmp_path: Path, folders: list[Path], postgres_cluster: Cluster
) -> None:
    """Its log is out of reach, and words of ids and tags are in samples until the next ANALYZE."""
    database = postgres_cluster.create_database()
    life = Life(postgres_cluster.dsn(database), tmp_path, seed)
    try:
        for _ in range(ROUNDS):
            life.run(STEPS)
            life.check(folders)
        assert life.store.pack(shrink=True).left_rows == 0
        dead, living = life.dead, life.must_be_said()
    finally:
        life.close()
    postgres_cluster.sql("ANALYZE", database=database)
    postgres_cluster.sql("VACUUM FULL pg_catalog.pg_statistic", database=database)
    postgres_cluster.sql("CHECKPOINT")
    ((number,),) = postgres_cluster.sql(
        f"SELECT oid::text FROM pg_database WHERE datname = '{database}'"
    )
    folder = Path(postgres_cluster.data) / "base" / str(number)
    assert anywhere([folder], living), "it would be found"
    assert anywhere([folder], dead) == {}
    postgres_cluster.drop_database(database)
