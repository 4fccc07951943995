"""What happens between two steps of a store of files: others come in, the system refuses one, or
something is gone by then."""

from __future__ import annotations

import errno
import os
import random
import shutil
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

import clew
from clew.core.engine import innermost
from clew.core.model import UNSET, Inspect
from clew.engines.files import (
    FilesEngine,
    erase,
    frames,
    journal,
    leases,
    locks,
    pack,
    place,
    verify,
)
from clew.engines.files.blobs import SPILL_BYTES, Blobs
from clew.engines.files.disk import Disk
from clew.engines.files.doctor import FilesMaintenance
from clew.engines.files.index import Index
from clew.engines.shared.group_commit import Ticket
from clew.engines.sqlite import SQLiteEngine
from clew.upkeep.repair import repair

LONG_AGO = datetime.now(UTC) - timedelta(days=9)
LARGE = "large " * (2 * SPILL_BYTES // 6)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with opened(root) as store:
        thread = store.create("t", time=LONG_AGO)
        drafts = [clew.draft("event", ["n", n], id=f"e{n}", time=LONG_AGO) for n in range(200)]
        thread.append(drafts)
        thread.fork(at="e5", id="f").append("event", "in f", id="in-f")
    return root


def opened(root: Path, **options: Any) -> clew.Store:
    return clew.open(f"files:{root}", **options)


def engine_of(store: clew.Store) -> Any:
    return innermost(store.engine)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "threads").iterdir())


def is_whole(root: Path) -> None:
    with opened(root) as store:
        assert store.verify() == []
        assert [entry.id for entry in store.get("t").path()] == [f"e{n}" for n in range(200)]


def refuse(
    patch: pytest.MonkeyPatch, name: str, what: Path, error: int, *, times: int = 1 << 30
) -> None:
    """A call of the system is refused for one path."""
    real, left = getattr(os, name), [times]

    def call(given: Any, *more: Any, **options: Any) -> Any:
        if isinstance(given, (str, os.PathLike)) and os.fspath(given) == str(what) and left[0]:
            left[0] -= 1
            raise OSError(error, os.strerror(error), str(what))
        return real(given, *more, **options)

    patch.setattr(os, name, call)


# --- packing ---


def test_a_thread_that_is_written_to_before_its_turn_is_not_packed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = pack._cold
    with opened(root) as other, opened(root) as store:

        def meddle(*arguments: Any) -> list[str]:
            found = inner(*arguments)
            other.get("t").append("event", "now", id="now")
            return found

        monkeypatch.setattr(pack, "_cold", meddle)
        assert store.pack().packs == 0
        assert names(root) == ["f.jsonl", "t.jsonl"]
        assert store.get("t").leaf == "now"


