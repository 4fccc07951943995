"""Stores that may be read but not written: looked at whole, or not at all, and never touched."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import clew
from clew.core.engine import innermost
from clew.core.model import Inspect
from clew.engines.shared import migrations
from clew.engines.sqlite import SQLiteEngine, place, view
from clew.engines.sqlite.connections import Connections

ADDRESSES = {"sqlite": "{}/store/threads.db", "files": "files:{}/store"}
Looks = dict[str, tuple[int, int, int]]

WRITER = """
import sys, clew
store = clew.open(sys.argv[1])
thread = store.create("live")
thread.append("note", "first")
print("ready", flush=True)
for line in sys.stdin:
    thread.append("note", line.strip())
    print("done", flush=True)
store.close()
"""


@pytest.fixture(params=ADDRESSES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with threads, forks, blobs and two namespaces that was closed in order."""
    found = ADDRESSES[request.param].format(tmp_path)
    with clew.open(found) as store:
        thread = store.create("t", title="First", tags=["bug"])
        thread.append("note", "x" * 100_000)
        store.fork("t", id="f").append("note", "on the fork")
        store.blobs.put(b"bytes")
    with clew.open(found, namespace="acme") as store:
        store.create("n").append("note", "of a tenant")
    return found


@pytest.fixture
def sqlite(tmp_path: Path) -> Path:
    path = tmp_path / "store" / "threads.db"
    with clew.open(path) as store:
        store.create("t").append("note", "hello")
    return path


