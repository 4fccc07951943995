"""A store of files from a stranger reaches nothing outside of itself, and nothing in it hangs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

import clew
from clew import ClewError, Unsupported
from clew.cli import main
from clew.engines.files.doctor import FilesMaintenance
from clew.upkeep.repair import repair

SENTINEL = b"somebody else's file\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    for namespace in ("default", "n"):
        with clew.open(f"files:{root}", namespace=namespace) as store:
            thread = store.create("t")
            thread.append("event", {"text": "x" * 70_000}, blobs=[store.blobs.put(b"blob")])
            thread.fork(id="f").append("event", 1)
            store.create("u").append("event", 1)
            list(store.threads())
    return root


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder of the user's, which must be as it was afterwards."""
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "file").write_bytes(SENTINEL)
    yield outside
    assert sorted(p.name for p in outside.rglob("*")) == ["file", "folder"]
    assert (outside / "file").read_bytes() == SENTINEL


def use_everything(root: Path) -> str:
    """All that one does with a store that somebody has sent; what was said about it."""
    said: list[str] = []

    def attempt(work: Callable[[], object]) -> None:
        try:
            said.append(str(work()))
        except ClewError as error:
            said.append(str(error))

    def all_of(store: clew.Store) -> None:
        attempt(lambda: list(store.threads()))
        attempt(lambda: store.get("t").path())
        attempt(lambda: store.get("f").path())
        attempt(lambda: store.get("t").append("event", {"text": "y" * 70_000}))
        attempt(lambda: store.get("u").append("event", 2))
        attempt(lambda: store.blobs.put(os.urandom(9)))
        attempt(lambda: store.create("new"))
        attempt(store.verify)
        attempt(store.stats)
        attempt(lambda: store.purge("u"))
        attempt(lambda: store.engine.sweep(grace_seconds=0))

    def use(namespace: str, readonly: bool) -> None:
        with clew.open(f"files:{root}", namespace=namespace, readonly=readonly) as store:
            all_of(store)

    for namespace in ("default", "n"):
        for readonly in (True, False):
            attempt(lambda: use(namespace, readonly))  # noqa: B023
    attempt(lambda: list(FilesMaintenance(root).check()))
    attempt(lambda: repair(f"files:{root}", reindex=True))
    attempt(lambda: repair(f"files:{root}"))
    return "\n".join(said)


ROOMS = ["threads", "purged", "blobs", "locks", "index", "index/changed", "recovered"]
FOLDERS = ["namespaces", "namespaces/n", *ROOMS, *(f"namespaces/n/{room}" for room in ROOMS)]


@pytest.mark.parametrize("name", FOLDERS)
def test_a_link_in_the_place_of_a_folder_is_not_followed(
    name: str, root: Path, outside: Path
) -> None:
    shutil.rmtree(root / name)
    (root / name).symlink_to(outside / "folder")
    use_everything(root)


def test_a_link_in_the_place_of_a_folder_of_blobs_is_named(root: Path, outside: Path) -> None:
    for folder in list((root / "blobs").iterdir()):
        shutil.rmtree(folder)
    for n in range(256):
        (root / "blobs" / f"{n:02x}").symlink_to(outside / "folder")
    assert "must be a folder, and no link" in use_everything(root)


def test_a_mark_that_is_a_link_makes_nothing(root: Path, outside: Path) -> None:
    for name in ("t", "u", "new", "f"):
        (root / "index" / "changed" / name).symlink_to(outside / "folder" / "made")
    with clew.open(f"files:{root}") as store:
        store.get("t").append("event", 2)
        store.create("new")
    use_everything(root)


def test_repair_makes_no_locks_through_a_link(root: Path, outside: Path) -> None:
    shutil.rmtree(root / "namespaces" / "n" / "locks")
    (root / "namespaces" / "n" / "locks").symlink_to(outside / "folder")
    with pytest.raises(Unsupported, match="no symbolic link"):
        repair(f"files:{root}", reindex=True)


def files_of(root: Path) -> list[str]:
    return [str(p.relative_to(root)) for p in sorted(root.rglob("*")) if p.is_file()]


