"""A server that dies at COMMIT has perhaps committed: whoever asked is told so, or waits for it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from amounts import pairs, sample
from crews import Open
from servers.cluster import Cluster
from servers.processes import wait_until
from servers.proxy import Marker, Proxy, error_message

import clew
from clew.core.codec import digest
from clew.core.errors import ClewError
from clew.core.model import Acquire, Renew
from clew.engines.postgres.address import parse
from clew.engines.postgres.migrate import attached

LARGE = {"text": "large " * 4000}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

# How a server's last words look: its disk failed or is full, or it met what cannot be.
LAST_WORDS = {
    "the log could not be synced": ("PANIC", "58030"),
    "the log's disk is full": ("PANIC", "53100"),
    "an internal error": ("PANIC", "XX000"),
    "damage": ("PANIC", "XX001"),
    "an administrator": ("FATAL", "57P01"),
    "a time-out of the server": ("FATAL", "57P05"),
    "a state that Clew does not know": ("FATAL", "99999"),
    "what a server says before it takes clients": ("FATAL", "57P03"),
    "what a server says that has too many": ("FATAL", "53300"),
    "what a standby says": ("FATAL", "25006"),
    "a commit that the server knows nothing of": ("ERROR", "40003"),
}
dying = pytest.mark.parametrize("words", LAST_WORDS)


def last_words(name: str) -> bytes:
    return error_message(*LAST_WORDS[name], "this is the end")


def is_large_blob(message: bytes) -> bool:
    name = digest(b"blob" * 10_000)[3:]
    return name.encode() in message or bytes.fromhex(name) in message


# What writes, and what its message to the server can be told by.
WRITES: dict[str, tuple[Marker, Callable[[clew.Store], Any]]] = {
    "append": (b"the-entry", lambda s: s.get("t").append("event", 1, id="the-entry")),
    "large append": (b"the-entry", lambda s: s.get("t").append("event", LARGE, id="the-entry")),
    "facts": (b"the-status", lambda s: s.get("t").set(status="the-status")),
    "move": (b"the-move", lambda s: s.get("t").move(None, id="the-move")),
    "create": (b"the-thread", lambda s: s.create("the-thread", tags=["x"], time=NOON)),
    "fork": (b"the-fork", lambda s: s.fork("t", id="the-fork", time=NOON)),
    "lease": (b"the-owner", lambda s: s.engine.lease("t", Acquire("the-owner", 60))),
    "blobs": (is_large_blob, lambda s: s.blobs.put(b"blob" * 10_000)),
    "purge": (b"COMMIT", lambda s: s.purge("t")),
    "sweep": (b"sweep_blobs", lambda s: s.sweep(grace_seconds=0)),
}


@pytest.fixture
def hasty(opened: Open, proxy: Proxy, database: str) -> clew.Store:
    """A store that gives up soon, with a connection that is there already."""
    store = opened(proxy.dsn(database), busy_seconds=1)
    store.create("t").append("event", 0)
    return store


@pytest.mark.parametrize(("name", "words"), pairs(tuple(WRITES), tuple(LAST_WORDS), 4))
def test_what_a_dying_server_may_have_committed_is_said_to_be_unknown(
    name: str, words: str, hasty: clew.Store, proxy: Proxy
) -> None:
    marker, write = WRITES[name]
    hasty.blobs.put(b"unused")
    proxy.cut_after(marker, last_words=last_words(words))
    if name != "sweep":  # which makes a connection of its own
        proxy.refusing = True
        with pytest.raises(clew.Unavailable, match="retry with the same ids") as caught:
            write(hasty)
        assert (caught.value.committed, caught.value.retryable) == (None, True)
        proxy.heal()
    else:
        write(hasty)
    assert proxy.cuts == 1
    if name not in ("purge", "lease"):
        write(hasty)  # the same once more, whatever became of it
    assert hasty.verify() == []


@dying
def test_a_server_that_is_back_in_time_has_written_once(
    words: str, store: clew.Store, beside: clew.Store, proxy: Proxy
) -> None:
    thread = store.create("t")
    for body in (1, LARGE):
        draft = clew.draft("event", body)
        proxy.cut_after(draft.id.encode(), last_words=last_words(words))
        [written] = store.engine.append("t", [draft])
        assert beside.get("t").path()[-1] == written
    lease = thread.leases.acquire("me")
    proxy.cut_after(b"the-fact", last_words=last_words(words))
    thread.set(status="the-fact")
    proxy.cut_after(b"clew", last_words=last_words(words))
    assert store.engine.lease("t", Renew(lease.fence, 600)) == thread.leases.active()
    assert proxy.cuts == 4
    assert [record.seq for record in beside.engine.read("t")] == [1, 2, 3]


@dying
def test_a_read_that_a_dying_server_did_not_answer_leaves_no_doubt(
    words: str, hasty: clew.Store, proxy: Proxy
) -> None:
    proxy.cut_after(b"clew.", last_words=last_words(words))
    proxy.refusing = True
    with pytest.raises(clew.Unavailable) as caught:
        hasty.engine.path("t")
    assert caught.value.committed is False


def test_what_the_server_itself_rolled_back_was_not_written(
    postgres_cluster: Cluster, database: str, beside: clew.Store
) -> None:
    """An error of COMMIT that leaves the connection standing is an answer."""
    thread = beside.create("t")
    for statement in (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'not this one' USING ERRCODE = '58030'; END $$",
        "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON clew.records DEFERRABLE INITIALLY "
        "DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()",
    ):
        postgres_cluster.sql(statement, database=database)
    with pytest.raises(clew.Unavailable, match="not this one") as caught:
        thread.append("event", 1)
    assert caught.value.committed is False
    assert thread.path() == []


@pytest.mark.parametrize("outcome", [*LAST_WORDS, "no word"])
def test_a_migration_whose_commit_was_not_answered_is_said_to_be_unknown(
    outcome: str, proxy: Proxy, postgres_cluster: Cluster
) -> None:
    words = last_words(outcome) if outcome in LAST_WORDS else b""
    address = parse(proxy.dsn())
    proxy.cut_after(b"COMMIT", last_words=words)
    with pytest.raises(ClewError) as caught, attached(address, 30) as wire, wire.transaction():
        wire.execute("SELECT pg_logical_emit_message(true, 'clew', '')")
    assert caught.value.committed is None


# --- the server's own PANIC -------------------------------------------------------------------

traced = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


@contextmanager
def failing_sync(pid: int) -> Iterator[None]:
    """Every sync of this process fails, as on a disk that cannot write any more."""
    command = ["strace", "-qq", "-p", str(pid), "-e", "trace=fdatasync,fsync"]
    command += ["-e", "inject=fdatasync,fsync:error=EIO"]
    tracer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _tracer_of(pid) == tracer.pid, "strace is attached")
        yield
    finally:
        tracer.terminate()
        tracer.wait(30)


def _tracer_of(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("TracerPid"))


@contextmanager
def server_of_one(opened: Open, *, recovers: bool) -> Iterator[tuple[Cluster, clew.Store, int]]:
    """A server that syncs, a store with one connection to it, and that connection's backend."""
    settings = {"fsync": "on", "wal_sync_method": "fdatasync"}
    settings["restart_after_crash"] = "on" if recovers else "off"
    with Cluster(name="panic", settings=settings) as cluster:
        name = cluster.create_database()
        store = opened(cluster.dsn(name), connections=1, busy_seconds=60 if recovers else 2)
        store.create("t").append("event", "before")
        query = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND application_name = 'clew'"
        [(pid,)] = cluster.sql(query, name)
        yield cluster, store, pid