def looks(folder: Path) -> Looks:
    """Every file and folder: which it is, its size, when it was changed."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        stat = path.lstat()
        found[str(path)] = stat.st_ino, stat.st_size, stat.st_mtime_ns
    return found


@contextmanager
def untouched(folder: Path) -> Iterator[None]:
    before = looks(folder)
    yield
    assert looks(folder) == before


@contextmanager
def writer(address: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the store open, and has written to it."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(address)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"


def end(process: subprocess.Popen[str]) -> None:
    """Let it close the store in order."""
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait() == 0


def read_all(store: clew.Store) -> list[tuple[str, list[object]]]:
    assert store.verify() == []
    assert store.verify(quick=True) == []
    store.stats()
    store.blobs.has("b3:" + "0" * 64)
    return sorted(
        (info.id, [entry.body for entry in store.get(info.id).path()])
        for info in store.threads(order="updated")
    )


# --- nothing is left behind ---


def test_looking_leaves_nothing_behind(address: str, tmp_path: Path) -> None:
    with clew.open(address) as store:
        wanted = read_all(store)
    for namespace in ("default", "acme"):
        with (
            untouched(tmp_path),
            clew.open(address, readonly=True, namespace=namespace) as store,
        ):
            found = read_all(store)
            for write in (store.create, lambda: store.blobs.put(b"more"), store.sweep):
                with pytest.raises(clew.ReadOnly, match="is open read-only"):
                    write()
        assert found == wanted or namespace == "acme"


def test_looking_beside_a_live_writer_leaves_nothing_behind(address: str, tmp_path: Path) -> None:
    with writer(address) as process:
        with untouched(tmp_path), clew.open(address, readonly=True) as store:
            assert ("live", ["first"]) in read_all(store)
        with clew.open(address, readonly=True) as store:
            say(process, "second")
            assert [entry.body for entry in store.get("live").path()] == ["first", "second"]


def test_looking_at_what_a_killed_writer_left_leaves_it_so(address: str, tmp_path: Path) -> None:
    with writer(address) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    with untouched(tmp_path), clew.open(address, readonly=True) as store:
        assert ("live", ["first"]) in read_all(store)
    with clew.open(address) as store:
        assert ("live", ["first"]) in read_all(store)


def test_a_store_that_is_not_there_is_not_made(address: str, tmp_path: Path) -> None:
    with untouched(tmp_path):
        for missing in (f"{tmp_path}/no.db", f"files:{tmp_path}/no"):
            with pytest.raises(clew.NotFound):
                clew.open(missing, readonly=True)
        with pytest.raises(clew.NotFound, match="namespace 'none'"):
            clew.open(address, readonly=True, namespace="none")
        with pytest.raises(clew.InvalidInput, match="is not made"):
            clew.open(address, readonly=True, create=True)


def test_a_store_in_memory_can_be_empty_only() -> None:
    with clew.open("memory:", readonly=True) as store:
        assert list(store.threads()) == []
        with pytest.raises(clew.ReadOnly):
            store.create()


def test_a_turn_on_a_read_only_store_is_refused_before_it_begins(address: str) -> None:
    with clew.open(address, readonly=True) as store:
        with pytest.raises(clew.ReadOnly) as caught, store.get("t").turn(owner="me"):
            pytest.fail("it began")
        assert (caught.value.operation, caught.value.committed) == ("lease", False)
        with pytest.raises(clew.ReadOnly):
            store.conversations.get("chat").add("user", "hello")


@pytest.mark.parametrize("end", ["-wal", "-shm"])
def test_a_log_that_goes_while_a_store_is_opened_is_no_missing_right(
    end: str, sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    companion = sqlite.with_name(sqlite.name + end)
    companion.touch()
    ask = place.file_system.may

    def may(path: str | os.PathLike[str], mode: int) -> bool:
        if os.fspath(path) == os.fspath(companion):
            companion.unlink(missing_ok=True)  # by another process, which was the last to close
        return ask(path, mode)

    monkeypatch.setattr(place.file_system, "may", may)
    place.refuse_unwritable(sqlite)
    assert not companion.exists()


# --- as a user who has no right to write ---

_CAPABILITIES = (1, 2)  # to pass over the bits that say who may write, and who may read
_DROP = 24


def without_rights() -> None:
    """Root passes over permission bits. A process that drops that right is held to them."""
    if os.geteuid() == 0:
        system = ctypes.CDLL(None, use_errno=True)
        for capability in _CAPABILITIES:
            if system.prctl(_DROP, capability, 0, 0, 0):
                os._exit(99)


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[None]:
    """The store, its files and folders can be read, and not written, until the test has ended."""
    before = {path: path.lstat().st_mode for path in [tmp_path, *tmp_path.rglob("*")]}
    for path, mode in before.items():
        path.chmod(mode & ~0o222)
    tried = subprocess.run(["touch", tmp_path / "x"], preexec_fn=without_rights, check=False)
    yield
    for path, mode in before.items():
        path.chmod(mode)
    if tried.returncode == 0 or tried.returncode == 99:
        pytest.skip("this system does not let a process drop the right to write everywhere")


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "clew", *arguments],
        preexec_fn=without_rights,
        capture_output=True,
        text=True,
        check=False,
    )


LOOKING = {
    "list": ["list", "STORE", "--json"],
    "show": ["show", "STORE", "f", "--json"],
    "verify": ["verify", "STORE"],
    "verify --quick": ["verify", "STORE", "--quick"],
    "doctor": ["doctor", "STORE", "--json"],
    "migrate": ["migrate", "STORE", "--check"],
    "snapshots": ["snapshot", "list", "STORE", "t"],
    "a namespace": ["list", "STORE", "--namespace", "acme"],
    "cleanup": ["cleanup", "STORE", "--older-than", "90d", "--dry-run"],
}


def test_every_command_that_looks_works_without_the_right_to_write(
    address: str, tmp_path: Path, locked: None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    commands = {
        **LOOKING,
        "export": ["export", "STORE", "f", "--out", f"{elsewhere}/f.jsonl"],
        "copy": ["copy", "STORE", f"{elsewhere}/copy.db", "--all-namespaces"],
    }
    with untouched(tmp_path):
        for name, words in commands.items():
            done = command(*(address if word == "STORE" else word for word in words))
            assert (done.returncode, done.stderr) == (0, ""), name
    assert {path.name for path in elsewhere.iterdir()} >= {"f.jsonl", "copy.db"}
    told = json.loads(command("doctor", address, "--json").stdout)
    assert told["properties"]["read_only"] is True


def test_every_command_that_writes_says_why_it_cannot(
    address: str, tmp_path: Path, locked: None
) -> None:
    with untouched(tmp_path):
        for words in (["rewind", address, "t", "--yes"], ["undo", address, "t", "--yes"]):
            done = command(*words)
            assert (done.returncode, done.stdout) == (5, "")
            assert "may not be written (" in done.stderr
            assert "Permission denied" in done.stderr
            assert done.stderr.count("\n") == 1


OPEN = """
import sys, clew
try:
    clew.open(sys.argv[1], create=False)