@pytest.mark.parametrize("what", ["link", "pipe", "device"])
@pytest.mark.parametrize("part", ["threads", "blobs", "locks", "index", "clew.json"])
def test_a_special_file_is_not_opened(part: str, what: str, root: Path, outside: Path) -> None:
    put: dict[str, Callable[[Path], None]] = {
        "link": lambda path: path.symlink_to(outside / "file"),
        "pipe": os.mkfifo,
        "device": lambda path: path.symlink_to("/dev/zero"),
    }
    files = [file for file in files_of(root) if part in file]
    assert files
    for file in files:
        (root / file).unlink()
        put[what](root / file)
    assert "must be a file" in use_everything(root) or part == "index"


@pytest.mark.parametrize("what", ["link", "pipe", "device", "folder", "newer"])
@pytest.mark.parametrize("known", [True, False])
def test_what_is_in_the_place_of_one_thread_stops_no_other_one(
    what: str, known: bool, tmp_path: Path, outside: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"files:{tmp_path / 'store'}"
    with clew.open(address) as store:
        for id in ("bad", "good"):
            store.create(id).append("user_message", {"role": "user", "content": "word"})
    file = tmp_path / "store" / "threads" / "bad.jsonl"
    newer = file.read_bytes().replace(b'"version":1', b'"version":9')
    file.unlink()
    put: dict[str, Callable[[Path], object]] = {
        "link": lambda path: path.symlink_to(outside / "file"),
        "pipe": os.mkfifo,
        "device": lambda path: path.symlink_to("/dev/zero"),
        "folder": Path.mkdir,
        "newer": lambda path: path.write_bytes(newer),
    }
    put[what](file)
    if not known:
        shutil.rmtree(tmp_path / "store" / "index")
    copied, out = str(tmp_path / "copied.db"), str(tmp_path / "out")
    for command, code in {
        ("list", address, "--json"): 0,
        ("usage", "--store", address, "--json"): 0,
        ("search", "word", "--store", address, "--json"): 0,
        ("show", address, "good"): 0,
        ("copy", address, copied): 1,
        ("export", address, "--all", "--out", out): 1,
    }.items():
        assert main(list(command)) == code, command
        assert "good" in capsys.readouterr().out or command[0] not in ("list", "search", "show")
    with clew.open(copied) as store:
        # An index that remembers it knows what it was made with, and so does the copy.
        assert {info.id for info in store.threads()} == ({"bad", "good"} if known else {"good"})
    assert [path.name for path in Path(out).iterdir()] == ["good.jsonl"]


def test_a_rollback_journal_beside_the_index_is_not_played(root: Path, outside: Path) -> None:
    (root / "index" / "index.db-journal").write_bytes(b"\xd9\xd5\x05\xf9 \xa1c\xd7" + bytes(504))
    assert "damaged" not in use_everything(root)
    assert not (root / "index" / "index.db-journal").exists()


def test_triggers_in_an_index_of_others_do_not_run(root: Path) -> None:
    db = apsw.Connection(str(root / "index" / "index.db"))
    db.execute("CREATE TRIGGER evil AFTER UPDATE ON files BEGIN DELETE FROM threads; END")
    db.close()
    with clew.open(f"files:{root}") as store:
        store.get("t").append("event", 2)
        assert len(list(store.threads())) == 3
        assert store.verify() == []


@pytest.mark.parametrize("what", ["a pipe", "no database", "a row is gone"])
def test_a_quick_check_does_without_an_index_that_cannot_be_right(what: str, root: Path) -> None:
    index = root / "index" / "index.db"
    if what == "a row is gone":
        db = apsw.Connection(str(index))
        db.execute("DELETE FROM records WHERE type = 2")
        db.close()
    else:
        index.unlink()
        os.mkfifo(index) if what == "a pipe" else index.write_bytes(b"nothing" * 999)
    with clew.open(f"files:{root}") as store:
        assert store.verify(quick=True) == []
        assert {info.id for info in store.threads()} == {"t", "f", "u"}
