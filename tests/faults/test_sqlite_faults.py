"""What SQLite's engine does when the disk, the place or the file is not what it should be."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from faults.vfs import FailingVFS

import clew
from clew import Closed, Corrupt, FormatTooNew, Unavailable, Unsupported
from clew.address import maintenance
from clew.core.maintenance import Examined
from clew.core.model import ThreadQuery
from clew.engines.shared import file_system, migrations
from clew.engines.shared.group_commit import Ticket
from clew.engines.shared.tables import read, rows
from clew.engines.shared.thread_list import scans
from clew.engines.sqlite import SQLiteEngine, connections, errors, place
from clew.engines.sqlite import engine as engine_
from clew.engines.sqlite import write as write_


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "threads.db"


@pytest.fixture
def vfs() -> Iterator[FailingVFS]:
    layer = FailingVFS()
    yield layer
    layer.unregister()


def quietly(call: object) -> None:
    try:
        call()  # type: ignore[operator]
    except clew.ClewError:
        pass


# --- a disk that fails ---


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_failed_sync_poisons_the_handle_and_a_retry_resolves(path: Path, vfs: FailingVFS) -> None:
    store = clew.open(path, vfs=vfs.name)
    thread = store.create("t")
    first = thread.append("event", 1)
    draft = clew.draft("event", 2)
    vfs.fail_sync = "-wal"
    with pytest.raises(Unavailable) as caught:
        thread.append([draft])
    assert (caught.value.committed, caught.value.retryable) == (None, False)
    vfs.fail_sync = None
    for call in (
        lambda: thread.append("event", 3),
        lambda: thread.path(),
        lambda: store.create(),
        lambda: store.list(),
    ):
        with pytest.raises(Closed, match="open the store again"):
            call()
    store.close()
    with clew.open(path) as again:
        assert again.verify() == []
        entry = again.get("t").append([draft])[0]
        assert again.get("t").path() == [first, entry]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_full_disk_refuses_cleanly_and_works_again_with_space(
    path: Path, vfs: FailingVFS
) -> None:
    store = clew.open(path, vfs=vfs.name)
    thread = store.create("t")
    first = thread.append("event", 1)
    vfs.fail_write = "-wal"
    with pytest.raises(Unavailable, match="full") as caught:
        thread.append("event", 2)
    assert (caught.value.committed, caught.value.retryable) == (False, True)
    assert thread.path() == [first]
    vfs.fail_write = None
    second = thread.append("event", 2)
    assert thread.path() == [first, second]
    assert store.verify() == []
    store.close()


def test_a_full_disk_is_not_taken_for_a_file_without_numbers(path: Path) -> None:
    """SQLite has one error for both, and only the other one asks for a repair."""
    with clew.open(path) as store:
        store.create("t")
        own = store.engine._connections
        with own.write_lock:
            pages = own.writer().pragma("page_count")
            own.writer().pragma("max_page_count", pages)
        with pytest.raises(Unavailable, match="full") as caught:
            for _ in range(1000):
                store.create()
        assert caught.value.committed is False
        with own.write_lock:
            own.writer().pragma("max_page_count", 2 * pages)
        assert store.create("u").id == "u"
        assert store.verify() == []


def test_a_reader_that_goes_on_does_not_keep_a_purge_from_ending(path: Path) -> None:
    with clew.open(path, busy_seconds=0.05) as store, closing(apsw.Connection(str(path))) as other:
        store.create("t").append("event", "secret")
        other.execute("BEGIN")
        assert other.execute("SELECT count(*) FROM records").get == 1
        assert store.purge("t").log_bytes > 0, "the log cannot be emptied yet"
        other.execute("COMMIT")
        assert store.verify() == []


def test_no_writer_waits_while_a_purge_waits_for_a_reader(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite keeps the lock of writers for as long as it waits to empty the log."""
    tried = threading.Event()
    copy_log = connections.Connections.copy_log

    def counted(*given: Any, **named: Any) -> bool:
        tried.set()
        return copy_log(*given, **named)

    with (
        clew.open(path, busy_seconds=600) as store,
        clew.open(path, busy_seconds=5) as writer,
        closing(apsw.Connection(str(path))) as reader,
    ):
        store.create("t").append("event", "secret")
        kept = store.create("kept")
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM records").get == 1
        monkeypatch.setattr(connections.Connections, "copy_log", counted)
        left: list[int | None] = []
        purge = threading.Thread(target=lambda: left.append(store.purge("t").log_bytes))
        purge.start()
        assert tried.wait(60)
        writer.get("kept").append("event", "of another handle")
        kept.append("event", "of the same")
        assert purge.is_alive()
        reader.execute("COMMIT")
        purge.join(60)
        assert left == [0]