except clew.ReadOnly as error:
    print(error.reason)
with clew.open(sys.argv[1], readonly=True) as store:
    print(sorted(info.id for info in store.threads(order="updated")), store.verify())
"""


def test_opening_to_write_without_the_right_says_how_to_look(
    address: str, tmp_path: Path, locked: None
) -> None:
    with untouched(tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", OPEN, address],
            preexec_fn=without_rights,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.stderr == ""
    reason, found = done.stdout.splitlines()
    assert reason.endswith("Permission denied")
    assert found == "['f', 't'] []"


@pytest.mark.parametrize("kept", ["live", "killed"])
def test_a_log_is_read_without_the_right_to_write(tmp_path: Path, sqlite: Path, kept: str) -> None:
    with writer(sqlite) as process:
        if kept == "killed":
            process.send_signal(signal.SIGKILL)
            process.wait()
        assert sqlite.with_name("threads.db-wal").stat().st_size > 0
        paths = [tmp_path, *tmp_path.rglob("*")]
        for path in paths:
            path.chmod(path.stat().st_mode & ~0o222)
        with untouched(tmp_path):
            done = command("show", str(sqlite), "live", "--json")
        for path in paths:
            path.chmod(path.stat().st_mode | 0o200)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout.splitlines()[-1])["body"] == "first"


def connections(store: clew.Store) -> Connections:
    engine = innermost(store.engine)
    assert isinstance(engine, SQLiteEngine)
    return engine._connections


# --- SQLite: what cannot be read without writing is not read ---


def test_a_log_without_its_index_is_not_passed_over(
    sqlite: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Without the log the file says what was true some time ago."""
    copied = tmp_path_factory.mktemp("copied") / "threads.db"
    with writer(sqlite):
        for ending in ("", "-wal"):
            shutil.copy(f"{sqlite}{ending}", f"{copied}{ending}")
    with untouched(copied.parent), pytest.raises(clew.Unavailable) as caught:
        clew.open(copied, readonly=True)
    assert "cannot be read without writing" in str(caught.value)
    assert "copy threads.db and threads.db-wal" in str(caught.value)
    assert not caught.value.retryable
    with clew.open(copied) as store:  # where it may be written, it is all there
        assert ("live", ["first"]) in read_all(store)


