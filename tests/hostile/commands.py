"""What a person does with a store that holds a bad thread, on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from clew.cli import main

# What is about the other threads, or about all that can be read, is done.
FOR_OTHERS = ("list", "show", "tree", "stats", "export")
BAD = ("show bad", "tree bad", "context bad", "tail bad", "diff bad", "export bad")
COMMANDS = (*FOR_OTHERS, *BAD, "verify", "doctor", "cleanup", "copy", "backup")


def check_command(
    command: str, address: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = {
        "list": ["list", address, "--json"],
        "show": ["show", address, "good"],
        "export": ["export", address, "good", "--out", str(folder / "good.jsonl")],
        "tree": ["tree", address, "good"],
        "stats": ["stats", address],
        "show bad": ["show", address, "bad"],
        "tree bad": ["tree", address, "bad"],
        "context bad": ["show", address, "bad", "--context"],
        "tail bad": ["tail", address, "bad"],
        "diff bad": ["diff", address, "good", "bad"],
        "backup": ["backup", address, str(folder / "backup.db")],
        "export bad": ["export", address, "bad", "--out", str(folder / "bad.jsonl")],
        "verify": ["verify", address],
        "doctor": ["doctor", address],
        "cleanup": ["cleanup", address, "--older-than", "0d", "--yes"],
        "copy": ["copy", address, str(folder / "copy.db")],
    }[command]
    code = main(arguments)
    shown = capsys.readouterr()
    said = shown.out + shown.err
    assert "mistake in Clew" not in said
    assert code not in (2, 70), said
    if command in FOR_OTHERS:
        assert code == 0, said
    if command == "list":
        assert '"good"' in shown.out
    if command == "cleanup":  # whatever became of the bad one, the others were looked at
        assert "Traceback" not in said


# All that a person does with a store and a thread (`{a}` and `{t}`) that was sent to them.
EVERYTHING = (
    "list {a} --json",
    "show {a} {t}",
    "show {a} {t} --json",
    "show {a} {t} --context",
    "tail {a} {t}",
    "tree {a} {t}",
    "diff {a} good {t}",
    "stats {a}",
    "search word --store {a}",
    "usage --store {a}",
    "export {a} {t} --out out.jsonl",
    "export {a} {t} --as markdown --out out.md",
    "verify {a}",
    "verify {a} --quick",
    "doctor {a}",
    "copy {a} copied.db",
    "copy {a} files:copied",
    "backup {a} kept.db",
    "cleanup {a} --older-than 0d --yes",
    "gc {a}",
    "snapshot list {a} good",
    "snapshot show {a} good",
    "snapshot diff {a} good",
    "snapshot restore {a} good --dry-run",
    "rewind {a} good --files --dry-run",
    "undo {a} good --dry-run",
    "fork {a} {t} --id new",
    "title {a} {t} hello",
    "delete {a} {t}",
    "purge {a} {t} --yes",
    "repair {a}",
    "repair {a} --reindex",
)
