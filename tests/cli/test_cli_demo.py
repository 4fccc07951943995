"""The demo, end to end: it must be quick, and everything that it claims must be true."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import clew
from clew.cli import demo
from clew.cli import demo as demo_
from clew.cli.demo import FIX, steps_taken, work

SECONDS_MAX = 10
SILENT = ("turn_marker", "usage")


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, float]:
    folder = tmp_path_factory.mktemp("a folder")
    began = of_the_processor()
    ended = subprocess.run(
        [sys.executable, "-m", "clew", "demo", "--no-color", "--keep", "kept here"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout, folder, of_the_processor() - began


def of_the_processor() -> float:
    """What processes that have ended took; a clock on the wall would measure the machine."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture
def left(told: tuple[str, Path, float]) -> Iterator[clew.Store]:
    with clew.open(told[1] / "kept here" / demo.STORE_NAME) as store:
        yield store


def thread_of(store: clew.Store) -> clew.Thread:
    return next(store.get(info.id) for info in store.threads() if info.origin is None)


def test_it_takes_less_than_ten_seconds_of_the_processor(told: tuple[str, Path, float]) -> None:
    assert told[2] < SECONDS_MAX


def test_a_process_was_really_killed_in_the_middle_of_a_turn(
    told: tuple[str, Path, float], left: clew.Store
) -> None:
    killed = re.search(r"Process (\d+) is killed .*\(SIGKILL\)", told[0])
    assert killed is not None
    with pytest.raises(ProcessLookupError):
        os.kill(int(killed[1]), 0)
    path = thread_of(left).path()
    markers = [entry for entry in path if entry.kind == "turn_marker"]
    owners = [marker.body["owner"] for marker in markers if marker.body["status"] == "started"]
    assert owners[0] == f"agent-{killed[1]}"
    assert owners[1] != owners[0]
    # The dead agent's turn has no end of its own: what follows its start is another start,
    # of the same turn, and the tool call before that has no result yet.
    assert [marker.body["status"] for marker in markers[:3]] == ["started", "started", "completed"]
    assert len({marker.turn for marker in markers[:3]}) == 1
    said = [entry for entry in path if entry.kind != "usage"]
    assert said[said.index(markers[1]) - 1].kind == "tool_call"
    assert path[path.index(markers[1]) + 1].kind == "tool_result"


def test_every_tool_call_has_exactly_one_result(left: clew.Store) -> None:
    path = thread_of(left).path()
    calls = [call["id"] for entry in path for call in entry.body.get("tool_calls", ())]
    results = [entry.body["tool_call_id"] for entry in path if entry.kind == "tool_result"]
    assert calls == results == ["call_1", "call_2", "call_3"]


def test_the_late_write_left_no_trace(told: tuple[str, Path, float], left: clew.Store) -> None:
    assert "is refused: lease_lost" in told[0]
    assert all(entry.body for entry in thread_of(left).entries())


def test_both_answers_and_the_fork_are_there_and_whole(left: clew.Store) -> None:
    thread = thread_of(left)
    first, second = thread.leaves()
    assert thread.leaf == second
    parted = thread.compare(first, second)
    assert parted.common is not None
    assert parted.common.kind == "user_message"
    (fork,) = left.list(origin=thread.id).items
    assert fork.origin is not None
    assert thread.get(fork.origin.entry or "").body["status"] == "completed"
    assert thread.unfinished_turn() is None
    assert left.verify() == []


def test_every_entry_shown_is_in_the_store(told: tuple[str, Path, float], left: clew.Store) -> None:
    stored = {
        (record.seq, record.kind)
        for info in left.threads()
        for record in left.get(info.id).read()
        if isinstance(record, clew.Entry)
    }
    shown = re.findall(r"^ +(\d+) (?:[^\w\s]+ )*([a-z_]+)  ", told[0], re.MULTILINE)
    assert len(shown) > 30
    assert {(int(seq), kind) for seq, kind in shown} == stored


def test_a_search_and_the_usage_are_shown(told: tuple[str, Path, float], left: clew.Store) -> None:
    assert "Accented letters get lost." in told[0].split("What was said is found")[1]
    replies = sum(
        entry.kind == "usage"
        for info in left.threads()
        for entry in left.get(info.id).read()
        if isinstance(entry, clew.Entry)
    )
    assert f"{replies} replies: " in told[0]


def test_the_commands_at_the_end_work_as_printed(told: tuple[str, Path, float]) -> None:
    output, folder, _ = told
    suggested = [line.strip() for line in output.splitlines()[-3:]]
    shown = [
        subprocess.run(line, shell=True, cwd=folder, capture_output=True, text=True, check=True)
        for line in suggested
    ]
    assert "test_slugify fails" in shown[0].stdout
    assert "Accents no longer break" in shown[1].stdout
    assert "whole" in shown[2].stdout


def test_the_agent_takes_no_step_twice_wherever_it_was_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The script is followed from the path alone, so any prefix of it is resumed rightly."""
    monkeypatch.setattr(demo_, "PACE_SECONDS", 0)
    with clew.open("memory:") as store:
        whole = store.create()
        whole.append_message({"role": "user", "content": "go"})
        work(whole, FIX)
        path = whole.path()
        expected = [entry.body for entry in path if entry.kind not in SILENT]
        for stopped_at in path[1:-1]:
            fork = whole.fork(at=stopped_at.id)
            work(fork, FIX)
            assert [e.body for e in fork.path() if e.kind not in SILENT] == expected
        assert steps_taken(path) == len(FIX)


@pytest.mark.parametrize(
    ("path", "folder", "expected"),
    [
        ("venv/bin", ".", "clew"),
        ("nowhere", ".", "venv/bin/clew"),
        ("nowhere", "venv/bin", "./clew"),
        ("nowhere", "elsewhere", "{root}/venv/bin/clew"),
    ],
)
def test_the_command_is_named_as_the_users_shell_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, folder: str, expected: str
) -> None:
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (programs / "clew").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / path))
    monkeypatch.chdir(tmp_path / folder)
    assert demo.own_command() == expected.format(root=tmp_path)


def test_another_program_called_clew_is_not_recommended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("other", "ours"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "clew").touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "ours" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    monkeypatch.chdir(tmp_path)
    assert demo.own_command() == "ours/clew"
