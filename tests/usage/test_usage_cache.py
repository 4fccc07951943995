"""The cache: it reads only what is new, and nothing that happens to it changes a number."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from replies_support import anthropic

import clew
from clew import derived
from clew.store import Store
from clew.usage import cache


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return tmp_path / "caches" / "clew" / "usage"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "threads.db"


@pytest.fixture
def durable(file: Path) -> Iterator[Store]:
    with clew.open(file) as store:
        for number in range(5):
            thread = store.create(f"t{number}")
            for reply in range(3):
                thread.append_response(anthropic(f"msg_{number}_{reply}"))
        yield store


def only(caches: Path) -> Path:
    (file,) = caches.glob("*.db")
    return file


class Reads:
    """What is read of a store's records."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.records = 0
        read = store.engine.read

        def counting(thread: str, **options: Any) -> Any:
            found = read(thread, **options)
            self.records += len(found)
            return found

        monkeypatch.setattr(store.engine, "read", counting)

    def take(self) -> int:
        taken, self.records = self.records, 0
        return taken


def test_asking_again_reads_what_is_new(
    durable: Store, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with clew.open(file) as other:
        assert other.usage().total.replies == 15
    reads = Reads(durable, monkeypatch)
    assert durable.usage().total.replies == 15
    assert reads.take() == 1  # of the thread that tells whether it is the same store
    durable.get("t3").append_response(anthropic("msg_new"))
    assert durable.usage().total.replies == 16
    # That one, the record that was read last in the thread, the message, its usage.
    assert reads.take() == 4


def test_what_is_added_waits_in_a_short_log_for_a_later_question_to_sync(
    durable: Store, file: Path, caches: Path
) -> None:
    durable.usage()
    tables = only(caches)
    before = tables.read_bytes()
    durable.get("t3").append_response(anthropic("msg_new"))
    assert durable.usage().total.replies == 16
    assert tables.read_bytes() == before  # so nothing of it was synced
    with clew.open(file) as other:
        assert other.usage().total.replies == 16  # and it is there all the same
    for number in range(40):
        durable.get("t3").append_response(anthropic(f"msg_later_{number}"))
        assert durable.usage().total.replies == 17 + number
        assert sum(found.stat().st_size for found in caches.glob("*-wal")) <= 300_000
    assert tables.read_bytes() != before  # the log became too long, and was taken in


def test_a_log_whose_tables_were_deleted_tells_nothing(durable: Store, caches: Path) -> None:
    durable.usage()
    durable.get("t3").append_response(anthropic("msg_new"))
    assert durable.usage().total.replies == 16
    assert [found.stat().st_size > 0 for found in caches.glob("*-wal")] == [True]
    only(caches).unlink()
    assert durable.usage().total.replies == 16
    durable.get("t3").append_response(anthropic("msg_newer"))
    assert durable.usage().total.replies == 17


def test_what_was_removed_elsewhere_is_gone_from_the_file_after_the_next_question(
    durable: Store, file: Path, caches: Path
) -> None:
    secret = "the-name-of-a-project"
    durable.create(secret).append_response(anthropic("msg_secret"))
    assert durable.usage().total.replies == 16
    durable.get("t3").append_response(anthropic("msg_new"))
    assert durable.usage().total.replies == 17
    with clew.open(file) as other:
        other.engine.purge(secret)  # as an older release does, which knows of no cache
    assert durable.usage().total.replies == 16
    held = b"".join(found.read_bytes() for found in caches.iterdir())
    assert secret.encode() not in held


def test_a_store_in_memory_is_read_once_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    with clew.open("memory:") as store:
        thread = store.create("t")
        for number in range(10):
            thread.append_response(anthropic(f"msg_{number}"))
        reads = Reads(store, monkeypatch)
        store.usage()
        assert reads.take() == 20
        store.usage()
        assert reads.take() <= 1


def test_the_cache_is_the_users_own_and_lies_not_in_the_store(
    durable: Store, caches: Path, file: Path
) -> None:
    before = {path.name for path in file.parent.iterdir()} | {"caches"}
    durable.usage()
    assert {path.name for path in file.parent.iterdir()} == before
    assert caches.stat().st_mode & 0o777 == 0o700


def garbage(file: Path) -> None:
    file.write_bytes(b"This is no database. " * 500)


def torn(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flipped(file: Path) -> None:
    data = bytearray(file.read_bytes())
    for at in range(100, len(data), 97):
        data[at] ^= 0xFF
    file.write_bytes(data)


def of_another_version(file: Path) -> None:
    with apsw.Connection(str(file)) as db:
        db.pragma("user_version", 1)
    db.close()


def without_a_table(file: Path) -> None:
    with apsw.Connection(str(file)) as db:
        db.execute("DROP TABLE sums")
    db.close()


def without_sense(file: Path) -> None:
    with apsw.Connection(str(file)) as db:
        db.execute("UPDATE threads SET progress = x'ffff'")
    db.close()


@pytest.mark.parametrize(
    "harm", [garbage, torn, flipped, of_another_version, without_a_table, without_sense]
)
def test_a_cache_that_is_damaged_is_made_anew_and_that_is_said(
    durable: Store, caches: Path, harm: Any, caplog: pytest.LogCaptureFixture
) -> None:
    expected = durable.usage(by="thread")
    for ending in ("-wal", "-shm"):
        Path(f"{only(caches)}{ending}").unlink(missing_ok=True)
    harm(only(caches))
    durable.get("t0").append("label", {"name": "so that a thread is read on"})
    with caplog.at_level(logging.WARNING, "clew"):
        assert durable.usage(by="thread") == expected
    assert "made anew" in caplog.text
    caplog.clear()
    assert durable.usage(by="thread") == expected
    assert not caplog.text


def test_a_cache_that_cannot_be_written_is_no_error(
    durable: Store, caches: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caches.parent.mkdir(parents=True)
    caches.write_text("a file where the folder should be")
    assert durable.usage().total.replies == 15
    assert "without the cache" in caplog.text
    durable.get("t0").append_response(anthropic("msg_new"))
    assert durable.usage().total.replies == 16


def test_a_user_without_a_home_has_no_cache(
    durable: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived, "cache_folder", lambda: None)
    assert durable.usage().total.replies == 15
    assert durable.usage().total.replies == 15


def test_another_store_in_the_same_place_is_not_taken_for_the_first(
    file: Path, tmp_path: Path
) -> None:
    """With threads of the same ids, the same births and as many records."""
    for input_tokens in (100, 7):
        with clew.open(file) as store:
            body = anthropic("msg_1", input_tokens=input_tokens)
            store.create("t").append_message(body, format="anthropic")
            assert store.usage().total.tokens.input == input_tokens
        for one in tmp_path.glob("threads.db*"):
            one.unlink()


def test_a_store_that_was_put_back_to_an_older_backup_forgets_what_came_after(
    file: Path, tmp_path: Path
) -> None:
    with clew.open(file) as store:
        thread = store.create("t")
        thread.append_response(anthropic("msg_1"))
    backup = file.read_bytes()
    with clew.open(file) as store:
        store.get("t").append_response(anthropic("msg_2"))
        assert store.usage().total.replies == 2
    file.write_bytes(backup)
    with clew.open(file) as store:
        assert store.usage().total.replies == 1
        store.get("t").append_response(anthropic("msg_3"))
        store.get("t").append_response(anthropic("msg_4"))
        assert store.usage().total.replies == 3


def test_threads_that_ask_at_once_get_the_same(durable: Store) -> None:
    found: list[int] = []

    def ask() -> None:
        found.append(durable.usage().total.replies)

    asking = [threading.Thread(target=ask) for _ in range(8)]
    for one in asking:
        one.start()
    for one in asking:
        one.join()
    assert found == [15] * 8


def _ask(file: str, caches: str, writes: bool, out: Any) -> None:
    os.environ["XDG_CACHE_HOME"] = caches
    with clew.open(file) as store:
        for number in range(5):
            if writes:
                store.get("t0").append_response(anthropic(f"msg_{os.getpid()}_{number}"))
            store.usage(by="thread")
        out.put(store.usage().total.replies)


def test_processes_that_ask_and_write_at_once_do_not_harm_it(
    durable: Store, file: Path, caches: Path
) -> None:
    spawn = multiprocessing.get_context("spawn")
    out = spawn.Queue()
    home = str(caches.parent.parent)
    asking = [
        spawn.Process(target=_ask, args=(str(file), home, number < 2, out)) for number in range(4)
    ]
    for one in asking:
        one.start()
    for one in asking:
        one.join()
        assert one.exitcode == 0
    assert durable.usage().total.replies == 25
    rows = durable.usage(by="thread").rows
    assert sum(row.used.replies for row in rows) == 25


KILLED = """
import os, signal, sys
from clew.usage import cache
import clew
cache._STEP = 5
writes = int(sys.argv[2])
write = cache._write
def dying(*given):
    global writes
    write(*given)
    writes -= 1
    if not writes:
        os.kill(os.getpid(), signal.SIGKILL)
cache._write = dying
with clew.open(sys.argv[1]) as store:
    store.usage()
"""


@pytest.mark.parametrize("writes", [1, 3])
def test_a_process_that_dies_while_it_catches_up_leaves_what_it_had(
    durable: Store, file: Path, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = subprocess.run([sys.executable, "-c", KILLED, file, str(writes)], check=False)
    assert died.returncode == -signal.SIGKILL
    reads = Reads(durable, monkeypatch)
    report = durable.usage(by="thread")
    assert report.total.replies == 15
    assert [row.used.replies for row in report.rows] == [3] * 5
    assert reads.take() < 30  # what was committed is not read again


def test_a_long_thread_is_written_down_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_STEP", 5)
    monkeypatch.setattr(cache, "_PAGE", 7)
    with clew.open("memory:") as store:
        thread = store.create("t")
        for number in range(50):
            thread.append_message(anthropic(f"msg_{number}"), format="anthropic")
        assert store.usage().total.replies == 50
        for number in range(50, 60):
            thread.append_message(anthropic(f"msg_{number}"), format="anthropic")
        assert store.usage().total.replies == 60


def test_many_new_threads_are_known_from_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_LISTED_MIN", 3)
    monkeypatch.setattr(cache, "PAGE_MAX", 2)
    with clew.open("memory:") as store:
        store.create("root")
        for number in range(7):
            child = store.create(f"t{number}", parent="root", facts={"archived": number % 2 == 0})
            child.append_response(anthropic(f"msg_{number}"))
        store.delete("t3")
        assert store.usage("root", tree=True).total.replies == 7


def test_progress_is_told_in_threads(durable: Store) -> None:
    told: list[tuple[int, int]] = []
    durable.usage(progress=lambda done, total: told.append((done, total)))
    assert told == [(number, 5) for number in range(5)]
