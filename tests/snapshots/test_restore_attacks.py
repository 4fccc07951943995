"""Trees and stores that somebody made to write, read or delete outside of the root."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from snapshots.trees import Spec, nodes, read, snapshot_of, stored, whole, write

import clew
from clew.core.codec import encode
from clew.core.errors import (
    ClewError,
    Conflict,
    Corrupt,
    InvalidInput,
    NotFound,
    Unavailable,
    Unsupported,
)
from clew.engines.memory import MemoryEngine
from clew.snapshots import tree as tree_module
from clew.snapshots.apply import prefix_of
from clew.snapshots.checkout import materialize
from clew.snapshots.dirfd import System
from clew.snapshots.ignore import TEMPORARY
from clew.snapshots.manifest import Node, pack
from clew.snapshots.plan import work
from clew.snapshots.rewind import restore, rewind
from clew.snapshots.survey import Survey
from clew.snapshots.tree import Trees
from clew.snapshots.undo import recover, undo_rewind
from clew.store import Store
from clew.thread import Thread

OUTSIDE: Spec = {"secret": b"not yours", "d/deep": b"nor this"}


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """What must not be touched, whatever happens."""
    folder = write(tmp_path / "outside", OUTSIDE)
    before = {path: path.stat() for path in folder.rglob("*")}
    yield folder
    assert read(folder) == whole(OUTSIDE)
    for path, look in before.items():
        assert path.stat().st_mode == look.st_mode


@pytest.fixture
def store() -> Iterator[Store]:
    """What is attacked here is above the engines, so one will do."""
    opened = Store(MemoryEngine())
    yield opened
    opened.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "tree", {"f": b"old", "d/f": b"old", "e/f": b"old"})


@pytest.fixture
def thread(store: Store, root: Path) -> Thread:
    """With the message came what the root has; since then everything was changed."""
    made = store.create("t")
    made.append("user_message", "x", id="m")
    made.snapshots.take(root)
    write(root, {"f": b"new", "d/f": b"new", "e/f": b"new"})
    made.append("assistant_message", "y", id="a")
    made.snapshots.take(root)
    return made


def planted(thread: Thread, root: Path, tree: str) -> str:
    """A snapshot of somebody else's making: its id."""
    real = thread.snapshots.take(root)
    body = thread.get(real.id).body | {"tree": tree}
    fact = {key: value for key, value in body.items() if key != "left_out"}
    entry = thread.append("snapshot", body)
    thread.set_facts({f"snapshot.{entry.id}": fact | {"time_us": 1, "pinned": False}})
    return entry.id


def manifest(thread: Thread, *rows: list[object]) -> str:
    """A manifest that our own code would not write."""
    data = encode({"format": "clew.tree", "version": 1, "nodes": list(rows)})
    return thread.store.engine.put_blobs([data])[0]


# --- names ---

BAD_NAMES = [
    "..",
    ".",
    "",
    "../outside/secret",
    "/etc/passwd",
    "a/b",
    "a\0b",
    ".git",
    ".GIT",
    ".git ",
    "x" * 256,
    "\ud800",
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=repr)
def test_a_name_that_leads_out_of_its_folder_is_refused(
    thread: Thread, root: Path, outside: Path, tmp_path: Path, name: str
) -> None:
    (ref,) = thread.store.engine.put_blobs([b"evil"])
    top = manifest(thread, ["file", name, 4, ref])
    below = manifest(thread, ["folder", "d", 0, top])
    before = read(root)
    for tree in (top, below):
        with pytest.raises(Corrupt, match="cannot be a name"):
            restore(thread, planted(thread, root, tree), root, force=True)
        with pytest.raises(Corrupt, match="cannot be a name"):
            materialize(Trees(thread.store.engine), tree, str(tmp_path / "copy"))
    assert read(root) == before
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(("one", "two"), [("a", "A"), ("e\u0301", "\u00e9"), ("ß", "SS")])
def test_names_that_are_one_name_on_some_disks_are_refused(
    thread: Thread, root: Path, one: str, two: str
) -> None:
    (ref,) = thread.store.engine.put_blobs([b"1"])
    rows = sorted([["file", one, 1, ref], ["link", two, 0, "/etc"]], key=lambda r: r[1].encode())
    before = read(root)
    with pytest.raises(Corrupt, match="one name on some"):
        restore(thread, planted(thread, root, manifest(thread, *rows)), root, force=True)
    assert read(root) == before


def test_a_name_twice_in_a_manifest_is_refused(thread: Thread, root: Path) -> None:
    (ref,) = thread.store.engine.put_blobs([b"1"])
    tree = manifest(thread, ["link", "a", 0, "/etc"], ["folder", "a", 0, ref])
    with pytest.raises(Corrupt, match="twice"):
        restore(thread, planted(thread, root, tree), root, force=True)