@traced
@pytest.mark.parametrize("name", sample([name for name in WRITES if name != "sweep"], 4))
def test_a_panic_at_commit_is_an_outcome_that_is_unknown(name: str, opened: Open) -> None:
    """The sync of its log fails, and after its recovery what was written is there all the same."""
    write = WRITES[name][1]
    with server_of_one(opened, recovers=False) as (cluster, store, pid):
        with failing_sync(pid), pytest.raises(clew.Unavailable) as caught:
            write(store)
        assert "PANIC" in cluster.said()
        assert (caught.value.committed, caught.value.retryable) == (None, True)
        wait_until(lambda: not cluster.running, "the server is down")
        cluster.start()
        if name == "append":
            assert [entry.id for entry in store.get("t").path()][1:] == ["the-entry"]
        if name not in ("purge", "lease"):
            write(store)
        assert store.verify() == []


@traced
def test_an_append_outlives_a_panic_of_a_server_that_recovers(opened: Open) -> None:
    with server_of_one(opened, recovers=True) as (cluster, store, pid):
        with failing_sync(pid):
            written = store.get("t").append("event", "in the middle")
        assert "PANIC" in cluster.said()
        assert [entry.body for entry in store.get("t").path()] == ["before", "in the middle"]
        assert store.get("t").path()[-1] == written
