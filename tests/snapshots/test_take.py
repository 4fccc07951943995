"""Snapshots that would not hold just what was there, or would not say what they lack."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from amounts import amount
from hypothesis import given, settings
from hypothesis import strategies as st
from snapshots.trees import SPECS, Spec, add, look, whole, write

from clew.core.errors import Corrupt, InvalidInput, NotFound
from clew.engines.memory import MemoryEngine
from clew.snapshots import scan
from clew.snapshots.ignore import Rules
from clew.snapshots.model import Snapshot
from clew.snapshots.scan import settled
from clew.snapshots.stat_cache import Cache
from clew.snapshots.survey import CachedTree
from clew.store import Store
from clew.thread import Thread

HOUR_NS = 3_600_000_000_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "tree", {"a.txt": b"one", "d/b.txt": b"two"})


@pytest.fixture
def thread(store: Store) -> Thread:
    made = store.create("t")
    made.append("user_message", {"role": "user", "content": "Go."}, id="u1")
    return made


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file was there long ago, so that the cache trusts what it knows."""
    real = scan.now_ns
    monkeypatch.setattr(scan, "now_ns", lambda: real() + HOUR_NS)


def held(thread: Thread, snapshot: Snapshot) -> Spec:
    """What a snapshot holds, in the words of a spec."""
    trees, found = thread.snapshots.trees, {}
    for path, node in trees.walk(snapshot.tree):
        if node.is_folder:
            found[path] = None
        elif node.kind == "link":
            found[path] = ("link", node.ref)
        else:
            data = trees.read(node)
            found[path] = ("x", data) if node.kind == "executable" else data
    return found


def paths(thread: Thread, snapshot: Snapshot) -> list[str]:
    return [path for path, _ in thread.snapshots.files(snapshot)]


def reasons(snapshot: Snapshot) -> dict[str, str]:
    return {item.path: item.reason for item in snapshot.left_out}


# --- just what was there ---


@given(SPECS, SPECS)
@settings(max_examples=amount(40, 120))
def test_any_tree_is_held_exactly_and_only_once(before: Spec, after: Spec) -> None:
    with tempfile.TemporaryDirectory() as folder, Store(MemoryEngine()) as store:
        root, thread = write(Path(folder, "tree"), before), store.create("t")
        first = thread.snapshots.take(root)
        assert held(thread, first) == whole(before)
        again = thread.snapshots.take(root)
        assert (again.tree, again.new_bytes) == (first.tree, 0)
        write(root, after)
        second = thread.snapshots.take(root)
        assert held(thread, second) == whole(after)
        assert second.tree == look(root).tree, "with the cache as without it"
        files = [value for value in after.values() if value is not None]
        assert second.files == len(files)
        assert second.size_bytes == sum(
            len(value if isinstance(value, bytes) else value[1])
            for value in files
            if isinstance(value, bytes) or value[0] == "x"
        )


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 40)), max_size=12))
@settings(max_examples=amount(27, 80))
def test_a_cap_leaves_out_the_same_with_the_cache_as_without_it(
    changes: list[tuple[str, int]],
) -> None:
    rules = Rules(max_bytes=60, max_file_bytes=30)
    with tempfile.TemporaryDirectory() as folder, Store(MemoryEngine()) as store:
        root, thread = write(Path(folder, "tree"), {"dir": None}), store.create("t")
        for name, size in changes:
            (root / ("dir" if name in "abc" else ".") / name).write_bytes(name.encode() * size)
            taken = thread.snapshots.take(root, rules=rules)
            fresh = look(root, rules)
            assert (taken.tree, set(taken.left_out)) == (fresh.tree, set(fresh.left_out))
            assert taken.size_bytes <= 60


def test_what_has_not_changed_is_stored_once_in_the_whole_store(
    store: Store, thread: Thread, root: Path
) -> None:
    first = thread.snapshots.take(root)
    assert first.new_bytes >= 6
    again = thread.snapshots.take(root)
    assert (again.tree, again.new_bytes) == (first.tree, 0)
    other = store.create("other")
    assert other.snapshots.take(root).new_bytes == 0