def test_a_new_name_that_collides_with_one_on_the_disk_is_refused(
    thread: Thread, root: Path
) -> None:
    (root / "F").write_bytes(b"mine")  # a snapshot leaves one of the two out
    tree = stored(thread.store.engine, {"f": b"old", "D": b"new"})
    with pytest.raises(Conflict, match="in the way") as caught:
        restore(thread, planted(thread, root, tree), root, ["D"], force=True)
    assert caught.value.files == ("D",)  # type: ignore[attr-defined]


def test_a_name_may_change_its_case(thread: Thread, root: Path) -> None:
    engine = thread.store.engine
    tree = stored(engine, {"F": b"new", "d/f": b"new", "e/f": b"new"})
    restore(thread, planted(thread, root, tree), root)
    assert read(root) == whole({"F": b"new", "d/f": b"new", "e/f": b"new"})


@pytest.mark.parametrize("target", ["", "a\0b", "x" * 5000, "\ud800"])
def test_a_link_to_nowhere_is_refused(thread: Thread, root: Path, target: str) -> None:
    tree = manifest(thread, ["link", "l", 0, target])
    with pytest.raises(Corrupt, match="link to nowhere"):
        restore(thread, planted(thread, root, tree), root, force=True)


@pytest.mark.parametrize(
    "row",
    [
        ["device", "x", 0, "b3:1"],
        ["fifo", "x", 0, "b3:1"],
        ["hardlink", "x", 0, "f"],
        ["file", "x", 0, "../outside/secret"],
        ["file", "x", -1, "b3:1"],
        ["file", "x", "1", "b3:1"],
        ["file", "x"],
        "file",
        {"kind": "file"},
    ],
    ids=repr,
)
def test_a_node_of_no_known_kind_is_refused(thread: Thread, root: Path, row: list[object]) -> None:
    with pytest.raises(Corrupt):
        restore(thread, planted(thread, root, manifest(thread, row)), root, force=True)


# --- links ---


def test_a_link_in_the_tree_is_replaced_and_not_followed(
    thread: Thread, root: Path, outside: Path
) -> None:
    (root / "f").unlink()
    (root / "f").symlink_to(outside / "secret")
    write(root / "d", {})
    (root / "d").rmdir()
    (root / "d").symlink_to(outside / "d")
    with pytest.raises(Conflict, match="outside of what Clew knows") as caught:
        rewind(thread, "m")
    assert caught.value.files == ("d", "f")  # type: ignore[attr-defined]
    rewind(thread, "m", force=True)
    assert read(root) == whole({"f": b"old", "d/f": b"old", "e/f": b"old"})


def test_a_link_in_a_snapshot_leads_no_later_restore_astray(
    thread: Thread, root: Path, outside: Path
) -> None:
    engine = thread.store.engine
    first = stored(engine, {"d": ("link", str(outside)), "f": ("link", "../outside/secret")})
    restore(thread, planted(thread, root, first), root)
    assert os.readlink(root / "d") == str(outside)
    second = stored(engine, {"d/secret": b"evil", "d/new": b"evil", "f": b"evil"})
    restore(thread, planted(thread, root, second), root)
    assert (root / "d/secret").read_bytes() == b"evil"


def test_a_copy_with_links_stays_inside(thread: Thread, tmp_path: Path, outside: Path) -> None:
    engine = thread.store.engine
    tree = stored(engine, {"a": ("link", str(outside)), "b/c": ("link", "../a/secret"), "z": b"1"})
    materialize(Trees(engine), tree, str(tmp_path / "copy"))
    assert read(tmp_path / "copy").keys() == {"a", "b", "b/c", "z"}


class Swapping(System):
    """Swaps folders for links to the outside just before the n-th call of one kind."""

    def __init__(self, call: str, number: int, swap: Callable[[], None]) -> None:
        self._left = number

        def wrapped(*arguments: object) -> object:
            if self._left == 0:
                swap()
            self._left -= 1
            return real(*arguments)

        real = getattr(super(), call)
        setattr(self, call, wrapped)


CALLS = ["open_folder", "create", "write", "sync", "rename", "stat", "names", "open_file"]


