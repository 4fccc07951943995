"""What `make torture` says at its end is what it did: its exit code, and what it did not try."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import torture
from faults.points import Outcome
from faults.torture import Row, Work


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """What the parts silence is heard again by the tests that follow in this process."""
    yield
    logging.disable(logging.NOTSET)


def row(points: int = 3, failures: int = 0, *, control: bool = False, note: str = "") -> Row:
    told = [f"failure {n}" for n in range(failures)]
    return Row("a part", "sqlite", points, told, [note] if note else [], 1.0, control)


def run(monkeypatch: pytest.MonkeyPatch, rows: list[Row], *options: str) -> int:
    monkeypatch.setattr(
        torture, "run", lambda engines, *_: [] if torture.POSTGRES in engines else rows
    )
    monkeypatch.setattr(sys, "argv", ["torture.py", *options])
    return torture.main()


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (row(), 0),
        (row(failures=1), 1),
        (row(failures=1, control=True), 0),
        (row(control=True), 1),
    ],
)
def test_the_exit_code_tells_of_failures_and_of_controls_without_one(
    found: Row, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, [found], "--engine", "sqlite", "--short") == code
    assert ("NOT AS IT SHOULD BE: a part, sqlite" in capsys.readouterr().out) == bool(code)


@pytest.mark.parametrize("failing", ["run_tests", "run_mutants"])
def test_tests_that_fail_and_mutants_that_live_count_too(
    failing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []
    for name in ("run_tests", "run_mutants"):
        code = int(name == failing)
        monkeypatch.setattr(torture, name, lambda name=name, code=code: done.append(name) or code)
    assert run(monkeypatch, [row()]) == 1
    assert done == ["run_tests", "run_mutants"], "the second is run whatever became of the first"
    assert "the tests in full" not in capsys.readouterr().out


def test_what_was_not_tried_is_named_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    skipped = row(0, note="skipped: there is no QEMU")
    rows = [row(), skipped, row(0), row(note="lines not fuzzed: atheris is not installed")]
    assert run(monkeypatch, rows, "--short") == 0
    told = [one for one in capsys.readouterr().out.splitlines() if one.startswith("NOT TRIED: ")]
    assert told == [
        "NOT TRIED: a part, sqlite: skipped: there is no QEMU",
        "NOT TRIED: a part, sqlite: it came to its end without a single point",
        "NOT TRIED: a part, sqlite: lines not fuzzed: atheris is not installed",
        "NOT TRIED: 5 power cut of a virtual machine, sqlite: only without --short",
        "NOT TRIED: 5 power cut of a virtual machine, files: only without --short",
        "NOT TRIED: 5 power cut of a virtual machine, postgres: only without --short",
        "NOT TRIED: the tests in full, and mutants: only without --engine, --part, --short",
    ]


def test_a_part_that_there_is_not_is_no_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, [], "--part", "6 no such part")
    assert ended.value.code == 2
    assert "no part has '6 no such part' in its name" in capsys.readouterr().err


def test_a_worker_tells_of_each_part_and_one_that_breaks_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def part(place: Path, outcome: Outcome) -> None:
        place.mkdir()
        outcome.points += 2
        outcome.notes.append("a note")

    def broken(place: Path, outcome: Outcome) -> None:
        assert not place.exists(), "each part has an empty place"
        raise OSError("the harness itself")

    parts: list[tuple[str, Work, bool]] = [("one", part, False), ("two", broken, True)]
    monkeypatch.setattr(torture, "parts_of", lambda *_: iter(parts))
    with pytest.raises(OSError, match="the harness itself"):
        torture.work("sqlite", "", True)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith('["one", "sqlite", 2, [], ["a note"],')
    torture.work("sqlite", "no such", True)
    assert capsys.readouterr().out == ""