def test_a_thread_that_is_purged_as_its_turn_comes_leaves_no_draft(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = pack._draft
    with opened(root) as other, opened(root) as store:

        def meddle(*arguments: Any) -> Any:
            other.purge("t")
            return inner(*arguments)

        monkeypatch.setattr(pack, "_draft", meddle)
        assert store.pack().packs == 0
        assert names(root) == ["f.jsonl"]
        assert store.verify() == []


@pytest.mark.parametrize("wrong", ["another line", "a line too few"])
def test_what_was_not_packed_right_does_not_take_the_place_of_the_thread(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, wrong: str
) -> None:
    inner = pack.packed
    data = (root / "threads" / "t.jsonl").read_bytes()
    if wrong == "another line":
        other = data.replace(b'["n",7]', b'["n",8]')
    else:
        other = data[: data.rindex(b"\n", 0, -1) + 1]
    monkeypatch.setattr(
        pack, "packed", lambda read, size: inner(lambda at, n: other[at : at + n], len(other))
    )
    with opened(root) as store:
        assert store.pack().packs == 0
    assert "was not packed" in caplog.text
    assert names(root) == ["f.jsonl", "t.jsonl"]
    is_whole(root)


def test_a_thread_that_takes_as_many_blocks_when_it_is_packed_stays(root: Path) -> None:
    noise = "".join(random.Random(1).choices([chr(n) for n in range(35, 91)], k=7_500))
    with opened(root) as store:
        store.create("noise", time=LONG_AGO).append("event", noise, time=LONG_AGO)
        assert store.pack().packs == 1
    assert names(root) == ["f.jsonl", "noise.jsonl", "t.jsonl.zst"]


def test_a_thread_with_a_line_that_no_frame_can_hold_stays(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "FRAME_BYTES", 50)
    monkeypatch.setattr(frames, "FRAME_BYTES_MAX", 100)
    with opened(root) as store:
        assert store.pack().packs == 0
    assert names(root) == ["f.jsonl", "t.jsonl"]
    is_whole(root)


def test_a_marker_that_spells_its_version_otherwise_is_not_spoiled(root: Path) -> None:
    marker = root / "clew.json"
    marker.write_text('{"format": "clew.files", "versi\\u006fn": 1}')
    before = marker.read_bytes()
    with opened(root) as store:
        assert store.pack().packs == 0
    assert (marker.read_bytes(), names(root)) == (before, ["f.jsonl", "t.jsonl"])


def test_a_thread_that_another_writer_unpacks_first_is_unpacked_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(root) as store:
        assert store.pack().packs == 1
    with opened(root) as other, opened(root) as store:
        gate = engine_of(store)._store.gate
        inner = gate.open

        def meddle() -> AbstractContextManager[None]:
            other.get("t").append("event", "other", id="other")
            monkeypatch.setattr(gate, "open", inner)
            return inner()  # type: ignore[no-any-return]

        monkeypatch.setattr(gate, "open", meddle)
        assert store.get("t").append("event", "mine", id="mine").parent == "other"
        assert store.verify() == []
    assert names(root) == ["f.jsonl", "t.jsonl"]


def test_reads_of_the_system_that_are_short_are_gone_on_with(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pread
    for packed in (False, True):
        if packed:
            with opened(root) as store:
                assert store.pack().packs == 1
        with monkeypatch.context() as patch:
            patch.setattr(os, "pread", lambda fd, length, at: real(fd, min(length, 999), at))
            is_whole(root)


def test_a_packed_file_that_is_cut_under_its_reader_is_named(root: Path) -> None:
    with opened(root) as store:
        assert store.pack().packs == 1
    file = root / "threads" / "t.jsonl.zst"
    descriptor = os.open(file, os.O_RDONLY)
    try:
        found = frames.Frames(descriptor, str(file))
        os.truncate(file, 100)
        with pytest.raises(clew.Corrupt, match="frame 1 of 1 is damaged"):
            found.read(0, found.size)
    finally:
        os.close(descriptor)


# --- verify ---


def test_a_thread_that_is_made_meanwhile_is_not_taken_for_a_wrong_index(root: Path) -> None:
    made = []
    with opened(root) as other, opened(root) as store:

        def make(done: int, of: int) -> None:
            if not made:
                made.append(other.create("new").append("event", 1))
                other.list()

        assert list(store.engine.check(progress=make)) == []
        assert made
        assert {info.id for info in store.list().items} == {"t", "f", "new"}


def test_a_thread_that_grows_meanwhile_is_not_taken_for_a_wrong_index(root: Path) -> None:
    """The index knows more of it by then than was read."""
    grown = []
    with opened(root) as other, opened(root) as store:

        def grow(done: int, of: int) -> None:
            if done == of and not grown:
                grown.append(other.get("t").append("event", 1))
                other.list()

        assert list(store.engine.check(progress=grow)) == []
        assert grown


def test_a_thread_in_which_something_is_erased_meanwhile_is_not_taken_for_a_wrong_index(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is another one by then, and shorter than the one that was read."""
    real, erased = Blobs.strange, []
    with opened(root) as other, opened(root) as store:
        long = store.get("t").append("event", "long " * 500)

        def erase_one(blobs: Blobs) -> Any:
            """Between the last file and the index."""
            if not erased:
                erased.append(other.erase("t", [long.id]))
                other.list()
            return real(blobs)

        monkeypatch.setattr(Blobs, "strange", erase_one)
        assert list(store.engine.check()) == []
        assert erased


def test_a_fork_of_a_thread_in_which_something_is_erased_meanwhile_is_not_taken_for_damaged(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it begins lies elsewhere by then than in the file that was read first."""
    real, erased = place.Place.named, []
    with opened(root) as other, opened(root) as store:
        long = store.get("t").append("event", "long " * 500)
        last = store.get("t").append("event", "behind it")
        store.get("t").fork(at=last.id, id="z").append("event", "in z")

        def named(own: place.Place, name: str) -> str:
            if name == "z" and not erased:
                erased.append(name)
                other.erase("t", [long.id])
            return real(own, name)

        monkeypatch.setattr(place.Place, "named", named)
        assert list(store.engine.check()) == []
        assert erased


def test_an_index_that_grows_while_it_is_compared_is_not_taken_for_a_wrong_one(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers are of one moment, whatever another handle puts into it between two of them."""
    real, grown = verify._facts_of, []
    with opened(root) as other, opened(root) as store:
        store.list()

        def grow(index: Index, no: int) -> Any:
            if not grown:
                grown.append(other.get("t").set(title="meanwhile"))
                other.list()
            return real(index, no)

        monkeypatch.setattr(verify, "_facts_of", grow)
        assert list(store.engine.check()) == []
        assert grown


@pytest.mark.parametrize("meanwhile", ["erased", "read anew"])
def test_an_index_that_others_change_between_two_looks_is_not_dropped(
    root: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    """It has the places of another file by then, or has forgotten them until that is read."""
    real, changed = Index.places, []
    with opened(root) as other, opened(root) as store:
        long = store.get("t").append("event", "long " * 500)
        store.get("t").append("event", "behind it")
        store.list()
        other.list()
        index, theirs = (engine_of(one)._store.index for one in (store, other))
        epoch = index.epoch

        def places(own: Index, *more: Any, **options: Any) -> Any:
            if own is index and not changed:
                changed.append(meanwhile)
                if meanwhile == "erased":
                    other.erase("t", [long.id])
                    other.list()
                else:
                    with theirs.asked() as db:
                        no = db.execute("SELECT no FROM threads WHERE id = 't'").get
                    theirs.forget(no, file=False)
            return real(own, *more, **options)

        monkeypatch.setattr(Index, "places", places)
        records = 203 if meanwhile == "erased" else 202
        assert [one.seq for one in store.get("t").read()] == list(range(1, records + 1))
        assert changed
        assert index.epoch == epoch, "it was dropped"


def test_verify_that_may_not_open_more_files_does_not_call_a_blob_damaged(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(root) as store:
        store.create("large").append("event", LARGE)
        (blob,) = (file for file in (root / "blobs").rglob("*") if file.is_file())
        with monkeypatch.context() as patch, pytest.raises(clew.Unavailable):
            refuse_blob_late(patch, blob)
            store.verify()
        assert store.verify() == []


def refuse_blob_late(patch: pytest.MonkeyPatch, blob: Path) -> None:
    """Read with its entry it is there; on its own it cannot be opened."""
    real, opened = os.open, []

    def call(given: Any, *more: Any, **options: Any) -> Any:
        if str(given) == str(blob):
            opened.append(given)
            if len(opened) > 1:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(blob))
        return real(given, *more, **options)

    patch.setattr(os, "open", call)


def test_the_quick_form_names_a_blob_that_cannot_be_looked_for(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(root) as store:
        store.create("large").append("event", LARGE)
        (blob,) = (file for file in (root / "blobs").rglob("*") if file.is_file())
        refuse(monkeypatch, "lstat", blob, errno.EIO)
        assert {problem.code for problem in store.verify(quick=True)} == {"damaged_blob"}


# --- namespaces ---


def test_namespaces_that_cannot_be_listed_are_not_taken_for_none(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup would lack them, and verify would call a store whole that it has not looked at."""
    opened(root, namespace="one").close()
    maintenance = FilesMaintenance(root)
    assert maintenance.namespaces() == ["default", "one"]
    real = Path.iterdir

    def call(path: Path) -> Any:
        if path == root / "namespaces":
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(path)

    monkeypatch.setattr(Path, "iterdir", call)
    with pytest.raises(clew.Unavailable, match="cannot be listed"):
        list(maintenance.check())


def test_a_copy_of_a_namespace_does_not_have_the_name_of_the_first(root: Path) -> None:
    opened(root, namespace="one").close()
    shutil.copytree(root / "namespaces" / "one", root / "namespaces" / "two")
    assert place.namespaces(root)["two"] == root / "namespaces" / "two"
    with pytest.raises(clew.Corrupt, match="of namespace 'one'"):
        opened(root, namespace="two")


# --- what the system refuses ---


def test_a_room_that_may_not_be_made_is_read_only(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(root / "recovered")
    with monkeypatch.context() as patch, pytest.raises(clew.ReadOnly):
        refuse(patch, "mkdir", root / "recovered", errno.EACCES)
        opened(root)
    is_whole(root)


def test_a_marker_that_cannot_be_read_is_told_by_migrate(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, "open", root / "clew.json", errno.EIO)
    with pytest.raises(clew.Unavailable, match="store cannot be read"):
        FilesMaintenance(root).migrate(dry_run=True)


def test_a_folder_whose_marker_is_of_another_program_is_not_called_damaged(tmp_path: Path) -> None:
    (tmp_path / "clew.json").write_text('{"format": "of another", "version": 1}')
    with pytest.raises(clew.Unsupported, match="says otherwise"):
        FilesMaintenance(tmp_path).stats()
    assert [path.name for path in tmp_path.iterdir()] == ["clew.json"]


def test_another_engine_is_not_examined_as_files(tmp_path: Path) -> None:
    engine = SQLiteEngine(tmp_path / "threads.db")
    with pytest.raises(clew.Unsupported, match="SQLiteEngine is not the files engine"):
        FilesMaintenance.examine(engine)
    engine.close()


def test_what_is_no_store_gets_no_workshop(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with (
        pytest.raises(clew.Unsupported, match="is not a Clew store"),
        FilesMaintenance(tmp_path / "mine").repair(),
    ):
        pass
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_repair_that_removes_the_index_does_not_miss_one(root: Path) -> None:
    opened(root, namespace="one").close()
    indexed(root)
    shutil.rmtree(root / "namespaces" / "one" / "index")
    report = repair(f"files:{root}", reindex=True)
    assert (report.whole, report.original) == (True, None)
    assert not (root / "index").exists()
    is_whole(root)


def test_a_folder_of_marks_that_is_gone_is_made_again(root: Path) -> None:
    with opened(root) as store, opened(root) as other:
        assert {info.id for info in store.list().items} == {"t", "f"}
        shutil.rmtree(root / "index" / "changed")
        other.create("new").append("event", 1)
        assert {info.id for info in store.list().items} == {"t", "f", "new"}
        assert (root / "index" / "changed").is_dir()


# --- leases ---


def lock_of(root: Path, id: str) -> Path:
    return root / "locks" / place.anonymous(id)


def test_a_lease_that_may_not_be_read_is_not_taken_for_none(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(root) as store:
        lease = store.get("t").leases.acquire("me", ttl_seconds=60)
    with monkeypatch.context() as patch:
        refuse(patch, "open", lock_of(root, "t"), errno.EACCES)
        with opened(root, readonly=True) as store, pytest.raises(clew.Unavailable, match="leases"):
            store.engine.lease("t", Inspect())
    with opened(root, readonly=True) as store:
        assert store.get("t").leases.active() == lease


def test_the_lease_of_a_purged_thread_is_not_that_of_the_next_one(root: Path) -> None:
    """Its purge could not end it."""

    class Stuck(Disk):
        stuck = False

        def truncate(self, descriptor: int, size: int) -> None:
            if self.stuck:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().truncate(descriptor, size)

    disk = Stuck()
    engine = FilesEngine(root, disk=disk)
    with clew.Store(engine) as store:
        store.get("t").leases.acquire("me", ttl_seconds=600)
        disk.stuck = True
        store.purge("t")
        disk.stuck = False
        assert lock_of(root, "t").stat().st_size
        store.create("t").append("event", 1)
        assert store.get("t").leases.active() is None


def test_a_first_lease_whose_end_alone_was_written_was_never_given(root: Path) -> None:
    lock = lock_of(root, "t")
    front = leases.SLOT_BYTES - leases.END_BYTES
    for generation in (0, 1):
        lock.write_bytes(b"\0" * front + leases._end(generation))
        with opened(root) as store:
            assert store.get("t").leases.active() is None
            assert store.verify() == []
    lock.write_bytes(b"\0" * front + leases._end(5))
    with opened(root) as store:
        assert {problem.code for problem in store.verify()} == {"damaged_lease"}


# --- appending ---


@pytest.mark.parametrize("fails", [False, True])
def test_an_index_that_is_far_behind_is_brought_up_or_done_without(
    root: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setattr(journal, "RECENT_MAX", 5)
    with opened(root) as store:
        thread = store.get("t")
        written = engine_of(store)._store.journal("t")
        with monkeypatch.context() as patch:
            if fails:
                inner = Index.writing

                def fail(self: Index) -> Any:
                    if self.is_shared:
                        raise apsw.FullError("a test")
                    return inner(self)

                patch.setattr(Index, "writing", fail)
            for n in range(20):
                thread.append("event", n, id=f"more{n}")
        assert len(written._recent) <= 6 or fails
        assert engine_of(store)._store.index.is_shared is not fails
        assert [entry.body for entry in thread.path()][-20:] == list(range(20))
    with opened(root) as store:
        assert store.verify() == []


def test_who_was_refused_in_a_batch_that_fails_is_told_that(root: Path) -> None:
    """And not that the disk is full, as the others are."""

    class Full(Disk):
        full = False

        def write(self, descriptor: int, data: bytes) -> int:
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(descriptor, data)

    disk = Full()
    engine = FilesEngine(root, disk=disk)
    with clew.Store(engine) as store:
        log = engine._store.journal("t")
        wrong, right = (
            Ticket(
                lambda batch, id=id, expect=expect: batch.append(
                    [clew.draft("event", 1, id=id)], {}, expect, None
                )
            )
            for id, expect in (("wrong", "e0"), ("right", UNSET))
        )
        disk.full = True
        with log.mutex:
            log._transact([wrong, right])
        disk.full = False
        assert isinstance(wrong.error, clew.Conflict)
        assert isinstance(right.error, clew.Unavailable)
        assert store.get("t").leaf == "e199"


# --- erasing ---


def test_only_the_entry_itself_is_erased_and_not_what_speaks_of_it(root: Path) -> None:
    with opened(root) as store:
        thread = store.get("t")
        thread.append("event", {"id": "e7"}, id="speaks")
        thread.set(about={"id": "e7"})
        thread.erase("e7")
        assert thread.get("e7").erased_at is not None
        assert thread.get("speaks").body == {"id": "e7"}
        assert thread.facts["about"] == {"id": "e7"}
        assert store.verify() == []


@pytest.mark.parametrize("id", ["t", "absent"])
def test_an_entry_that_is_not_there_cannot_be_erased(root: Path, id: str) -> None:
    """The id of the thread stands in the first line of its file."""
    with opened(root) as store, pytest.raises(clew.NotFound):
        store.get("t").erase(id)
    is_whole(root)


def test_those_who_wait_are_told_of_an_erasure(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    with opened(root) as store:
        shared = engine_of(store)._store
        monkeypatch.setattr(shared, "notify", lambda: told.append(store.get("t").info.seq))
        before = store.get("t").info.seq
        monkeypatch.setattr(shared, "waiting", 1)
        store.engine.erase("t", ["e7"], time_us=store.clock(), reason=None)
    assert told == [before + 1]


def test_an_erasure_that_could_not_clear_up_says_that_it_happened(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with opened(root) as store:
        with monkeypatch.context() as patch:
            patch.setattr(erase, "remove_cuts", fail)
            with pytest.raises(clew.Unavailable, match="were erased") as caught:
                store.engine.erase("t", ["e7"], time_us=store.clock(), reason=None)
        assert caught.value.committed is True
        assert store.get("t").get("e7").erased_at is not None
        assert store.verify() == []


def test_a_reader_beside_an_erasure_reads_what_is_there_then(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The places that it got from the index are those of the new file, and its file is the old."""
    inner, done = Index.places, []
    with opened(root) as other, opened(root) as store:
        index = engine_of(store)._store.index
        assert len(store.engine.read("t")) == 200

        def meddle(self: Index, *arguments: Any, **options: Any) -> Any:
            if self is index and not done:
                done.append(other.get("t").erase("e7"))
            return inner(self, *arguments, **options)

        monkeypatch.setattr(Index, "places", meddle)
        records = store.engine.read("t")
        assert done
        assert [record.id for record in records[:200]] == [f"e{n}" for n in range(200)]
        assert records[7].tombstone is not None
        assert index.is_shared
    with opened(root) as store:
        assert store.verify() == []


# --- the index ---


def tamper(root: Path, sql: str, *more: Any) -> None:
    db = apsw.Connection(str(root / "index" / "index.db"))
    db.execute(sql, more)
    db.close()


def indexed(root: Path) -> None:
    with opened(root) as store:
        store.list()
        store.get("t").path()
        store.get("f").path()


def test_a_record_that_the_index_lacks_is_read_all_the_same(root: Path) -> None:
    indexed(root)
    tamper(root, "DELETE FROM records WHERE id = 'e50'")
    with opened(root) as store:
        assert len([r for r in store.engine.read("t") if r.id.startswith("e")]) == 200


def test_a_thread_that_the_index_lacks_is_read_all_the_same(root: Path) -> None:
    indexed(root)
    tamper(root, "DELETE FROM threads WHERE id = 't'")
    with opened(root) as store:
        assert [entry.id for entry in store.get("f").path()][-2:] == ["e5", "in-f"]


def test_an_index_that_has_more_of_a_file_than_it_says_is_made_anew(root: Path) -> None:
    indexed(root)
    lines = (root / "threads" / "t.jsonl").read_bytes().splitlines(keepends=True)
    # All of one write: where the first record of it ends, no whole one does.
    at = len(b"".join(lines[:1]))
    last = b"".join(lines[:1])[-32:]
    tamper(root, "UPDATE files SET size = ?, last = ? WHERE name = 't'", at, last)
    tamper(root, "UPDATE threads SET seq = 0 WHERE id = 't'")
    with opened(root) as store:
        assert len(store.get("t").path()) == 200
    is_whole(root)


def test_an_entry_that_the_index_alone_has_is_not_erased(root: Path) -> None:
    indexed(root)
    tamper(root, "UPDATE records SET id = 'ghost' WHERE id = 'e50'")
    with opened(root) as store:
        with pytest.raises(clew.NotFound):
            store.engine.erase("t", ["ghost"], time_us=store.clock(), reason=None)
        store.get("t").erase("e50")
        assert store.verify() == []


def test_an_index_that_finds_another_record_under_an_id_is_not_believed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a branch in a fork, whose entries lie in another file."""
    inner, wrong = Index.locate, []

    def locate(self: Index, no: int, id: str) -> int | None:
        place = inner(self, no, id)
        if place is None or id != "e3" or wrong:
            return place
        wrong.append(place)
        return place + 1

    indexed(root)
    with opened(root) as store:
        monkeypatch.setattr(Index, "locate", locate)
        store.get("f").move("e3")
        assert wrong
        assert [entry.id for entry in store.get("f").path()][-1] == "e3"


def test_an_index_that_fails_again_when_it_was_made_anew_is_done_without(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = Index.asked

    def asked(self: Index) -> Any:
        if self.is_shared:
            raise apsw.CorruptError("a test")
        return inner(self)

    with monkeypatch.context() as patch:
        patch.setattr(Index, "asked", asked)
        with opened(root) as store:
            assert store.get("t").append("event", 1, id="e200").parent == "e199"
            assert len(store.get("t").path()) == 201
            assert not engine_of(store)._store.index.is_shared
    with opened(root) as store:
        assert store.verify() == []


@pytest.mark.parametrize("seen", [True, False])
def test_a_lock_that_is_a_link_is_refused(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    """Also one that was none when it was looked at."""
    if not seen:
        monkeypatch.setattr(locks, "refuse_special", lambda path: None)
    lock_of(root, "t").unlink()
    (tmp_path / "elsewhere").write_bytes(b"mine")
    lock_of(root, "t").symlink_to(tmp_path / "elsewhere")
    with opened(root) as store, pytest.raises(clew.Unsupported, match="must be a file"):
        store.get("t").append("event", 1)
    assert (tmp_path / "elsewhere").read_bytes() == b"mine"
