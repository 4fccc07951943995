"""A thread that leaves a store: whole, readable by anybody, and at home in another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_support import Run

import clew
from clew import derived
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


def told(path: Path) -> list[str]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line["messages"][-1]["content"] for line in lines]


def talk(store: clew.Store, id: str, agent: str, word: str) -> clew.Thread:
    thread = store.create(id, facts={"agent": agent})
    thread.append_message({"role": "user", "content": "go on"})
    thread.append_message({"role": "assistant", "content": word})
    return thread


def test_examples_of_a_whole_store_are_one_file_with_none_of_them_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = str(tmp_path / "a.db")
    with clew.open(address) as store:
        first = talk(store, "first", "pi", "one")
        talk(store, "second", "codex", "two")
        store.get("second").set(archived=True)
        talk(store, "same", "codex", "two")
        fork = first.fork(id="fork")
        fork.append_message({"role": "user", "content": "and?"})
        fork.append_message({"role": "assistant", "content": "three"})
        talk(store, "gone", "pi", "deleted")
        store.delete("gone")
    out = tmp_path / "all.jsonl"
    command = ["export", address, "--all", "--as", "training", "--out"]
    assert main([*command, str(out)]) == 0
    assert sorted(told(out)) == ["three", "two"]
    assert "exported 4 threads" in capsys.readouterr().out
    assert main([*command, str(tmp_path / "some.jsonl"), "--agent", "codex", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["threads"] == 2
    assert told(tmp_path / "some.jsonl") == ["two"]
    assert main([*command, str(out)]) == 2
    assert "is there already" in capsys.readouterr().err


def test_each_thread_of_a_store_becomes_a_file_and_one_that_cannot_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = str(tmp_path / "a.db")
    with clew.open(address) as store:
        talk(store, "first", "pi", "one")
        talk(store, "second", "codex", "two")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "first.md").write_text("mine")
    assert main(["export", address, "--all", "--as", "markdown", "--out", str(folder)]) == 1
    assert "first.md is there already" in capsys.readouterr().out
    assert (folder / "first.md").read_text() == "mine"
    assert "> two" in (folder / "second.md").read_text()
    assert main(["export", address, "--all", "--as", "markdown"]) == 2
    assert "--out FOLDER" in capsys.readouterr().err
    assert main(["export", address, "first", "--tag", "x"]) == 2
    assert "say --all" in capsys.readouterr().err
    assert main(["export", address, "first", "--all", "--out", str(folder)]) == 2
    assert "'first' is one: leave out one of them" in capsys.readouterr().err
    assert main(["export", address, "first", "second"]) == 2
    assert "unrecognized arguments: second" in capsys.readouterr().err


def test_what_threads_took_is_asked_once_for_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(tmp_path / "a.db")
    with clew.open(address) as store:
        for name, tokens in (("first", 1_200), ("second", 34)):
            body = {"model": "m", "input_tokens": tokens, "output_tokens": 5}
            store.create(name).append("usage", body, format="anthropic")
        store.create("third")
    looks: list[object] = []
    changes = derived.changes

    def counted(*about: Any) -> Any:
        looks.append(about)
        return changes(*about)

    monkeypatch.setattr(derived, "changes", counted)
    folder = tmp_path / "out"
    assert main(["export", address, "--all", "--as", "markdown", "--out", str(folder)]) == 0
    assert "**Tokens:** 1,200 sent, 5 written" in (folder / "first.md").read_text()
    assert "**Tokens:** 34 sent, 5 written" in (folder / "second.md").read_text()
    assert "**Tokens:**" not in (folder / "third.md").read_text()
    assert len(looks) == 1


def test_a_damaged_thread_keeps_no_other_one_out_of_the_examples(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import apsw

    with clew.open(tmp_path / "a.db") as store:
        talk(store, "bad", "pi", "one")
        talk(store, "good", "pi", "two")
        last = store.get("bad").path()[-1].id
    with apsw.Connection(str(tmp_path / "a.db")) as db:
        db.execute("UPDATE records SET body = x'7b' WHERE id = ?", (last,))
    out = tmp_path / "all.jsonl"
    address = str(tmp_path / "a.db")
    assert main(["export", address, "--all", "--as", "training", "--out", str(out)]) == 1
    assert "thread bad: " in capsys.readouterr().err
    assert told(out) == ["two"]


def test_a_bundle_is_told_in_records_because_facts_come_along(
    run: Run, store: clew.Store, place: Path, tmp_path: Path
) -> None:
    thread = store.create("t", title="Fix the login")
    thread.append("note", 1)
    there = tmp_path / "t.jsonl"
    run("export", place, "t", "--as", "bundle", "--out", there)
    told = run("import", there, "--store", tmp_path / "other.db").out
    assert f"imported {thread.info.seq} records of 1 file" in told


def test_a_file_that_is_there_stays_and_the_way_out_is_told(
    run: Run, store: clew.Store, place: Path, tmp_path: Path
) -> None:
    store.create("t")
    there = tmp_path / "t.jsonl"
    assert run("export", place, "t", "--out", there).code == 0
    refused = run("export", place, "t", "--out", there)
    assert refused.code == 2
    assert "--out names another file" in refused.err