def test_a_second_thread_reads_nothing_that_the_first_one_has_read(
    later: None, store: Store, thread: Thread, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = thread.snapshots.take(root)

    def read(*_: object) -> bytes:
        raise AssertionError("it was read again")

    monkeypatch.setattr(scan, "read_all", read)
    assert store.create("other").snapshots.take(root).tree == first.tree


def test_a_snapshot_belongs_to_the_latest_user_message_or_to_the_one_that_is_named(
    thread: Thread, root: Path
) -> None:
    assert thread.snapshots.take(root).at == "u1"
    thread.append("assistant_message", {"role": "assistant", "content": "Done."})
    thread.append("user_message", {"role": "user", "content": "More."}, id="u2")
    assert thread.snapshots.take(root).at == "u2"
    assert thread.snapshots.take(root, at="u1", label="again").at == "u1"
    latest = thread.snapshots.latest("u1")
    assert latest is not None
    assert latest.label == "again"
    with pytest.raises(NotFound):
        thread.snapshots.take(root, at="nobody")


def test_empty_folders_and_the_executable_bit_are_kept(thread: Thread, root: Path) -> None:
    add(root, {"empty/inner": None, "run.sh": ("x", b"#!/bin/sh\n")})
    (root / "run.sh").chmod(0o4755)  # setuid is not
    found = held(thread, thread.snapshots.take(root))
    assert found["empty/inner"] is None
    assert found["run.sh"] == ("x", b"#!/bin/sh\n")


def test_a_link_is_a_link_wherever_it_leads(thread: Thread, root: Path, tmp_path: Path) -> None:
    outside = write(tmp_path / "outside", {"secret": b"not yours"})
    (root / "file").symlink_to(outside / "secret")
    (root / "folder").symlink_to(outside)
    (root / "loop").symlink_to(".")
    (root / "nowhere").symlink_to("gone")
    found = held(thread, thread.snapshots.take(root))
    assert found["file"] == ("link", str(outside / "secret"))
    assert found["folder"] == ("link", str(outside))
    assert (found["loop"], found["nowhere"]) == (("link", "."), ("link", "gone"))
    assert not any("secret" in path and path != "file" for path in found)


def test_names_that_are_not_utf8_come_back_as_they_were(thread: Thread, root: Path) -> None:
    name = os.fsdecode(b"caf\xe9 \xff.txt")
    (root / name).write_bytes(b"latin")
    (root / "l").symlink_to(name)
    for _ in range(2):
        taken = thread.snapshots.take(root)
        assert thread.snapshots.read(taken, name) == b"latin"
        assert held(thread, taken)["l"] == ("link", name)


def test_every_byte_comes_back(thread: Thread, root: Path) -> None:
    data = bytes(range(256)) * 300
    (root / "binary").write_bytes(data)
    taken = thread.snapshots.take(root)
    assert thread.snapshots.read(taken, "binary") == data


def test_the_store_does_not_become_part_of_its_own_snapshots(store: Store) -> None:
    place = Path(store.properties.place)
    if store.properties.engine == "memory":
        return
    root, thread = place.parent, store.create("t")
    (root / "a.txt").write_bytes(b"one")
    for _ in range(2):
        taken = thread.snapshots.take(root)
        assert paths(thread, taken) == ["a.txt"]
    if store.properties.engine == "files":
        for inside in (place, place / "threads"):
            with pytest.raises(InvalidInput, match="the store itself"):
                thread.snapshots.take(inside)


def test_what_is_no_folder_is_refused(thread: Thread, root: Path) -> None:
    for place in (root / "a.txt", root / "gone"):
        with pytest.raises(InvalidInput):
            thread.snapshots.take(place)
    assert thread.snapshots.list() == []


# --- what does not belong into it ---

IGNORED: dict[str, tuple[Spec, set[str]]] = {
    "git at every depth": (
        {".git/config": b"", "sub/.git/config": b"", "sub/.GIT/x": b"", "kept": b""},
        {"kept"},
    ),
    "a git file of a worktree": ({"sub/.git": b"gitdir: x", "sub/kept": b""}, {"sub/kept"}),
    "folders that tools fill": (
        {"node_modules/x": b"", "a/__pycache__/x": b"", ".venv/x": b"", "a/kept": b""},
        {"a/kept"},
    ),
    "a file with the name of such a folder": ({"node_modules": b"text"}, {"node_modules"}),
    "gitignore": (
        {".gitignore": b"*.log\n/build/\n", "x.log": b"", "build/x": b"", "sub/build/x": b""},
        {".gitignore", "sub/build/x"},
    ),
    "negation": (
        {".gitignore": b"*.log\n!keep.log\n", "x.log": b"", "keep.log": b"", "s/keep.log": b""},
        {".gitignore", "keep.log", "s/keep.log"},
    ),
    "nested": (
        {
            ".gitignore": b"*.log\n",
            "sub/.gitignore": b"!*.log\n/tmp\n",
            "x.log": b"",
            "sub/x.log": b"",
            "sub/tmp/x": b"",
            "sub/deep/tmp": b"",
        },
        {".gitignore", "sub/.gitignore", "sub/x.log", "sub/deep/tmp"},
    ),
    "nothing below what is out can come back": (
        {".gitignore": b"out/\n", "out/.gitignore": b"!x\n", "out/x": b""},
        {".gitignore"},
    ),
    "clewignore has the last word": (
        {
            ".gitignore": b"*.dat\n",
            ".clewignore": b"!x.dat\nnotes/\n",
            "x.dat": b"",
            "notes/n": b"",
        },
        {".gitignore", ".clewignore", "x.dat"},
    ),
    "a pattern for folders spares files": (
        {".gitignore": b"tmp/\n", "a/tmp": b"", "tmp/x": b""},
        {".gitignore", "a/tmp"},
    ),
    "secrets": (
        {
            ".env": b"k",
            ".env.local": b"k",
            "sub/.env-prod": b"k",
            ".envrc": b"",
            ".environment": b"",
        },
        {".envrc", ".environment"},
    ),
    "comments, blank lines and carriage returns": (
        {".gitignore": b"# no\r\n\r\n*.log\r\n", "x.log": b"", "# no": b""},
        {".gitignore", "# no"},
    ),
    "an ignore file that is not UTF-8": (
        {".gitignore": b"\xff\xfe\n*.log\n", "x.log": b"", "kept": b""},
        {".gitignore", "kept"},
    ),
}


@pytest.mark.parametrize("case", IGNORED)
def test_what_is_ignored_stays_out(case: str, thread: Thread, tmp_path: Path) -> None:
    spec, kept = IGNORED[case]
    root = write(tmp_path / "tree", spec)
    for _ in range(2):  # without the cache, and with it
        assert set(paths(thread, thread.snapshots.take(root))) == kept


def test_an_ignore_file_that_is_a_link_is_not_read(thread: Thread, tmp_path: Path) -> None:
    (tmp_path / "rules").write_bytes(b"*\n")
    root = write(tmp_path / "tree", {"kept": b"", ".gitignore": ("link", "../rules")})
    assert paths(thread, thread.snapshots.take(root)) == [".gitignore", "kept"]


def test_rules_can_be_changed_and_the_cache_does_not_answer_for_the_old_ones(
    later: None, thread: Thread, root: Path
) -> None:
    add(root, {".env": b"k", "venv/x": b"", "a.log": b"", ".gitignore": b"*.log\n"})

    def taken(rules: Rules) -> set[str]:
        return set(paths(thread, thread.snapshots.take(root, rules=rules)))

    usual = {"a.txt", "d/b.txt", ".gitignore"}
    assert taken(Rules()) == usual
    assert taken(Rules(secrets=True)) == usual | {".env"}
    assert taken(Rules(folders=frozenset())) == usual | {"venv/x"}
    assert taken(Rules(gitignore=False)) == usual | {"a.log"}
    assert taken(Rules(patterns=("*.txt", "!/a.txt"))) == usual - {"d/b.txt"}
    assert taken(Rules()) == usual


def test_a_changed_ignore_file_counts_at_once(later: None, thread: Thread, root: Path) -> None:
    add(root, {".gitignore": b"*.log\n", "d/x.log": b""})
    assert "d/x.log" not in paths(thread, thread.snapshots.take(root))
    (root / ".gitignore").write_bytes(b"*.txt\n")
    assert paths(thread, thread.snapshots.take(root)) == [".gitignore", "d/x.log"]


@pytest.mark.parametrize("line", ["!", "\\", "a\\", "[z-a]", "[[:x", "*a" * 40 + "b", "**/" * 40])
def test_a_line_that_cannot_be_understood_ignores_nothing_and_stops_nothing(
    line: str, thread: Thread, tmp_path: Path
) -> None:
    root = write(tmp_path / "tree", {".gitignore": f"{line}\n*.log\n".encode(), "x.log": b""})
    (root / ("a" * 200)).write_bytes(b"")
    assert paths(thread, thread.snapshots.take(root)) == [".gitignore", "a" * 200]


def test_a_pattern_of_the_caller_that_cannot_be_understood_is_refused(
    thread: Thread, root: Path
) -> None:
    with pytest.raises(InvalidInput, match="patterns"):
        thread.snapshots.take(root, rules=Rules(patterns=("!",)))


def test_later_snapshots_and_looks_go_by_the_rules_of_the_last_one(
    store: Store, thread: Thread, root: Path
) -> None:
    (root / ".env").write_bytes(b"one")
    wide = thread.snapshots.take(root, rules=Rules(secrets=True, patterns=("*.tmp",)))
    assert thread.snapshots.get(wide.id).rules == Rules(secrets=True, patterns=("*.tmp",))
    add(root, {"x.tmp": b""})
    (root / ".env").write_bytes(b"two")
    assert [one.path for one in thread.snapshots.diff(wide)] == [".env"]
    for other in (thread, thread.fork()):
        again = other.snapshots.take(root)
        assert other.snapshots.read(again, ".env") == b"two"
        assert "x.tmp" not in paths(other, again)
    usual = thread.snapshots.take(root, rules=Rules())
    assert (usual.rules, ".env" in paths(thread, usual)) == (None, False)
    assert thread.snapshots.rules() == Rules()


def test_a_rewind_brings_back_what_only_special_rules_have_taken(store: Store, root: Path) -> None:
    thread = store.create("t")
    message = thread.append("user_message", {"role": "user", "content": "Go."})
    (root / ".env").write_bytes(b"one")
    thread.snapshots.take(root, rules=Rules(secrets=True))
    thread.append("assistant_message", {"role": "assistant", "content": "Done."})
    (root / ".env").write_bytes(b"two")
    thread.snapshots.take(root)
    thread.rewind(message.id)
    assert (root / ".env").read_bytes() == b"one"
    thread.undo_rewind()
    assert (root / ".env").read_bytes() == b"two"


# --- what is left out, and said ---


def test_what_is_too_large_is_named_with_its_size(thread: Thread, root: Path) -> None:
    add(root, {"big": b"x" * 100, "d/big": b"y" * 100})
    taken = thread.snapshots.take(root, rules=Rules(max_file_bytes=99))
    assert paths(thread, taken) == ["a.txt", "d/b.txt"]
    assert {(i.path, i.reason, i.size) for i in taken.left_out} == {
        ("big", "too_large", 100),
        ("d/big", "too_large", 100),
    }
    assert thread.snapshots.get(taken.id).left_out == taken.left_out
    assert thread.snapshots.list()[0].left_out_count == 2


def test_a_file_that_has_shrunk_is_not_left_out_for_ever(
    later: None, thread: Thread, root: Path
) -> None:
    rules = Rules(max_file_bytes=50)
    (root / "big").write_bytes(b"x" * 100)
    assert "big" in reasons(thread.snapshots.take(root, rules=rules))
    os.truncate(root / "big", 10)  # the folder's own times stay as they are
    taken = thread.snapshots.take(root, rules=rules)
    assert (reasons(taken), thread.snapshots.read(taken, "big")) == ({}, b"x" * 10)


def test_a_snapshot_has_a_size_of_its_own_that_it_does_not_exceed(
    thread: Thread, tmp_path: Path
) -> None:
    root = write(tmp_path / "tree", {f"f{n}": b"x" * 10 for n in range(5)})
    taken = thread.snapshots.take(root, rules=Rules(max_bytes=25))
    assert (taken.size_bytes, taken.files) == (20, 2)
    assert reasons(taken) == {"f2": "over_quota", "f3": "over_quota", "f4": "over_quota"}


def test_names_of_many_are_bounded_and_counted(
    thread: Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clew.snapshots.catalogue.LEFT_OUT_MAX", 3)
    root = write(tmp_path / "tree", {f"f{n}": b"x" * 10 for n in range(5)})
    taken = thread.snapshots.take(root, rules=Rules(max_file_bytes=1))
    found = thread.snapshots.get(taken.id)
    assert (len(found.left_out), found.left_out_count) == (3, 5)


def test_pipes_and_sockets_are_neither_read_nor_waited_for(thread: Thread, root: Path) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        here = os.getcwd()
        os.chdir(root)  # addresses of sockets are short
        try:
            listening.bind("socket")
        finally:
            os.chdir(here)
        taken = thread.snapshots.take(root)
    assert reasons(taken) == {"pipe": "special", "socket": "special"}
    assert paths(thread, taken) == ["a.txt", "d/b.txt"]


def test_an_unreadable_file_does_not_stop_the_others(
    later: None, thread: Thread, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", _refusing(os.open, "b.txt"))
        taken = thread.snapshots.take(root)
    assert (reasons(taken), paths(thread, taken)) == ({"d/b.txt": "unreadable"}, ["a.txt"])
    assert reasons(thread.snapshots.take(root)) == {}, "it is looked at again"


def test_an_unreadable_folder_does_not_stop_the_others(
    later: None, thread: Thread, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", _refusing(os.open, "d"))
        taken = thread.snapshots.take(root)
    assert (reasons(taken), paths(thread, taken)) == ({"d": "unreadable"}, ["a.txt"])
    assert paths(thread, thread.snapshots.take(root)) == ["a.txt", "d/b.txt"]


def _refusing(real: Callable[..., int], name: str) -> Callable[..., int]:
    """Permissions do not keep a superuser out, whom tests may run as."""

    def opened(path: object, flags: int, *args: int, dir_fd: int | None = None) -> int:
        if path == name:
            raise PermissionError(13, "not yours")
        return real(path, flags, *args, dir_fd=dir_fd)

    return opened


def test_names_that_would_collide_elsewhere_are_left_out(thread: Thread, tmp_path: Path) -> None:
    spec: Spec = {"README": b"1", "readme": b"2", "caf\u00e9": b"3", "cafe\u0301": b"4"}
    taken = thread.snapshots.take(write(tmp_path / "tree", spec))
    assert sorted(reasons(taken).values()) == ["collides", "collides"]
    assert taken.files == 2


# --- files that change ---


def changing(real: Callable[..., bytes], change: Iterator[Callable[[], object]]) -> object:
    """Somebody who writes after each read, for as long as there is a change to be made."""

    def read(descriptor: int, size: int) -> bytes:
        data = real(descriptor, size)
        next(change, lambda: None)()
        return data

    return read


def test_a_file_that_changes_while_it_is_read_is_read_again(
    thread: Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write(tmp_path / "tree", {"a": b"half"})
    once = iter([lambda: (root / "a").write_bytes(b"whole")])
    monkeypatch.setattr(scan, "read_all", changing(scan.read_all, once))
    taken = thread.snapshots.take(root)
    assert (thread.snapshots.read(taken, "a"), reasons(taken)) == (b"whole", {})


def test_a_file_that_never_rests_is_left_out_and_tried_again(
    thread: Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write(tmp_path / "tree", {"a": b"", "b": b"quiet"})
    sizes = iter(range(1, 100))
    for_ever = iter(lambda: lambda: (root / "a").write_bytes(b"x" * next(sizes)), None)
    real = scan.read_all
    with monkeypatch.context() as patch:
        patch.setattr(scan, "read_all", changing(real, for_ever))
        taken = thread.snapshots.take(root)
    assert reasons(taken)["a"] == "changing"
    assert reasons(thread.snapshots.take(root)) == {}


def test_a_file_that_grows_over_the_limit_while_it_is_read_is_left_out(
    thread: Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write(tmp_path / "tree", {"a": b"small"})
    once = iter([lambda: (root / "a").write_bytes(b"x" * 100)])
    monkeypatch.setattr(scan, "read_all", changing(scan.read_all, once))
    taken = thread.snapshots.take(root, rules=Rules(max_file_bytes=50))
    assert reasons(taken) == {"a": "too_large"}


def test_a_file_that_becomes_a_link_meanwhile_is_not_followed(
    thread: Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_bytes(b"not yours")
    root = write(tmp_path / "tree", {"a": b"mine"})
    real = scan.open_below

    def swap(top: int, path: str) -> int:
        (root / "a").unlink()
        (root / "a").symlink_to("../secret")
        return real(top, path)

    monkeypatch.setattr(scan, "open_below", swap)
    taken = thread.snapshots.take(root)
    assert (taken.files, reasons(taken)) == (0, {"a": "unreadable"})


def test_a_folder_that_becomes_a_link_meanwhile_is_not_followed(
    thread: Thread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "outside", {"b": b"not yours"})
    root = write(tmp_path / "tree", {"d/b": b"mine"})
    real = scan.open_below

    def swap(top: int, path: str) -> int:
        (root / "d").rename(root / "e")
        (root / "d").symlink_to("../outside")
        return real(top, path)

    monkeypatch.setattr(scan, "open_below", swap)
    taken = thread.snapshots.take(root)
    assert (taken.files, reasons(taken)) == (0, {"d/b": "unreadable"})


def test_two_changes_within_a_tick_are_both_noticed(thread: Thread, root: Path) -> None:
    for n in range(30):
        look_back = os.stat(root / "a.txt")
        (root / "a.txt").write_bytes(b"%03d" % n)
        os.utime(root / "a.txt", ns=(look_back.st_atime_ns, look_back.st_mtime_ns))
        taken = thread.snapshots.take(root)
        assert thread.snapshots.read(taken, "a.txt") == b"%03d" % n


def test_a_change_that_hides_its_time_is_noticed(later: None, thread: Thread, root: Path) -> None:
    """Same size, same time of change as far as it can be set; the system's own cannot."""
    old = os.stat(root / "a.txt")
    os.utime(root / "a.txt", ns=(old.st_atime_ns, 1_600_000_000_123_456_789))
    thread.snapshots.take(root)
    (root / "a.txt").write_bytes(b"two")
    os.utime(root / "a.txt", ns=(old.st_atime_ns, 1_600_000_000_123_456_789))
    taken = thread.snapshots.take(root)
    assert thread.snapshots.read(taken, "a.txt") == b"two"


def test_what_is_too_fresh_is_not_trusted() -> None:
    now = 1_700_000_000_500_000_000

    def trusted(changed_ns: int) -> bool:
        return settled((1, changed_ns, changed_ns, 1, 0o100644), now) is not None

    assert trusted(now - 100_000_001)
    assert not trusted(now - 1_000_000)
    assert not trusted(now + 5_000_000_000), "a clock that was set back"
    assert not trusted(1_700_000_000_000_000_000 - 1_000_000_000), "a disk of whole seconds"
    assert trusted(1_700_000_000_000_000_000 - 2_000_000_000)


# --- the cache is only a hint ---


@pytest.fixture(autouse=True)
def own_caches(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("caches")))


def cache_files(store: Store) -> list[Path]:
    folder = Path(os.environ["XDG_CACHE_HOME"], "clew", "snapshots")
    return list(folder.iterdir()) if folder.is_dir() else []


def afresh(store: Store) -> None:
    """As another process would begin: with what is on the disk."""
    store.snapshot_caches.clear()


@pytest.mark.parametrize("damage", ["gone", "empty", "garbage", "another root", "older"])
def test_a_bad_cache_costs_time_and_nothing_else(
    damage: str, later: None, store: Store, thread: Thread, root: Path
) -> None:
    first = thread.snapshots.take(root)
    for file in cache_files(store):
        if damage == "gone":
            file.unlink()
        elif damage == "another root":
            other = Cache(file)
            other.save(CachedTree(root="/elsewhere", base=("t", first.id)))
        elif damage == "older":
            Cache(file).save(CachedTree(version=0, root=str(root), base=("t", first.id)))
        else:
            file.write_bytes({"empty": b"", "garbage": b"\xc1" * 100}[damage])
    afresh(store)
    again = thread.snapshots.take(root)
    assert (again.tree, again.new_bytes) == (first.tree, 0)


def test_the_cache_survives_the_process_and_is_nobody_elses_to_read(
    later: None, store: Store, thread: Thread, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store.properties.engine == "memory":
        return
    first = thread.snapshots.take(root)
    (file,) = cache_files(store)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    beside = Path(store.properties.place).parent
    assert not list(beside.rglob("*.cache")), "with a store there may come any cache"
    afresh(store)
    monkeypatch.setattr(scan, "read_all", None)
    assert thread.snapshots.take(root).tree == first.tree


def test_what_the_cache_promises_but_a_sweep_took_is_stored_again(
    later: None, store: Store, thread: Thread, root: Path
) -> None:
    first = thread.snapshots.take(root)
    thread.snapshots.drop(first.id)
    assert store.sweep(grace_seconds=0).blobs > 0
    again = thread.snapshots.take(root)
    assert (again.tree, again.new_bytes > 0) == (first.tree, True)
    assert held(thread, again) == {"a.txt": b"one", "d": None, "d/b.txt": b"two"}


def test_a_purged_thread_takes_nothing_from_the_snapshots_of_others(
    later: None, store: Store, thread: Thread, root: Path
) -> None:
    thread.snapshots.take(root)
    other = store.create("other")
    kept = other.snapshots.take(root)
    store.purge("t")
    store.sweep(grace_seconds=0)
    assert held(other, kept)["a.txt"] == b"one"
    (root / "a.txt").write_bytes(b"new")
    again = other.snapshots.take(root)
    assert held(other, again) == {"a.txt": b"new", "d": None, "d/b.txt": b"two"}


# --- which snapshots there are ---


def test_a_fork_sees_what_lies_on_its_path_and_no_more(
    store: Store, thread: Thread, root: Path
) -> None:
    first = thread.snapshots.take(root)
    thread.append("user_message", {"role": "user", "content": "More."}, id="u2")
    second = thread.snapshots.take(root)
    fork = thread.fork(before="u2")
    assert [one.id for one in fork.snapshots.list()] == [first.id]
    assert [one.id for one in thread.fork().snapshots.list()] == [second.id, first.id]
    with pytest.raises(NotFound):
        fork.snapshots.get(second.id)
    with pytest.raises(InvalidInput, match="forked from"):
        fork.snapshots.drop(first.id)


def test_a_fork_of_a_fork_that_shares_less_sees_less(
    store: Store, thread: Thread, root: Path
) -> None:
    first = thread.snapshots.take(root)
    thread.append("user_message", {"role": "user", "content": "More."}, id="u2")
    second = thread.snapshots.take(root)
    fork = thread.fork(at=second.id)
    own = fork.snapshots.take(root)
    assert [one.id for one in fork.snapshots.list()] == [own.id, second.id, first.id]
    for less in (fork.fork(at=first.id), fork.fork(before="u2")):
        assert [one.id for one in less.snapshots.list()] == [first.id]
    store.purge("t")
    assert [one.id for one in fork.snapshots.list()] == [own.id, second.id, first.id]
    fork.snapshots.drop(own.id)
    deeper = fork.fork()
    assert [one.id for one in deeper.snapshots.list()] == [second.id, first.id]


def test_facts_and_entries_of_others_are_not_taken_for_snapshots(
    store: Store, thread: Thread, root: Path
) -> None:
    thread.append("snapshot", {"files": ["mine"]}, id="theirs")
    first = thread.snapshots.take(root)
    fork = thread.fork()
    store.purge("t")
    assert [one.id for one in fork.snapshots.list()] == [first.id]
    with pytest.raises(NotFound):
        fork.snapshots.get("theirs")
    for value in (1, {"tree": 3}, {}):
        fork.set_facts({"snapshot.x": value})
        with pytest.raises(Corrupt, match=r"fact snapshot\.x"):
            fork.snapshots.list()
        with pytest.raises(Corrupt):
            store.sweep(grace_seconds=0)


def test_a_pin_is_seen_by_all_who_look(thread: Thread, root: Path) -> None:
    taken = thread.snapshots.take(root)
    thread.snapshots.pin(taken.id)
    assert thread.snapshots.get(taken.id).pinned
    assert thread.snapshots.list()[0].pinned
    thread.snapshots.pin(taken.id, pinned=False)
    assert not thread.snapshots.get(taken.id).pinned
    with pytest.raises(NotFound):
        thread.snapshots.pin("nobody")
