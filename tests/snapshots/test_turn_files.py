"""Turns that look at files: edits of an agent that are taken for those of others, and the like."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import clew
from clew.aio.handles import AsyncStore
from clew.core.errors import Conflict, InvalidInput, LeaseHeld, NotFound, Unavailable
from clew.core.model import Entry
from clew.snapshots import scan
from clew.store import Store
from clew.thread import Thread


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "f").write_text("v1")
    return folder


@pytest.fixture
def thread(store: Store) -> Thread:
    return store.create("t")


@pytest.fixture(params=["asyncio", "trio"])
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return lambda story: anyio.run(story, backend=request.param)


def markers(thread: Thread) -> list[tuple[str, str | None]]:
    """How the turns on the path began and ended, and with which snapshots."""
    found = [entry.body for entry in thread.path() if entry.kind == "turn_marker"]
    return [(body["status"], body.get("snapshot")) for body in found]


def worked(thread: Thread, root: Path, message: str, text: str) -> Entry:
    """A turn in which the message comes, and the agent writes a file."""
    with thread.turn(owner="agent", files=root) as turn:
        asked = turn.append("user_message", message, id=message)
        turn.append("assistant_message", "done")
        (root / "f").write_text(text)
    return asked


# --- what the agent did is known ---


def test_a_rewind_right_after_the_agents_own_edits_is_no_conflict(
    thread: Thread, root: Path
) -> None:
    worked(thread, root, "m1", "v2")
    (root / "new").write_text("by the agent")
    with thread.turn(owner="agent", files=root) as turn:
        turn.append("user_message", "again", id="m2")
        (root / "more").write_text("by the agent")
    thread.rewind("m2")
    assert sorted(os.listdir(root)) == ["f", "new"]
    thread.rewind("m1")
    assert (sorted(os.listdir(root)), (root / "f").read_text()) == (["f"], "v1")
    thread.undo_rewind()
    thread.undo_rewind()
    assert sorted(os.listdir(root)) == ["f", "more", "new"]


def test_edits_of_others_outside_of_turns_are_still_a_conflict(thread: Thread, root: Path) -> None:
    worked(thread, root, "m1", "v2")
    (root / "f").write_text("by hand")
    with pytest.raises(Conflict, match="outside of what Clew knows") as caught:
        thread.rewind("m1")
    assert caught.value.files == ("f",)  # type: ignore[attr-defined]
    assert (root / "f").read_text() == "by hand"
    thread.snapshots.take(root)
    thread.rewind("m1")
    assert (root / "f").read_text() == "v1"


def test_what_was_saved_while_no_entry_was_written_is_not_what_the_message_came_with(
    thread: Thread, root: Path
) -> None:
    thread.append("user_message", "before the turn", id="m1")
    with thread.turn(owner="agent", files=root):
        (root / "f").write_text("v2")
    with thread.turn(owner="agent", files=root) as turn:
        turn.append("user_message", "in the turn", id="m2")
        (root / "f").write_text("v3")
    (root / "f").write_text("v4")
    thread.snapshots.take(root)
    thread.rewind("m2", conversation=False)
    assert (root / "f").read_text() == "v2"
    thread.rewind("m1", conversation=False)
    assert (root / "f").read_text() == "v1"


def test_a_fork_begins_with_the_files_from_the_end_of_a_turn(
    thread: Thread, root: Path, tmp_path: Path
) -> None:
    worked(thread, root, "m1", "v2")
    answer = next(entry for entry in thread.path() if entry.kind == "assistant_message")
    (root / "f").write_text("by hand")
    worked(thread, root, "m2", "v3")
    for n, (where, text) in enumerate(
        [({}, "v3"), ({"at": answer.id}, "v2"), ({"before": "m2"}, "by hand"), ({"at": "m1"}, "v1")]
    ):
        thread.fork(files_to=tmp_path / str(n), **where)  # type: ignore[arg-type]
        assert (tmp_path / str(n) / "f").read_text() == text


# --- what has not changed costs nothing ---


def test_a_folder_that_has_not_changed_is_written_down_once(thread: Thread, root: Path) -> None:
    for n in range(3):
        with thread.turn(owner="agent", files=root) as turn:
            turn.append("user_message", "x", id=f"m{n}")
            turn.append("assistant_message", "nothing to do", id=f"a{n}")
    (only,) = thread.snapshots.list()
    assert markers(thread) == [("started", only.id), ("completed", only.id)] * 3
    for point in ("m0", "a0", "m2", "a2"):
        assert thread.snapshots.restore(point, dry_run=True).plan.snapshot == only.id


def test_a_snapshot_that_lies_on_another_branch_is_not_the_one_that_is_named(
    thread: Thread, root: Path
) -> None:
    worked(thread, root, "m1", "v2")
    thread.rewind("m1")
    worked(thread, root, "m2", "v2")
    on_path = {entry.id for entry in thread.path() if entry.kind == "snapshot"}
    assert {id for _, id in markers(thread)} <= on_path


def test_a_file_that_is_newly_left_out_makes_another_snapshot(thread: Thread, root: Path) -> None:
    first = thread.snapshots.take_if_changed(root)
    assert thread.snapshots.take_if_changed(root) == first
    os.mkfifo(root / "pipe")
    second = thread.snapshots.take_if_changed(root)
    assert (second.id != first.id, second.tree) == (True, first.tree)
    assert thread.snapshots.take_if_changed(root).id == second.id


def test_a_file_that_was_only_touched_is_read_once_and_not_in_every_turn(
    thread: Thread, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = scan.now_ns  # every file was there long ago, so that the cache trusts what it knows
    monkeypatch.setattr(scan, "now_ns", lambda: real() + 3600 * 10**9)
    first = thread.snapshots.take_if_changed(root)
    os.utime(root / "f")
    assert thread.snapshots.survey(root).read == 1
    assert thread.snapshots.take_if_changed(root).id == first.id
    assert thread.snapshots.survey(root).read == 0


# --- however a turn ends ---


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_turn_that_fails_has_its_edits_known_as_well(
    thread: Thread, root: Path, error: type[BaseException]
) -> None:
    with pytest.raises(error), thread.turn(owner="agent", files=root) as turn:
        turn.append("user_message", "x", id="m1")
        (root / "f").write_text("half")
        raise error
    assert markers(thread)[-1][0] == ("failed" if error is ValueError else "aborted")
    thread.rewind("m1")
    assert (root / "f").read_text() == "v1"


def test_a_turn_whose_last_snapshot_fails_ends_and_gives_its_lease_back(
    thread: Thread, root: Path
) -> None:
    failing = pytest.raises(Unavailable, match=r"ended as completed .* no snapshot")
    with failing as caught, thread.turn(owner="agent", files=root) as turn:
        turn.append("user_message", "x", id="m1")
        root.rename(root.parent / "gone")
    assert caught.value.committed is True
    assert thread.leases.active() is None
    assert markers(thread)[-1] == ("completed", None)
    assert thread.unfinished_turn() is None


def test_the_callers_own_error_goes_on_its_way_when_the_last_snapshot_fails(
    thread: Thread, root: Path
) -> None:
    failing = pytest.raises(ValueError, match="mine")
    with failing as caught, thread.turn(owner="agent", files=root):
        root.rename(root.parent / "gone")
        raise ValueError("mine")
    assert "there is no snapshot of" in caught.value.__notes__[0]
    assert (thread.leases.active(), markers(thread)[-1]) == (None, ("failed", None))


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_whatever_stops_the_last_snapshot_the_lease_goes_back(
    thread: Thread, root: Path, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise error("stopped")

    expected = Unavailable if error is OSError else error
    with pytest.raises(expected), thread.turn(owner="agent", files=root):
        monkeypatch.setattr("clew.snapshots.take.Taking.take_if_changed", stop)
    assert (thread.leases.active(), markers(thread)[-1]) == (None, ("completed", None))


def test_a_turn_whose_first_snapshot_fails_does_not_begin(thread: Thread, root: Path) -> None:
    failing = pytest.raises(InvalidInput, match="not a folder")
    with failing, thread.turn(owner="agent", files=root / "nowhere"):
        raise AssertionError("it must not begin")
    assert (thread.leases.active(), thread.leaf) == (None, None)


def test_a_turn_that_was_killed_leaves_edits_that_are_asked_about(
    tmp_path: Path, root: Path
) -> None:
    program = """
        import os, signal, sys, clew
        thread = clew.open(sys.argv[1]).create("t")
        with thread.turn(owner="agent", ttl_seconds=3.0, files=sys.argv[2]) as turn:
            turn.append("user_message", "x", id="m1")
            open(sys.argv[2] + "/f", "w").write("half")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    place = str(tmp_path / "threads.db")
    command = [sys.executable, "-c", textwrap.dedent(program), place, str(root)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    with clew.open(place) as store:
        thread = store.get("t")
        assert thread.unfinished_turn() is not None
        with thread.turn(owner="next", wait_seconds=60.0) as turn:
            with pytest.raises(Conflict, match="'f'"):
                turn.rewind("m1")
            turn.rewind("m1", force=True)
        assert (root / "f").read_text() == "v1"
        thread.undo_rewind()
        assert (root / "f").read_text() == "half"


# --- inside of one's own turn ---


def test_ones_own_turn_does_not_stand_in_the_way(thread: Thread, root: Path) -> None:
    worked(thread, root, "m1", "v2")
    with thread.turn(owner="me", files=root) as turn:
        with pytest.raises(LeaseHeld, match="if that is a turn of your own, write through it"):
            thread.snapshots.take(root)
        asked = turn.append_message({"role": "user", "content": "two"}, id="m2")
        taken = turn.snapshot(label="mine")
        assert (taken.at, taken.label, taken.root) == (asked.id, "mine", os.path.realpath(root))
        turn.append_message({"role": "assistant", "content": "done"})
        (root / "f").write_text("v3")
        (root / "new").write_text("new")
        planned = turn.rewind("m2", dry_run=True)
        assert planned.files is not None
        assert (planned.files.plan.foreign, planned.files.plan.kept) == ((), ())
        turn.rewind("m2")
        assert (sorted(os.listdir(root)), (root / "f").read_text()) == (["f"], "v2")
        turn.undo_rewind()
        assert (root / "f").read_text() == "v3"
        turn.redo_rewind()
        assert (root / "f").read_text() == "v2"
        turn.restore("m1", paths=["f"])
        assert (root / "f").read_text() == "v1"
        assert turn.compact(lambda messages: "short", keep_turns=0) is not None
        assert turn.context("plain").messages
        assert turn.uncompact() is not None
    assert thread.leases.active() is None
    assert markers(thread)[-1][0] == "completed"


def test_a_turn_that_went_back_behind_its_beginning_begins_there_anew(
    thread: Thread, root: Path
) -> None:
    worked(thread, root, "m1", "v2")
    with thread.turn(owner="me", files=root) as turn:
        done = turn.rewind("m1")
        begun = thread.unfinished_turn()
        assert begun is not None
        assert (begun.turn, done.leaf != thread.leaf) == (turn.id, True)
        turn.append("user_message", "another way", id="m2")
        (root / "f").write_text("without an entry")
    assert thread.unfinished_turn() is None
    thread.rewind("m2")
    assert (root / "f").read_text() == "v1"


def test_a_turn_without_files_takes_a_snapshot_of_a_folder_that_is_named(
    thread: Thread, root: Path
) -> None:
    with thread.turn(owner="me") as turn:
        assert turn.snapshot(root).files == 1
        with pytest.raises(InvalidInput, match="without files"):
            turn.snapshot()
    assert markers(thread) == [("started", None), ("completed", None)]


def test_a_turn_keeps_to_its_folder_when_the_program_goes_elsewhere(
    thread: Thread, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with thread.turn(owner="me", files="project") as turn:
        turn.append("user_message", "x", id="m1")
        (root / "f").write_text("v2")
        monkeypatch.chdir("/")
    assert {one.root for one in thread.snapshots.list()} == {os.path.realpath(root)}


def test_turns_in_two_folders_do_not_speak_for_each_other(
    thread: Thread, root: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "f").write_text("o1")
    worked(thread, root, "m1", "v2")
    worked(thread, other, "m2", "o2")
    worked(thread, root, "m3", "v3")
    with pytest.raises(NotFound):
        thread.rewind("m1", root=other)
    thread.rewind("m2", conversation=False)
    assert ((other / "f").read_text(), (root / "f").read_text()) == ("o1", "v3")
    thread.rewind("m3", conversation=False)
    assert ((other / "f").read_text(), (root / "f").read_text()) == ("o1", "v2")


# --- asynchronously ---


def test_an_asynchronous_turn_does_all_of_it(
    thread: Thread, root: Path, run: Callable[..., Any]
) -> None:
    async def story() -> None:
        one = await AsyncStore(thread.store).get("t")
        async with one.turn(owner="me", files=root) as turn:
            assert turn.files == os.path.realpath(root)
            await turn.append_message({"role": "user", "content": "one"}, id="m1")
            await turn.append_message({"role": "assistant", "content": "done"})
            (root / "f").write_text("v2")
            await turn.snapshot(label="mine")

            async def summarize(messages: list[Any]) -> str:
                return "short"

            assert await turn.compact(summarize, keep_turns=0) is not None
            assert (await turn.context("plain")).messages
            assert await turn.uncompact() is not None
            await turn.rewind("m1")
            assert (root / "f").read_text() == "v1"
            await turn.undo_rewind()
            await turn.redo_rewind()
            assert (root / "f").read_text() == "v1"
            await turn.restore((await one.snapshots.list())[-1], dry_run=True)
        await one.undo_rewind()
        assert (root / "f").read_text() == "v2"
        await one.redo_rewind()
        assert (root / "f").read_text() == "v1"

    run(story)


def test_a_cancelled_turn_has_its_edits_known_and_leaves_no_lease(
    thread: Thread, root: Path, run: Callable[..., Any]
) -> None:
    async def story() -> None:
        one = await AsyncStore(thread.store).get("t")
        with anyio.CancelScope() as scope:
            async with one.turn(owner="me", files=root) as turn:
                await turn.append("user_message", "one", id="m1")
                (root / "f").write_text("v2")
                scope.cancel()
                await anyio.sleep(0)
        assert await one.leases.active() is None
        await one.rewind("m1")

    run(story)
    assert (root / "f").read_text() == "v1"


def test_a_cancelled_turn_whose_last_snapshot_fails_leaves_no_lease(
    thread: Thread, root: Path, run: Callable[..., Any]
) -> None:
    async def story() -> None:
        one = await AsyncStore(thread.store).get("t")
        with anyio.CancelScope() as scope:
            async with one.turn(owner="me", files=root):
                root.rename(root.parent / "gone")
                scope.cancel()
                await anyio.sleep(0)
        assert await one.leases.active() is None
        root.mkdir()
        with pytest.raises(Unavailable, match="ended as completed"):
            async with one.turn(owner="me", files=root):
                root.rmdir()
        assert await one.leases.active() is None

    run(story)
    assert [status for status, _ in markers(thread)][-1] == "completed"