def test_who_comes_to_write_when_the_store_is_closed_is_told_so(path: Path) -> None:
    with clew.open(path) as store:
        own = store.engine._connections
        with own.write_lock:
            own.writer()
    with own.write_lock, pytest.raises(Closed):
        own.writer()


def test_of_many_readers_only_some_leave_their_connection_open(path: Path) -> None:
    most = connections.READERS_IDLE_MAX
    with clew.open(path) as store:
        own = store.engine._connections
        for count in (1, most, most + 2):
            with ExitStack() as reads:
                found = [reads.enter_context(own.reader()) for _ in range(count)]
                assert len(set(map(id, found))) == count
            assert len(own._idle) == min(count, most)
            assert own.let_go(), "none is at work any more"


def test_a_log_that_is_gone_has_nothing_to_sync(path: Path) -> None:
    with clew.open(path) as store:
        store.create("t")
    store.engine._connections.sync_log()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_failed_sync_in_a_checkpoint_loses_nothing_acknowledged(
    path: Path, vfs: FailingVFS
) -> None:
    store = clew.open(path, vfs=vfs.name)
    thread = store.create("t")
    acknowledged = [thread.append("event", n).id for n in range(20)]
    vfs.fail_sync = ".db"
    with pytest.raises((Closed, Unavailable)):
        while True:
            acknowledged.append(thread.append("event", "x" * 7000).id)
    vfs.fail_sync = None
    store.close()
    with clew.open(path) as again:
        assert [e.id for e in again.get("t").path()][: len(acknowledged)] == acknowledged
        assert again.verify() == []


def test_every_acknowledged_append_was_synced(path: Path, vfs: FailingVFS) -> None:
    with clew.open(path, vfs=vfs.name) as store:
        thread = store.create("t")
        for n in range(5):
            before = vfs.syncs
            thread.append("event", n)
            assert vfs.syncs > before


def test_relaxed_durability_is_explicit_and_said(path: Path) -> None:
    with clew.open(path) as store:
        assert store.properties.durability == "full"
        assert store.engine._connections.writer().pragma("synchronous") == 2
    with clew.open(path, durability="relaxed") as store:
        assert store.properties.durability == "relaxed"
        assert "not loss of power" in store.properties.acknowledged
        assert store.engine._connections.writer().pragma("synchronous") == 1
    with pytest.raises(clew.InvalidInput):
        clew.open(path, durability="none")


# --- a file that is not ours, or not as it was ---


def test_a_newer_format_is_refused_and_left_alone(path: Path) -> None:
    clew.open(path).close()
    with apsw.Connection(str(path)) as db:
        db.pragma("user_version", 999)
    db.close()
    before = path.read_bytes()
    with pytest.raises(FormatTooNew) as caught:
        clew.open(path)
    assert (caught.value.found, caught.value.known) == (999, 2)
    assert path.read_bytes() == before


def test_another_sqlite_database_is_refused_and_left_alone(path: Path) -> None:
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE mine (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(Unsupported, match="not a Clew store"):
        clew.open(path)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"just some notes, longer than a header\n" * 50)
    before = path.read_bytes()
    with pytest.raises(Unsupported):
        clew.open(path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path], "nothing is left beside it"


@pytest.mark.parametrize("create", [True, False])
def test_looking_does_not_make_a_store(path: Path, create: bool) -> None:
    if create:
        path.touch()
    before = list(path.parent.iterdir())
    with pytest.raises(clew.NotFound):
        clew.open(path, create=False)
    with pytest.raises(clew.NotFound):
        clew.open("memory:", create=False)
    assert list(path.parent.iterdir()) == before


