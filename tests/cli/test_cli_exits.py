"""Exit codes and errors: one line, no traceback, and nothing made by looking."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest
from amounts import sample
from cli_support import Run, say

import clew
from clew.cli import COMMANDS, _exits
from clew.core import errors
from clew.engines.sqlite.doctor import SQLiteMaintenance


def test_every_error_has_an_exit_code_that_the_help_explains(run: Run) -> None:
    kinds = [getattr(errors, name) for name in errors.__all__ if name != "ClewError"]
    codes = {_exits.code_of(kind.__new__(kind)) for kind in kinds}
    assert _exits.BUG not in codes
    help = run("--help").out
    assert all(f"{code} " in help and text in help for code, text in _exits.MEANINGS.items())


def test_every_command_explains_itself(run: Run) -> None:
    assert run("help").out == run("--help").out
    for name in COMMANDS:
        assert name in run("--help").out
        helped = run(name, "--help")
        assert helped.code == 0
        assert f"usage: clew {name}" in helped.out
        assert run("help", name).out == helped.out


def test_the_version_is_that_of_the_package(run: Run) -> None:
    assert run("--version").out == f"clew {clew.__version__}\n"


@pytest.mark.parametrize("command", [["list"], ["show"], ["verify"]])
def test_looking_does_not_make_a_store(run: Run, tmp_path: Path, command: list[str]) -> None:
    thread = ["t"] if command == ["show"] else []
    for address in (tmp_path / "a" / "no.db", f"sqlite:///{tmp_path}/b/no.db"):
        missed = run(*command, address, *thread)
        assert missed.code == 2
        assert "there is no store at" in missed.err
    assert run(*command, *thread).code == 2  # the user's own
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_does_not_become_a_store(run: Run, tmp_path: Path) -> None:
    empty = tmp_path / "empty.db"
    empty.touch()
    assert run("list", empty).code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["empty.db"]
    assert empty.stat().st_size == 0


WRONG = {
    "no such command": (["frobnicate"], 2),
    "no thread": (["show"], 2),
    "too much": (["list", "a", "b"], 2),
    "unknown option": (["list", "--frobnicate"], 2),
    "no number": (["list", "--limit", "many"], 2),
    "limit of zero": (["list", "--limit", "0"], 2),
    "unknown scheme": (["list", "mysql://host/db"], 6),
    "a folder": (["list", "/"], 6),
}


@pytest.mark.parametrize("case", WRONG)
def test_mistakes_are_told_in_one_line(run: Run, case: str) -> None:
    arguments, code = WRONG[case]
    failed = run(*arguments)
    assert (failed.code, failed.out) == (code, "")
    assert failed.err.startswith("clew: ")
    assert failed.err.count("\n") == 1


def test_a_thread_that_is_not_there_is_told_from_one_that_is_not_named_enough(
    run: Run, store: clew.Store, place: Path
) -> None:
    store.create("thread-1")
    store.create("thread-2")
    assert run("show", place, "other").code == 3
    assert run("show", place, "thread-").code == 2
    assert run("show", place, "thread-1").code == 0


def test_a_forgotten_thread_is_not_taken_for_a_thread_of_that_name(
    run: Run, store: clew.Store, place: Path
) -> None:
    failed = run("show", place)
    assert failed.code == 2
    assert f"clew show {place} THREAD" in failed.err


def test_a_mistake_in_clew_is_not_reported_as_damage(
    run: Run, store: clew.Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SQLiteMaintenance, "check", lambda self, **options: 1 / 0)
    failed = run("verify", place)
    assert failed.code == 70
    assert "ZeroDivisionError" in failed.err
    assert failed.err.count("\n") == 1


def test_interruption_is_quiet(
    run: Run, store: clew.Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: SQLiteMaintenance, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SQLiteMaintenance, "check", interrupt)
    assert run("verify", place).code == 130


# --- what an address leads to ---

LEADS = {  # what lies there → the exit code, and what is said
    "a strange folder": ("strange", 6, "is a folder, and no store"),
    "an empty folder": ("empty", 6, "is an empty folder, and no store"),
    "a store of files": ("files", 6, "its address is files:"),
    "a folder around a database": ("around", 6, "name the file in it: "),
    "nothing": ("missing", 2, "there is no store at "),
    "no folder of Clew's": ("files:strange", 2, "there is no store at "),
    "an empty folder, as files": ("files:empty", 2, "there is no store at "),
    "nothing, as files": ("files:missing", 2, "there is no store at "),
    "a database, as files": ("files:around/threads.db", 6, "as a SQLite file its address is "),
    "a file, as files": (
        "files:strange/file",
        6,
        "is a file, not a folder; a store of files",
    ),
}
COMMANDS_WITH_STORE = {
    "list": [],
    "show": ["t"],
    "export": ["t"],
    "verify": [],
    "doctor": [],
    "migrate": ["--check"],
    "repair": [],
    "cleanup": ["--older-than", "90d", "--dry-run"],
    "copy": ["target.db"],
    "snapshot list": ["t"],
    "rewind": ["t", "--dry-run"],
}


@pytest.mark.parametrize("case", LEADS)
def test_every_command_says_the_same_about_an_address(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.chdir(tmp_path)
    clew.open("files:files").close()
    clew.open("around/threads.db").close()
    for name in ("strange", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "strange" / "file").write_text("x")
    before = sorted(tmp_path.rglob("*"))
    address, code, text = LEADS[case]
    said = {name: run(*name.split(), address, *rest) for name, rest in COMMANDS_WITH_STORE.items()}
    assert {name: (done.code, done.out) for name, done in said.items()} == dict.fromkeys(
        said, (code, "")
    )
    (message,) = {done.err for done in said.values()}
    assert text in message
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_that_is_no_store_is_told_by_those_that_look(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("nothing of Clew's" * 100)
    commands = (["list"], ["verify"], ["doctor"], ["migrate", "--check"])
    said = [run(*command, file) for command in commands]
    assert {(done.code, done.err) for done in said} == {(6, f"clew: {file} is not a SQLite file\n")}


# --- verify ---


def test_a_whole_store_is_said_to_be_whole(run: Run, store: clew.Store, place: Path) -> None:
    say(store.create(), "hello")
    verified = run("verify", place)
    assert verified.code == 0
    assert "1 thread, 1 entry, 1 record" in verified.out
    assert "whole" in verified.lines[-1]
    report = json.loads(run("verify", place, "--json").out)
    assert report["whole"] is True
    assert report["problems"] == []
    assert report["read"]["entries"] == 1


def test_damage_is_named_with_its_place(run: Run, store: clew.Store, place: Path) -> None:
    thread = store.create("t")
    say(thread, "before")
    entry = say(thread, "after")
    store.close()
    database = apsw.Connection(str(place))
    database.execute("UPDATE records SET body = CAST('{}' AS BLOB) WHERE no & 0xffffffff = 2")
    database.close()
    verified = run("verify", place)
    assert verified.code == 1
    assert f"thread t, record 2, entry {entry.id}: " in verified.out
    assert verified.lines[-1] == "damaged: 1 problem"
    reported = run("verify", place, "--json")
    assert reported.code == 1
    problem = json.loads(reported.out)["problems"][0]
    assert (problem["thread"], problem["seq"], problem["entry"]) == ("t", 2, entry.id)


# --- real processes ---


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "clew", *map(str, arguments)]


def test_a_reader_that_has_seen_enough_causes_no_complaint(store: clew.Store, place: Path) -> None:
    thread = store.create()
    thread.append([clew.draft("custom", "x" * 99) for _ in range(5000)])
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        ended = subprocess.run(
            command("show", place, thread.id), stdout=write_end, stderr=subprocess.PIPE, text=True
        )
    finally:
        os.close(write_end)
    assert (ended.returncode, ended.stderr) == (141, "")


EVERYWHERE = {
    "help": ["--help"],
    "nothing": [],
    "version": ["--version"],
    "help of a command": ["list", "--help"],
    "a family": ["snapshot"],
    "list": ["list", "STORE"],
    "list as JSON": ["list", "STORE", "--json"],
    "show": ["show", "STORE", "t"],
    "show as JSON": ["show", "STORE", "t", "--json"],
    "path": ["show", "STORE", "t", "--path"],
    "verify": ["verify", "STORE"],
    "verify as JSON": ["verify", "STORE", "--json"],
    "doctor": ["doctor", "STORE"],
    "migrate": ["migrate", "STORE", "--check"],
    "cleanup": ["cleanup", "STORE", "--older-than", "90d", "--yes"],
    "snapshots": ["snapshot", "list", "STORE", "t"],
}


def shell(place: Path, name: str, redirection: str) -> subprocess.CompletedProcess[str]:
    arguments = [str(place) if word == "STORE" else word for word in EVERYWHERE[name]]
    line = f"{shlex.join(command(*arguments))} {redirection}"
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True)


@pytest.mark.parametrize("name", EVERYWHERE)
def test_output_that_cannot_be_written_is_told_and_is_no_damage(
    store: clew.Store, place: Path, name: str
) -> None:
    say(store.create("t"), "hello")
    store.close()
    full = shell(place, name, ">/dev/full")
    said = "standard output cannot be written: No space left on device"
    assert (full.returncode, told(full.stderr)) == (74, said)
    closed = shell(place, name, ">&-")
    assert closed.returncode == 74
    assert told(closed.stderr).startswith("standard output is closed, so nothing was done")
    assert closed.stderr.count("\n") == 1
    silences = (">&- 2>&-", ">/dev/full 2>&1", ">/dev/full 2>&-", "<&- >&- 2>&-")
    for nowhere in sample(silences, 4, list(EVERYWHERE).index(name)):
        silent = shell(place, name, nowhere)
        assert (silent.returncode, silent.stdout, silent.stderr) == (74, "", "")


def told(line: str) -> str:
    """The message of an error, as text or as JSON."""
    if line.startswith("clew: "):
        return line.removeprefix("clew: ").removesuffix("\n")
    message: str = json.loads(line)["error"]["message"]
    return message


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_closed_standard_error_changes_nothing_else(
    store: clew.Store, place: Path, name: str
) -> None:
    say(store.create("t"), "hello")
    store.close()
    usual = shell(place, name, "")
    for closed in sample(("2>&-", "<&- 2>&-", "2>/dev/full"), 3, list(EVERYWHERE).index(name)):
        quiet = shell(place, name, closed)
        assert (quiet.returncode, quiet.stderr) == (0, "")
        assert len(quiet.stdout.splitlines()) == len(usual.stdout.splitlines())


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"])
def test_an_error_that_nobody_can_be_told_keeps_its_exit_code(tmp_path: Path, stderr: str) -> None:
    line = f"{shlex.join(command('list', tmp_path / 'no.db'))} {stderr}"
    failed = subprocess.run(["sh", "-c", line], capture_output=True, text=True)
    assert (failed.returncode, failed.stdout, failed.stderr) == (2, "", "")


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_closed_pipe_is_quiet_for_every_command(
    store: clew.Store, place: Path, name: str
) -> None:
    say(store.create("t"), "hello")
    store.close()
    arguments = [str(place) if word == "STORE" else word for word in EVERYWHERE[name]]
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "w") as pipe:
        ended = subprocess.run(command(*arguments), stdout=pipe, stderr=subprocess.PIPE, text=True)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_starting_up_loads_no_command() -> None:
    code = (
        "import sys, clew.cli; sys.stdout.write(' '.join(m for m in sys.modules if 'clew.cli.' in m"
        " or m in ('argparse', 'apsw', 'subprocess')))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == ""


def test_ctrl_c_leaves_no_traceback_and_no_agent_behind(tmp_path: Path) -> None:
    with subprocess.Popen(
        command("demo", "--keep", tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Whoever runs the tests in the background ignores Ctrl-C, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as demo:
        assert demo.stdout is not None
        agent = next(filter(None, (re.search(r"in process (\d+)", line) for line in demo.stdout)))
        demo.send_signal(signal.SIGINT)
        _, complaints = demo.communicate(timeout=120)
    assert (demo.returncode, complaints) == (130, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(agent[1]), 0)


@pytest.mark.parametrize("command", ["list", "search", "usage"])
def test_a_span_that_leads_before_all_years_is_wrong_input(
    command: str, run: Run, store: clew.Store, place: Path
) -> None:
    words = ["hello"] if command == "search" else []
    assert run(command, *words, "--store", place, "--since", "999999w").code == 2
