"""Files that do not belong to the point: of a fork, a rewind or a restore."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clew.core.errors import Conflict, InvalidInput, NotFound
from clew.store import Store
from clew.thread import Thread


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "f").write_text("v1")
    return folder


@pytest.fixture
def thread(store: Store, root: Path) -> Thread:
    """Each message came with a snapshot of its own, and the work on it made the next version."""
    made = store.create("t")
    for n in (1, 2):
        (root / "f").write_text(f"v{n}")
        made.append("user_message", "do", id=f"m{n}")
        made.snapshots.take(root, label=f"s{n}")
        made.append("assistant_message", "done", id=f"a{n}")
    (root / "f").write_text("v3")
    return made


@pytest.fixture
def forked(tmp_path: Path, thread: Thread) -> Callable[..., str]:
    """What a fork with files of its own has in the file."""
    numbers = iter(range(100))

    def call(source: Thread = thread, **where: str) -> str:
        folder = tmp_path / f"fork-{next(numbers)}"
        source.fork(files_to=folder, **where)  # type: ignore[arg-type]
        return (folder / "f").read_text()

    return call


# --- forks ---


def test_a_fork_at_a_message_has_the_files_that_were_there_when_it_came(
    forked: Callable[..., str],
) -> None:
    assert [forked(at="m1"), forked(before="m1")] == ["v1", "v1"]
    assert [forked(at="m2"), forked(before="m2")] == ["v2", "v2"]


def test_a_fork_at_an_answer_has_the_work_of_that_answer(forked: Callable[..., str]) -> None:
    assert forked(at="a1") == "v2"


def test_a_fork_does_not_get_files_without_the_work_that_led_to_it(
    forked: Callable[..., str], thread: Thread, root: Path
) -> None:
    threads = [info.id for info in thread.store.threads()]
    with pytest.raises(NotFound, match=r"snapshot for entry 'a2' was not found; take one there"):
        forked()
    assert [info.id for info in thread.store.threads()] == threads
    thread.snapshots.take(root)
    assert forked() == "v3"


def test_a_fork_where_a_rewind_led_has_the_files_of_the_rewind(
    forked: Callable[..., str], thread: Thread
) -> None:
    thread.rewind("m2", force=True)
    assert (thread.leaf, forked()) == ("a1", "v2")
    thread.undo_rewind()
    thread.rewind("m2", at=True)
    assert (thread.leaf, forked()) == ("m2", "v2")


def test_a_fork_of_a_fork_goes_by_the_files_of_the_fork(
    forked: Callable[..., str], thread: Thread, tmp_path: Path
) -> None:
    first = thread.fork(at="m2", files_to=tmp_path / "own")
    (tmp_path / "own" / "f").write_text("mine")
    first.append("user_message", "mine", id="m3")
    first.snapshots.take(tmp_path / "own")
    assert forked(first) == "mine"
    assert forked(first, at="m2") == "v2"
    second = first.fork(at="m3", files_to=tmp_path / "second")
    assert forked(second) == "mine"
    assert forked(second, before="m1") == "v1"


def test_files_of_several_folders_are_told_apart(
    thread: Thread, root: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "f").write_text("other")
    thread.append("user_message", "both", id="m3")
    thread.snapshots.take(root)
    thread.snapshots.take(other)
    with pytest.raises(InvalidInput, match="several folders"):
        thread.fork(files_to=tmp_path / "fork")
    for folder, text in ((root, "v3"), (other, "other")):
        thread.fork(files_to=tmp_path / f"of {text}", root=folder)
        assert (tmp_path / f"of {text}" / "f").read_text() == text
    with pytest.raises(InvalidInput, match="files_to"):
        thread.fork(root=root)


def test_a_folder_that_has_no_files_there_does_not_get_those_of_another(
    thread: Thread, root: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "f").write_text("other")
    thread.append("user_message", "both", id="m3")
    thread.snapshots.take(other)
    thread.append("assistant_message", "done")
    with pytest.raises(NotFound):
        thread.rewind("m1", root=other)
    assert (other / "f").read_text() == "other"


def test_a_folder_that_was_moved_goes_back_to_what_it_was_before(
    thread: Thread, root: Path
) -> None:
    moved = root.rename(root.parent / "moved")
    thread.append("user_message", "it is elsewhere now", id="m3")
    thread.snapshots.take(moved)
    thread.rewind("m2", root=moved)
    assert (moved / "f").read_text() == "v2"
    assert not root.exists()


def test_a_snapshot_that_was_dropped_is_not_replaced_by_a_later_one(
    thread: Thread, root: Path
) -> None:
    thread.append("user_message", "more", id="m3")
    first = thread.snapshots.take(root)
    (root / "f").write_text("bad")
    thread.snapshots.take(root)
    thread.snapshots.drop(first.id)
    with pytest.raises(NotFound):
        thread.rewind("m3")


# --- rewinds ---


def test_following_the_advice_of_the_conflict_does_not_keep_the_bad_files(
    thread: Thread, root: Path
) -> None:
    thread.append("user_message", "more", id="m3")
    thread.snapshots.take(root)
    (root / "f").write_text("bad")
    with pytest.raises(Conflict, match="take a snapshot"):
        thread.rewind("m3")
    thread.snapshots.take(root)
    done = thread.rewind("m3")
    assert (root / "f").read_text() == "v3"
    assert done.files is not None
    assert not done.files.plan.is_empty
    thread.undo_rewind()
    assert (root / "f").read_text() == "bad"


def test_a_snapshot_from_after_the_work_is_not_how_it_was_before(store: Store, root: Path) -> None:
    thread = store.create("late")
    thread.append("user_message", "do", id="m1")
    thread.append("assistant_message", "done")
    (root / "f").write_text("bad")
    thread.snapshots.take(root)
    with pytest.raises(NotFound, match="snapshot for user message 'm1'"):
        thread.rewind("m1")
    assert thread.rewind("m1", files=False).leaf is None


def test_a_message_without_a_snapshot_goes_by_the_end_of_the_work_before_it(
    thread: Thread, root: Path
) -> None:
    thread.snapshots.take(root)  # at the end of the work on m2
    thread.append("user_message", "more", id="m3")
    thread.append("assistant_message", "done", id="a3")
    (root / "f").write_text("v4")
    thread.snapshots.take(root)
    thread.rewind("m3")
    assert (root / "f").read_text() == "v3"


def test_what_the_user_changed_before_a_message_belongs_to_it(thread: Thread, root: Path) -> None:
    thread.snapshots.take(root)
    (root / "f").write_text("by hand")
    thread.append("user_message", "more", id="m3")
    thread.snapshots.take(root)
    thread.append("assistant_message", "done")
    (root / "f").write_text("v4")
    thread.snapshots.take(root)
    thread.rewind("m3")
    assert (root / "f").read_text() == "by hand"


def test_a_snapshot_that_was_pinned_to_an_earlier_message_counts_for_it(
    store: Store, root: Path
) -> None:
    thread = store.create("named")
    thread.append("user_message", "do", id="m1")
    thread.append("assistant_message", "done")
    thread.append("user_message", "more", id="m2")
    thread.snapshots.take(root, at="m1")
    thread.append("assistant_message", "done")
    (root / "f").write_text("v2")
    thread.snapshots.take(root)
    thread.rewind("m1", conversation=False)
    assert (root / "f").read_text() == "v1"


# --- restores ---


def test_a_restore_to_an_entry_brings_the_files_that_belong_to_it(
    thread: Thread, root: Path
) -> None:
    thread.snapshots.take(root)
    for entry, text in (("m1", "v1"), ("a1", "v2"), ("m2", "v2"), ("a2", "v3")):
        thread.snapshots.restore(entry)
        assert (root / "f").read_text() == text
    with pytest.raises(NotFound, match="snapshot 'nowhere'"):
        thread.snapshots.restore("nowhere")


# --- folders without a name ---


def test_the_empty_name_is_never_the_current_folder(
    thread: Thread, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread.snapshots.take(root)
    monkeypatch.chdir(root)
    seq, text = thread.info.seq, (root / "f").read_text()
    snapshots = thread.snapshots
    for call in (
        lambda: snapshots.take(""),
        lambda: snapshots.take_if_changed(""),
        lambda: snapshots.survey(""),
        lambda: snapshots.restore("m1", ""),
        lambda: snapshots.recover(root=""),
        lambda: snapshots.history("f", root=""),
        lambda: snapshots.diff(snapshots.list()[0], root=""),
        lambda: thread.rewind("m1", root=""),
        lambda: thread.undo_rewind(root=""),
        lambda: thread.redo_rewind(root=""),
        lambda: thread.turn(owner="me", files=""),
        lambda: thread.fork(files_to=""),
        lambda: thread.fork(files_to="new", root=""),
    ):
        with pytest.raises(InvalidInput, match="no name of a folder"):
            call()
    assert (thread.info.seq, (root / "f").read_text()) == (seq, text)
    assert not (root / "new").exists()