def test_a_folder_and_an_unwritable_place_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="folder"):
        clew.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="cannot be opened"):
        clew.open(tmp_path / "file" / "threads.db")


def test_a_damaged_page_is_reported_as_corrupt(path: Path) -> None:
    with clew.open(path) as store:
        thread = store.create("t")
        for _ in range(200):
            thread.append("event", "x" * 500)
    data = bytearray(path.read_bytes())
    half = len(data) // 8192 * 4096
    data[half:] = b"\xaa" * (len(data) - half)
    path.write_bytes(data)
    store = clew.open(path)
    assert store.verify() != []
    with pytest.raises((Corrupt, clew.NotFound)):
        store.get("t").path()
    store.close()


def test_the_schema_file_equals_the_sum_of_the_migrations() -> None:
    def shape(*scripts: str) -> list[tuple[str, ...]]:
        db = apsw.Connection(":memory:")
        for script in scripts:
            db.execute(script)
        query = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name"
        return db.execute(query).fetchall()

    steps = [migration.sql for migration in migrations.migrations("sqlite")]
    assert shape(migrations.schema("sqlite")) == shape(*steps)


# --- places ---

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
40 22 0:35 / /mnt/team rw,relatime shared:2 - nfs4 server:/team rw
41 40 254:1 / /mnt/team/local\\040disk rw - xfs /dev/b rw
42 22 0:36 / /mnt/share rw - cifs //server/share rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/home/me", "ext4"),
        ("/mnt/team/threads", "nfs4"),
        ("/mnt/team/local disk/threads", "xfs"),
        ("/mnt/teams", "ext4"),
        ("/mnt/share", "cifs"),
    ],
)
def test_the_file_system_of_a_folder_is_known(folder: str, kind: str) -> None:
    assert file_system.file_system(Path(folder), MOUNTS) == kind


def test_little_room_and_memory_that_goes_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = Examined(kind="sqlite")
    file_system.examine_disk(found, str(tmp_path), "ext4")
    assert found.findings == []
    monkeypatch.setattr(file_system, "ROOM_BYTES_MIN", 1 << 62)
    file_system.examine_disk(found, str(tmp_path), "tmpfs")
    told = [finding.what for finding in found.findings]
    assert ["tmpfs" in told[0], "MB left" in told[1]] == [True, True]


def test_a_network_file_system_is_refused() -> None:
    with pytest.raises(Unsupported, match="nfs4"):
        file_system.refuse_network(Path("/mnt/team/threads"), MOUNTS)
    file_system.refuse_network(Path("/home/me"), MOUNTS)


def test_an_old_sqlite_gets_a_store_for_itself_alone(path: Path) -> None:
    old, new = 3_040_001, place.SAFE_VERSION
    alone = place.HostLock(path, old)
    for library in (old, new):
        with pytest.raises(Unsupported):
            place.HostLock(path, library)
    alone.close()
    shared = place.HostLock(path, new)
    place.HostLock(path, new).close()
    with pytest.raises(Unsupported, match=r"3\.40\.1"):
        place.HostLock(path, old)
    shared.close()
    place.HostLock(path, old).close()


def test_the_sqlite_that_comes_with_clew_is_a_safe_one() -> None:
    assert place.library_version() >= place.SAFE_VERSION


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    os.umask(os.umask(0))
    with clew.open(tmp_path / "new" / "threads.db") as store:
        store.create()
        modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "new").iterdir()}
        assert set(modes) == {"threads.db", "threads.db-wal", "threads.db-shm", "threads.db-lock"}
        assert set(modes.values()) == {0o600}
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_the_default_store_lies_with_the_users_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    with clew.open() as store:
        assert store.properties.place == str(tmp_path / "clew" / "threads.db")


