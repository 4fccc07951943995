"""The index in a file: damage, foreign files, purges, read-only stores, processes, forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import clew
from clew.core.text_index import Filter, Words
from clew.engines.shared import full_text
from clew.messages.incoming import message_draft
from clew.search import catch_up
from clew.store import Store

ADDRESSES = ("sqlite", "files")


@pytest.fixture(params=ADDRESSES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:{tmp_path}/threads"


def fill(store: Store, words: str = "heron okapi zebra", threads: int = 3) -> None:
    for n in range(threads):
        said = [{"role": "user", "content": f"{words} {n} {m}"} for m in range(10)]
        store.create(f"t{n}").append([message_draft(message, "plain") for message in said])


def index_file(store: Store) -> Path:
    place = store.properties.text_index_place
    assert place is not None
    return Path(place)


def indexed(address: str) -> Path:
    """A store that was filled and searched; where its index is."""
    with clew.open(address) as store:
        fill(store)
        assert store.search("heron").total == 30
        return index_file(store)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for place in range(4096, len(data), 512):
        data[place : place + 64] = os.urandom(64)
    path.write_bytes(bytes(data))


def with_sql(sql: str) -> Callable[[Path], None]:
    def run(path: Path) -> None:
        db = apsw.Connection(str(path))
        db.execute(sql)
        db.close()

    return run


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[str, Callable[[Path], None]] = {
    "cut": cut,
    "garbled": garble,
    "no database": lambda path: path.write_bytes(b"no database" * 1000) and None,
    "another version": with_sql("PRAGMA user_version = 77"),
    "not one of ours": with_sql("PRAGMA application_id = 77"),
    "a trigger": with_sql(
        "CREATE TRIGGER evil AFTER INSERT ON documents BEGIN DELETE FROM threads; END"
    ),
    "a view": with_sql("CREATE VIEW evil AS SELECT 1"),
    "a table is missing": with_sql("DROP TABLE marks"),
    "a folder": to_folder,
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_or_foreign_index_is_made_anew_and_that_is_said(
    address: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = indexed(address)
    DAMAGE[kind](path)
    with clew.open(address) as store:
        page = store.search("heron")
        assert (page.total, len(page.items)) == (30, 20)
        assert any("made anew" in note for note in page.notes)
        assert any("made anew" in record.getMessage() for record in caplog.records)
        assert store.search("heron").notes == ()


def test_a_journal_beside_the_index_is_not_carried_out(address: str) -> None:
    path = indexed(address)
    path.with_name(path.name + "-journal").write_bytes(b"whatever it says")
    with clew.open(address) as store:
        assert store.search("heron").total == 30
    assert not path.with_name(path.name + "-journal").exists()


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_link_is_not_followed(address: str, tmp_path: Path, what: str) -> None:
    path = indexed(address)
    victim = tmp_path / "victim"
    if what == "file":
        victim.write_text("mine")
        path.unlink()
        path.symlink_to(victim)
    else:
        victim.mkdir()
        for file in path.parent.iterdir():
            file.unlink()
        path.parent.rmdir()
        path.parent.symlink_to(victim)
    with clew.open(address) as store:
        assert store.search("heron").total == 30
    assert victim.read_text() == "mine" if what == "file" else not list(victim.iterdir())
    assert not path.is_symlink()
    assert not path.parent.is_symlink()


def test_the_index_is_private(address: str) -> None:
    path = indexed(address)
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_an_index_that_was_begun_is_finished(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after kill -9: what was committed stays, the rest is read."""
    with clew.open(address) as store:
        fill(store, threads=20)
        monkeypatch.setattr(catch_up, "_BATCH_DOCUMENTS", 5)
        seen = 0

        def stop(done: int, total: int) -> None:
            nonlocal seen
            seen = done
            if done > 60:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.search("heron", progress=stop)
    with clew.open(address) as store:
        read: list[int] = []
        page = store.search("heron", progress=lambda done, total: read.append(total))
        assert page.total == 200
        assert page.notes == ()
        assert 0 < read[0] < 200


_SEARCHER = """
import sys, clew
from clew.messages.incoming import message_draft
from clew.search import catch_up
catch_up._BATCH_DOCUMENTS = 5
with clew.open(sys.argv[1]) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    print(store.search("heron").total, flush=True)
"""