def test_a_writer_that_is_just_leaving_does_not_make_a_store_unreadable(
    sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes -shm away, and a moment later -wal: this is that moment."""
    log = sqlite.with_name("threads.db-wal")
    log.write_bytes(b"x" * 100)
    with monkeypatch.context() as patch:
        patch.setattr(view.time, "sleep", lambda _: log.unlink(missing_ok=True))
        found = view.look(sqlite, patience_seconds=5)
    assert not found.logged


def test_a_log_that_goes_between_a_look_and_the_opening_is_looked_for_again(
    sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter([view.View((0, 0), ((0, 1), (0, 2)), None)])
    true_look = view.look
    monkeypatch.setattr(view, "look", lambda *given: next(looks, None) or true_look(*given))
    with clew.open(sqlite, readonly=True) as store:
        assert read_all(store)


def test_a_copied_file_alone_can_be_looked_at(
    sqlite: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copied = tmp_path_factory.mktemp("copied") / "copy of 100%? #1.db"
    shutil.copy(sqlite, copied)
    with untouched(copied.parent), clew.open(copied, readonly=True) as store:
        assert read_all(store) == [("t", ["hello"])]


def test_a_log_is_looked_for_where_a_link_leads(
    sqlite: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    link = tmp_path_factory.mktemp("links") / "link.db"
    link.symlink_to(sqlite)
    with writer(sqlite), clew.open(link, readonly=True) as store:
        assert ("live", ["first"]) in read_all(store)
    assert [path.name for path in link.parent.iterdir()] == ["link.db"]


def test_an_interrupted_transaction_is_not_passed_over(sqlite: Path) -> None:
    sqlite.with_name("threads.db-journal").write_bytes(b"x" * 512)
    with untouched(sqlite.parent), pytest.raises(clew.Unsupported, match="rollback journal"):
        clew.open(sqlite, readonly=True)


def test_a_file_that_changes_while_it_is_read_gives_no_answer(sqlite: Path) -> None:
    with clew.open(sqlite, readonly=True) as store:
        with (
            pytest.raises(clew.Unavailable, match="written while it was read") as caught,
            connections(store).reader() as db,
        ):
            assert isinstance(db, view.ViewConnection)
            assert not db.view.logged
            with writer(sqlite) as process:
                end(process)  # its log is now in the file
        assert caught.value.retryable
        assert ("live", ["first"]) in read_all(store), "the next read is of the new file"


def test_damage_that_is_only_a_change_is_not_called_damage(sqlite: Path) -> None:
    with clew.open(sqlite, readonly=True) as store:
        with (
            pytest.raises(clew.Unavailable, match="written while it was read"),
            connections(store).reader(),
        ):
            with writer(sqlite) as process:
                end(process)
            raise apsw.CorruptError("half of two states")
        with pytest.raises(clew.Corrupt), connections(store).reader():
            raise apsw.CorruptError("really")


def test_a_file_that_was_written_just_now_is_given_time(
    sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one tick of the file system's clock it could be written again and look the same."""
    written_ns = sqlite.stat().st_mtime_ns
    times = iter([written_ns, written_ns + 1_000_000, written_ns + 30_000_000])
    naps: list[float] = []
    monkeypatch.setattr("clew.engines.sqlite.view.time.time_ns", lambda: next(times))
    monkeypatch.setattr("clew.engines.sqlite.view.time.sleep", naps.append)
    view.look(sqlite, 30.0)
    assert len(naps) == 2


def test_a_file_that_never_comes_to_rest_is_not_read(
    sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "is_settled", lambda time_ns: False)
    with pytest.raises(clew.Unavailable):
        clew.open(sqlite, readonly=True, busy_seconds=0.01)


def test_a_file_that_goes_while_it_is_looked_at_gives_no_answer(sqlite: Path) -> None:
    with clew.open(sqlite, readonly=True) as store:
        engine: Any = innermost(store.engine)
        with pytest.raises(clew.Unavailable), engine._connections.reader():
            sqlite.unlink()


def test_a_place_that_cannot_be_looked_at_is_said_so(
    sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may look everywhere, so the system is asked to refuse."""

    def refuse(path: Path, seconds: float) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(view, "look", refuse)
    with pytest.raises(clew.Unavailable, match="Permission denied") as caught:
        clew.open(sqlite, readonly=True)
    assert not caught.value.retryable


@pytest.mark.parametrize("broken", ["the file's header", "the page's header", "a page below"])
def test_a_store_with_a_broken_schema_is_damaged_also_for_who_looks(
    sqlite: Path, broken: str
) -> None:
    query = "SELECT pageno FROM dbstat WHERE name = 'sqlite_schema' AND pagetype = 'leaf'"
    with closing(apsw.Connection(str(sqlite))) as db:
        below = [(page - 1) * 4096 for (page,) in db.execute(query)]
    at = {"the file's header": 0, "the page's header": 100, "a page below": below[-1]}[broken]
    with sqlite.open("r+b") as file:
        file.seek(at)
        file.write(b"\xaa" * (4096 - at % 4096))
    with pytest.raises((clew.Corrupt, clew.Unsupported)):
        clew.open(sqlite, readonly=True)


def test_a_connection_that_looks_gives_none_to_write_and_no_pack(sqlite: Path) -> None:
    with clew.open(sqlite, readonly=True) as store:
        engine: Any = innermost(store.engine)
        with pytest.raises(clew.ReadOnly):
            engine._connections.writer()
        with pytest.raises(clew.ReadOnly):
            engine.pack()


def test_a_process_can_write_what_it_also_looks_at(sqlite: Path) -> None:
    """SQLite shares the index of the log in a process: opened read-only, it would stay so."""
    with writer(sqlite), clew.open(sqlite, readonly=True) as looking:
        assert [info.id for info in looking.threads()] == ["live", "t"]  # the log is open now
        with clew.open(sqlite) as store:
            store.create("u")
            assert {info.id for info in looking.threads()} == {"live", "t", "u"}
            store.get("u").append("note", "more")
        assert [entry.body for entry in looking.get("u").path()] == ["more"]
        with clew.open(sqlite) as store:
            store.create("v")
        assert looking.find("v") is not None


def test_a_read_that_does_not_end_keeps_a_writer_of_the_process_away(
    sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clew.engines.sqlite.connections.FORK_WAIT_SECONDS", 0.05)
    with writer(sqlite), clew.open(sqlite, readonly=True) as looking:
        with (
            connections(looking).reader(),
            pytest.raises(clew.Unavailable, match="being read by this process"),
        ):
            clew.open(sqlite)
        clew.open(sqlite).close()


def test_a_read_of_a_file_without_a_log_keeps_no_writer_away(sqlite: Path) -> None:
    with clew.open(sqlite, readonly=True) as looking:
        with connections(looking).reader() as db:
            writing = clew.open(sqlite)
            writing.create("u")
            assert db.execute("SELECT count(*) FROM threads").get == 1, "it is of its own moment"
        assert looking.find("u") is not None
        writing.close()


def test_an_older_format_is_not_migrated_by_looking(
    sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = migrations.migrations("sqlite")
    monkeypatch.setattr("clew.engines.sqlite.schema.migrations", lambda engine: [*later, later[-1]])
    with untouched(sqlite.parent), pytest.raises(clew.Unsupported, match="run clew migrate"):
        clew.open(sqlite, readonly=True)


def test_looking_survives_a_fork_of_the_process(address: str, tmp_path: Path) -> None:
    with clew.open(address, readonly=True) as store:
        wanted = read_all(store)
        child = os.fork()
        if child == 0:
            os._exit(0 if read_all(store) == wanted else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert read_all(store) == wanted


def test_many_threads_may_look_while_a_writer_comes_and_goes(address: str) -> None:
    failures: list[BaseException] = []
    over = threading.Event()

    def look(store: clew.Store) -> None:
        while not over.is_set():
            try:
                bodies = [entry.body for entry in store.get("t").path()]
                assert bodies == ["x" * 100_000]
            except clew.Unavailable as error:
                if not error.retryable:
                    failures.append(error)
            except BaseException as error:
                failures.append(error)

    with clew.open(address, readonly=True) as store:
        threads = [threading.Thread(target=look, args=(store,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(4):
            with clew.open(address) as other:
                other.create(f"w{number}").append("note", number)
            assert store.find(f"w{number}") is not None
        over.set()
        for thread in threads:
            thread.join()
    assert failures == []


# --- files ---


def test_a_torn_end_stays_where_it_is_and_is_not_shown(tmp_path: Path) -> None:
    address = f"files:{tmp_path}/store"
    with clew.open(address) as store:
        store.create("t").append("note", "whole")
    file = tmp_path / "store" / "threads" / "t.jsonl"
    with file.open("ab") as torn:
        torn.write(b'{"type":"entry","seq":2,"id":"half')
    with untouched(tmp_path), clew.open(address, readonly=True) as store:
        assert read_all(store) == [("t", ["whole"])]


def test_a_store_without_its_empty_folders_can_be_looked_at(tmp_path: Path) -> None:
    """As git gives it back: without index and locks, and without folders that hold nothing."""
    address = f"files:{tmp_path}/store"
    with clew.open(address) as store:
        store.create("t").append("note", "hello")
    for room in ("index", "locks", "purged", "blobs", "recovered"):
        shutil.rmtree(tmp_path / "store" / room)
    with untouched(tmp_path), clew.open(address, readonly=True) as store:
        assert read_all(store) == [("t", ["hello"])]
        assert store.engine.lease("t", Inspect()) is None
