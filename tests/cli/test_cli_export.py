"""A thread that leaves a store: whole, readable by anybody, and at home in another one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import clew
from clew.cli import main


@pytest.mark.parametrize("engine", ["sqlite", "files"])
def test_an_exported_fork_needs_no_other_file(
    engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"{engine}:{tmp_path}/from"
    with clew.open(address) as store:
        source = store.create("t")
        for n in range(3):
            source.append("event", {"n": n, "long": "x" * 100_000 * (n == 1)})
        fork = source.fork(id="Fork", title="Mine")
        fork.append("event", "own")
        fork.move(fork.path()[0].id)
        path, entries = fork.path(), list(fork.entries())
    out = tmp_path / "%46ork.jsonl"
    assert main(["export", address, "Fork", "--out", str(out)]) == 0
    assert "exported " in capsys.readouterr().out
    assert [json.loads(line).get("seq") for line in out.read_text().splitlines()][1:] == [
        *range(1, 7)
    ]
    clew.open(f"files:{tmp_path}/to").close()
    out.rename(tmp_path / "to" / "threads" / out.name)
    with clew.open(f"files:{tmp_path}/to") as store:
        assert store.verify() == []
        there = store.get("Fork")
        assert there.info.title is not None
        assert there.info.title.text == "Mine"
        assert [(e.id, e.hash, e.time) for e in there.entries()] == [
            (e.id, e.hash, e.time) for e in entries
        ]
        assert [e.body for e in there.path()] == [e.body for e in path]


def test_an_export_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with clew.open(tmp_path / "a.db") as store:
        store.create("t")
    out = tmp_path / "mine"
    out.write_text("mine")
    assert main(["export", str(tmp_path / "a.db"), "t", "--out", str(out)]) == 2
    assert "nothing was written" in capsys.readouterr().err
    assert out.read_text() == "mine"