def searcher(address: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _SEARCHER, address]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_processes_that_search_at_once_index_each_entry_once(address: str) -> None:
    with clew.open(address) as store:
        fill(store, threads=30)
    crew = [searcher(address) for _ in range(3)]
    for process in crew:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in crew:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    totals = [process.communicate()[0].strip() for process in crew]
    with clew.open(address) as store:
        assert store.search("heron").total == 300
    assert all(0 < int(total) <= 300 for total in totals)


def test_a_killed_searcher_leaves_a_usable_index(address: str) -> None:
    with clew.open(address) as store:
        fill(store, threads=30)
        path = index_file(store)
    process = searcher(address)
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    while not (path.exists() and path.with_name(path.name + "-wal").exists()):
        if process.poll() is not None:
            break
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with clew.open(address) as store:
        page = store.search("heron")
        assert (page.total, page.notes) == (300, ())


def test_a_purged_word_is_gone_from_the_files_of_the_index(address: str) -> None:
    with clew.open(address) as store:
        fill(store)
        thread = store.create("secret")
        thread.append_message({"role": "user", "content": "the password is xyzzyplugh"})
        assert store.search("xyzzyplugh").total == 1
        folder = index_file(store).parent
        assert b"xyzzyplugh" in everything(folder)
        store.purge("secret")
        assert b"xyzzyplugh" not in everything(folder)
        assert store.search("heron").total == 30
    assert b"xyzzyplugh" not in everything(folder)


def test_a_purge_by_a_process_that_never_searched_takes_the_words_too(address: str) -> None:
    path = indexed(address)
    with clew.open(address) as store:
        thread = store.create("secret")
        thread.append_message({"role": "user", "content": "xyzzyplugh"})
        store.search("xyzzyplugh")
    with clew.open(address) as store:
        store.purge("secret")
    assert b"xyzzyplugh" not in everything(path.parent)


def test_a_cleanup_takes_the_words_too(address: str) -> None:
    path = indexed(address)
    with clew.open(address) as store:
        assert b"okapi" in everything(path.parent)
        report = store.cleanup(older_than=store.now())
        assert len(report.purged) == 3
    assert b"okapi" not in everything(path.parent)


def everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file())


def test_no_index_is_made_by_a_purge(address: str) -> None:
    with clew.open(address) as store:
        fill(store)
        store.purge("t0")
        assert not index_file(store).exists()


def test_an_append_does_not_touch_the_index(address: str) -> None:
    path = indexed(address)
    before = everything(path.parent)
    with clew.open(address) as store:
        store.get("t0").append_message({"role": "user", "content": "more"})
    assert everything(path.parent) == before


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


@pytest.mark.parametrize(
    "index", ["none", "fresh", "stale", "damaged", "logged", "other", "folder"]
)
def test_a_store_that_is_only_looked_at_is_searched_and_left_alone(
    address: str, tmp_path: Path, index: str
) -> None:
    path = indexed(address)
    if index == "none":
        path.unlink()
    elif index == "damaged":
        garble(path)
    elif index == "logged":
        path.with_name(path.name + "-wal").write_bytes(b"what another process is writing")
    elif index == "other":
        DAMAGE["another version"](path)
    elif index == "folder":
        to_folder(path)
    elif index == "stale":
        with clew.open(address) as store:
            store.get("t0").append_message({"role": "user", "content": "heron again"})
    before = listing(tmp_path)
    with clew.open(address, readonly=True) as store:
        assert store.search("heron").total == (31 if index == "stale" else 30)
        assert store.search("zebra 2 9").total == 1
    assert listing(tmp_path) == before


def test_a_namespace_has_an_index_of_its_own(address: str) -> None:
    path = indexed(address)
    with clew.open(address, namespace="acme/../x") as store:
        assert store.search("heron").total == 0
        store.create("t").append_message({"role": "user", "content": "only acme: gnu"})
        assert store.search("gnu").total == 1
        assert index_file(store) != path
    with clew.open(address) as store:
        assert store.search("gnu").total == 0


