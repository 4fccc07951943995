"""Snapshots, rewind and undo on the command line: what they would do is said first, and asked."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_support import Result, Run, say

import clew
from clew.cli import _exits, _files
from clew.cli import _files as _snapshots_
from clew.cli._text import size
from clew.cli.snapshot import COMMANDS

Do = Callable[..., Result]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    (folder / "b.txt").write_text("two\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def thread(store: clew.Store) -> clew.Thread:
    made = store.create("fix-login")
    say(made, "The login is broken.")
    return made


@pytest.fixture
def do(run: Run, place: Path, thread: clew.Thread) -> Do:
    """A command about the thread, by its words: `do("snapshot take", "--label", "x")`."""

    def call(command: str, *options: object) -> Result:
        return run(*command.split(), place, "fix", *options)

    return call


def work(thread: clew.Thread, root: Path, do: Do) -> None:
    """A turn of an agent: a snapshot before it, changed files and a snapshot after it."""
    assert do("snapshot take").code == 0
    say(thread, "Done.", role="assistant")
    (root / "a.txt").write_text("ONE\n")
    (root / "b.txt").unlink()
    (root / "new.txt").write_text("new\n")
    say(thread, "Now the rest.")
    assert do("snapshot take").code == 0


def files(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(root.iterdir())}


OLD = {"a.txt": "one\n", "b.txt": "two\n"}
NEW = {"a.txt": "ONE\n", "new.txt": "new\n"}


# --- the family ---


def test_every_command_of_the_family_explains_itself(run: Run) -> None:
    assert run("snapshot").out == run("snapshot", "--help").out
    for name in COMMANDS:
        assert name in run("snapshot").out
        helped = run("snapshot", name, "--help")
        assert (helped.code, f"usage: clew snapshot {name}" in helped.out) == (0, True)
    assert run("snapshot", "frobnicate").code == _exits.USAGE


@pytest.mark.parametrize("command", ["snapshot list", "snapshot take", "rewind", "undo"])
def test_a_forgotten_thread_is_not_taken_for_a_thread_of_that_name(
    run: Run, store: clew.Store, place: Path, command: str
) -> None:
    failed = run(*command.split(), place)
    assert (failed.code, f"clew {command} {place} THREAD" in failed.err) == (_exits.USAGE, True)
    assert run(*command.split(), place, "nobody").code == _exits.NOT_FOUND


# --- take, list, show ---


def test_take_says_what_it_took_and_what_it_left_out(
    do: Do, thread: clew.Thread, root: Path
) -> None:
    (root / "big.bin").write_bytes(b"x" * 2000)
    (root / ".env").write_text("secret")
    os.mkfifo(root / "pipe")
    done = do("snapshot take", "--max-file-bytes", 1000, "--exclude", "b.*", "--label", "start")
    assert done.code == 0
    assert ": 1 file, 4 bytes; " in done.lines[0]
    assert "left out: 1 too large, 1 no file" in done.out
    assert "  big.bin (2.0 KB): too large" in done.lines
    (taken,) = thread.snapshots.list()
    assert (taken.label, taken.root) == ("start", str(root))
    again = json.loads(do("snapshot take", "--secrets", "--json").out)
    assert (again["files"], again["left_out_count"]) == (2, 2), "the rules of the last one hold"
    assert again["id"] == thread.snapshots.list()[0].id
    assert json.loads(do("snapshot take", "--no-secrets", "--json").out)["files"] == 1


def test_what_was_left_out_is_not_listed_without_end(
    do: Do, thread: clew.Thread, root: Path
) -> None:
    for n in range(_files.LEFT_OUT_MAX + 3):
        (root / f"big{n}").write_bytes(b"x" * 2000)
    done = do("snapshot take", "--max-file-bytes", 1000)
    assert len(done.lines) == _files.LEFT_OUT_MAX + 3
    assert done.lines[-1] == "  … and 3 more"


def test_list_names_each_one_with_its_message(do: Do, thread: clew.Thread, root: Path) -> None:
    assert do("snapshot list").out == "no snapshots\n"
    work(thread, root, do)
    thread.snapshots.pin(thread.snapshots.list()[0].id)
    lines = do("snapshot list").lines
    assert lines[0].endswith("[pinned] Now the rest.")
    assert lines[1].endswith("The login is broken.")
    assert lines[2] == "2 snapshots, 16 bytes in all"
    for line, snapshot in zip(lines, thread.snapshots.list(), strict=False):
        assert snapshot.id.startswith(line.split()[0])
        assert do("snapshot show", "--snapshot", line.split()[0]).code == 0
    values = [json.loads(line) for line in do("snapshot list", "--json").lines]
    assert [value["pinned"] for value in values] == [True, False]


def test_show_gives_the_files_or_one_of_them_byte_for_byte(
    do: Do, thread: clew.Thread, root: Path
) -> None:
    (root / "l").symlink_to("a.txt")
    work(thread, root, do)
    first = thread.snapshots.list()[1].id
    shown = do("snapshot show", "--snapshot", first)
    assert [line.split()[-1] for line in shown.lines[:2]] == ["a.txt", "b.txt"]
    assert shown.lines[2].endswith("l → a.txt")
    assert do("snapshot show", "--file", "a.txt").out == "ONE\n"
    assert do("snapshot show", "--snapshot", first, "--file", "a.txt").out == "one\n"
    nodes = [json.loads(line) for line in do("snapshot show", "--json").lines]
    assert [node["path"] for node in nodes] == ["a.txt", "l", "new.txt"]
    assert do("snapshot show", "--file", "../a.txt").code == _exits.USAGE
    assert do("snapshot show", "--file", "gone").code == _exits.NOT_FOUND
    assert do("snapshot show", "--snapshot", "zz").code == _exits.NOT_FOUND


def test_the_history_of_a_file_names_who_made_each_version(
    do: Do, thread: clew.Thread, root: Path
) -> None:
    work(thread, root, do)
    first, second = do("snapshot show", "--history", "a.txt").lines
    assert first.endswith("(it was there before)")
    assert second.endswith("Done.")
    assert "gone" in do("snapshot show", "--history", "b.txt").lines[1]
    versions = [
        json.loads(line) for line in do("snapshot show", "--history", "b.txt", "--json").lines
    ]
    assert versions[1]["ref"] is None
    assert do("snapshot show", "--history", "never").code == _exits.NOT_FOUND


def test_blame_names_what_brought_each_line(do: Do, thread: clew.Thread, root: Path) -> None:
    work(thread, root, do)
    (root / "a.txt").write_text("ONE\n\tadded\nat once\n")
    say(thread, "Lines are added.", role="assistant")
    do("snapshot take")
    lines = do("snapshot blame", "a.txt").lines
    assert [" ".join(line.split()) for line in lines[2:]] == ["3 at once"]
    assert [" ".join(line.split()[2:]) for line in lines[:2]] == [
        "Done. 1 ONE",
        "Lines are added. 2 added",
    ]
    values = [json.loads(line) for line in do("snapshot blame", "a.txt", "--json").lines]
    assert [(one["line"], one["text"]) for one in values][1:] == [(2, "\tadded"), (3, "at once")]
    assert values[1]["version"]["entry"] == thread.path()[-2].id
    assert do("snapshot blame", "gone.txt").code == _exits.NOT_FOUND
    assert do("snapshot blame", "../a.txt").code == _exits.USAGE
    (root / "a.txt").write_bytes(b"\0\1")
    do("snapshot take")
    assert "binary" in do("snapshot blame", "a.txt").err


def test_no_stored_text_reaches_the_terminal_with_its_control_sequences(
    do: Do, thread: clew.Thread, root: Path
) -> None:
    (root / "a.txt").write_text("\x1b[31mred\x1b[0m\r\n")
    (root / "\x1b[2Jname").write_text("x")
    do("snapshot take", "--label", "\x1b]0;title\x07")
    (root / "a.txt").write_text("\x1b[32mgreen\n")
    for command in (
        ["snapshot list"],
        ["snapshot show"],
        ["snapshot diff"],
        ["snapshot diff", "--text"],
        ["snapshot blame", "a.txt"],
        ["snapshot restore", "--dry-run"],
    ):
        assert "\x1b" not in do(*command).out, command
    assert "-red^M\n+green\n" in do("snapshot diff", "--text").out


def test_a_preview_of_a_snapshot_in_the_tree_is_no_json(
    do: Do, thread: clew.Thread, root: Path
) -> None:
    do("snapshot take", "--label", "start")
    thread.append("snapshot", {"of": "somebody else"})
    shown = do("show").out
    assert "[start] 2 files, 8 bytes, of /" in shown
    assert "snapshot: somebody else" in shown


# --- diff ---


def test_diff_is_against_the_files_as_they_are_or_another_snapshot(
    do: Do, thread: clew.Thread, root: Path
) -> None:
    assert do("snapshot diff").code == _exits.USAGE
    work(thread, root, do)
    assert do("snapshot diff").out == "no differences\n"
    assert do("snapshot diff", "--text").out == "no differences\n"
    second, first = (one.id for one in thread.snapshots.list())
    for options in ([], ["--to", second]):
        done = do("snapshot diff", "--from", first, *options)
        assert done.lines == [
            "M a.txt  4 → 4 bytes",
            "D b.txt",
            "A new.txt",
            "3 differences",
        ]
    text = do("snapshot diff", "--from", first, "--text", "--path", "a.txt").out
    assert "-one\n+ONE\n" in text
    assert "b.txt" not in text
    only = do("snapshot diff", "--from", first, "--path", "b.txt", "--json").lines
    assert [json.loads(line)["change"] for line in only] == ["removed"]
    assert do("snapshot diff", "--path", "/etc").code == _exits.USAGE


# --- restore, rewind, undo ---


def test_a_plan_is_shown_and_nothing_is_done(do: Do, thread: clew.Thread, root: Path) -> None:
    work(thread, root, do)
    first = thread.snapshots.list()[1].id
    for command in (
        ["snapshot restore", "--snapshot", first],
        ["rewind", "--to", 1],
    ):
        done = do(*command, "--dry-run")
        assert done.code == 0
        assert "  overwrite a.txt\n  create    b.txt\n  delete    new.txt\n" in done.out
        planned = json.loads(do(*command, "--dry-run", "--json").out)
        assert planned["dry_run"]
        refused = do(*command)
        assert (refused.code, "--yes" in refused.err) == (_exits.USAGE, True)
        assert do(*command, "--json").code == _exits.USAGE
    assert files(root) == NEW
    assert len(thread.snapshots.list()) == 2


def test_restore_brings_files_back_and_leaves_the_conversation(
    do: Do, thread: clew.Thread, root: Path
) -> None:
    work(thread, root, do)
    first, leaf = thread.snapshots.list()[1].id, thread.leaf
    done = do("snapshot restore", "--snapshot", first, "--path", "a.txt", "--yes")
    assert done.lines[-1] == "restored: 1 overwritten"
    assert files(root) == NEW | {"a.txt": "one\n"}
    done = do("snapshot restore", "--snapshot", first, "--yes", "--json")
    assert [step["act"] for step in json.loads(done.out)["plan"]["steps"]] == ["create", "delete"]
    assert (files(root), thread.leaf) == (OLD, leaf)
    assert do("snapshot restore", "--snapshot", first).lines[-1] == "restored: no file changed"


def test_rewind_takes_both_back_and_undo_brings_both(
    do: Do, thread: clew.Thread, root: Path
) -> None:
    work(thread, root, do)
    leaf = thread.leaf
    done = do("rewind", "--to", 1, "--yes")
    assert done.lines[0] == "conversation to before message 1: The login is broken."
    assert done.lines[-1] == (
        "rewound: 1 created, 1 overwritten, 1 deleted; clew undo takes it back"
    )
    assert (files(root), thread.leaf) == (OLD, None)
    planned = do("undo", "--dry-run")
    assert "  create    new.txt" in planned.lines
    told = json.loads(do("undo", "--dry-run", "--json").out)
    assert (told["what"], told["dry_run"], told["leaf"]) == ("undo", True, leaf)
    assert len(told["files"]["plan"]["steps"]) == 3
    assert (files(root), thread.leaf) == (OLD, None)
    assert do("undo").code == _exits.USAGE
    assert do("undo", "--yes").lines[-1] == "undone: 1 created, 1 overwritten, 1 deleted"
    assert (files(root), thread.leaf) == (NEW, leaf)
    nothing = do("undo", "--yes")
    assert (nothing.code, "no rewind" in nothing.err) == (_exits.USAGE, True)


def test_undo_goes_back_step_by_step_and_redo_forth_again(
    do: Do, thread: clew.Thread, root: Path
) -> None:
    work(thread, root, do)
    (root / "a.txt").write_text("THREE\n")
    say(thread, "Done.", role="assistant")
    assert do("snapshot take").code == 0
    leaf = thread.leaf
    assert do("rewind", "--yes").code == 0
    assert do("rewind", "--to", 1, "--yes").code == 0
    assert files(root) == OLD
    assert do("undo", "--yes").code == 0
    assert files(root) == NEW
    assert do("undo", "--yes").code == 0
    assert (files(root)["a.txt"], thread.leaf) == ("THREE\n", leaf)
    planned = do("redo", "--dry-run")
    assert planned.lines[0] == "redo what was undone last"
    assert do("redo").code == _exits.USAGE, "it asks, and nobody answers"
    assert do("redo", "--yes").lines[-1] == "redone: 1 overwritten"
    assert json.loads(do("redo", "--yes", "--json").out)["what"] == "redo"
    assert files(root) == OLD
    nothing = do("redo", "--yes")
    assert (nothing.code, "no undo" in nothing.err) == (_exits.USAGE, True)
    assert do("undo", "--dry-run").lines[0] == "undo the last redo"


def test_an_append_after_an_undo_ends_what_could_be_redone(
    do: Do, thread: clew.Thread, root: Path
) -> None:
    work(thread, root, do)
    do("rewind", "--to", 1, "--yes")
    do("undo", "--yes")
    say(thread, "On.")
    failed = do("redo", "--yes")
    assert (failed.code, "gone on since the undo" in failed.err) == (_exits.USAGE, True)
    assert files(root) == NEW


def test_an_undo_finds_a_folder_that_was_moved(do: Do, thread: clew.Thread, root: Path) -> None:
    work(thread, root, do)
    do("rewind", "--to", 1, "--yes")
    moved = root.rename(root.parent / "moved")
    assert do("undo", "--yes").code != 0
    assert do("undo", "--yes", "--root", moved).code == 0
    assert files(moved) == NEW


@pytest.mark.parametrize("command", ["snapshot take", "snapshot restore", "rewind", "undo", "redo"])
def test_an_empty_root_is_refused(do: Do, thread: clew.Thread, root: Path, command: str) -> None:
    work(thread, root, do)
    seq = thread.info.seq
    failed = do(command, "--root", "", *([] if command == "snapshot take" else ["--yes"]))
    assert (failed.code, "no name of a folder" in failed.err) == (_exits.USAGE, True)
    assert (files(root), thread.info.seq) == (NEW, seq)


def test_rewind_takes_back_only_what_is_asked_for(do: Do, thread: clew.Thread, root: Path) -> None:
    work(thread, root, do)
    leaf = thread.leaf
    only = json.loads(do("rewind", "--to", 1, "--files", "--yes", "--json").out)
    assert (files(root), thread.leaf, only["what"]) == (OLD, leaf, "rewind")
    do("undo", "--yes")
    assert do("rewind", "--to", 1, "--conversation", "--yes").code == 0
    assert (files(root), thread.leaf) == (NEW, None)
    undone = json.loads(do("undo", "--yes", "--json").out)
    assert (undone["what"], thread.leaf) == ("undo", leaf)


def test_messages_are_found_by_number_by_id_and_by_its_beginning(
    do: Do, thread: clew.Thread, root: Path
) -> None:
    work(thread, root, do)
    last = [entry for entry in thread.path() if entry.kind == "user_message"][-1]
    for named in ([], ["--to", last.seq], ["--to", last.id], ["--to", last.id[:20]]):
        done = do("rewind", *named, "--dry-run", "--json")
        assert json.loads(done.out)["leaf"] == last.parent, named
    assert do("rewind", "--to", "0", "--dry-run").code == _exits.USAGE, "it begins all of them"
    assert do("rewind", "--to", "77", "--dry-run").code == _exits.NOT_FOUND
    answer = next(entry for entry in thread.path() if entry.kind == "assistant_message")
    assert do("rewind", "--to", answer.id, "--dry-run").code == _exits.USAGE


def test_a_message_without_a_snapshot_says_how_to_go_back_all_the_same(
    do: Do, thread: clew.Thread, root: Path
) -> None:
    failed = do("rewind", "--yes")
    assert (failed.code, "--conversation" in failed.err) == (_exits.USAGE, True)
    assert do("rewind", "--conversation", "--yes").code == 0
    assert thread.leaf is None


def test_a_foreign_change_stops_it_and_is_named(do: Do, thread: clew.Thread, root: Path) -> None:
    work(thread, root, do)
    (root / "a.txt").write_text("by hand\n")
    first = thread.snapshots.list()[1].id
    for command in (["snapshot restore", "--snapshot", first], ["rewind", "--to", 1]):
        failed = do(*command, "--yes")
        assert failed.code == _exits.CONFLICT
        assert "changed since the last snapshot, and not by this thread: a.txt" in failed.out
        assert "a.txt" in failed.err
    assert (root / "a.txt").read_text() == "by hand\n"
    assert do("rewind", "--to", 1, "--yes", "--force").code == 0
    assert files(root) == OLD
    assert do("undo", "--yes").code == 0
    assert (root / "a.txt").read_text() == "by hand\n"


def test_what_no_snapshot_has_ever_had_stays_and_is_said(
    do: Do, thread: clew.Thread, root: Path
) -> None:
    work(thread, root, do)
    (root / "mine.txt").write_text("mine\n")
    done = do("rewind", "--to", 1, "--yes")
    assert "in no snapshot, they stay: mine.txt" in done.out
    assert files(root) == OLD | {"mine.txt": "mine\n"}


def test_a_long_plan_is_cut_and_counted(do: Do, thread: clew.Thread, root: Path) -> None:
    do("snapshot take")
    for n in range(_snapshots_.STEPS_MAX + 5):
        (root / f"f{n}").write_text("x")
    say(thread, "More.")
    do("snapshot take")
    done = do("rewind", "--to", 1, "--dry-run")
    assert "  … and 5 more" in done.lines
    assert done.lines[-1] == "  2 files unchanged"


def test_a_running_turn_is_not_disturbed(do: Do, thread: clew.Thread, root: Path) -> None:
    work(thread, root, do)
    with thread.turn(owner="agent"):
        assert do("rewind", "--to", 1, "--yes").code == _exits.CONFLICT
    assert files(root) == NEW


# --- asking ---


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("said", "done"), [("y\n", True), ("YES\n", True), ("n\n", False), ("", False)]
)
def test_a_person_is_asked(
    said: str, done: bool, do: Do, thread: clew.Thread, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(thread, root, do)
    first = thread.snapshots.list()[1].id
    for command in (["rewind", "--to", 1], ["snapshot restore", "--snapshot", first]):
        monkeypatch.setattr("sys.stdin", Terminal(said))
        result = do(*command)
        assert (result.code, result.err.endswith("? [y/N] ")) == (0, True)
        assert files(root) == (OLD if done else NEW)
        assert ("nothing was changed" in result.out) is not done
        if done:
            monkeypatch.setattr("sys.stdin", Terminal(said))
            assert do("undo").code == 0
            assert files(root) == NEW


def test_nobody_is_asked_about_nothing(do: Do, thread: clew.Thread, root: Path) -> None:
    do("snapshot take")
    assert do("snapshot restore").lines[-1] == "restored: no file changed"


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1,023 bytes"),
        (1024, "1.0 KB"),
        (14_000, "14 KB"),
        (1024**2 - 1, "1.0 MB"),
        (3_400_000, "3.2 MB"),
        (5 * 1024**4, "5.0 TB"),
    ],
)
def test_sizes_are_said_in_words(number: int, said: str) -> None:
    assert size(number) == said
