"""Random lives of stores: what was removed is in no byte, and what was not is still there."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from amounts import amount
from lives import Life
from places import packed_eagerly

ROUNDS, STEPS = 6, 14


@pytest.mark.parametrize("seed", range(amount(3, 150)))
@pytest.mark.parametrize("kind", ["sqlite:{}/store/s.db", "files:{}/store", "memory:"])
def test_what_was_removed_is_nowhere_and_the_rest_is_there(
    kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / name for name in ("store", "cache", "state")]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with ExitStack() as stack:
        if seed % 2:
            stack.enter_context(packed_eagerly())
        life = Life(kind.format(tmp_path), tmp_path, seed)
        stack.callback(lambda: life.close())
        for _ in range(ROUNDS):
            life.run(STEPS)
            life.check(folders)