def test_a_handle_follows_an_index_that_another_one_made_anew(address: str) -> None:
    indexed(address)
    with clew.open(address) as one, clew.open(address) as other:
        assert one.search("heron").total == other.search("heron").total == 30
        assert one.reindex() == 30
        one.create("new").append_message({"role": "user", "content": "heron"})
        assert other.search("heron").total == 31
        assert one.search("heron").total == 31


def test_a_store_that_was_put_back_and_went_another_way_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    with clew.open(path) as store:
        fill(store, threads=1)
    backup = path.read_bytes()
    with clew.open(path) as store:
        store.get("t0").append_message({"role": "user", "content": "lost gnu"})
        assert store.search("gnu").total == 1
    path.write_bytes(backup)
    with clew.open(path) as store:
        for _ in range(2):
            store.get("t0").append_message({"role": "user", "content": "another lynx"})
        assert store.search("lynx").total == 2
        assert not store.search("gnu").items


def test_a_forked_process_searches_on(address: str) -> None:
    with clew.open(address) as store:
        fill(store)
        assert store.search("heron").total == 30
        child = os.fork()
        if child == 0:
            found = store.search("heron").total
            os._exit(0 if found == 30 else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert store.search("heron").total == 30


def test_an_index_in_memory_is_searched_on_in_a_forked_process() -> None:
    with clew.open("memory:") as store:
        fill(store)
        assert store.search("heron").total == 30
        child = os.fork()
        if child == 0:
            os._exit(0 if store.search("heron").total == 30 else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_a_folder_that_may_not_be_written_gives_an_index_in_memory(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(place: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(full_text, "_prepare", refuse)
    with clew.open(address) as store:
        fill(store)
        assert store.search("heron").total == 30
        assert not index_file(store).exists()


def test_repair_with_reindex_drops_the_index(address: str) -> None:
    path = indexed(address)
    clew.repair(address, reindex=True)
    assert not path.exists()
    with clew.open(address) as store:
        assert store.search("heron").total == 30


def test_a_snapshot_of_the_folder_leaves_the_index_out(tmp_path: Path) -> None:
    with clew.open(tmp_path / "threads.db") as store:
        fill(store)
        store.search("heron")
        snapshot = store.get("t0").snapshots.take(tmp_path)
        assert snapshot.files == 0


# --- trouble that passes, and trouble that does not ---


def test_an_index_that_is_in_use_for_too_long_is_kept_and_that_is_said(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = indexed(address)
    monkeypatch.setattr(full_text, "BUSY_SECONDS", 0.05)
    other = apsw.Connection(str(path))
    with clew.open(address) as store:
        assert store.search("heron").total == 30
        store.get("t0").append_message({"role": "user", "content": "heron"})
        other.execute("BEGIN IMMEDIATE")
        page = store.search("heron")
        assert page.total == 30
        assert any("cannot be used now" in note for note in page.notes)
        other.execute("ROLLBACK")
        assert store.search("heron").total == 31
        assert store.search("heron").notes == ()
    other.pragma("journal_mode", "delete")  # so that a reader has to wait, too
    other.execute("BEGIN EXCLUSIVE")
    with clew.open(address) as store:
        with pytest.raises(clew.Unavailable, match="cannot be opened now"):
            store.search("heron")
        other.close()
        page = store.search("heron")
        assert (page.total, page.notes) == (31, ())


def test_a_purge_says_so_if_words_may_stay_in_an_index_that_it_may_not_open(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed(address)

    def refuse(place: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(full_text, "_prepare", refuse)
    with clew.open(address) as store:
        with pytest.raises(clew.Unavailable, match="may hold words") as raised:
            store.purge("t0")
        assert raised.value.committed is True
        assert store.find("t0") is None


def test_a_purge_that_cannot_reach_the_index_in_time_says_what_is_done_and_what_is_not(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = indexed(address)
    monkeypatch.setattr(full_text, "BUSY_SECONDS", 0.05)
    with clew.open(address) as store, closing(apsw.Connection(str(path))) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(clew.Unavailable, match="was removed, but words of it") as raised:
            store.purge("t0")
        assert (raised.value.committed, raised.value.retryable) == (True, True)
        assert store.find("t0") is None
        other.execute("ROLLBACK")
        store.search("heron")
        assert other.execute("SELECT count(*) FROM threads WHERE id = 't0'").get == 0


def test_an_index_that_cannot_be_put_in_order_now_is_searched_all_the_same(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(index: full_text.FullText) -> None:
        raise clew.Unavailable("the search index cannot be used now: database is locked")

    monkeypatch.setattr(full_text.FullText, "settle", busy)
    monkeypatch.setattr(catch_up, "_MANY", 1)
    with clew.open(address) as store:
        fill(store)
        assert store.search("heron").total == 30


def test_a_damaged_index_that_may_not_be_removed_is_left_and_one_in_memory_is_used(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = indexed(address)
    path.write_bytes(b"no database" * 1000)
    before = path.read_bytes()
    unlink = os.unlink

    def refuse(given: str, **more: int | None) -> None:
        if os.fspath(given).startswith(str(path)):
            raise PermissionError(13, "Permission denied", given)
        unlink(given, **more)

    monkeypatch.setattr(os, "unlink", refuse)
    with clew.open(address) as store:
        assert store.search("heron").total == 30
    assert path.read_bytes() == before


def test_an_index_that_somebody_deleted_meanwhile_is_made_again(address: str) -> None:
    path = indexed(address)
    with clew.open(address) as store:
        assert store.search("heron").total == 30
        for left in path.parent.glob(f"{path.name}*"):
            left.unlink()
        assert store.search("heron").total == 30
    assert path.exists()


def test_an_interrupt_while_words_are_written_leaves_none_of_that_batch(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed(address)
    with clew.open(address) as store:
        store.get("t0").append_message({"role": "user", "content": "gnu"})
        add = full_text.postings.add

        def interrupted(*given: object) -> None:
            add(*given)  # type: ignore[arg-type]
            raise KeyboardInterrupt

        monkeypatch.setattr(full_text.postings, "add", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.search("gnu")
        monkeypatch.setattr(full_text.postings, "add", add)
        page = store.search("gnu")
        assert (page.total, page.notes) == (1, ())


def test_of_very_many_matches_those_that_were_read_last_are_ranked(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_text, "RANKED_MAX", 2)
    with clew.open(address) as store:
        for id, words in (("first", "heron"), ("then", "heron and more"), ("last", "a heron")):
            store.create(id).append_message({"role": "user", "content": words})
            store.search("heron")
        index, _ = store.searcher.ready()
        found = index.search(Words(("heron",)), Filter(), limit=2)
        assert found.total == 3
        assert {one.thread for one in found.candidates} == {"then", "last"}


def test_room_in_an_index_is_given_back_when_it_settles(address: str) -> None:
    with clew.open(address) as store:
        fill(store, " ".join(f"word{n}" for n in range(1000)))
        index, _ = store.searcher.ready()
        size = index.size_bytes()
        index.remove(["t0", "t1", "t2"])
        index.settle()
        assert index.size_bytes() < size


def test_a_closed_index_is_closed_and_one_in_memory_has_no_file_to_remove(tmp_path: Path) -> None:
    index = full_text.open_full_text(None, None, 1, readonly=False, existing=False)
    assert index is not None
    index.clear()
    index.remove(["unknown"])
    index.settle()
    assert index.known() == {}
    index.close()
    with pytest.raises(clew.Closed):
        index.known()
    assert list(tmp_path.iterdir()) == []


def test_damage_of_an_index_in_memory_is_said_and_it_is_made_anew() -> None:
    index = full_text.FullText(None, 1)
    with pytest.raises(clew.Corrupt), index._using() as db:
        db.execute("SELECT * FROM nothing")
    assert index.rebuilt is not None
    assert "in memory" in index.rebuilt
    assert index.known() == {}
    index.close()


def test_an_index_that_is_only_looked_at_and_replaced_meanwhile_tells_nothing(
    address: str, tmp_path: Path
) -> None:
    path = indexed(address)
    with clew.open(address) as store:
        version = store.searcher.ready()[0]._version  # type: ignore[attr-defined]
    view = full_text.FullText(str(path), version, readonly=True)
    assert len(view.known()) == 3
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    with pytest.raises(clew.Corrupt, match="while it was read"), view._using():
        copy.rename(path)
    view.close()