@pytest.mark.parametrize(
    ("address", "file"),
    [
        ("plain.db", "plain.db"),
        ("no-ending", "no-ending"),
        ("sqlite:///relative.db", "relative.db"),
        ("sqlite:short.db", "short.db"),
        ("sqlite:///sub/dir/x.db", "sub/dir/x.db"),
        ("./odd:name.db", "odd:name.db"),
    ],
)
def test_addresses_lead_to_files(
    address: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clew.open(address).close()
    assert (tmp_path / file).is_file()


def test_an_absolute_url_is_an_absolute_path(tmp_path: Path) -> None:
    clew.open(f"sqlite:///{tmp_path}/a.db").close()
    clew.open(tmp_path / "b.db").close()
    assert (tmp_path / "a.db").exists()
    assert (tmp_path / "b.db").exists()


@pytest.mark.parametrize(
    "address", ["redis://x", "postgres:x", "memory:x", "sqlite:", "sqlite:///"]
)
def test_an_unknown_address_names_the_known_ones(address: str) -> None:
    with pytest.raises(Unsupported, match=r"sqlite:///.*memory:"):
        clew.open(address)


def test_empty_addresses_and_unknown_options_are_refused(path: Path) -> None:
    with pytest.raises(clew.InvalidInput):
        clew.open("")
    with pytest.raises(clew.InvalidInput, match="durability"):
        clew.open(path, durable=True)
    with pytest.raises(clew.InvalidInput):
        clew.open("memory:", durability="full")


# --- other writers ---


def test_waiting_for_another_process_is_bounded(path: Path) -> None:
    with clew.open(path, busy_seconds=0.05) as store:
        thread = store.create("t")
        other = apsw.Connection(str(path))
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable) as caught:
            thread.append("event", 1)
        assert (caught.value.retryable, caught.value.committed) == (True, False)
        other.execute("ROLLBACK")
        other.close()
        assert thread.append("event", 1).seq == 1


def test_many_changed_threads_are_listed_in_order(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "UNLISTED_MAX", 3)
    with clew.open(path) as store:
        names = [store.create(f"t{n}").id for n in range(8)]
        for name in (*names, "t3", "t1"):
            store.get(name).append("event", 1)
            expected = sorted(store.threads(), key=lambda i: i.updated_us, reverse=True)
            found = [info.id for info in store.threads(order="updated", limit=3)]
            assert found == [info.id for info in expected]
        assert found[:3] == ["t1", "t3", "t7"]
        assert store.verify() == []


def test_two_handles_in_one_process_see_each_other(path: Path) -> None:
    with clew.open(path) as one, clew.open(path) as two:
        thread = one.create("t")
        thread.append("event", 1)
        two.get("t").append("event", 2)
        assert [e.body for e in thread.path()] == [1, 2]


# --- large and removed bodies ---


def test_a_large_body_is_stored_once_and_compressed(path: Path) -> None:
    with clew.open(path) as store:
        body = {"output": "the same long tool output\n" * 4000}
        for _ in range(5):
            store.create().append("tool_result", body)
        stats = store.stats()
        assert stats.blobs == 1
        assert stats.blob_bytes > 100_000
    assert path.stat().st_size < 150_000


def test_what_is_purged_is_gone_from_the_disk(path: Path) -> None:
    secret = "correct horse battery staple"
    with clew.open(path) as store:
        thread = store.create("t", title=secret)
        thread.append("user_message", {"content": secret})
        thread.append("user_message", {"content": [secret] * 2000})
        store.create("other").append("event", 1)
        store.purge("t")
        for file in path.parent.iterdir():
            assert secret.encode() not in file.read_bytes(), file.name


def test_engine_options_reach_sqlite(path: Path) -> None:
    engine = SQLiteEngine(path)
    db = engine._connections.writer()
    found = {
        name: db.pragma(name) for name in ("secure_delete", "wal_autocheckpoint", "temp_store")
    }
    assert found == {"secure_delete": 1, "wal_autocheckpoint": 0, "temp_store": 2}
    assert db.pragma("journal_mode") == "wal"
    engine.close()


