"""What the files engine does when its folder is not as it left it: torn, edited, moved, shared."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import clew
from clew import Closed, Corrupt, FormatTooNew, NotFound, Unavailable, Unsupported
from clew.core.names import file_stem
from clew.engines.files import open_store, place
from clew.engines.files.disk import Disk


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "threads"


def opened(root: Path, **options: object) -> clew.Store:
    return clew.open(f"files:{root}", **options)


def fill(root: Path, count: int = 5) -> list[str]:
    with opened(root) as store:
        thread = store.create("t", title="Hello")
        return [thread.append("event", {"n": n}).id for n in range(count)]


def ids(store: clew.Store, thread: str = "t") -> list[str]:
    return [entry.id for entry in store.get(thread).path()]


# --- files that anybody can read ---


def test_a_thread_can_be_read_without_clew(root: Path) -> None:
    with opened(root) as store:
        thread = store.create("t")
        message = {"role": "user", "content": "Wie spät ist es? 😀 \ud800 \0"}
        thread.append("user_message", message, meta={"model": "m"})
        thread.append([clew.draft("tool_call", {"n": n}) for n in range(3)])
    header, *lines = (root / "threads" / "t.jsonl").read_text("utf-8").splitlines()
    assert json.loads(header)["format"] == "clew.thread"
    records = [json.loads(line) for line in lines]
    assert [record["seq"] for record in records] == [1, 2, 3, 4]
    assert records[0]["body"] == message
    assert records[0]["meta"] == {"model": "m"}
    assert [record.get("left", 0) for record in records] == [0, 2, 1, 0]
    assert not list((root / "blobs").iterdir())


def test_a_large_body_is_the_only_thing_outside(root: Path) -> None:
    with opened(root) as store:
        body = {"output": "the same long tool output\n" * 8000}
        for _ in range(3):
            store.create().append("tool_result", body)
        assert [e.body for info in store.threads() for e in store.get(info.id).path()] == [body] * 3
        assert store.stats().blobs == 1
    assert sum(p.stat().st_size for p in root.rglob("*.jsonl")) < 5000


@pytest.mark.parametrize(
    "id",
    ["a", "A", "con", "CON", "é", "e\u0301", ".", "..", "a/b", "x" * 512, "ä" * 200, "~", "%41"],
)
def test_an_id_never_becomes_a_path(id: str, root: Path) -> None:
    with opened(root) as store:
        store.create(id).append("event", 1)
    (file,) = (root / "threads").iterdir()
    assert len(file.name.encode()) <= 255
    assert file.stem == file.stem.lower() == file_stem(id)
    assert file.stem not in ("con", "nul", "")
    with opened(root) as store:
        assert [info.id for info in store.threads()] == [id]


# --- an end that was never acknowledged ---


def test_a_torn_end_is_set_aside_and_said(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    written = fill(root)
    file = root / "threads" / "t.jsonl"
    before = file.read_bytes()
    file.write_bytes(before + b'{"seq":7,"type":"entry","ki')
    with opened(root) as store:
        assert ids(store) == written, "readers pass it over"
        assert file.read_bytes() != before, "and leave it alone"
        with caplog.at_level(logging.WARNING, "clew"):
            store.get("t").append("event", "next")
        assert store.verify() == []
    assert file.read_bytes().startswith(before)
    assert "not whole" in caplog.text
    (cut,) = (root / "recovered").iterdir()
    assert cut.read_bytes() == b'{"seq":7,"type":"entry","ki'


def test_half_a_batch_is_no_batch(root: Path) -> None:
    written = fill(root)
    file = root / "threads" / "t.jsonl"
    with opened(root) as store:
        store.get("t").append([clew.draft("event", n) for n in range(3)])
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]))
    with opened(root) as store:
        assert ids(store) == written
        store.get("t").append("event", "next")
        assert len(ids(store)) == len(written) + 1


def test_a_missing_newline_is_completed(root: Path) -> None:
    written = fill(root)
    file = root / "threads" / "t.jsonl"
    before = file.read_bytes()
    file.write_bytes(before.removesuffix(b"\n"))
    with opened(root) as store:
        store.get("t").append("event", "next")
        assert ids(store)[:-1] == written
        assert store.verify() == []
    assert file.read_bytes().startswith(before)
    assert not list((root / "recovered").iterdir())


# --- damage ---


def test_damage_in_the_middle_names_file_line_and_record(root: Path) -> None:
    fill(root)
    with opened(root) as store:
        store.create("other").append("event", 1)
    file = root / "threads" / "t.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"n":1', b'"n":7')
    file.write_bytes(b"".join(lines))
    shutil.rmtree(root / "index")
    with opened(root) as store:
        with pytest.raises(Corrupt, match=r"t\.jsonl line 4 \(about record 3\).*clew repair"):
            store.get("t")
        with pytest.raises(Corrupt):
            store.engine.append("t", [clew.draft("event", "must not be written behind it")])
        (problem,) = store.verify()
        assert (problem.code, problem.thread, problem.seq) == ("damaged_record", "t", 3)
        assert [e.body for e in store.get("other").path()] == [1], "other threads are not affected"
    assert file.read_bytes() == b"".join(lines)


@pytest.mark.parametrize("erased", ["before", "broken", "behind"])
@pytest.mark.parametrize("known", [True, False], ids=["index", "no index"])
def test_nothing_is_erased_of_a_file_with_a_damaged_line_and_everything_after_repair(
    tmp_path: Path, erased: str, known: bool
) -> None:
    """It was erased first, and the error that hid this said only that a line is damaged."""
    root = tmp_path / "store"
    address = f"files:{root}"
    with clew.open(address) as store:
        thread = store.create("t")
        for id in ("before", "broken", "behind"):
            thread.append("note", f"this is {id}", id=id)
        fork = thread.fork(id="fork")
        fork.append("note", "in the fork", id="own")
    path = root / "threads" / "t.jsonl"
    path.write_bytes(path.read_bytes().replace(b"this is broken", b"this is Xroken"))
    damaged = path.read_bytes()
    whole = (root / "threads" / "fork.jsonl").read_bytes()
    if not known:
        shutil.rmtree(root / "index")
    with clew.open(address) as store:
        with pytest.raises(clew.Corrupt, match="run clew repair") as raised:
            store.erase("fork", ["own", erased])
        said = str(raised.value)
        assert not known or ("t.jsonl line 3" in said and "nothing was erased" in said)
        assert path.read_bytes() == damaged
        assert (root / "threads" / "fork.jsonl").read_bytes() == whole
    clew.repair(address)
    with clew.open(address) as store:
        left = {entry.id for entry in store.get("t").read() if isinstance(entry, clew.Entry)}
        assert "before" in left
        assert store.erase("t", ["before"]).left == ()


def test_a_damaged_last_record_is_not_taken_for_a_torn_one(root: Path) -> None:
    fill(root)
    file = root / "threads" / "t.jsonl"
    changed = file.read_bytes().replace(b'"n":4', b'"n":5')
    file.write_bytes(changed)
    with opened(root) as store:
        assert [problem.code for problem in store.verify()] == ["damaged_record"]
    assert file.read_bytes() == changed


@pytest.mark.parametrize("quick", [False, True])
def test_records_and_threads_that_the_index_remembers_are_missed(root: Path, quick: bool) -> None:
    fill(root)
    with opened(root) as store:
        store.create("other").append("event", 1)
        store.list()
    file = root / "threads" / "t.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    (root / "threads" / "other.jsonl").unlink()
    with opened(root) as store:
        found = {(problem.code, problem.thread) for problem in store.verify(quick=quick)}
        assert found == {("missing_records", "t"), ("missing_thread", "other")}


# --- an index that is only a cache ---


def test_the_index_can_be_deleted_at_any_time(root: Path) -> None:
    written = fill(root)
    shutil.rmtree(root / "index")
    with opened(root) as store:
        assert [info.title.text for info in store.threads()] == ["Hello"]
        shutil.rmtree(root / "index")
        store.get("t").append("event", "next")
        assert ids(store)[:-1] == written
        assert len(list(store.threads())) == 1


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100])
def test_a_damaged_index_is_made_anew(root: Path, content: bytes) -> None:
    written = fill(root)
    for file in (root / "index").glob("index.db*"):
        file.unlink()
    (root / "index" / "index.db").write_bytes(content)
    with opened(root) as store:
        assert ids(store) == written
        assert store.verify() == []
    with opened(root) as store:
        assert [info.seq for info in store.threads()] == [6]


def test_an_index_that_breaks_while_it_is_in_use_is_done_without(root: Path) -> None:
    written = fill(root)
    with opened(root) as store:
        assert ids(store) == written
        store.engine._store.index.db.execute("DROP TABLE segments")
        assert ids(store) == written
        store.get("t").append("event", "next")
        assert len(ids(store)) == len(written) + 1


def test_locks_and_index_need_not_come_along(root: Path, tmp_path: Path) -> None:
    """As after `git clone`, or a restored backup of the threads alone."""
    written = fill(root)
    moved = tmp_path / "moved"
    (moved / "threads").mkdir(parents=True)
    shutil.copy(root / "clew.json", moved)
    shutil.copy(root / "threads" / "t.jsonl", moved / "threads")
    with opened(moved) as store:
        assert ids(store) == written
        store.get("t").append("event", "next")
        assert store.verify() == []


def test_files_that_come_and_go_by_hand_are_listed_right(root: Path, tmp_path: Path) -> None:
    fill(root)
    fill(tmp_path / "elsewhere")
    with opened(tmp_path / "elsewhere") as store:
        store.fork("t", id="u").append("event", 1)
        store.create("v").append("event", 2)
    shutil.copy(tmp_path / "elsewhere" / "threads" / "v.jsonl", root / "threads")
    shutil.copy(root / "threads" / "v.jsonl", root / "threads" / "copy of v.jsonl")
    with opened(root) as store:
        assert {info.id for info in store.threads()} == {"t", "v"}
        assert [problem.code for problem in store.verify()] == ["misnamed"]
        (root / "threads" / "copy of v.jsonl").unlink()
    (root / "threads" / "t.jsonl").unlink()
    with opened(root) as store:
        assert {info.id for info in store.threads()} == {"v"}
        with pytest.raises(NotFound):
            store.get("t")


def test_another_handle_sees_what_changed_in_a_list(root: Path) -> None:
    with opened(root) as one, opened(root) as two:
        assert list(two.threads()) == []
        thread = one.create("t")
        assert [info.seq for info in two.threads()] == [0]
        for n in range(3):
            thread.append("event", n)
            assert [info.seq for info in two.threads()] == [n + 1]
        one.purge("t")
        assert list(two.threads()) == []
        with pytest.raises(NotFound):
            two.get("t")


# --- places ---


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(Unsupported, match="not empty"):
        opened(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(Unsupported, match="not a folder"):
        opened(tmp_path / "notes.txt")


def test_looking_does_not_make_a_store(root: Path) -> None:
    with pytest.raises(NotFound):
        opened(root, create=False)
    assert not root.exists()


@pytest.mark.parametrize(
    ("marker", "error"),
    [
        ('{"format":"clew.files","version":99}', FormatTooNew),
        ('{"format":"something else","version":1}', Unsupported),
        ("{", Corrupt),
    ],
)
def test_a_marker_that_is_not_ours_is_refused(
    root: Path, marker: str, error: type[Exception]
) -> None:
    fill(root)
    (root / "clew.json").write_text(marker)
    before = {p: p.read_bytes() for p in root.rglob("*") if p.is_file()}
    with pytest.raises(error):
        opened(root)
    assert {p: p.read_bytes() for p in root.rglob("*") if p.is_file()} == before


def test_everything_is_for_its_owner_alone(root: Path) -> None:
    fill(root)
    with opened(root) as store:
        store.blobs.put(b"x" * 100_000)
        store.get("t").leases.acquire("me", ttl_seconds=60)
    for path in (root, *root.rglob("*")):
        mode = stat.S_IMODE(path.stat().st_mode)
        # SQLite gives its own files the mode that the process asks for; their folder is closed.
        if path.parent.name != "index" or path.is_dir():
            assert mode == (0o700 if path.is_dir() else 0o600), path


def test_what_is_purged_is_gone_from_the_folder(root: Path) -> None:
    secret = "correct horse battery staple"
    with opened(root) as store:
        thread = store.create(secret, title=secret)
        entry = thread.append("user_message", {"content": "shared"})
        thread.append("user_message", {"content": secret})
        thread.append("user_message", {"content": [secret] * 5000})
        thread.leases.acquire(secret, ttl_seconds=60)
        store.fork(secret, at=entry.id, id="fork")
        store.list()
        store.purge(secret)
        assert [e.body["content"] for e in store.get("fork").path()] == ["shared"]
        kept = [p for p in root.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]
        # The fork says what it was forked from, and so does what is left of it; nothing else may.
        assert {p.parent.name for p in kept} <= {"threads", "purged", "index"}
        store.purge("fork")
    for path in root.rglob("*"):
        assert file_stem(secret) not in path.name
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path


# --- other writers, and limits ---


def test_waiting_for_a_stopped_writer_is_bounded(root: Path) -> None:
    fill(root)
    with opened(root, busy_seconds=0.05) as store:
        thread = store.get("t")
        holder = os.open(root / "locks" / place.anonymous("t"), os.O_RDWR)
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(Unavailable) as caught:
            thread.append("event", 1)
        assert (caught.value.retryable, caught.value.committed) == (True, False)
        os.close(holder)
        thread.append("event", 1)


def test_a_store_that_is_being_repaired_cannot_be_opened(root: Path) -> None:
    fill(root)
    holder = os.open(root / "locks" / "open", os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    with pytest.raises(Unavailable, match="repaired"):
        opened(root)
    os.close(holder)
    opened(root).close()


def test_many_threads_need_few_open_files(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_store, "OPEN_MAX", 5)
    with opened(root, durability="relaxed") as store:
        threads = [store.create(f"t{n}") for n in range(40)]
        for n in range(3):
            for thread in threads:
                thread.append("event", n)
        assert all([e.body for e in thread.path()] == [0, 1, 2] for thread in threads)
        here = [
            os.readlink(f"/proc/self/fd/{fd}")
            for fd in os.listdir("/proc/self/fd")
            if os.path.lexists(f"/proc/self/fd/{fd}")
        ]
        assert len([path for path in here if str(root) in path]) < 20
        assert store.verify() == []


class FailingDisk(Disk):
    def __init__(self) -> None:
        self.failing = False
        self.syncs = 0

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        if self.failing:
            raise OSError(5, "Input/output error")
        super().sync(descriptor)


def test_a_failed_sync_poisons_the_handle_and_a_retry_resolves(root: Path) -> None:
    disk = FailingDisk()
    store = opened(root, disk=disk)
    thread = store.create("t")
    first = thread.append("event", 1)
    draft = clew.draft("event", 2)
    disk.failing = True
    with pytest.raises(Unavailable) as caught:
        thread.append([draft])
    assert (caught.value.committed, caught.value.retryable) == (None, False)
    disk.failing = False
    for call in (lambda: thread.append("event", 3), thread.path, store.create, store.list):
        with pytest.raises(Closed, match="open the store again"):
            call()
    store.close()
    with opened(root) as again:
        assert again.verify() == []
        entry = again.get("t").append([draft])[0]
        assert again.get("t").path() == [first, entry]


def test_every_acknowledged_append_was_synced_unless_relaxed(root: Path) -> None:
    for durability, expected in (("full", True), ("relaxed", False)):
        disk = FailingDisk()
        with opened(root, durability=durability, disk=disk) as store:
            assert store.properties.durability == durability
            thread = store.create()
            before = disk.syncs
            thread.append("event", 1)
            assert (disk.syncs > before) is expected


def test_tail_follows_what_another_process_appends(root: Path) -> None:
    """A plain reader that keeps its place in the file sees whole lines, each once."""
    fill(root, 0)
    with (root / "threads" / "t.jsonl").open() as tail:
        tail.read()
        code = f"import clew; s = clew.open('files:{root}'); t = s.get('t')\n"
        code += "for n in range(20): t.append('event', n)"
        subprocess.run([sys.executable, "-c", code], check=True)
        assert [json.loads(line)["body"] for line in tail] == list(range(20))


# --- what a torn end is not ---


def test_a_hole_with_a_later_write_behind_it_is_damage(root: Path) -> None:
    """What was acknowledged after it proves that it had been on disk itself."""
    fill(root)
    with opened(root) as store:
        store.get("t").append("event", {"text": "x" * 3000})
        store.get("t").append("event", "the last one")
    file = root / "threads" / "t.jsonl"
    data = bytearray(file.read_bytes())
    hole = (data.rindex(b"x" * 3000) // 512 + 2) * 512
    data[hole : hole + 512] = bytes(512)
    file.write_bytes(data)
    shutil.rmtree(root / "index")
    with opened(root) as store:
        assert [problem.code for problem in store.verify()] == ["damaged_record", "broken_chain"]
        with pytest.raises(Corrupt, match="later write"):
            store.get("t")
    assert file.read_bytes() == data
    assert not list((root / "recovered").iterdir())


def test_a_reader_of_a_torn_end_sees_what_takes_its_place(root: Path) -> None:
    fill(root)
    file = root / "threads" / "t.jsonl"
    with opened(root) as probe:
        size = len(file.read_bytes())
        probe.get("t").append("event", "same size")
    whole = file.read_bytes()
    file.write_bytes(whole[:size] + b"?" * (len(whole) - size))
    with opened(root) as reader, opened(root) as writer:
        before = ids(reader)
        entry = writer.get("t").append("event", "same size")
        assert ids(reader) == [*before, entry.id]


def test_a_fork_whose_origin_was_exchanged_is_found(root: Path, tmp_path: Path) -> None:
    fill(root)
    with opened(root) as store:
        store.fork("t", id="f").append("event", 1)
    older = tmp_path / "older"
    fill(older, 2)
    shutil.copy(older / "threads" / "t.jsonl", root / "threads")
    shutil.rmtree(root / "index")
    with opened(root) as store:
        assert "broken_origin" in {problem.code for problem in store.verify()}


def test_purging_does_not_wait_for_somebody_who_reads_a_report(root: Path) -> None:
    fill(root)
    with opened(root, busy_seconds=0.2) as store:
        store.create("other")
        report = store.engine.check()
        next(report, None)
        store.purge("other")


def test_what_was_set_aside_of_a_thread_is_purged_with_it(root: Path) -> None:
    fill(root)
    with (root / "threads" / "t.jsonl").open("ab") as file:
        file.write(b'{"secret')
    with opened(root) as store:
        store.get("t").append("event", 1)
        assert list((root / "recovered").iterdir())
        store.purge("t")
    assert not list((root / "recovered").iterdir())


def test_leftovers_of_killed_writers_are_swept(root: Path) -> None:
    fill(root)
    leftover = root / "threads" / ".01abc.new"
    leftover.write_bytes(b"half a thread")
    with opened(root) as store:
        assert [info.id for info in store.threads()] == ["t"]
        store.sweep()
        assert leftover.exists(), "it may belong to somebody who is at work"
        store.sweep(grace_seconds=0)
    assert not leftover.exists()