@pytest.mark.parametrize("number", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("call", CALLS)
def test_a_folder_that_becomes_a_link_meanwhile_leads_nowhere(
    thread: Thread, root: Path, outside: Path, call: str, number: int
) -> None:
    """Whatever the moment: it ends well, or it is refused, and the outside is as it was."""
    aside = root.parent / "aside"

    def swap() -> None:
        aside.mkdir()
        for name in ("d", "e"):
            (root / name).rename(aside / name)
            (root / name).symlink_to(outside / "d")

    try:
        rewind(thread, "m", system=Swapping(call, number, swap))
    except (Conflict, Unavailable):
        assert thread.leaf != "m"
    assert read(outside) == whole(OUTSIDE)
    assert not [name for name in os.listdir(outside / "d") if name.startswith(TEMPORARY)]


def test_a_link_under_the_name_of_a_temporary_file_is_not_written_through(
    thread: Thread, root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clew.snapshots.rewind.new_id", lambda: "known")
    for n in range(10):
        (root / f"{prefix_of('known')}{n}").symlink_to(outside / "secret")
        (root / "d" / f"{prefix_of('known')}{n}").symlink_to(outside / "secret")
    with pytest.raises(Unavailable, match="nothing was changed"):
        rewind(thread, "m")
    assert (root / "f").read_bytes() == b"new"


# --- things that are no files ---


def fifo(path: Path) -> None:
    os.mkfifo(path)


def bound(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as opened:
        opened.bind(os.path.relpath(path))


def device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root may make devices")


@pytest.mark.parametrize("make", [fifo, bound, device])
def test_what_is_no_file_is_neither_opened_nor_removed(
    thread: Thread, root: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(root)
    (root / "f").unlink()
    make(root / "f")
    kind = stat.S_IFMT((root / "f").lstat().st_mode)
    with pytest.raises(Conflict, match="in the way"):
        rewind(thread, "m", force=True)
    assert stat.S_IFMT((root / "f").lstat().st_mode) == kind
    assert (root / "d/f").read_bytes() == b"new"


@pytest.mark.parametrize("call", ["stat", "open_file", "create", "rename"])
def test_a_pipe_that_comes_meanwhile_does_not_make_anybody_wait(
    thread: Thread, root: Path, call: str
) -> None:
    def swap() -> None:
        for name in ("f", "d/f", "e/f"):
            (root / name).unlink()
            os.mkfifo(root / name)

    with pytest.raises(ClewError):
        rewind(thread, "m", system=Swapping(call, 0, swap))
    assert stat.S_ISFIFO((root / "e/f").lstat().st_mode)


# --- bits and other names ---


@pytest.mark.parametrize("target", [{"f": ("x", b"new")}, {"f": b"new"}, {"f": ("x", b"other")}])
def test_no_restored_file_runs_as_somebody_else(thread: Thread, root: Path, target: Spec) -> None:
    for bits in (0o6644, 0o7755):
        (root / "f").write_bytes(b"new")
        (root / "f").chmod(bits)
        tree = stored(thread.store.engine, target)
        snapshot = planted(thread, root, tree)
        made = restore(thread, snapshot, root, ["f"], force=True)
        if not made.plan.is_empty:
            assert (root / "f").stat().st_mode & 0o7000 == 0


def test_other_names_of_a_file_are_not_written_through(
    thread: Thread, root: Path, outside: Path
) -> None:
    for name, target in (("f", "secret"), ("d/f", "d/deep")):
        (root / name).unlink()
        os.link(outside / target, root / name)
    rewind(thread, "m", force=True)
    assert read(root) == whole({"f": b"old", "d/f": b"old", "e/f": b"old"})


def test_a_mode_is_not_changed_through_another_name(
    thread: Thread, root: Path, outside: Path
) -> None:
    (root / "f").unlink()
    os.link(outside / "secret", root / "f")
    tree = stored(thread.store.engine, {"f": ("x", b"not yours")})
    restore(thread, planted(thread, root, tree), root, ["f"], force=True)
    assert read(root)["f"] == ("x", b"not yours")


def test_two_names_of_one_file_are_both_restored(thread: Thread, root: Path) -> None:
    (root / "d/f").unlink()
    os.link(root / "f", root / "d/f")
    rewind(thread, "m")
    assert read(root) == whole({"f": b"old", "d/f": b"old", "e/f": b"old"})


# --- blobs ---


@pytest.mark.parametrize("size", [0, 3, 5, 10**12])
def test_a_size_that_lies_is_noticed_before_a_file_is_touched(
    thread: Thread, root: Path, size: int
) -> None:
    (ref,) = thread.store.engine.put_blobs([b"1234"])
    below = nodes(thread.store.engine, {"a": b"1"})
    tree = thread.store.engine.put_blobs([pack([*below, Node("f", "file", ref, size)])])[0]
    before = read(root)
    with pytest.raises(Corrupt, match="should have"):
        restore(thread, planted(thread, root, tree), root, force=True)
    assert read(root) == before


def test_a_blob_that_is_not_what_its_hash_says_is_noticed_before_a_file_is_touched(
    thread: Thread, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = thread.store.engine
    real = engine.get_blob
    before = read(root)

    def lying(hash: str) -> bytes:
        data = real(hash)
        return b"OLD" if data == b"old" else data

    monkeypatch.setattr(engine, "get_blob", lying)
    with pytest.raises(Corrupt, match="do not match its hash"):
        rewind(thread, "m")
    assert (read(root), thread.leaf) == (before, thread.snapshots.list()[1].id)


def test_a_manifest_that_is_not_what_its_hash_says_is_refused(
    thread: Thread, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = thread.store.engine
    real = engine.get_blob
    tree = stored(engine, {"f": b"older"})
    snapshot = planted(thread, root, tree)
    evil = engine.get_blob(stored(engine, {"f": b"evil"}))
    monkeypatch.setattr(engine, "get_blob", lambda hash: evil if hash == tree else real(hash))
    with pytest.raises(Corrupt, match="do not match its hash"):
        restore(thread, snapshot, root)


@pytest.mark.parametrize("paths", [None, ["d/d/d"], ["d/d/d/x"]])
def test_a_tree_without_end_is_refused(
    thread: Thread,
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    paths: list[str] | None,
) -> None:
    """Thirty small manifests that name a billion files."""
    monkeypatch.setattr(tree_module, "PATHS_MAX", 500)
    engine = thread.store.engine
    (tree,) = engine.put_blobs([pack([])])
    for _ in range(30):
        (tree,) = engine.put_blobs([pack([Node("d", "folder", tree), Node("e", "folder", tree)])])
    write(root, {})
    with pytest.raises((Unsupported, NotFound), match=r"over 500 paths|'d/d/d/x' was not found"):
        restore(thread, planted(thread, root, tree), root, paths, force=True)
    with pytest.raises(Unsupported, match="over 500 paths"):
        materialize(Trees(engine), tree, str(tmp_path / "copy"))
    assert read(root) == {}


# --- what a store says about places ---


def test_a_planted_intent_does_not_choose_what_is_written_to(
    thread: Thread, root: Path, outside: Path
) -> None:
    """Not even if it knows device and inode of the folder, which anybody can look up."""
    snapshot = thread.snapshots.list()[-1]
    found = outside.stat()
    files = {
        "root": str(outside),
        "folder": [found.st_dev, found.st_ino],
        "snapshot": snapshot.id,
        "tree": snapshot.tree,
        "before": snapshot.id,
        "before_tree": snapshot.tree,
    }
    thread.set(rewinding={"id": "x", "what": "restore", "time_us": 0, "files": files})
    for ask in (
        lambda: recover(thread),
        lambda: rewind(thread, "m", files=False),
        lambda: rewind(thread, "m", root=root),
        lambda: restore(thread, snapshot.id, root),
    ):
        with pytest.raises(Conflict, match="on this machine"):
            ask()
    with pytest.raises(InvalidInput, match="on this machine"):
        undo_rewind(thread)
    assert recover(thread, abandon=True) is None
    assert rewind(thread, "m", files=False).moved


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another machine, where nothing is known of any folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))


@pytest.mark.parametrize("address", ["{}/s.db", "files:{}/store"])
def test_a_store_from_elsewhere_does_not_choose_the_folder(
    tmp_path: Path, root: Path, address: str, elsewhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "f").write_text("v1")
    place = address.format(tmp_path)
    with monkeypatch.context() as there, clew.open(place) as store:
        there.setenv("XDG_STATE_HOME", str(tmp_path / "there"))
        thread = store.create("t")
        thread.append("user_message", "one", id="m")
        snapshot = thread.snapshots.take(root)
    (root / "f").write_text("v2")
    with clew.open(place) as store:
        thread = store.get("t")
        for ask in (
            lambda: thread.rewind("m", force=True),
            lambda: thread.snapshots.restore(snapshot.id, force=True),
        ):
            with pytest.raises(InvalidInput, match="root"):
                ask()
        assert thread.rewind("m", force=True, dry_run=True).files is not None, "a look is harmless"
        assert (root / "f").read_text() == "v2"
        thread.rewind("m", root=root, force=True)
        assert (root / "f").read_text() == "v1"
    with clew.open(place) as store:
        store.get("t").undo_rewind()  # it was named, and so it is known
        assert (root / "f").read_text() == "v2"


@pytest.mark.parametrize("value", ["x", 1, {}, {"id": 1}, {"id": "x", "what": "rm", "time_us": 0}])
def test_an_intent_that_is_none_is_named_as_damage(thread: Thread, value: object) -> None:
    thread.set(rewinding=value)
    with pytest.raises(Corrupt, match="rewinding"):
        rewind(thread, "m", files=False)


def test_a_plan_reads_nothing_outside(root: Path, outside: Path) -> None:
    """The working tree is looked at through its own descriptors: links in it are leaves."""
    from snapshots.trees import look

    (root / "out").symlink_to(outside)
    engine = MemoryEngine()
    survey: Survey = look(root)
    made = work(Trees(engine), snapshot_of(stored(engine, {})), survey, []).plan
    assert "out" in made.kept
    assert not [path for path in made.kept if path.startswith("out/")]