@pytest.mark.parametrize("order", ["created", "updated"])
@pytest.mark.parametrize("cursor", [None, (5, "t")])
def test_a_page_of_threads_is_read_in_order_and_not_sorted(
    path: Path, order: str, cursor: tuple[int, str] | None
) -> None:
    """Sorting would read every thread for the first page."""
    with clew.open(path) as store, store.engine._connections.reader() as db:
        query = ThreadQuery(order=order, cursor=cursor)
        sql, bindings = read._select(1, query, f"{order}_us", *scans(query)[0])
        plan = str(db.execute(f"EXPLAIN QUERY PLAN {sql}", bindings).fetchall())
        assert f"threads_by_{order}" in plan
        assert "TEMP B-TREE" not in plan


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("workspace", "threads_by_workspace (space=? AND workspace=?)"),
        ("parent", "threads_by_parent (space=? AND parent=?)"),
        ("origin", "threads_by_origin (space=? AND origin=?)"),
        ("prefix", "threads_by_id (space=? AND id>?)"),
        ("tag", "tags USING PRIMARY KEY (space=? AND tag=?)"),
    ],
)
def test_a_filter_reads_its_own_namespace_by_its_own_index(
    path: Path, name: str, index: str
) -> None:
    """Otherwise a page would cost what the whole store has, or what other tenants have."""
    with clew.open(path) as store, store.engine._connections.reader() as db:
        query = ThreadQuery(**{name: "x"})
        sql, bindings = read._select(1, query, "created_us", *scans(query)[0])
        assert index in str(db.execute(f"EXPLAIN QUERY PLAN {sql}", bindings).fetchall())


# --- what is there before the first acknowledgement ---


def test_every_new_folder_is_synced_and_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a folder that is not synced may be gone after a cut, with all that is in it."""
    synced: list[Path] = []
    real = file_system.sync_folder
    monkeypatch.setattr(place, "sync_folder", lambda folder: (synced.append(folder), real(folder)))
    path = tmp_path / "a" / "b" / "c" / "threads.db"
    clew.open(path).close()
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    for folder in ("a", "a/b", "a/b/c"):
        assert stat.S_IMODE((tmp_path / folder).stat().st_mode) == 0o700


def test_without_a_synced_name_of_the_log_nothing_is_acknowledged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = clew.open(path)
    syncs = 0

    def fails(descriptor: int) -> None:
        nonlocal syncs
        syncs += 1
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fails)
        with pytest.raises(Unavailable, match="cannot be synced") as caught:
            store.create("t")
    assert (caught.value.committed, caught.value.retryable, syncs) == (False, False, 1)
    with pytest.raises(Closed, match="open the store again"):
        store.create("t")  # a second sync may say that all is well
    store.close()
    with clew.open(path) as again:
        assert again.list().items == []


_AT_THE_LIMIT = """
import os, resource, sys
import clew, clew.engines.sqlite
from clew.engines.sqlite import view, verify
with clew.open(sys.argv[1]) as store:
    store.create("t").append("event", 1)
