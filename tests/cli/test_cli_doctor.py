"""clew doctor says what an acknowledgement means here, why, and what to put right first."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from cli_support import Run
from msgspec.structs import replace
from places import ADDRESSES
from servers.bouncer import MISSING, Bouncer, find_pgbouncer
from servers.cluster import Cluster

import clew
from clew.cli import _exits
from clew.core.maintenance import Examined
from clew.engines.postgres.doctor import Look, Standby, judge
from clew.engines.postgres.server import Server
from clew.engines.shared.file_system import examine_disk
from clew.engines.sqlite.doctor import judge_library
from clew.upkeep.doctor import examine


@pytest.fixture(params=ADDRESSES)
def address(request: pytest.FixtureRequest) -> str:
    made = ADDRESSES[request.param](request)
    with clew.open(made, namespace="acme") as store:
        store.create("t").append("user_message", "hello")
    return made


def test_a_store_says_what_it_is_and_what_it_promises(run: Run, address: str) -> None:
    done = run("doctor", address, "--namespace", "acme")
    with clew.open(address, namespace="acme") as store:
        assert f"acknowledged: {store.properties.acknowledged}" in done.lines
        assert store.properties.place in done.lines[0]
    assert done.lines[1].startswith("namespace acme, format ")
    assert f"clew {clew.__version__}, Python " in done.lines[2]
    assert "holds 1 thread, 1 entry, 1 record, 0 blobs" in done.out


def test_the_same_as_json(run: Run, address: str) -> None:
    done = run("doctor", address, "--namespace", "acme", "--json")
    report = json.loads(done.out)
    assert report["properties"]["namespace"] == "acme"
    assert report["stats"]["entries"] == 1
    assert report["format"] >= 1
    assert report["sound"] == (done.code == 0)
    assert report["read"]


def test_looking_does_not_make_a_store(run: Run, tmp_path: Path) -> None:
    assert run("doctor", tmp_path / "no.db").code == _exits.USAGE
    assert run("doctor", f"files:{tmp_path}/no").code == _exits.USAGE
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("newer")
def test_looking_does_not_bring_a_store_up_to_date(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "old.db"
    clew.open(place).close()
    database = apsw.Connection(str(place))
    database.pragma("user_version", 1)
    database.close()
    failed = run("doctor", place)
    assert failed.code == _exits.UNSUPPORTED
    assert "run: clew migrate" in failed.err
    database = apsw.Connection(str(place))
    assert database.pragma("user_version") == 1
    database.close()


def test_a_store_that_others_can_read_is_told(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "my threads.db"
    clew.open(place).close()
    place.chmod(0o644)
    done = run("doctor", place)
    assert done.code == 0, "a warning is not something wrong"
    assert f"run: chmod 600 '{place}'\n" in done.out, "it can be pasted"
    assert done.out.index("warning: ") < done.out.index("acknowledged: ")


def test_an_unsafe_library_is_told() -> None:
    found = Examined()
    judge_library(found, 3_040_001)
    assert ["apsw" in finding.do for finding in found.findings] == [True]


@pytest.mark.parametrize(("kind", "warned"), [("tmpfs", 1), ("overlay", 1), ("ext4", 0), (None, 0)])
def test_a_disk_that_is_none_is_told(tmp_path: Path, kind: str | None, warned: int) -> None:
    found = Examined()
    examine_disk(found, str(tmp_path), kind)
    assert sum("file system" in finding.what for finding in found.findings) == warned


def test_ends_that_were_cut_off_and_an_index_that_is_not_used_are_told(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(0o700)
    with clew.open(f"files:{tmp_path}/store") as store:
        store.create("t").append("event")
        assert "up to date" in examine(store).read["index"]
        (tmp_path / "store" / "recovered" / "t.1").write_bytes(b"{")
        store.engine._store.index.fall_back()
        found = examine(store)
    assert found.read["index"] == "in memory only"
    assert found.read["ends cut off"] == "1"
    assert len([finding for finding in found.findings if "index" in finding.what]) == 1
    assert found.sound


# --- PostgreSQL ---

SERVER = Server(
    version_number=150000,
    version="15.0",
    encoding="UTF8",
    standby=False,
    backend=1,
    fsync="on",
    full_page_writes="on",
    synchronous_commit="on",
    standbys="",
    pooler=False,
)
LOOK = Look(
    server=SERVER,
    format=1,
    namespaces=1,
    standbys=[],
    autovacuum=True,
    connections=3,
    connections_max=100,
    skew_seconds=0.1,
    skew_within_seconds=0.01,
    host="db.example",
    encrypted=True,
    role="app",
    held=True,
    rls_wanted=False,
    rls_on=False,
    open_schemas=[],
)
SYNC = Standby("a", "streaming", "sync")
HIDDEN = Standby(None, None, None)

JUDGED: dict[str, tuple[Look, list[tuple[str, str]]]] = {
    "all is well": (LOOK, []),
    "no fsync": (replace(LOOK, server=replace(SERVER, fsync="off")), [("wrong", "fsync = on")]),
    "torn pages": (
        replace(LOOK, server=replace(SERVER, full_page_writes="off")),
        [("wrong", "full_page_writes = on")],
    ),
    "relaxed": (
        replace(LOOK, server=replace(SERVER, synchronous_commit="off")),
        [("warning", "set it to on")],
    ),
    "a standby confirms": (
        replace(LOOK, server=replace(SERVER, standbys="a"), standbys=[SYNC]),
        [],
    ),
    "a standby that we may not know of": (
        replace(LOOK, server=replace(SERVER, standbys="a"), standbys=[HIDDEN]),
        [],
    ),
    "no standby is there": (
        replace(LOOK, server=replace(SERVER, standbys="a")),
        [("wrong", "bring one back")],
    ),
    "only another standby is there": (
        replace(
            LOOK,
            server=replace(SERVER, standbys="a"),
            standbys=[Standby("b", "streaming", "async")],
        ),
        [("wrong", "bring one back")],
    ),
    "nobody waits for the standbys": (
        replace(LOOK, standbys=[Standby("b", "streaming", "async")]),
        [("warning", "synchronous_standby_names")],
    ),
    "no autovacuum": (replace(LOOK, autovacuum=False), [("warning", "switch it on")]),
    "crowded": (replace(LOOK, connections=90), [("warning", "pgbouncer")]),
    "clocks differ": (replace(LOOK, skew_seconds=-30.0), [("warning", "NTP")]),
    "a slow answer is no skew": (
        replace(LOOK, skew_seconds=3.0, skew_within_seconds=2.0),
        [],
    ),
    "in the clear": (replace(LOOK, encrypted=False), [("warning", "sslmode=verify-full")]),
    "in the clear, on this machine": (replace(LOOK, encrypted=False, host="127.0.0.1"), []),
    "half secured": (replace(LOOK, rls_wanted=True), [("wrong", "clew migrate --rls")]),
    "functions of others": (
        replace(LOOK, rls_wanted=True, rls_on=True, open_schemas=["public"]),
        [("warning", "REVOKE CREATE ON SCHEMA public")],
    ),
}


@pytest.mark.parametrize("name", JUDGED)
def test_what_a_server_says_is_judged(name: str) -> None:
    look, expected = JUDGED[name]
    found = Examined()
    judge(found, look)
    assert [finding.level for finding in found.findings] == [level for level, _ in expected]
    for finding, (_, part) in zip(found.findings, expected, strict=True):
        assert part in finding.do


@pytest.fixture(scope="module")
def durable() -> Iterator[Cluster]:
    with Cluster(settings={"fsync": "on", "full_page_writes": "on"}, name="durable") as cluster:
        yield cluster


def test_a_server_that_is_not_durable_is_wrong(run: Run, postgres_dsn: str) -> None:
    clew.open(postgres_dsn).close()
    done = run("doctor", postgres_dsn)
    assert done.code == _exits.ATTENTION
    assert done.lines[4].startswith("wrong: fsync is off")
    assert "ALTER SYSTEM SET fsync = on" in done.lines[5]


def test_a_server_and_its_standby_are_looked_at(run: Run, durable: Cluster) -> None:
    address = durable.dsn(durable.create_database())
    clew.open(address).close()
    alone = run("doctor", address)
    assert alone.code == 0
    assert "acknowledged: on the primary's disk; a standby may lack it" in alone.out
    assert "LISTEN works" in alone.out
    standby = durable.standby()
    followed = run("doctor", address)
    assert followed.code == 0
    assert "acknowledged: on the primary's disk and on a standby's too (standby)" in followed.out
    assert "standby (streaming, sync)" in followed.out
    standby.stop()
    left = run("doctor", address)
    assert left.code == _exits.ATTENTION
    assert "wrong: no synchronous standby is attached" in left.out
    durable.configure(synchronous_standby_names="")


@pytest.mark.skipif(find_pgbouncer() is None, reason=MISSING)
def test_a_pooler_is_noticed(run: Run, postgres_cluster: Cluster, postgres_dsn: str) -> None:
    clew.open(postgres_dsn).close()
    with Bouncer(postgres_cluster) as bouncer:
        done = run("doctor", bouncer.dsn(postgres_dsn.rpartition("/")[2]))
    assert "yes: no statement is prepared" in done.out
    assert "LISTEN does not come through" in done.out


def test_several_hosts_without_a_word_about_the_primary_are_told(
    run: Run, postgres_cluster: Cluster, postgres_dsn: str
) -> None:
    clew.open(postgres_dsn).close()
    database = postgres_dsn.rpartition("/")[2]
    port = postgres_cluster.port
    several = f"postgresql://postgres@127.0.0.1:{port},127.0.0.1:{port}/{database}"
    assert "add target_session_attrs=read-write" in run("doctor", several).out
    sure = f"{several}?target_session_attrs=read-write"
    assert "add target_session_attrs" not in run("doctor", sure).out


def test_what_the_pool_logs_is_not_spilled_on_the_terminal(run: Run, postgres_dsn: str) -> None:
    clew.open(postgres_dsn).close()
    logger = logging.getLogger("psycopg.pool")
    before = logger.level
    try:
        assert run("list", postgres_dsn).code == 0
        assert not logger.isEnabledFor(logging.WARNING)
    finally:
        logger.setLevel(before)
    code = (
        "import logging, sys, clew.engines.postgres;"
        "sys.exit(logging.getLogger('psycopg.pool').level)"
    )
    ended = subprocess.run([sys.executable, "-c", code], env=dict(os.environ), check=False)
    assert ended.returncode == logging.NOTSET, "a library leaves logs alone"
