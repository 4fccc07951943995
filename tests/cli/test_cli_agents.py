"""clew resume and clew mend: what they print, where they write, and how they refuse."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cli_support import Run, say

import clew


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    names = (
        "CLAUDE_CONFIG_DIR",
        "CODEX_HOME",
        "PI_CODING_AGENT_DIR",
        "PI_CODING_AGENT_SESSION_DIR",
    )
    for name in names:
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def threads(tmp_path: Path) -> Path:
    place = tmp_path / "talks.db"
    with clew.open(place) as store:
        thread = store.create("talk", workspace=str(tmp_path))
        thread.append_message({"role": "user", "content": "Hello."}, format="anthropic")
        thread.append_message({"role": "assistant", "content": "Hello!"}, format="anthropic")
        thread.append("turn_marker", {"status": "completed"})
        store.create("empty", workspace=str(tmp_path))
    return place


def test_resume_prints_the_command_and_says_what_was_left_out(
    run: Run, home: Path, threads: Path, tmp_path: Path
) -> None:
    with clew.open(threads) as store:
        store.get("talk").append([clew.draft("note", n) for n in range(3)])
    told = run("resume", threads, "talk", "--in", "claude-code")
    (written,) = home.glob(".claude/projects/*/*.jsonl")
    assert told.code == 0
    assert told.out == f"cd {tmp_path} && claude --resume {written.stem}\n"  # and nothing else
    assert "left out: 1 of kind turn_marker" in told.err
    assert "left out: 3 of kind note" in told.err
    assert str(written) in told.err
    again = run("resume", threads, "talk", "--in", "claude-code")
    assert again.out == told.out
    assert "is there already" in again.err


def test_resume_tells_programs_everything(run: Run, home: Path, threads: Path) -> None:
    told = json.loads(run("resume", threads, "talk", "--in", "codex", "--json").out)
    assert told["schema_version"] == 1
    assert told["command"] == ["codex", "resume", told["session"]]
    assert told["is_new"] is True
    assert Path(told["path"]).is_file()
    assert [change["name"] for change in told["changes"]] == ["entry_left_out"]


def test_resume_starts_the_agent(
    run: Run, home: Path, threads: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "pi"
    program.write_text('#!/bin/sh\npwd > started; echo "$@" >> started; exit 7\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    work = tmp_path / "work"
    work.mkdir()
    told = run("resume", threads, "talk", "--in", "pi", "--workspace", work, "--run")
    assert told.code == 7
    where, arguments = (work / "started").read_text().splitlines()
    assert where == str(work.resolve())
    assert arguments.startswith("--session ")


def test_resume_refuses_what_it_cannot_do(
    run: Run, home: Path, threads: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("resume", threads, "talk").code == 2
    assert run("resume", threads, "talk", "--in", "emacs").code == 2
    assert run("resume", threads, "empty", "--in", "pi").code == 2
    assert run("resume", threads, "nothing", "--in", "pi").code == 3
    missing = run("resume", threads, "talk", "--in", "pi", "--workspace", "/no/such/folder")
    assert (missing.code, "there is no folder" in missing.err) == (2, True)
    with clew.open(threads) as store:
        say(store.create("elsewhere", workspace="/no/such/folder"), "Hello.")
        say(store.create("nowhere"), "Hello.")
    for name in ("elsewhere", "nowhere"):
        lost = run("resume", threads, name, "--in", "pi")
        assert (lost.code, "say --workspace DIR" in lost.err) == (2, True)
    assert not list(home.rglob("*.jsonl")), "what cannot be gone on with is not left behind"
    monkeypatch.setenv("PATH", "")
    absent = run("resume", threads, "talk", "--in", "pi", "--run")
    assert (absent.code, "cannot be started here" in absent.err) == (6, True)


def broken(folder: Path) -> Path:
    path = folder / "session.jsonl"
    record = {"type": "user", "uuid": "u1", "parentUuid": None, "sessionId": "s"}
    said = {**record, "message": {"role": "user", "content": [{"type": "text", "text": ""}]}}
    path.write_text(json.dumps(said) + "\n" + json.dumps(said)[:30])
    return path


def test_mend_lists_what_was_wrong_and_leaves_the_file(run: Run, tmp_path: Path) -> None:
    path = broken(tmp_path)
    before = path.read_bytes()
    looked = run("mend", path, "--check")
    assert looked.code == 1
    assert "line 1  empty text" in looked.out
    assert "line 2  torn" in looked.out
    assert sorted(tmp_path.iterdir()) == [path]
    told = run("mend", path)
    copy = tmp_path / "session.mended.jsonl"
    assert told.code == 0
    assert str(copy) in told.out
    assert path.read_bytes() == before
    whole = run("mend", copy, "--check")
    assert (whole.code, whole.out) == (0, "nothing is wrong with 1 record\n")


def test_mend_tells_programs_everything(run: Run, tmp_path: Path) -> None:
    path = broken(tmp_path)
    told = json.loads(run("mend", path, "--out", tmp_path / "new.jsonl", "--json").out)
    assert (told["agent"], told["records"]) == ("claude-code", 1)
    assert [finding["name"] for finding in told["findings"]] == ["empty_text", "torn"]
    assert told["out"] == str(tmp_path / "new.jsonl")


def test_mend_refuses_what_it_cannot_do(run: Run, tmp_path: Path) -> None:
    path = broken(tmp_path)
    assert run("mend", tmp_path / "nothing.jsonl").code == 2
    there = run("mend", path, "--out", path)
    assert (there.code, "is there already" in there.err) == (2, True)
    other = tmp_path / "other.jsonl"
    other.write_text('{"a":1}\n')
    assert run("mend", other).code == 2
    assert not (tmp_path / "other.mended.jsonl").exists()