used = max(int(name) for name in os.listdir("/proc/self/fd"))
for more in range(12):
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, 4096))
    for options in ({}, {"readonly": True}, {"namespace": "other"}):
        try:
            clew.open(sys.argv[1], **options).close()
        except clew.ClewError as error:
            refused = error.code
        else:
            opened = more
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
print(refused, opened)
"""


def test_no_more_open_files_is_an_error_of_ours(path: Path) -> None:
    command = [sys.executable, "-c", _AT_THE_LIMIT, str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout.split()[:1], done.stderr) == (["unavailable"], "")


@pytest.mark.parametrize("call", ["mkdir", "open", "fsync"])
def test_no_room_for_a_new_store_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*arguments: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(Unavailable):
            clew.open(tmp_path / "a" / "threads.db")
    clew.open(tmp_path / "a" / "threads.db").close()


# --- others at the file ---


def test_a_store_that_another_program_has_alone_is_waited_for_and_then_refused(path: Path) -> None:
    clew.open(path).close()
    with open(f"{path}-lock", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for call in (lambda: clew.open(path), lambda: maintenance(str(path)).stats()):
            with pytest.raises(Unsupported):
                call()
        timer = threading.Timer(0.05, lambda: fcntl.flock(lock, fcntl.LOCK_UN))
        timer.start()
        clew.open(path).close()
        timer.join()


def test_lists_by_update_are_right_while_another_process_writes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "UNLISTED_MAX", 1)
    with clew.open(path, busy_seconds=0.05) as store:
        for n in range(5):
            store.create(f"t{n}").append("event", n)
        writer = apsw.Connection(str(path))
        writer.execute("BEGIN IMMEDIATE")
        found = [info.id for info in store.list(order="updated").items]
        assert found == ["t4", "t3", "t2", "t1", "t0"]
        writer.close()


def test_a_store_whose_folder_is_moved_away_is_not_written_any_more(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    store = clew.open(folder / "threads.db")
    thread = store.create("t")
    folder.rename(tmp_path / "moved")
    with pytest.raises(Unavailable) as caught:
        thread.append("event", 1)
    assert caught.value.committed is False
    quietly(store.close)


def test_a_schema_that_is_no_text_is_damage(path: Path) -> None:
    clew.open(path).close()
    data = path.read_bytes()
    assert data.count(b"-- of the last record") == 1
    path.write_bytes(data.replace(b"-- of the last record", b"-- of the last \xffecord"))
    with pytest.raises(Corrupt, match="clew repair"):
        clew.open(path)


def test_what_cannot_be_opened_for_want_of_files_is_said_so(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object, **more: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(engine_, "Connections", refuse)
    with pytest.raises(Unavailable, match="nothing was changed in it") as caught:
        clew.open(path)
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (apsw.ReadOnlyError("attempt to write"), clew.ReadOnly),
        (apsw.TooBigError("string or blob too big"), Unavailable),
        (apsw.CorruptError("malformed"), Corrupt),
    ],
)
def test_an_error_of_sqlite_is_one_of_ours(error: apsw.Error, kind: type[clew.ClewError]) -> None:
    found = errors.translate(error, "the store")
    assert type(found) is kind
    assert not found.retryable


def test_of_works_that_share_a_transaction_one_that_sqlite_refuses_ends_them_all() -> None:
    """Whether a full disk refused it or the file is damaged: nothing of it may be committed."""
    db = apsw.Connection(":memory:")

    def refused(db: apsw.Connection) -> None:
        raise apsw.FullError("database or disk is full")

    db.execute("BEGIN")
    with pytest.raises(apsw.FullError):
        engine_._run_apart(db, Ticket(refused))
    own = Ticket(lambda db: db.execute("CREATE TABLE t (x)") and 1 / 0)
    engine_._run_apart(db, own)
    assert isinstance(own.error, ZeroDivisionError)
    assert db.execute("SELECT count(*) FROM sqlite_schema").get == 0


def test_a_large_body_that_is_damaged_can_be_erased(path: Path) -> None:
    with clew.open(path) as store:
        thread = store.create("t")
        thread.append("event", "secret " * 5000, id="large")
        thread.append("event", "kept", id="kept")
    db = apsw.Connection(str(path))
    db.execute("UPDATE blobs SET data = zeroblob(10)")
    db.close()
    with clew.open(path) as store:
        thread = store.get("t")
        with pytest.raises(Corrupt):
            _ = thread.get("large").body
        store.engine.erase("t", ["large"], time_us=store.clock(), reason=None)
        assert thread.get("large").erased_at is not None
        assert store.verify() == []


def test_where_many_threads_are_written_no_more_than_some_are_remembered(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_, "_REMEMBERED_MAX", 2)
    monkeypatch.setattr(rows, "_STEPS_MAX", 1)
    with clew.open(path) as store:
        threads = [store.create(f"t{n}") for n in range(5)]
        for n in range(3):
            for thread in threads:
                thread.append("event", n)
        fork = store.fork("t0", at=threads[0].path()[0].id)
        forked = store.fork(fork.id, at=fork.append("event", "x").id)
        forked.append("event", "y")
        assert [entry.body for entry in forked.path()] == [0, "x", "y"]
        assert [entry.body for entry in threads[4].path()] == [0, 1, 2]


def test_a_prefix_of_the_last_characters_has_an_end() -> None:
    assert read.after_prefix("a\U0010ffff") == "b"
    assert read.after_prefix("\U0010ffff") is None
    assert read.after_prefix("\ud7ff") == "\ue000"


def test_a_maintenance_looks_at_no_store_of_another_engine(path: Path) -> None:
    with clew.open("memory:") as other:
        for address in (f"sqlite:{path}", f"files:{path}"):
            with pytest.raises(Unsupported, match="is not the"):
                maintenance(address).examine(other.engine)
